"""Several commands in flight on one session: replies matched by tag, or by order.

`TaggedSession` is for protocols whose replies repeat the tag of their command (TL1, NETCONF):
a reply is never taken for another command's, however late it comes.

`Pipeline` is for protocols without tags (SCPI, HTTP/1.1), over a `QuerySession`. A switch takes
its time over a change of circuits, and the arrival of its acknowledgement is a measurement. So
the thread that reads the connection stamps it, not the caller who collects it later, and the
caller can observe something else meanwhile.
"""

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from lightrig.instruments.clock import Clock, Event, FairLock, Span
from lightrig.instruments.core.errors import DisconnectedError, InstrumentError, NoReplyError
from lightrig.instruments.wire.framing import Framing, FramingError
from lightrig.instruments.wire.session import Answer
from lightrig.instruments.wire.stream import StreamClosedError, ThreadedStream
from lightrig.instruments.wire.tcp import CONNECT_TIMEOUT, TcpConnection, connect
from lightrig.instruments.wire.trace import Trace
from lightrig.instruments.wire.wire_session import LONGER, WireSession
from lightrig.testbeds.parts import WireTimeouts

R = TypeVar("R")

_NO_TIME = Span(0, 0)

DEFAULT_TIMEOUT = 10_000_000_000
"""Time allowed for a reply, in ns; real switches give some only after seconds."""


# ------------------------------------------------------------------------------- by tag


class Pending(Generic[R]):
    """A command whose reply is recognised by its tag.

    Attributes:
        command: its text in errors.
        tag: repeated by the reply.
        since: stamp before it was written.
        sent: stamps before and after that.
    """

    def __init__(
        self, session: "TaggedSession[R, Any]", command: str, tag: str, clock: Clock
    ) -> None:
        self._session = session
        self.command = command
        self.tag = tag
        self.since = 0
        self.sent = Span(0, 0)
        self._answered = clock.event()
        self._outcome: R | InstrumentError | None = None

    def resolve(self, outcome: R | InstrumentError) -> None:
        """Hand the reply, or the error, to the thread that waits; for the session only."""
        self._outcome = outcome
        self._answered.set()

    def result(self, timeout: int | None = None) -> R:
        """Wait for the reply, at most `timeout` ns; None for the usual limit.

        Raises:
            DeniedError: the switch refused.
            NoReplyError: nothing came in time; a later reply is discarded.
            DisconnectedError: the session ended first.
            GarbledError: the reply violates the protocol.
        """
        timeout = self._session.reply_timeout(timeout)
        if not self._answered.wait(timeout):
            # Either this call takes the command out of the session and resolves it, or the
            # reader has taken it out just now and is about to: both ways the event gets set.
            self._session.cancel(self, timeout)
            self._answered.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, InstrumentError):
            raise self._outcome
        return self._outcome


class TaggedConnection(Protocol):
    """An open connection of a `TaggedSession`."""

    @property
    def over(self) -> bool:
        """Whether it has ended, so that a command must open another one."""

    def close(self) -> None:
        """Close it without informing the session."""


C = TypeVar("C", bound=TaggedConnection)


class TaggedSession(WireSession, Generic[R, C]):
    """Commands in flight by tag; the connection opens with the first one, and after it was lost.

    Args:
        instrument: its name in error messages.
        address: host and port.
        clock: the bench's clock.
        meanings: meaning and remedy of codes of refusal, by code.
        secrets: strings that neither trace nor errors show.
        timeouts: time limits that the testbed file states.

    Attributes:
        reports: the newest messages that the instrument sent without a command.
    """

    _scheme = ""
    """The wire, as addresses name it."""

    _advice = ""
    """Remedy in the error of a reply that does not come."""

    _ends_on_timeout = False
    """Whether a reply that does not come ends the connection."""

    usual_timeout = DEFAULT_TIMEOUT
    usual_connect = CONNECT_TIMEOUT
    """Time for the connection where nobody states one, in s."""

    _closed = "had its session closed before it answered"
    """Problem of a command whose session is closed meanwhile."""

    def __init__(
        self,
        instrument: str,
        address: tuple[str, int],
        clock: Clock,
        meanings: Mapping[str, tuple[str, str]] | None,
        secrets: Iterable[str] = (),
        timeouts: WireTimeouts = WireTimeouts(),  # noqa: B008 -- frozen
    ) -> None:
        super().__init__(instrument, clock, meanings, secrets=secrets, timeouts=timeouts)
        self.reports: deque[str] = deque(maxlen=1000)
        self._address = address
        self._opening = FairLock(clock)
        self._lock = threading.Lock()
        self._connection: C | None = None
        self._pending: dict[str, Pending[R]] = {}

    def _open(self) -> C:
        """Open a connection and store it; with `_opening` acquired, so other threads wait."""
        raise NotImplementedError

    def _opened(self) -> C:
        """Return the open connection, opened where there is none; with `_opening` acquired."""
        connection = self._connection
        return self._open() if connection is None or connection.over else connection

    @property
    def connect_timeout(self) -> float:
        """Time for the connection, and as long for what encrypts it, in s of real time."""
        return self.timeouts.connect_seconds(self.usual_connect)

    def _connect(self) -> socket.socket:
        """Connect, within `connect_timeout`; raises `UnreachableError`."""
        return connect(self.instrument, *self._address, self.connect_timeout, self._clock)

    def _note_opening(self, about: str = "") -> None:
        host, port = self._address
        self.trace.opened(f"connected to {host}:{port}{about}", f"{self._scheme}://{host}:{port}")

    def close(self) -> None:
        """Close the session; the next command would open it again."""
        self._drop(self._connection)

    def _drop(self, connection: C | None, problem: str = "") -> None:
        """Close `connection`, and fail the commands that wait for its replies."""
        if connection is None:
            return
        # Its reader ends before the session is free for another connection: two readers would
        # mix their bytes in one buffer.
        connection.close()
        self._lose(connection, DisconnectedError, problem or self._closed)

    def _lose(
        self,
        connection: C | None,
        kind: type[InstrumentError],
        problem: str,
        *details: tuple[str, str],
    ) -> None:
        """Forget `connection` and fail its commands, unless another was opened meanwhile."""
        with self._lock:  # from here on a command opens another connection
            lost: list[Pending[R]] = []
            if self._connection is connection:
                self._connection = None
                lost = self._pop_all()
        self._fail(lost, kind, problem, *details)

    def cancel(self, pending: Pending[R], waited: int) -> bool:
        """Resolve `pending` with a timeout after `waited` ns; False if its reply just came."""
        # The reply won the race: its reader has taken the command out, and resolves it.
        if self._pop(pending.tag) is None:
            return False
        problem = f"did not answer within {waited / 1e9:g} s"
        joint = " " if self._advice.endswith("?") else "; "
        remedy = joint.join((self._advice, LONGER))
        self._fail(
            [pending], NoReplyError, problem, ("because", self._what_came()), ("try", remedy)
        )
        if self._ends_on_timeout:
            self.close()
        return True

    def _what_came(self) -> str:
        """Describe the bytes that came instead of a whole reply."""
        return "nothing came"

    def _pop(self, tag: str) -> Pending[R] | None:
        """Take the command with that tag out of the session: who pops it resolves it."""
        with self._lock:
            return self._pending.pop(tag, None)

    def _pop_all(self) -> list[Pending[R]]:
        """Take out all commands; with the session's lock acquired."""
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
            pending.resolve(self.failed(kind, problem, pending.command, *details))


# ----------------------------------------------------------------------------- by order


class Pipeline:
    """Opens the TCP streams of a query session, and takes the replies that it does not wait for.

    Args:
        instrument: its name in error messages.
        host: name or address.
        port: TCP port.
        clock: the bench's clock.
        framing: finds the end of a reply.
        wrap: makes the socket to be used of a connected one, such as an encrypted one.
        connect_timeout: time for the connection, in s of real time.
    """

    def __init__(
        self,
        instrument: str,
        host: str,
        port: int,
        clock: Clock,
        framing: Framing,
        wrap: Callable[[socket.socket], socket.socket] = lambda connection: connection,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        self.connect_timeout = connect_timeout
        self.wrap = wrap
        self.instrument = instrument
        self.clock = clock
        self.framing = framing
        self._address = (host, port)
        # The stream learns from this whether the bytes that it is about to write are a
        # submitted command. By thread, since the session's lock lets one thread write at a time
        # while others may be on their way to it.
        self._submitting: dict[int, _ExpectedReply] = {}

    def open(self) -> "_PipelinedStream":
        """Open a stream for the session; raises `UnreachableError`."""
        return _PipelinedStream(self, *self._address)

    def submit(
        self, session: WireSession, write: Callable[[], Span], command: str
    ) -> "PipelinedReply":
        """Have `session`, whose streams these are, `write` a command, and return at once."""
        # Announced before the write: on loopback a reply can be there before the write returns.
        thread, expected = threading.get_ident(), _ExpectedReply(self.clock.event(), session.trace)
        self._submitting[thread] = expected
        try:
            return PipelinedReply(session, command, write(), expected)
        finally:
            # A write that failed before it reached the stream leaves no expectation behind, which
            # the thread's next query would take for its own.
            self._submitting.pop(thread, None)

    def submitted(self) -> "_ExpectedReply | None":
        """Return the reply to expect for what this thread is about to write; for the stream."""
        return self._submitting.pop(threading.get_ident(), None)


@dataclass(eq=False)
class PipelinedReply:
    """The reply to a command that was submitted to a `Pipeline`.

    Attributes:
        command: its text in errors.
        sent: stamps before and after it was written.
    """

    _session: WireSession
    command: str
    sent: Span
    _expected: "_ExpectedReply"

    def result(self, timeout: int | None = None) -> Answer:
        """Wait for the reply, at most `timeout` ns; raises what `QuerySession.query` raises."""
        expected, timeout = self._expected, self._session.reply_timeout(timeout)
        if not expected.resolved.wait(timeout):
            expected.resolve(TimeoutError())
        outcome = expected.outcome
        if isinstance(outcome, bytes):
            # A bound by arrivals may be from before the command, when the stream was last read.
            not_before = max(expected.at.earliest, self.sent.earliest)
            return Answer(outcome, self.sent, expected.at.latest, not_before)
        assert outcome is not None
        # Without tags a late reply would be taken for the next command's.
        self._session.close()
        came = "nothing came, or no whole answer" if isinstance(outcome, TimeoutError) else ""
        raise self._session.unanswered(outcome, timeout, self.command, came) from outcome


class _ExpectedReply:
    """A reply that a submitted command will get: its bytes and stamp, or an error."""

    def __init__(self, resolved: Event, trace: Trace) -> None:
        self.resolved, self.trace = resolved, trace
        self.outcome: bytes | Exception | None = None
        self.at = _NO_TIME
        self._lock = threading.Lock()

    def resolve(self, outcome: bytes | Exception, at: Span = _NO_TIME) -> None:
        """Set the outcome; the first one counts, as a timeout and a reply may coincide."""
        with self._lock:
            if self.outcome is None:
                self.outcome, self.at = outcome, at
        self.resolved.set()


class _PipelinedStream(ThreadedStream):
    """A stream whose reader keeps back the replies of submitted commands.

    The session never sees those. An instrument replies in order, so whatever the session asks
    meanwhile is answered after them: as long as one is expected, nothing is readable.
    """

    def __init__(self, pipeline: Pipeline, host: str, port: int) -> None:
        self._pipeline = pipeline
        self._expected: deque[_ExpectedReply] = deque()
        clock = pipeline.clock
        opened = connect(pipeline.instrument, host, port, pipeline.connect_timeout, clock)
        connection = pipeline.wrap(opened)
        super().__init__(clock, lambda reader: TcpConnection(connection, reader, clock))

    def send(self, data: bytes) -> None:
        """Write `data`; raises `StreamClosedError`."""
        expected = self._pipeline.submitted()
        if expected is not None:
            with self._lock:  # before the write: the reply may come before it returns
                self._expected.append(expected)
        super().send(data)

    def close(self) -> None:
        """Close the stream; replies that are still expected become errors."""
        super().close()
        self.disconnected("the connection was given up")

    @property
    def _readable(self) -> bool:
        return self._end is not None or bool(self._buffer and not self._expected)

    def _intercept(self) -> None:
        while self._expected and self._resolve(self._expected[0]):
            self._expected.popleft()

    def _resolve(self, expected: _ExpectedReply) -> bool:
        """Resolve the oldest expected reply; False while it has not come whole and still may."""
        try:
            cut = self._pipeline.framing.cut(self._buffer) if self._buffer else None
        except FramingError as error:
            expected.resolve(error)
            return True
        if cut is None:
            if self._end is not None:
                expected.resolve(StreamClosedError(self._end))
            return self._end is not None
        message, taken = cut
        expected.trace.received(self._pipeline.framing.show(message), self._buffer[:taken])
        self._buffer = self._buffer[taken:]
        not_before = self._arrivals.of_message(last=not self._buffer)
        expected.resolve(message, Span(not_before, self._clock.now()))
        return True
