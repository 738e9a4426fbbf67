"""Keysight InfiniiVision oscilloscopes with photodiodes at their inputs."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from instruments.capabilities import Identity, PowerLog
from instruments.clock import Clock, Span
from instruments.detected_power import OverRangeError
from instruments.errors import NotDoneError
from instruments.registry import Spec
from instruments.scpi_instrument import Meanings, ScpiInstrument
from instruments.way import Way

_PATIENCE = 5_000_000_000
_READING_OUT = 30_000_000_000
_POLL = 1_000_000
_RUNNING = 1 << 3
_CLIPPED = (1, 65535)
_HOLE = 0

_MEANINGS: Meanings = {
    -113: ("this oscilloscope does not know the command", "is its model in the testbed right?"),
    -222: ("the value is outside its range", "ask for another number of samples, or a period"),
    -230: ("it has no record to give", "begin another log"),
}


class _Preamble(NamedTuple):
    """How a record is to be read: times in s from the trigger, levels in V."""

    points: int
    x_increment: float
    x_origin: float
    y_increment: float
    y_origin: float
    y_reference: float


class KeysightInfiniivision:
    """An X-series oscilloscope that logs light: a photodiode stands at each of its inputs.

    A log is one record in high-resolution mode, in which a sample averages over its period. It
    begins with a trigger that is forced, so it starts between command and acknowledgement; what
    lies between two events of one record, of one channel or of several, is known to the sample.
    Power is what the photodiode's `volts_per_mw` makes of it: as good as that number, which is
    good enough for times.

    Source: Keysight InfiniiVision X-series Programmer's Guide, whose commands PyMeasure and
    others use. Which numbers of points a model gives is its own; another number is refused.

    Args:
        name: the oscilloscope's name in the testbed.
        way: how it is reached.
        clock: the bench's clock.
        volts_per_mw: what the photodiodes and their amplifiers make of light, in V/mW (option
            `volts_per_mw`).
        full_scale: the most power that is shown, in mW (option `full_scale_mw`).
    """

    schemes = ("scpi", "visa")

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "KeysightInfiniivision":
        """The driver of the oscilloscope that `spec` describes."""
        options = spec.options
        volts_per_mw = float(options.get("volts_per_mw", 1.0))
        full_scale = float(options.get("full_scale_mw", 2.0))
        return cls(spec.name, way, clock, volts_per_mw=volts_per_mw, full_scale=full_scale)

    def __init__(
        self,
        name: str,
        way: Way,
        clock: Clock,
        *,
        volts_per_mw: float = 1.0,
        full_scale: float = 2.0,
    ) -> None:
        self.name = name
        self._volts_per_mw = volts_per_mw
        self._volts = 1.25 * full_scale * volts_per_mw
        self._clock = clock
        self._scpi = ScpiInstrument(name, way, clock, meanings=_MEANINGS)

    def identity(self) -> Identity:
        """Ask for model, serial number and firmware."""
        return self._scpi.identity()

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
        self._scpi.do(":STOP")
        for n in channels:
            for command in (
                f":CHAN{n}:DISP 1",
                f":CHAN{n}:COUP DC",
                f":CHAN{n}:RANG {self._volts:.6g}",
                f":CHAN{n}:OFFS {0.4 * self._volts:.6g}",  # the screen's middle: 0 is near its foot
            ):
                self._scpi.do(command)
        for command in (
            ":ACQ:TYPE HRES",
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
            self._scpi.do(command)
        before = self._clock.now()
        begun = self._scpi.do(":TRIG:FORC")
        return PendingRecords(self, channels, Span(before, begun.latest), samples, period)

    def record(self, n: int, trigger: Span, samples: int, period: int) -> PowerLog:
        """The record of one channel, `period` ns a sample, once it is complete."""
        self._scpi.do(f":WAV:SOUR CHAN{n}")
        preamble = self._preamble()
        drift = abs(preamble.x_increment * 1e9 - period) * samples
        if preamble.points != samples or drift > period / 2:
            raise self._scpi.cannot(
                f"{samples} samples of {period} ns are none of its records",
                f"it would give {preamble.points} of {preamble.x_increment * 1e9:g} ns",
                "ask for 1, 2 or 5 times a power of ten samples",
            )
        command = ":WAV:DATA?"
        data = self._scpi.block(command, _READING_OUT)
        codes = np.frombuffer(data[: len(data) // 2 * 2], dtype="<u2").astype(np.float64)
        if len(data) != 2 * samples or (codes == _HOLE).any():
            raise self._scpi.garbled(command, f"{len(data)} bytes", f"record of {samples} samples")
        clipped = int(np.isin(codes, _CLIPPED).sum())
        if clipped:
            raise self._scpi.failed(
                OverRangeError,
                f"had a level beyond its screen on channel {n}, in {clipped:,} of {samples:,} "
                "samples",
                command,
                ("try", "say a greater `full_scale_mw:` in the testbed file, or attenuate"),
            )
        volts = (codes - preamble.y_reference) * preamble.y_increment + preamble.y_origin
        start = trigger.shifted(round(preamble.x_origin * 1e9))
        return PowerLog(start, period, volts / self._volts_per_mw)

    def wait(self, until: int) -> None:
        """Wait for the end of the record that is due at `until`; raises `NotDoneError`."""
        self._clock.sleep(until - self._clock.now())
        late, query = self._clock.now() + _PATIENCE, ":OPER:COND?"
        while round(self._scpi.number(query)) & _RUNNING:
            if self._clock.now() > late:
                raise self._scpi.failed(
                    NotDoneError,
                    "did not end its record",
                    query,
                    ("try", "is it in the mode that its panel shows?"),
                )
            self._clock.sleep(_POLL)

    def wire(self) -> list[str]:
        """The last lines of the session."""
        return self._scpi.wire()

    def close(self) -> None:
        """End the session."""
        self._scpi.close()

    def _preamble(self) -> _Preamble:
        query = ":WAV:PRE?"
        answer = self._scpi.ask(query)
        fields = answer.split(",")
        number = re.compile(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?")
        if len(fields) != 10 or not all(number.fullmatch(field.strip()) for field in fields):
            raise self._scpi.garbled(query, answer, "preamble of a record")
        _, _, points, _, dx, x0, _, dy, y0, yr = map(float, fields)
        return _Preamble(round(points), dx, x0, dy, y0, yr)


class PendingRecords:
    """A record of several channels that was begun."""

    def __init__(
        self,
        scope: KeysightInfiniivision,
        channels: Sequence[int],
        trigger: Span,
        samples: int,
        period: int,
    ) -> None:
        self._scope = scope
        self._channels = channels
        self._trigger = trigger
        self._samples = samples
        self._period = period

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
