"""`lightrig connect` and `disconnect`: one circuit or link by hand; all others stay."""

# Measurements take a second to import: only --watch pays for them.
# ruff: noqa: PLC0415

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from lightrig.harness.bench import Bench, Fabric, bind_only
from lightrig.harness.bench.port_shutters import SHUTTER
from lightrig.harness.cli import completion
from lightrig.harness.cli.common import (
    BAD_INPUT,
    NO,
    RESULTS,
    AsJson,
    File,
    give_up,
    load_testbed,
    print_json,
)
from lightrig.harness.cli.lab import Queue, in_turn, lab, lab_or_limit, say_state_saved
from lightrig.harness.cli.requests import takes
from lightrig.harness.cli.terminal import err, out
from lightrig.testbeds import Circuit, LightrigError, Plan, Port, Testbed
from lightrig.testbeds.cabling import NoLightPathError
from lightrig.testbeds.wiring import named_port

if TYPE_CHECKING:
    from lightrig.harness.cli.watched_change import WatchedChange

A = Annotated[
    str,
    typer.Argument(
        metavar="A",
        help="Ingress port of a switch, as ocs.3, or a NIC port, as server0.nic0.p0.",
        autocompletion=completion.ports,
    ),
]
B = Annotated[
    str,
    typer.Argument(
        metavar="B",
        help="Egress port of that switch, or the NIC port at the other end of the link.",
        autocompletion=completion.ports,
    ),
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Unmake the testbed's circuits that are in the way.")
]


Watch = Annotated[
    bool,
    typer.Option("--watch", help="Measure the change: command, acknowledgement, light, carrier."),
]
Results = Annotated[Path, typer.Option("--results", help="Folder of the results, for --watch.")]


@dataclass(frozen=True)
class ConnectRequest:
    """Arguments of `lightrig connect`."""

    file: File
    a: A
    b: B
    replace: Replace = False
    watch: Watch = False
    results: Results = Path(RESULTS)
    queue: Queue = ""
    as_json: AsJson = False


@takes(ConnectRequest)
def connect(request: ConnectRequest) -> None:
    """Make the circuit from ingress A to egress B, or both circuits of the link of two NIC ports.

    All other circuits stay. What stands in the way is unmade with --replace only, and never where
    one of its ports is not the testbed's. The switch must answer, the servers need not. What was
    made stays: runs start from it and end with it, until `disconnect` or `lightrig restore`. With
    --watch the servers watch it, as one event that is recorded in a run by hand. Exit 0 if it is
    made or is there already, 1 if light or a link did not come while it was watched, 2 for an
    invalid file, port or limit and for a port in the way, 3 if the switch, or with --watch a
    server, did not answer or refused.
    """
    file, replace, as_json = request.file, request.replace, request.as_json
    testbed = load_testbed(file)
    switch, wanted = _circuits(testbed, request.a, request.b)
    command = f"lightrig connect {request.a} {request.b}"
    watched: list[WatchedChange] = []

    def watch(bench: Bench, fabric: Fabric, plan: Plan) -> None:
        from lightrig.harness.cli.watched_change import watch_change

        watched.append(watch_change(bench, fabric, plan, command, request.results))

    def changed(fabric: Fabric) -> tuple[frozenset[Circuit], frozenset[Circuit]]:
        ours, foreign = lab(lambda: fabric.present(switch))
        missing = wanted - ours
        if foreign_there := _sharing(foreign, missing):
            give_up(
                f"{_listed(foreign_there)} is there, and one of its ports is not this testbed's; "
                "disconnect it by hand",
                BAD_INPUT,
            )
        blocking = _sharing(ours, missing)
        if blocking and not replace:
            give_up(
                f"{_listed(blocking)} in the way of {_listed(missing)} on {switch}\n"
                "  try       --replace, which unmakes what is in the way",
                BAD_INPUT,
            )
        if missing:
            lab_or_limit(lambda: fabric.power_budget.check(Plan(command, {switch: wanted})))
        return blocking, missing

    done = _set(
        testbed, switch, command, request.queue, changed, watch if request.watch else None, wanted
    )
    made, unmade, closed = done.made, done.unmade, done.closed
    if as_json:
        _print(switch, made, unmade, wanted - made, closed, watched)
    elif not made:
        out.print(f"{switch}: {_listed(wanted)} is there already", markup=False)
    else:
        before = (
            f"{_listed(unmade)} stood there and were unmade"
            if unmade
            else f"{_ports(made)} were free"
        )
        out.print(f"{switch}: {_listed(made)} made; before, {before}", markup=False)
        for line in (line for each in watched for line in each.lines):
            out.print(line, soft_wrap=True)
    for port in closed or ():
        err.print(
            f"the shutter of port {port} of {switch} is closed, so no light passes\n"
            f"  try       lightrig set {file} {switch}.{port}.{SHUTTER}=open",
            soft_wrap=True,
            markup=False,
        )
    _say_state(file, switch, done.restorable, bool(made))
    if any(each.problem for each in watched):
        raise typer.Exit(NO)


def disconnect(file: File, a: A, b: B, queue: Queue = "", as_json: AsJson = False) -> None:
    """Unmake the circuit from ingress A to egress B, or both circuits of the link of two NIC ports.

    All other circuits stay. What was unmade stays so: runs start from it and end with it, until
    `connect` or `lightrig restore`. Exit 0 if it is unmade, 2 for an invalid file or port and for
    a circuit that is not there, 3 if the switch did not answer or refused.
    """
    testbed = load_testbed(file)
    switch, wanted = _circuits(testbed, a, b)

    def changed(fabric: Fabric) -> tuple[frozenset[Circuit], frozenset[Circuit]]:
        ours, foreign = lab(lambda: fabric.present(switch))
        if not wanted & ours:
            give_up(f"{_listed(wanted)} is not there; {_used(wanted, ours | foreign)}", BAD_INPUT)
        return wanted & ours, frozenset()

    command = f"lightrig disconnect {a} {b}"
    done = _set(testbed, switch, command, queue, changed)
    if as_json:
        _print(switch, (), done.unmade, ())
    else:
        out.print(f"{switch}: {_listed(done.unmade)} unmade", markup=False)
    _say_state(file, switch, done.restorable, changed=True)


class _Done(NamedTuple):
    """What a command changed: circuits, whether they can be restored, and shutters in the way."""

    unmade: frozenset[Circuit]
    made: frozenset[Circuit]
    restorable: bool
    closed: list[int] | None


def _set(
    testbed: Testbed,
    switch: str,
    command: str,
    queue: str,
    changed: Callable[[Fabric], tuple[frozenset[Circuit], frozenset[Circuit]]],
    watch: Callable[[Bench, Fabric, Plan], None] | None = None,
    lit: Iterable[Circuit] = (),
) -> _Done:
    """Unmake and make what `changed` returns.

    Args:
        testbed: has the switch.
        switch: name of it.
        command: as typed, the reason of the lease and of the saved state.
        queue: how long to wait for a lease.
        changed: returns the circuits to unmake and to make.
        watch: makes the change while servers watch it.
        lit: circuits that light should pass, whose closed shutters are returned.
    """
    names = {switch, *(testbed.servers if watch else ())}
    bench = in_turn(testbed, queue, lambda: bind_only(testbed, names, command), names=names)
    with closing(bench):
        fabric = Fabric(bench)
        unmade, made = changed(fabric)
        closed = _closed_shutters(bench, switch, lit)
        if not unmade and not made:
            return _Done(unmade, made, restorable=False, closed=closed)
        ours, _ = lab(lambda: fabric.present(switch))
        plan = Plan(command, {switch: ours - unmade | made})
        try:
            if watch is not None:
                lab_or_limit(lambda: watch(bench, fabric, plan))
            else:
                transition = lab_or_limit(lambda: fabric.prepare(plan, check_budget=False))
        except typer.Exit:
            fabric.forget_unchanged()
            raise
        if watch is None:
            lab(transition.apply)
        restorable = bool(lab(lambda: fabric.leave(command)))
        return _Done(unmade, made, restorable, closed)


def _closed_shutters(bench: Bench, switch: str, circuits: Iterable[Circuit]) -> list[int] | None:
    """Return the ports of circuits whose shutter is closed; None where the switch has none."""
    shutters = bench.shutters.get(switch)
    ports = sorted({port for each in circuits for port in (each.ingress, each.egress)})
    if shutters is None or not ports or lab(lambda: shutters.refusal):
        return None
    found = lab(lambda: shutters.read_settings(ports))
    return [port for port in ports if not found[f"{SHUTTER} {port}"]]


def _circuits(testbed: Testbed, a: str, b: str) -> tuple[str, frozenset[Circuit]]:
    """Return the switch and the circuits that join two ports; ends the command where none can."""
    try:
        first, second = named_port(testbed, a), named_port(testbed, b)
        if first.owner in testbed.servers and second.owner in testbed.servers:
            try:
                found = testbed.cabling.circuits_for_link(first, second)
            except NoLightPathError as error:
                _refuse("\n".join((str(error), *_ways(testbed, first, second))))
            ((switch, circuits),) = found.circuits.items()
            return switch, circuits
        if first.owner != second.owner or first.owner not in testbed.optical_switches:
            _refuse(
                f"found {a} and {b}, expected two ports of one switch, or two NIC ports whose "
                "fibers meet at one"
            )
        circuit = Circuit(int(first.name), int(second.name))
        _check_sides(testbed, first, second)
        testbed.cabling.light_path(first.owner, circuit)
    except LightrigError as error:
        _refuse(str(error))
    return first.owner, frozenset({circuit})


def _ways(testbed: Testbed, first: Port, second: Port) -> Iterator[str]:
    """Yield a line for each way that two NIC ports have through several switches in series."""
    for sender, receiver in ((first, second), (second, first)):
        for path in testbed.cabling.paths_in_series(sender, receiver):
            circuits = ", ".join(f"{switch} {circuit}" for switch, circuit in path)
            yield f"  way       {sender} -> {receiver}: {circuits}"


def _check_sides(testbed: Testbed, first: Port, second: Port) -> None:
    spec = testbed.switches[first.owner]
    ingress, egress = int(first.name), int(second.name)
    if ingress in spec.ingress_ports and egress in spec.egress_ports:
        return
    if egress in spec.ingress_ports and ingress in spec.egress_ports:
        _refuse(f"{first} is an egress port and {second} an ingress port: exchange them")
    wrong, side = (second, "egress") if ingress in spec.ingress_ports else (first, "ingress")
    _refuse(f"{wrong} is no {side} port of {first.owner}")


def _refuse(sentence: str) -> NoReturn:
    give_up(sentence, BAD_INPUT)


def _sharing(present: Iterable[Circuit], wanted: Iterable[Circuit]) -> frozenset[Circuit]:
    """Return the circuits of `present` that use a port of `wanted`."""
    ingress, egress = {c.ingress for c in wanted}, {c.egress for c in wanted}
    return frozenset(c for c in present if c.ingress in ingress or c.egress in egress)


def _listed(circuits: Iterable[Circuit]) -> str:
    return ", ".join(map(str, sorted(circuits)))


def _ports(circuits: Iterable[Circuit]) -> str:
    return " and ".join(f"ingress {c.ingress} and egress {c.egress}" for c in sorted(circuits))


def _used(wanted: Iterable[Circuit], present: Iterable[Circuit]) -> str:
    """Return what stands on the ports of `wanted`, as part of a sentence."""
    ingress = {c.ingress: c for c in present}
    egress = {c.egress: c for c in present}
    found = []
    for circuit in sorted(wanted):
        for side, port, uses in (
            ("ingress", circuit.ingress, ingress),
            ("egress", circuit.egress, egress),
        ):
            found.append(f"{side} {port} is {f'in {uses[port]}' if port in uses else 'free'}")
    return ", ".join(found)


def _print(
    switch: str,
    made: Iterable[Circuit],
    unmade: Iterable[Circuit],
    present: Iterable[Circuit],
    closed: list[int] | None = None,
    watched: Sequence[WatchedChange] = (),
) -> None:
    events = [
        {"run": each.run, "stages": each.stages, "problem": each.problem or None}
        for each in watched
    ]
    print_json(
        [
            {
                "switch": switch,
                "made": [str(c) for c in sorted(made)],
                "unmade": [str(c) for c in sorted(unmade)],
                "present": [str(c) for c in sorted(present)],
                "closed_shutters": closed,
                **({"event": events[0]} if events else {}),
            }
        ]
    )


def _say_state(file: Path, switch: str, restorable: bool, changed: bool) -> None:
    if restorable:
        say_state_saved(file)
    elif changed:
        err.print(f"{switch} is as it was found: nothing is left to restore", markup=False)
