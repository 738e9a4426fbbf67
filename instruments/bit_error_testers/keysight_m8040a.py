"""Keysight's M8000 family through its M8070 software: M8040A, M8020A."""

import math
import re
from collections.abc import Mapping
from typing import ClassVar

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import ErrorCount
from lightrig.instruments.core.error_gate import SIGNAL_OPTIONS, Gate, prbs
from lightrig.instruments.core.errors import DeniedError, NotDoneError
from lightrig.instruments.core.instrument import Option
from lightrig.instruments.core.scpi_instrument import (
    ErrorMeanings,
    RestorableScpiInstrument,
    Setting,
)
from lightrig.instruments.core.wire_facts import WireFact

_LENGTHS = (7, 10, 11, 13, 15, 23, 31)
_ALIGNMENT_TIMEOUT = 120_000_000_000
_MEASUREMENT = "lightrig"
_NOT_PUBLIC = (
    "the form of the reply to its query is not public; an input that expects another pattern, "
    "coding or rate than it gets is not synchronized, which each count says"
)
_RESULT = re.compile(r"\(\s*'?([^',]+)'?\s*,([^,]+),(\d+),(\d+),(\d+),(\d+)\s*\)")


class KeysightM8040a(RestorableScpiInstrument):
    """A tester whose output and input are named by location, such as M2.DataOut.

    Counts are those of its error ratio measurement: compared and errored ones and zeros.
    PRBS13Q is `2^13-1Q`, with PAM4 as line coding. A snapshot holds whether the outputs are on;
    pattern and rate are not restored.

    Source: as two independent programs speak to the M8020A and M8040A.
    """

    schemes = ("scpi", "visa")
    wire_facts = (
        WireFact("error ratio measurement, locations", "two programs for M8020A and M8040A"),
        WireFact("names of four-level patterns (`2^13-1Q`)"),
        WireFact("stop command, query whether a measurement runs"),
    )
    shared_options = SIGNAL_OPTIONS
    error_meanings: ClassVar[ErrorMeanings] = {
        -224: ("there is no such location or pattern", "the options data_out, data_in, clock"),
        -221: ("the measurement runs already", "stop it, or wait"),
    }
    data_out = Option(str, "M2.DataOut", "location of the output")
    data_in = Option(
        str, "M3.DataIn,M4.DataIn", "locations of the inputs, one for each channel, with commas"
    )
    clock_at = Option(str, "M1.ClkGen", "location of the clock generator", key="clock")
    unverified: ClassVar[Mapping[str, str]] = {
        ":SOUR:FREQ *": _NOT_PUBLIC,
        ":DATA:LINE:VAL *": _NOT_PUBLIC,
        ":DATA:SEQ:SET *": _NOT_PUBLIC,
        ":PLUG:ERAT:ACQ:*": "a result names the location, and the bits that were compared there",
    }
    output = Setting(
        bool,
        ":OUTP:STAT",
        "output",
        selector="'{driver.data_out}'",
        verified=True,
        gates_light=True,
    )
    all_outputs = Setting(
        bool,
        ":OUTP:GLOB:STAT",
        "all outputs",
        selector="'M1.System'",
        verified=True,
        gates_light=True,
    )

    def prepare(self, channel: int, *, pattern: str, bits_per_second: float) -> None:
        """Send and expect a PRBS at a bit rate; switches the output on."""
        length = prbs(self.name, pattern, _LENGTHS, four_levels=True)
        four = pattern.endswith("Q")
        sequence, coding = f"2^{length}-1{'Q' if four else ''}", "PAM4" if four else "NRZ"
        symbols = bits_per_second / (2 if four else 1)
        self.write(f":SOUR:FREQ '{self.clock_at}',{symbols:.0f}")
        for location in (self.data_out, self._input(channel)):
            self.write(f":DATA:LINE:VAL '{location}',{coding}")
            self.write(f":DATA:SEQ:SET '{location}',PRBS,'{sequence}'")
        self.output.set(True)
        self.all_outputs.set(True)

    def align(self, channel: int) -> None:
        """Find the middle of the eye; raises `NotDoneError` where there is none."""
        command = f":INP:ALIG:EYE:AUTO '{self._input(channel)}'"
        try:
            self.write(command, _ALIGNMENT_TIMEOUT)
        except DeniedError as error:
            raise self.failed(
                NotDoneError,
                "found no eye",
                command,
                ("answered", error.text),
                ("try", "is there light at the receiver, is the output on?"),
            ) from error

    def count(self, channel: int, *, duration: int) -> Gate:
        """Open the gate for `duration` ns, in whole milliseconds."""
        name, location = f"'{_MEASUREMENT}'", self._input(channel)
        if _MEASUREMENT not in self.query(":PLUG:ERAT:CAT?").strip("\"' ").split(","):
            self.write(f":PLUG:ERAT:NEW {name}")
        milliseconds = math.ceil(duration / 1e6)
        for setting in (
            f":PLUG:ERAT:RES {name}",
            f":PLUG:ERAT:ACQ:ALOC {name},'{location}'",
            f":PLUG:ERAT:ACQ:DUR {name},FTIM",
            f":PLUG:ERAT:ACQ:TIME {name},{milliseconds / 1e3:.3f}",
        ):
            self.write(setting)
        before = self.clock.now()
        started = self.write(f":PLUG:ERAT:STAR {name}")
        return Gate(
            self.name,
            self.clock,
            Span(before, started.latest),
            milliseconds * 1_000_000,
            is_open=lambda: self.query_bool(f":PLUG:ERAT:RUN? {name}"),
            read=lambda began, ended: self._read(location, began, ended),
            close=lambda: self.write(f":PLUG:ERAT:STOP {name}"),
        )

    def _input(self, channel: int) -> str:
        locations = [location.strip() for location in self.data_in.split(",")]
        if not 1 <= channel <= len(locations):
            raise self.refused(f"no channel {channel}; there are {len(locations)}")
        return locations[channel - 1]

    def _read(self, location: str, began: Span, ended: Span) -> ErrorCount:
        command = f":PLUG:ERAT:FETC? '{_MEASUREMENT}'"
        text = self.query(command)
        clock_lost = self.query_bool(f":STAT:INST:CLOS? '{location}'")
        sync_lost = self.query_bool(f":STAT:INST:SLOS? '{location}'")
        match = _RESULT.fullmatch(text)
        if match is None:
            raise self.garbled(command, text, "result of an error ratio measurement")
        ones, zeros, wrong_ones, wrong_zeros = (int(match[index]) for index in range(3, 7))
        if wrong_ones > ones or wrong_zeros > zeros:
            raise self.garbled(command, text, "count: it has more errors than bits")
        bits = ones + zeros
        return ErrorCount(
            began,
            ended,
            bits,
            wrong_ones + wrong_zeros,
            sync_lost=sync_lost or bits == 0,
            clock_lost=clock_lost,
        )
