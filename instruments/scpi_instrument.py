"""An instrument that speaks SCPI, for drivers: answers as values, and silence looked into.

An instrument that objects to a query does not answer it, and says why only in its error queue.
So where an answer fails to come, the queue is read before anybody is told.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from instruments.capabilities import Identity
from instruments.clock import Clock, Span
from instruments.errors import CANNOT, DeniedError, GarbledError, InstrumentError, NoReplyError
from instruments.way import Way
from instruments.wire.exchange import DEFAULT_TIMEOUT
from instruments.wire.scpi import IDENTITY, scpi_session

Meanings = Mapping[int, tuple[str, str]]
"""What an instrument's error codes mean at the bench, and what to try, by code."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class ScpiInstrument:
    """A SCPI session whose answers are numbers, words or floats.

    Args:
        name: the instrument's name in the testbed.
        way: how it is reached: scpi://, serial:// or visa://.
        meanings: of its error codes.
        port: TCP port where the way names none.
        baud: of a serial line.
    """

    def __init__(
        self,
        name: str,
        way: Way,
        clock: Clock,
        *,
        meanings: Meanings,
        port: int = 5025,
        baud: int = 9600,
    ) -> None:
        self.name = name
        self._meanings = meanings
        self._session = scpi_session(
            name, way, clock, port=port, baud=baud, meanings=meanings, error_query=":SYST:ERR?"
        )

    def identity(self) -> Identity:
        """Maker, model, serial number and firmware, as `*IDN?` names them."""
        fields = [field.strip() for field in self.ask(IDENTITY).split(",")]
        if len(fields) != 4 or not all(fields[:3]):
            raise self.garbled(IDENTITY, ",".join(fields), "identity")
        return Identity(*fields)

    def do(self, command: str, timeout: int = DEFAULT_TIMEOUT) -> Span:
        """Send `command`; when its acceptance was known, within `timeout` ns; see `ask`."""
        return self._session.do(command, timeout)

    def tell(self, command: str) -> Span:
        """Send `command` and return at once; `objections` tells later what became of it."""
        return self._session.write(command)

    def ask(self, command: str, timeout: int = DEFAULT_TIMEOUT) -> str:
        """The answer in text, within `timeout` ns.

        Raises `DeniedError` where the instrument objects.
        """
        try:
            return self._session.query(command, timeout).text
        except NoReplyError as silence:
            self.object_if_told(command, silence)
            raise

    def number(self, command: str, timeout: int = DEFAULT_TIMEOUT) -> float:
        """The answer as a number, in the instrument's own unit; see `ask`."""
        text = self.ask(command, timeout)
        if _NUMBER.fullmatch(text) is None:
            raise self.garbled(command, text, "number")
        return float(text)

    def flag(self, command: str) -> bool:
        """The answer as yes or no: `0` or `1`, with or without a sign."""
        text = self.ask(command)
        if text.lstrip("+") not in {"0", "1"}:
            raise self.garbled(command, text, "0 or 1")
        return text.endswith("1")

    def floats(
        self, command: str, count: int, timeout: int = DEFAULT_TIMEOUT
    ) -> npt.NDArray[np.float64]:
        """The answer as `count` 4-byte floats in Intel's byte order, shape (count,); see `ask`."""
        data = self.block(command, timeout)
        if len(data) != 4 * count:
            raise self.garbled(command, f"{len(data)} bytes", f"block of {count} 4-byte floats")
        values = np.frombuffer(data, dtype="<f4").astype(np.float64)
        if np.isnan(values).any():
            raise self.garbled(command, "values that are no numbers (NaN)", "block of floats")
        return values

    def block(self, command: str, timeout: int = DEFAULT_TIMEOUT) -> bytes:
        """The answer as the bytes of a block; see `ask`."""
        try:
            return self._session.query_block(command, timeout)
        except NoReplyError as silence:
            self.object_if_told(command, silence)
            raise

    def objections(self) -> list[tuple[int, str]]:
        """Code and text of all that stands in the error queue, oldest first; empties it."""
        return self._session.errors()

    def troubles(self) -> list[str]:
        """The same in words."""
        return [f"{code} {text}" for code, text in self.objections()]

    def object_if_told(self, command: str, cause: Exception | None = None) -> None:
        """Empty the error queue; raises `DeniedError` for its oldest entry, if there is one."""
        for code, text in self.objections()[:1]:
            raise self.objected(command, code, text) from cause

    def objected(self, command: str, code: int, text: str) -> DeniedError:
        """The error of an entry of the error queue, with what it means."""
        return self._denied(command, str(code), text, self._meanings.get(code, ()))

    def cannot(
        self, text: str, meaning: str = "", advice: str = "", *, asked: str = ""
    ) -> DeniedError:
        """The error of what the driver knows to be impossible, before it is sent."""
        return self._denied(asked, CANNOT, text, (meaning, advice))

    def garbled(self, command: str, answered: str, expected: str) -> InstrumentError:
        """The error of an answer that makes no sense."""
        return self.failed(
            GarbledError,
            f"answered something that is no {expected}",
            command,
            ("answered", answered[:80]),
        )

    def failed(
        self, kind: type[InstrumentError], problem: str, command: str, *details: tuple[str, str]
    ) -> InstrumentError:
        """Any other error about this instrument."""
        return self._session.failed(kind, problem, command, *details)

    def wire(self) -> list[str]:
        """The last lines that went over the wire, oldest first."""
        return self._session.trace.tail(40)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _denied(self, command: str, code: str, text: str, meaning: Sequence[str]) -> DeniedError:
        details = [pair for pair in zip(("meaning", "try"), meaning, strict=False) if pair[1]]
        return DeniedError(
            self.name,
            code=code,
            text=text,
            command=command,
            details=details,
            trace=self._session.trace.tail(),
        )
