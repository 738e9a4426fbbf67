"""Keysight InfiniiVision oscilloscopes with photodiodes at their inputs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import PowerLog
from lightrig.instruments.core.detected_power import OverRangeError
from lightrig.instruments.core.errors import NotDoneError
from lightrig.instruments.core.instrument import Option
from lightrig.instruments.core.scpi_instrument import ErrorMeanings, ScpiInstrument
from lightrig.instruments.core.wire_facts import WireFact

_RECORD_TIMEOUT = 5_000_000_000
_TRANSFER_TIMEOUT = 30_000_000_000
_POLL = 1_000_000
_RUNNING = 1 << 3
_CLIPPED = (1, 65535)
_HOLE = 0
_IN_PREAMBLE = (
    "the preamble of each record has the scales and the points that were taken: levels and times "
    "are made with them, and another period is refused"
)


class _Preamble(NamedTuple):
    """Scales of a record: times in s from the trigger, levels in V."""

    points: int
    x_increment: float
    x_origin: float
    y_increment: float
    y_origin: float
    y_reference: float


class KeysightInfiniivision(ScpiInstrument):
    """An X-series oscilloscope that logs light: each input has a photodiode.

    A log is one record in high-resolution mode, in which a sample averages over its period. It
    begins with a trigger that is forced, so it starts between command and acknowledgement; what
    lies between two events of one record, of one channel or of several, is known to the sample.
    Power is what the photodiode's `volts_per_mw` makes of it: as good as that number, which is
    good enough for times.

    Source: Keysight InfiniiVision X-series Programmer's Guide, whose commands PyMeasure and
    others use. Which numbers of points a model gives is its own; another number is refused.
    """

    schemes = ("scpi", "visa")
    wire_facts = (
        WireFact(
            "commands, preamble", "Keysight InfiniiVision X-series Programmer's Guide; PyMeasure"
        ),
    )
    error_meanings: ClassVar[ErrorMeanings] = {
        -113: ("this oscilloscope does not know the command", "is its model in the testbed right?"),
        -222: ("the value is outside its range", "another number of samples, or another period"),
        -230: ("it has no record to give", "begin another log"),
    }
    unverified: ClassVar[Mapping[str, str]] = {
        ":CHAN*:DISP 1": "a channel that is off has no record, which is an error",
        ":CHAN*:RANG *": _IN_PREAMBLE,
        ":CHAN*:OFFS *": _IN_PREAMBLE,
        ":TIM:MODE MAIN": _IN_PREAMBLE,
        ":TIM:REF CENT": _IN_PREAMBLE,
        ":TIM:RANG *": _IN_PREAMBLE,
        ":TIM:POS *": _IN_PREAMBLE,
        ":TRIG:SWE NORM": "a record that no trigger begins does not end, which is an error",
        ":WAV:*": "a record of another form or length is refused",
    }
    volts_per_mw = Option(float, 1.0, "response of the photodiodes and their amplifiers, in V/mW")
    full_scale = Option(float, 2.0, "greatest power that is shown, in mW", key="full_scale_mw")

    def log(self, channel: int, *, samples: int, period: int) -> "PendingRecord":
        """Begin a record of `samples` samples of `period` ns on one channel."""
        return PendingRecord(self.log_together([channel], samples=samples, period=period), channel)

    def log_together(
        self, channels: Sequence[int], *, samples: int, period: int
    ) -> "PendingRecords":
        """Begin one record of several channels, whose samples are simultaneous.

        `period` is in ns. Raises `DeniedError` for a number or a period that it cannot do.
        """
        duration = samples * period / 1e9
        volts = 1.25 * self.full_scale * self.volts_per_mw
        self.write(":STOP")
        for n in channels:
            self.write_confirmed(f":CHAN{n}:COUP", "DC")
            for command in (
                f":CHAN{n}:DISP 1",
                f":CHAN{n}:RANG {volts:.6g}",
                f":CHAN{n}:OFFS {0.4 * volts:.6g}",  # the screen's middle: 0 is near its foot
            ):
                self.write(command)
        self.write_confirmed(":ACQ:TYPE", "HRESolution")
        for command in (
            ":TIM:MODE MAIN",
            ":TIM:REF CENT",
            f":TIM:RANG {duration:.9E}",
            f":TIM:POS {duration / 2:.9E}",  # the record begins with its trigger
            ":TRIG:SWE NORM",
            ":WAV:FORM WORD",
            ":WAV:BYT LSBF",
            ":WAV:UNS 1",
            ":WAV:POIN:MODE RAW",
            f":WAV:POIN {samples}",
            ":SING",
        ):
            self.write(command)
        before = self.clock.now()
        begun = self.write(":TRIG:FORC")
        return PendingRecords(self, channels, Span(before, begun.latest), samples, period)

    def record(self, n: int, trigger: Span, samples: int, period: int) -> PowerLog:
        """The record of one channel, `period` ns a sample, once it is complete."""
        self.write(f":WAV:SOUR CHAN{n}")
        preamble = self._preamble()
        drift = abs(preamble.x_increment * 1e9 - period) * samples
        if preamble.points != samples or drift > period / 2:
            raise self.refused(
                f"{samples} samples of {period} ns are none of its records",
                f"it would give {preamble.points} of {preamble.x_increment * 1e9:g} ns",
                "ask for 1, 2 or 5 times a power of ten samples",
            )
        command = ":WAV:DATA?"
        data = self.query_block(command, _TRANSFER_TIMEOUT)
        codes = np.frombuffer(data[: len(data) // 2 * 2], dtype="<u2").astype(np.float64)
        if len(data) != 2 * samples or (codes == _HOLE).any():
            raise self.garbled(command, f"{len(data)} bytes", f"record of {samples} samples")
        clipped = int(np.isin(codes, _CLIPPED).sum())
        if clipped:
            raise self.failed(
                OverRangeError,
                f"had a level beyond its screen on channel {n}, in {clipped:,} of {samples:,} "
                "samples",
                command,
                ("try", "state a greater `full_scale_mw:` in the testbed file, or attenuate"),
            )
        volts = (codes - preamble.y_reference) * preamble.y_increment + preamble.y_origin
        start = trigger.shifted(round(preamble.x_origin * 1e9))
        return PowerLog(start, period, volts / self.volts_per_mw)

    def wait(self, until: int) -> None:
        """Wait for the end of the record that is due at `until`; raises `NotDoneError`."""
        self.clock.sleep(until - self.clock.now())
        late, query = self.clock.now() + _RECORD_TIMEOUT, ":OPER:COND?"
        while round(self.query_number(query)) & _RUNNING:
            if self.clock.now() > late:
                raise self.failed(
                    NotDoneError,
                    "did not end its record",
                    query,
                    ("try", "is it in the mode that its panel shows?"),
                )
            self.clock.sleep(_POLL)

    def _preamble(self) -> _Preamble:
        query = ":WAV:PRE?"
        answer = self.query(query)
        fields = answer.split(",")
        number = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
        if len(fields) != 10 or not all(number.fullmatch(field.strip()) for field in fields):
            raise self.garbled(query, answer, "preamble of a record")
        _, _, points, _, dx, x0, _, dy, y0, yr = map(float, fields)
        return _Preamble(round(points), dx, x0, dy, y0, yr)


@dataclass(eq=False)
class PendingRecords:
    """A record of several channels that was begun."""

    _scope: KeysightInfiniivision
    _channels: Sequence[int]
    _trigger: Span
    _samples: int
    _period: int

    def result(self) -> Mapping[int, PowerLog]:
        """Wait until the record is complete and read it, by channel.

        Raises:
            DeniedError: the oscilloscope has no such record.
            NotDoneError: it did not end.
            OverRangeError: some of it was beyond the screen.
        """
        self._scope.wait(self._trigger.latest + self._samples * self._period)
        return {
            n: self._scope.record(n, self._trigger, self._samples, self._period)
            for n in self._channels
        }


class PendingRecord:
    """A record of one channel."""

    def __init__(self, records: PendingRecords, channel: int) -> None:
        self._records = records
        self._channel = channel

    def result(self) -> PowerLog:
        """Wait until it is complete and read it; raises what `PendingRecords.result` does."""
        return self._records.result()[self._channel]
