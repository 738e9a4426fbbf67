"""Answers like a Keysight N7744A or N7745A power meter; knows nothing of any driver.

Commands, formats and errors are those of the N77xx Programming Guide, edition 7. Left out:
stability and min/max functions, loops and buffers of the log, references, stored settings.
"""

from collections.abc import Callable, Mapping

from instruments.simulated.keysight_meter_slot import ZEROING, MeterSlot
from instruments.simulated.keysight_power import power_block, slot_block
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.scpi_peer import (
    ILLEGAL_VALUE,
    MISSING_PARAMETER,
    ErrorQueue,
    Later,
    ScpiCommands,
    ScpiDialogue,
    ScpiError,
    ScpiRequest,
    block,
    one,
)
from instruments.simulated.scpi_values import Choice, Setting, boolean, keysight_float, when_done

_STATES = {
    "none": "NONE,PROGRESS",
    "armed": "LOGGING_STABILITY,PROGRESS",
    "running": "LOGGING_STABILITY,PROGRESS",
    "complete": "LOGGING_STABILITY,COMPLETE",
}


class KeysightN7745aPeer:
    """A multiport power meter: four ports as N7744A, eight as N7745A, for any number of sessions.

    How many follows from `channels` in the testbed's file.
    """

    def __init__(self, around: Surroundings) -> None:
        self._name = around.spec.name
        self._clock = around.clock
        count = 4 if getattr(around.spec, "channels", 8) <= 4 else 8
        model = "N7744A" if count == 4 else "N7745A"
        errors = ErrorQueue(30)
        self._slots = {n: MeterSlot(around, n, errors) for n in range(1, count + 1)}
        self._zeroing = False
        self.commands = ScpiCommands(
            f"Keysight Technologies,{model},{around.serial},V1.18",
            reset=self._reset,
            errors=errors,
        )
        self._understand_settings()
        self._understand_readings()
        self._understand_logs()

    def wires(self) -> Mapping[str, SessionFactory]:
        """SCPI on a raw socket."""
        return {"scpi": self.session}

    def session(self, connection: PeerConnection, index: int) -> ScpiDialogue:
        """A new client's session."""
        return ScpiDialogue(connection, self._clock, f"{self._name}#{index:04d}", self.commands)

    def _reset(self) -> None:
        for slot in self._slots.values():
            slot.reset()

    def _slot(self, request: ScpiRequest) -> MeterSlot:
        slot = self._slots.get(request.suffixes[0])
        if slot is None:
            raise ScpiError(-303, "Module slot empty or slot / channel invalid")
        if self._zeroing:
            raise ScpiError(-616, "Not allowed while ongoing zeroing")
        return slot

    # ------------------------------------------------------------------------ settings

    def _understand_settings(self) -> None:
        head = "SENSe#[:CHANnel#]:"
        self._number(f"{head}POWer:WAVelength", lambda slot: slot.wavelength)
        self._number(f"{head}POWer:ATIMe", lambda slot: slot.averaging)
        self._number(f"{head}CORRection[:LOSS][:INPut][:MAGNitude]", lambda slot: slot.correction)
        self.commands.add(f"{head}POWer:RANGe[:UPPer]?", self._range)  # the one in use
        self._number(f"{head}POWer:RANGe[:UPPer]", lambda slot: slot.range)
        self._flag(f"{head}POWer:RANGe:AUTO", "automatic")
        self._flag(f"{head}POWer:GAIN:AUTO", "automatic_gain")
        self.commands.add(f"{head}POWer:UNIT", self._set_unit)
        self.commands.add(
            f"{head}POWer:UNIT?", lambda request: f"{int(self._slot(request).in_watt):+d}"
        )
        self._word("TRIGger#[:CHANnel#]:INPut", lambda slot: slot.trigger_in)
        self._word("TRIGger#[:CHANnel#]:OUTPut", lambda slot: slot.trigger_out)
        self.commands.add("INITiate#[:CHANnel#]:CONTinuous", self._set_continuous)
        self.commands.add(
            "INITiate#[:CHANnel#]:CONTinuous?",
            lambda request: str(int(self._slot(request).continuous)),
        )
        self.commands.add(f"{head}CORRection:COLLect:ZERO", self._zero)
        self.commands.add(f"{head}CORRection:COLLect:ZERO:ALL", self._zero_all)
        self.commands.add(
            f"{head}CORRection:COLLect:ZERO?",
            lambda request: str(self._slot(request).zero_code),
        )
        self.commands.add(
            f"{head}CORRection:COLLect:ZERO:ALL?",
            lambda _: str(sum(s.zero_code << 4 * (s.number - 1) for s in self._slots.values())),
        )
        self.commands.add("SYSTem:PRESet", lambda _: self._reset())

    def _number(self, pattern: str, setting: Callable[[MeterSlot], Setting]) -> None:
        def change(request: ScpiRequest) -> None:
            slot = self._slot(request)
            setting(slot).set(one(request))
            slot.changed()

        self.commands.add(pattern, change)
        self.commands.add(
            f"{pattern}?", lambda request: setting(self._slot(request)).answer(request.arguments)
        )

    def _flag(self, pattern: str, attribute: str) -> None:
        def change(request: ScpiRequest) -> None:
            slot = self._slot(request)
            setattr(slot, attribute, boolean(one(request)))
            slot.changed()

        self.commands.add(pattern, change)
        self.commands.add(
            f"{pattern}?", lambda request: str(int(getattr(self._slot(request), attribute)))
        )

    def _word(self, pattern: str, choice: Callable[[MeterSlot], Choice]) -> None:
        self.commands.add(pattern, lambda request: choice(self._slot(request)).set(one(request)))
        self.commands.add(f"{pattern}?", lambda request: choice(self._slot(request)).value)

    def _range(self, request: ScpiRequest) -> str:
        return keysight_float(self._slot(request).range_dbm)

    def _set_unit(self, request: ScpiRequest) -> None:
        slot = self._slot(request)
        words = {"0": False, "DBM": False, "1": True, "W": True, "WATT": True}
        if one(request).upper() not in words:
            raise ScpiError(*ILLEGAL_VALUE)
        slot.in_watt = words[one(request).upper()]
        slot.changed()

    def _set_continuous(self, request: ScpiRequest) -> None:
        slot = self._slot(request)
        slot.measure_continuously(on=boolean(one(request)))

    def _zero(self, request: ScpiRequest) -> Later:
        return self._zeroed([self._slot(request)])

    def _zero_all(self, request: ScpiRequest) -> Later:
        self._slot(request)
        return self._zeroed(list(self._slots.values()))

    def _zeroed(self, slots: list[MeterSlot]) -> Later:
        def then() -> None:
            self._zeroing = False
            for slot in slots:
                slot.zero()

        for slot in slots:
            slot.refuse_while_logging()
        self._zeroing = True
        return Later(ZEROING, None, then)

    # ------------------------------------------------------------------------ readings

    def _understand_readings(self) -> None:
        for verb, one_slot, every in (
            ("FETCh#", self._fetch, self._fetch_all),
            ("READ#", self._read, self._read_all),
        ):
            head = f"{verb}[:CHANnel#][:SCALar]:POWer[:DC]"
            self.commands.add(f"{head}?", one_slot)
            self.commands.add(f"{head}:ALL?", every)
            self.commands.add(f"{head}:ALL:CONFig?", lambda _: self._layout())
        self.commands.add("FETCh#[:CHANnel#][:SCALar]:POWer[:DC]:ALL:CSV?", self._fetch_csv)
        self.commands.add("INITiate#[:CHANnel#][:IMMediate]", self._trigger)

    def _fetch(self, request: ScpiRequest) -> str:
        slot = self._slot(request)
        slot.refuse_while_logging()
        return slot.worded(slot.fetched())

    def _read(self, request: ScpiRequest) -> str | Later:
        slot = self._slot(request)
        slot.refuse_while_logging()
        if slot.continuous:
            return slot.worded(slot.fetched())
        exposure = slot.expose()
        return when_done(slot.averaging_ns, lambda: slot.worded(slot.measured(exposure)))

    def _fetch_all(self, request: ScpiRequest) -> bytes:
        return power_block(self._fetched(request))

    def _fetch_csv(self, request: ScpiRequest) -> str:
        return ",".join(map(keysight_float, self._fetched(request)))

    def _fetched(self, request: ScpiRequest) -> list[float]:
        self._slot(request)
        for slot in self._slots.values():
            slot.refuse_while_logging()
        return [slot.fetched() for slot in self._slots.values()]

    def _read_all(self, request: ScpiRequest) -> Later:
        self._slot(request)
        slots = self._slots.values()
        for slot in slots:
            slot.refuse_while_logging()
        exposures = {slot.number: slot.expose() for slot in slots if not slot.continuous}

        def answer() -> bytes:
            return power_block(
                [
                    slot.measured(exposures[slot.number])
                    if slot.number in exposures
                    else slot.fetched()
                    for slot in slots
                ]
            )

        longest = max((self._slots[number].averaging_ns for number in exposures), default=0)
        return when_done(longest, answer)

    def _layout(self) -> bytes:
        return slot_block(list(self._slots))

    # ---------------------------------------------------------------------------- logs

    def _understand_logs(self) -> None:
        head = "SENSe#[:CHANnel#]:FUNCtion:"
        self.commands.add(f"{head}PARameter:LOGGing", self._set_log)
        self.commands.add(f"{head}PARameter:LOGGing?", self._log_parameters)
        self.commands.add(f"{head}STATe", self._start_or_stop)
        self.commands.add(f"{head}STATe?", lambda request: _STATES[self._slot(request).state])
        self.commands.add(f"{head}RESult?", lambda request: block(self._slot(request).result()))

    def _set_log(self, request: ScpiRequest) -> None:
        if len(request.arguments) != 2:
            raise ScpiError(*MISSING_PARAMETER)
        self._slot(request).set_log(*request.arguments)

    def _log_parameters(self, request: ScpiRequest) -> str:
        slot = self._slot(request)
        return f"{round(slot.points.value):+d},{slot.period.answer()}"

    def _start_or_stop(self, request: ScpiRequest) -> None:
        slot = self._slot(request)
        if len(request.arguments) != 2:
            raise ScpiError(*MISSING_PARAMETER)
        function, verb = (argument.upper() for argument in request.arguments)
        if function not in {"LOGG", "LOGGING"} or verb not in {"STAR", "START", "STOP"}:
            raise ScpiError(*ILLEGAL_VALUE)
        if verb == "STOP":
            slot.stop()
        else:
            slot.start()

    def _trigger(self, request: ScpiRequest) -> Later | None:
        slot = self._slot(request)
        armed = [other for other in self._slots.values() if other.state == "armed"]
        if slot.continuous:
            raise ScpiError(-213, "Init ignored")
        if armed:  # in logging mode one trigger is for all
            now = self._clock.now()
            for other in armed:
                other.trigger(now)
            return None
        slot.refuse_while_logging()
        exposure = slot.expose()

        def then() -> None:
            slot.measured(exposure)

        return Later(slot.averaging_ns, None, then)
