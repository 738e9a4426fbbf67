"""Simulated Keysight InfiniiVision X-series oscilloscope.

A photodiode is connected to each input; the option `volts_per_mw` states its responsivity.
Commands and formats are those of the X-series Programmer's Guide and of PyMeasure's driver.
Left out: triggers other than forced ones, measurements, everything but normal channels. Chosen:
that a query of a record that does not exist is answered, with no points or an empty block, beside
the error that it puts into the queue; and the content of a stored setup.
"""

import json
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from lightrig.instruments.clock import Scheduled, Span
from lightrig.instruments.simulated.devices.keysight_lightwave import KeysightDevice, KeysightNode
from lightrig.instruments.simulated.protocols.commands import Query, command
from lightrig.instruments.simulated.protocols.scpi_device import block
from lightrig.instruments.simulated.protocols.scpi_values import (
    SECONDS,
    Choice,
    Flag,
    Number,
    ScpiError,
    ScpiNode,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.detector import Exposure

CHANNELS = 4
RECORDS = [a * 10**b for b in range(2, 7) for a in (1, 2, 5) if a * 10**b <= 4_000_000]
"""Possible numbers of points of a record."""
NOISE = 0.002
"""Standard deviation of a sample, relative to the full scale."""

_NO_RECORD = (-230, "Data corrupt or stale")
_INVALID_BLOCK = (-161, "Invalid block data")
_ILLEGAL_FORMAT = (-224, "Illegal parameter value")
_ROWS, _COLUMNS = 480, 640
_CODES = 65536
_MIDDLE = 32768
_VOLTS = {"": 1.0, "V": 1.0, "MV": 1e-3}


class _Scale(Number):
    """A parameter for each of the divisions that the screen has."""

    def __init__(self, pattern: str, whole: Number, divisions: int) -> None:
        limits = whole.range
        least, greatest = limits.minimum / divisions, limits.maximum / divisions
        default = whole.default / divisions
        super().__init__(
            pattern, default=default, minimum=least, maximum=greatest, units=limits.units
        )
        self._whole, self._divisions = whole, divisions

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return self._whole.__get__(instance, owner) / self._divisions

    def __set__(self, instance: ScpiNode, value: float) -> None:
        self._whole.__set__(instance, value * self._divisions)


class _Input(KeysightNode):
    """One channel: a photodiode, and how its voltage is shown."""

    full_scale = Number("CHANnel#:RANGe", default=8.0, minimum=8e-3, maximum=80.0, units=_VOLTS)
    scale = _Scale("CHANnel#:SCALe", full_scale, 8)
    offset = Number("CHANnel#:OFFSet", default=0.0, minimum=-40.0, maximum=40.0, units=_VOLTS)
    probe = Number(
        "CHANnel#:PROBe", default=1.0, minimum=0.1, maximum=10000.0, units={"": 1.0, "X": 1.0}
    )
    coupling = Choice("CHANnel#:COUPling", default="DC", names=("AC", "DC"))
    display = Flag("CHANnel#:DISPlay", default=True)
    limit = Flag("CHANnel#:BWLimit", default=False)
    invert = Flag("CHANnel#:INVert", default=False)
    impedance = Choice("CHANnel#:IMPedance", default="ONEM", names=("ONEMeg", "FIFTy"))
    unit = Choice("CHANnel#:UNITs", default="VOLT", names=("VOLT", "AMPere"))
    skew = Number("CHANnel#:PROBe:SKEW", default=0.0, minimum=-1e-7, maximum=1e-7, units=SECONDS)

    def __init__(self, context: DeviceContext, number: int) -> None:
        super().__init__()
        self.number = number
        self.label = str(number)
        self._exposure: Exposure | None = None
        self._codes: npt.NDArray[np.uint16] | None = None
        self._noise = context.chance.stream(f"{context.spec.name}.{number}/noise")
        self._volts_per_mw = float(context.spec.options.get("volts_per_mw", 1.0))
        self._light = context.light
        context.light.on_arrival(number, self._on_light)

    @command("CHANnel#:LABel")
    def _set_label(self, text: str) -> None:
        self.label = text.strip("'\"")[:32]

    _query_label = Query("CHANnel#:LABel?", reply=lambda self: f'"{self.label}"')

    @command("CHANnel#?")
    def _query_all(self) -> str:
        return (
            f":CHAN{self.number}:RANG {self.full_scale:+.2E};OFFS {self.offset:+.5E};"
            f"COUP {self.coupling};IMP {self.impedance};DISP {self.display:d};"
            f'BWL {self.limit:d};INV {self.invert:d};LAB "{self.label}";UNIT {self.unit};'
            f"PROB {self.probe:+.2E};PROB:SKEW {self.skew:+.2E};STYP SING"
        )

    def _on_light(self, at: int) -> None:
        if self._exposure is not None:
            self._exposure.lit(at, self._light.level(self.number))

    def expose(self, now: int) -> None:
        """Begin to record the light."""
        self._exposure = Exposure(now, self._light.level(self.number))
        self._codes = None

    def codes(self, period: float, points: int, begin: int) -> npt.NDArray[np.uint16]:
        """Return the record from `begin` on, as codes: 1 and 65535 are beyond the screen."""
        if self._exposure is None:
            raise ScpiError(*_NO_RECORD)
        if self._codes is None or len(self._codes) != points:
            after = begin - self._exposure.start
            volts = self._exposure.means(period, points, after) * self._volts_per_mw
            volts += NOISE * self.full_scale * self._noise.normals(points)
            codes = np.round((volts - self.offset) / self.step) + _MIDDLE
            self._codes = np.clip(codes, 1, _CODES - 1).astype(np.uint16)
        return self._codes

    @property
    def is_exposed(self) -> bool:
        """Whether it has recorded."""
        return self._exposure is not None

    @property
    def step(self) -> float:
        """Voltage from one code to the next."""
        return self.full_scale / _CODES


class SimulatedKeysightInfiniivision(KeysightDevice):
    """A four-channel oscilloscope."""

    channel_type = _Input

    duration = Number("TIMebase:RANGe", default=1e-3, minimum=1e-8, maximum=500.0, units=SECONDS)
    time_scale = _Scale("TIMebase:SCALe", duration, 10)
    position = Number(
        "TIMebase:POSition", default=0.0, minimum=-500.0, maximum=500.0, units=SECONDS
    )
    timebase_mode = Choice("TIMebase:MODE", default="MAIN", names=("MAIN", "WINDow", "XY", "ROLL"))
    reference = Choice("TIMebase:REFerence", default="CENT", names=("LEFT", "CENTer", "RIGHt"))
    acquisition = Choice(
        "ACQuire:TYPE", default="NORM", names=("NORMal", "AVERage", "HRESolution", "PEAK")
    )
    acquisition_mode = Choice("ACQuire:MODE", default="RTIM", names=("RTIMe", "SEGMented"))
    sweep = Choice("TRIGger:SWEep", default="AUTO", names=("AUTO", "NORMal"))
    source = Choice(
        "WAVeform:SOURce",
        default="CHAN1",
        names=tuple(f"CHANnel{number}" for number in range(1, CHANNELS + 1)),
    )
    form = Choice("WAVeform:FORMat", default="BYTE", names=("BYTE", "WORD", "ASCii"))
    order = Choice("WAVeform:BYTeorder", default="MSBF", names=("MSBFirst", "LSBFirst"))
    unsigned = Flag("WAVeform:UNSigned", default=True)
    points = Number("WAVeform:POINts", default=1000, minimum=100, maximum=4_000_000)
    points_mode = Choice("WAVeform:POINts:MODE", default="NORM", names=("NORMal", "MAXimum", "RAW"))

    def __init__(self, context: DeviceContext) -> None:
        identity = f"KEYSIGHT TECHNOLOGIES,DSO-X 3034T,{context.serial},07.50"
        super().__init__(context.spec.name, context.clock, identity)
        self._truth = context.truth
        self._inputs = {number: _Input(context, number) for number in range(1, CHANNELS + 1)}
        self._record: tuple[float, float, int] | None = None
        self._armed = False
        self._completion: Scheduled | None = None

    def channel(self, suffixes: tuple[int, ...]) -> _Input:
        """Return the input of a number; raise `ScpiError`."""
        if suffixes[0] not in self._inputs:
            raise ScpiError(-114, "Header suffix out of range")
        return self._inputs[suffixes[0]]

    def reset(self) -> None:
        """Stop, and set all parameters to their defaults."""
        self._stop()
        self.reset_parameters()
        for channel in self._inputs.values():
            channel.reset_parameters()

    @command("TIMebase?")
    def _query_timebase(self) -> str:
        return (
            f":TIM:MODE {self.timebase_mode};REF {self.reference};"
            f"MAIN:RANG {self.duration:+.2E};POS {self.position:+.1E}"
        )

    @command("SYSTem:PRESet")
    def _preset(self) -> None:
        self.reset()

    @command("SYSTem:SETup?")
    def _query_setup(self) -> bytes:
        """Return the settings in a block whose bytes no terminator or separator is among."""
        nodes = [self, *self._inputs.values()]
        return block(json.dumps([node.values for node in nodes]).encode().hex().encode())

    @command("SYSTem:SETup")
    def _set_setup(self, text: str) -> None:
        try:
            digits = int(text[1])
            stored = json.loads(bytes.fromhex(text[2 + digits :]))
            for node, values in zip([self, *self._inputs.values()], stored, strict=True):
                node.values = dict(values)
        except (ValueError, IndexError, TypeError) as error:
            raise ScpiError(*_INVALID_BLOCK) from error

    @command("AUToscale")
    def _autoscale(self, *channels: str) -> None:
        """Ignored: the simulated scales stay as they are."""

    # ------------------------------------------------------------------------- records

    @property
    def _busy(self) -> bool:
        return self._armed or self._completion is not None

    @command("OPERegister:CONDition?")
    def _query_condition(self) -> str:
        return f"{8 if self._busy else 0:+d}"

    @command("STOP")
    def _stop(self) -> None:
        if self._completion is not None:
            self._completion.cancel()
        self._completion, self._armed = None, False

    @command("SINGle")
    def _arm(self) -> None:
        self._stop()
        self._armed = True
        for channel in self._inputs.values():
            channel.expose(self.clock.now())

    @command("RUN", "DIGitize")
    def _run(self, *channels: str) -> None:
        self._arm()
        self._trigger()

    @command("TRIGger:FORCe")
    def _trigger(self) -> None:
        """Trigger; position and reference place the record relative to it."""
        if not self._armed:
            return
        now = self.clock.now()
        self._armed = False
        begin = self.position - self.duration / 2
        self._record = (self.duration, begin, now)
        self._truth.note(self.name, "trigger", up=True, at=Span(now, now))
        end = now + round(max(begin + self.duration, 0.0) * 1e9)
        self._completion = self.clock.schedule(end, self.name, self._complete)

    def _complete(self) -> None:
        self._completion = None

    def _shape(self) -> tuple[int, float, float]:
        """Return number of points, their distance, and the first one's time after the trigger."""
        if self._record is None or self._busy:
            raise ScpiError(*_NO_RECORD)
        points = max(number for number in RECORDS if number <= self.points)
        duration, begin, _ = self._record
        return points, duration / points, begin

    def _selected(self) -> _Input:
        return self._inputs[int(self.source.removeprefix("CHAN"))]

    @command("DISPlay:DATA?")
    def _query_screen(self, form: str = "PNG", _palette: str = "COLor") -> bytes:
        """Return an image of the displayed traces; without a record there are none."""
        if form.upper() != "PNG":
            raise ScpiError(*_ILLEGAL_FORMAT)
        pixels = np.zeros((_ROWS, _COLUMNS), np.uint8)
        if self._record is not None and not self._busy:
            points, step, begin = self._shape()
            columns = np.arange(points) * _COLUMNS // points
            for channel in self._inputs.values():
                if channel.display and channel.is_exposed:
                    start = self._record[2] + round(begin * 1e9)
                    codes = channel.codes(step * 1e9, points, start).astype(int)
                    pixels[(_CODES - 1 - codes) * _ROWS // _CODES, columns] = 255
        image = _png(pixels)
        return f"#8{len(image):08d}".encode() + image

    @command("WAVeform:PREamble?")
    def _query_preamble(self) -> str:
        try:
            points, step, begin = self._shape()
        except ScpiError as error:
            self.report(error)
            points, step, begin = 0, self.duration / self.points, self.position - self.duration / 2
        channel = self._selected()
        form = {"BYTE": 0, "WORD": 1, "ASC": 4}[self.form]
        middle, volts = (128, 256) if self.form == "BYTE" else (_MIDDLE, _CODES)
        numbers = (step, begin), (channel.full_scale / volts, channel.offset)
        (dx, x0), (dy, y0) = numbers
        return f"{form:+d},+3,{points:+d},+1,{dx:+.8E},{x0:+.8E},+0,{dy:+.8E},{y0:+.8E},{middle:+d}"

    @command("WAVeform:DATA?")
    def _query_data(self) -> bytes:
        try:
            points, step, begin = self._shape()
        except ScpiError as error:
            self.report(error)
            return block(b"")
        assert self._record is not None
        channel = self._selected()
        codes = channel.codes(step * 1e9, points, self._record[2] + round(begin * 1e9))
        match self.form:
            case "BYTE":
                return block((codes >> 8).clip(1).astype(np.uint8).tobytes())
            case "WORD":
                return block(codes.astype("<u2" if self.order == "LSBF" else ">u2").tobytes())
        volts = (codes.astype(float) - _MIDDLE) * channel.step + channel.offset
        text = ",".join(f"{value:+.6E}" for value in volts).encode()
        return f"#8{len(text):08d}".encode() + text


def _png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return rows of grey pixels as an image (PNG, ISO 15948, sections 5.3 and 11.2)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    rows, columns = pixels.shape
    head = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)
    unfiltered = np.insert(pixels, 0, 0, axis=1).tobytes()
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(unfiltered)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body
