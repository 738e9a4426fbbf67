"""`lightrig simulate WORKLOAD FABRIC`: a training step on a fabric that need not exist."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated

import typer

from lightrig.harness.cli.common import (
    BAD_INPUT,
    RESULTS,
    AsJson,
    echo,
    give_up,
    load_testbed,
    print_json,
    readable,
    refuse_missing_results,
)
from lightrig.harness.system_registry import installed_systems
from lightrig.harness.workloads import chakra
from lightrig.harness.workloads.answer import Source, answer
from lightrig.harness.workloads.description import Described
from lightrig.harness.workloads.fabrics import (
    GENERIC,
    FabricError,
    Maker,
    SimulatedFabric,
    fabric,
)
from lightrig.harness.workloads.graph import Device, Workload, WorkloadError
from lightrig.harness.workloads.measured_switching import (
    MeasuredSwitching,
    SwitchingRunError,
    measured_switching,
)
from lightrig.harness.workloads.testbed_fabrics import fabric_of, names_a_file
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
    typer.Argument(
        metavar="FABRIC",
        help="A testbed file, or NAME:key=value,..., as fat-tree:oversubscription=3.",
    ),
]
SwitchingTime = Annotated[
    str,
    typer.Option(
        metavar="TIME[..TIME]|RUN",
        help="Of the switches; a range gives a curve. Or the run that has measured it: its name, "
        "how it begins, or 'last'.",
    ),
]
ResultsPlace = Annotated[
    str, typer.Option("--results", metavar="PLACE", help="Where RUN is: a folder, or a URL.")
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


HtmlPage = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page, too.")]


def simulate(
    workload: WorkloadFile,
    fabric_name: FabricName,
    switching_time: SwitchingTime = "10ms",
    mode: ModeName = None,
    compare: Compare = "",
    device: TimedBy = None,
    write_traces: WriteTraces = None,
    results: ResultsPlace = RESULTS,
    as_json: AsJson = False,
    html: HtmlPage = None,
) -> None:
    """Compute a training step on a fabric that need not exist. Exit 0, or 2 for bad input.

    Nothing is measured, and nothing outside is contacted.
    """
    source = _source(workload, device)
    if write_traces is not None:
        _write(source, write_traces)
    try:
        found, testbed = _fabric(fabric_name)
        times, measured = _switching(switching_time, results, testbed)
        with _progress() as progress:
            result = answer(
                source,
                found,
                fabric_name,
                mode=found.modes[0] if mode is None else mode,
                switching=times,
                compare=[each for each in compare.split(",") if each],
                measured=measured,
                progress=progress,
            )
    except (FabricError, SwitchingRunError) as error:
        give_up(str(error), BAD_INPUT)
    except WorkloadError as error:
        give_up(f"{workload}: {error}", BAD_INPUT)
    if html is not None:
        # Templates and drawing take a second to import.
        from lightrig.harness.workloads.page import write_page  # noqa: PLC0415

        try:
            write_page(html, result)
        except OSError as error:
            give_up(f"{html}: {error.strerror}", BAD_INPUT)
        echo(f"page  {html}", err=True)
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


def _fabric(text: str) -> tuple[SimulatedFabric, str | None]:
    """Return a fabric, and the name of the testbed that it is of."""
    if (named := names_a_file(text)) is None:
        return fabric(text, _makers()), None
    testbed = load_testbed(Path(named[0]))
    return fabric_of(testbed, named[1], _makers()), testbed.name


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal's stderr how many steps have been computed."""
    if not sys.stderr.isatty():
        yield lambda _done, _of: None
        return
    # Drawing takes a while to import.
    from rich.progress import Progress  # noqa: PLC0415

    from lightrig.harness.cli.terminal import err  # noqa: PLC0415

    with Progress(console=err, transient=True) as bar:
        task = bar.add_task("computing steps", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def _switching(
    text: str, results: str, testbed: str | None
) -> tuple[list[int], MeasuredSwitching | None]:
    """Return the switching times to compute with, or the median of a run that measured them."""
    if not text[:1].isdigit() or Path(results, "runs", text).exists():
        refuse_missing_results(results)
        found = measured_switching(results, text, testbed)
        return [found.median], found
    return _times(text), None


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
