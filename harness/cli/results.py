"""`lightrig results`: runs listed, queried, compared, recovered, exported, compacted and pruned."""

# Data frames and plots take a second to import: only the commands that need them pay it.
# ruff: noqa: PLC0415

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from rich.progress import track
from rich.table import Table

from lightrig.harness.cli import completion
from lightrig.harness.cli.bundle import bundle
from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    NO,
    RESULTS,
    AsJson,
    CommandGroup,
    give_up,
    print_json,
    refuse_missing_results,
)
from lightrig.harness.cli.terminal import err, out, print_table
from lightrig.harness.cli.watching import metrics, watch
from lightrig.testbeds import LightrigError, format_duration
from lightrig.testbeds.escaping import escape_line
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.plans import is_about

if TYPE_CHECKING:
    from lightrig.harness.record import Results, RunFacts
    from lightrig.harness.record.notes import Note
    from lightrig.harness.report.comparison import Comparison, Drift
    from lightrig.harness.statistics.quantiles import NotEnough, Quantile

T = TypeVar("T")

_CHANGED = frozenset(("changed", "guard broken"))
_URGENCY = (
    "guard broken",
    "changed",
    "departed, unconfirmed",
    "cannot tell",
    "not enough data",
    "unchanged",
)
"""Outcomes of series, the one first that a line of several shows."""

results = typer.Typer(
    cls=CommandGroup,
    help="What was measured: list, query, compare, recover, export, compact and prune runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

results.command("watch", epilog="Example: lightrig results watch --page results/live.html")(watch)
results.command("metrics", epilog="Example: lightrig results metrics --output lightrig.prom")(
    metrics
)

results.command(
    "bundle", epilog="Example: lightrig results bundle last --test test_loss --anonymous"
)(bundle)

ResultsPlace = Annotated[
    str, typer.Option("--results", metavar="PLACE", help="A folder, or a URL such as s3://lab/x.")
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Its name, how it begins, or 'last'.",
        autocompletion=completion.runs,
    ),
]
Sql = Annotated[
    str,
    typer.Argument(metavar="SQL", help="A query of DuckDB over the views rows, runs and tests."),
]
Pattern = Annotated[
    str,
    typer.Option(
        metavar="PATTERN",
        help="A name, or a pattern with * and ?.",
        autocompletion=completion.quantities,
    ),
]


Replace = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Remove a run of the same name that has other content, with its rows and pages, and "
        "copy this one.",
    ),
]


class ExportFormat(StrEnum):
    """Formats of `export`."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@results.command("list", epilog="Example: lightrig results list --night '2026-03-*'")
def list_(
    place: ResultsPlace = RESULTS,
    night: Pattern = "*",
    testbed: Pattern = "*",
    as_json: AsJson = False,
) -> None:
    """List the runs, the youngest last: what was measured, and how they ended.

    Exit 0, 2 for a folder that is not there, 3 if a run cannot be read.
    """
    from lightrig.harness.record import Results

    refuse_missing_results(place)
    found = _asked(lambda: Results(place))
    runs = [
        facts
        for facts in _asked(found.runs)
        if fnmatchcase(facts.night, night)
        and (testbed == "*" or any(fnmatchcase(name, testbed) for name in facts.testbeds))
    ]
    if as_json:
        print_json([facts.fields() for facts in runs])
    elif runs:
        outcomes = ("passed", "failed", "inconclusive", "skipped")
        head = ("run", "night", "testbeds", "rows", *outcomes, "took", "state")
        zoned = any("zone" in facts.header for facts in runs)
        _print_table(head, [_line(facts, zoned=zoned) for facts in runs])
    else:
        out.print(f"{place}: no runs", soft_wrap=True)
    if damaged := _asked(found.damaged):
        give_up("\n".join(map(str, damaged)), LAB_ERROR)


def _line(facts: "RunFacts", *, zoned: bool) -> tuple[object, ...]:
    """Return a line of the table.

    zoned: whether some run has the date of a zone, so that one with a date in UTC is marked.
    """
    night = f"{facts.night} (UTC)" if zoned and "zone" not in facts.header else facts.night
    testbeds = (
        f"{name} (simulated)" if found and found.simulated else name
        for name, found in facts.testbeds.items()
    )
    took = None if facts.duration_s is None else format_duration(int(facts.duration_s) * 10**9)
    counts = [facts.count("passed", "xfailed"), facts.count("failed", "error", "xpassed")]
    state = f"{facts.state}, torn" if facts.torn else facts.state
    state = f"{state}, by hand" if facts.by_hand else state
    rows = f"{facts.rows:,}"
    counts += [facts.count("inconclusive"), facts.count("skipped")]
    return (facts.run, night, ", ".join(testbeds), rows, *counts, took, state)


@results.command(
    epilog="Example: lightrig results query 'SELECT testbed, count(*) FROM rows GROUP BY ALL'"
)
def query(
    sql: Sql,
    place: ResultsPlace = RESULTS,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, max=86_400, metavar="SECONDS", help="Time after which it is ended."),
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Query rows, runs and tests by SQL, read-only.

    It runs in a process of its own with at most 4 GiB of memory, and reads nothing but the
    results. Exit 0, 2 if the query is wrong, too large or too slow, 3 if the results cannot be
    read.
    """
    from lightrig.harness.record.bounded_query import bounded_query
    from lightrig.harness.record.tidy_frames import records

    refuse_missing_results(place)
    frame = _asked(lambda: bounded_query(str(place), sql, timeout))
    found = records(frame)
    if as_json:
        print_json(found)
    else:
        _print_table(list(map(str, frame)), [record.values() for record in found])


@results.command(epilog="Example: lightrig results compare 20260314-021500 last")
def compare(
    before: Annotated[
        str,
        typer.Argument(metavar="BEFORE", help="A run, as in RUN.", autocompletion=completion.runs),
    ],
    run: Name,
    quantity: Pattern = "*",
    subject: Annotated[
        str,
        typer.Option(
            metavar="SUBJECT",
            help="Only of this instrument, port or circuit, with what was noted of it between.",
        ),
    ] = "",
    place: ResultsPlace = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Show two runs side by side, and whether the later one has drifted from its nights before.

    The words are those of the nights page on the later run's night. "departed, unconfirmed" is a
    night that lies apart from those before; "changed" is said once three nights in a row do. Of
    series of one quantity and test, such as a switch's circuits, the table shows the worst; --json
    has all. Exit 0 if nothing has changed as far as can be said, 1 if something has or a guard is
    broken, 2 if there is no such run or the two have nothing in common, 3 if the results cannot be
    read.
    """
    from lightrig.harness.record import Results
    from lightrig.harness.report.comparison import compare as side_by_side
    from lightrig.harness.report.run_differences import run_differences

    refuse_missing_results(place)
    found = _asked(lambda: side_by_side(Results(place), before, run, quantity))
    notes: Sequence[Note] = ()
    if subject:
        everything, found = found, [one for one in found if is_about(one.case.subject, subject)]
        if not found:
            near = did_you_mean(subject, sorted({one.case.subject for one in everything}))
            give_up(f"both have nothing in common of {subject!r}{near}", BAD_INPUT)
        testbeds = sorted({one.case.testbed for one in found})
        notes = _asked(lambda: _notes_between(Results(place), before, run, testbeds, subject))
    if as_json:
        print_json([_compared(one) for one in found])
    else:
        for sentence in _asked(lambda: run_differences(Results(place), place, before, run)):
            out.print(f"differs: {escape_line(sentence)}", soft_wrap=True)
        head = ("testbed", "test", "quantity", "of", "before", "after", "drift")
        families: dict[tuple[object, ...], list[Comparison]] = {}
        for one in found:
            families.setdefault(one.case.family, []).append(one)
        _print_table(head, [_beside(family) for family in families.values()])
        for one in found:
            if one.drift.outcome in {*_CHANGED, "departed, unconfirmed"}:
                name = f"{one.case.quantity}, {one.case.subject}"
                out.print(f"{name}: {one.drift.reason}", soft_wrap=True)
        for note in notes:
            who = f"{note.account} on {note.host}: {note.subject}: {escape_line(note.text)}"
            out.print(f"noted between them, {note.at_utc} UTC, by {who}", soft_wrap=True)
        if blind := [one for one in found if one.drift.outcome == "cannot tell"]:
            out.print(
                f"cannot tell: {len(blind)} of {len(found)} comparisons might have missed the "
                "change that their rules state (`detect`); more samples a night, or nights that "
                "are more alike, would tell",
                soft_wrap=True,
            )
    if any(one.drift.outcome in _CHANGED for one in found):
        raise typer.Exit(NO)


@results.command(epilog="Example: lightrig results nodes last --good > hostfile")
def nodes(
    run: Name,
    good: Annotated[
        bool, typer.Option("--good", help="Only servers of which no port failed or is out.")
    ] = False,
    place: ResultsPlace = RESULTS,
    as_json: AsJson = False,
) -> None:
    """List the servers of a run, one a line, with what is wrong at their ports.

    A port has failed where a test of the run found something wrong at it, and is out where a person
    had put it out of service. Of a link of which nothing tells the end that is wrong, both servers
    are listed with it. Exit 0, 2 if there is no such run, 3 if the results cannot be read.
    """
    from lightrig.harness.record import Results
    from lightrig.harness.report.nodes import nodes_of

    refuse_missing_results(place)
    found = _asked(lambda: nodes_of(Results(place), run))
    if as_json:
        print_json([asdict(node) for node in found if not (good and node.wrong)])
        return
    for node in found:
        if good:
            if not node.wrong:
                out.print(node.server, markup=False)
        else:
            out.print(f"{node.server}: {'; '.join(node.wrong) or 'good'}", soft_wrap=True)


def _notes_between(
    results: "Results", before: str, after: str, testbeds: Sequence[str], subject: str
) -> "list[Note]":
    """Return the notes of a part of the lab that were written between the starts of two runs."""
    from lightrig.harness.record.subject_history import notes_about

    first, last = (
        str(results.find(run).header.get("started", "")).replace("T", " ").rstrip("Z")
        for run in (before, after)
    )
    return [
        note
        for testbed in testbeds
        for note in notes_about(results, testbed, subject)
        if first < note.at_utc <= last
    ]


def _compared(found: "Comparison") -> object:
    from lightrig.harness.record.tidy_frames import plain

    parts = {name: asdict(getattr(found, name)) for name in ("before", "after", "drift")}
    return plain({**found.case._asdict(), **parts})


def _beside(family: "Sequence[Comparison]") -> tuple[str, ...]:
    """Return the line of series that are compared with each other: the worst, and how many more."""
    from lightrig.harness.statistics.quantiles import NotEnough
    from lightrig.testbeds.intervals import interval

    def median(of: "Quantile | NotEnough") -> str:
        if isinstance(of, NotEnough) or of.lower is None:
            return str(of)
        written = interval(of.lower, of.upper, unit, of.value)
        return f"{written.value} [{written.ends}] n {of.n:,}"

    found = min(family, key=lambda one: _URGENCY.index(one.drift.outcome))
    case, unit = found.case, found.case.unit
    testbed = f"{case.testbed} (simulated)" if case.simulated else case.testbed
    statistic = "" if case.statistic == "median" else f", {case.statistic}"
    more = f" and {len(family) - 1:,} more" if len(family) > 1 else ""
    return (
        testbed,
        case.test.rpartition("::")[2],
        case.quantity,
        f"{case.subject}{statistic}{more}",
        median(found.before),
        median(found.after),
        _word(found.drift, unit),
    )


def _word(drift: "Drift", unit: str) -> str:
    """Return the outcome, of "cannot tell" with the least change that would have been seen."""
    from lightrig.harness.report.units import shown

    if drift.outcome != "cannot tell":
        return drift.outcome
    if drift.detectable is None:
        return "cannot tell any change"
    size = f"x {drift.detectable:.3g}" if drift.ratio else shown(abs(drift.detectable), unit)
    return f"cannot tell below {size}"


@results.command(epilog="Example: lightrig results export last --output last.csv")
def export(
    run: Name,
    form: Annotated[
        ExportFormat, typer.Option("--format", help="Format of the table.")
    ] = ExportFormat.CSV,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output file; standard output without it.")
    ] = None,
    place: ResultsPlace = RESULTS,
) -> None:
    """Write the rows of one run as a table for other programs, each condition a column.

    Exit 0, 2 if there is no such run, 3 if the results cannot be read.
    """
    from lightrig.harness.record import Results

    refuse_missing_results(place)
    data = _asked(lambda: Results(place).export(run, form.value))
    if output is not None:
        try:
            output.write_bytes(data)
        except OSError as error:
            give_up(f"{output}: {error.strerror}", BAD_INPUT)
    elif form is ExportFormat.PARQUET and sys.stdout.isatty():
        give_up("Parquet is not written to a terminal; give --output FILE", BAD_INPUT)
    else:
        sys.stdout.buffer.write(data)


@results.command(epilog="Example: lightrig results recover")
def recover(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Name of the run; all runs without it.")
    ] = None,
    place: ResultsPlace = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Bring killed runs to their end: their rows to the data set, and their reports.

    Nothing acknowledged is missing. A run that could not be published is published. Exit 0
    if all are whole now, 2 if there is no such run, 3 if one cannot be recovered.
    """
    from lightrig.harness.record import to_recover
    from lightrig.harness.record.places import Place as Location

    root = _asked(lambda: Location(place).folder)
    if root is None:
        give_up(f"{place}: runs are recovered where they were recorded; give a folder", BAD_INPUT)
    folders = list(to_recover(root)) if run is None else [root / "runs" / run]
    if run is not None and not folders[0].is_dir():
        give_up(f"{folders[0]}: no such run", BAD_INPUT)
    quiet = not err.is_terminal
    recovered = [_recovered(f) for f in track(folders, "recovering", console=err, disable=quiet)]
    if as_json:
        print_json(recovered)
    elif recovered:
        head = ("run", "state", "rows", "report or problem")
        lines = [(t["run"], t["state"], t["rows"], t["problem"] or t["report"]) for t in recovered]
        _print_table(head, lines)
    else:
        out.print(f"{place}: nothing to recover", soft_wrap=True)
    if any(one["state"] == "not recovered" for one in recovered):
        raise typer.Exit(LAB_ERROR)


def _recovered(folder: Path) -> dict[str, Any]:
    from lightrig.harness.record import JournalEmptyError, RecordError
    from lightrig.harness.record import recover as bring_to_its_end
    from lightrig.harness.report import write_page

    recovered: dict[str, Any] = {"run": folder.name, "rows": 0, "report": None, "problem": None}
    try:
        found = bring_to_its_end(folder, write_page)
    except JournalEmptyError:
        return {**recovered, "state": "empty", "problem": "killed before anything was recorded"}
    except RecordError as error:
        return {**recovered, "state": "not recovered", "problem": str(error)}
    return {
        **recovered,
        "state": found.facts.state,
        "rows": found.facts.rows,
        "report": str(found.report),
        "problem": _left_out(found.facts.damage),
    }


def _left_out(damage: Sequence[str]) -> str | None:
    if not damage:
        return None
    more = f"; and {len(damage) - 3:,} more" if len(damage) > 3 else ""
    return f"{len(damage):,} damaged lines are left out: {'; '.join(damage[:3])}{more}"


@results.command(epilog="Example: lightrig results prune --before 2026-01-01 --keep-rows --yes")
def prune(
    before: Annotated[
        datetime, typer.Option(formats=["%Y-%m-%d"], help="Nights before this date.")
    ],
    testbed: Pattern = "*",
    keep_rows: Annotated[
        bool, typer.Option("--keep-rows", help="Keep rows for trends; remove journals, reports.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove; without, only show.")] = False,
    place: ResultsPlace = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Remove the runs of old nights; shows what would go unless --yes is given.

    What was killed and not recovered stays. Exit 0, or 3 if something cannot be read or removed.
    """
    from lightrig.harness.record.retention import find_prunable
    from lightrig.harness.record.retention import prune as remove

    found = _asked(lambda: find_prunable(place, f"{before:%F}", testbed, keep_rows=keep_rows))
    if yes:
        _asked(lambda: remove(place, found))
    if as_json:
        print_json([{"run": one.run, "night": one.night, "bytes": one.size} for one in found])
        return
    size = sum(one.size for one in found) / 1e6
    nights = f", {found[0].night} to {found[-1].night}" if found else ""
    done = "removed" if yes else "to be removed with --yes"
    out.print(f"{len(found):,} runs{nights}, {size:,.1f} MB {done}", soft_wrap=True)


@results.command(epilog="Example: lightrig results compact --keep 730 --keep-journals 90 --yes")
def compact(
    testbed: Pattern = "*",
    keep: Annotated[
        int | None, typer.Option(metavar="DAYS", min=1, help="Remove runs of older nights first.")
    ] = None,
    keep_journals: Annotated[
        int | None,
        typer.Option(metavar="DAYS", min=1, help="Remove older journals and reports, not rows."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove; without, only show.")] = False,
    place: ResultsPlace = RESULTS,
    as_json: AsJson = False,
) -> None:
    """Write the small files of months that are over as one file a testbed and month.

    The rows stay the same, and results can be read and measured meanwhile. Nights are counted
    back from the last one; what `--keep` would remove is only shown unless --yes is given. Exit 0,
    2 for results that are no folder, 3 if a file cannot be compacted or removed.
    """
    from lightrig.harness.record.compaction import compact as write_together
    from lightrig.harness.record.retention import find_older, prune

    old = _asked(
        lambda: [
            *(find_older(place, keep, testbed) if keep else []),
            *(find_older(place, keep_journals, testbed, keep_rows=True) if keep_journals else []),
        ]
    )
    if yes:
        _asked(lambda: prune(place, old))
    done = _asked(lambda: write_together(place, testbed))
    if as_json:
        removed = sorted({one.run for one in old})
        print_json({**asdict(done), "old_runs": removed, "removed": yes and bool(old)})
    else:
        if keep or keep_journals:
            word = "removed" if yes else "to be removed with --yes"
            out.print(f"{len({one.run for one in old}):,} old runs {word}")
        out.print(
            f"{done.replaced:,} files of {done.before / 1e6:,.1f} MB are "
            f"{len(done.files):,} of {done.after / 1e6:,.1f} MB now",
            soft_wrap=True,
        )
        if done.left:
            out.print(
                f"{done.left:,} replaced files are still read; the next compaction removes them",
                soft_wrap=True,
            )
    if done.problems:
        give_up("\n".join(done.problems), LAB_ERROR)


@results.command(epilog="Example: lightrig results push s3://lab/results")
def push(
    to: Annotated[str, typer.Argument(metavar="PLACE", help="A folder, or s3://BUCKET/PATH.")],
    place: ResultsPlace = RESULTS,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Copy all ended runs and their rows to another place, such as an object store.

    Runs are added: what is there already is not copied again, what was copied in part is
    completed, and a run of the same name with another header or other rows is refused by its name,
    unless --replace is given. Keys come from the environment or the files of AWS's tools;
    AWS_ENDPOINT_URL names another server. Exit 0, 2 for a place that cannot be one, 3 if something
    cannot be read or written, or is refused.
    """
    _transfer(place, to, replace, as_json)


@results.command(epilog="Example: lightrig results pull s3://lab/results")
def pull(
    source: Annotated[str, typer.Argument(metavar="PLACE", help="A folder, or s3://BUCKET/PATH.")],
    place: ResultsPlace = RESULTS,
    replace: Replace = False,
    as_json: AsJson = False,
) -> None:
    """Copy all runs and their rows from another place, such as an object store.

    As `push`, the other way.
    """
    _transfer(source, place, replace, as_json)


def _transfer(source: str, target: str, replace: bool, as_json: bool) -> None:
    from lightrig.harness.record.transfer import transfer

    done = _asked(lambda: transfer(source, target, replace=replace))
    if as_json:
        print_json(asdict(done))
    else:
        out.print(
            f"{done.files:,} files of {done.size / 1e6:,.1f} MB copied to {target}; "
            f"{done.present:,} were there",
            soft_wrap=True,
        )
    if done.refused:
        give_up("\n".join(done.refused), LAB_ERROR)


def _asked(question: Callable[[], T]) -> T:
    """Ask the results; what is wrong with them or with the question ends the command."""
    from lightrig.harness.record import QuestionError

    with err.status("reading"):
        try:
            return question()
        except QuestionError as error:
            give_up(str(error), BAD_INPUT)
        except LightrigError as error:
            give_up(str(error), LAB_ERROR)


def _print_table(head: Sequence[str], rows: Sequence[Any]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for index, name in enumerate(head):
        values = [list(row)[index] for row in rows]
        numbers = all(isinstance(value, int | float | None) for value in values)
        justify: Literal["left", "right"] = "right" if numbers else "left"
        table.add_column(name, justify=justify, no_wrap=not index)
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    print_table(table)
