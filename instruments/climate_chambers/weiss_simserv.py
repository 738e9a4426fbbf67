"""Weiss Technik and Vötsch climate chambers over the SIMSERV protocol."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lightrig.instruments.core.capabilities import Identity
from lightrig.instruments.core.errors import InstrumentError, NotDoneError
from lightrig.instruments.core.instrument import Option
from lightrig.instruments.core.query_instrument import QueryInstrument
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.wire.framing import Lines

_SEPARATOR = "¶"
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")
_TOLERANCE = 0.05
_ALARM = 8
_SET_POINT_NAME, _RUNS_NAME = "temperature 1", "running 1"

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
    "-11": "the session is not logged in, which encrypted communication requires",
    "-12": "this user may not command it",
    "-13": "this user is logged in already",
}


class _Latin1Lines(Lines):
    """Lines in Latin-1, whose fields are separated by a pilcrow."""

    def show(self, data: bytes) -> str:
        """Return `data` as text, pilcrows included."""
        return data.decode("latin-1")


class WeissSimserv(QueryInstrument):
    """A chamber whose first control variable is its temperature.

    Setting a temperature starts the chamber's manual mode; it keeps running, and keeps its
    temperature, when the session ends.

    Source: the command numbers, separators and errors of SIMSERV as five independent drivers
    use them, one of which was checked against the maker's communication manual.
    """

    schemes = ("simserv",)
    wire_facts = (
        WireFact(
            "command numbers, separators, errors",
            "five independent drivers, one checked against the maker's manual",
        ),
    )
    framing = _Latin1Lines()
    default_port = 2049
    least_celsius: Option[float | None] = Option(
        float,
        None,
        "least temperature that the testbed allows (`temperature:`), in °C",
        attribute="least_celsius",
    )
    greatest_celsius: Option[float | None] = Option(
        float,
        None,
        "greatest temperature that the testbed allows (`temperature:`), in °C",
        attribute="greatest_celsius",
    )

    def identity(self) -> Identity:
        """Return type and serial number; SIMSERV does not report a firmware."""
        return Identity("Weiss Technik", self.command(_INFO, 1), self.command(_INFO, 3), "unknown")

    def set_temperature(self, celsius: float) -> None:
        """Go to `celsius`; returns at once.

        Raises:
            DeniedError: outside the limits that the chamber reports, or the testbed's.
            NotDoneError: the set point is another one then, or the chamber has an alarm.
        """
        least, greatest = self._number(_LEAST, 1), self._number(_GREATEST, 1)
        if not least <= celsius <= greatest:
            raise self.refused(
                f"{celsius:g} °C is outside its limits, {least:g} to {greatest:g} °C",
                "these are the limits that are set at its panel",
            )
        self._check_allowed(celsius)
        self._set_point(celsius)
        self._set_running(True)
        status = self.command(_STATUS)
        if re.fullmatch(r"\d+", status, re.ASCII) is None:
            raise self.garbled(str(_STATUS), status, "status")
        if int(status) & _ALARM:
            raise self._not_done("has an alarm, and does not run")

    def _check_allowed(self, celsius: float) -> None:
        """Raise `DeniedError` for a temperature that the testbed does not allow."""
        low, high = self.least_celsius, self.greatest_celsius
        if low is not None and high is not None and not low <= celsius <= high:
            raise self.refused(
                f"{celsius:g} °C is not what the devices in it withstand",
                f"the testbed file has `temperature: {{min: {low:g} °C, max: {high:g} °C}}`",
                "`overrides: {temperature: REASON}` there switches this off",
            )

    def temperature(self) -> float:
        """Return the temperature in degrees Celsius."""
        return self._number(_ACTUAL, 1)

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Read the set point and whether the chamber runs; calling the result restores both."""
        return partial(self.restore_settings, self.read_settings(channels))

    def read_settings(self, channels: Sequence[int]) -> Mapping[str, float]:
        """Return the set point in degrees Celsius, and whether the chamber runs."""
        return {_SET_POINT_NAME: self._number(_SET_POINT, 1), _RUNS_NAME: self._runs()}

    @property
    def setting_units(self) -> Mapping[str, str]:
        """The unit of each setting that has one."""
        return {_SET_POINT_NAME: "°C"}

    def restore_settings(self, settings: Mapping[str, float]) -> None:
        """Set what differs; does not wait until the chamber has reached the temperature.

        A chamber that is to stand still is stopped first. Raises `DeniedError` for a temperature
        that the testbed does not allow.
        """
        runs, celsius = settings.get(_RUNS_NAME), settings.get(_SET_POINT_NAME)
        if runs is not None and not runs and self._runs():
            self._set_running(False)
        if celsius is not None and not self.same_setting(
            _SET_POINT_NAME, self._number(_SET_POINT, 1), celsius
        ):
            self._check_allowed(celsius)
            self._set_point(celsius)
        if runs and not self._runs():
            self._check_allowed(self._number(_SET_POINT, 1))
            self._set_running(True)

    def same_setting(self, name: str, first: float, second: float) -> bool:
        """Whether two values of a setting are the same within the chamber's resolution."""
        return abs(first - second) <= (_TOLERANCE if name == _SET_POINT_NAME else 0)

    def _set_point(self, celsius: float) -> None:
        if self.on_setting is not None:
            self.on_setting(_SET_POINT_NAME, celsius)
        self.command(_SET, 1, f"{celsius:.1f}")
        found = self._number(_SET_POINT, 1)
        if not self.same_setting(_SET_POINT_NAME, found, celsius):
            raise self._not_done(f"acknowledged, but its set point is {found:g} °C")

    def _set_running(self, runs: bool) -> None:
        if self.on_setting is not None:
            self.on_setting(_RUNS_NAME, runs)
        self.command(_MANUAL, 1, int(runs))
        if self._runs() != runs:
            raise self._not_done(f"acknowledged, but {'does not run' if runs else 'still runs'}")

    def _runs(self) -> bool:
        text = self.command(_RUNS, 1)
        if text not in {"0", "1"}:
            raise self.garbled(str(_RUNS), text, "0 or 1")
        return text == "1"

    def _number(self, command: int, *arguments: object) -> float:
        text = self.command(command, *arguments)
        if _NUMBER.fullmatch(text) is None:
            raise self.garbled(str(command), text, "number")
        return float(text)

    def command(self, number: int, *arguments: object) -> str:
        """Send a command and return the first field behind the code of its reply, or nothing."""
        shown = _SEPARATOR.join(map(str, (number, 1, *arguments)))
        reply = self.session.query(f"{shown}\r".encode("latin-1"), shown=shown)
        text = reply.data.decode("latin-1")
        # Blanks may surround a field; a control character, which str.strip removes too, may not.
        code, *fields = (field.strip(" \t") for field in text.split(_SEPARATOR))
        if re.fullmatch(r"-?\d+", code) is None:
            raise self.garbled(str(number), text, "SIMSERV reply")
        if code != "1":
            raise self.denied(shown, code, " ".join(fields), _MEANINGS.get(code, ""))
        return fields[0] if fields else ""

    def _not_done(self, problem: str) -> InstrumentError:
        return self.failed(
            NotDoneError,
            problem,
            str(_SET),
            ("try", "look at its panel: a program, an open door, an alarm to acknowledge?"),
        )
