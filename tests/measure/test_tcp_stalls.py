"""The model of TCP's stalls, beside readings, stalls and kernel events that were recorded."""

from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.instruments.clock import Span
from tests.campaigns import tcp_stalls
from tests.campaigns.tcp_stalls import MS, Cut, Reading

PHASE = 3
"""Of the machine on which all of this was recorded, for as long as it ran."""
SECOND = 1000 * MS

# Kernel 6.18 at 250 Hz, 26 November 2026: began, back, the longest exchange before the cut, the
# stall, and what both ends' entries were read to be.
RECORDED: dict[str, tuple[int, tuple[int, int], int, int, list[tuple[int, ...]], list[Any]]] = {
    # The second query was sent 2 ms before the light was back, and answered.
    "answered": (
        51261359169901,
        (51262412156857, 51262414240446),
        44324476,
        1036759295,
        [
            (51261008356084, 51261013030863, 2, 0),
            (51261382906117, 51261385224145, 1, 4),
            (51262413766166, 51262417917713, 2, 5),
        ],
        [
            (51261006626649, 51261013311019, 8, 6),
            (51261384951233, 51261395081086, 0, 0),
            (51262414088060, 51262418557804, 8, 0),
        ],
    ),
    # So was the fourth, and the entry was read in between. Its begin, its longest exchange before
    # and each end's first reading were not stored: they are made up, as on a busy machine.
    "read in between": (
        55839093651325,
        (55842148750786, 55842156798071),
        13000000,
        3111663524,
        [
            (55839000000000, 55839001000000, 2, 0),
            (55839105746827, 55839112578673, 0, 0),
            (55839112523630, 55839125361312, 1, 4),
            (55840134054178, 55840149942933, 1, 5),
            (55841153482663, 55841166155485, 1, 6),
            (55842183015542, 55842188200067, 1, 4),
            (55842188104167, 55842200348886, 2, 4),
        ],
        [
            (55839000000000, 55839001000000, 8, 0),
            (55839109987382, 55839113864124, 0, 0),
            (55842187306050, 55842198537208, 8, 0),
        ],
    ),
    # Sent too early.
    "not answered": (
        51166091797040,
        (51167159247588, 51167174000783),
        34036176,
        2039557063,
        [
            (51165657740742, 51165691952248, 2, 4),
            (51166129731640, 51166132941622, 0, 0),
            (51166132898942, 51166135320895, 1, 4),
            (51167145972225, 51167152797358, 1, 5),
            (51168169482747, 51168176548642, 2, 6),
        ],
        [
            (51165723322604, 51165736242740, 8, 0),
            (51166125006637, 51166134158885, 0, 0),
            (51168167670187, 51168175700090, 8, 0),
        ],
    ),
    # The block and its tail loss probe were lost before the sender's carrier went.
    "after a timeout": (
        51203367881072,
        (51204457141101, 51204487550475),
        38622411,
        1239920978,
        [
            (51202936533725, 51202955721138, 2, 4),
            (51203403404108, 51203413339185, 0, 0),
            (51203615774926, 51203619371062, 1, 4),
            (51204618456667, 51204620933473, 2, 5),
        ],
        [
            (51202669520216, 51202674495178, 8, 0),
            (51203399344293, 51203402015644, 0, 0),
            (51204619103841, 51204626236250, 8, 0),
        ],
    ),
    # So were these, and the light was back before the retransmission.
    "without a query": (
        51724909074173,
        (51725118723315, 51725124721707),
        35583089,
        223665295,
        [
            (51724511346582, 51724530383532, 8, 5),
            (51724959080528, 51724973995025, 0, 0),
            (51725174489074, 51725180376618, 2, 4),
        ],
        [
            (51724522848618, 51724553295973, 8, 0),
            (51724957626641, 51724972611540, 0, 0),
            (51725175311687, 51725180148961, 8, 0),
        ],
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_stall_is_inside_a_narrow_interval(name: str) -> None:
    began, back, usual, stall, *ends = RECORDED[name]
    found: Any = SimpleNamespace(began=began, back=Span(*back), usual=usual)
    readings = [tuple(Reading(*each) for each in end) for end in ends]
    cut = Cut(found, 204 * MS, (readings[0], readings[1]))
    bounds, close = tcp_stalls.predicted(cut, SECOND, PHASE)
    assert bounds.earliest <= stall <= bounds.latest
    assert bounds.latest - bounds.earliest < 150 * MS
    assert close == (name not in ("after a timeout", "without a query"))


def test_queries_come_at_the_slots_of_the_timer_wheel() -> None:
    """Times of the kernel's event neigh_timer_handler, 38,159.148 s and 38,160.172 s."""
    second = tcp_stalls.next_query(38_158_128_947_000, SECOND, PHASE)
    assert second == 38_159_148 * MS
    assert tcp_stalls.next_query(second, SECOND, PHASE) == 38_160_172 * MS


def test_the_phase_of_the_slots_is_read_from_the_kernels_timers() -> None:
    """50,658,854 ms are 12,664,713 jiffies and 2 ms; 12,664,713 - 12,664,702 is 11, or 3 of 8."""
    text = "Timer List Version: v0.10\nnow at 50658854532753 nsecs\n\njiffies: 12664702\n"
    assert tcp_stalls.slot_phase(text) == PHASE
