"""`lightrig simulate WORKLOAD FABRIC`: a training step on a fabric that need not exist."""

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from lightrig.harness.cli.common import BAD_INPUT, AsJson, echo, give_up, print_json, readable
from lightrig.harness.system_registry import installed_systems
from lightrig.harness.workloads import chakra
from lightrig.harness.workloads.answer import Source, answer
from lightrig.harness.workloads.description import Described
from lightrig.harness.workloads.fabrics import GENERIC, FabricError, Maker, fabric
from lightrig.harness.workloads.graph import Device, Workload, WorkloadError
from lightrig.testbeds.quantities import QuantityError, parse_duration

_DECADES = [10**power for power in range(3, 11)]
"""Switching times of a curve, from 1 us to 10 s, in ns."""

WorkloadFile = Annotated[
    Path,
    typer.Argument(
        metavar="WORKLOAD", help="A description of the step (YAML), or a prefix of Chakra's files."
    ),
]
FabricName = Annotated[
    str,
    typer.Argument(metavar="FABRIC", help="NAME:key=value,..., as fat-tree:oversubscription=3."),
]
SwitchingTime = Annotated[
    str, typer.Option(metavar="TIME[..TIME]", help="Of the switches; a range gives a curve.")
]
ModeName = Annotated[
    str | None, typer.Option("--mode", metavar="MODE", help="How the fabric is used; its first.")
]
Compare = Annotated[
    str, typer.Option(metavar="MODE,...", help="Modes of the fabric to compare with.")
]
TimedBy = Annotated[
    str | None,
    typer.Option(
        metavar="OPERATIONS,MEMORY",
        help="Times traces without durations: 10^12 multiply-adds a second, GB/s; as 989,4800.",
    ),
]
WriteTraces = Annotated[
    Path | None, typer.Option(metavar="PREFIX", help="Write the step as Chakra's files, too.")
]


def simulate(
    workload: WorkloadFile,
    fabric_name: FabricName,
    switching_time: SwitchingTime = "10ms",
    mode: ModeName = None,
    compare: Compare = "",
    device: TimedBy = None,
    write_traces: WriteTraces = None,
    as_json: AsJson = False,
) -> None:
    """Compute a training step on a fabric that need not exist. Exit 0, or 2 for bad input.

    Nothing is measured, and nothing outside is contacted.
    """
    source = _source(workload, device)
    if write_traces is not None:
        _write(source, write_traces)
    times = _times(switching_time)
    try:
        found = fabric(fabric_name, _makers())
        result = answer(
            source,
            found,
            fabric_name,
            mode=found.modes[0] if mode is None else mode,
            switching=times,
            compare=[each for each in compare.split(",") if each],
        )
    except FabricError as error:
        give_up(str(error), BAD_INPUT)
    except WorkloadError as error:
        give_up(f"{workload}: {error}", BAD_INPUT)
    if as_json:
        print_json(result.document())
    else:
        for line in result.lines():
            echo(line)


@dataclass(frozen=True, slots=True)
class _Traces:
    """A step that has been read from traces, no ranks of it folded."""

    name: str
    read: Workload

    def workload(self, *, fold_data: bool) -> Workload:
        """Return the step."""
        return self.read


def _source(path: Path, device: str | None) -> Source:
    with readable(path):
        if path.is_file() or not chakra.files_of(path):
            return Described(path)
    try:
        with readable(path):
            return _Traces(path.name, chakra.read(path, _device(device)))
    except WorkloadError as error:
        give_up(str(error), BAD_INPUT)


def _device(text: str | None) -> Device | None:
    if text is None:
        return None
    try:
        operations, memory = map(float, text.split(","))
    except ValueError:
        operations = memory = 0.0
    if not (0 < operations < inf and 0 < memory < inf):
        give_up(f"--device {text}: expected two numbers, as 989,4800", BAD_INPUT)
    return Device(operations * 1e3, memory)


def _write(source: Source, prefix: Path) -> None:
    try:
        count = chakra.write(source.workload(fold_data=False), prefix)
    except WorkloadError as error:
        give_up(str(error), BAD_INPUT)
    except OSError as error:
        give_up(f"{prefix}: {error.strerror}", BAD_INPUT)
    echo(f"{prefix}: traces of {count} ranks", err=True)


def _makers() -> dict[str, Maker]:
    found = dict(GENERIC)
    for name, system in installed_systems().items():
        if system.simulated_fabric is not None:
            found[name] = system.load("simulated_fabric")
    return found


def _times(text: str) -> list[int]:
    """Return a switching time, or those of a curve: both ends of a range, and decades between."""
    first, between, last = text.partition("..")
    try:
        # "0..10s": zero needs no unit.
        ends = [
            0 if part.strip() == "0" else parse_duration(part) for part in (first, last) if part
        ]
    except QuantityError as error:
        give_up(f"--switching-time {text}: {error}", BAD_INPUT)
    if len(ends) != 1 + bool(between) or min(ends) < 0 or ends != sorted(set(ends)):
        give_up(
            f"--switching-time {text}: expected a time as 25ms, or a range as 0..10s", BAD_INPUT
        )
    if max(ends) > 3_600_000_000_000:
        give_up(f"--switching-time {text}: expected at most an hour", BAD_INPUT)
    return [ends[0], *(each for each in _DECADES if ends[0] < each < ends[-1]), *ends[1:]]
