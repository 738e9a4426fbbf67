"""Anritsu's Signal Quality Analyzer family: MP1900A, MP1800A."""

import re
from collections.abc import Callable, Sequence

from instruments.bit_error_testers.gates import Gate, prbs
from instruments.capabilities import ErrorCount, Identity
from instruments.clock import Clock, Span
from instruments.errors import NotDoneError
from instruments.registry import Spec
from instruments.scpi_instrument import ScpiInstrument
from instruments.way import Way

_LENGTHS = (7, 9, 10, 11, 15, 20, 23, 31)
_SECOND = 1_000_000_000
_SEARCH_TIMEOUT = 120 * _SECOND
_SEARCH_POLL = 200_000_000
_MEANINGS = {
    -241: ("there is no module in that slot", "the options unit, generator and detector"),
    -221: ("it is busy with a measurement or a search", "stop it, or wait"),
}


class AnritsuMp1900a:
    """A tester with a pulse pattern generator and an error detector in two of its slots.

    Gates are whole seconds: a shorter or broken duration is counted up to the next one, and the
    count says how long it was. Four-level patterns are left out: their mnemonics are not public.

    Source: as five independent programs speak to the MP1800A and MP2100A; the TCP port, 5001,
    is a guess.

    Args:
        name: the tester's name in the testbed.
        way: how it is reached.
        clock: the bench's clock.
        unit: number of the unit (option `unit`).
        generator: slot of the generator (option `generator`, 1).
        detector: slot of the detector (option `detector`, 3).
    """

    schemes = ("scpi", "visa")

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "AnritsuMp1900a":
        """The driver of the tester that `spec` describes."""
        options = spec.options
        unit, generator, detector = (
            int(options.get(key, default))
            for key, default in (("unit", 1), ("generator", 1), ("detector", 3))
        )
        return cls(spec.name, way, clock, unit=unit, generator=generator, detector=detector)

    def __init__(
        self,
        name: str,
        way: Way,
        clock: Clock,
        *,
        unit: int = 1,
        generator: int = 1,
        detector: int = 3,
    ) -> None:
        self.name = name
        self._clock = clock
        self._generator = f":UENTry:ID {unit};:MODule:ID {generator};"
        self._detector = f":UENTry:ID {unit};:MODule:ID {detector};"
        self._scpi = ScpiInstrument(name, way, clock, meanings=_MEANINGS, port=5001)

    def identity(self) -> Identity:
        """Maker, model, serial number and firmware."""
        return self._scpi.identity()

    def prepare(self, channel: int, *, pattern: str, bits_per_second: float) -> None:
        """Send and expect a PRBS at a bit rate; switches the output on."""
        length = prbs(self.name, pattern, _LENGTHS)
        for command in (
            f"{self._generator}:SOURce:PATTern:TYPE PRBS",
            f"{self._generator}:SOURce:PATTern:PRBS:LENGth {length}",
            f"{self._generator}:OUTPut:DATA:BITRate {bits_per_second / 1e9:.6f}",
            f"{self._generator}:SOURce:OUTPut:ASET ON",
            f"{self._detector}:SENSe:PATTern:TYPE PRBS",
            f"{self._detector}:SENSe:PATTern:PRBS:LENGth {length}",
        ):
            self._scpi.do(command)

    def align(self, channel: int) -> None:
        """Search threshold and phase; raises `NotDoneError` where it finds none."""
        self._scpi.do(f"{self._detector}:SYSTem:CFUNction ASE32")
        self._scpi.do(f"{self._detector}:SENSe:MEASure:ASEarch:STARt")
        command = f"{self._detector}:SENSe:MEASure:ASEarch:STATe?"
        deadline = self._clock.now() + _SEARCH_TIMEOUT
        while (state := self._scpi.number(command)) > 0:
            if self._clock.now() > deadline:
                raise self._scpi.failed(NotDoneError, "searches without an end", command)
            self._clock.sleep(_SEARCH_POLL)
        if state:
            raise self._scpi.failed(
                NotDoneError,
                "found neither threshold nor phase",
                command,
                ("try", "is there light at the receiver, is the generator's output on?"),
            )

    def count(self, channel: int, *, duration: int) -> Gate:
        """Open the gate for `duration` ns, counted up to whole seconds."""
        seconds = -(-duration // _SECOND)
        days, rest = divmod(seconds, 86_400)
        period = f"{days},{rest // 3600},{rest // 60 % 60},{rest % 60}"
        for setting in ("MODE SINGle", "UNIT TIME", f"PERiod {period}"):
            self._scpi.do(f"{self._detector}:SENSe:MEASure:EALarm:{setting}")
        before = self._clock.now()
        started = self._scpi.do(f"{self._detector}:SENSe:MEASure:STARt")
        return Gate(
            self.name,
            self._clock,
            Span(before, started.latest),
            seconds * _SECOND,
            is_open=lambda: self._scpi.flag(f"{self._detector}:SENSe:MEASure:EALarm:STATe?"),
            read=self._read,
            shut=lambda: self._scpi.do(f"{self._detector}:SENSe:MEASure:STOP"),
        )

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Note whether its outputs are on (the query is a guess); what it returns puts that back.

        Pattern and rate stay as they were prepared.
        """
        command = f"{self._generator}:SOURce:OUTPut:ASET"
        found = self._scpi.flag(f"{command}?")

        def put_back() -> None:
            if self._scpi.flag(f"{command}?") != found:
                self._scpi.do(f"{command} {'ON' if found else 'OFF'}")

        return put_back

    def troubles(self) -> list[str]:
        """What stood in its error queue, oldest first; it is empty now."""
        return self._scpi.troubles()

    def wire(self) -> list[str]:
        """The last lines of the session."""
        return self._scpi.wire()

    def close(self) -> None:
        """End the session."""
        self._scpi.close()

    def _read(self, began: Span, ended: Span) -> ErrorCount:
        bits = self._result("CC:TOTal")
        errors = self._result("EC:TOTal")
        sync_lost = self._result("AINTerval:PSLoss")
        clock_lost = self._result("AINTerval:CLOSs")
        nothing = bits is None or errors is None  # dashes: it followed no pattern
        return ErrorCount(
            began,
            ended,
            0 if nothing else round(bits or 0),
            0 if nothing else round(errors or 0),
            sync_lost=nothing or bool(sync_lost),
            clock_lost=bool(clock_lost),
        )

    def _result(self, item: str) -> float | None:
        """One item of the last measurement; None where the tester shows dashes."""
        command = f'{self._detector}:CALCulate:DATA:EALarm? "CURRent:{item}"'
        text = self._scpi.ask(command).strip("\"' ")
        if "--" in text:
            return None
        if re.fullmatch(r"\d+(\.\d*)?(E[+-]?\d+)?", text, re.IGNORECASE) is None:
            raise self._scpi.garbled(command, text, "result")
        return float(text)
