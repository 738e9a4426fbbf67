"""The trend of every quantity over nights, for each testbed, as one page."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lightrig.harness.garbage import paused
from lightrig.harness.record import RecordError, Results, RunFacts
from lightrig.harness.record.nights import Start, order, start_of
from lightrig.harness.record.notes import Note, read_notes
from lightrig.harness.record.places import appearing
from lightrig.harness.record.run_folder import load_ports
from lightrig.harness.report.causes import Cause
from lightrig.harness.report.nights.last_night import LastNight, last_nights
from lightrig.harness.report.nights.last_night_departures import find_series_departures
from lightrig.harness.report.nights.night_causes import night_causes, with_shared_switches
from lightrig.harness.report.nights.nights_page import nights_page
from lightrig.harness.report.nights.note_marks import moments_of_nights, note_marks
from lightrig.harness.report.nights.overview import Board
from lightrig.harness.report.nights.series import History, Lab, read
from lightrig.harness.report.nights.series_changes import LabChange, events, find_series_changes
from lightrig.harness.report.nights.source import Descriptions, Source
from lightrig.harness.report.nights.stored_rules import stored_rules
from lightrig.testbeds import Testbed, TestbedError
from lightrig.testbeds.baselines import Baselines

__all__ = ["NIGHTS", "JudgedNights", "judge_nights", "write_nights", "write_page_of"]

NIGHTS = 90
"""Default number of nights that the page looks back."""


@dataclass(frozen=True, slots=True)
class JudgedNights:
    """What the page of nights shows, before it is drawn.

    boards: one of each lab of `history`. ended: how the tests of each testbed's last night ended.
    causes: the suspected causes of each board.
    """

    history: History
    boards: Sequence[Board]
    ended: Sequence[LastNight]
    causes: Sequence[tuple[Board, Sequence[Cause]]]


def write_nights(results: str | Path, path: Path, last: int = NIGHTS) -> Path:
    """Write the page of the `last` nights in `results` to `path`, and return that.

    Links on the page lead to `runs/<run>/report.html` beside it. Raises `RecordError` if there
    is nothing to show or the results cannot be read, `OSError` if the page cannot be written.
    """
    return write_page_of(judge_nights(results, last), path)


@paused()
def write_page_of(judged: JudgedNights, path: Path) -> Path:
    """Write the page of nights that were judged to `path`, and return that; raises `OSError`."""
    with appearing(path) as hidden:
        page = nights_page(judged.history, judged.boards, judged.ended, judged.causes)
        hidden.write_text(page, encoding="utf-8")
    return path


@paused()  # an eighth of its time, for a thousand objects that nothing refers to
def judge_nights(results: str | Path, last: int = NIGHTS) -> JudgedNights:
    """Compare the `last` nights in `results` with each other.

    Raises `RecordError` if there is nothing to show or the results cannot be read.
    """
    source = Source(results, last)
    history = read(source)
    if history is None:
        raise RecordError(f"{results}: no run has left a row yet, so there are no nights")
    with source.connected() as connection:
        descriptions = source.descriptions(connection)
        events_of_labs = events(
            connection,
            descriptions,
            lambda *run: history.place(source.nights.of(*run)),
            lambda run, testbed: load_ports(Path(results) / "runs" / run, testbed),
        )
    found = find_series_changes(history.labs)
    runs = [facts for facts in Results(results).runs() if not facts.by_hand]
    starts = {facts.run: start_of(facts.header) for facts in runs}
    notes, unread = _notes(Results(results), moments_of_nights(history.labs, starts))
    of_testbeds: defaultdict[str, list[Note]] = defaultdict(list)
    for note in notes:
        of_testbeds[note.testbed].append(note)
    rules, unreadable = _rules(Results(results), runs, history.labs)
    departures = find_series_departures(history.labs, rules)
    newest = [_described(lab, descriptions) for lab in history.labs]
    boards = [
        Board(
            index,
            history,
            lab,
            _with_notes(lab, events_of_labs, of_testbeds[lab.testbed], starts, unread),
            tuple(found[index]),
            tuple(departures[index]),
            described.limits if (described := newest[index]) else {},
            frozenset(run for runs in lab.runs for run in runs if source.reported(run)),
            unreadable.get(lab.testbed, ""),
            starts,
        )
        for index, lab in enumerate(history.labs)
    ]
    ended = last_nights(results, runs)
    of_testbed = {one.testbed: one for one in ended}
    causes = [
        (board, night_causes(board, of_testbed.get(board.lab.testbed), described))
        for board, described in zip(boards, newest, strict=True)
    ]
    return JudgedNights(history, boards, ended, with_shared_switches(causes, newest))


def _with_notes(
    lab: Lab,
    events_of_labs: Mapping[tuple[str, bool], tuple[LabChange, ...]],
    notes: Sequence[Note],
    starts: Mapping[str, Start],
    unread: str,
) -> tuple[LabChange, ...]:
    """Return the events of a lab with the marks of notes, the oldest first.

    unread: why the notes cannot be read; empty where they can.
    """
    found = [*events_of_labs.get((lab.testbed, lab.simulated), ())]
    found += note_marks(lab, notes, starts)
    if unread:
        found.append(LabChange(len(lab.runs) - 1, "note", unread))
    return tuple(sorted(found, key=lambda each: each.night))


def _notes(results: Results, nights: Sequence[str]) -> tuple[list[Note], str]:
    """Return the notes from between nights, or why there are none: the page is more than they are.

    nights: when they began, as notes state times, the oldest first.
    """
    if not nights:
        return [], ""
    try:
        return read_notes(results.place, nights[0], nights[-1]), ""
    except RecordError as error:
        return [], f"the notes cannot be read: {error}"


def _rules(
    results: Results, runs: Sequence[RunFacts], labs: Sequence[Lab]
) -> tuple[dict[str, Baselines], dict[str, str]]:
    """Return the rules that the last run of each testbed kept, and why some cannot be read."""
    facts = {one.run: one for one in runs}
    found: dict[str, Baselines] = {}
    unreadable: dict[str, str] = {}
    for testbed in {lab.testbed for lab in labs}:
        last = max(
            (night, order(facts[run].header) if run in facts else (), run)
            for lab in labs
            if lab.testbed == testbed
            for night, names in enumerate(lab.runs)
            for run in names
        )[2]
        try:
            rules = stored_rules(results, facts[last], testbed) if last in facts else None
        except TestbedError as error:
            problems = "; ".join(f"line {one.line}: {one.message}" for one in error.problems)
            unreadable[testbed] = f"The rules of {testbed} are not kept: {problems}"
            continue
        if rules is not None:
            found[testbed] = rules
    return found, unreadable


def _described(lab: Lab, descriptions: Descriptions) -> Testbed | None:
    """Return the testbed as its last run described it."""
    runs = (run for runs in reversed(lab.runs) for run in reversed(runs))
    found = (descriptions.load(lab.testbed, run) for run in runs)
    return next((one for one in found if one is not None), None)
