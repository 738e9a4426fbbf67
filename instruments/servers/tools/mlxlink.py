"""`mlxlink` (or `mstlink`): a ConnectX port's link, module, bit errors and PRBS test.

Text comes in sections: a title, a line of as many dashes, then `key : value`. Colours are
printed even into a pipe, and the code that ends one stands at the start of the next line. JSON
has the same sections and keys; every leaf is a string, lists are `{"values": [...]}`. Keys that
are not known here are kept in `MlxlinkReport.sections`.
Source: mstflint's mlxlink, and samples of text and JSON, tests/tools/samples/SOURCES.md.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import TypeVar

from lightrig.instruments.servers.tools.ethtool_fec import FecBin, FecCount
from lightrig.instruments.servers.tools.mlxlink_module import module_of
from lightrig.instruments.servers.tools.mlxlink_sections import (
    Section,
    read_section,
    read_value,
    sections_of,
    text_of,
)
from lightrig.instruments.servers.tools.module import ModuleReading
from lightrig.instruments.servers.tools.output import number, whole

T = TypeVar("T")

_MINUTE_NS = 60_000_000_000
_NO_ERRORS = 200
_EYE, _OPENINGS = "EYE Opening Info", ("upper", "mid", "lower")
_BER = re.compile(r"(\d+(?:\.\d+)?)[Ee]-(\d+)", re.ASCII)
_RATE = re.compile(r"(?:IB-)?(\w+?)(?:_\d+[xX])?")
_BITS = re.compile(r"(\d+(?:\.\d+)?)G(?:bE)?", re.ASCII)
_FEC_BIN = re.compile(r"\[(\d+)(?::(\d+))?\][\s,]+(\d+)", re.ASCII)
_WIDTH = re.compile(r"(\d+)x", re.ASCII)


@dataclass(frozen=True, slots=True)
class LinkReport:
    """The section `Operational Info`; None where it says N/A, as most does while it is down.

    Attributes:
        state: such as `Active`, `Polling`, `Disable`.
        physical_state: such as `LinkUp`; on Ethernet `ETH_AN_FSM_ENABLE` may be up.
        speed: as mlxlink names it: `200G`, `100G_2X`, `IB-NDR`.
        rate_bps: the speed of Ethernet; None for InfiniBand's names.
        width: number of lanes.
    """

    state: str
    physical_state: str | None
    speed: str | None
    rate_bps: int | None
    width: int | None
    fec: str | None
    loopback: str | None
    auto_negotiation: str | None

    @property
    def up(self) -> bool:
        """Whether the firmware has the link up."""
        return self.state == "Active"


@dataclass(frozen=True, slots=True)
class BitErrors:
    """The section `Physical Counters and BER Info`; None where it says N/A or nothing.

    Raw errors are before forward error correction, effective ones after it; symbol errors
    exist on InfiniBand only. A BER of 0.0 is "no error was seen", which mlxlink prints as
    15E-255. The counters begin anew when they are cleared, `since_clear_ns` ago.
    """

    since_clear_ns: int | None
    raw_errors: tuple[int, ...] | None
    raw_ber: float | None
    raw_ber_by_lane: tuple[float, ...] | None
    effective_errors: int | None
    effective_ber: float | None
    symbol_errors: int | None
    symbol_ber: float | None
    link_down_count: int | None
    link_recovery_count: int | None


@dataclass(frozen=True, slots=True)
class PrbsTest:
    """A port in test mode: `Test Mode Info` and the errors of its pattern.

    Attributes:
        locked: by lane, whether the checker has found the pattern.
        errors: by lane, bits in error since the counters were cleared; None without `-c`.
        ber: their ratio; 0.0 for none seen.
        since_clear_ns: how long errors were counted, known to 6 s.
    """

    rx_pattern: str
    tx_pattern: str
    rx_lane_rate: str | None
    tx_lane_rate: str | None
    tuning: str | None
    locked: tuple[bool, ...]
    errors: tuple[int, ...] | None
    ber: float | None
    since_clear_ns: int | None


@dataclass(frozen=True, slots=True)
class MlxlinkReport:
    """One run of mlxlink.

    Attributes:
        sections: everything it printed, values of lists joined by commas.
        link: None in test mode.
        module: with `-m`, where a module is plugged.
        errors: with `-c`, outside of test mode.
        prbs: in test mode.
        warning: what it warned of, or could not do of what it was asked.
        histogram: with `--rx_fec_histogram --show_histogram`, code words by symbol errors.
        snr_media_db, snr_host_db: with `-m`, by lane, where the module measures it.
        eye_grade: with `-e`, by lane, the grade of the received eye; of MFT 4.34 its last figure
            of merit.
        eye_grades: of MFT 4.34, by lane, of the `upper`, `mid` and `lower` eye of PAM4.
    """

    sections: Mapping[str, Section]
    link: LinkReport | None
    module: ModuleReading | None
    errors: BitErrors | None
    prbs: PrbsTest | None
    warning: str | None = None
    histogram: tuple[FecBin, ...] = ()
    snr_media_db: tuple[float, ...] | None = None
    snr_host_db: tuple[float, ...] | None = None
    eye_grade: tuple[int, ...] | None = None
    eye_grades: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def parse(text: str) -> MlxlinkReport:
    """Parse the output of `mlxlink`, with or without `--json`.

    Raises:
        ToolReportedError: mlxlink says that it could not do what it was asked.
        ToolOutputError: it printed something else than its sections.
    """
    sections, warning = sections_of(text)

    def lanes(title: str, key: str, read: Callable[[str], T]) -> tuple[T, ...] | None:
        def of(section: Section) -> tuple[T, ...] | None:
            return read_value(
                section, key, lambda text: tuple(read(each.strip()) for each in text.split(","))
            )

        return read_section(sections, title, of)

    grades = {eye: lanes(_EYE, f"{eye.capitalize()} Grades", whole) for eye in _OPENINGS}
    return MlxlinkReport(
        sections,
        read_section(sections, "Operational Info", _link),
        read_section(sections, "Module Info", module_of),
        read_section(sections, "Physical Counters and BER Info", _bit_errors),
        _prbs(sections),
        warning,
        read_section(sections, "Histogram of FEC Errors", _histogram) or (),
        lanes("Module Info", "SNR Media Lanes [dB]", lambda text: number(text).value),
        lanes("Module Info", "SNR Host Lanes [dB]", lambda text: number(text).value),
        lanes(_EYE, "Physical Grade", whole) or lanes(_EYE, "Last FOM", whole),
        {eye: found for eye, found in grades.items() if found is not None},
    )


def _histogram(section: Section) -> tuple[FecBin, ...]:
    """Return the bins by number: `Bin 1 : [1]  ,1234` or `[16:31],0`, with or without the comma.

    In JSON they come in the order of their keys as text: Bin 0, 1, 10, 11, ... 2.
    """
    bins = []
    for key, value in section.items():
        if not key.startswith("Bin "):
            continue
        match = _FEC_BIN.fullmatch(value)
        if match is None:
            raise ValueError(f"{key}: a range and a count, not {value!r}")
        low = whole(match[1])
        bins.append(FecBin(low, whole(match[2] or match[1]), FecCount(whole(match[3]))))
    bins.sort(key=lambda each: each.low)
    if any(second.low <= first.high for first, second in pairwise(bins)):
        raise ValueError("bins that do not overlap")
    return tuple(bins)


def _link(section: Section) -> LinkReport:
    state = text_of(section, "State")
    if state is None:
        raise ValueError("a state")
    speed = text_of(section, "Speed")
    return LinkReport(
        state,
        text_of(section, "Physical state"),
        speed,
        _ethernet_rate(speed),
        read_value(section, "Width", _lanes),
        text_of(section, "FEC"),
        text_of(section, "Loopback Mode"),
        text_of(section, "Auto Negotiation"),
    )


def _ethernet_rate(speed: str | None) -> int | None:
    match = _RATE.fullmatch(speed) if speed else None
    bits = _BITS.fullmatch(match[1]) if match else None
    return round(float(bits[1]) * 1e9) if bits else None


def _lanes(text: str) -> int:
    match = _WIDTH.fullmatch(text)
    if match is None:
        raise ValueError(f"a width such as 4x, not {text!r}")
    return whole(match[1])


def _bit_errors(section: Section) -> BitErrors:
    return BitErrors(
        since_clear_ns=_since_clear(section),
        raw_errors=read_value(section, "Raw Physical Errors Per Lane", _counts),
        raw_ber=read_value(section, "Raw Physical BER", _ber),
        raw_ber_by_lane=read_value(section, "Raw Physical BER Per Lane", _bers),
        effective_errors=read_value(section, "Effective Physical Errors", whole),
        effective_ber=read_value(section, "Effective Physical BER", _ber),
        symbol_errors=read_value(section, "Symbol Errors", whole),
        symbol_ber=read_value(section, "Symbol BER", _ber),
        link_down_count=read_value(section, "Link Down Counter", whole),
        link_recovery_count=read_value(section, "Link Error Recovery Counter", whole),
    )


def _since_clear(section: Section) -> int | None:
    return read_value(section, "Time Since Last Clear [Min]", _minutes)


def _minutes(text: str) -> int:
    """Nanoseconds of a decimal number of minutes, which a float does not hold exactly."""
    number(text)  # narrower than Decimal
    return round(Decimal(text) * _MINUTE_NS)


def _ber(text: str) -> float:
    """A ratio such as `1E-13`; 0.0 for no error, whose magnitude is printed as 255."""
    match = _BER.fullmatch(text)
    if match is None:
        raise ValueError(f"a ratio such as 1E-13, not {text!r}")
    magnitude = whole(match[2])
    ratio = 0.0 if magnitude >= _NO_ERRORS else float(match[1]) * 10.0**-magnitude
    if ratio > 1:
        raise ValueError(f"a ratio up to 1, not {text!r}")
    return ratio


def _bers(text: str) -> tuple[float, ...]:
    return tuple(_ber(each.strip()) for each in text.split(","))


def _counts(text: str) -> tuple[int, ...]:
    return tuple(whole(each.strip()) for each in text.split(","))


def _prbs(sections: Mapping[str, Section]) -> PrbsTest | None:
    counted = sections.get("Physical Counters and BER Info (PRBS)", {})

    def read(mode: Section) -> PrbsTest:
        rx, tx = text_of(mode, "RX PRBS Mode"), text_of(mode, "TX PRBS Mode")
        locked = read_value(mode, "Lock Status", _locks)
        if rx is None or tx is None or locked is None:
            raise ValueError("patterns and a lock status")
        errors = read_value(counted, "PRBS Errors", _counts)
        if errors is not None and len(errors) != len(locked):
            raise ValueError(f"errors of {len(locked)} lanes, not {len(errors)}")
        return PrbsTest(
            rx,
            tx,
            text_of(mode, "RX Lane Rate"),
            text_of(mode, "TX Lane Rate"),
            text_of(mode, "Tuning Status"),
            locked,
            errors,
            read_value(counted, "PRBS BER", _ber),
            _since_clear(counted),
        )

    return read_section(sections, "Test Mode Info", read)


def _locks(text: str) -> tuple[bool, ...]:
    states = [state.strip() for state in text.split(",")]
    if not set(states) <= {"Locked", "Not Locked"}:
        raise ValueError(f"Locked or Not Locked by lane, not {text!r}")
    return tuple(state == "Locked" for state in states)
