"""Questions and answers over a stream without tags: one at a time, and never mixed up.

Nothing in such an answer says which question it belongs to. So whatever goes wrong with an
exchange ends its stream, bytes that nobody asked for end it too, and the next question opens a
new one. A serial line cannot be opened anew in that sense, since the instrument at its end does
not notice: there the line is drained until it is quiet, and a question whose answer can be
recognised is asked until that answer comes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from instruments.clock import Clock, Span
from instruments.errors import (
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
)
from instruments.wire.framing import LONGEST, Framing, FramingError
from instruments.wire.stream import OpenStream, Stream, StreamClosedError
from instruments.wire.trace import Trace
from instruments.wire.turns import Turns

DEFAULT_TIMEOUT = 5_000_000_000
"""How long an answer may take, in ns."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An instrument's answer.

    Attributes:
        data: the message, without its end.
        sent: between which stamps the question was written.
        received: when the last byte of the answer was read.
    """

    data: bytes
    sent: Span
    received: int


@dataclass(frozen=True, slots=True)
class Resync:
    """How a line that cannot be opened anew is brought back into step.

    Attributes:
        quiet: silence, in ns, after which nothing late is expected any more.
        question: what is asked then, or empty if the protocol has nothing to ask for this.
        recognises: whether a message is the answer to `question`.
    """

    quiet: int = 300_000_000
    question: bytes = b""
    recognises: Callable[[bytes], bool] = lambda _: True


class Exchange:
    """One way to one instrument; may be shared by threads, which take turns.

    It opens with the first question, and again with the first one after a failure.

    Args:
        instrument: its name in error messages.
        open_stream: opens the way there.
        framing: where an answer ends.
        resync: for a way whose other end outlives a failure; None where opening is enough.

    Attributes:
        openings: how often the way was opened so far.
    """

    def __init__(
        self,
        instrument: str,
        open_stream: OpenStream,
        clock: Clock,
        framing: Framing,
        *,
        resync: Resync | None = None,
    ) -> None:
        self.instrument = instrument
        self.trace = Trace(clock)
        self.openings = 0
        self._open_stream = open_stream
        self._clock = clock
        self._framing = framing
        self._resync = resync
        self._turns = Turns(clock)
        self._stream: Stream | None = None
        self._buffer = b""
        self._out_of_step: bytes | None = None

    def tell(self, data: bytes, *, shown: str | None = None) -> Span:
        """Write `data`, which has no answer; between which stamps that was.

        `shown` stands for it in the trace and in errors. Raises what `ask` does.
        """
        shown = self.trace.masked(shown or self._framing.show(data).strip())
        with self._turns:
            return self._write(self._ready(), data, shown)

    def ask(
        self, data: bytes, timeout: int = DEFAULT_TIMEOUT, *, shown: str | None = None
    ) -> Answer:
        """Write `data` and wait for its answer, at most `timeout` ns.

        Raises:
            UnreachableError: there was no way to the instrument, and none could be opened.
            DisconnectedError: it hung up before it had answered.
            NoReplyError: no whole answer came in time.
            GarbledError: what came is no message of its protocol.
        """
        shown = self.trace.masked(shown or self._framing.show(data).strip())
        with self._turns:
            return self._ask(self._ready(), data, timeout, shown)

    def close(self) -> None:
        """End the stream; the next question would open it again."""
        with self._turns:
            self._drop()

    def failed(
        self,
        kind: type[InstrumentError],
        problem: str,
        command: str,
        *details: tuple[str, str],
    ) -> InstrumentError:
        """An error about this instrument with the last lines of its trace."""
        return kind(
            self.instrument, problem, command=command, details=details, trace=self.trace.tail()
        )

    # ---------------------------------------------------------------- one at a time here

    def _ready(self) -> Stream:
        """A stream on which the next answer can only be the next question's."""
        if self._stream is not None:
            self._look_at_the_unasked(self._stream)
        if self._stream is None:
            self._stream = self._open_stream()
            self.openings += 1
            self.trace.remarked("connected")
        if self._out_of_step is not None and self._resync is not None:
            self._bring_into_step(self._stream, self._resync)
        self._out_of_step = None
        return self._stream

    def _look_at_the_unasked(self, stream: Stream) -> None:
        try:
            self._buffer += stream.pending()
        except StreamClosedError as error:
            self.trace.remarked(str(error))
            self._drop()
        if self._buffer:
            self.trace.remarked(f"unasked for: {self._framing.show(self._buffer)}")
            self._lose_step(b"")

    def _write(self, stream: Stream, data: bytes, shown: str) -> Span:
        self.trace.sent(shown)
        before = self._clock.now()
        try:
            stream.send(data)
        except StreamClosedError as error:
            self._drop()
            raise self.failed(
                DisconnectedError,
                "closed the connection while a command was written",
                shown,
                ("because", str(error)),
            ) from error
        except BaseException:  # an interrupt too: nobody knows how much of it went out
            self._lose_step(data)
            raise
        return Span(before, self._clock.now())

    def _ask(self, stream: Stream, data: bytes, timeout: int, shown: str) -> Answer:
        sent = self._write(stream, data, shown)
        try:
            message = self._next(stream, sent.latest + timeout)
        except BaseException as error:
            unfinished = len(self._buffer)
            if isinstance(error, StreamClosedError):
                self._drop()
            self._lose_step(data)
            if isinstance(error, TimeoutError | StreamClosedError | FramingError):
                raise self._told(error, unfinished, timeout, shown) from error
            raise
        received = self._clock.now()
        self.trace.received(self._framing.show(message))
        return Answer(message, sent, received)

    def _next(self, stream: Stream, deadline: int) -> bytes:
        """The next whole message."""
        while True:
            cut = self._framing.cut(self._buffer) if self._buffer else None
            if cut is not None:
                message, taken = cut
                self._buffer = self._buffer[taken:]
                return message
            if len(self._buffer) > LONGEST:
                raise FramingError("no end of an answer came")
            self._buffer += stream.receive(deadline - self._clock.now())

    def _told(self, error: Exception, came: int, timeout: int, shown: str) -> InstrumentError:
        rest = f"{came} bytes of an unfinished answer came" if came else "nothing came"
        if isinstance(error, TimeoutError):
            return self.failed(
                NoReplyError,
                f"did not answer within {timeout / 1e9:g} s",
                shown,
                ("because", rest),
                ("try", "is it busy, is the command one that it answers?"),
            )
        if isinstance(error, FramingError):
            return self.failed(
                GarbledError,
                "answered something that its protocol does not allow",
                shown,
                ("because", str(error)),
            )
        return self.failed(
            DisconnectedError,
            "closed the connection before it had answered",
            shown,
            ("because", f"{error}; {rest}"),
        )

    def _lose_step(self, question: bytes) -> None:
        """Nobody knows any more what comes next on this stream."""
        if self._buffer:
            self.trace.received(self._framing.show(self._buffer[:200]))
            self._buffer = b""
        self._out_of_step = question
        if self._resync is None:
            self._drop()

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        self._buffer = b""
        if stream is not None:
            stream.close()

    def _bring_into_step(self, stream: Stream, resync: Resync) -> None:
        self._drain(stream, resync.quiet)
        if not resync.question:
            return
        shown = self._framing.show(resync.question).strip()
        sent = self._write(stream, resync.question, shown)
        deadline = sent.latest + DEFAULT_TIMEOUT
        try:
            while not resync.recognises(message := self._next(stream, deadline)):
                self.trace.remarked(f"set aside: {self._framing.show(message)}")
        except (TimeoutError, StreamClosedError, FramingError) as error:
            came, self._buffer = len(self._buffer), b""
            raise self._told(error, came, DEFAULT_TIMEOUT, shown) from error
        self.trace.received(self._framing.show(message))
        if self._out_of_step == resync.question:  # then there may be two such answers
            self._drain(stream, resync.quiet)

    def _drain(self, stream: Stream, quiet: int) -> None:
        """Set aside whatever comes until nothing has for `quiet` ns."""
        longest = self._clock.now() + 20 * quiet
        late, self._buffer = self._buffer, b""
        try:
            while self._clock.now() < longest:
                late += stream.receive(quiet)
        except TimeoutError:
            pass
        except StreamClosedError as error:
            self._drop()
            raise self.failed(
                DisconnectedError, "closed the connection", "", ("because", str(error))
            ) from error
        if late:
            self.trace.remarked(f"set aside: {self._framing.show(late[:200])}")
