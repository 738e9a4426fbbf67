"""Message boundaries: one class per family of protocols."""

import re
from typing import Protocol

LONGEST = 16 << 20
"""Longest message, in bytes; a longer one is taken for a lost terminator."""


class FramingError(Exception):
    """The bytes received cannot begin a message."""


class Framing(Protocol):
    """Cuts messages out of a stream of bytes."""

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first message and its length in bytes, or None while it is incomplete.

        Raises:
            FramingError: no message begins like this.
        """

    def show(self, data: bytes) -> str:
        """Return `data` as text for the trace."""


class Lines:
    """Text that ends with `end`; empty lines before a reply are skipped."""

    def __init__(self, end: bytes = b"\n") -> None:
        self._end = end

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first line that is not empty, stripped."""
        start = 0
        while (at := buffer.find(self._end, start)) >= 0:
            after = at + len(self._end)
            if line := buffer[start:at].strip():
                return line, after
            start = after
        return None

    def show(self, data: bytes) -> str:
        """Return it as text."""
        return data.decode("ascii", "backslashreplace")


class Bracketed:
    """Text between angle brackets: `<OSW_OUT_03>`."""

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first `<...>`, with its brackets; line ends around it are skipped."""
        text = buffer.lstrip(b"\r\n")
        if text and not text.startswith(b"<"):
            raise FramingError("it does not begin with <")
        at = text.find(b">")
        if at < 0:
            return None
        return text[: at + 1], len(buffer) - len(text) + at + 1

    def show(self, data: bytes) -> str:
        """Return it as text."""
        return data.decode("ascii", "backslashreplace")


class Sized:
    """Binary messages of `size` bytes."""

    def __init__(self, size: int) -> None:
        self._size = size

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first `size` bytes."""
        return (buffer[: self._size], self._size) if len(buffer) >= self._size else None

    def show(self, data: bytes) -> str:
        """Return it as hexadecimal bytes."""
        return data.hex(" ")


_BLOCK = re.compile(rb"#([1-9])")
_UNUSUAL = (b"#", b"\r", b"\n")


class Scpi:
    """SCPI replies: a line of text, or an IEEE 488.2 definite-length block and its line end."""

    def cut(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first line without its end, or the block with its `#<digits><length>`."""
        if not buffer.startswith(_UNUSUAL):  # nearly every reply; worth a path without copies
            at = buffer.find(b"\n")
            return None if at < 0 else (buffer[:at].rstrip(b"\r"), at + 1)
        text = buffer.lstrip(b"\r\n")
        skipped = len(buffer) - len(text)
        if head := _BLOCK.match(text):
            return self._block(text, int(head[1]), skipped)
        at = text.find(b"\n")
        return None if at < 0 else (text[:at].rstrip(b"\r"), skipped + at + 1)

    def _block(self, text: bytes, digits: int, skipped: int) -> tuple[bytes, int] | None:
        length = text[2 : 2 + digits]
        if len(length) < digits:
            return None
        if not length.isdigit():
            raise FramingError(f"a block's length cannot be {length!r}")
        end = 2 + digits + int(length)
        if end > LONGEST:
            raise FramingError(f"a block of {end:,} bytes is announced")
        rest = text[end : end + 2]
        if rest.startswith(b"\n"):
            return text[:end], skipped + end + 1
        if rest == b"\r\n":
            return text[:end], skipped + end + 2
        if rest in {b"", b"\r"}:
            return None
        raise FramingError("a block is longer than announced")

    def show(self, data: bytes) -> str:
        """Return it as text; of a long block only its length."""
        if len(data) > 200 and _BLOCK.match(data):
            return f"{data[:12].decode('ascii', 'backslashreplace')}... ({len(data)} bytes)"
        return data.decode("ascii", "backslashreplace")
