"""Whole messages over an open stream: cut out of the bytes that come, noted in the trace."""

from instruments.clock import Clock, Span
from instruments.wire.framing import LONGEST, Framing, FramingError
from instruments.wire.stream import Stream
from instruments.wire.trace import Trace


class Messages:
    """A way to an instrument for as long as it is open.

    Every method raises `StreamClosedError` where the other end is gone.

    Args:
        stream: carries the bytes; it is closed with this.
        framing: where a message ends.
        clock: the bench's clock.
        trace: notes what comes and goes.
    """

    def __init__(self, stream: Stream, framing: Framing, clock: Clock, trace: Trace) -> None:
        self._stream = stream
        self._framing = framing
        self._clock = clock
        self._trace = trace
        self._buffer = b""

    def write(self, data: bytes, shown: str) -> Span:
        """Write `data`, which the trace notes as `shown`; between which stamps that was."""
        before = self._trace.sent(shown, data)
        self._stream.send(data)
        return Span(before, self._clock.now())

    def next(self, start: int, timeout: int) -> tuple[bytes, int]:
        """The next whole message, at most `timeout` ns after `start`, and when it was there.

        Raises:
            TimeoutError: it has not come whole in time.
            FramingError: what came is none.
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
            if self._buffer:
                left = start + timeout - self._clock.now()
            if left < 0:
                raise TimeoutError
            self._buffer += self._stream.receive(left)

    def are_waiting(self) -> bool:
        """Whether something has come already; one more line end is no message."""
        if came := self._stream.pending():
            self._buffer += came
        if self._buffer and not self._framing.show(self._buffer).strip():
            self._buffer = b""
        return bool(self._buffer)

    def set_aside(self, why: str) -> None:
        """Leave behind what has come, with a remark."""
        if self._buffer:
            late, self._buffer = self._buffer, b""
            self._trace.received(self._framing.show(late[:200]), late)
            self._trace.remarked(why)

    def drained(self, quiet: int, longest: int) -> bool:
        """Set aside whatever comes until nothing has for `quiet` ns; False if it never ends."""
        deadline = self._clock.now() + quiet + longest
        while self._clock.now() + quiet <= deadline:
            try:
                self._buffer += self._stream.receive(quiet)
            except TimeoutError:
                self.set_aside("set aside")
                return True
            if len(self._buffer) > LONGEST:
                break
        self.set_aside("set aside")
        return False

    def given_up(self) -> int:
        """How many bytes of an unfinished message came; they are left behind."""
        unfinished, self._buffer = self._buffer, b""
        if unfinished:
            self._trace.received(self._framing.show(unfinished[:200]), unfinished)
        return len(unfinished)

    def close(self) -> None:
        """End the stream."""
        self._stream.close()
