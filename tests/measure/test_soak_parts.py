"""The parts of a soak: rates, turns of plans, pairing of what both ends saw, link time."""

import pytest

from lightrig.harness.measure.soak.link_flaps import FlapTracker, LinkFlap
from lightrig.harness.measure.soak.link_time import LinkTime
from lightrig.harness.measure.soak.soaking import plans_in_turn
from lightrig.harness.statistics.rates import least_events, most_events, rate_sentence
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkEvent
from lightrig.testbeds import Link, Port, load

MS = 1_000_000
A, B = Port("server0", "nic0.p0"), Port("server1", "nic0.p1")
LINK = Link(A, B)
LATER = 1 << 50


@pytest.mark.parametrize(
    ("count", "least", "most"),
    [(0, 0.0, 2.996), (1, 0.0513, 4.744), (2, 0.3554, 6.296), (10, 5.425, 16.962)],
)
def test_bounds_are_those_of_the_tables_of_poissons_mean(
    count: int, least: float, most: float
) -> None:
    """Half the quantiles of chi-squared, 2k and 2k + 2 degrees of freedom, 5 % and 95 %."""
    assert least_events(count) == pytest.approx(least, rel=2e-3)
    assert most_events(count) == pytest.approx(most, rel=2e-3)


@pytest.mark.parametrize(
    ("count", "hours", "sentence"),
    [
        (0, 5184, "0 flaps in 5,184 link hours: at most 5.8e-4 an hour"),
        (1, 2, "1 flap in 2 link hours: 0.026 to 2.4 an hour"),
        (10, 0.01, "10 flaps in 0.01 link hours: 540 to 1,700 an hour"),
        (0, 0, "0 flaps in 0 link hours: nothing watched"),
    ],
)
def test_a_rate_states_its_count_and_time(count: int, hours: float, sentence: str) -> None:
    assert rate_sentence(count, hours) == sentence


def tracker() -> FlapTracker:
    made = FlapTracker([LINK])
    for server in ("server0", "server1"):
        made.watched_since(server, 0)
    return made


def change(port: Port, up: bool, earliest: int, latest: int) -> tuple[Port, LinkEvent]:
    return port, LinkEvent("eth0", "carrier", up, Span(earliest * MS, latest * MS), "sysfs")


def flaps(*changes: tuple[Port, LinkEvent]) -> list[LinkFlap]:
    made = tracker()
    for port, event in changes:
        made.note(port, event)
    return made.take({"server0": LATER, "server1": LATER})


@pytest.mark.parametrize(
    ("of_a", "of_b", "first"),
    [
        ((100, 101), (103, 104), A),
        ((107, 109), (103, 105), B),
        ((100, 103), (102, 105), None),
        ((102, 102), (102, 102), None),
    ],
)
def test_bounds_that_overlap_name_no_first_end(
    of_a: tuple[int, int], of_b: tuple[int, int], first: Port | None
) -> None:
    (found,) = flaps(
        change(B, False, *of_b),
        change(A, False, *of_a),
        change(A, True, 150, 152),
        change(B, True, 180, 190),
    )
    assert found.first == first
    assert found.down == Span(min(of_a[0], of_b[0]) * MS, min(of_a[1], of_b[1]) * MS)
    low, high = found.length(0)
    assert (low, high) == (180 * MS - found.down.latest, 190 * MS - found.down.earliest)


def test_an_end_that_kept_its_carrier_was_not_first() -> None:
    (found,) = flaps(change(B, False, 100, 101), change(B, True, 105, 106))
    assert found.first == B
    assert found.length(0) == (4 * MS, 6 * MS)


def test_losses_far_apart_are_two_flaps_and_near_ones_of_two_ends_are_one() -> None:
    far = flaps(
        change(A, False, 100, 101),
        change(A, True, 110, 111),
        change(B, False, 200, 201),
        change(B, True, 210, 211),
    )
    assert [flap.first for flap in far] == [A, B]
    near = flaps(
        change(A, False, 100, 101),
        change(A, True, 110, 111),
        change(B, False, 130, 131),
        change(B, True, 140, 141),
    )
    assert [len(flap.losses) for flap in near] == [2]
    again = flaps(
        change(A, False, 100, 101),
        change(A, True, 110, 111),
        change(A, False, 120, 121),
        change(A, True, 130, 131),
    )
    assert [flap.length(0) for flap in again] == [(9 * MS, 11 * MS)] * 2


def test_a_flap_waits_until_both_ends_were_read_beyond_it() -> None:
    made = tracker()
    for port, event in (change(B, False, 100, 101), change(B, True, 105, 106)):
        made.note(port, event)
    assert made.take({"server0": 90 * MS, "server1": LATER}) == []
    assert made.take({"server0": 120 * MS, "server1": LATER}) == []  # the other may follow
    for port, event in (change(A, False, 98, 99), change(A, True, 107, 108)):
        made.note(port, event)
    (found,) = made.take({"server0": 200 * MS, "server1": LATER})
    assert found.first == A


def test_an_end_that_nobody_watched_leaves_the_first_end_open() -> None:
    made = tracker()
    made.break_off("server0")
    for port, event in (change(B, False, 100, 101), change(B, True, 105, 106)):
        made.note(port, event)
    (found,) = made.take({"server1": LATER})
    assert found.first is None
    assert found.first_text == "cannot tell"
    made.watched_since("server0", 300 * MS)
    made.note(*change(B, False, 400, 401))
    made.break_off("server1")  # with its end
    (open_ended,) = made.take({"server0": LATER}) or made.end()
    assert open_ended.up is None
    assert open_ended.length(500 * MS)[1] is None


def test_turns_go_on_where_a_killed_soak_was() -> None:
    second = 1_000_000_000
    text = open_text() + "soak:\n  - {plan: ring, hold: 10 s}\n  - {plan: pairs, hold: 3 s}\n"
    testbed = load("testbeds/namespaces.yaml", content=text.encode())
    assert list(plans_in_turn(testbed, 30 * second, 0)) == [
        ("ring", 10 * second),
        ("pairs", 3 * second),
        ("ring", 10 * second),
        ("pairs", 3 * second),
        ("ring", 4 * second),
    ]
    assert list(plans_in_turn(testbed, 9 * second, 24 * second)) == [
        ("pairs", 2 * second),
        ("ring", 7 * second),
    ]
    plain = load("testbeds/namespaces.yaml")
    assert list(plans_in_turn(plain, 30 * second, 5 * second)) == [("ring", 30 * second)]


def open_text() -> str:
    with open("testbeds/namespaces.yaml", encoding="utf-8") as file:
        return file.read()


def test_link_time_counts_what_both_ends_were_watched_for() -> None:
    other = Link(Port("server0", "nic0.p1"), Port("server2", "nic0.p0"))
    time = LinkTime((LINK, other))
    second = 1_000_000_000
    time.advance({"server0": 0, "server1": 0}, {"server0": 60 * second, "server1": 50 * second})
    time.advance(
        {"server0": 0, "server1": 70 * second, "server2": 20 * second},
        {"server0": 100 * second, "server1": 90 * second, "server2": 95 * second},
    )
    # Of the first link 50 s and 20 s, of the other one 75 s; nothing of 50 s to 70 s.
    assert sorted(time.take()) == [(70 * second, [LINK]), (75 * second, [other])]
    assert list(time.take()) == []
