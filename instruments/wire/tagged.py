"""Sessions whose answers repeat the tag of their question, so that several may be under way.

No answer is ever taken for another question's, however late it comes.
"""

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from instruments.clock import Clock, Span
from instruments.errors import DeniedError, InstrumentError, NoReplyError
from instruments.wire.trace import Trace

R = TypeVar("R")

DEFAULT_TIMEOUT = 10_000_000_000
"""How long an answer may take, in ns; real switches give some only after seconds."""


class Pending(Generic[R]):
    """A question that was sent and not yet answered.

    Attributes:
        command: the question, as errors show it.
        tag: what its answer repeats.
        sent: between which stamps it was written.
    """

    def __init__(self, session: "TaggedSession[R]", command: str, tag: str, clock: Clock) -> None:
        self._session = session
        self.command = command
        self.tag = tag
        self.sent = Span(0, 0)
        self._answered = clock.event()
        self._outcome: R | InstrumentError | None = None

    def resolve(self, outcome: R | InstrumentError) -> None:
        """Hand the answer, or what went wrong, to whoever waits; for the session only."""
        self._outcome = outcome
        self._answered.set()

    def result(self, timeout: int = DEFAULT_TIMEOUT) -> R:
        """Wait for the answer, at most `timeout` ns.

        Raises:
            DeniedError: the switch refused.
            NoReplyError: nothing came in time; a later answer will be set aside.
            DisconnectedError: the session ended first.
            GarbledError: what came is not of its protocol.
        """
        if not self._answered.wait(timeout):
            self._session.forget(self, timeout)
            self._answered.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, InstrumentError):
            raise self._outcome
        return self._outcome


class TaggedSession(Generic[R]):
    """Who waits for which answer, and what they hear instead of it.

    Args:
        instrument: its name in error messages.
        clock: the bench's clock.
        meanings: what codes of refusals mean, and what to try, by code.

    Attributes:
        trace: what went over the wire.
        reports: the newest messages that nobody asked for.
    """

    _advice = ""
    """What to try where no answer comes."""

    def __init__(
        self, instrument: str, clock: Clock, meanings: Mapping[str, tuple[str, str]] | None
    ) -> None:
        self.instrument = instrument
        self.trace = Trace(clock, instrument)
        self.reports: deque[str] = deque(maxlen=1000)
        self._clock = clock
        self._meanings = meanings or {}
        self._lock = threading.Lock()
        self._pending: dict[str, Pending[R]] = {}

    def forget(self, pending: Pending[R], waited: int) -> bool:
        """Give up on `pending` after `waited` ns; False if its answer came just now."""
        if self._taken(pending.tag) is None:
            return False  # the reader has it, and resolves it any moment
        problem = f"did not answer within {waited / 1e9:g} s"
        because, advice = ("because", self._what_came()), ("try", self._advice)
        pending.resolve(self._error(NoReplyError, problem, pending, because, advice))
        return True

    def _what_came(self) -> str:
        """What came instead of a whole answer."""
        return "nothing came"

    def _taken(self, tag: str) -> Pending[R] | None:
        """Who waits for the answer with that tag, and from now on does so no more."""
        with self._lock:
            return self._pending.pop(tag, None)

    def _all_taken(self) -> list[Pending[R]]:
        """The same of all; the session's lock is held."""
        lost = [*self._pending.values()]
        self._pending.clear()
        return lost

    def _fail(
        self,
        lost: Iterable[Pending[R]],
        kind: type[InstrumentError],
        problem: str,
        *details: tuple[str, str],
    ) -> None:
        for pending in lost:
            pending.resolve(self._error(kind, problem, pending, *details))

    def _denied(
        self, pending: Pending[R], code: str, text: str, answered: str | None = None
    ) -> DeniedError:
        return DeniedError(
            self.instrument,
            code=code,
            text=text,
            command=pending.command,
            answered=answered,
            details=list(zip(("meaning", "try"), self._meanings.get(code, ()), strict=False)),
            trace=self.trace.tail(),
        )

    def _error(
        self,
        kind: type[InstrumentError],
        problem: str,
        pending: Pending[R],
        *details: tuple[str, str],
    ) -> InstrumentError:
        return kind(
            self.instrument,
            problem,
            command=pending.command,
            details=details,
            trace=self.trace.tail(),
        )
