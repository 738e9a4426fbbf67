"""Whole messages over an open stream: cut out of the bytes that come, noted in the trace."""

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.wire.framing import LONGEST, Framing, FramingError
from lightrig.instruments.wire.stream import Stream
from lightrig.instruments.wire.trace import Trace


class Messages:
    """The messages of one open stream.

    Every method raises `StreamClosedError` after the instrument closed the connection.

    Args:
        stream: carries the bytes; closed with this object.
        framing: finds the end of a message.
        clock: the bench's clock.
        trace: notes all messages in both directions.
    """

    def __init__(self, stream: Stream, framing: Framing, clock: Clock, trace: Trace) -> None:
        self._stream = stream
        self._framing = framing
        self._clock = clock
        self._trace = trace
        self._buffer = b""

    def write(self, data: bytes, shown: str) -> Span:
        """Write `data`, in the trace as `shown`; return the stamps before and after it."""
        before = self._trace.sent(shown, data)
        self._clock.delay_write()
        self._stream.send(data)
        self._clock.delay_write(written=True)
        return Span(before, self._clock.now())

    def next(self, start: int, timeout: int) -> tuple[bytes, int]:
        """Return the next whole message, at most `timeout` ns after `start`, and its stamp.

        Raises:
            TimeoutError: it has not come whole in time.
            FramingError: the bytes are no message.
        """
        framing, left = self._framing, timeout
        while True:
            cut = framing.cut(self._buffer) if self._buffer else None
            if cut is not None:
                message, taken = cut
                came = self._trace.received(framing.show(message), self._buffer[:taken])
                self._buffer = self._buffer[taken:]
                return message, came
            if len(self._buffer) > LONGEST:
                raise FramingError("no end of an answer came")
            # The usual reply comes in one piece: the clock is read again only after a part.
            if self._buffer:
                left = start + timeout - self._clock.now()
            if left < 0:
                raise TimeoutError
            self._buffer += self._stream.receive(left)

    def pending(self) -> bool:
        """Whether bytes have come without a query; a surplus line end does not count."""
        if came := self._stream.pending():
            self._buffer += came
        if self._buffer and not self._framing.show(self._buffer).strip():
            self._buffer = b""
        return bool(self._buffer)

    def discard(self, reason: str) -> None:
        """Discard what has come, and note it with `reason` in the trace."""
        if self._buffer:
            late, self._buffer = self._buffer, b""
            self._trace.received(self._framing.show(late[:200]), late)
            self._trace.remarked(reason)

    def drain(self, quiet: int, longest: int) -> bool:
        """Discard everything until `quiet` ns of silence; False if that takes over `longest`."""
        deadline = self._clock.now() + quiet + longest
        while self._clock.now() + quiet <= deadline:
            try:
                self._buffer += self._stream.receive(quiet)
            except TimeoutError:
                self.discard("set aside")
                return True
            if len(self._buffer) > LONGEST:
                break
        self.discard("set aside")
        return False

    def discard_partial(self) -> int:
        """Discard an unfinished message; return its length in bytes."""
        unfinished, self._buffer = self._buffer, b""
        if unfinished:
            self._trace.received(self._framing.show(unfinished[:200]), unfinished)
        return len(unfinished)

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()
