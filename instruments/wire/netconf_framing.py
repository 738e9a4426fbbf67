"""Boundaries of NETCONF messages (RFC 6242, section 4).

ncclient decodes each chunk for itself, though a chunk ends anywhere, also inside a character, and
waits without an end for a chunk that does not begin as it should.
"""

import re
from collections.abc import Iterator

from lightrig.instruments.wire.framing import LONGEST, FramingError

_END_OF_MESSAGE = b"]]>]]>"
_HEAD = re.compile(rb"\n#(?:([1-9]\d{0,9})|#)\n")
_HEAD_SO_FAR = re.compile(rb"(\n(#(#|[1-9]\d{0,9})?)?)?")
_LONGEST_HEAD = len(b"\n#4294967295\n")

_LINE_END = "a line end too many stands before a chunk (RFC 6242, 4.2)"
_HELLO = "its hello comes in chunks, where ]]>]]> ends it (RFC 6242, 4.1)"
_NO_CHUNK = "a chunk does not begin with a line end, # and its size (RFC 6242, 4.2)"


class NetconfFraming:
    """Cuts the messages of one session out of its bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._message = bytearray()
        self._in_chunks = False
        self._blank = 0
        self._searched = 0

    def begin_chunks(self) -> None:
        """Take what follows for chunks, as both hellos state base:1.1.

        Some agents still end a hello with a line end, as before RFC 6242. Those that came with it
        are skipped.
        """
        if not self._in_chunks:
            self._in_chunks = True
            self._blank = len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))

    def received(self, data: bytes) -> Iterator[str]:
        """Yield the messages that `data` completes.

        Raises:
            FramingError: no message goes on like this.
            UnicodeDecodeError: a message is not UTF-8.
        """
        self._buffer += data
        while (message := self._chunked() if self._in_chunks else self._marked()) is not None:
            yield message.decode()

    def _marked(self) -> bytes | None:
        """Return the message before the next `]]>]]>`, None while it is incomplete."""
        if _HEAD.match(self._buffer):
            raise FramingError(_HELLO)
        at = self._buffer.find(_END_OF_MESSAGE, self._searched)
        self._limit(len(self._buffer) if at < 0 else at)
        if at < 0:
            self._searched = max(0, len(self._buffer) - len(_END_OF_MESSAGE) + 1)
            return None
        message = bytes(self._buffer[:at])
        del self._buffer[: at + len(_END_OF_MESSAGE)]
        self._searched = 0
        return message

    def _chunked(self) -> bytes | None:
        """Return the next message of chunks, None while it is incomplete."""
        buffer = self._buffer
        while True:
            while self._blank and buffer.startswith((b"\n\n", b"\n\r", b"\r\n")):
                del buffer[0]
                self._blank -= 1
            head = _HEAD.match(buffer)
            if head is None:
                if _HEAD_SO_FAR.fullmatch(buffer[:_LONGEST_HEAD]):
                    return None
                extra = buffer.startswith((b"\n\n", b"\n\r", b"\r"))
                raise FramingError(_LINE_END if extra else _NO_CHUNK)
            if head[1] is None:
                del buffer[: head.end()]
                message, self._message = bytes(self._message), bytearray()
                return message
            end = head.end() + int(head[1])
            self._limit(len(self._message) + int(head[1]))
            if len(buffer) < end:
                return None
            self._message += buffer[head.end() : end]
            del buffer[:end]

    def _limit(self, length: int) -> None:
        if length > LONGEST:
            raise FramingError(f"a message of more than {LONGEST:,} bytes")
