"""Keysight N7744A and N7745A multiport power meters."""

import struct
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from instruments.capabilities import Identity, PowerLog, PowerReading
from instruments.clock import Clock, Span
from instruments.detected_power import NO_VALUE, OverRangeError, dbm, over_range
from instruments.errors import NotDoneError
from instruments.keysight_n77 import MEANINGS
from instruments.registry import Spec
from instruments.scpi_instrument import ScpiInstrument
from instruments.way import Way

_PATIENCE = 5_000_000_000
_ZEROING = 60_000_000_000
_READING_OUT = 30_000_000_000
_QUESTIONABLE = -231
_POLL = 2_000_000
_KEPT = ("WAV", "ATIM")


class KeysightN7745a:
    """A meter with four ports (N7744A) or eight (N7745A), numbered from 1.

    Readings are triggered, so that none of their light is older than the question; they are
    taken in watt. What is below `floor` is reported as `floor`; too much light is an error,
    never a number.

    A log averages over every sample without a gap, down to 1 µs, up to 1,000,000 samples.
    Its start is known from the command to its acknowledgement, some 0.1 to 1 ms; what lies
    between two events of one log, or of logs that were begun together, to the sample.

    Source: Keysight N77xx Series Programming Guide, edition 7.

    Args:
        name: the meter's name in the testbed.
        way: how it is reached.
        clock: the bench's clock.
        floor: least power that is reported, in dBm (option `floor`; -80 is a guess at the
            end of the specified range).
        log_range: upper end of the range of logs in dBm, 10 to -30 in tens (option
            `log_range`); a lower one has less noise and takes less light.
    """

    schemes = ("scpi", "visa")

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "KeysightN7745a":
        """The driver of the meter that `spec` describes."""
        options = spec.options
        floor, log_range = float(options.get("floor", -80)), float(options.get("log_range", 10))
        return cls(spec.name, way, clock, floor=floor, log_range=log_range)

    def __init__(
        self, name: str, way: Way, clock: Clock, *, floor: float = -80, log_range: float = 10
    ) -> None:
        self.name = name
        self._floor = floor
        self._log_range = log_range
        self._clock = clock
        self._scpi = ScpiInstrument(name, way, clock, meanings=MEANINGS)
        self._slots: tuple[int, ...] = ()
        self._averaging: dict[int, int] = {}

    def identity(self) -> Identity:
        """Ask for model, serial number and firmware."""
        return self._scpi.identity()

    def prepare(
        self, channels: Sequence[int], *, wavelength_nm: float, averaging: int | None = None
    ) -> None:
        """Set wavelength (nm) and averaging (ns, 1 µs to 10 s), and the range to automatic."""
        for n in self._known(channels):
            commands = [f":SENS{n}:POW:WAV {wavelength_nm:.4f}NM", f":SENS{n}:POW:RANG:AUTO 1"]
            if averaging is not None:
                commands.append(f":SENS{n}:POW:ATIM {averaging}NS")
            for command in commands:
                self._scpi.do(command)
            self._learn(n)

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Note wavelength and averaging of `channels`; what it returns puts them back."""
        settings = [f":SENS{n}:POW:{what}" for n in self._known(channels) for what in _KEPT]
        found = {setting: self._scpi.number(f"{setting}?") for setting in settings}

        def put_back() -> None:
            for setting, value in found.items():
                if self._scpi.number(f"{setting}?") != value:
                    self._scpi.do(f"{setting} {value:.9E}")
            self._averaging.clear()

        return put_back

    def zero(self, channels: Sequence[int]) -> None:
        """Take the dark offset of `channels`, some seconds each; raises `NotDoneError`."""
        for n in self._known(channels):
            command = f":SENS{n}:CORR:COLL:ZERO"
            self._scpi.do(command, _ZEROING)
            code = self._scpi.number(f"{command}?")
            if code:
                raise self._scpi.failed(
                    NotDoneError,
                    f"could not take the dark offset of channel {n} (code {code:g})",
                    command,
                    ("try", "cap the input: is there light on it?"),
                )

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Power at `ports` (dBm) in one trigger for all, over each port's averaging time."""
        for n in self._known(ports):
            if n not in self._averaging:
                self._learn(n)
        window = max(self._averaging[n] for n in ports)
        command = ":READ:POW:ALL?"
        asked = self._clock.now()
        timeout = _PATIENCE + 2 * max(self._averaging.values())
        watts = self._scpi.floats(command, len(self._slots), timeout).tolist()
        answered = self._clock.now()
        shown = dict(zip(self._slots, watts, strict=True))
        over = [n for n, watt in shown.items() if abs(watt) > NO_VALUE]
        for n in set(over).intersection(ports):
            raise over_range(
                self._scpi, command, n, "attenuate; prepare() sets the range to automatic"
            )
        for code, text in self._scpi.objections():
            # Ports that nobody asked for measure on their own, and may object as well: that an
            # average has not ended is never about a port that was triggered.
            if not ("NYetAcc" in text or (code == _QUESTIONABLE and over)):
                raise self._scpi.objected(command, code, text)
        return PowerReading(asked, answered, window, {n: dbm(shown[n], self._floor) for n in ports})

    def log(self, channel: int, *, samples: int, period: int) -> "PendingLog":
        """Begin a log of `samples` samples of `period` ns on one channel."""
        return PendingLog(self.log_together([channel], samples=samples, period=period), channel)

    def log_together(self, channels: Sequence[int], *, samples: int, period: int) -> "PendingLogs":
        """Begin logs of `channels` in one trigger, so that their samples are simultaneous.

        `period` is in ns. Ends any log before. Raises `DeniedError` for a number or a period that
        it cannot do.
        """
        known = self._known(channels)
        self._scpi.do(";".join(f":SENS{n}:FUNC:STAT LOGG,STOP" for n in self._slots))
        for n in known:
            for command in (
                f":INIT{n}:CONT 0",
                f":SENS{n}:POW:UNIT 1",
                f":SENS{n}:POW:GAIN:AUTO 0",  # best transient response
                f":SENS{n}:POW:RANG:AUTO 0",
                f":SENS{n}:POW:RANG {self._log_range:g}DBM",
                f":TRIG{n}:INP CME",
                f":SENS{n}:FUNC:PAR:LOGG {samples},{period}NS",
                f":SENS{n}:FUNC:STAT LOGG,STAR",
            ):
                self._scpi.do(command)
        before = self._clock.now()
        begun = self._scpi.do(f":INIT{known[0]}:IMM")
        start = Span(before, begun.latest)
        return PendingLogs(self._scpi, self._clock, known, start, samples, period)

    def troubles(self) -> list[str]:
        """What stood in its error queue, oldest first; it is empty now."""
        return self._scpi.troubles()

    def wire(self) -> list[str]:
        """The last lines of the session."""
        return self._scpi.wire()

    def close(self) -> None:
        """End the session."""
        self._scpi.close()

    def _learn(self, n: int) -> None:
        """Let readings of a port be triggered and in watt, and ask over what it averages."""
        self._scpi.do(f":INIT{n}:CONT 0")
        self._scpi.do(f":SENS{n}:POW:UNIT 1")
        self._averaging[n] = round(self._scpi.number(f":SENS{n}:POW:ATIM?") * 1e9)

    def _known(self, channels: Sequence[int]) -> list[int]:
        """`channels`, if the meter has them all; raises `DeniedError`."""
        command = ":FETC:POW:ALL:CONF?"
        if not self._slots:
            data = self._scpi.block(command)
            if not data or len(data) % 4:
                raise self._scpi.garbled(command, f"{len(data)} bytes", "list of slots")
            self._slots = tuple(slot for slot, _ in struct.iter_unpack("<HH", data))
        if unknown := sorted(set(channels) - set(self._slots)):
            raise self._scpi.cannot(f"no channel {unknown[0]}; there are {list(self._slots)}")
        return list(channels)


class PendingLogs:
    """Logs that were begun together."""

    def __init__(
        self,
        scpi: ScpiInstrument,
        clock: Clock,
        channels: Sequence[int],
        start: Span,
        samples: int,
        period: int,
    ) -> None:
        self._scpi = scpi
        self._clock = clock
        self._channels = channels
        self._start = start
        self._samples = samples
        self._period = period

    def result(self) -> Mapping[int, PowerLog]:
        """Wait until the logs are full and read them, by channel.

        Raises:
            NotDoneError: a log was ended before it was full.
            OverRangeError: some of the light was more than the range takes.
        """
        self._clock.sleep(self._start.latest + self._samples * self._period - self._clock.now())
        logs = {n: self._read(n) for n in self._channels}
        for n in self._channels:
            for command in (
                f":SENS{n}:FUNC:STAT LOGG,STOP",
                f":TRIG{n}:INP IGN",
                f":SENS{n}:POW:RANG:AUTO 1",
            ):
                self._scpi.do(command)
        return logs

    def _read(self, n: int) -> PowerLog:
        query, late = f":SENS{n}:FUNC:STAT?", self._clock.now() + _PATIENCE
        while not (state := self._scpi.ask(query)).endswith(",COMPLETE"):
            if not state.startswith("LOGGING_STABILITY,") or self._clock.now() > late:
                raise self._scpi.failed(
                    NotDoneError,
                    f"ended the log of channel {n} before it was full",
                    query,
                    ("answered", state),
                    ("try", "does another program, or its viewer, change settings meanwhile?"),
                )
            self._clock.sleep(_POLL)
        command = f":SENS{n}:FUNC:RES?"
        watt = self._scpi.floats(command, self._samples, _READING_OUT)
        beyond = int(np.count_nonzero(np.abs(watt) > NO_VALUE))
        if beyond:
            raise self._scpi.failed(
                OverRangeError,
                f"had more light on channel {n} than its range takes, "
                f"in {beyond:,} of {self._samples:,} samples",
                command,
                ("try", "attenuate, or say a higher `log_range:` in the testbed file"),
            )
        return PowerLog(self._start, self._period, watt * 1e3)


class PendingLog:
    """A log of one channel."""

    def __init__(self, logs: PendingLogs, channel: int) -> None:
        self._logs = logs
        self._channel = channel

    def result(self) -> PowerLog:
        """Wait until the log is full and read it; raises what `PendingLogs.result` does."""
        return self._logs.result()[self._channel]
