"""Simulated Anritsu MP1900A bit error tester with one generator and one detector.

A client selects unit, module, port and interface first; the commands that follow concern the
selected one. A detector without a result shows dashes. Queries of settings reply in the form in
which they are set, as programs for MP2100A in Python and in C# compare them; error addition is
that of the former. Guessed: the numbers of the modules, and the reply to an unknown item of a
result.
"""

from lightrig.instruments.clock import Scheduled
from lightrig.instruments.simulated.protocols.commands import Constant, Query, command
from lightrig.instruments.simulated.protocols.scpi_device import ScpiDevice
from lightrig.instruments.simulated.protocols.scpi_values import (
    ILLEGAL_VALUE,
    OUT_OF_RANGE,
    ScpiError,
    number,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.bit_receiver import Counted, ErrorDetector
from lightrig.testbeds import InstrumentSpec

GENERATOR, DETECTOR = 1, 3
"""Slots of the modules."""
PATTERNS = frozenset({7, 9, 10, 11, 15, 20, 23, 31})
RATES = (2.4, 32.1)
"""Least and greatest bit rate in Gbit/s (of a 32G module)."""
DASHES = "-------"
SEARCH = 1_500_000_000

_NO_MODULE = (-241, "Hardware missing")
_CONFLICT = (-221, "Settings conflict")
_LAUNCH_DBM = 0.0


class SimulatedAnritsuMp1900a(ScpiDevice):
    """One tester: light of its generator leaves channel 1, and is received there."""

    error_queue_depth = 20
    error_format = '{code},"{text}"'

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.spec, InstrumentSpec)
        identity = f"ANRITSU,MP1900A,{context.serial},8.00.00"
        super().__init__(context.spec.name, context.clock, identity)
        self._light = context.light
        draws = context.chance.stream(f"{self.name}/errors")
        self._detector = ErrorDetector(
            self.name, 1, context.light, context.clock, draws, context.ambient, context.receiver
        )
        context.truth.note_counter(f"{self.name}.1", self._detector.true_ratio)
        launch = context.spec.launch_max_dbm
        self._launch = 10 ** ((_LAUNCH_DBM if launch is None else launch) / 10)
        self._module = 0
        self._lengths = {GENERATOR: 15, DETECTOR: 15}
        self._rate = 10.0
        self._expected_type = "PRBS"
        self._lit = False
        self._adds, self._variation, self._added = False, "REP", "E_3,1"
        self._gate = "REP"
        self._period = 1_000_000_000
        self._running = False
        self._shown: Counted | None = None
        self._end: Scheduled | None = None
        self._searching = False
        self._search_result = 0

    # ------------------------------------------------------------------------ selection

    @command("UENTry:ID", "INTerface:ID")
    def _select_first(self, text: str) -> None:
        _check_number(text, {1})

    @command("PORT:ID")
    def _select_port(self, text: str) -> None:
        _check_number(text, {1, 2})

    @command("MODule:ID")
    def _select_module(self, text: str) -> None:
        _check_number(text, {GENERATOR, DETECTOR})
        self._module = int(number(text))

    def _require(self, module: int) -> None:
        """Raise `ScpiError` unless `module` is selected."""
        if self._module != module:
            raise ScpiError(*_NO_MODULE)

    # ------------------------------------------------------------------------ settings

    @command("SOURce:PATTern:TYPE")
    def _set_sent_type(self, text: str) -> None:
        self._require(GENERATOR)
        _check_word(text, {"PRBS"})

    @command("SENSe:PATTern:TYPE")
    def _set_expected_type(self, text: str) -> None:
        self._require(DETECTOR)
        _check_word(text, {"PRBS", "DATA"})
        self._expected_type = text.upper()

    _query_sent_type = Constant("SOURce:PATTern:TYPE?", reply="PRBS")
    _query_expected_type = Query("SENSe:PATTern:TYPE?", reply=lambda self: self._expected_type)

    @command("SOURce:PATTern:PRBS:LENGth")
    def _set_sent_length(self, text: str) -> None:
        self._set_length(GENERATOR, text)

    @command("SENSe:PATTern:PRBS:LENGth")
    def _set_expected_length(self, text: str) -> None:
        self._set_length(DETECTOR, text)

    def _set_length(self, module: int, text: str) -> None:
        self._require(module)
        length = number(text)
        if length not in PATTERNS:
            raise ScpiError(*OUT_OF_RANGE)
        self._detector.settings_changed()
        self._lengths[module] = int(length)
        same = self._lengths[GENERATOR] == self._lengths[DETECTOR]
        self._detector.expects_what_is_sent = same

    @command("SOURce:PATTern:PRBS:LENGth?")
    def _query_sent_length(self) -> str:
        return str(self._lengths[GENERATOR])

    @command("SENSe:PATTern:PRBS:LENGth?")
    def _query_expected_length(self) -> str:
        return str(self._lengths[DETECTOR])

    @command("OUTPut:DATA:BITRate")
    def _set_rate(self, text: str) -> None:
        self._require(GENERATOR)
        rate = number(text)
        if not RATES[0] <= rate <= RATES[1]:
            raise ScpiError(*OUT_OF_RANGE)
        self._detector.settings_changed()
        self._rate = rate

    _query_rate = Query("OUTPut:DATA:BITRate?", reply=lambda self: f"{self._rate:.6f}")

    @command("SOURce:OUTPut:ASET")
    def _set_output(self, text: str) -> None:
        self._require(GENERATOR)
        _check_word(text, {"ON", "OFF", "1", "0"})
        self._lit = text.upper() in {"ON", "1"}
        self._light.emit(1, self._launch if self._lit else 0.0, self.clock.now())

    _query_output = Query("SOURce:OUTPut:ASET?", reply=lambda self: self._lit)

    # ------------------------------------------------------------------ error addition

    @command("SOURce:PATTern:EADDition:SET")
    def _set_addition(self, text: str) -> None:
        _check_word(text, {"ON", "OFF", "1", "0"})
        self._add_errors(adds=text.upper() in {"ON", "1"})

    @command("SOURce:PATTern:EADDition:VARiation")
    def _set_variation(self, text: str) -> None:
        _check_word(text[:3], {"REP", "SIN"})
        self._add_errors(variation="REP" if text[:3].upper() == "REP" else "SING")

    @command("SOURce:PATTern:EADDition:RATE")
    def _set_added(self, exponent: str, mantissa: str) -> None:
        if not exponent.upper().startswith("E_"):
            raise ScpiError(*ILLEGAL_VALUE)
        if not (2 <= number(exponent[2:]) <= 12 and 1 <= number(mantissa) <= 9):
            raise ScpiError(*OUT_OF_RANGE)
        self._add_errors(added=f"{exponent.upper()},{mantissa}")

    def _add_errors(self, **settings: bool | str) -> None:
        self._require(GENERATOR)
        self._detector.settings_changed()
        for name, value in settings.items():
            setattr(self, f"_{name}", value)
        exponent, mantissa = map(float, self._added.removeprefix("E_").split(","))
        repeats = self._adds and self._variation == "REP"
        self._detector.added_ratio = mantissa * 10**-exponent if repeats else 0.0

    @command("SOURce:PATTern:EADDition:SINGle")
    def _add_one_error(self) -> None:
        self._require(GENERATOR)
        if self._adds and self._variation == "SING":
            self._detector.add_error()

    _query_addition = Query("SOURce:PATTern:EADDition:SET?", reply=lambda self: self._adds)
    _query_variation = Query(
        "SOURce:PATTern:EADDition:VARiation?", reply=lambda self: self._variation
    )
    _query_added = Query("SOURce:PATTern:EADDition:RATE?", reply=lambda self: self._added)

    # ----------------------------------------------------------------------------- gate

    @command("SENSe:MEASure:EALarm:MODE")
    def _set_gate(self, text: str) -> None:
        self._require(DETECTOR)
        _check_word(text[:3], {"REP", "SIN", "UNT"})
        self._gate = text.upper()[:3]

    @command("SENSe:MEASure:EALarm:UNIT")
    def _set_unit(self, text: str) -> None:
        self._require(DETECTOR)
        _check_word(text, {"TIME"})

    @command("SENSe:MEASure:EALarm:PERiod")
    def _set_period(self, *fields: str) -> None:
        self._require(DETECTOR)
        if len(fields) != 4:
            raise ScpiError(-109, "Missing parameter")
        days, hours, minutes, seconds = (int(number(text)) for text in fields)
        period = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if not 1 <= period <= 99 * 86_400:
            raise ScpiError(*OUT_OF_RANGE)
        self._period = period * 1_000_000_000

    _query_gate = Query(
        "SENSe:MEASure:EALarm:MODE?",
        reply=lambda self: "SING" if self._gate == "SIN" else self._gate,
    )
    _query_unit = Constant("SENSe:MEASure:EALarm:UNIT?", reply="TIME")
    _query_period = Query("SENSe:MEASure:EALarm:PERiod?", reply=lambda self: _time(self._period))

    @command("SYSTem:CFUNction")
    def _set_function(self, text: str) -> None:
        _check_word(text, {"ASE32", "AADJ32", "OFF"})

    # ---------------------------------------------------------------------- measurement

    @command("SENSe:MEASure:STARt")
    def _start(self) -> None:
        self._require(DETECTOR)
        if self._end is not None:
            self._end.cancel()
        self._detector.rate = self._rate * 1e9
        self._detector.begin()
        self._running, self._shown = True, None
        if self._gate == "SIN":
            at = self.clock.now() + self._period
            self._end = self.clock.schedule(at, self.name, self._finish)

    def _finish(self) -> None:
        self._shown = self._detector.counted()
        self._running = False
        self._end = None

    @command("SENSe:MEASure:STOP")
    def _stop(self) -> None:
        self._require(DETECTOR)
        if self._end is not None:
            self._end.cancel()
        if self._running:
            self._finish()

    def _counted(self) -> Counted | None:
        return self._detector.counted() if self._running else self._shown

    _query_running = Query("SENSe:MEASure:EALarm:STATe?", reply=lambda self: self._running)

    @command("SENSe:MEASure:EALarm:ELAPsed?")
    def _query_elapsed(self) -> str:
        counted = self._counted()
        return _time(counted.elapsed if counted else 0)

    @command("CALCulate:DATA:EALarm?")
    def _query_result(self, item: str) -> str:
        self._require(DETECTOR)
        item = item.strip("\"'").upper()
        counted = self._counted()
        if counted is None:
            return f'"{DASHES}"'
        lost = counted.bits == 0
        match item.removeprefix("CURRENT:"):
            case "ER:TOTAL":
                return f'"{DASHES if lost else f"{counted.errors / counted.bits:.4E}"}"'
            case "EC:TOTAL":
                return f'"{DASHES if lost else counted.errors}"'
            case "CC:TOTAL":
                return f'"{DASHES if lost else counted.bits}"'
            case "AINTERVAL:PSLOSS":
                return f'"{-(-counted.sync_lost // 1_000_000_000)}"'
            case "AINTERVAL:CLOSS":
                return f'"{-(-counted.clock_lost // 1_000_000_000)}"'
        raise ScpiError(*ILLEGAL_VALUE)

    @command("CALCulate:DATA:MONitor?")
    def _query_monitor(self, item: str) -> str:
        item = item.strip("\"'").upper()
        has = {"PSLOSS": self._detector.has_sync, "CLOSS": self._detector.has_clock}
        if item not in has:
            raise ScpiError(*ILLEGAL_VALUE)
        return "Not Occur" if has[item] else "Occur"

    @command("SENSe:MEASure:ASEarch:STATe?")
    def _query_search(self) -> str:
        return str(1 if self._searching else self._search_result)

    @command("SENSe:MEASure:ASEarch:STARt")
    def _search(self) -> None:
        self._require(DETECTOR)
        if self._searching:
            raise ScpiError(*_CONFLICT)
        self._searching = True

        def end() -> None:
            self._searching = False
            self._search_result = 0 if self._detector.has_clock else -1

        self.clock.schedule(self.clock.now() + SEARCH, self.name, end)


def _time(nanoseconds: int) -> str:
    """Return days, hours, minutes and seconds."""
    seconds = nanoseconds // 1_000_000_000
    minutes, hours = seconds // 60, seconds // 3600
    return f"{hours // 24},{hours % 24},{minutes % 60},{seconds % 60}"


def _check_number(text: str, accepted: set[int]) -> None:
    if number(text) not in accepted:
        raise ScpiError(*_NO_MODULE)


def _check_word(text: str, accepted: set[str]) -> None:
    if text.upper() not in accepted:
        raise ScpiError(*ILLEGAL_VALUE)
