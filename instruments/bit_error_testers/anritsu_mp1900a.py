"""Anritsu's Signal Quality Analyzer family: MP1900A, MP1800A."""

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import ErrorCount
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.error_gate import SIGNAL_OPTIONS, Gate, prbs
from lightrig.instruments.core.errors import NotDoneError
from lightrig.instruments.core.instrument import Option
from lightrig.instruments.core.scpi_instrument import (
    ErrorMeanings,
    RestorableScpiInstrument,
    Setting,
)
from lightrig.instruments.core.wire_facts import WireFact

_LENGTHS = (7, 9, 10, 11, 15, 20, 23, 31)
_SECOND = 1_000_000_000
_SEARCH_TIMEOUT = 120 * _SECOND
_SEARCH_POLL = 200_000_000


class AnritsuMp1900a(RestorableScpiInstrument):
    """A tester with a pulse pattern generator and an error detector in two of its slots.

    Gates are whole seconds: a duration is rounded up to the next one, and the count tells how
    long it was. Four-level patterns are left out: their mnemonics are not public. A snapshot
    holds whether the output is on; pattern and rate are not restored.

    Source: as five independent programs speak to the MP1800A and MP2100A.
    """

    schemes = ("scpi", "visa")
    wire_facts = (
        WireFact(
            "commands, results, dashes for no data",
            "five programs for MP1800A, MP2100A",
        ),
        WireFact(
            "replies to queries of settings are as the settings are written",
            "a program in C# for MP2100A, which compares them",
            second="AnritsuMP2100A, a driver in Python",
        ),
        WireFact("TCP port 5001"),
        WireFact("query of the output's state"),
        WireFact("mnemonics of four-level patterns; they are left out"),
    )
    default_port = 5001
    shared_options = SIGNAL_OPTIONS
    error_meanings: ClassVar[ErrorMeanings] = {
        -241: ("there is no module in that slot", "the options unit, generator and detector"),
        -221: ("it is busy with a measurement or a search", "stop it, or wait"),
    }
    unit = Option(int, 1, "number of the unit")
    generator = Option(int, 1, "slot of the generator")
    detector = Option(int, 3, "slot of the detector")
    unverified: ClassVar[Mapping[str, str]] = {
        "*:SYSTem:CFUNction ASE32": "it chooses what a search does, whose result is read",
    }
    output = Setting(
        bool,
        ":UENTry:ID {driver.unit};:MODule:ID {driver.generator};:SOURce:OUTPut:ASET",
        "output",
        written=("OFF", "ON"),
        verified=True,
        gates_light=True,
    )

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._generator = f":UENTry:ID {self.unit};:MODule:ID {self.generator};"
        self._detector = f":UENTry:ID {self.unit};:MODule:ID {self.detector};"

    def prepare(self, channel: int, *, pattern: str, bits_per_second: float) -> None:
        """Send and expect a PRBS at a bit rate; switches the output on."""
        length = prbs(self.name, pattern, _LENGTHS)
        for node, value in (
            ("SOURce:PATTern:TYPE", "PRBS"),
            ("SOURce:PATTern:PRBS:LENGth", f"{length}"),
            ("OUTPut:DATA:BITRate", f"{bits_per_second / 1e9:.6f}"),
        ):
            self.write_confirmed(f"{self._generator}:{node}", value)
        self.output.set(True)
        self.write_confirmed(f"{self._detector}:SENSe:PATTern:TYPE", "PRBS")
        self.write_confirmed(f"{self._detector}:SENSe:PATTern:PRBS:LENGth", f"{length}")

    def align(self, channel: int) -> None:
        """Search threshold and phase; raises `NotDoneError` where there are none."""
        self.write(f"{self._detector}:SYSTem:CFUNction ASE32")
        self.write(f"{self._detector}:SENSe:MEASure:ASEarch:STARt")
        command = f"{self._detector}:SENSe:MEASure:ASEarch:STATe?"
        deadline = self.clock.now() + _SEARCH_TIMEOUT
        while (state := self.query_number(command)) > 0:
            if self.clock.now() > deadline:
                raise self.failed(NotDoneError, "did not end its search", command)
            self.clock.sleep(_SEARCH_POLL)
        if state:
            raise self.failed(
                NotDoneError,
                "found neither threshold nor phase",
                command,
                ("try", "is there light at the receiver, is the generator's output on?"),
            )

    def count(self, channel: int, *, duration: int) -> Gate:
        """Open the gate for `duration` ns, rounded up to whole seconds."""
        seconds = -(-duration // _SECOND)
        days, rest = divmod(seconds, 86_400)
        period = f"{days},{rest // 3600},{rest // 60 % 60},{rest % 60}"
        for node, value in (("MODE", "SINGle"), ("UNIT", "TIME"), ("PERiod", period)):
            self.write_confirmed(f"{self._detector}:SENSe:MEASure:EALarm:{node}", value)
        before = self.clock.now()
        started = self.write(f"{self._detector}:SENSe:MEASure:STARt")
        return Gate(
            self.name,
            self.clock,
            Span(before, started.latest),
            seconds * _SECOND,
            is_open=lambda: self.query_bool(f"{self._detector}:SENSe:MEASure:EALarm:STATe?"),
            read=self._read,
            close=lambda: self.write(f"{self._detector}:SENSe:MEASure:STOP"),
        )

    def _read(self, began: Span, ended: Span) -> ErrorCount:
        bits = self._result("CC:TOTal")
        errors = self._result("EC:TOTal")
        sync_lost = self._result("AINTerval:PSLoss")
        clock_lost = self._result("AINTerval:CLOSs")
        unlocked = bits is None or errors is None
        return ErrorCount(
            began,
            ended,
            0 if unlocked else round(bits or 0),
            0 if unlocked else round(errors or 0),
            sync_lost=unlocked or bool(sync_lost),
            clock_lost=bool(clock_lost),
        )

    def _result(self, item: str) -> float | None:
        """Return one item of the last measurement; None where the tester shows dashes.

        It does where it was not synchronized with the pattern.
        """
        command = f'{self._detector}:CALCulate:DATA:EALarm? "CURRent:{item}"'
        text = self.query(command).strip("\"' ")
        if "--" in text:
            return None
        if re.fullmatch(r"\d+(\.\d*)?(E[+-]?\d+)?", text, re.IGNORECASE) is None:
            raise self.garbled(command, text, "result")
        return float(text)
