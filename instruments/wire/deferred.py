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
from instruments.wire.stream import Awaited, StreamClosedError
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


class StampedStream(Awaited):
    """A stream that is read by a thread of its own on every clock.

    What is owed to a deferred question never reaches those who ask and wait; what they ask
    meanwhile is answered after it, since an instrument answers in order.
    """

    def __init__(self, deferring: Deferring, host: str, port: int) -> None:
        self._deferring = deferring
        self._owed: deque[Owed] = deque()
        clock = deferring.clock
        connection = connect(deferring.instrument, host, port, 3.0, clock)
        super().__init__(clock, lambda arrivals: TcpConnection(connection, arrivals, clock))

    def send(self, data: bytes) -> None:
        """Write `data`; raises `StreamClosedError`."""
        owed = self._deferring.begun()
        if owed is not None:
            with self._lock:
                self._owed.append(owed)
        super().send(data)

    def close(self) -> None:
        """End it; whoever is owed something hears that nothing will come."""
        super().close()
        self.disconnected("the connection was given up")

    @property
    def _readable(self) -> bool:
        return self._end is not None or bool(self._came and not self._owed)

    def _set_apart(self) -> None:
        while self._owed and self._pay(self._owed[0]):
            self._owed.popleft()

    def _pay(self, owed: Owed) -> bool:
        """Whether the message that is owed has come whole, or can never come."""
        try:
            cut = self._deferring.framing.cut(self._came) if self._came else None
        except FramingError as error:
            owed.settle(error, self._clock.now())
            return True
        if cut is None:
            if self._end is not None:
                owed.settle(StreamClosedError(self._end), self._clock.now())
            return self._end is not None
        message, taken = cut
        self._deferring.heard(message, self._came[:taken])
        self._came = self._came[taken:]
        owed.settle(message, self._clock.now())
        return True
