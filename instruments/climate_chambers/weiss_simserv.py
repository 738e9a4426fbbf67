"""Weiss Technik and Vötsch climate chambers over the SIMSERV protocol."""

import re
from collections.abc import Callable, Sequence

from instruments.capabilities import Identity
from instruments.clock import Clock
from instruments.errors import CANNOT, DeniedError, GarbledError, InstrumentError, NotDoneError
from instruments.registry import Spec
from instruments.way import Way
from instruments.wire.exchange import Exchange
from instruments.wire.framing import Lines
from instruments.wire.stream import tcp_stream

_SEPARATOR = "¶"
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_TOLERANCE = 0.05
_ALARM = 8

_INFO, _STATUS = 99997, 10012
_SET, _SET_POINT, _ACTUAL = 11001, 11002, 11004
_LEAST, _GREATEST = 11007, 11009
_MANUAL, _RUNS = 14001, 14003

_MEANINGS = {
    "-1": "it received nothing",
    "-2": "the number of the chamber was missing",
    "-3": "there is no chamber of that number",
    "-4": "the chamber is not there",
    "-5": "it does not know the command",
    "-6": "parameters are missing or wrong",
    "-7": "its server does not run",
    "-8": "it has no such control variable",
    "-9": "it failed while it carried the command out",
    "-10": "an index is wrong",
    "-11": "nobody is logged in, which encrypted communication needs",
    "-12": "this user may not command it",
    "-13": "this user is logged in already",
}


class _Answers(Lines):
    """Lines in Latin-1, whose fields a pilcrow separates."""

    def show(self, data: bytes) -> str:
        """As text, pilcrows included."""
        return data.decode("latin-1")


class WeissSimserv:
    """A chamber whose first control variable is its temperature.

    Setting a temperature starts the chamber's manual mode; it keeps running, and keeps its
    temperature, when the session ends.

    Source: the command numbers, separators and errors of SIMSERV as five independent drivers
    use them, one of which was checked against the maker's communication manual.

    Args:
        name: the chamber's name in the testbed.
        host: name or address.
        clock: the bench's clock.
        port: TCP port of SIMSERV.
    """

    schemes = ("simserv",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "WeissSimserv":
        """The driver of the chamber that `spec` describes."""
        return cls(spec.name, way.host, clock, port=way.port or 2049)

    def __init__(self, name: str, host: str, clock: Clock, *, port: int = 2049) -> None:
        self.name = name
        self._exchange = Exchange(
            name, lambda: tcp_stream(name, host, port, clock), clock, _Answers()
        )

    def identity(self) -> Identity:
        """Ask for type and serial number; SIMSERV does not tell a firmware."""
        return Identity("Weiss Technik", self._ask(_INFO, 1), self._ask(_INFO, 3), "unknown")

    def set_temperature(self, celsius: float) -> None:
        """Go to `celsius`; returns at once.

        Raises:
            DeniedError: outside the limits that the chamber says it has.
            NotDoneError: another set point stands there then, or the chamber has an alarm.
        """
        least, greatest = self._number(_LEAST, 1), self._number(_GREATEST, 1)
        if not least <= celsius <= greatest:
            raise self._denied(
                CANNOT,
                f"{celsius:g} °C is outside its limits, {least:g} to {greatest:g} °C",
                "these are the limits that are set at its panel",
            )
        self._ask(_SET, 1, f"{celsius:.1f}")
        self._ask(_MANUAL, 1, 1)
        found = self._number(_SET_POINT, 1)
        if abs(found - celsius) > _TOLERANCE:
            raise self._not_done(f"said done, but its set point is {found:g} °C")
        status = self._ask(_STATUS)
        if not status.isdigit():
            raise self._garbled(_STATUS, status)
        if int(status) & _ALARM:
            raise self._not_done("has an alarm, and does not run")

    def temperature(self) -> float:
        """What it is now, in degrees Celsius."""
        return self._number(_ACTUAL, 1)

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Note set point and whether it runs; what it returns puts both back.

        It does not wait until the chamber has the temperature again.
        """
        found, ran = self._number(_SET_POINT, 1), self._runs()

        def put_back() -> None:
            if abs(self._number(_SET_POINT, 1) - found) > _TOLERANCE:
                self._ask(_SET, 1, f"{found:.1f}")
            if self._runs() != ran:
                self._ask(_MANUAL, 1, int(ran))

        return put_back

    def wire(self) -> list[str]:
        """The last lines of the session."""
        return self._exchange.trace.tail(40)

    def close(self) -> None:
        """End the session; the chamber keeps running."""
        self._exchange.close()

    def _runs(self) -> bool:
        text = self._ask(_RUNS, 1)
        if text not in {"0", "1"}:
            raise self._garbled(_RUNS, text)
        return text == "1"

    def _number(self, command: int, *arguments: object) -> float:
        text = self._ask(command, *arguments)
        if _NUMBER.fullmatch(text) is None:
            raise self._garbled(command, text)
        return float(text)

    def _ask(self, command: int, *arguments: object) -> str:
        """The first field behind the code of an answer, empty if there is none."""
        shown = _SEPARATOR.join(map(str, (command, 1, *arguments)))
        answer = self._exchange.ask(f"{shown}\r".encode("latin-1"), shown=shown)
        code, *fields = (field.strip() for field in answer.data.decode("latin-1").split(_SEPARATOR))
        if re.fullmatch(r"-?\d+", code) is None:
            raise self._garbled(command, answer.data.decode("latin-1"))
        if code != "1":
            raise self._denied(code, " ".join(fields), _MEANINGS.get(code, ""), shown)
        return fields[0] if fields else ""

    def _denied(self, code: str, text: str, meaning: str, command: str = "") -> DeniedError:
        return DeniedError(
            self.name,
            code=code,
            text=text,
            command=command,
            details=[("meaning", meaning)] if meaning else [],
            trace=self._exchange.trace.tail(),
        )

    def _garbled(self, command: int, answered: str) -> InstrumentError:
        return self._exchange.failed(
            GarbledError,
            "answered something that makes no sense",
            str(command),
            ("answered", answered[:80]),
        )

    def _not_done(self, problem: str) -> InstrumentError:
        return self._exchange.failed(
            NotDoneError,
            problem,
            str(_SET),
            ("try", "look at its panel: a program, an open door, an alarm to acknowledge?"),
        )
