"""Device side of serial lines and plain sockets: frames in, each answered after its time.

A device says how frames are cut out of the bytes, and carries one out; text devices declare
their commands by regular expression:

    @command(r"S ?([12])")
    def select(self, position: str) -> FrameReply: ...
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.protocols.commands import CommandQueue, declared_commands
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection


@dataclass(frozen=True, slots=True)
class FrameReply:
    """Reply to a frame: its bytes, empty for silence, and its delay in ns."""

    data: bytes = b""
    after: int = 0


class FramedDevice(Protocol):
    """A device that is spoken to by frames."""

    def split_frame(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first whole frame of `buffer` and the bytes it took; None if none is whole.

        An empty frame is skipped.
        """

    def execute(self, frame: bytes) -> FrameReply:
        """Carry out one frame."""


def split_line(buffer: bytes, end: bytes = b"\n") -> tuple[bytes, int] | None:
    """Return the first line without `end` and white space around it, as `split_frame` does."""
    at = buffer.find(end)
    return None if at < 0 else (buffer[:at].strip(), at + len(end))


class FramedServerSession:
    """Device end of one client's line: frames are carried out one after the other.

    Args:
        owner: name of the session on the clock's agenda.
        processing: time that the device takes to read one frame, in ns.
        overlapping: whether a frame is carried out while the reply to the last one is pending.
    """

    def __init__(
        self,
        device: FramedDevice,
        connection: DeviceConnection,
        clock: Clock,
        owner: str,
        processing: int,
        *,
        overlapping: bool = False,
    ) -> None:
        self._device = device
        self._connection = connection
        self._clock = clock
        self._owner = owner
        self._buffer = b""
        self._overlapping = overlapping
        self._queue = CommandQueue(clock, owner, processing, self._execute)

    def received(self, data: bytes) -> None:
        """Take bytes."""
        self._buffer += data
        while (split := self._device.split_frame(self._buffer)) is not None:
            frame, taken = split
            self._buffer = self._buffer[taken:]
            if frame:
                self._queue.add([frame])

    def closed(self) -> None:
        """Discard frames that were not begun."""
        self._queue.clear()

    def _execute(self, frame: bytes) -> None:
        reply = self._device.execute(frame)
        if self._overlapping:
            self._queue.done()

        def finish() -> None:
            if reply.data:
                self._connection.send(reply.data)
            if not self._overlapping:
                self._queue.done()

        self._clock.schedule(self._clock.now() + reply.after, self._owner, finish)


class TextCommands:
    """Mixin of devices whose frames are lines of text, declared by regular expression.

    A handler gets the groups of its expression, and returns its reply.
    """

    upper_case: ClassVar[bool] = False
    _expressions: ClassVar[tuple[tuple[re.Pattern[str], str], ...]] = ()

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        table = declared_commands(cls)
        cls._expressions = tuple((re.compile(text), name) for text, name in table.items())

    def split_frame(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first line."""
        return split_line(buffer)

    def execute(self, frame: bytes) -> FrameReply:
        """Carry out one line of text."""
        text = frame.decode("ascii", "replace")
        if self.upper_case:
            text = text.upper()
        for pattern, name in self._expressions:
            if match := pattern.fullmatch(text):
                reply: FrameReply = getattr(self, name)(*match.groups())
                return reply
        return self.unknown_command()

    def unknown_command(self) -> FrameReply:
        """Return the reply to a line that no expression matches."""
        return FrameReply()
