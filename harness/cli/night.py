"""`lightrig night`: testbeds measured on the hosts that reach them, one page of all."""

# Dask and the drawing of pages take a second to import: only what needs them pays that.
# ruff: noqa: PLC0415

import asyncio
import logging
import signal
import socket
import sys
import tempfile
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from lightrig.harness.cli.common import BAD_INPUT, LAB_ERROR, NO, AsJson, give_up, print_json
from lightrig.harness.cli.terminal import err, out, print_table
from lightrig.harness.night import job_arrays, keys
from lightrig.harness.night.keys import (
    AUTHORITY,
    SCHEDULER,
    KeyFileError,
    NightKey,
    key_file,
    parse_key,
    read_key,
)
from lightrig.harness.night.measuring import Task, lab_zone, measure, tasks
from lightrig.harness.night.outcomes import TestbedNight, collect
from lightrig.harness.record import RecordError
from lightrig.harness.record.places import Place
from lightrig.instruments.clock import wall_time
from lightrig.testbeds import LightrigError, format_duration
from lightrig.testbeds.lab_hosts import LabHosts, load_hosts, problem_with_address
from lightrig.testbeds.timezones import local

if TYPE_CHECKING:
    from rich.progress import TaskID

PAGE = "nights.html"
_EXTRA = "a night over several hosts needs Dask: pip install 'lightrig[dask]'"


def night(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Hosts and their testbeds.")],
    worker: Annotated[
        str | None, typer.Option(metavar="HOST", help="Run as the worker of this host.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="With --worker: the scheduler.")
    ] = None,
    job_array: Annotated[
        Literal["slurm", "kubernetes"] | None,
        typer.Option(help="Print job files for a batch system instead."),
    ] = None,
    testbed: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Measure this testbed on this machine, as an element of a job array.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--night", metavar="NIGHT", help="The night's name.")
    ] = None,
    collected: Annotated[
        str | None, typer.Option("--collect", metavar="NIGHT", help="Collect a job array's night.")
    ] = None,
    make_keys: Annotated[
        bool, typer.Option("--make-keys", help="Make the key files of scheduler and hosts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure every testbed on a host that reaches it, and draw the page of all nights.

    A testbed whose worker is lost is measured again, or reported as not run. Exit 0 if all were
    measured and no test failed, 1 if one failed, 2 for a wrong file, 3 if a testbed was not run.
    """
    lab = _loaded(file)
    if make_keys:
        _make_keys(lab)
        return
    if worker is not None:
        _work(lab, worker, scheduler)
        return
    try:
        name = name or f"{local(wall_time(), lab_zone(lab)).stamp}-{uuid.uuid4().hex[:4]}"
        wanted = tasks(lab, name)
        if job_array is not None:
            names = {task.file: task.testbed for task in wanted}
            print(
                job_arrays.slurm(lab, names, lab_zone(lab))
                if job_array == "slurm"
                else job_arrays.kubernetes(lab, names, name),
                end="",
            )
        elif testbed is not None:
            _report(lab, [_one(lab, wanted, testbed)], as_json, page=False)
        elif collected is not None:
            _report(
                lab, collect(collected, [task.testbed for task in wanted], lab.results), as_json
            )
        else:
            _report(lab, _distributed(lab, name, wanted), as_json)
    except RecordError as error:
        give_up(str(error), LAB_ERROR)
    except (LightrigError, OSError) as error:
        give_up(str(error), BAD_INPUT)


def _loaded(file: Path) -> LabHosts:
    try:
        return load_hosts(file)
    except LightrigError as error:
        give_up(str(error), BAD_INPUT)
    except OSError as error:
        give_up(f"{file}: {error.strerror}", BAD_INPUT)


def _work(lab: LabHosts, name: str, scheduler: str | None) -> None:
    host = lab.host(name)
    if host is None:
        give_up(f"{lab.path} has no host {name!r}", BAD_INPUT)
    if scheduler is None:
        give_up("--worker needs --scheduler, the address that lightrig night printed", BAD_INPUT)
    problem = problem_with_address(scheduler)
    if problem is not None:
        give_up(f"--scheduler: {problem}", BAD_INPUT)
    try:
        key = _key_of_worker(lab, name)
    except KeyFileError as error:
        give_up(f"host {name}: {error}", BAD_INPUT)
    try:
        from lightrig.harness.night.coordinator import SchedulerError, work
    except ImportError:
        give_up(_EXTRA, BAD_INPUT)
    logging.getLogger("distributed").setLevel(logging.WARNING)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator ends the night
    try:
        asyncio.run(work(lab, host, scheduler, key))
    except SchedulerError as error:
        give_up(f"host {name}: {error}", LAB_ERROR)
    finally:
        signal.signal(signal.SIGINT, before)


def _key_of_worker(lab: LabHosts, name: str) -> NightKey:
    """Return the key of this host's file or, where the lab names none, that of standard input."""
    if lab.keys is not None:
        return read_key(key_file(lab.keys, name))
    content = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
    if not content:
        raise KeyFileError(
            f"{lab.path} names no keys, so only lightrig night itself starts a worker; for one "
            "that is started by other means add keys: FOLDER, and lightrig night FILE --make-keys"
        )
    return parse_key("standard input", content)


def _make_keys(lab: LabHosts) -> None:
    """Make the key files that are missing, and print where each belongs."""
    if lab.keys is None:
        give_up(f"{lab.path} names no folder for keys; add e.g. keys: keys", BAD_INPUT)
    stays = {lab.keys / AUTHORITY: "stays here, for the keys of further hosts"}
    stays[lab.keys / SCHEDULER] = "stays here, where the night is started"
    copied = {key_file(lab.keys, host.name): f"copy to {host.name}" for host in lab.hosts}
    table = Table(box=None, padding=(0, 2, 0, 0))
    for head in ("key file", "", "valid until", ""):
        table.add_column(head)
    try:
        for file, key, is_new in keys.make_keys(lab):
            state = "made" if is_new else "was there"
            place = (stays | copied)[file]
            table.add_row(str(file), state, f"{key.expires:%Y-%m-%d}", place)
    except KeyFileError as error:
        give_up(str(error), BAD_INPUT)
    print_table(table)
    err.print(
        "Each of these files may run code on every host of the night: mode 0600, the same path on "
        "its host, nowhere else.",
        soft_wrap=True,
    )


def _one(lab: LabHosts, wanted: list[Task], testbed: str) -> TestbedNight:
    task = next((task for task in wanted if task.testbed == testbed), None)
    if task is None:
        known = ", ".join(task.testbed for task in wanted)
        give_up(f"{lab.path} has no testbed {testbed!r}; it has {known}", BAD_INPUT)
    return measure(lab, task, socket.gethostname())


def _distributed(lab: LabHosts, name: str, wanted: list[Task]) -> list[TestbedNight]:
    try:
        from lightrig.harness.night.coordinator import run_night
    except ImportError:
        give_up(_EXTRA, BAD_INPUT)
    from rich.progress import Progress

    with Progress(console=err, disable=not err.is_terminal) as progress:
        bars: dict[str, TaskID] = {
            task.testbed: progress.add_task(task.testbed, total=None) for task in wanted
        }

        def follow(testbed: str, host: str, done: int, of: int) -> None:
            label = f"{testbed} on {host}"
            progress.update(bars[testbed], description=label, completed=done, total=of or None)

        return run_night(lab, name, follow, err.print)


def _report(lab: LabHosts, found: list[TestbedNight], as_json: bool, *, page: bool = True) -> None:
    drawn = _page(lab.results) if page else None
    if as_json:
        print_json({"testbeds": [asdict(one) for one in found], "page": drawn})
    else:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for head in ("testbed", "state", "host", "rows", "passed", "failed", "inconclusive",
                     "attempts", "took", "reason"):  # fmt: skip
            table.add_column(head)
        for one in found:
            took = "" if one.duration_s is None else format_duration(int(one.duration_s * 1e9))
            counts = (one.rows, one.passed, one.failed, one.inconclusive, one.attempts)
            shown = (one.testbed, one.state, one.host, *map(str, counts), took, one.reason)
            table.add_row(*shown)
        print_table(table)
        if drawn:
            out.print(f"nights   {drawn}", soft_wrap=True)
    if any(one.state != "measured" for one in found):
        raise typer.Exit(LAB_ERROR)
    if any(one.failed for one in found):
        raise typer.Exit(NO)


def _page(results: str) -> str | None:
    """Draw the page of all nights beside the results; None where there is no row yet."""
    from lightrig.harness.report.nights import write_nights

    place = Place(results)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, PAGE)
        try:
            write_nights(results, file)
        except RecordError as error:
            err.print(str(error))
            return None
        place.put(file, PAGE)
    return place.path(PAGE)
