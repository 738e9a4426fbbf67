"""`lightrig reference`: what sources launch and meters show, before losses are measured."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.cli.common import BAD_INPUT, AsJson, File, give_up, load_testbed, print_json
from lightrig.harness.cli.lab import Queue, in_turn, lab
from lightrig.harness.cli.terminal import err, print_table
from lightrig.harness.measure.insertion_loss.chains import chains
from lightrig.harness.measure.insertion_loss.monitor_references import (
    Hands,
    take_monitor_references,
)
from lightrig.harness.measure.insertion_loss.references import (
    Cap,
    NoReferenceError,
    simulated_references,
    take_references,
    with_checks,
)
from lightrig.testbeds import Port, Testbed, TestbedError
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.quantities import QuantityError, parse_db
from lightrig.testbeds.references import (
    METER_DB,
    References,
    ReferenceSet,
    load_references,
    references_path,
    references_yaml,
)

Simulated = Annotated[
    bool,
    typer.Option("--simulated", help="Measure the simulated lab; contact nothing outside."),
]
Zero = Annotated[bool, typer.Option(help="Take the meters' dark offsets first.")]
Monitors = Annotated[
    str | None,
    typer.Option(
        "--monitors",
        metavar="METER.CHANNEL",
        help="Take references of the switches' monitors: this channel is plugged in at each port.",
    ),
]
Accuracy = Annotated[
    str,
    typer.Option(
        metavar="DB", help="Standard uncertainty (k = 1) of that meter, from its data sheet."
    ),
]
Results = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder of runs; simulated references are stored there.")
]
Seed = Annotated[int, typer.Option(help="Seed of the simulated lab.")]


def reference(
    file: File,
    simulated: Simulated = False,
    zero: Zero = True,
    monitors: Monitors = None,
    accuracy: Accuracy = f"{METER_DB} dB",
    results: Results = Path("results"),
    seed: Seed = 0,
    queue: Queue = "",
    as_json: AsJson = False,
) -> None:
    """Take references with the testbed's light sources and meters, and store them with their date.

    Asks for each fiber to be moved. `--monitors` measures the light at every monitored port with
    one meter: the power launched there, and the error of the monitor; the switch is left as it
    was found. References of hardware are written to NAME.references.yaml beside the testbed file,
    and replace those of the same name; simulated ones are stored with the results, and no
    measurement reads them. Exit 0 if they were taken, 2 for an invalid file, 3 if an instrument
    did not answer or refused.
    """
    testbed = load_testbed(file)
    meter = None if monitors is None else _meter(testbed, monitors)
    meter_db = _accuracy(accuracy)
    if simulated:
        path = results / "references" / references_path(testbed.path).name
        found = _simulated(testbed, seed)
    else:
        path = references_path(testbed.path)
        found = _renewed(path, _taken(testbed, meter, meter_db, queue, zero=zero))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(references_yaml(found), encoding="utf-8")
    except OSError as error:
        give_up(f"{path}: {error.strerror}", BAD_INPUT)
    _tell(found, path, as_json=as_json)


def _simulated(testbed: Testbed, seed: int) -> References:
    bench = lab(lambda: bind(testbed, "simulated", seed))
    try:
        return lab(lambda: simulated_references(bench))
    finally:
        bench.close()


def _meter(testbed: Testbed, text: str) -> Port:
    """Return the meter's channel that `--monitors` names, or end the command."""
    owner, _, channel = text.rpartition(".")
    meters = {n: s for n, s in testbed.instruments.items() if s.kind == "power_meter"}
    known = [f"{name}.{n}" for name, spec in meters.items() for n in range(1, spec.channels + 1)]
    if text not in known:
        found = testbed.instruments.get(owner) or testbed.instruments.get(text)
        if found is None:
            why = f"{testbed.path} has no channel {text!r} of a power meter"
        elif found.kind != "power_meter":
            kind = found.kind.replace("_", " ")
            why = f"{testbed.path}:{found.line}:{found.column}: {found.name}: found a {kind}"
            why += ", expected a power meter"
        else:
            why = f"{testbed.path}:{found.line}:{found.column}: {found.name} has no channel"
            why += f" {channel!r}, expected {found.name}.1 to {found.name}.{found.channels}"
        give_up(f"--monitors: {why}{did_you_mean(text, known)}", BAD_INPUT)
    return Port(owner, channel)


def _accuracy(text: str) -> float:
    try:
        return parse_db(text)
    except QuantityError as error:
        give_up(f"--accuracy: {error}", BAD_INPUT)


def _taken(
    testbed: Testbed, meter: Port | None, meter_db: float, queue: str, *, zero: bool
) -> References:
    opened = partial(bind, testbed, "hardware", purpose="lightrig reference")
    bench = in_turn(testbed, queue, opened)
    try:
        if meter is not None:
            return References(tuple(lab(lambda: _of_monitors(bench, meter, meter_db))))
        cap = _cap if zero else None
        return References(tuple(lab(lambda: _of_meters(bench, cap, meter_db))))
    finally:
        bench.close()


def _of_meters(bench: Bench, cap: Cap | None, meter_db: float) -> list[ReferenceSet]:
    fabric = Fabric(bench)
    found = take_references(bench, _plug(bench), cap, meter_db=meter_db)
    try:
        return with_checks(fabric, found)
    finally:
        fabric.restore()


def _of_monitors(bench: Bench, meter: Port, meter_db: float) -> list[ReferenceSet]:
    fabric = Fabric(bench)
    hands = Hands(_plug(bench), _cord(bench))
    found = [each for each in chains(bench, References()) if each.method == "monitors"]
    if not found:
        raise NoReferenceError(f"no switch of testbed {bench.testbed.name} has power monitors")
    try:
        return [
            take_monitor_references(fabric, chain, meter, hands, meter_db=meter_db)
            for chain in found
        ]
    finally:
        fabric.restore()


def _plug(bench: Bench) -> Callable[[Port, Port], Callable[[], None]]:
    def plug(source: Port, sink: Port) -> Callable[[], None]:
        fiber = bench.testbed.cabling.fiber_from(source)
        home = fiber.sink if fiber else "its place"
        _ask(f"Take the fiber of {source} out of {home} and plug it into {sink}")
        too = f", that of {sink} too" if bench.testbed.cabling.fiber_to(sink) else ""
        return lambda: _ask(f"Put the fiber of {source} back into {home}{too}")

    return plug


def _cord(bench: Bench) -> Callable[[Port, Port], Callable[[], None]]:
    def cord(egress: Port, sink: Port) -> Callable[[], None]:
        fiber = bench.testbed.cabling.fiber_from(egress)
        whose = f", which leads to {fiber.sink}," if fiber else ""
        _ask(f"Take the fiber{whose} out of {egress} and lead a patch cord from there to {sink}")
        return lambda: _ask(f"Put the fiber back into {egress}")

    return cord


def _cap(meter: str) -> None:
    _ask(f"Cap the inputs of {meter}: its dark offset is taken")


def _ask(text: str) -> None:
    typer.prompt(f"{text}, then press Enter", default="", show_default=False, err=True)


def _renewed(path: Path, new: References) -> References:
    """Return the references of the file, with `new` in place of those of the same name."""
    if not path.exists():
        return new
    try:
        old = load_references(path)
    except TestbedError as error:
        give_up(str(error), BAD_INPUT)
    names = {each.name for each in new.sets}
    unchanged = (
        tuple(each for each in old.sets if each.name not in names) if not old.simulated else ()
    )
    return References((*unchanged, *new.sets))


def _tell(found: References, path: Path, *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "reference": each.name,
            "kind": kind,
            "port": str(port),
            "value": value,
            "unit": unit,
            "standard_uncertainty_db": each.each_db,
            "wavelength_nm": each.wavelength_nm,
            "taken": str(each.taken),
            "expires": str(each.expires),
            "simulated": found.simulated,
        }
        for each in found.sets
        for kind, values, unit in (
            ("launch", each.launches, "dBm"),
            ("offset", each.offsets, "dB"),
        )
        for port, value in (values or {}).items()
    ]
    if as_json:
        print_json(rows)
        return
    made_up = ", simulated" if found.simulated else ""
    table = Table(
        "reference",
        "",
        "port",
        f"found (± standard uncertainty, k = 1{made_up})",
        "expires",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for one in rows:
        value = f"{one['value']:.3f} ± {one['standard_uncertainty_db']:.3f} {one['unit']}"
        table.add_row(one["reference"], one["kind"], one["port"], value, one["expires"])
    print_table(table)
    err.print(f"stored in {path}", soft_wrap=True)
