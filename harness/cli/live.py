"""`lightrig live`: powers and carriers of a lab, once a second, while somebody works in it."""

# Pages take a template engine: only --page pays for it.
# ruff: noqa: PLC0415

import contextlib
import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from lightrig.harness.bench.live_history import LiveHistory, ValueHistory
from lightrig.harness.bench.live_values import (
    CarrierLoss,
    LiveLab,
    first_lost,
)
from lightrig.harness.cli import completion
from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    NO,
    RESULTS,
    AsJson,
    File,
    give_up,
    load_testbed,
    print_json,
)
from lightrig.harness.cli.lab import interruptible, lab_or_limit
from lightrig.harness.cli.live_screen import Line, LiveScreen, keys, pressed
from lightrig.harness.cli.requests import takes
from lightrig.harness.cli.terminal import err, out, print_table
from lightrig.harness.record.journal_following import JournalFollower, JournalRow
from lightrig.instruments.clock import SystemClock, wall_time
from lightrig.testbeds import QuantityError, Testbed, format_duration
from lightrig.testbeds.quantities import parse_duration

_SHORTEST = 200_000_000
"""Between two readings, in ns: several readers of one lab are not what this is for."""

_NEW_FOR = 5_000_000_000
"""For which a change is highlighted, in ns."""

_MINUTES = re.compile(r"^(\d+(?:\.\d+)?) ?m$")

_JOURNALS_EVERY = 2_000_000_000
_JOURNAL_ROWS = 20


@dataclass(frozen=True)
class LiveRequest:
    """Arguments of `lightrig live`."""

    file: File
    subjects: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUBJECT]...",
            help="An instrument, a port or a value: laser, ocs.3, server0.nic0.p0.carrier.",
            autocompletion=completion.ports,
        ),
    ] = None
    every: Annotated[
        str, typer.Option(metavar="TIME", help="Between two readings of powers and carriers.")
    ] = "1s"
    duration: Annotated[
        str,
        typer.Option(
            "--for", metavar="TIME", help="End after that time; exit 1 for a lost carrier."
        ),
    ] = ""
    zero: Annotated[
        bool, typer.Option("--zero", help="Show changes of powers since the beginning (key z).")
    ] = False
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page that reloads itself."),
    ] = None
    results: Annotated[Path, typer.Option("--results", help="Folder of the results.")] = Path(
        RESULTS
    )
    as_json: AsJson = False


@takes(LiveRequest)
def live(request: LiveRequest) -> None:
    """Show powers, circuits and carriers once a second until Ctrl-C; then least, greatest, last.

    Modules, FEC, RDMA state and settings are read every 30 s at most. A carrier is watched by its
    server every 10 ms, so that a short loss is seen. Any run or command that wants an instrument
    has it within 2 s; what another process uses is not contacted, and the newest rows of its run
    are shown. Where hosts share the lab nothing is contacted. Key z shows changes of powers since
    then, q ends. Exit 0, 1 if a carrier was lost during --for, 2 for an invalid file, name or
    time, 3 if nothing of what is named answered.
    """
    testbed = load_testbed(request.file)
    every = _time("--every", request.every)
    if every < _SHORTEST:
        give_up(f"--every: found {request.every!r}, expected 200 ms or more", BAD_INPUT)
    duration = _time("--for", request.duration) if request.duration else None
    purpose = f"lightrig live {request.file}, which yields"
    lab = lab_or_limit(lambda: LiveLab(testbed, request.subjects or [], every, purpose))
    view = _View(testbed, lab, request)
    with interruptible("nothing was changed"):
        try:
            view.go_on(every, duration)
        finally:
            lab.close()
    if view.is_silent:
        give_up(view.silence, LAB_ERROR)
    view.summarize()
    if duration is not None and view.losses:
        raise typer.Exit(NO)


def _time(option: str, text: str) -> int:
    # Minutes as `sleep` and `timeout` take them: here "m" can be nothing else.
    text = _MINUTES.sub(r"\1 min", text)
    try:
        found = round(parse_duration(text))
    except QuantityError as error:
        give_up(f"{option}: {error}", BAD_INPUT)
    if found <= 0:
        give_up(f"{option}: found {text!r}, expected a time above 0, e.g. '10m'", BAD_INPUT)
    return found


class _View:
    """What is shown of a lab: on the terminal, as lines, or at the end alone; and as a page."""

    def __init__(self, testbed: Testbed, lab: LiveLab, request: LiveRequest) -> None:
        self._testbed = testbed
        self._lab = lab
        self._page = request.page
        self._zero = request.zero
        self._as_json = request.as_json
        self._clock = SystemClock()
        self._history = LiveHistory()
        self._follower = JournalFollower(request.results, testbed.name)
        self._rows: list[JournalRow] = []
        self._rows_due = 0
        self._shown: dict[str, str] = {}
        self._states: list[tuple[str, str]] = []
        self._present: frozenset[str] = frozenset()
        self.losses: list[CarrierLoss] = []
        self.is_silent = False

    @property
    def silence(self) -> str:
        """Why nothing is read, one line for each instrument."""
        return "\n".join(f"{name}: {why}" for name, why in self._states)

    def go_on(self, every: int, duration: int | None) -> None:
        """Show the lab until a key, Ctrl-C or the end of `duration`."""
        began = self._clock.now()
        end = None if duration is None else began + duration
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.suppress(KeyboardInterrupt))
            screen = None
            if out.is_terminal and not (out.is_dumb_terminal or self._as_json):
                stack.enter_context(keys())
                screen = LiveScreen(out)
                stack.callback(screen.close)
            due = began
            while end is None or self._clock.now() < end:
                if not self._update(screen):
                    self.is_silent = True
                    return
                due = max(due + every, self._clock.now())
                if self._pause(due if end is None else min(due, end), screen):
                    break
            self._update(screen)

    def _pause(self, due: int, screen: LiveScreen | None) -> bool:
        """Wait until `due`; return whether it was asked to end."""
        while (left := due - self._clock.now()) > 0:
            if screen is None:
                self._clock.sleep(left)
                continue
            key = pressed(left / 1e9)
            if key == "z":
                self._history.set_zero()
                return False
            if key == "q":
                return True
        return False

    # ------------------------------------------------------------------------- once a period

    def _update(self, screen: LiveScreen | None) -> bool:
        """Show what was read; return whether anything answers or is in use."""
        readers = self._lab.readers
        seen = [seen for reader in readers for seen in reader.values()]
        noticed = self._history.add(seen)
        self._present = frozenset(each.value.name for each in seen)
        self._states = [
            (", ".join(reader.names), state) for reader in readers if (state := reader.state)
        ]
        losses = [loss for reader in readers for loss in reader.carrier_losses()]
        new_losses = losses[len(self.losses) :] if len(losses) > len(self.losses) else []
        self.losses = losses
        if self._zero and seen:
            self._history.set_zero()
            self._zero = False
        if not self._history.values and all(reader.is_silent for reader in readers):
            return False
        if self._lab.is_in_use or self._lab.is_shared:
            if self._clock.now() >= self._rows_due:
                self._rows = self._follower.newest()[:_JOURNAL_ROWS]
                self._rows_due = self._clock.now() + _JOURNALS_EVERY
        else:
            self._rows = []
        if screen is not None:
            screen.draw(list(self._lines()), self._foot())
        elif not self._as_json:
            self._print(noticed, new_losses)
        if self._page is not None:
            self._write_page(self._page, goes_on=True)
        return True

    def _print(self, noticed: Sequence[ValueHistory], losses: Sequence[CarrierLoss]) -> None:
        """Print what has changed, one line each."""
        now = f"{wall_time():%T}"
        lines = {name: f"{name}: {state}" for name, state in self._states}
        lines |= {
            f"{row.run} {row.row.subject} {row.row.quantity}": _row_line(row) for row in self._rows
        }
        new = [line for key, line in lines.items() if self._shown.get(key) != line]
        self._shown = lines
        for each in noticed:
            mark = "  simulated" if each.latest.simulated else ""
            new.append(f"{each.latest.value.name} {each.text}{mark}")
        for line in new:
            out.print(f"{now} {line}", soft_wrap=True)
        for loss in losses:
            out.print(f"{now} {loss.port} lost its carrier at {self._when(loss)}", soft_wrap=True)
        if new or losses:
            out.file.flush()

    def _lines(self) -> Iterator[Line]:
        for name, state in self._states:
            yield Line(f"{name}: {state}")
        if self.losses:
            yield Line(self._lost(), is_new=True)
        subjects = list(self._subjects())
        width = max((len(subject) for subject, *_ in subjects), default=0)
        any_change = any(changed is not None for *_, changed in subjects)
        for subject, values, changed in subjects:
            is_new = changed is not None and self._clock.now() - changed < _NEW_FOR
            # Before the values, which a narrow terminal cuts.
            when = "" if changed is None else self._clock_time(changed)
            seen_at = f"  {when:<8}" if any_change else ""
            yield Line(f"{subject:<{width}}{seen_at}  {values}", is_new=is_new)
        if self._rows:
            yield Line("newest rows of runs that go on", is_heading=True)
            for row in self._rows:
                yield Line(f"{_row_line(row)}, {_age(row)}")

    def _subjects(self) -> Iterator[tuple[str, str, int | None]]:
        """Yield each port, channel or instrument, its values and when one of them changed last."""
        for subject, histories in self._history.by_subject().items():
            present = [each for each in histories if each.latest.value.name in self._present]
            parts = [f"{_kind(each)} {each.text}" for each in present]
            if not present:
                last = max(each.latest.at for each in histories)
                parts = [f"not read since {self._clock_time(last)}"]
            mark = " simulated" if any(each.latest.simulated for each in histories) else ""
            changes = [each.changed for each in histories if each.changed is not None]
            yield f"{subject}{mark}", "  ".join(parts), max(changes, default=None)

    def _foot(self) -> str:
        return f"{self._testbed.name} {wall_time():%T} UTC  z: changes since now  q: end"

    def _write_page(self, page: Path, *, goes_on: bool) -> None:
        from lightrig.harness.report.lab_page import LabPage, write_lab_page

        found = LabPage(
            title=f"{self._testbed.name} at the bench",
            about=f"read {wall_time():%F %T} UTC",
            refresh_s=max(1, self._lab.every // 10**9),
            goes_on=goes_on,
            lost=self._lost() if self.losses else "",
            states=self._states,
            subjects=[
                (subject, values, "" if changed is None else f"{self._clock_time(changed)} UTC")
                for subject, values, changed in self._subjects()
            ],
            rows=[
                (row.run, row.row.subject, row.row.quantity, _row_value(row), _age(row))
                for row in self._rows
            ],
        )
        try:
            write_lab_page(found, page)
        except OSError as error:
            give_up(f"{page}: {error.strerror}", BAD_INPUT)

    # ------------------------------------------------------------------------- texts

    def _clock_time(self, at: int) -> str:
        ago = datetime.timedelta(microseconds=(self._clock.now() - at) / 1e3)
        return f"{wall_time() - ago:%T}"

    def _when(self, loss: CarrierLoss) -> str:
        width = loss.at.latest - loss.at.earliest
        return f"{self._clock_time(loss.at.latest)} UTC, known to {format_duration(width)}"

    def _lost(self) -> str:
        first = first_lost(self.losses)
        if len(first) == 1:
            return f"first {first[0].port} lost its carrier, at {self._when(first[0])}"
        ports = ", ".join(dict.fromkeys(each.port for each in first))
        return f"cannot tell which lost its carrier first, at {self._when(first[0])}: {ports}"

    # ------------------------------------------------------------------------- the end

    def summarize(self) -> None:
        """Show least, greatest and last of all values, and what was lost first."""
        if self._page is not None:
            self._write_page(self._page, goes_on=False)
        if self._as_json:
            print_json(self._document())
            return
        table = Table(box=None, pad_edge=False)
        for heading in ("value", "least", "greatest", "last", "changes"):
            table.add_column(heading)
        table.add_column("")
        for history in self._history.values.values():
            mark = "simulated" if history.latest.simulated else ""
            table.add_row(*history.summary_cells(), str(history.changes or ""), mark)
        if self._history.values:
            print_table(table)
        for name, state in self._states:
            err.print(f"{name}: {state}", soft_wrap=True)
        if self.losses:
            out.print(self._lost(), soft_wrap=True)

    def _document(self) -> Mapping[str, Any]:
        now = self._clock.now()
        return {
            "values": [each.summary() for each in self._history.values.values()],
            "lost": [
                {
                    "port": loss.port,
                    "earliest": self._utc(loss.at.earliest, now),
                    "latest": self._utc(loss.at.latest, now),
                }
                for loss in self.losses
            ],
            "first": [loss.port for loss in first_lost(self.losses)],
            "not_read": [{"instruments": name, "why": why} for name, why in self._states],
        }

    def _utc(self, at: int, now: int) -> str:
        ago = datetime.timedelta(microseconds=(now - at) / 1e3)
        return f"{wall_time() - ago:%FT%T.%fZ}"


def _kind(history: ValueHistory) -> str:
    return history.latest.value.name.rpartition(".")[2]


def _row_value(row: JournalRow) -> str:
    value, unit = row.row.value, row.row.unit
    return format_duration(value) if unit == "ns" else f"{value:g} {unit}"


def _row_line(row: JournalRow) -> str:
    return f"{row.run} {row.row.subject} {row.row.quantity} {_row_value(row)}"


def _age(row: JournalRow) -> str:
    if row.at is None:
        return "of unknown age"
    seconds = max(0, round(wall_time().timestamp() - row.at))
    return f"{seconds} s ago" if seconds < 120 else f"{seconds // 60} min ago"
