"""A RailX testbed as a file that `lightrig check` accepts: whole, or a large one by its sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated

import typer

from lightrig.harness.systems.railx.chip_testbed import chip_fibers, chip_plans, chip_servers
from lightrig.harness.systems.railx.planning.cross_connects import DARK, DIMENSIONS
from lightrig.harness.systems.railx.planning.physical import Dimension, RailFabric, RailxError
from lightrig.harness.systems.railx.planning.topologies import Axis, Kind, line_setting

MOST_NAMES = 4096
"""Names that one range of a testbed file may stand for."""

MOST_WHOLE = 2048
"""Switches of a testbed that is written whole; a larger one is written by its sizes."""

MOST_NAMESPACE_PORTS = 250
"""All ports of namespaces are in one subnet."""

WITHOUT_DECOMPOSITION = (4, 6)
"""Sizes whose all-to-all has one link a pair, since two are impossible (Lemma 3.1)."""

_SWITCH = "model: polatis, address: 'tl1://{name}.invalid', login: env:OCS_LOGIN"
_NAMESPACE = "model: veth, netdev: '{axis}{{n}}p{{p}}', ip: '192.0.2.{{k}}/24', rate: 10M"
_OPTICAL = "netdev: '{axis}{{n}}p{{p}}', rate: 400G"

# Neither the paper nor what it cites gives times or losses. The times are those that makers of
# piezo switches print; the namespaces are slower, since real time passes there.
_TRUTH = """&ocs
      acknowledge: {mean: 20 ms, sd: 0.5 ms}
      dark:        {mean: 2 ms, sd: 0.1 ms}
      settle:      {mean: 15 ms, sd: 0.5 ms}
      loss:        {mean: 1.2 dB, sd: 0.2 dB}
      monitor:     {averaging: 10 ms, noise: 0.03 dB}"""
_SLOW_TRUTH = (
    _TRUTH.replace("20 ms, sd: 0.5 ms", "95 ms, sd: 1 ms")
    # A carrier that is down for less may go unseen on a busy machine.
    .replace("15 ms, sd: 0.5 ms", "90 ms, sd: 1 ms")
)

_TRANSCEIVERS = (
    "transceivers:    # levels are not published: those of 400GBASE-FR4, IEEE 802.3cu",
    "  rail: {wavelength: 1310 nm, wavelengths: 4, launch: {min: -3.3 dBm, max: 3.5 dBm}, "
    "receive: {min: -7.3 dBm, max: 3.5 dBm}}",
)
_LIMITS = (
    "  # two commands a switch, of 20 ms each, where a plan leaves circuits out",
    "  reconfiguration.acknowledged: {p90: 45 ms, confidence: 95 %}",
    "  insertion_loss: {max: 3 dB}",
)
_SIMULATED_NIC = (
    "  nic:           # a guess too: ports of chips, without a NIC's firmware",
    "    loss_detection: {mean: 1 ms, sd: 0.1 ms}",
    "    bring_up:       {mean: 20 ms, sd: 1 ms}",
    "    carrier:        {mean: 75 us, sd: 2 us}",
    "    resume:         {mean: 1 ms, sd: 0.1 ms}",
)


def generate(
    columns: Annotated[int, typer.Option(min=1, help="Nodes in a row.")] = 5,
    rows: Annotated[int, typer.Option(min=1, help="Nodes in a column.")] = 5,
    mesh: Annotated[int, typer.Option(min=1, help="m: a node has m x m chips.")] = 2,
    ports: Annotated[int, typer.Option(min=1, help="n: optical ports on a chip edge.")] = 2,
    context: Annotated[
        int, typer.Option(min=0, help="Nodes of a context-parallel ring, for plans by phase.")
    ] = 0,
    expert: Annotated[
        int, typer.Option(min=0, help="Nodes of an expert-parallel all-to-all, likewise.")
    ] = 0,
    namespaces: Annotated[
        bool, typer.Option("--namespaces", help="Nodes that are namespaces of this machine.")
    ] = False,
    chips: Annotated[
        bool,
        typer.Option("--chips", help="Chips that are namespaces of this machine, with their mesh."),
    ] = False,
    by_sizes: Annotated[
        bool,
        typer.Option(
            "--by-sizes",
            help="State the sizes, and what all parts have in common, once; always so above "
            f"{MOST_WHOLE} switches or {MOST_NAMES} nodes.",
        ),
    ] = False,
) -> str:
    """Write nodes in a grid, each with m n rails a dimension, and a circuit switch for each rail.

    Exit 0, or 2 for sizes that cannot be built.
    """
    return render(
        columns,
        rows,
        mesh=mesh,
        ports=ports,
        phases=(context, expert) if context or expert else None,
        namespaces=namespaces,
        chips=chips,
        by_sizes=by_sizes,
    )


def render(
    columns: int,
    rows: int,
    *,
    mesh: int = 2,
    ports: int = 2,
    phases: tuple[int, int] | None = None,
    namespaces: bool = False,
    chips: bool = False,
    by_sizes: bool = False,
) -> str:
    """Return the testbed file of a grid of `columns` x `rows` nodes as YAML.

    Rail a of node (i, j) is its NIC x<a> or y<a>, port p0 the plus and p1 the minus port; it is
    cabled to port 2 u + 1 and 2 u + 2 of the switch xocs<j>-<a> or yocs<i>-<a>, where u is the
    node's place in its line. A dimension with one node has no switches.

    The plan "torus" joins each line by rings on all rails, "hyperx" by the all-to-all of as many
    nodes as the rails join; where that has no decomposition, each pair has one link. With `phases`,
    the sizes of context- and expert-parallel groups, the plans "context" and "expert" lead all
    X-rails to one of them in turn, and leave the Y-rails alone.

    chips: each chip is a namespace, and fibers join those of a node (`chip_testbed`).

    by_sizes: write what `structure` reads, as is always done for what no whole file holds.

    Raises `RailxError` for sizes that no switch, file or machine can hold.
    """
    fabric = RailFabric(mesh, ports, columns, rows, 2 * max(columns, rows))
    used = dimensions(fabric)
    if not used:
        raise RailxError("found one node, expected at least two to join")
    switches = sum(fabric.lines(d) * fabric.rails for d in used)
    if by_sizes or switches > MOST_WHOLE or fabric.nodes > MOST_NAMES:
        if namespaces or chips:
            raise RailxError("a fabric that is written by its sizes has no namespaces")
        return _by_sizes(fabric, phases)
    if chips and (namespaces or phases):
        raise RailxError("chips are namespaces already, and have no plans by phase")
    if chips and len(used) < 2:
        raise RailxError("chips need two rows and two columns of nodes, or more")
    netdevs = 2 * len(used) * fabric.rails * fabric.nodes
    netdevs += 4 * mesh * (mesh - 1) * fabric.nodes if chips else 0
    namespaces = namespaces or chips
    if namespaces and netdevs > MOST_NAMESPACE_PORTS:
        raise RailxError(
            f"found {netdevs} ports, expected at most {MOST_NAMESPACE_PORTS} on one machine"
        )
    return "\n".join(
        [
            "# yaml-language-server: $schema=schema.json",
            f"name: {f'railx{fabric.chips}' if chips else _name(fabric, namespaces)}",
            f"about: {columns} x {rows} {_kind_of_node(mesh, namespaces, chips)} with "
            f"{fabric.rails} rails a dimension, generated (RailX, §3.2)",
            "system: railx",
            "",
            f"# A duplex port k of a switch is ingress k and egress k + {fabric.radix}; plus ports"
            " are odd.",
            "switches:",
            *(
                f"  {d}ocs{numbered(fabric.lines(d))}-{numbered(fabric.rails)}: "
                f"{{{_SWITCH}, size: {fabric.radix}x{fabric.radix}, loss: {{max: 3 dB}}, "
                "options: {rerouting: true}}"
                for d in used
            ),
            "",
            "servers:",
            *(chip_servers(fabric) if chips else _node_servers(fabric, used, namespaces)),
            "",
            *_TRANSCEIVERS,
            "",
            "fibers:"
            + (
                ""
                if chips
                else "          # in order: both ports of a node, then of the next in the line"
            ),
            *(f"  - {line}" for line in (chip_fibers if chips else fibers)(fabric)),
            "",
            "plans:",
            *(chip_plans(fabric) if chips else plans(fabric, phases)),
            "",
            "limits:",
            *(
                [
                    "  reconfiguration.carrier_up: {p50: 2 s, confidence: 95 %}",
                ]
                if namespaces
                else _LIMITS
            ),
            "",
            "simulation:      # a guess: the paper gives neither times nor losses of a switch",
            "  switches:",
            *_simulated(fabric, used, _SLOW_TRUTH if namespaces else _TRUTH),
            *([] if namespaces else _SIMULATED_NIC),
            "",
        ]
    )


def _kind_of_node(mesh: int, namespaces: bool, chips: bool) -> str:
    if chips:
        return f"nodes of {mesh} x {mesh} namespaces"
    return "namespaces" if namespaces else "nodes"


def _node_servers(fabric: RailFabric, used: Sequence[Dimension], namespaces: bool) -> Iterator[str]:
    yield f"  node{numbered(fabric.columns)}-{numbered(fabric.rows)}:"
    yield "    address: " + ("netns://{name}" if namespaces else "ssh://bench@{name}.invalid")
    if not namespaces:
        yield f"    gpus: {{count: {fabric.mesh**2}}}      # m x m chips"
    yield "    nics:          # p0 is the plus, p1 the minus port of a rail"
    for d in used:
        nic = (_NAMESPACE if namespaces else _OPTICAL).format(axis=d)
        yield f"      {d}{numbered(fabric.rails)}: {{ports: 2, {nic}, transceiver: rail}}"


def _by_sizes(fabric: RailFabric, phases: tuple[int, int] | None) -> str:
    sizes = {n: getattr(fabric, n) for n in ("columns", "rows", "mesh", "ports")}
    if phases is not None:
        sizes |= dict(zip(("context", "expert"), phases, strict=True))
    stated = ", ".join(f"{name}: {size}" for name, size in sizes.items())
    return "\n".join(
        [
            "# yaml-language-server: $schema=schema.json",
            f"name: {_name(fabric, namespaces=False)}",
            f"about: {fabric.columns} x {fabric.rows} nodes with {fabric.rails} rails a dimension, "
            "by their sizes (RailX, §3.2)",
            "system: railx",
            "",
            f"fabric: {{{stated}}}",
            "",
            "switches:        # of each rail of each row and column",
            f"  rail: {{{_SWITCH}, size: {fabric.radix}x{fabric.radix}, loss: {{max: 3 dB}}, "
            "options: {rerouting: true}}",
            "",
            "servers:",
            "  node:",
            "    address: ssh://bench@{name}.invalid",
            f"    gpus: {{count: {fabric.mesh**2}}}      # m x m chips",
            "    nics:          # p0 is the plus, p1 the minus port of a rail",
            "      rail: {ports: 2, netdev: '{axis}{n}p{p}', rate: 400G, transceiver: rail}",
            "",
            *_TRANSCEIVERS,
            "",
            "limits:",
            *_LIMITS,
            "",
            "simulation:      # a guess: the paper gives neither times nor losses of a switch",
            "  switches:",
            "    rail:" + _TRUTH.removeprefix("&ocs"),
            *_SIMULATED_NIC,
            "",
        ]
    )


def dimensions(fabric: RailFabric) -> list[Dimension]:
    """Return the dimensions that have switches: those with more than one node."""
    return [d for d in DIMENSIONS if fabric.length(d) > 1]


def _name(fabric: RailFabric, namespaces: bool) -> str:
    if namespaces:
        return f"railx{fabric.nodes}"
    standard = (fabric.columns, fabric.rows, fabric.rails) == (5, 5, 4)
    return "railx" if standard else f"railx-{fabric.columns}x{fabric.rows}-{fabric.rails}"


def fibers(fabric: RailFabric) -> Iterator[str]:
    """Yield a line of the section `fibers` for each switch."""
    for d in dimensions(fabric):
        for line in range(fabric.lines(d)):
            for rail in range(fabric.rails):
                nodes = node_names(d, numbered(fabric.length(d)), str(line))
                yield f"{nodes}.{d}{rail}.p[0-1] <-> {d}ocs{line}-{rail}"


def plans(fabric: RailFabric, phases: tuple[int, int] | None) -> Iterator[str]:
    """Yield the lines of the section `plans`."""
    used = dimensions(fabric)
    rails = tuple(range(fabric.rails))
    rings = {d: [Axis(fabric.length(d), "ring", rails)] for d in used}
    direct: dict[Dimension, Sequence[Axis]] = {}
    for d in used:
        size = min(fabric.rails + 1, fabric.length(d))
        kind: Kind = "single-link" if size in WITHOUT_DECOMPOSITION else "all-to-all"
        direct[d] = [Axis(size, kind, rails)]
    yield from _plan(fabric, "torus", "rings on all rails (§3.3.1)", rings)
    yield from _plan(fabric, "hyperx", "all-to-all out of rail rings (§3.3.2)", direct)
    if phases is None:
        return
    context, expert = phases
    if min(phases) < 2:
        raise RailxError(f"found phases of {context} and {expert} nodes, expected 2 or more each")
    ring, pairs = Axis(context, "ring", rails), Axis(expert, "all-to-all", rails)
    idle = Axis(context, "ring", ()), Axis(expert, "ring", ())
    for name, axes in (("context", [ring, idle[1]]), ("expert", [idle[0], pairs])):
        about = f"all X-rails to {name} parallelism (§5.2)"
        yield from _plan(fabric, name, about, {**direct, "x": axes})


def _plan(
    fabric: RailFabric, name: str, about: str, axes: Mapping[Dimension, Sequence[Axis]]
) -> Iterator[str]:
    """Yield a plan, with one line for neighbouring rails whose circuits are alike."""
    yield f"  {name}:".ljust(19) + f"# {about}"
    for d, logical in axes.items():
        setting = line_setting(fabric, d, logical).tolist()
        lines = numbered(fabric.lines(d))
        for row, alike in groupby(range(fabric.rails), key=setting.__getitem__):
            rails = list(alike)
            joined = [(u, v) for u, v in enumerate(row) if v != DARK]
            if not joined:
                continue
            most = max(MOST_NAMES // (len(joined) * fabric.lines(d)), 1)
            plus, minus = (
                node_names(d, _numbers(ends), lines) for ends in zip(*joined, strict=True)
            )
            for first in range(0, len(rails), most):
                part = _numbers(rails[first : first + most])
                yield f"    - {plus}.{d}{part}.p0 <-> {minus}.{d}{part}.p1"


def _simulated(fabric: RailFabric, used: Sequence[Dimension], truth: str) -> Iterator[str]:
    for d in used:
        for line in range(fabric.lines(d)):
            for rail in range(fabric.rails):
                yield f"    {d}ocs{line}-{rail}: {truth}"
                truth = "*ocs"


def node_names(dimension: Dimension, place: str, line: str) -> str:
    """Return the names of nodes at `place` in the line or lines `line` of a dimension."""
    return f"node{place}-{line}" if dimension == "x" else f"node{line}-{place}"


def numbered(count: int) -> str:
    """Return the numbers below `count` as a range of a testbed file."""
    return _numbers(range(count))


def _numbers(numbers: Iterable[int]) -> str:
    """Return numbers as a testbed file's range, in their order, such as ``[1-4,0]``."""
    # Within an ascending run, the difference of value and position is constant.
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    parts = []
    for _, run in runs:
        values = [value for _, value in run]
        parts.append(f"{values[0]}-{values[-1]}" if len(values) > 1 else str(values[0]))
    text = ",".join(parts)
    return f"[{text}]" if set(text) & set(",-") else text
