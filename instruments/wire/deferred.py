"""Questions whose answers are heard later, each with the moment at which it came.

A switch takes its time over a change of circuits, and its word that the change is done is a
measurement. So the thread that reads that word stamps it, not whoever asks for it at last;
meanwhile the asker watches something else.
"""

import threading
from collections import deque
from collections.abc import Callable

from instruments.clock import Clock, Event, Span
from instruments.errors import DisconnectedError, GarbledError, InstrumentError, NoReplyError
from instruments.wire.exchange import DEFAULT_TIMEOUT, Answer
from instruments.wire.framing import Framing, FramingError
from instruments.wire.stream import StreamClosedError
from instruments.wire.tcp import TcpConnection, connect
from instruments.wire.trace import Trace


class Deferring:
    """Opens the streams of one TCP exchange, and hears what it is not to wait for.

    Args:
        instrument: its name in error messages.
        host: name or address.
        port: TCP port.
        clock: the bench's clock.
        framing: where an answer ends.

    Attributes:
        trace: the exchange's own, where deferred answers are noted when they come.
    """

    def __init__(
        self, instrument: str, host: str, port: int, clock: Clock, framing: Framing
    ) -> None:
        self.trace: Trace | None = None
        self.instrument = instrument
        self.clock = clock
        self.framing = framing
        self._address = (host, port)
        self._asking: dict[int, Owed] = {}

    def open(self) -> "StampedStream":
        """A stream for the exchange; raises `UnreachableError`."""
        return StampedStream(self, *self._address)

    def begin(
        self, write: Callable[[], Span], command: str, give_up: Callable[[], None]
    ) -> "Deferred":
        """Let the exchange `write` a question and return; its answer goes to whoever holds this.

        `give_up` drops the exchange's stream, where an answer did not come as it should.
        """
        asker, owed = threading.get_ident(), Owed(self.clock.event())
        self._asking[asker] = owed
        try:
            return Deferred(self, command, write(), owed, give_up)
        finally:
            self._asking.pop(asker, None)

    def begun(self) -> "Owed | None":
        """What the calling thread is about to write defers its answer to; for the stream."""
        return self._asking.pop(threading.get_ident(), None)

    def heard(self, message: bytes, data: bytes) -> None:
        """Note a deferred answer, and its bytes; for the stream."""
        if self.trace is not None:
            self.trace.received(self.framing.show(message), data)


class Deferred:
    """A question that was asked.

    Attributes:
        command: what was asked, as errors show it.
        sent: between which stamps it was written.
    """

    def __init__(
        self,
        deferring: Deferring,
        command: str,
        sent: Span,
        owed: "Owed",
        give_up: Callable[[], None],
    ) -> None:
        self.command = command
        self.sent = sent
        self._deferring = deferring
        self._owed = owed
        self._give_up = give_up

    def result(self, timeout: int = DEFAULT_TIMEOUT) -> Answer:
        """Wait for the answer, at most `timeout` ns; raises what `Exchange.ask` does."""
        owed = self._owed
        if not owed.happened.wait(timeout):
            owed.settle(TimeoutError(), self._deferring.clock.now())
        outcome = owed.outcome
        if isinstance(outcome, bytes):
            return Answer(outcome, self.sent, owed.at)
        self._give_up()
        raise self._error(outcome, timeout) from outcome

    def _error(self, outcome: Exception | None, timeout: int) -> InstrumentError:
        kind: type[InstrumentError] = DisconnectedError
        problem, because = "closed the connection before it had answered", str(outcome)
        if isinstance(outcome, TimeoutError):
            kind, problem = NoReplyError, f"did not answer within {timeout / 1e9:g} s"
            because = "nothing came, or no whole answer"
        elif isinstance(outcome, FramingError):
            kind, problem = GarbledError, "answered something that its protocol does not allow"
        trace = self._deferring.trace
        return kind(
            self._deferring.instrument,
            problem,
            command=self.command,
            details=[("because", because)],
            trace=trace.tail() if trace is not None else (),
        )


class Owed:
    """An answer that somebody will ask for: what came, or why nothing will."""

    def __init__(self, happened: Event) -> None:
        self.happened = happened
        self.outcome: bytes | Exception | None = None
        self.at = 0
        self._lock = threading.Lock()

    def settle(self, outcome: bytes | Exception, at: int) -> None:
        """Say what became of it, unless that was said before."""
        with self._lock:
            if self.outcome is None:
                self.outcome, self.at = outcome, at
        self.happened.set()


class StampedStream:
    """A stream that is read by a thread of its own on every clock.

    What is owed to a deferred question never reaches those who ask and wait; what they ask
    meanwhile is answered after it, since an instrument answers in order.
    """

    def __init__(self, deferring: Deferring, host: str, port: int) -> None:
        self._deferring = deferring
        self._clock = deferring.clock
        self._lock = threading.Lock()
        self._owed: deque[Owed] = deque()
        self._came = b""
        self._end: str | None = None
        self._waiting: Event | None = None
        connection = connect(deferring.instrument, host, port, 3.0, self._clock)
        self._connection = TcpConnection(connection, self, self._clock)

    def send(self, data: bytes) -> None:
        """Write `data`; raises `StreamClosedError`."""
        owed = self._deferring.begun()
        if owed is not None:
            with self._lock:
                self._owed.append(owed)
        try:
            self._connection.send(data)
        except OSError as error:
            raise StreamClosedError(error.strerror or str(error)) from error

    def receive(self, timeout: int) -> bytes:
        """What has come; see `Stream.receive`."""
        waiting = None
        with self._lock:
            if not self._readable:
                waiting = self._waiting = self._clock.event()
        if waiting is not None:
            waiting.wait(max(timeout, 0))
        data = self.pending()
        if not data:
            raise TimeoutError
        return data

    def pending(self) -> bytes:
        """What has come and is owed to nobody, without waiting; raises `StreamClosedError`."""
        with self._lock:
            self._waiting = None
            if self._owed:
                return b""
            data, self._came = self._came, b""
            end = self._end
        if not data and end is not None:
            raise StreamClosedError(end)
        return data

    def close(self) -> None:
        """End it; whoever is owed something hears that nothing will come."""
        self._connection.close()
        self.disconnected("the connection was given up")

    def received(self, data: bytes) -> None:
        """Take bytes from the connection's thread."""
        with self._lock:
            self._came += data
            while self._owed and self._pay(self._owed[0]):
                self._owed.popleft()
            waiting = self._waiting if self._readable else None
        if waiting is not None:
            waiting.set()

    def disconnected(self, reason: str) -> None:
        """Learn from the connection's thread that it ended."""
        with self._lock:
            self._end = self._end or reason
            lost, self._owed = self._owed, deque()
            waiting = self._waiting
        for owed in lost:
            owed.settle(StreamClosedError(reason), self._clock.now())
        if waiting is not None:
            waiting.set()

    @property
    def _readable(self) -> bool:
        return self._end is not None or bool(self._came and not self._owed)

    def _pay(self, owed: Owed) -> bool:
        """Whether the message that is owed has come whole, or can never be one."""
        try:
            cut = self._deferring.framing.cut(self._came) if self._came else None
        except FramingError as error:
            owed.settle(error, self._clock.now())
            return True
        if cut is None:
            return False
        message, taken = cut
        self._deferring.heard(message, self._came[:taken])
        self._came = self._came[taken:]
        owed.settle(message, self._clock.now())
        return True
