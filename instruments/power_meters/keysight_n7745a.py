"""Keysight N7744A and N7745A multiport power meters."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import PowerLog, PowerReading
from lightrig.instruments.core.detected_power import (
    NO_VALUE,
    NoReadingError,
    OverRangeError,
    UnderRangeError,
    dbm,
    missing_value,
    no_value,
)
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import InstrumentError, NotDoneError
from lightrig.instruments.core.instrument import Option
from lightrig.instruments.core.keysight_n77 import MEANINGS
from lightrig.instruments.core.scpi_instrument import RestorableScpiInstrument, Setting
from lightrig.instruments.core.wire_facts import WireFact

_SAME_RANGE_DB = 0.5
_READING_TIMEOUT = 5_000_000_000
_ZEROING_TIMEOUT = 60_000_000_000
_TRANSFER_TIMEOUT = 30_000_000_000
_QUESTIONABLE = -231
_POLL = 2_000_000
_QUEUED = (
    "on or off: the Programming Guide has no value that is coerced, and a refused one stands in "
    "the error queue, which is read after the command"
)


class KeysightN7745a(RestorableScpiInstrument):
    """A meter with four ports (N7744A) or eight (N7745A), numbered from 1.

    Readings are triggered, so that none of their light is older than the query; they are
    taken in watt. What is below `floor` is reported as `floor`; too much light is an error,
    never a number.

    A log averages over every sample without a gap, down to 1 µs, up to 1,000,000 samples.
    Its start is known from the command to its acknowledgement, some 0.1 to 1 ms; the time
    between two events of one log, or of logs that were begun together, to the sample.

    Source: Keysight N77xx Series Programming Guide, edition 7.
    """

    schemes = ("scpi", "visa")
    wire_facts = (
        WireFact(
            "commands, logging, error codes", "Keysight N77xx Programming Guide, edition 7; LabExT"
        ),
        WireFact("least power that is reported (option)"),
    )
    error_meanings = MEANINGS
    floor = Option(
        float,
        -80.0,
        "least power that is reported, in dBm (the end of the specified range)",
    )
    log_range = Option(
        float,
        10.0,
        "upper end of the range of logs in dBm, 10 to -30 in tens; a lower one has less noise "
        "and takes less light",
    )
    wavelength = Setting(
        float,
        ":SENS{channel}:POW:WAV",
        "wavelength",
        unit="nm",
        argument="{:.4f}NM",
        scale=1e9,
        tolerance=0.01,
        verified=True,
        advice="query its MIN and MAX: it corrects for no other wavelength",
    )
    averaging = Setting(
        float,
        ":SENS{channel}:POW:ATIM",
        "averaging",
        unit="ns",
        argument="{:.0f}NS",
        scale=1e9,
        verified=False,
        reason="the meter rounds it; the window of a reading is the time that it reports",
    )
    unverified: ClassVar[Mapping[str, str]] = {
        ":SENS*:POW:RANG:AUTO *": _QUEUED,
        ":SENS*:POW:UNIT 1": _QUEUED,
        ":SENS*:POW:GAIN:AUTO 0": _QUEUED,
        ":INIT*:CONT 0": "a reading that is not triggered is an error (-213)",
        ":TRIG*:INP *": "a log that no trigger begins does not end, which is an error",
    }

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._ports: tuple[int, ...] = ()
        self._averaging: dict[int, int] = {}

    def address_of(self, channel: int) -> int:
        """Return `channel`; raises `DeniedError` for one that the meter does not have."""
        if channel not in self._all_ports():
            raise self.refused(f"no channel {channel}; there are {list(self._ports)}")
        return channel

    def restored(self) -> None:
        """Forget the averaging times, which may be others now."""
        self._averaging.clear()

    def prepare(
        self, channels: Sequence[int], *, wavelength_nm: float, averaging: int | None = None
    ) -> None:
        """Set wavelength (nm) and averaging (ns, 1 µs to 10 s), and the range to automatic."""
        for n in self._checked(channels):
            self.wavelength.set(wavelength_nm, n)
            self.write(f":SENS{n}:POW:RANG:AUTO 1")
            if averaging is not None:
                self.averaging.set(averaging, n)
            self._configure(n)

    def zero(self, channels: Sequence[int]) -> None:
        """Take the dark offset of `channels`, some seconds each; raises `NotDoneError`."""
        for n in self._checked(channels):
            command = f":SENS{n}:CORR:COLL:ZERO"
            self.write(command, _ZEROING_TIMEOUT)
            code = self.query_number(f"{command}?")
            if code:
                raise self.failed(
                    NotDoneError,
                    f"could not take the dark offset of channel {n} (code {code:g})",
                    command,
                    ("try", "cap the input: is there light on it?"),
                )

    def power(self, ports: Sequence[int]) -> PowerReading:
        """Return the power at `ports` (dBm), in one trigger for all."""
        for n in self._checked(ports):
            if n not in self._averaging:
                self._configure(n)
        window = max(self._averaging[n] for n in ports)
        command = ":READ:POW:ALL?"
        asked = self.clock.now()
        timeout = _READING_TIMEOUT + 2 * max(self._averaging.values())
        watts = self.query_floats(command, len(self._ports), timeout).tolist()
        answered = self.clock.now()
        shown = dict(zip(self._ports, watts, strict=True))
        over = [n for n, watt in shown.items() if missing_value(watt) is not None]
        for n in sorted(set(over).intersection(ports)):
            advice = "attenuate; prepare() sets the range to automatic"
            raise no_value(self, command, n, shown[n], advice)
        for code, text in self.read_error_queue():
            # Ports that were not requested measure freely and may report errors as well: that an
            # average has not ended is never about a port that was triggered.
            if not ("NYetAcc" in text or (code == _QUESTIONABLE and over)):
                raise self.queued_error(command, code, text)
        return PowerReading(asked, answered, window, {n: dbm(shown[n], self.floor) for n in ports})

    def log(self, channel: int, *, samples: int, period: int) -> "PendingLog":
        """Begin a log of `samples` samples of `period` ns on one channel."""
        return PendingLog(self.log_together([channel], samples=samples, period=period), channel)

    def log_together(self, channels: Sequence[int], *, samples: int, period: int) -> "PendingLogs":
        """Begin logs of `channels` in one trigger, so that their samples are simultaneous.

        `period` is in ns. Ends any log before. Raises `DeniedError` for a number or a period that
        it cannot do.
        """
        known = self._checked(channels)
        self.write(";".join(f":SENS{n}:FUNC:STAT LOGG,STOP" for n in self._ports))
        for n in known:
            for command in (
                f":INIT{n}:CONT 0",
                f":SENS{n}:POW:UNIT 1",
                f":SENS{n}:POW:GAIN:AUTO 0",  # best transient response
                f":SENS{n}:POW:RANG:AUTO 0",
                f":SENS{n}:POW:RANG {self.log_range:g}DBM",
                f":TRIG{n}:INP CME",
                f":SENS{n}:FUNC:PAR:LOGG {samples},{period}NS",
            ):
                self.write(command)
            self._confirm_log(n, samples, period)
            self.write(f":SENS{n}:FUNC:STAT LOGG,STAR")
        before = self.clock.now()
        begun = self.write(f":INIT{known[0]}:IMM")
        start = Span(before, begun.latest)
        return PendingLogs(self, known, start, samples, period)

    def _confirm_log(self, n: int, samples: int, period: int) -> None:
        """Raise `NotDoneError` where a port took another range, number of samples, or period."""
        query = f":SENS{n}:POW:RANG?"
        taken = self.query_number(query)
        if abs(taken - self.log_range) > _SAME_RANGE_DB:
            stated, found = f"{self.log_range:g} dBm", f"{taken:g} dBm"
            raise self._not_taken(query, "range of a log", n, stated, found)
        query = f":SENS{n}:FUNC:PAR:LOGG?"
        number, _, seconds = self.query(query).partition(",")
        try:
            found_samples, found_period = round(float(number)), float(seconds) * 1e9
        except ValueError:
            raise self.garbled(query, f"{number},{seconds}", "parameters of a log") from None
        if found_samples != samples or abs(found_period - period) * samples > period / 2:
            stated = f"{samples} samples of {period} ns"
            found = f"{found_samples} of {found_period:g} ns"
            raise self._not_taken(query, "log", n, stated, found)

    def _not_taken(
        self, query: str, about: str, n: int, stated: str, found: str
    ) -> InstrumentError:
        return self.failed(
            NotDoneError, f"accepted {stated} as {about} of channel {n}, but reports {found}", query
        )

    def _configure(self, n: int) -> None:
        """Have readings of a port be triggered and in watt; note over what it averages."""
        self.write(f":INIT{n}:CONT 0")
        self.write(f":SENS{n}:POW:UNIT 1")
        self._averaging[n] = round(self.averaging.get(n))

    def _checked(self, channels: Sequence[int]) -> list[int]:
        return [self.address_of(channel) for channel in channels]

    def _all_ports(self) -> tuple[int, ...]:
        """Return the ports that the meter has, in the order of its readings."""
        if not self._ports:
            command = ":FETC:POW:ALL:CONF?"
            data = self.query_block(command)
            if not data or len(data) % 4:
                raise self.garbled(command, f"{len(data)} bytes", "list of slots")
            self._ports = tuple(slot for slot, _ in struct.iter_unpack("<HH", data))
        return self._ports


@dataclass(eq=False)
class PendingLogs:
    """Logs that were begun together."""

    _meter: KeysightN7745a
    _channels: Sequence[int]
    _start: Span
    _samples: int
    _period: int

    def result(self) -> Mapping[int, PowerLog]:
        """Wait until the logs are full and read them, by channel.

        Raises:
            NotDoneError: a log was ended before it was full.
            OverRangeError: some of the light was more than the range takes.
        """
        self._meter.clock.sleep(
            self._start.latest + self._samples * self._period - self._meter.clock.now()
        )
        logs = {n: self._read(n) for n in self._channels}
        for n in self._channels:
            for command in (
                f":SENS{n}:FUNC:STAT LOGG,STOP",
                f":TRIG{n}:INP IGN",
                f":SENS{n}:POW:RANG:AUTO 1",
            ):
                self._meter.write(command)
        return logs

    def _read(self, n: int) -> PowerLog:
        query, late = f":SENS{n}:FUNC:STAT?", self._meter.clock.now() + _READING_TIMEOUT
        while not (state := self._meter.query(query)).endswith(",COMPLETE"):
            if not state.startswith("LOGGING_STABILITY,") or self._meter.clock.now() > late:
                raise self._meter.failed(
                    NotDoneError,
                    f"ended the log of channel {n} before it was full",
                    query,
                    ("answered", state),
                    ("try", "does another program, or its viewer, change settings meanwhile?"),
                )
            self._meter.clock.sleep(_POLL)
        command = f":SENS{n}:FUNC:RES?"
        watt = self._meter.query_floats(command, self._samples, _TRANSFER_TIMEOUT)
        missing = [missing_value(one) for one in watt[~(np.abs(watt) <= NO_VALUE)].tolist()]
        for kind, problem in (
            (NoReadingError, "no reading"),
            (UnderRangeError, "less light than its range shows"),
        ):
            if count := missing.count(kind):
                raise self._meter.failed(
                    kind,
                    f"had {problem} on channel {n}, in {count:,} of {self._samples:,} samples",
                    command,
                    ("try", "state a lower `log_range:` in the testbed file: is there light?"),
                )
        if beyond := len(missing):
            raise self._meter.failed(
                OverRangeError,
                f"had more light on channel {n} than its range takes, "
                f"in {beyond:,} of {self._samples:,} samples",
                command,
                ("try", "attenuate, or state a higher `log_range:` in the testbed file"),
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
