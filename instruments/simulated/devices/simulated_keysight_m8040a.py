"""Simulated Keysight M8040A bit error tester behind its M8070B software.

Every command names a location or a measurement, in quotes. Guessed: the names of four-level
patterns, the reply to a second measurement of the same name, the stop command of a measurement.
"""

from lightrig.instruments.clock import Scheduled
from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, ScpiDevice
from lightrig.instruments.simulated.protocols.scpi_values import (
    ILLEGAL_VALUE,
    OUT_OF_RANGE,
    ScpiError,
    number,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.bit_receiver import Counted, ErrorDetector
from lightrig.testbeds import InstrumentSpec

CLOCK, OUT, SYSTEM = "M1.CLKGEN", "M2.DATAOUT", "M1.SYSTEM"
INPUTS = ("M3.DATAIN", "M4.DATAIN")
"""Of channels 1 and 2; the second exists where the testbed's file states `channels: 2`."""
PATTERNS = frozenset(f"2^{length}-1" for length in (7, 10, 11, 13, 15, 23, 31))
SYMBOL_RATES = (2e9, 64.2e9)
ALIGNMENT = 2_000_000_000

_LAUNCH_DBM = 0.0


class _Measurement:
    """One error ratio measurement."""

    def __init__(self) -> None:
        self.location = ""
        self.duration = 0
        self.running = False
        self.shown: Counted | None = None
        self.end: Scheduled | None = None


class SimulatedKeysightM8040a(ScpiDevice):
    """One tester: light of its output leaves channel 1, and is received there or at channel 2."""

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.spec, InstrumentSpec)
        identity = f"Keysight Technologies,M8040A,{context.serial},8.6.190.1"
        super().__init__(context.spec.name, context.clock, identity)
        self._light = context.light
        self._detectors: dict[str, ErrorDetector] = {}
        for channel, location in enumerate(INPUTS[: context.spec.channels], 1):
            draws = context.chance.stream(f"{self.name}/errors" + f"/{channel}" * (channel > 1))
            self._detectors[location] = ErrorDetector(
                self.name,
                channel,
                context.light,
                context.clock,
                draws,
                context.ambient,
                context.receiver,
            )
            ratio = self._detectors[location].true_ratio
            context.truth.note_counter(f"{self.name}.{channel}", ratio)
        launch = context.spec.launch_max_dbm
        self._launch = 10 ** ((_LAUNCH_DBM if launch is None else launch) / 10)
        self._sequence = dict.fromkeys((OUT, *self._detectors), "2^7-1")
        self._coding = dict.fromkeys((OUT, *self._detectors), "NRZ")
        self._symbols = 10e9
        self._output = self._all_outputs = False
        self._measurements: dict[str, _Measurement] = {}

    # ------------------------------------------------------------------------ settings

    def _input(self, location: str) -> ErrorDetector:
        return self._detectors[_known(location, *self._detectors)]

    def _settings_change(self) -> None:
        """Count the bits until now by the settings until now; call before changing one."""
        for detector in self._detectors.values():
            detector.settings_changed()

    @command("DATA:SEQuence:SET")
    def _set_sequence(self, location: str, kind: str, pattern: str) -> None:
        location, pattern = _known(location, OUT, *self._detectors), _unquoted(pattern).upper()
        if kind.upper() != "PRBS":
            raise ScpiError(*ILLEGAL_VALUE)
        if pattern.removesuffix("Q") not in PATTERNS:
            raise ScpiError(*OUT_OF_RANGE)
        self._settings_change()
        self._sequence[location] = pattern
        self._compare()

    @command("DATA:LINE:VALue")
    def _set_coding(self, location: str, *fields: str) -> None:
        location, coding = _known(location, OUT, *self._detectors), fields[-1:]
        if coding not in {("NRZ",), ("PAM4",)}:
            raise ScpiError(*ILLEGAL_VALUE)
        self._settings_change()
        self._coding[location] = coding[0]
        self._compare()

    def _compare(self) -> None:
        sent = self._sequence[OUT], self._coding[OUT]
        for location, detector in self._detectors.items():
            expected = self._sequence[location], self._coding[location]
            detector.expects_what_is_sent = sent == expected
            detector.expect_levels(pam4=self._coding[location] == "PAM4")

    @command("SOURce:FREQuency")
    def _set_symbols(self, location: str, text: str) -> None:
        _known(location, CLOCK)
        symbols = number(text)
        if not SYMBOL_RATES[0] <= symbols <= SYMBOL_RATES[1]:
            raise ScpiError(*OUT_OF_RANGE)
        self._settings_change()
        self._symbols = symbols

    @command("SOURce:FREQuency?")
    def _query_symbols(self, *_: str) -> str:
        return f"{self._symbols:.9E}"

    @command("OUTPut:STATe")
    def _set_output(self, location: str, state: str) -> None:
        _known(location, OUT)
        self._output = state == "1"
        self._emit()

    @command("OUTPut:STATe?")
    def _query_output(self, location: str) -> str:
        _known(location, OUT)
        return str(int(self._output))

    @command("OUTPut:GLOBal:STATe")
    def _set_all_outputs(self, location: str, state: str) -> None:
        _known(location, SYSTEM)
        self._all_outputs = state == "1"
        self._emit()

    @command("OUTPut:GLOBal:STATe?")
    def _query_all_outputs(self, location: str) -> str:
        _known(location, SYSTEM)
        return str(int(self._all_outputs))

    def _emit(self) -> None:
        lit = self._output and self._all_outputs
        self._light.emit(1, self._launch if lit else 0.0, self.clock.now())

    @command("INPut:ALIGnment:EYE:AUTO")
    def _align(self, location: str, *_: str) -> DelayedReply:
        detector = self._input(location)

        def finish() -> None:
            if not detector.has_clock:
                self.errors.put(-200, "Execution error;alignment failed")

        return DelayedReply(ALIGNMENT, finish)

    @command("STATus:INSTrument:CLOSs?", "STATus:INSTrument:DLOSs?")
    def _query_clock_loss(self, location: str) -> str:
        return str(int(not self._input(location).has_clock))

    @command("STATus:INSTrument:SLOSs?", "STATus:INSTrument:SALoss?")
    def _query_sync_loss(self, location: str) -> str:
        return str(int(not self._input(location).has_sync))

    # ---------------------------------------------------------------------- measurement

    def _measurement(self, name: str) -> _Measurement:
        if _unquoted(name) not in self._measurements:
            raise ScpiError(*ILLEGAL_VALUE)
        return self._measurements[_unquoted(name)]

    @command("PLUGin:ERATio:NEW")
    def _new(self, name: str) -> None:
        name = _unquoted(name)
        if not name or name in self._measurements:
            raise ScpiError(*ILLEGAL_VALUE)
        self._measurements[name] = _Measurement()

    @command("PLUGin:ERATio:CATalog?")
    def _query_catalog(self) -> str:
        return f'"{",".join(self._measurements)}"'

    @command("PLUGin:ERATio:DELete")
    def _delete(self, name: str) -> None:
        self._end(self._measurement(name))
        del self._measurements[_unquoted(name)]

    @command("PLUGin:ERATio:ACQuisition:ALOCation")
    def _locate(self, name: str, location: str) -> None:
        location = _unquoted(location)
        if location.upper() not in self._detectors:
            raise ScpiError(*ILLEGAL_VALUE)
        self._measurement(name).location = location

    @command("PLUGin:ERATio:ACQuisition:DURation")
    def _set_kind(self, name: str, kind: str) -> None:
        self._measurement(name)
        if kind.upper() not in {"FTIM", "FTIME"}:
            raise ScpiError(*ILLEGAL_VALUE)

    @command("PLUGin:ERATio:ACQuisition:TIME")
    def _set_time(self, name: str, text: str) -> None:
        seconds = number(text)
        if not 0.001 <= seconds <= 1e6:
            raise ScpiError(*OUT_OF_RANGE)
        self._measurement(name).duration = round(seconds * 1e9)

    @command("PLUGin:ERATio:STARt")
    def _start(self, name: str) -> None:
        measurement = self._measurement(name)
        if not measurement.location or measurement.running:
            raise ScpiError(-221, "Settings conflict")
        location = measurement.location.upper()
        detector = self._detectors[location]
        detector.rate = self._symbols * (2 if self._coding[location] == "PAM4" else 1)
        detector.begin()
        measurement.running = True
        at = self.clock.now() + measurement.duration
        measurement.end = self.clock.schedule(at, self.name, lambda: self._finish(measurement))

    @command("PLUGin:ERATio:STOP", "PLUGin:ERATio:RESet")
    def _stop(self, name: str) -> None:
        self._end(self._measurement(name))

    @command("PLUGin:ERATio:RUN[:STATus]?")
    def _query_running(self, name: str) -> str:
        return str(int(self._measurement(name).running))

    def _counted(self, measurement: _Measurement) -> Counted:
        return self._detectors[measurement.location.upper()].counted()

    def _finish(self, measurement: _Measurement) -> None:
        measurement.shown = self._counted(measurement)
        measurement.running = False

    def _end(self, measurement: _Measurement) -> None:
        if measurement.end is not None:
            measurement.end.cancel()
        if measurement.running:
            self._finish(measurement)

    @command("PLUGin:ERATio:FETCh[:DATA]?")
    def _fetch(self, name: str) -> str:
        measurement = self._measurement(name)
        counted = self._counted(measurement) if measurement.running else measurement.shown
        if counted is None:
            return "()"
        ones, wrong_ones = counted.bits // 2, counted.errors // 2
        zeros, wrong_zeros = counted.bits - ones, counted.errors - wrong_ones
        seconds = self.clock.now() / 1e9
        return f"('{measurement.location}',{seconds:.6f},{ones},{zeros},{wrong_ones},{wrong_zeros})"


def _unquoted(text: str) -> str:
    return text.strip("'\"")


def _known(location: str, *locations: str) -> str:
    """Return a location without quotes; raise `ScpiError` unless it is one of `locations`."""
    location = _unquoted(location).upper()
    if location not in locations:
        raise ScpiError(*ILLEGAL_VALUE)
    return location
