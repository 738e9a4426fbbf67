"""The base of all sessions on a wire: name, trace, secrets, and errors with their context.

A protocol's session adds framing and meaning. Two bases lie between: `QuerySession` for protocols
whose replies come in the order of their queries, and `TaggedSession` for those whose replies repeat
a tag. Both open the wire with the first command, and again with the first one after a failure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    UnreachableError,
)
from lightrig.instruments.wire.framing import FramingError
from lightrig.instruments.wire.trace import Trace
from lightrig.testbeds.parts import WireTimeouts

LONGER = "where it is that slow, `timeouts: {reply: ...}` in the testbed file"
"""Remedy in the error of a reply that does not come in time."""

_BUSY = "is it busy, is the command one that it answers?"


class WireSession:
    """A session with one instrument.

    Args:
        instrument: its name in error messages.
        clock: the bench's clock.
        meanings: meaning and remedy of codes of refusal, by code.
        secrets: strings that neither trace nor errors show.
        trace: that of the session below, for a protocol on top of another session.
        timeouts: time limits that the testbed file states.

    Attributes:
        trace: all traffic.
        timeouts: see above.
        usual_timeout: time for a reply where nobody states one, in ns.
    """

    usual_timeout: ClassVar[int]

    def __init__(
        self,
        instrument: str,
        clock: Clock,
        meanings: Mapping[Any, tuple[str, str]] | None = None,
        *,
        secrets: Iterable[str] = (),
        trace: Trace | None = None,
        timeouts: WireTimeouts = WireTimeouts(),  # noqa: B008 -- frozen
    ) -> None:
        self.instrument = instrument
        self.trace = trace or Trace(clock, instrument)
        self.timeouts = timeouts
        self._clock = clock
        self._meanings = meanings or {}
        for secret in secrets:
            self.trace.mask(secret)

    def close(self) -> None:
        """Close the session; the next command would open it again."""
        raise NotImplementedError

    def reply_timeout(self, timeout: int | None) -> int:
        """Return the time for a reply in ns: that of its command, and at least what is stated.

        `timeout` is of a command that may take long; None is the usual one.
        """
        stated = self.timeouts.reply_ns
        if timeout is None:
            return self.usual_timeout if stated is None else stated
        return max(timeout, stated or 0)

    def failed(
        self,
        kind: type[InstrumentError],
        problem: str,
        command: str,
        *details: tuple[str, str],
    ) -> InstrumentError:
        """Return an error about this instrument with the last lines of its trace."""
        shown = self.trace.masked(command)
        return kind(
            self.instrument, problem, command=shown, details=details, trace=self.trace.tail()
        )

    def denied(
        self, code: str | int, text: str, command: str, answered: str | None = None
    ) -> DeniedError:
        """Return the error of a refusal, with the meaning of its code and the remedy."""
        return DeniedError(
            self.instrument,
            code=str(code),
            text=text,
            command=command,
            answered=answered,
            details=list(zip(("meaning", "try"), self._meanings.get(code, ()), strict=False)),
            trace=self.trace.tail(),
        )

    def login_refused(
        self, where: str, command: str, answered: str, also: str = ""
    ) -> InstrumentError:
        """Return the error of a login at `where` that was answered so; `also` ends the remedy."""
        return self.failed(
            UnreachableError,
            f"refused the login at {where}",
            command,
            ("answered", answered),
            ("try", f"the credentials that `login:` names{also}"),
        )

    def unanswered(
        self, error: Exception, timeout: int, command: str, came: str, *before: tuple[str, str]
    ) -> InstrumentError:
        """Return the error of a command whose wait for a reply has ended in `error`.

        Args:
            error: of the clock, the framing or the stream.
            timeout: of the wait, in ns.
            command: its text.
            came: what came instead of a whole reply.
            before: details that come first.
        """
        if isinstance(error, TimeoutError):
            problem = f"did not answer within {timeout / 1e9:g} s"
            details = (("because", came), ("try", f"{_BUSY} {LONGER}"))
            return self.failed(NoReplyError, problem, command, *before, *details)
        if isinstance(error, FramingError):
            problem = "answered something that its protocol does not allow"
            return self.failed(GarbledError, problem, command, *before, ("because", str(error)))
        problem = "closed the connection before it had answered"
        because = "; ".join(filter(None, (str(error), came)))
        return self.failed(DisconnectedError, problem, command, *before, ("because", because))
