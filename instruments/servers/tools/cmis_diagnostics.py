"""A CMIS module's versatile diagnostics (VDM), from hexadecimal dumps of its memory pages.

No version of ethtool decodes these pages; `ethtool -m IF page N offset N length N` dumps them.
Layout: OIF-CMIS-05.2, 8.2.1 (identifier, memory model), 8.4.4 (supported pages advertising, byte
142 of page 01h: VDM and banks; ethtool's cmis.c names its table 8-40), 8.14 (pages 20h to 2Fh).
Types of observables, formats, scales and the places of flags agree with
sonic-net/sonic-platform-common, `codes/public/cmis.py` and `api/public/cmisVDM.py`; the total of
errored frames (types 25, 26), resource 15 and banks with two further public decoders of CMIS 5.3.
A patch for ethtool of 2026 has other names for types 4 to 34 and the nibbles of flags in the other
order; it stands alone. Thresholds (pages 28h to 2Bh), observables of coherent modules (128 and
above), symbol errors by window (27 to 34) and supplies (77 to 84) are not read.

Statistics (least, average, greatest) are those of the module's present interval: only a host
that writes to the module can freeze them, and ethtool only reads.
"""

import re
import struct
from collections.abc import Callable, Iterator

from lightrig.instruments.core.capabilities import Diagnostic
from lightrig.instruments.servers.tools.module import CMIS
from lightrig.instruments.servers.tools.output import ToolOutputError

TOOL = "ethtool -m IF page N"

HALF_PAGE = 128
"""Bytes in each half of a page, which is as much as one command can read."""

ADVERTISING_PAGE, CONTROL_PAGE = 0x01, 0x2F
FLAGS_PAGE = 0x2C
_DESCRIPTORS, _SAMPLES = 0x20, 0x24
_GROUP = 64
"""Observables of one page of descriptors."""
_LANES_OF_A_BANK = 8
_MODULE = 15
"""Resource of an observable of the whole module."""
_BANKS = (1, 2, 4)
"""Number of banks, by the code in byte 142 of page 01h."""
_FLAGS = ("high alarm", "low alarm", "high warning", "low warning")
"""By bit, the lowest first."""

_FLAT = 0x80
_ALL_ONES = 0xFFFF
_VDM_SUPPORTED = 0x40
_LINE = re.compile(r"0x([0-9a-f]{4}):?\s+((?:[0-9a-f]{2} ?)+)", re.ASCII)

_MEDIA, _HOST = "media", "host"
_STATISTICS = ("minimum", "maximum", "average", "current")


def _f16(raw: int) -> tuple[float, float]:
    """Return value and resolution: eleven bits of mantissa, five of exponent, offset -24."""
    digit = 10.0 ** ((raw >> 11) - 24)
    return (raw & 0x7FF) * digit, digit


def _u16(raw: int) -> tuple[float, float]:
    """Return value and resolution of a fixed-point number in 1/256."""
    return raw / 256, 1 / 256


def _s16(scale: float) -> "_Format":
    """Return the format of a signed number in `scale`."""

    def read(raw: int) -> tuple[float, float]:
        return (raw - 0x10000 if raw & 0x8000 else raw) * scale, scale

    return read


def _percent(raw: int) -> tuple[float, float]:
    """Return value and resolution of whole percents, as a share."""
    return raw / 100, 0.01


_Format = Callable[[int], tuple[float, float]]


def _observables() -> Iterator[tuple[int, tuple[str, str, str, _Format]]]:
    yield 1, ("laser_age", _MEDIA, "current", _percent)
    yield 2, ("tec_current", _MEDIA, "current", _s16(1 / 32767))
    yield 4, ("laser_temperature", _MEDIA, "current", _s16(1 / 256))
    for number, side in enumerate((_MEDIA, _HOST)):
        yield 5 + number, ("esnr", side, "current", _u16)
        yield 7 + number, ("pam4_level_transition", side, "current", _u16)
        for step, statistic in enumerate(_STATISTICS):
            yield 9 + 2 * step + number, ("prefec_ber", side, statistic, _f16)
            yield 17 + 2 * step + number, ("errored_frames", side, statistic, _f16)
        yield 25 + number, ("errored_frames_total", side, "current", _f16)


OBSERVABLES = dict(_observables())
"""Name, side, statistic and format by the type of an observable."""


def parse_dump(text: str) -> dict[int, int]:
    """Parse a hexadecimal dump of one half of a page: bytes by their offset in the page.

    Raises:
        ToolOutputError: it is something else.
    """
    found: dict[int, int] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith(("Offset", "------")):
            continue
        match = _LINE.fullmatch(line.strip().lower())
        if match is None:
            raise ToolOutputError(TOOL, "`0x0080:  00 00 ...` in every line", line)
        start = int(match[1], 16)
        found |= dict(enumerate(bytes.fromhex(match[2]), start))
    if not found:
        raise ToolOutputError(TOOL, "a dump of a module's memory", text.strip()[:80])
    return found


def has_pages(lower: dict[int, int]) -> bool:
    """Whether a module, by the lower half of its page 0, has CMIS and more pages than that."""
    return lower.get(0) in CMIS and not lower.get(2, _FLAT) & _FLAT


def has_diagnostics(advertising: dict[int, int]) -> bool:
    """Whether a module, by the upper half of its page 01h, has versatile diagnostics."""
    return bool(advertising.get(142, 0) & _VDM_SUPPORTED)


def banks(advertising: dict[int, int]) -> range:
    """Return the banks of a module's pages, of eight lanes each, by page 01h."""
    code = advertising.get(142, 0) & 0x03
    return range(_BANKS[code] if code < len(_BANKS) else 1)


def pages(control: dict[int, int]) -> list[tuple[int, int]]:
    """Return the pages of descriptors and of their samples, by the upper half of page 2Fh."""
    groups = (control.get(128, 0) & 0x03) + 1
    return [(_DESCRIPTORS + group, _SAMPLES + group) for group in range(groups)]


def decode(
    halves: list[tuple[dict[int, int], dict[int, int]]],
    flags: dict[int, int] | None = None,
    bank: int = 0,
) -> tuple[Diagnostic, ...]:
    """Decode descriptors and samples of each group; unknown observables are left out.

    flags: the upper half of page 2Ch, None where it was not read. bank: of all of them.

    A sample of ones, as a page that is absent or hung reads, has no value, nor has a ratio above 1.

    Raises:
        ToolOutputError: a page has less than 128 bytes.
    """
    found: dict[tuple[str, str, int | None], Diagnostic] = {}
    latched = None if flags is None else _upper(flags)
    for group, (descriptors, samples) in enumerate(halves):
        stated, measured = _upper(descriptors), _upper(samples)
        for index in range(0, HALF_PAGE, 2):
            observable = OBSERVABLES.get(stated[index + 1])
            if observable is None:
                continue
            name, side, statistic, form = observable
            resource = stated[index] & 0x0F
            lane = None if resource == _MODULE else bank * _LANES_OF_A_BANK + resource + 1
            (raw,) = struct.unpack(">H", measured[index : index + 2])
            value, resolution = form(raw)
            one = found.setdefault((name, side, lane), Diagnostic(name, side, lane))
            # Of a signed number all ones is the last digit below zero, as a page of ones reads.
            if raw == _ALL_ONES or (name.endswith("_ber") and value > 1):
                continue
            if latched is not None:
                place = group * _GROUP + index // 2
                nibble = latched[place // 2] >> (4 * (place % 2))
                one.flags |= {flag for bit, flag in enumerate(_FLAGS) if nibble & 1 << bit}
            setattr(one, statistic, value)
            one.resolution = max(one.resolution, resolution)
    return tuple(found.values())


def _upper(half: dict[int, int]) -> bytes:
    try:
        return bytes(half[offset] for offset in range(HALF_PAGE, 2 * HALF_PAGE))
    except KeyError as error:
        raise ToolOutputError(TOOL, "128 bytes of the upper half", f"none at {error}") from error
