"""What went over a wire, in both directions, with the time of each piece."""

from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple

from instruments.clock import Clock

Direction = Literal[">", "<", "!"]
"""To the instrument, from the instrument, or a note of the wire layer's own."""


class Traced(NamedTuple):
    """One piece of a trace; `at` in nanoseconds of the bench's clock."""

    at: int
    direction: Direction
    text: str

    def __str__(self) -> str:
        text = self.text.replace("\r", "\\r").replace("\n", "\\n")
        return f"{self.at / 1e9:14.6f} {self.direction} {text}"


class Trace:
    """The last `keep` pieces that went over one wire; secrets never get in.

    A secret is a string that `mask` was told of; it is shown as `***`.
    """

    def __init__(self, clock: Clock, keep: int = 1000) -> None:
        self._clock = clock
        self._pieces: deque[Traced] = deque(maxlen=keep)
        self._secrets: set[str] = set()

    def mask(self, secret: str) -> None:
        """Never show `secret` from now on."""
        if secret:
            self._secrets.add(secret)

    def masked(self, text: str) -> str:
        """`text` without the secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def sent(self, text: str) -> None:
        """Note what is about to be written to the instrument."""
        self._note(">", text)

    def received(self, text: str) -> None:
        """Note what was read from the instrument."""
        self._note("<", text)

    def remarked(self, text: str) -> None:
        """Note something about the wire itself, such as a stale reply set aside."""
        self._note("!", text)

    def _note(self, direction: Direction, text: str) -> None:
        if self._secrets:
            text = self.masked(text)
        self._pieces.append(Traced(self._clock.now(), direction, text))

    def pieces(self) -> Iterable[Traced]:
        """All that is kept, oldest first."""
        return tuple(self._pieces)

    def tail(self, count: int = 6) -> list[str]:
        """The last `count` pieces as lines for an error message, oldest first."""
        return [str(piece) for piece in list(self._pieces)[-count:]]
