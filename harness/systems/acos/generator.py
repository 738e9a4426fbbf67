"""Deployments as testbed files: every low-radix switch on its own serial line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Literal, TypeAlias

import numpy as np
import typer

from lightrig.harness.systems.acos.planning.budgets import closing_class, worst_circuit
from lightrig.harness.systems.acos.planning.datacentre import HALLS
from lightrig.harness.systems.acos.planning.optics import (
    DARK,
    Array,
    FabricError,
    OpticalFabric,
    States,
    selected,
)
from lightrig.harness.systems.acos.planning.rack import CLUSTERS, Degrees, Spec, build, cluster
from lightrig.harness.systems.acos.planning.rack_plans import configure, supported
from lightrig.harness.systems.acos.planning.rings import BACKUP, NODES
from lightrig.harness.systems.acos.planning.server_rings import server_rings
from lightrig.testbeds import LightrigError

_RINGS = {"inner": (0, 1, 2, 3, 4), "outer": (0, 2, 4, 1, 3)}
"""Two rings of five servers without a common link."""

_COMMENT = "\n                 # "
_CLOSES = (
    f"the weakest{_COMMENT}class that closes over the most switches and connectors of a circuit"
)
_REACHABLE = f"as much as{_COMMENT}is lost wherever the switches could lead light, by a plan or not"
_REACHABLE_DB = 12.0
"""Loss between transceivers of a resilient rack. The check of a file follows light wherever its
switches could lead it, also through eight that no plan sets so."""

_SELECTION = {"select-transmit": "tx-gpu{}-lane{}", "select-receive": "rx-gpu{}-lane{}"}

_TRUTH = """{acknowledge: {mean: 8 ms, sd: 0.1 ms}, dark: {mean: 0.5 ms, sd: 0.05 ms}, \
settle: {mean: 7.5 ms, sd: 0.1 ms}, loss: {mean: 0.7 dB, sd: 0.1 dB}}"""


def jobs_of(spec: Spec) -> list[Degrees]:
    """Return the parallelisms of a cluster that its file has plans for."""
    if spec.stages == 1:
        return supported(spec)
    # Those of Fig. 4, with a longer pipeline over two racks.
    wide, ep = [(4, spec.stages), (8, spec.stages // 2)], (16, 8) if spec.expands else (0, 0)
    return [
        Degrees(tp, pp, spec.stages * 2 * NODES // (tp * pp), each)
        for (tp, pp), each in zip(wide, ep, strict=True)
    ]


class DeploymentError(LightrigError, ValueError):
    """A deployment that cannot be a testbed file."""


Backups: TypeAlias = Literal["none", "nodes", "racks", "both"]


def generate(
    gpus: Annotated[
        int,
        typer.Option(
            help="GPUs of the cluster: 16, 64, 128 or, with spares, 18, 72, 144; active ones of a "
            "data centre, by its sizes: 1024, 4096, 32768."
        ),
    ] = 16,
    lanes: Annotated[
        int | None,
        typer.Option(help="Lanes of a GPU: 8 from 64 GPUs on, or 2 for jobs without experts."),
    ] = None,
    backups: Annotated[
        Backups | None,
        typer.Option(help="Backups of a data centre; both without this option."),
    ] = None,
    double_offsets: Annotated[
        bool,
        typer.Option("--double-offsets", help="Data centre: diagonals to both neighbouring nodes."),
    ] = False,
    namespaces: Annotated[
        bool,
        typer.Option("--namespaces", help="Five servers that are namespaces, in two rings."),
    ] = False,
) -> str:
    """Write a cluster of ACOS: each 1xN and 2x2 switch on its own serial line, with its plans.

    Exit 0, or 2 for sizes that a file cannot have.
    """
    if gpus in HALLS:
        return render_hall(gpus, backups or "both", double_offsets=double_offsets)
    if backups or double_offsets:
        raise DeploymentError("--backups and --double-offsets are of data centres, --gpus 1024 on")
    return render_rings() if namespaces else render(gpus, lanes)


def render_hall(gpus: int, backups: Backups = "both", *, double_offsets: bool = False) -> str:
    """Return the description of a data centre by its sizes, as YAML."""
    sizes = [f"gpus: {gpus}"]
    sizes += ["node_backups: 1"] * (backups in {"nodes", "both"})
    sizes += ["rack_backups: 1"] * (backups in {"racks", "both"})
    sizes += ["double_offsets: 1"] * double_offsets
    kinds = {"none": "without backups", "both": "with backup nodes and racks"}
    return "\n".join(
        [
            "# yaml-language-server: $schema=schema.json",
            f"name: acos-{gpus}",
            f"about: {gpus:,} active GPUs {kinds.get(backups, f'with backup {backups}')}, by their "
            "sizes (ACOS, §5.3)",
            "system: acos",
            "",
            f"fabric: {{{', '.join(sizes)}}}",
            "",
            "switches: {}        # arrays of equal ones, which `lightrig check` lists",
            "",
        ]
    )


def render(gpus: int = 16, lane_count: int | None = None) -> str:
    """Return the description of a cluster as YAML, one server for each GPU.

    With backups, servers are the nodes of GPUs that fail together (§5.2), each rack's last its
    spare.

    Raises `DeploymentError` for other sizes.
    """
    try:
        rack = build(cluster(gpus, lane_count))
    except FabricError as error:
        raise DeploymentError(str(error)) from error
    settings: dict[str, States] = {}
    for job in jobs_of(rack.spec):
        plan = configure(rack, job)
        for topology, choice in plan.choice.items():
            states = selected(rack.fabric, plan.states, choice)
            settings[f"{_name(job)}-on-{topology.lower()}"] = states
    kind = closing_class(worst_circuit(rack.fabric, settings.values()), rack.lane_count)
    rate = "400G" if rack.lane_count == 2 else "100G"
    lanes, last, resilient = rack.lane_count, gpus - 1, rack.spec.resilient
    transceiver, closing = kind.name.lower(), (kind.budget_db, _CLOSES)
    if resilient:
        size, racks = rack.spec.nodes, rack.spec.racks
        per_node, nodes = gpus // (size * racks), size * racks
        spares = " and ".join(f"node{each * size + BACKUP}" for each in range(racks))
        servers = [
            f"  node[0-{nodes - 1}]:    # spare: {spares}",
            "    address: ssh://bench@{name}.invalid",
            f"    gpus: {{count: {per_node}}}",
            "    nics:",
            f"      gpu[0-{per_node - 1}]: {{ports: {lanes}, netdev: 'gpu{{n}}lane{{p}}', "
            f"rate: {rate}, transceiver: {transceiver}}}",
        ]
        ends = {
            f"node[{each * size}-{each * size + BACKUP}].gpu{at}": f"[{first}-{first + BACKUP}]"
            for each in range(racks)
            for at, first in enumerate(rack.spec.at_node(each, 0))
        }
    else:
        servers = [
            "  # One server a GPU: how many of them share a host does not change the optics.",
            f"  gpu[0-{last}]:",
            "    address: ssh://bench@{name}.invalid",
            "    gpus: {count: 1}",
            "    nics:",
            f"      nic0: {{ports: {lanes}, netdev: 'lane{{p}}', rate: {rate}, "
            f"transceiver: {transceiver}}}",
        ]
        ends = {f"gpu[0-{last}].nic0": f"[0-{last}]"}
    return _render(
        name="acos"
        if gpus == 16
        else f"acos-{gpus}" + f"x{lanes}" * (lanes != CLUSTERS[str(gpus)].lanes),
        about=f"{gpus} GPUs and {rack.fabric.switches:,} low-radix switches, generated"
        f" (ACOS, {'§5.1' if rack.spec.stages == 1 else '§5.2'})",
        fabric=rack.fabric,
        settings=settings,
        bench=gpus == 16,
        servers=servers,
        ends=ends,
        transceiver=(transceiver, *((_REACHABLE_DB, _REACHABLE) if resilient else closing)),
    )


def render_rings() -> str:
    """Return the description of five namespaces in two orthogonal resilient rings, as YAML."""
    rings = server_rings(_RINGS)
    settings = {name: rings.states(name) for name in _RINGS}
    for name, failed in product(_RINGS, range(rings.fabric.gpus)):
        settings[f"{name}-without-gpu{failed}"] = rings.states(name, failed)
    kind = closing_class(worst_circuit(rings.fabric, settings.values()), 2)
    return _render(
        name="acos-rings",
        about="Five namespaces in two rings without a common link, of which each server selects"
        " one, generated (ACOS, §4.1, §4.3)",
        fabric=rings.fabric,
        settings=settings,
        bench=False,
        servers=[
            "  gpu[0-4]:",
            "    address: netns://{name}",
            "    nics:",
            "      nic0: {ports: 2, netdev: 'lane{p}', model: veth, ip: '192.0.2.{k}/24', "
            f"rate: 200M, transceiver: {kind.name.lower()}}}",
        ],
        ends={"gpu[0-4].nic0": "[0-4]"},
        transceiver=(kind.name.lower(), kind.budget_db, _CLOSES),
    )


def _render(
    *,
    name: str,
    about: str,
    fabric: OpticalFabric,
    settings: dict[str, States],
    servers: Sequence[str],
    ends: Mapping[str, str],
    transceiver: tuple[str, float, str],
    bench: bool,
) -> str:
    kind, budget_db, why = transceiver
    ports = _Ports(fabric)
    lanes = f"[0-{fabric.lanes - 1}]"
    lines = [
        "# yaml-language-server: $schema=schema.json",
        f"name: {name}",
        f"about: {about}",
        "system: acos",
        "",
        "# Light enters a 1xN at 1 and leaves at 2 to N+1, or, turned round, enters at 1 to N and",
        "# leaves at N+1. A 2x2 is in bar with 1>3, 2>4 and in cross with 1>4, 2>3.",
        "switches:",
        *(f"  {_switches(array)}" for array in fabric.arrays.values()),
        *(_PARTS_SWITCHES if bench else ()),
        "",
        "servers:",
        *servers,
        "",
        *(_PARTS_INSTRUMENTS if bench else ()),
        f"transceivers:    # no levels are published: {budget_db:g} dB between them, {why}",
        f"  {kind}: {{wavelength: 1310 nm, wavelengths: 4, "
        "launch: {min: -2.7 dBm, max: 5.1 dBm}, "
        f"receive: {{min: {-2.7 - budget_db:g} dBm, max: 5.1 dBm}}}}",
        "",
        "fibers:",
        *(
            f"  - {{fiber: '{nic}.p{lanes} -> tx-gpu{gpus}-lane{lanes}.1', loss: 0.25 dB}}"
            for nic, gpus in ends.items()
        ),
        *(
            f"  - {{fiber: 'rx-gpu{gpus}-lane{lanes}.{ports.receive} -> {nic}.p{lanes}', "
            "loss: 0.25 dB}"
            for nic, gpus in ends.items()
        ),
        *(f"  - {{fiber: {fiber}, loss: 0.25 dB}}" for fiber in ports.fibers()),
        *(_PARTS_FIBERS if bench else ()),
        "",
        "plans:",
    ]
    for plan, states in settings.items():
        lines += [f"  {plan}:", "    circuits:"]
        for array in fabric.arrays.values():
            shown = ports.lit(array, fabric.of(states, array.name))
            lines += [f"      {line}" for line in _set(array, shown)]
    lines += [
        "",
        "limits:",
        *(_PARTS_LIMITS if bench else ()),
        *([_PATH_LIMIT.format(budget_db)] if bench else ()),
        "  reconfiguration.acknowledged: {p95: 20 ms, confidence: 95 %}",
        "",
        "simulation:      # published: 8 ms for low-radix switches (§6); losses are guesses",
        "  switches:",
    ]
    names = [_ranged(array) for array in fabric.arrays.values()]
    names += ["part-1x2", "part-2x1", "part-2x2"] if bench else []
    lines += [f"    {names[0]}: &switch {_TRUTH}"]
    lines += [f"    {each}: *switch" for each in names[1:]]
    return "\n".join([*lines, ""])


_PARTS_SWITCHES = (
    "  part-1x2: {model: osw-ascii, address: 'serial:///dev/{name}', size: 1x2, loss: {max: 1 dB}}",
    "  part-2x1: {model: osw-ascii, address: 'serial:///dev/{name}', size: 2x1, loss: {max: 1 dB}}",
    "  part-2x2: {model: thorlabs-osw, address: 'serial:///dev/{name}', size: 2x2, "
    "loss: {max: 1 dB}, options: {settling_ms: 10}}",
)
_PARTS_INSTRUMENTS = (
    "instruments:     # a sample of each kind of switch is on a bench, for its loss and its time",
    "  laser[1-5]: {kind: light_source, model: keysight-n7776c, "
    "address: 'scpi://{name}.invalid', launch: {max: 3 dBm}}",
    "  meter1: {kind: power_meter, model: keysight-n7745a, address: 'scpi://{name}.invalid', "
    "channels: 8, damage: 16 dBm}",
    "",
)
_PARTS_FIBERS = (
    "  - laser1 -> part-1x2.1",
    "  - part-1x2.[2-3] -> meter1.[1-2]",
    "  - laser[2-3] -> part-2x2.[1-2]",
    "  - part-2x2.[3-4] -> meter1.[3-4]",
    "  - laser[4-5] -> part-2x1.[1-2]",
    "  - part-2x1.3 -> meter1.5",
)
_PARTS_LIMITS = (
    "  path_change.end_to_end: {p95: 10 ms, confidence: 95 %}",
    "  insertion_loss: {max: 1 dB}",
)


# Transceivers at both ends read the loss to ± 4.8 dB: guarded, the limit would never be decided.
_PATH_LIMIT = "  path_loss: {{max: {:g} dB, decision: simple}}"


@dataclass(frozen=True)
class _Ports:
    """Names of a fabric's ports, as a file has them."""

    fabric: OpticalFabric

    @property
    def receive(self) -> int:
        """Port where light leaves a selection switch for its receiver."""
        return int(self.fabric.arrays["select-receive"].inputs.shape[-1]) + 1

    def lit(self, array: Array, states: States) -> States:
        """Return `states` with `DARK` for a 1xN that selects a branch without a fiber."""
        if array.kind == "2x2":
            return states
        sinks = self.fabric.sinks()
        if array.outputs.shape[-1] > 1:
            laid = sinks[array.outputs] != DARK
        else:
            laid = np.isin(array.inputs, sinks)
        chosen = np.take_along_axis(laid, states[..., None].astype(np.int64), axis=-1)[..., 0]
        return np.where(chosen, states, DARK).astype(np.int8)

    def fibers(self) -> Iterator[str]:
        """Every fiber between two switches."""
        ends = self.fabric.gpus * self.fabric.lanes
        sinks = self.fabric.sinks()
        inputs: dict[int, str] = {}
        for array in self.fabric.arrays.values():
            for place in np.ndindex(array.inputs.shape):
                inputs[int(array.inputs[place])] = (
                    f"{switch_name(array, place[:-1])}.{place[-1] + 1}"
                )
        for array in self.fabric.arrays.values():
            first = array.inputs.shape[-1] + 1
            for place in np.ndindex(array.outputs.shape):
                sink = int(sinks[array.outputs[place]])
                if sink >= ends and sink != DARK:
                    source = f"{switch_name(array, place[:-1])}.{first + place[-1]}"
                    yield f"{source} -> {inputs[sink]}"


def _name(job: Degrees) -> str:
    parts = {"tp": job.tp, "pp": job.pp, "dp": job.dp, "ep": job.ep}
    return "-".join(f"{key}{n}" for key, n in parts.items() if n > 1)


def switch_name(array: Array, place: Sequence[object]) -> str:
    """Return the name in a file of a switch of an array."""
    template = _SELECTION.get(array.name)
    if template is None:
        template = array.name.lower() + "-{}" * len(array.shape)
    return template.format(*place)


def _ranged(array: Array, fixed: Sequence[int] = ()) -> str:
    free = [f"[0-{size - 1}]" if size > 1 else "0" for size in array.shape[len(fixed) :]]
    return switch_name(array, [*fixed, *free])


def _switches(array: Array) -> str:
    size = f"{array.inputs.shape[-1]}x{array.outputs.shape[-1]}"
    model, more = "osw-ascii", ""
    if array.kind == "2x2":
        # It does not acknowledge: the driver waits, then asks where it is.
        model, more = "thorlabs-osw", ", options: {settling_ms: 10}"
    return (
        f"{_ranged(array)}: {{model: {model}, address: 'serial:///dev/{{name}}', "
        f"size: {size}, loss: {{max: 1{'.3' if '4' in size else ''} dB}}{more}}}"
    )


def _set(array: Array, states: States, fixed: tuple[int, ...] = ()) -> Iterator[str]:
    """Lines that set the switches of an array, one line for as many as have the same state."""
    part = states[fixed]
    if part.min() == part.max():
        yield f"{_ranged(array, fixed)}: {_circuits(array, int(part.flat[0]))}"
        return
    for index in range(states.shape[len(fixed)]):
        yield from _set(array, states, (*fixed, index))


def _circuits(array: Array, state: int) -> str:
    ins, outs = array.inputs.shape[-1], array.outputs.shape[-1]
    if state == DARK:
        return "[]"
    if array.kind == "2x2":
        return '["1>4", "2>3"]' if state else '["1>3", "2>4"]'
    return f'["1>{state + 2}"]' if outs > 1 else f'["{state + 1}>{ins + 1}"]'
