"""The status of a server's clock: by its kernel, over the wire, in the rows of an event."""

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.measure.stages import Reconfiguration, rows
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import ClockStatus
from lightrig.instruments.core.errors import ClockError, GarbledError
from lightrig.instruments.servers.host.linux import PendingSettlement
from lightrig.instruments.servers.host.offset import ClockMap
from lightrig.instruments.servers.programs import server_clock

STATUS = {
    "synchronised": True,
    "frequency_ppm": -12.5,
    "estimated_error_ns": 31_000,
    "maximum_error_ns": 2_400_000,
}


def kernel(monkeypatch: pytest.MonkeyPatch, state: int, *fields: int) -> None:
    """Replace the C library by one whose adjtimex returns `state`, and fills in the fields."""

    def adjtimex(timex: Any) -> int:
        # The layout of linux/timex.h: modes, offset, freq, maxerror, esterror, status.
        data = struct.pack("@Illlli", 0, *fields)
        ctypes.memmove(timex, data, len(data))
        return state

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(adjtimex=adjtimex))


def test_the_status_is_that_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """-12.5 ppm are -819,200 of 2 ** -16 ppm; STA_PLL is 1, STA_UNSYNC 64."""
    kernel(monkeypatch, 0, 7, -819_200, 2_400, 31, 1)
    assert server_clock.kernel_status() == STATUS
    kernel(monkeypatch, 5, 7, -819_200, 2_400, 31, 65)
    assert server_clock.kernel_status() == {**STATUS, "synchronised": False}


def test_a_kernel_that_does_not_tell_has_no_status(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(monkeypatch, -1, 0, 0, 0, 0, 0)
    assert server_clock.kernel_status() is None
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert server_clock.kernel_status() is None


def settled(clock: object) -> ClockStatus | None:
    """Return the status that the driver reads in a reply."""
    answer: dict[str, Any] = {"events": [], "missing": []}
    if clock != "left out":
        answer["clock"] = clock
    request: Any = SimpleNamespace(
        result=lambda: answer,
        answered_there=0,
        run=SimpleNamespace(garbled=lambda what, *_: GarbledError("server0", what)),
    )
    clocks = ClockMap()
    clocks.same_clock = True
    return PendingSettlement(request, clocks, {}, {}).result().clock


def test_a_status_comes_over_the_wire() -> None:
    assert settled(STATUS) == ClockStatus(True, -12.5, 31_000, 2_400_000)
    assert settled(None) is None
    assert settled("left out") is None
    for broken in ({}, {**STATUS, "synchronised": 1}, {**STATUS, "frequency_ppm": "fast"}, 3):
        with pytest.raises(GarbledError):
            settled(broken)


EVENTS = [
    ["ens1f0", "carrier", False, 1_000, 2_000, "sysfs"],
    ["ens1f0", "datagram", False, 40_000, 45_000, "udp"],
    ["ens1f0", "datagram", True, 40_000, 90_000, "udp"],
]


def settled_with_steps(*steps: list[Any], events: list[Any], gaps: bool = True) -> int:
    """Return the number of events that the driver reads in a reply with steps of a clock."""
    answer = {"events": events, "missing": [], "steps": list(steps)}
    request: Any = SimpleNamespace(
        result=lambda: answer,
        answered_there=100_000,
        run=SimpleNamespace(garbled=lambda what, *_: GarbledError("server0", what)),
    )
    clocks = ClockMap(name="server0")
    clocks.same_clock = True
    return len(PendingSettlement(request, clocks, {}, {}, gaps=gaps).result().events)


def test_datagrams_across_a_step_of_the_clock_of_their_stamps_are_void() -> None:
    step = ["ens1f0", "CLOCK_REALTIME", 60_000, 61_000, -7_002_000, -6_998_000]
    with pytest.raises(
        ClockError,
        match="server0 stamps datagrams to ens1f0 by CLOCK_REALTIME, which jumped back "
        r"by 6\.998 to 7\.002 ms",
    ):
        settled_with_steps(step, events=EVENTS)


def test_a_step_that_no_datagram_was_stamped_across_voids_nothing() -> None:
    before = ["ens1f0", "CLOCK_REALTIME", 30_000, 39_000, 5_000, 9_000]
    after = ["ens1f0", "CLOCK_REALTIME", 91_000, 92_000, 5_000, 9_000]
    assert settled_with_steps(before, after, events=EVENTS) == 3
    across = ["ens1f0", "CLOCK_REALTIME", 60_000, 61_000, 5_000, 9_000]
    assert settled_with_steps(across, events=EVENTS, gaps=False) == 3  # no event is observed
    assert settled_with_steps(across, events=EVENTS[:1]) == 1  # carriers have another clock
    with pytest.raises(GarbledError):
        settled_with_steps(["ens1f0"], events=EVENTS)


def test_a_status_is_recorded_with_the_rows_of_its_server() -> None:
    watched = {"server0": Span(5, 6), "server1": Span(7, 8)}
    clocks = {"server1": ClockStatus(False, 3.25, 1_500, 16_000_000_000)}
    event = Reconfiguration("crossed", 1, Span(0, 0), (), (), watched=watched, clocks=clocks)
    fabric: Any = SimpleNamespace(testbed=SimpleNamespace(name="lab"))
    found = {
        row.subject: row.conditions for row in rows(event, fabric, 4) if row.quantity == "watched"
    }
    assert found == {
        "server0": {"event": 4},
        "server1": {
            "event": 4,
            "clock_synchronised": False,
            "clock_frequency_ppm": 3.25,
            "clock_estimated_error_us": 1.5,
            "clock_maximum_error_us": 16e6,
        },
    }
