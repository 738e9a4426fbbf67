"""Code words between two readings of a histogram of symbol errors; counters at their ends."""

from types import SimpleNamespace

import pytest

from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.core.errors import DeniedError
from lightrig.instruments.servers.host.commands import Reading
from lightrig.instruments.servers.ports.fec_histogram import FecHistogram
from lightrig.instruments.servers.tools.counters import CounterKind, Unknown, changes, delta
from lightrig.instruments.servers.tools.ethtool_fec import FecBin, FecCount, FecReading

SECOND = 1_000_000_000
BINS = ((1, 1), (2, 3), (4, 15))


def fec(counts, lost, active="RS", bins=BINS):
    histogram = tuple(
        FecBin(low, high, FecCount(n)) for (low, high), n in zip(bins, counts, strict=True)
    )
    return FecReading("eth7", ("RS",), (active,) if active else (), None, lost, None, histogram)


class Nic:
    """Readings that begin 10 s apart and take 1 s each; the first one is made twice."""

    def __init__(self, *readings, carriers=(4, 4), lanes=4, speed=400 * SECOND):
        self.readings, self.at = [*readings[:1], *readings], 0
        self.carriers = [*carriers[:1], *carriers]
        self.lanes, self.speed = lanes, speed

    def fec(self, netdev):
        assert netdev == "eth7"
        self.at += 10 * SECOND
        return Reading(self.readings.pop(0), Span(self.at, self.at + SECOND))

    def device(self, _):
        changes = self.carriers.pop(0)
        return Reading(SimpleNamespace(carrier_changes=changes), Span(self.at, self.at))

    def link(self, _):
        link = SimpleNamespace(lanes=self.lanes, speed_bps=self.speed)
        return Reading(link, Span(self.at, self.at))


def counted(nic, rate=100e9):
    return FecHistogram("nic", nic, "eth7", rate, SystemClock()).count(duration=0).now()


def test_code_words_between_two_uneven_readings():
    found = counted(Nic(fec((100, 30, 7), FecCount(2)), fec((160, 41, 9), FecCount(5))))
    assert found.bins == ((1, 1, 60), (2, 3, 11), (4, 15, 2))
    assert (found.uncorrectable, found.void) == (3, None)
    assert (found.symbols, found.correctable) == (544, 15)
    assert (found.began, found.ended) == (
        *(Span(20 * SECOND, 21 * SECOND),),
        Span(30 * SECOND, 31 * SECOND),
    )
    # No bin of code words without errors: at 100 Gb/s for the 9 s that are sure, of 5,440 bits.
    assert found.codewords == 900 * SECOND // 5440


def test_code_words_are_counted_where_there_is_a_bin_without_errors():
    bins = ((0, 0), (1, 1), (2, 15))
    found = counted(
        Nic(fec((1000, 3, 0), FecCount(0), bins=bins), fec((7000, 5, 1), FecCount(1), bins=bins))
    )
    assert found.codewords == 6000 + 2 + 1 + 1
    # More of them are counted than the rate explains.
    found = counted(Nic(fec((0, 0, 0), FecCount(0)), fec((50, 7, 2), FecCount(1))), rate=1.0)
    assert found.codewords == 60


@pytest.mark.parametrize(
    ("lanes", "speed", "code"),
    [
        (4, 400 * SECOND, (544, 15)),
        (4, 161 * SECOND, (544, 15)),
        (4, 160 * SECOND, (528, 7)),  # 40 Gb/s a lane
        (None, 400 * SECOND, (528, 7)),
        (4, None, (528, 7)),
    ],
)
def test_the_code_follows_from_the_rate_of_a_lane(lanes, speed, code):
    readings = fec((1, 1, 1), FecCount(0)), fec((2, 2, 2), FecCount(0))
    found = counted(Nic(*readings, lanes=lanes, speed=speed))
    assert (found.symbols, found.correctable) == code


@pytest.mark.parametrize(
    ("last", "carriers", "void"),
    [
        (fec((160, 41, 9), FecCount(5)), (4, 5), "link was down"),
        (fec((160, 41, 9), FecCount(5), active=""), (4, 4), "link was down"),
        (fec((160, 29, 9), FecCount(5)), (4, 4), "were reset"),
        (fec((160, 41, 9), FecCount(1)), (4, 4), "were reset"),
        (fec((160, 41), FecCount(5), bins=BINS[:2]), (4, 4), "were reset"),
        (fec((160, 2**32 - 1, 9), FecCount(5)), (4, 4), "at its maximum"),
        (fec((160, 2**16 - 1, 9), FecCount(5)), (4, 4), "at its maximum"),
        (fec((160, 41, 9), FecCount(2**32 - 1)), (4, 4), "at its maximum"),
        (fec((160, 2**32, 9), FecCount(5)), (4, 4), None),
        (fec((160, 41, 9), FecCount(2)), (4, 4), None),
    ],
)
def test_a_gate_across_a_reset_a_loss_or_a_full_counter_is_void(last, carriers, void):
    found = counted(Nic(fec((100, 30, 7), FecCount(2)), last, carriers=carriers))
    assert found.void is None if void is None else void in found.void


@pytest.mark.parametrize(
    "first", [fec((), FecCount(2), bins=()), fec((100, 30, 7), None)], ids=["no bins", "no lost"]
)
def test_a_driver_without_a_histogram_is_refused(first):
    with pytest.raises(DeniedError, match="no histogram of FEC symbol errors"):
        counted(Nic(first))


def test_differences_of_counters_at_their_ends():
    byte, wraps = CounterKind(bits=8, at_top="saturates", scale=4), CounterKind(bits=8, scale=4)
    assert delta(250, 254, byte) == 16
    assert delta(250, 255, byte) == Unknown("saturated", 20)
    assert delta(255, 255, byte) == Unknown("saturated", 0)
    assert delta(5, 3, byte) == Unknown("reset", 12)
    assert delta(250, 255, wraps) == 20
    assert delta(255, 256, wraps) == Unknown("too large")
    assert delta(-1, 5, wraps) == Unknown("too large")
    # From 254 over the top to 1 are three counts of four.
    assert delta(254, 1, wraps, at_most=12) == 12
    assert delta(254, 1, wraps, at_most=11) == Unknown("wrapped or reset", 4)
    assert delta(254, 1, wraps) == Unknown("wrapped or reset", 4)
    assert delta(254, 1, wraps, at_most=15) == Unknown("wrapped or reset", 4)  # 255 // 16
    assert delta(3, 1, CounterKind(), at_most=10) == Unknown("reset", 1)


def test_one_reset_is_that_of_all_counters_that_are_known():
    kinds = {
        "fast": CounterKind(most_per_s=10),
        "slow": CounterKind(bits=16, refresh_ns=5, scale=4),
        "narrow": CounterKind(bits=4),
    }
    before = {"fast": 7, "slow": 20, "narrow": 3, "strange": 1, "gone": 1}
    after = {"fast": 9, "slow": 26, "narrow": 16, "strange": 8, "new": 3}
    found = changes(before, after, kinds.get, apart_ns=5)
    assert found == {
        "fast": 2,
        "slow": 24,
        "narrow": Unknown("too large"),
        "strange": Unknown("not known"),
    }
    early = changes(before, after, kinds.get, apart_ns=4)
    assert early["slow"] == Unknown("too soon", 24)
    reset = changes(before, after | {"fast": 6}, kinds.get, apart_ns=5)
    assert reset == {
        "fast": Unknown("reset", 6),
        "slow": Unknown("reset", 104),
        "narrow": Unknown("too large"),
        "strange": Unknown("not known"),
    }
