"""A job by command, such as nccl-tests under mpirun, watched by the table that it prints."""

import itertools
import subprocess
import threading
from collections.abc import Sequence

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.jobs.core.collectives import CollectiveFailedError
from lightrig.instruments.jobs.core.streams import StreamState
from lightrig.instruments.jobs.tools import nccl_tests
from lightrig.instruments.jobs.tools.nccl_results import CollectiveRow
from lightrig.instruments.jobs.traffic.rank_launcher import last_lines
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.supervisor import supervised
from lightrig.instruments.wire.namespace import ProcessChannel

STARTING = 180_000_000_000
"""Time allowed until the first row, in ns."""

_LOOK_AGAIN = 50_000_000
_END_SECONDS = 5.0
"""Time for its supervisor, which needs a second and a little more, in s."""
_LAST_LINES = 6
_FAILURE, _WARNING = ("Test NCCL failure", "Test CUDA failure", "Test failure"), "NCCL WARN"
"""Texts of a test that ends by an error (nccl-tests, src/common.h), and of a warning of NCCL."""


class CommandJob:
    """A program that prints a row of nccl-tests or rccl-tests again and again, until stopped.

    That is `all_reduce_perf -b 16K -e 16K -N 0`, by a launcher. A row is an exchange, which ends
    when its line comes: a fault shows as a row that came late, and each row says how many of its
    values were wrong. What else the program prints is kept for its error.

    Args:
        command: runs on this machine.
        clock: the bench's clock.

    Raises `CollectiveFailedError` where no row comes within `STARTING`.
    """

    def __init__(self, command: Sequence[str], clock: Clock) -> None:
        self._clock, self._command = clock, command
        self._table, self._changed = nccl_tests.Table(), threading.Lock()
        self._rows: list[tuple[Span, CollectiveRow]] = []
        self._warned: list[Span] = []
        self._lines: list[str] = []
        self._failed: Span | None = None
        self._error = ""
        self._last = clock.now()
        process = subprocess.Popen(
            supervised(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._channel = ProcessChannel(process, self, _END_SECONDS)
        deadline = clock.now() + STARTING
        while not self._rows and not self._error:
            if clock.now() > deadline:
                self._channel.close()
                raise self._failure(f"has printed no row within {STARTING / 1e9:g} s")
            clock.sleep(_LOOK_AGAIN)
        if not self._rows:
            self._channel.close()
            raise self._failure(self._error)

    def line(self, text: str) -> None:
        """Take a line that the program has printed."""
        with self._changed:
            now = self._clock.now()
            at, self._last = Span(self._last, now), now
            self._lines = [*self._lines[-_LAST_LINES:], text]
            if _WARNING in text:
                self._warned.append(at)
            if any(word in text for word in _FAILURE):
                self._fail(text)
            count = len(self._table.rows)
            try:
                self._table.take(text)
            except ToolOutputError as error:
                self._fail(str(error))
            for row in self._table.rows[count:]:
                # A warning of NCCL cuts the row off in which it comes: its second half is missing.
                if not self._rows or len(row.measured) == len(self._rows[0][1].measured):
                    self._rows.append((at, row))

    def ended(self, reason: str) -> None:
        """Take the end of the program, which should go on until it is stopped."""
        with self._changed:
            self._fail(f"{reason}; its last line: {self._lines[-1] if self._lines else 'none'}")

    def state(self) -> StreamState:
        """Return what has become of it so far; the rows' own moments are when their lines came."""
        with self._changed:
            ends = tuple(at for at, _ in self._rows)
            pairs = tuple(itertools.pairwise(ends))
            wrong = sum(any(each.wrong for each in row.measured) for _, row in self._rows)
            return StreamState(
                exchanges=len(ends),
                wrong=wrong,
                slow=pairs,
                durations=tuple(ended.latest - began.latest for began, ended in pairs),
                began=ends[-1] if ends else Span(self._last, self._last),
                error=self._error,
                failed=self._failed,
                rto=None,
                ends=ends,
                warned=tuple(self._warned),
            )

    def stop(self) -> StreamState:
        """Return its last state and end it, with all that it has started here.

        A launcher passes SIGTERM, which comes first, to its ranks.
        """
        state = self.state()
        if not self._channel.closed:
            self._channel.close()
        return state

    def _fail(self, error: str) -> None:
        if not self._error:
            self._error = error.strip()
            self._failed = Span(self._last, self._clock.now())

    def _failure(self, what: str) -> CollectiveFailedError:
        return CollectiveFailedError(self._command[0], what, details=last_lines(self._lines))
