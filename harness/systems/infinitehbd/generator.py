"""A testbed of any size, as a file that `lightrig check` accepts."""

from collections.abc import Iterator
from typing import Annotated

import numpy as np
import typer

from lightrig.harness.systems.infinitehbd.planning.placement import place
from lightrig.harness.systems.infinitehbd.planning.rings import Path, bundles, circuits, paths
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    FatTree,
    InfiniteHbdError,
    Nodes,
    RowWiring,
    k_hop,
    powers_of_two,
)

MOST = 4096
"""Names that one range of a testbed's file may stand for."""

_LOOPBACK = 4
_STAYS = -1
"""In place of a path: the plan leaves this bundle as it is."""

_NAMESPACE = "netdev: 'trx{n}p{p}', model: veth, ip: '192.0.2.{k}/24'"
_MOST_NAMESPACES = 40
"""Each has three ports a bundle, and all ports are in one subnet."""
_TRUTH = """&trx
      acknowledge: {mean: 75 us, sd: 2 us}
      dark:        {mean: 5 us, sd: 0.5 us}
      settle:      {mean: 70 us, sd: 2.5 us}
      loss:        {mean: 3.3 dB, sd: 0.27 dB}"""


def generate(
    nodes: Annotated[int, typer.Option(min=1, help="Nodes in the row.")] = 8,
    hops: Annotated[int, typer.Option(help="K: the farthest node that a link reaches.")] = 2,
    gpus: Annotated[int, typer.Option(help="GPUs of a node.")] = 4,
    group: Annotated[int, typer.Option(help="Nodes of a ring in the file's plans.")] = 3,
    line: Annotated[bool, typer.Option("--line", help="Leave the row's ends apart.")] = False,
    namespaces: Annotated[
        bool, typer.Option("--namespaces", help="Nodes that are namespaces of this machine.")
    ] = False,
    binary: Annotated[
        bool,
        typer.Option("--binary", help="Links over 1, 2, 4 ... nodes, for all-to-all (App. G)."),
    ] = False,
    dac: Annotated[
        bool, typer.Option("--dac", help="Cables in place of the modules that are never needed.")
    ] = False,
    per_tor: Annotated[int, typer.Option(help="Nodes under a ToR; 0: no fat tree.")] = 0,
    per_domain: Annotated[
        int, typer.Option(help="Nodes under a group of aggregation switches; 0: all.")
    ] = 0,
    fixed: Annotated[
        bool, typer.Option("--fixed", help="Fixed optics in one ring, as the paper's 32 GPUs.")
    ] = False,
) -> str:
    """Write a ring of nodes whose transceivers switch, each joined to its K next on both sides.

    Exit 0, or 2 for sizes that cannot be built.
    """
    if fixed:
        return render_fixed(nodes, gpus=gpus)
    return render(
        nodes,
        hops=hops,
        gpus=gpus,
        group=group,
        line=line,
        namespaces=namespaces,
        binary=binary,
        dac=dac,
        fat_tree=(per_tor, per_domain or nodes) if per_tor else None,
    )


def render(
    nodes: int,
    *,
    hops: int = 2,
    gpus: int = 4,
    group: int = 3,
    line: bool = False,
    namespaces: bool = False,
    binary: bool = False,
    dac: bool = False,
    fat_tree: tuple[int, int] | None = None,
) -> str:
    """The description of a K-hop ring, or line, of `nodes` nodes, as YAML.

    Each bundle of a node is a switch with one module, which stands for all of the bundle's, as
    they take the same path, and a NIC whose port p0 sends. Light is received by a detector for
    each path: p0 for external path 1, p1 for path 2, p2 for the loopback.

    Of its plans, "whole" makes rings of `group` nodes, and "bypass" is what nodes are told when
    the node in the middle of the last ring has failed: where nodes are left over, the ring is
    made again past it.

    namespaces: the nodes are network namespaces of this machine, of which every circuit is a
    link of the kernel; "whole" is then one ring through all of them, and "bypass" the ring past
    the node in the middle. binary: links lead over 1, 2, 4 ... nodes (G.3), not over 1, 2, 3 ...;
    the plans of namespaces are then the rounds of an exchange, "over4", "over2" and "over1".
    dac: the pairs of GPUs without a bundle, which would be in loopback for ever, are joined by
    direct cables (Fig. 5). fat_tree: nodes of a ToR and of a domain; the row is then deployed as
    Algorithm 3 has it. Raises `InfiniteHbdError` for sizes that cannot be.
    """
    if nodes > MOST:
        raise InfiniteHbdError(f"found {nodes} nodes, expected at most {MOST} in one file")
    if not 2 <= hops <= gpus:
        raise InfiniteHbdError(f"found {hops} hops, expected 2 to the {gpus} GPUs of a node (§4.2)")
    wiring = (powers_of_two if binary else k_hop)(nodes, hops, closed=not line)
    cables = range(hops, gpus) if dac else range(0)
    if dac and (namespaces or not cables):
        raise InfiniteHbdError(
            f"found {hops} bundles for {gpus} GPUs, and cables join pairs of GPUs without one"
            + (", which namespaces have not" if namespaces else "")
        )
    if nodes <= wiring.reach:
        raise InfiniteHbdError(f"found {nodes} nodes, expected at least {wiring.reach + 1}")
    if fat_tree:
        FatTree(nodes, *fat_tree)
    if binary and namespaces:
        plans = _exchanges(wiring)
    else:
        whole, bypass = _one_ring(wiring) if namespaces else _rings(wiring, group)
        plans = {"whole": whole, **({"bypass": bypass} if (bypass != _STAYS).any() else {})}
    shape, every = "line" if line else "ring", _range(0, nodes - 1)
    what = "namespaces" if namespaces else f"nodes with {gpus} GPUs each"
    rate, settings = ("200M", _NAMESPACE) if namespaces else ("800G", "netdev: 'trx{n}p{p}'")
    return "\n".join(
        [
            "# yaml-language-server: $schema=schema.json",
            f"name: infinitehbd{('-binary' if binary else '') if namespaces else '-'}{nodes}",
            f"about: A {hops}-hop {shape} of {nodes} {what}, generated"
            f" (InfiniteHBD, SIGCOMM 2025, {'G.3' if binary else '§4.2'})",
            "system: infinitehbd",
            *(
                [f"fat_tree: {{per_tor: {fat_tree[0]}, per_domain: {fat_tree[1]}}}"]
                if fat_tree
                else []
            ),
            "",
            "# A bundle's one module stands for all of them, which take the same path. It sends",
            "# from p0 and has a detector a path: p0 external 1, p1 external 2, p2 loopback.",
            "switches:",
            *(
                f"  trx{bundle}-node{every}: {{model: ocstrx, "
                'address: "serial:///dev/{name}", size: 1x3, loss: {max: 4 dB}}'
                for bundle in range(hops)
            ),
            "",
            "servers:",
            f"  node{every}:",
            *(
                ["    address: netns://{name}"]
                if namespaces
                else ["    address: ssh://bench@{name}.invalid", f"    gpus: {{count: {gpus}}}"]
            ),
            "    nics:",
            f"      trx{_range(0, hops - 1)}: {{ports: 3, {settings}, rate: {rate}, "
            "transceiver: ocstrx}",
            *(
                [
                    f"      dac{_range(hops, gpus - 1)}: {{ports: 2, netdev: 'dac{{n}}p{{p}}', "
                    f"rate: {rate}}}"
                ]
                if cables
                else []
            ),
            "",
            "transceivers:    # levels are not published: guesses that close over 4 dB",
            "  ocstrx: {wavelength: 1310 nm, wavelengths: 1, launch: {min: -1 dBm, max: 4 dBm}, "
            "receive: {min: -6 dBm, max: 4 dBm}}",
            "",
            "fibers:",
            *(f"  - {fiber}" for fiber in _fibers(wiring)),
            *(
                f"  - node{_range(0, nodes - 1)}.dac{pair}.p0 <-> "
                f"node{_range(0, nodes - 1)}.dac{pair}.p1"
                for pair in cables
            ),
            "",
            "plans:",
            *(line for name, taken in plans.items() for line in _plan(name, taken)),
            "",
            *([] if namespaces else ["limits:", "  insertion_loss: {max: 4 dB}", ""]),
            "simulation:      # published: 60 to 80 us, 2.5 to 4.0 dB, mean 3.3 dB at 25 °C",
            "  switches:",
            *(
                f"    trx{bundle}-node{node}: {'*trx' if bundle or node else _TRUTH}"
                for bundle in range(hops)
                for node in range(nodes)
            ),
            "",
        ]
    )


def render_fixed(nodes: int, *, gpus: int = 4) -> str:
    """The description of a ring of fixed optics, as the 32 GPUs of §5.2 had it; YAML.

    1536 Gbit/s are 96 lanes of PCIe 4.0, raw. How many nodes held the 32 GPUs is not published.
    Raises `InfiniteHbdError` for fewer than three nodes.
    """
    if not 3 <= nodes <= MOST:
        raise InfiniteHbdError(f"found {nodes} nodes, expected 3 to {MOST} in a ring")
    every = _range(0, nodes - 1)
    return "\n".join(
        [
            "# yaml-language-server: $schema=schema.json",
            f"name: infinitehbd-fixed-{nodes * gpus}",
            f"about: {nodes * gpus} GPUs in a ring of fixed optics, generated (InfiniteHBD, §5.2)",
            "system: infinitehbd",
            "",
            "switches: {}     # cabled by hand",
            "",
            "servers:",
            f"  node{every}:",
            "    address: ssh://bench@{name}.invalid",
            f"    gpus: {{count: {gpus}}}",
            "    nics:",
            "      nic[0-1]: {netdev: 'hbd{n}', rate: 1536G, transceiver: pcie-4x96}",
            "",
            "transceivers:    # levels are not published: guesses",
            "  pcie-4x96: {wavelength: 850 nm, wavelengths: 1, launch: {min: -1 dBm, max: 4 dBm}, "
            "receive: {min: -6 dBm, max: 4 dBm}}",
            "",
            "fibers:",
            f"  - node{_range(0, nodes - 2)}.nic1 <-> node{_range(1, nodes - 1)}.nic0",
            f"  - node{nodes - 1}.nic1 <-> node0.nic0",
            "",
        ]
    )


def _rings(wiring: RowWiring, group: int) -> tuple[Nodes, Nodes]:
    """Return the paths that make rings of `group`, and those that bypass a failed node.

    Rings without the failed node stay; a node whose paths stay is `_STAYS`.
    """
    busy = np.zeros(wiring.nodes, dtype=bool)
    placed = place(busy, group, wiring.reach, closed=wiring.closed)
    whole, joined = paths(wiring, placed)
    rings = placed[joined]
    if not len(rings):
        raise InfiniteHbdError(
            f"found {wiring.nodes} nodes, expected at least the {group} of a ring"
        )
    failed = int(rings[-1, group // 2])
    busy[rings[:-1]] = busy[failed] = True
    fresh = place(busy, group, wiring.reach, closed=wiring.closed)
    fresh = fresh[paths(wiring, fresh)[1]]
    bypass, _ = paths(wiring, np.concatenate([rings[:-1], fresh]))
    stays = (bypass == whole).all(axis=1)
    stays[failed] = True
    bypass[stays] = _STAYS
    whole[(whole == Path.LOOPBACK).all(axis=1)] = _STAYS
    return whole, bypass


def _one_ring(wiring: RowWiring) -> tuple[Nodes, Nodes]:
    """Return the paths that make one ring, and those that bypass the node in the middle."""
    if wiring.nodes > _MOST_NAMESPACES:
        raise InfiniteHbdError(
            f"found {wiring.nodes} nodes, expected at most {_MOST_NAMESPACES} on one machine"
        )
    if not wiring.closed:
        raise InfiniteHbdError("found a line, expected a ring: its ends have no link")
    ring = np.arange(wiring.nodes)
    whole, _ = paths(wiring, ring[np.newaxis], closed=True)
    bypass, _ = paths(wiring, np.delete(ring, wiring.nodes // 2)[np.newaxis], closed=True)
    return whole, bypass


def _exchanges(wiring: RowWiring) -> dict[str, Nodes]:
    """Return the paths of each round of an exchange among all nodes, by the name of its plan."""
    nodes = wiring.nodes
    if nodes > _MOST_NAMESPACES:
        raise InfiniteHbdError(f"found {nodes} nodes, expected at most {_MOST_NAMESPACES}")
    if nodes != 2 * wiring.reach:
        raise InfiniteHbdError(
            f"found {nodes} nodes, expected {2 * wiring.reach}: {len(wiring.hops)} links to a side "
            "make as many rounds, each of which halves the nodes (Appendix G)"
        )
    node, found = np.arange(nodes), {}
    for hop in reversed(wiring.hops):
        pairs = np.column_stack([node, node ^ hop])[node & hop == 0]
        found[f"over{hop}"], _ = paths(wiring, pairs)
    return found


def _fibers(wiring: RowWiring) -> Iterator[str]:
    every = _range(0, wiring.nodes - 1)
    sides = bundles(wiring)
    detector = {hop: (n, path) for n, pair in enumerate(sides) for path, hop in enumerate(pair)}
    for bundle in range(len(sides)):
        yield f"node{every}.trx{bundle}.p0 -> trx{bundle}-node{every}.1"
        yield f"trx{bundle}-node{every}.{_LOOPBACK} -> node{every}.trx{bundle}.p2"
    for hop, (bundle, path) in detector.items():
        far, port = detector[-hop]
        for first, last, at in _spans(wiring, hop):
            source, sink = _range(first, last), _range(at, at + last - first)
            yield f"trx{bundle}-node{source}.{path + 2} -> node{sink}.trx{far}.p{port}"


def _spans(wiring: RowWiring, hop: int) -> Iterator[tuple[int, int, int]]:
    """First and last node of a run with a link over `hop`, and where the first one's ends."""
    last = wiring.nodes - 1
    yield max(0, -hop), last - max(0, hop), max(0, hop)
    if wiring.closed:
        yield (last - hop + 1, last, 0) if hop > 0 else (0, -hop - 1, last + hop + 1)


def _plan(name: str, taken: Nodes) -> Iterator[str]:
    yield f"  {name}:"
    yield "    circuits:"
    for (node, bundle), path in np.ndenumerate(taken):
        if path != _STAYS:
            (circuit,) = circuits(Path(int(path)), 1)
            yield f'      trx{bundle}-node{node}: ["{circuit}"]'


def _range(first: int, last: int) -> str:
    return f"[{first}-{last}]" if last > first else f"{first}"
