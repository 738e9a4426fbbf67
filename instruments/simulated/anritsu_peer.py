"""Answers like an Anritsu MP1900A with one generator and one detector; knows no driver.

Units, modules, ports and interfaces are chosen first, and what follows speaks to the chosen
one. A detector that has nothing to show shows dashes. Guessed: the numbers of the modules, and
what an unknown item of a result is answered with.
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
    ScpiCommands,
    ScpiDialogue,
    ScpiError,
    ScpiRequest,
    number,
    one,
)
from testbeds import InstrumentSpec

GENERATOR, DETECTOR = 1, 3
"""The slots of the modules."""
PATTERNS = frozenset({7, 9, 10, 11, 15, 20, 23, 31})
RATES = (2.4, 32.1)
"""Least and greatest bit rate in Gbit/s (of a 32G module)."""
DASHES = "-------"
SEARCH = 1_500_000_000

_NO_MODULE = (-241, "Hardware missing")
_CONFLICT = (-221, "Settings conflict")
_LAUNCH_DBM = 0.0


class AnritsuPeer:
    """One tester: what its generator sends leaves channel 1, and comes back there."""

    def __init__(self, around: Surroundings) -> None:
        assert isinstance(around.spec, InstrumentSpec)
        self._around = around
        self._clock = around.clock
        name = around.spec.name
        self._draws = around.chance.stream(f"{name}/errors")
        self._detector = ErrorDetector(
            name, 1, around.light, around.clock, self._draws, around.ambient
        )
        launch = around.spec.launch_max_dbm
        self._launch = 10 ** ((_LAUNCH_DBM if launch is None else launch) / 10)
        self._lengths = {GENERATOR: 15, DETECTOR: 15}
        self._rate = 10.0
        self._lit = False
        self._gate = "REP"
        self._period = 1_000_000_000
        self._running = False
        self._shown: Counted | None = None
        self._end: Scheduled | None = None
        self._searching = False
        self._found = 0
        identity = f"ANRITSU,MP1900A,{around.serial},8.00.00"
        self._commands = ScpiCommands(identity, errors=ErrorQueue(20, form='{code},"{text}"'))
        self._module = 0
        self._learn()

    def wires(self) -> Mapping[str, SessionFactory]:
        """SCPI on a raw socket."""
        return {"scpi": self._session}

    def _session(self, connection: PeerConnection, index: int) -> ScpiDialogue:
        owner = f"{self._around.spec.name}#{index:04d}"
        return ScpiDialogue(connection, self._clock, owner, self._commands)

    def _learn(self) -> None:
        add = self._commands.add
        add("UENTry:ID", lambda request: self._choose(request, {1}))
        add("MODule:ID", self._choose_module)
        add("PORT:ID", lambda request: self._choose(request, {1, 2}))
        add("INTerface:ID", lambda request: self._choose(request, {1}))
        add("SOURce:PATTern:TYPE", lambda request: self._type(request, GENERATOR))
        add("SENSe:PATTern:TYPE", lambda request: self._type(request, DETECTOR))
        add("SOURce:PATTern:PRBS:LENGth", lambda request: self._length(request, GENERATOR))
        add("SENSe:PATTern:PRBS:LENGth", lambda request: self._length(request, DETECTOR))
        add("SENSe:PATTern:PRBS:LENGth?", lambda _: str(self._lengths[DETECTOR]))
        add("SOURce:PATTern:PRBS:LENGth?", lambda _: str(self._lengths[GENERATOR]))
        add("OUTPut:DATA:BITRate", self._set_rate)
        add("OUTPut:DATA:BITRate?", lambda _: f"{self._rate:.6f}")
        add("SOURce:OUTPut:ASET", self._set_output)
        add("SOURce:OUTPut:ASET?", lambda _: str(int(self._lit)))
        add("SENSe:MEASure:EALarm:MODE", self._set_gate)
        add("SENSe:MEASure:EALarm:UNIT", self._set_unit)
        add("SENSe:MEASure:EALarm:PERiod", self._set_period)
        add("SENSe:MEASure:EALarm:STATe?", lambda _: str(int(self._running)))
        add("SENSe:MEASure:EALarm:ELAPsed?", lambda _: self._elapsed())
        add("SENSe:MEASure:STARt", lambda _: self._start())
        add("SENSe:MEASure:STOP", lambda _: self._stop())
        add("CALCulate:DATA:EALarm?", self._result)
        add("CALCulate:DATA:MONitor?", self._monitor)
        add("SYSTem:CFUNction", lambda request: self._word(request, {"ASE32", "AADJ32", "OFF"}))
        add("SENSe:MEASure:ASEarch:STARt", lambda _: self._search())
        add("SENSe:MEASure:ASEarch:STATe?", lambda _: str(1 if self._searching else self._found))

    # ------------------------------------------------------------------------ settings

    def _choose(self, request: ScpiRequest, known: set[int]) -> None:
        if number(one(request)) not in known:
            raise ScpiError(*_NO_MODULE)

    def _choose_module(self, request: ScpiRequest) -> None:
        self._choose(request, {GENERATOR, DETECTOR})
        self._module = int(number(one(request)))

    def _speaks_to(self, module: int) -> None:
        if self._module != module:
            raise ScpiError(*_NO_MODULE)

    def _type(self, request: ScpiRequest, module: int) -> None:
        self._speaks_to(module)
        self._word(request, {"PRBS"} if module == GENERATOR else {"PRBS", "DATA"})

    def _word(self, request: ScpiRequest, known: set[str]) -> None:
        if one(request).upper() not in known:
            raise ScpiError(*ILLEGAL_VALUE)

    def _length(self, request: ScpiRequest, module: int) -> None:
        self._speaks_to(module)
        length = number(one(request))
        if length not in PATTERNS:
            raise ScpiError(*OUT_OF_RANGE)
        self._detector.settings_changed()
        self._lengths[module] = int(length)
        same = self._lengths[GENERATOR] == self._lengths[DETECTOR]
        self._detector.expects_what_is_sent = same

    def _set_rate(self, request: ScpiRequest) -> None:
        self._speaks_to(GENERATOR)
        rate = number(one(request))
        if not RATES[0] <= rate <= RATES[1]:
            raise ScpiError(*OUT_OF_RANGE)
        self._detector.settings_changed()
        self._rate = rate

    def _set_output(self, request: ScpiRequest) -> None:
        self._speaks_to(GENERATOR)
        self._word(request, {"ON", "OFF", "1", "0"})
        self._lit = one(request).upper() in {"ON", "1"}
        self._around.light.emit(1, self._launch if self._lit else 0.0, self._clock.now())

    def _set_gate(self, request: ScpiRequest) -> None:
        self._speaks_to(DETECTOR)
        short = one(request).upper()[:3]
        if short not in {"REP", "SIN", "UNT"}:
            raise ScpiError(*ILLEGAL_VALUE)
        self._gate = short

    def _set_unit(self, request: ScpiRequest) -> None:
        self._speaks_to(DETECTOR)
        self._word(request, {"TIME"})

    def _set_period(self, request: ScpiRequest) -> None:
        self._speaks_to(DETECTOR)
        if len(request.arguments) != 4:
            raise ScpiError(-109, "Missing parameter")
        days, hours, minutes, seconds = (int(number(text)) for text in request.arguments)
        period = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if not 1 <= period <= 99 * 86_400:
            raise ScpiError(*OUT_OF_RANGE)
        self._period = period * 1_000_000_000

    # ---------------------------------------------------------------------- measurement

    def _start(self) -> None:
        self._speaks_to(DETECTOR)
        if self._end is not None:
            self._end.cancel()
        self._detector.rate = self._rate * 1e9
        self._detector.begin()
        self._running, self._shown = True, None
        if self._gate == "SIN":
            at = self._clock.now() + self._period
            self._end = self._clock.schedule(at, self._around.spec.name, self._finish)

    def _finish(self) -> None:
        self._shown = self._detector.counted()
        self._running = False
        self._end = None

    def _stop(self) -> None:
        self._speaks_to(DETECTOR)
        if self._end is not None:
            self._end.cancel()
        if self._running:
            self._finish()

    def _counted(self) -> Counted | None:
        return self._detector.counted() if self._running else self._shown

    def _elapsed(self) -> str:
        counted = self._counted()
        seconds = counted.elapsed // 1_000_000_000 if counted else 0
        minutes, hours = seconds // 60, seconds // 3600
        return f"{hours // 24},{hours % 24},{minutes % 60},{seconds % 60}"

    def _result(self, request: ScpiRequest) -> str:
        self._speaks_to(DETECTOR)
        item = one(request).strip("\"'").upper()
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

    def _monitor(self, request: ScpiRequest) -> str:
        item = one(request).strip("\"'").upper()
        has = {"PSLOSS": self._detector.has_sync, "CLOSS": self._detector.has_clock}
        if item not in has:
            raise ScpiError(*ILLEGAL_VALUE)
        return "Not Occur" if has[item] else "Occur"

    def _search(self) -> None:
        self._speaks_to(DETECTOR)
        if self._searching:
            raise ScpiError(*_CONFLICT)
        self._searching = True

        def end() -> None:
            self._searching = False
            self._found = 0 if self._detector.has_clock else -1

        self._clock.schedule(self._clock.now() + SEARCH, self._around.spec.name, end)
