"""Answers like a Keysight InfiniiVision X-series oscilloscope; knows nothing of any driver.

A photodiode stands at each input, whose option `volts_per_mw` says what it makes of light.
Commands and formats are those of the X-series Programmer's Guide and of PyMeasure's driver.
Left out: triggers other than forced ones, measurements, everything but normal channels.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from instruments.clock import Scheduled, Span
from instruments.simulated.detector import Exposure
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.scpi_peer import (
    ErrorQueue,
    ScpiCommands,
    ScpiDialogue,
    ScpiError,
    ScpiRequest,
    block,
    one,
)
from instruments.simulated.scpi_values import SECONDS, Choice, Setting

CHANNELS = 4
RECORDS = [a * 10**b for b in range(2, 7) for a in (1, 2, 5) if a * 10**b <= 4_000_000]
"""How many points a record can have."""
NOISE = 0.002
"""Standard deviation of a sample, relative to the full scale."""

_NO_RECORD = (-230, "Data corrupt or stale")
_CODES = 65536
_MIDDLE = 32768
_VOLTS = {"": 1.0, "V": 1.0, "MV": 1e-3}


class _Input:
    """One channel: a photodiode, and how its voltage is shown."""

    def __init__(self, around: Surroundings, number: int) -> None:
        self.number = number
        self.range = Setting(8.0, 8e-3, 80.0, _VOLTS)
        self.offset = Setting(0.0, -40.0, 40.0, _VOLTS)
        self.probe = Setting(1.0, 0.1, 10000.0, {"": 1.0, "X": 1.0})
        self.coupling = Choice("DC", ("AC", "DC"))
        self.display = Choice("1", ("0", "1"))
        self.limit = Choice("0", ("0", "1"))
        self.invert = Choice("0", ("0", "1"))
        self._exposure: Exposure | None = None
        self._codes: npt.NDArray[np.uint16] | None = None
        self._noise = around.chance.stream(f"{around.spec.name}.{number}/noise")
        self._volts_per_mw = float(around.spec.options.get("volts_per_mw", 1.0))
        self._light = around.light
        around.light.on_arrival(number, self._arrived)

    def _arrived(self, at: int) -> None:
        if self._exposure is not None:
            self._exposure.lit(at, self._light.level(self.number))

    def expose(self, now: int) -> None:
        """Begin to note the light."""
        self._exposure = Exposure(now, self._light.level(self.number))
        self._codes = None

    def codes(self, period: float, points: int, begin: int) -> npt.NDArray[np.uint16]:
        """The record from `begin` on, as codes: 1 and 65535 are beyond the screen."""
        if self._exposure is None:
            raise ScpiError(*_NO_RECORD)
        if self._codes is None or len(self._codes) != points:
            after = begin - self._exposure.start
            volts = self._exposure.means(period, points, after) * self._volts_per_mw
            volts += NOISE * self.range.value * self._noise.normals(points)
            codes = np.round((volts - self.offset.value) / self.step) + _MIDDLE
            self._codes = np.clip(codes, 1, _CODES - 1).astype(np.uint16)
        return self._codes

    @property
    def step(self) -> float:
        """Volts from one code to the next."""
        return self.range.value / _CODES


class KeysightInfiniivisionPeer:
    """A four-channel oscilloscope, for any number of sessions."""

    def __init__(self, around: Surroundings) -> None:
        self._name = around.spec.name
        self._clock = around.clock
        self._truth = around.truth
        self._inputs = {n: _Input(around, n) for n in range(1, CHANNELS + 1)}
        self.duration = Setting(1e-3, 1e-8, 500.0, SECONDS)
        self.position = Setting(0.0, -500.0, 500.0, SECONDS)
        self.points = Setting(1000, 100, 4_000_000, {"": 1.0})
        self.source = Choice("CHAN1", tuple(f"CHANnel{n}" for n in self._inputs))
        self.form = Choice("BYTE", ("BYTE", "WORD", "ASCii"))
        self.order = Choice("MSBF", ("MSBFirst", "LSBFirst"))
        self._record: tuple[float, float, int] | None = None
        self._armed = False
        self._completion: Scheduled | None = None
        self.commands = ScpiCommands(
            f"KEYSIGHT TECHNOLOGIES,DSO-X 3034T,{around.serial},07.50", errors=ErrorQueue(30)
        )
        self._understand()
        self._understand_records()

    def wires(self) -> Mapping[str, SessionFactory]:
        """SCPI on a raw socket."""
        return {"scpi": self.session}

    def session(self, connection: PeerConnection, index: int) -> ScpiDialogue:
        """A new client's session."""
        return ScpiDialogue(connection, self._clock, f"{self._name}#{index:04d}", self.commands)

    # ------------------------------------------------------------------------ settings

    def _understand(self) -> None:
        head = "CHANnel#:"
        self._of_input(f"{head}RANGe", lambda channel: channel.range)
        self._of_input(f"{head}OFFSet", lambda channel: channel.offset)
        self._of_input(f"{head}PROBe", lambda channel: channel.probe)
        self._of_input(f"{head}COUPling", lambda channel: channel.coupling)
        self._of_input(f"{head}DISPlay", lambda channel: channel.display)
        self._of_input(f"{head}BWLimit", lambda channel: channel.limit)
        self._of_input(f"{head}INVert", lambda channel: channel.invert)
        self._own("TIMebase:RANGe", self.duration)
        self._own("TIMebase:POSition", self.position)
        self._own("TIMebase:MODE", Choice("MAIN", ("MAIN", "WINDow", "XY", "ROLL")))
        self._own("TIMebase:REFerence", Choice("CENT", ("LEFT", "CENTer", "RIGHt")))
        types = ("NORMal", "AVERage", "HRESolution", "PEAK")
        self._own("ACQuire:TYPE", Choice("NORM", types))
        self._own("ACQuire:MODE", Choice("RTIM", ("RTIMe", "SEGMented")))
        self._own("TRIGger:SWEep", Choice("AUTO", ("AUTO", "NORMal")))
        self._own("WAVeform:SOURce", self.source)
        self._own("WAVeform:FORMat", self.form)
        self._own("WAVeform:BYTeorder", self.order)
        self._own("WAVeform:UNSigned", Choice("1", ("0", "1")))
        self._own("WAVeform:POINts", self.points)
        self._own("WAVeform:POINts:MODE", Choice("NORM", ("NORMal", "MAXimum", "RAW")))

    def _own(self, pattern: str, setting: Setting | Choice) -> None:
        self.commands.add(pattern, lambda request: setting.set(one(request)))
        self.commands.add(f"{pattern}?", lambda _: _answer(setting))

    def _of_input(self, pattern: str, setting: Callable[[_Input], Setting | Choice]) -> None:
        def change(request: ScpiRequest) -> None:
            setting(self._input(request)).set(one(request).replace("ON", "1").replace("OFF", "0"))

        self.commands.add(pattern, change)
        self.commands.add(f"{pattern}?", lambda request: _answer(setting(self._input(request))))

    def _input(self, request: ScpiRequest) -> _Input:
        if request.suffixes[0] not in self._inputs:
            raise ScpiError(-114, "Header suffix out of range")
        return self._inputs[request.suffixes[0]]

    # ------------------------------------------------------------------------- records

    def _understand_records(self) -> None:
        add = self.commands.add
        add("AUToscale", lambda _: None)
        for verb in ("RUN", "DIGitize"):
            add(verb, lambda _: self._trigger(arm=True))
        add("STOP", lambda _: self._stop())
        add("SINGle", lambda _: self._arm())
        add("TRIGger:FORCe", lambda _: self._trigger(arm=False))
        add("OPERegister:CONDition?", lambda _: f"{8 if self._busy else 0:+d}")
        add("WAVeform:PREamble?", lambda _: self._preamble())
        add("WAVeform:DATA?", lambda _: self._data())

    @property
    def _busy(self) -> bool:
        return self._armed or self._completion is not None

    def _stop(self) -> None:
        if self._completion is not None:
            self._completion.cancel()
        self._completion, self._armed = None, False

    def _arm(self) -> None:
        self._stop()
        self._armed = True
        for channel in self._inputs.values():
            channel.expose(self._clock.now())

    def _trigger(self, *, arm: bool) -> None:
        """The trigger; the record lies around it, as position and reference say."""
        if arm:
            self._arm()
        if not self._armed:
            return
        now = self._clock.now()
        self._armed = False
        begin = self.position.value - self.duration.value / 2
        self._record = (self.duration.value, begin, now)
        self._truth.note(self._name, "trigger", up=True, at=Span(now, now))
        end = now + round(max(begin + self.duration.value, 0.0) * 1e9)
        self._completion = self._clock.schedule(end, self._name, self._complete)

    def _complete(self) -> None:
        self._completion = None

    def _shape(self) -> tuple[int, float, float]:
        """How many points the record has, their distance and its beginning after the trigger."""
        if self._record is None or self._busy:
            raise ScpiError(*_NO_RECORD)
        points = max(number for number in RECORDS if number <= self.points.value)
        duration, begin, _ = self._record
        return points, duration / points, begin

    def _selected(self) -> _Input:
        return self._inputs[int(self.source.value.removeprefix("CHAN"))]

    def _preamble(self) -> str:
        points, step, begin = self._shape()
        channel = self._selected()
        form = {"BYTE": 0, "WORD": 1, "ASC": 4}[self.form.value]
        middle, volts = (128, 256) if self.form.value == "BYTE" else (_MIDDLE, _CODES)
        numbers = (step, begin), (channel.range.value / volts, channel.offset.value)
        (dx, x0), (dy, y0) = numbers
        return f"{form:+d},+3,{points:+d},+1,{dx:+.8E},{x0:+.8E},+0,{dy:+.8E},{y0:+.8E},{middle:+d}"

    def _data(self) -> bytes:
        points, step, begin = self._shape()
        assert self._record is not None
        channel = self._selected()
        codes = channel.codes(step * 1e9, points, self._record[2] + round(begin * 1e9))
        match self.form.value:
            case "BYTE":
                return block((codes >> 8).clip(1).astype(np.uint8).tobytes())
            case "WORD":
                return block(codes.astype("<u2" if self.order.value == "LSBF" else ">u2").tobytes())
        volts = (codes.astype(float) - _MIDDLE) * channel.step + channel.offset.value
        text = ",".join(f"{value:+.6E}" for value in volts).encode()
        return f"#8{len(text):08d}".encode() + text


def _answer(setting: Setting | Choice) -> str:
    return setting.value if isinstance(setting, Choice) else setting.answer()
