"""Keysight's M8000 family through its M8070 software: M8040A, M8020A."""

import math
import re
from collections.abc import Callable, Sequence

from instruments.bit_error_testers.gates import Gate, prbs
from instruments.capabilities import ErrorCount, Identity
from instruments.clock import Clock, Span
from instruments.errors import DeniedError, NotDoneError
from instruments.registry import Spec
from instruments.scpi_instrument import ScpiInstrument
from instruments.way import Way

_LENGTHS = (7, 10, 11, 13, 15, 23, 31)
_ALIGNMENT = 120_000_000_000
_MEASUREMENT = "lightrig"
_MEANINGS = {
    -224: ("it knows no such location, or no such pattern", "the options data_out, data_in, clock"),
    -221: ("the measurement runs already", "stop it, or wait"),
}
_RESULT = re.compile(r"\(\s*'?([^',]+)'?\s*,([^,]+),(\d+),(\d+),(\d+),(\d+)\s*\)")


class KeysightM8040a:
    """A tester whose output and input are named by location, such as M2.DataOut.

    Counts are those of its error ratio measurement: compared and errored ones and zeros.
    Four-level patterns (PRBS13Q) are named as a guess, `2^13-1Q`, with PAM4 as line coding;
    so are the stop command and the question whether a measurement runs.

    Source: as two independent programs speak to the M8020A and M8040A.

    Args:
        name: the tester's name in the testbed.
        way: how it is reached; scpi:// or visa:// (HiSLIP).
        clock: the bench's clock.
        data_out, data_in, clock_at: locations (options `data_out`, `data_in`, `clock`);
            `data_in` has one for each channel, with commas between.
    """

    schemes = ("scpi", "visa")

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "KeysightM8040a":
        """The driver of the tester that `spec` describes."""
        options = spec.options
        return cls(
            spec.name,
            way,
            clock,
            data_out=str(options.get("data_out", "M2.DataOut")),
            data_in=str(options.get("data_in", "M3.DataIn,M4.DataIn")),
            clock_at=str(options.get("clock", "M1.ClkGen")),
        )

    def __init__(
        self,
        name: str,
        way: Way,
        clock: Clock,
        *,
        data_out: str = "M2.DataOut",
        data_in: str = "M3.DataIn,M4.DataIn",
        clock_at: str = "M1.ClkGen",
    ) -> None:
        self.name = name
        self._clock = clock
        self._out, self._clock_at = data_out, clock_at
        self._inputs = [location.strip() for location in data_in.split(",")]
        self._outputs = (f":OUTP:STAT '{data_out}'", ":OUTP:GLOB:STAT 'M1.System'")
        self._scpi = ScpiInstrument(name, way, clock, meanings=_MEANINGS)

    def identity(self) -> Identity:
        """Maker, model, serial number and firmware."""
        return self._scpi.identity()

    def prepare(self, channel: int, *, pattern: str, bits_per_second: float) -> None:
        """Send and expect a PRBS at a bit rate; switches the output on."""
        length = prbs(self.name, pattern, _LENGTHS, four_levels=True)
        four = pattern.endswith("Q")
        sequence, coding = f"2^{length}-1{'Q' if four else ''}", "PAM4" if four else "NRZ"
        symbols = bits_per_second / (2 if four else 1)
        self._scpi.do(f":SOUR:FREQ '{self._clock_at}',{symbols:.0f}")
        for location in (self._out, self._input(channel)):
            self._scpi.do(f":DATA:LINE:VAL '{location}',{coding}")
            self._scpi.do(f":DATA:SEQ:SET '{location}',PRBS,'{sequence}'")
        for output in self._outputs:
            self._scpi.do(f"{output},1")

    def align(self, channel: int) -> None:
        """Find the middle of the eye; raises `NotDoneError` where there is none."""
        command = f":INP:ALIG:EYE:AUTO '{self._input(channel)}'"
        try:
            self._scpi.do(command, _ALIGNMENT)
        except DeniedError as error:
            raise self._scpi.failed(
                NotDoneError,
                "found no eye",
                command,
                ("answered", error.text),
                ("try", "is there light at the receiver, is the output on?"),
            ) from error

    def count(self, channel: int, *, duration: int) -> Gate:
        """Open the gate for `duration` ns, in whole milliseconds."""
        name, location = f"'{_MEASUREMENT}'", self._input(channel)
        if _MEASUREMENT not in self._scpi.ask(":PLUG:ERAT:CAT?").strip("\"' ").split(","):
            self._scpi.do(f":PLUG:ERAT:NEW {name}")
        milliseconds = math.ceil(duration / 1e6)
        for setting in (
            f":PLUG:ERAT:RES {name}",
            f":PLUG:ERAT:ACQ:ALOC {name},'{location}'",
            f":PLUG:ERAT:ACQ:DUR {name},FTIM",
            f":PLUG:ERAT:ACQ:TIME {name},{milliseconds / 1e3:.3f}",
        ):
            self._scpi.do(setting)
        before = self._clock.now()
        started = self._scpi.do(f":PLUG:ERAT:STAR {name}")
        return Gate(
            self.name,
            self._clock,
            Span(before, started.latest),
            milliseconds * 1_000_000,
            is_open=lambda: self._scpi.flag(f":PLUG:ERAT:RUN? {name}"),
            read=lambda began, ended: self._read(location, began, ended),
            shut=lambda: self._scpi.do(f":PLUG:ERAT:STOP {name}"),
        )

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Note whether its output is on; what it returns puts that back, pattern and rate not."""
        found = {output: self._is_on(output) for output in self._outputs}

        def put_back() -> None:
            for output, on in found.items():
                if self._is_on(output) != on:
                    self._scpi.do(f"{output},{int(on)}")

        return put_back

    def _input(self, channel: int) -> str:
        if not 1 <= channel <= len(self._inputs):
            raise self._scpi.cannot(f"no channel {channel}; there are {len(self._inputs)}")
        return self._inputs[channel - 1]

    def _is_on(self, output: str) -> bool:
        return self._scpi.flag(output.replace(" ", "? ", 1))

    def troubles(self) -> list[str]:
        """What stood in its error queue, oldest first; it is empty now."""
        return self._scpi.troubles()

    def wire(self) -> list[str]:
        """The last lines of the session."""
        return self._scpi.wire()

    def close(self) -> None:
        """End the session."""
        self._scpi.close()

    def _read(self, location: str, began: Span, ended: Span) -> ErrorCount:
        command = f":PLUG:ERAT:FETC? '{_MEASUREMENT}'"
        text = self._scpi.ask(command)
        clock_lost = self._scpi.flag(f":STAT:INST:CLOS? '{location}'")
        sync_lost = self._scpi.flag(f":STAT:INST:SLOS? '{location}'")
        match = _RESULT.fullmatch(text)
        if match is None:
            raise self._scpi.garbled(command, text, "result of an error ratio measurement")
        ones, zeros, wrong_ones, wrong_zeros = (int(match[index]) for index in range(3, 7))
        if wrong_ones > ones or wrong_zeros > zeros:
            raise self._scpi.garbled(command, text, "count: it has more errors than bits")
        bits = ones + zeros
        return ErrorCount(
            began,
            ended,
            bits,
            wrong_ones + wrong_zeros,
            sync_lost=sync_lost or bits == 0,
            clock_lost=clock_lost,
        )
