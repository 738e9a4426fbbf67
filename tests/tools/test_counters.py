"""Differences of two readings of a counter are never wrong numbers."""

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tool_samples import read

from lightrig.instruments.servers.tools.counters import (
    CounterKind,
    Unknown,
    changes,
    delta,
    ethtool_kind,
    infiniband_kind,
)

SECOND = 1_000_000_000
WRAPS_8 = CounterKind(bits=8)
WRAPS_32 = CounterKind(bits=32)
STAYS_8 = CounterKind(bits=8, at_top="saturates")

widths = st.sampled_from([4, 8, 16, 32, 64])


class Device:
    """A counter as the hardware has it, and what it has really counted."""

    def __init__(self, kind: CounterKind) -> None:
        self.kind = kind
        self.shown = 0
        self.counted = 0

    def count(self, events: int) -> None:
        self.counted += events * self.kind.scale
        self.shown += events
        if self.kind.at_top == "saturates":
            self.shown = min(self.shown, self.kind.top)
        else:
            self.shown &= self.kind.top

    def reset(self) -> None:
        self.shown = 0


@given(
    st.builds(
        CounterKind, widths, st.sampled_from(["wraps", "saturates"]), scale=st.sampled_from([1, 4])
    ),
    st.integers(0, 1 << 66),
    st.data(),
)
def test_a_number_is_what_was_counted(kind: CounterKind, before: int, data: st.DataObject) -> None:
    """Without resets and faster than a wrap: a number is right, and a bound is a bound."""
    device = Device(kind)
    device.count(before)
    first, counted = device.shown, device.counted
    device.count(data.draw(st.integers(0, kind.top)))
    grown = device.counted - counted
    for at_most in (None, grown, kind.scale * kind.top):
        found = delta(first, device.shown, kind, at_most=at_most)
        if isinstance(found, Unknown):
            assert found.at_least <= grown
        else:
            assert found == grown


@given(
    st.builds(CounterKind, widths, st.sampled_from(["wraps", "saturates"])),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 20),
    st.integers(0, 1 << 20),
)
def test_a_reset_that_shows_is_never_a_number(
    kind: CounterKind, before: int, lost: int, after: int
) -> None:
    device = Device(kind)
    device.count(before)
    first, counted = device.shown, device.counted
    device.count(lost)
    device.reset()
    device.count(after)
    found = delta(first, device.shown, kind)
    if device.shown < first:
        assert isinstance(found, Unknown)
        assert found.at_least <= device.counted - counted


def test_a_wrap_needs_to_be_possible() -> None:
    top = WRAPS_32.top
    assert delta(top - 9, 5, WRAPS_32) == Unknown("wrapped or reset", 5)
    assert delta(top - 9, 5, WRAPS_32, at_most=1000) == 15
    assert delta(top - 9, 5, WRAPS_32, at_most=14) == Unknown("wrapped or reset", 5)
    assert delta(1000, 5, WRAPS_32, at_most=top) == Unknown("wrapped or reset", 5)
    assert delta(1000, 5, CounterKind()) == Unknown("reset", 5)


def test_saturated_counter_gives_a_lower_bound() -> None:
    assert delta(250, 255, STAYS_8) == Unknown("saturated", 5)
    assert delta(255, 255, STAYS_8) == Unknown("saturated", 0)
    assert delta(255, 3, STAYS_8) == Unknown("reset", 3)
    assert delta(3, 256, STAYS_8) == Unknown("too large")
    assert delta(0, 10, CounterKind(scale=4)) == 40


def test_one_reset_is_everybodys() -> None:
    before = {"rx_bits_phy": 10**12, "rx_corrected_bits_phy": 7, "link_down_events_phy": 2}
    after = {"rx_bits_phy": 10**9, "rx_corrected_bits_phy": 9, "link_down_events_phy": 2}
    found = changes(before, after, ethtool_kind, apart_ns=SECOND)
    assert found == {
        "rx_bits_phy": Unknown("reset", 10**9),
        "rx_corrected_bits_phy": Unknown("reset", 9),
        "link_down_events_phy": Unknown("reset", 2),
    }


def test_unknown_counter_gives_no_number() -> None:
    found = changes({"vendor_thing": 1}, {"vendor_thing": 5}, ethtool_kind, apart_ns=SECOND)
    assert found == {"vendor_thing": Unknown("not known")}


def test_two_readings_between_two_refreshes_may_be_one() -> None:
    kind = CounterKind(refresh_ns=SECOND)
    readings = {"c": 4}, {"c": 4}
    assert changes(*readings, lambda _: kind, apart_ns=SECOND - 1) == {"c": Unknown("too soon", 0)}
    assert changes(*readings, lambda _: kind, apart_ns=SECOND) == {"c": 0}


def test_a_link_cannot_go_down_four_billion_times_a_second() -> None:
    kind = ethtool_kind("link_down_events_phy")
    assert kind is not None
    before, after = {"link_down_events_phy": 5}, {"link_down_events_phy": 0}
    found = changes(before, after, ethtool_kind, apart_ns=SECOND)
    assert found["link_down_events_phy"] == Unknown("wrapped or reset", 0)
    before["link_down_events_phy"] = kind.top
    assert changes(before, after, ethtool_kind, apart_ns=SECOND)["link_down_events_phy"] == 1


def test_the_kinds_of_a_real_port() -> None:
    ports = {port.device: port for port in read("rdma/gpud_sysfs_class_infiniband_h100.txt")}
    counters = ports["mlx5_1"].counters
    found = changes(counters, counters, infiniband_kind, apart_ns=SECOND)
    assert found["link_downed"] == Unknown("saturated", 0)
    assert found["port_rcv_data"] == 0
    assert not any(
        isinstance(each, Unknown) and each.reason == "not known" for each in found.values()
    )


def test_data_of_an_infiniband_port_is_counted_in_four_bytes() -> None:
    """The InfiniBand Architecture, volume 1, PortXmitData and PortRcvData: octets divided by 4."""
    before = {"port_xmit_data": 1_000, "port_rcv_data": 70, "port_xmit_packets": 8}
    after = {"port_xmit_data": 1_010, "port_rcv_data": 73, "port_xmit_packets": 13}
    found = changes(before, after, infiniband_kind, apart_ns=SECOND)
    assert found == {"port_xmit_data": 40, "port_rcv_data": 12, "port_xmit_packets": 5}


@pytest.mark.parametrize(
    ("name", "fec"),
    [
        ("rx_corrected_bits_phy", "before"),
        ("rx_err_lane_3_phy", "before"),
        ("rx_pcs_symbol_err_phy", "after"),
        ("rx_bits_phy", None),
    ],
)
def test_which_side_of_fec_a_counter_is_on(name: str, fec: str | None) -> None:
    kind = ethtool_kind(name)
    assert kind is not None
    assert kind.fec == fec
