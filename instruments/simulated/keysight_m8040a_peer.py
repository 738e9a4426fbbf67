"""Answers like a Keysight M8040A behind its M8070B software; knows nothing of any driver.

Every command takes a location in quotes. Guessed: how four-level patterns are named, what a
second measurement of the same name is answered with, the stop command of a measurement.
"""

from collections.abc import Mapping

from instruments.clock import Scheduled
from instruments.simulated.bit_receiver import Counted, ErrorDetector
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.scpi_peer import (
    ILLEGAL_VALUE,
    OUT_OF_RANGE,
    ErrorQueue,
    Later,
    ScpiCommands,
    ScpiDialogue,
    ScpiError,
    ScpiRequest,
    number,
)
from testbeds import InstrumentSpec

CLOCK, OUT = "M1.CLKGEN", "M2.DATAOUT"
INPUTS = ("M3.DATAIN", "M4.DATAIN")
"""Of channels 1 and 2; the second is there where the testbed's file says `channels: 2`."""
PATTERNS = frozenset(f"2^{length}-1" for length in (7, 10, 11, 13, 15, 23, 31))
SYMBOL_RATES = (2e9, 64.2e9)
ALIGNMENT = 2_000_000_000

_LAUNCH_DBM = 0.0


class _Measurement:
    """One error ratio measurement, by name."""

    def __init__(self) -> None:
        self.location = ""
        self.duration = 0
        self.running = False
        self.shown: Counted | None = None
        self.end: Scheduled | None = None


class KeysightM8040aPeer:
    """One tester: what its output sends leaves channel 1, and comes back there or to channel 2."""

    def __init__(self, around: Surroundings) -> None:
        assert isinstance(around.spec, InstrumentSpec)
        self._around = around
        self._clock = around.clock
        name = around.spec.name
        self._detectors: dict[str, ErrorDetector] = {}
        for channel, location in enumerate(INPUTS[: around.spec.channels], 1):
            draws = around.chance.stream(f"{name}/errors" + f"/{channel}" * (channel > 1))
            self._detectors[location] = ErrorDetector(
                name, channel, around.light, around.clock, draws, around.ambient
            )
        launch = around.spec.launch_max_dbm
        self._launch = 10 ** ((_LAUNCH_DBM if launch is None else launch) / 10)
        self._sequence = dict.fromkeys((OUT, *self._detectors), "2^7-1")
        self._coding = dict.fromkeys((OUT, *self._detectors), "NRZ")
        self._symbols = 10e9
        self._output = self._all_outputs = False
        self._measurements: dict[str, _Measurement] = {}
        self._commands = ScpiCommands(
            f"Keysight Technologies,M8040A,{around.serial},8.6.190.1",
            errors=ErrorQueue(form='{code:+d},"{text}"'),
        )
        self._learn()

    def wires(self) -> Mapping[str, SessionFactory]:
        """SCPI on a raw socket, which HiSLIP may carry as well."""
        return {"scpi": self._session}

    def _session(self, connection: PeerConnection, index: int) -> ScpiDialogue:
        owner = f"{self._around.spec.name}#{index:04d}"
        return ScpiDialogue(connection, self._clock, owner, self._commands)

    def _learn(self) -> None:
        add = self._commands.add
        add("DATA:SEQuence:SET", self._set_sequence)
        add("DATA:LINE:VALue", self._set_coding)
        add("SOURce:FREQuency", self._set_symbols)
        add("SOURce:FREQuency?", lambda _: f"{self._symbols:.9E}")
        add("OUTPut:STATe", self._set_output)
        add("OUTPut:STATe?", self._get_output)
        add("OUTPut:GLOBal:STATe", self._set_all_outputs)
        add("OUTPut:GLOBal:STATe?", self._get_all_outputs)
        add("INPut:ALIGnment:EYE:AUTO", self._align)
        for word in ("CLOSs", "DLOSs"):
            add(f"STATus:INSTrument:{word}?", lambda r: str(int(not self._input(r).has_clock)))
        for word in ("SLOSs", "SALoss"):
            add(f"STATus:INSTrument:{word}?", lambda r: str(int(not self._input(r).has_sync)))
        add("PLUGin:ERATio:NEW", self._new)
        add("PLUGin:ERATio:CATalog?", lambda _: f'"{",".join(self._measurements)}"')
        add("PLUGin:ERATio:DELete", self._delete)
        add("PLUGin:ERATio:RESet", lambda r: self._stop(self._measurement(r)))
        add("PLUGin:ERATio:ACQuisition:ALOCation", self._locate)
        add("PLUGin:ERATio:ACQuisition:DURation", self._set_kind)
        add("PLUGin:ERATio:ACQuisition:TIME", self._set_time)
        add("PLUGin:ERATio:STARt", lambda r: self._start(self._measurement(r)))
        add("PLUGin:ERATio:STOP", lambda r: self._stop(self._measurement(r)))
        add("PLUGin:ERATio:RUN[:STATus]?", lambda r: str(int(self._measurement(r).running)))
        add("PLUGin:ERATio:FETCh[:DATA]?", self._fetch)

    # ------------------------------------------------------------------------ settings

    def _at(self, request: ScpiRequest, *known: str) -> str:
        location = request.arguments[0].strip("'\"").upper() if request.arguments else ""
        if location not in known:
            raise ScpiError(*ILLEGAL_VALUE)
        return location

    def _input(self, request: ScpiRequest) -> ErrorDetector:
        return self._detectors[self._at(request, *self._detectors)]

    def _settings_changed(self) -> None:
        for detector in self._detectors.values():
            detector.settings_changed()

    def _set_sequence(self, request: ScpiRequest) -> None:
        location = self._at(request, OUT, *self._detectors)
        if len(request.arguments) != 3 or request.arguments[1].upper() != "PRBS":
            raise ScpiError(*ILLEGAL_VALUE)
        pattern = request.arguments[2].strip("'\"").upper()
        if pattern.removesuffix("Q") not in PATTERNS:
            raise ScpiError(*OUT_OF_RANGE)
        self._settings_changed()
        self._sequence[location] = pattern
        self._compare()

    def _set_coding(self, request: ScpiRequest) -> None:
        location = self._at(request, OUT, *self._detectors)
        coding = request.arguments[-1].upper()
        if coding not in {"NRZ", "PAM4"}:
            raise ScpiError(*ILLEGAL_VALUE)
        self._settings_changed()
        self._coding[location] = coding
        self._compare()

    def _compare(self) -> None:
        sent = self._sequence[OUT], self._coding[OUT]
        for location, detector in self._detectors.items():
            expected = self._sequence[location], self._coding[location]
            detector.expects_what_is_sent = sent == expected

    def _set_symbols(self, request: ScpiRequest) -> None:
        self._at(request, CLOCK)
        symbols = number(request.arguments[-1])
        if not SYMBOL_RATES[0] <= symbols <= SYMBOL_RATES[1]:
            raise ScpiError(*OUT_OF_RANGE)
        self._settings_changed()
        self._symbols = symbols

    def _set_output(self, request: ScpiRequest) -> None:
        self._at(request, OUT)
        self._output = request.arguments[-1] == "1"
        self._emit()

    def _set_all_outputs(self, request: ScpiRequest) -> None:
        self._at(request, "M1.SYSTEM")
        self._all_outputs = request.arguments[-1] == "1"
        self._emit()

    def _get_output(self, request: ScpiRequest) -> str:
        self._at(request, OUT)
        return str(int(self._output))

    def _get_all_outputs(self, request: ScpiRequest) -> str:
        self._at(request, "M1.SYSTEM")
        return str(int(self._all_outputs))

    def _emit(self) -> None:
        lit = self._output and self._all_outputs
        self._around.light.emit(1, self._launch if lit else 0.0, self._clock.now())

    def _align(self, request: ScpiRequest) -> Later:
        detector = self._input(request)

        def end() -> None:
            if not detector.has_clock:
                self._commands.errors.put(-200, "Execution error;alignment failed")

        return Later(ALIGNMENT, None, end)

    # ---------------------------------------------------------------------- measurement

    def _named(self, request: ScpiRequest) -> str:
        return request.arguments[0].strip("'\"") if request.arguments else ""

    def _measurement(self, request: ScpiRequest) -> _Measurement:
        if self._named(request) not in self._measurements:
            raise ScpiError(*ILLEGAL_VALUE)
        return self._measurements[self._named(request)]

    def _new(self, request: ScpiRequest) -> None:
        name = self._named(request)
        if not name or name in self._measurements:
            raise ScpiError(*ILLEGAL_VALUE)
        self._measurements[name] = _Measurement()

    def _delete(self, request: ScpiRequest) -> None:
        self._stop(self._measurement(request))
        del self._measurements[self._named(request)]

    def _locate(self, request: ScpiRequest) -> None:
        location = request.arguments[-1].strip("'\"")
        if location.upper() not in self._detectors:
            raise ScpiError(*ILLEGAL_VALUE)
        self._measurement(request).location = location

    def _set_kind(self, request: ScpiRequest) -> None:
        self._measurement(request)
        if request.arguments[-1].upper() not in {"FTIM", "FTIME"}:
            raise ScpiError(*ILLEGAL_VALUE)

    def _set_time(self, request: ScpiRequest) -> None:
        seconds = number(request.arguments[-1])
        if not 0.001 <= seconds <= 1e6:
            raise ScpiError(*OUT_OF_RANGE)
        self._measurement(request).duration = round(seconds * 1e9)

    def _start(self, measurement: _Measurement) -> None:
        if not measurement.location or measurement.running:
            raise ScpiError(-221, "Settings conflict")
        location = measurement.location.upper()
        detector = self._detectors[location]
        detector.rate = self._symbols * (2 if self._coding[location] == "PAM4" else 1)
        detector.begin()
        measurement.running = True
        at = self._clock.now() + measurement.duration
        measurement.end = self._clock.schedule(
            at, self._around.spec.name, lambda: self._finish(measurement)
        )

    def _counted(self, measurement: _Measurement) -> Counted:
        return self._detectors[measurement.location.upper()].counted()

    def _finish(self, measurement: _Measurement) -> None:
        measurement.shown = self._counted(measurement)
        measurement.running = False

    def _stop(self, measurement: _Measurement) -> None:
        if measurement.end is not None:
            measurement.end.cancel()
        if measurement.running:
            self._finish(measurement)

    def _fetch(self, request: ScpiRequest) -> str:
        measurement = self._measurement(request)
        counted = self._counted(measurement) if measurement.running else measurement.shown
        if counted is None:
            return "()"
        ones, wrong_ones = counted.bits // 2, counted.errors // 2
        zeros, wrong_zeros = counted.bits - ones, counted.errors - wrong_ones
        seconds = self._clock.now() / 1e9
        return f"('{measurement.location}',{seconds:.6f},{ones},{zeros},{wrong_ones},{wrong_zeros})"
