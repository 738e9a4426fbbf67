"""Errors of a NIC port by the kernel's standard FEC counters, between two readings."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.core.errors import DeniedError
from lightrig.instruments.servers.host.commands import CommandResult, Reading, ToolFailedError
from lightrig.instruments.servers.ports.fec_errors import CODEWORD_BITS, FecErrors
from lightrig.instruments.servers.tools import ethtool_fec

SECOND = 1_000_000_000
RATE = 100e9


def reading(statistics: dict[str, Any] | None, active: str = "RS") -> ethtool_fec.FecReading:
    """A port's FEC as `ethtool --json -I --show-fec` prints it."""
    port: dict[str, Any] = {"ifname": "ens1f0", "config": ["Auto", "RS"], "active": [active]}
    if statistics is not None:
        port["statistics"] = statistics
    return ethtool_fec.parse(json.dumps([port]))


def totals(**counts: int) -> dict[str, Any]:
    return {name: {"total": count} for name, count in counts.items()}


class ScriptedNic:
    """Tools that return one reading after another, thirty seconds apart; the first one twice."""

    def __init__(self, readings: Sequence[ethtool_fec.FecReading], changes: Sequence[int]) -> None:
        self.readings = [*readings[:1], *readings]
        self.changes = [*changes[:1], *changes]
        self.at = 0

    def fec(self, netdev: str) -> Reading[ethtool_fec.FecReading]:
        assert netdev == "ens1f0"
        self.at += 30 * SECOND
        return Reading(self.readings.pop(0), Span(self.at, self.at + SECOND))

    def device(self, netdev: str) -> Any:
        class Device:
            carrier_changes = self.changes.pop(0)

        return Reading(Device, Span(self.at, self.at))


def counter(fec: Any, readings: Sequence[Any], changes: Sequence[int] = (4, 4)) -> FecErrors:
    nic: Any = ScriptedNic(readings, changes)
    return FecErrors("server0.nic0", nic, "ens1f0", fec, RATE, SystemClock())


@pytest.mark.parametrize(
    ("driver", "before", "after", "unit", "errors"),
    [
        (
            "bnxt_en and mlx5: corrected bits",
            totals(corrected_bits=100, corrected_blocks=90, uncorrectable_blocks=0),
            totals(corrected_bits=350, corrected_blocks=300, uncorrectable_blocks=0),
            "bits",
            250,
        ),
        (
            "ice and ionic: code words only",
            totals(corrected_blocks=90, uncorrectable_blocks=0),
            totals(corrected_blocks=300, uncorrectable_blocks=0),
            "codewords",
            210,
        ),
        (
            "a histogram, without corrected bits",
            {"hist": [{"bin_low": 0, "bin_high": 0, "total": 9}]},
            {
                "hist": [
                    {"bin_low": 0, "bin_high": 0, "total": 1000},
                    {"bin_low": 1, "bin_high": 1, "total": 30},
                    {"bin_low": 2, "bin_high": 4, "total": 5},
                ]
            },
            "symbols",
            50,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_before_fec_are_counted_in_the_finest_unit_of_the_driver(
    driver: str, before: Any, after: Any, unit: str, errors: int
) -> None:
    port = counter("before", [reading(before), reading(after)])
    found = port.count(duration=0).result()
    assert (port.unit, found.errors, found.void, found.clock_lost) == (unit, errors, None, False)
    bits_each = {"bits": 1, "symbols": 10, "codewords": CODEWORD_BITS}[unit]
    assert port.bits_per_second == RATE / bits_each
    assert found.bits == int(RATE * 29 / bits_each)  # from the end of the first reading
    assert found.most_bits == int(RATE * 31 / bits_each)


def test_errors_after_fec_are_uncorrectable_code_words() -> None:
    statistics = totals(corrected_blocks=9, uncorrectable_blocks=2)
    later = totals(corrected_blocks=90, uncorrectable_blocks=5)
    port = counter("after", [reading(statistics), reading(later)])
    found = port.count(duration=0).result()
    assert (port.unit, found.errors) == ("codewords", 3)


def test_a_reset_of_the_counters_voids_the_gate() -> None:
    port = counter("before", [reading(totals(corrected_bits=9)), reading(totals(corrected_bits=2))])
    assert port.count(duration=0).result().void == "its counters were reset during the measurement"


def hist(*counts: int) -> dict[str, Any]:
    return {
        "hist": [
            {"bin_low": errors, "bin_high": errors, "total": count}
            for errors, count in enumerate(counts)
        ]
    }


def lanes(*counts: int) -> dict[str, Any]:
    return {"corrected_bits": {"total": sum(counts), "lanes": list(counts)}}


@pytest.mark.parametrize("top", [2**16 - 1, 2**32 - 1], ids=["16 bits", "32 bits"])
@pytest.mark.parametrize(
    ("fec", "of"),
    [
        ("before", lambda count: totals(corrected_bits=count)),
        ("before", lambda count: totals(corrected_blocks=count)),
        ("before", lambda count: hist(10**12, count, 7)),
        ("before", lambda count: lanes(5, count)),
        ("after", lambda count: totals(uncorrectable_blocks=count)),
    ],
    ids=["bits", "code words", "histogram", "lane", "after FEC"],
)
@pytest.mark.parametrize("below", [0, 1], ids=["stays", "arrives"])
def test_a_register_at_all_ones_may_count_no_further(
    top: int, fec: str, of: Any, below: int
) -> None:
    """The FEC counters of IEEE 802.3, clause 45, are held at all ones until they are read."""
    port = counter(fec, [reading(of(top - below)), reading(of(top))])
    found = port.count(duration=0).result()
    assert (found.bits, found.errors) == (0, 0)
    assert found.void is not None
    assert "at its maximum" in found.void


@pytest.mark.parametrize("top", [2**16 - 1, 2**32 - 1], ids=["16 bits", "32 bits"])
def test_a_wider_counter_goes_on_beyond_all_ones(top: int) -> None:
    readings = [totals(corrected_bits=count) for count in (top - 1, top + 1)]
    found = counter("before", list(map(reading, readings))).count(duration=0).result()
    assert (found.errors, found.void) == (2, None)


def test_a_full_bin_of_code_words_without_errors_hides_no_symbol_errors() -> None:
    port = counter("before", [reading(hist(2**32 - 1, 4, 1)), reading(hist(2**32 - 1, 6, 2))])
    found = port.count(duration=0).result()
    assert (found.errors, found.void) == (2 * 1 + 1 * 2, None)


@pytest.mark.parametrize(("changes", "lost"), [((4, 4), False), ((4, 6), True)])
def test_a_link_that_was_down_meanwhile_has_lost_its_clock(changes: Any, lost: bool) -> None:
    both = [reading(totals(corrected_bits=9))] * 2
    assert counter("before", both, changes).count(duration=0).result().clock_lost is lost


def test_a_driver_without_counters_is_an_error() -> None:
    with pytest.raises(DeniedError, match="no FEC counters of errors before FEC"):
        counter("before", [reading(None)]).count(duration=0)


def test_a_driver_without_fec_is_an_error() -> None:
    class Refusing:
        def fec(self, netdev: str) -> Any:
            result = CommandResult("", "netlink error: Operation not supported\n", 1, Span(0, 0))
            raise ToolFailedError("server0", result, "ethtool --show-fec veth0")

    nic: Any = Refusing()
    port = FecErrors("server0.nic0", nic, "veth0", "before", RATE, SystemClock())
    with pytest.raises(DeniedError, match="FEC counters cannot be read"):
        port.count(duration=0)


class Register:
    """Corrected bits of a link with a known ratio, as a driver hands them on; time is its own."""

    def __init__(self, ratio: float, shows: str, start: int, age: int) -> None:
        self.ratio, self.shows, self.start, self.age = ratio, shows, start, age
        self.time, self.cleared = 10**12, 0

    def now(self) -> int:
        return self.time

    def sleep(self, duration: float) -> None:
        self.time += int(duration)

    def fec(self, netdev: str) -> Reading[ethtool_fec.FecReading]:
        began, told = self.time, self.time - self.time % self.age
        true = self.start + int((told - 10**12) / 1e9 * RATE * self.ratio)
        shown = {
            "all of it": true,
            "32 bits": true % 2**32,
            "16 bits": true % 2**16,
            "since the last reading": true - self.cleared,
        }[self.shows]
        self.cleared = true
        self.time += SECOND // 33
        return Reading(reading(totals(corrected_bits=shown)), Span(began, self.time))

    def device(self, netdev: str) -> Any:
        return Reading(type("Device", (), {"carrier_changes": 2}), Span(self.time, self.time))


@pytest.mark.parametrize("ratio", [3e-7, 1e-5, 1.7e-3])
@pytest.mark.parametrize(
    ("shows", "age", "void"),
    [
        ("all of it", 1, lambda ratio: False),
        ("all of it", SECOND, lambda ratio: False),
        ("since the last reading", 1, lambda ratio: True),
        # 100 Gbit/s for 30 s: 9e5, 3e7 and 5.1e9 errors, of which 4.3e9 go into 32 bits.
        ("32 bits", 1, lambda ratio: ratio > 1e-3),
        ("16 bits", 1, lambda ratio: True),
    ],
)
def test_a_register_that_a_driver_hands_on_bounds_nothing(
    ratio: float, shows: str, age: int, void: Callable[[float], bool]
) -> None:
    """The registers of IEEE 802.3, clause 45, have 16 or 32 bits and are cleared when read."""
    for start in (0, 2**32 - 2**31 - 70_000):
        link: Any = Register(ratio, shows, start, age)
        port = FecErrors("server0.nic0", link, "ens1f0", "before", RATE, link)
        link.sleep(1.5 * SECOND)
        found = port.count(duration=30 * SECOND).result()
        if void(ratio):
            assert found.void is not None, start
            assert (found.bits, found.errors) == (0, 0)
            continue
        assert found.void is None
        assert found.most_bits is not None
        least, most = found.bits, found.most_bits
        if age == 1:
            assert found.errors / most <= ratio * (1 + 1e-6)
            assert found.errors / least >= ratio * (1 - 1e-6)
        assert 29.9 * RATE < least < most < 30.1 * RATE


def test_code_words_that_were_corrected_without_any_bits_void_the_gate() -> None:
    before = totals(corrected_bits=17, corrected_blocks=40)
    after = totals(corrected_bits=17, corrected_blocks=55)
    found = counter("before", [reading(before), reading(after)]).count(duration=0).result()
    assert found.void == "its driver counted corrected code words and no bits in them"
