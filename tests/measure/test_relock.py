"""Stages of a relock: a table by hand, and a simulated truth against which bounds are held."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.measure.relock import (
    DURATIONS,
    MARKS,
    STAGES,
    condition_ended,
    durations_of,
    entered,
    path_sentence,
    relock_of,
    returned_states,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import LinkUpTimes, ModuleLights, Shown, ShownState

MS = 1_000_000


def flags(*readings: tuple[int, int, bool]) -> list[Shown]:
    return [Shown(Span(start, end), is_set) for start, end, is_set in readings]


# Readings of 2 ms at 0, 10, 20, 30; the columns: set or not, latched, late, alone, expected bounds.
@pytest.mark.parametrize(
    ("shown", "latched", "late", "alone", "expected"),
    [
        ("11-", True, 0, True, (0, 12)),
        ("011-", True, 0, True, (10, 22)),
        ("111-", True, 0, True, (10, 22)),
        ("01-", True, 0, True, (0, 12)),
        ("01-", True, 3, True, (-3, 12)),
        ("01-", True, 0, False, (0, 22)),
        ("01--", True, 0, True, (0, 12)),
        ("01-1", True, 0, True, (0, 12)),
        ("1-1-", True, 0, True, (10, 22)),
        ("1-", True, 0, True, None),
        ("1-", False, 0, True, (0, 12)),
        ("011-", False, 4, True, (16, 32)),
        ("----", True, 0, True, None),
        ("0111", True, 0, True, None),
    ],
)
def test_ends_by_hand(shown, latched, late, alone, expected):
    readings = flags(*((10 * n, 10 * n + 2, each == "1") for n, each in enumerate(shown)))
    assert condition_ended(readings, latched=latched, late=late, alone=alone) == expected


def naive(readings: Sequence[Shown]) -> Span | None:
    """The planted mistake: a latched flag is read like a state, from the last set to clear."""
    return condition_ended(readings, latched=False)


class LatchedFlag:
    """A module's flag, step by step: set while the condition is shown, cleared by a reading."""

    def __init__(self, ended: int, late: int) -> None:
        self.shown_until = ended + late
        self.cleared = -(10**12)

    def read(self, at: int) -> bool:
        is_set = self.cleared < self.shown_until
        self.cleared = at
        return is_set


def simulated(ended: int, late: int, gaps: Sequence[int], takes: Sequence[int]):
    """Readings of a flag whose condition began before them all; each acts at its middle."""
    flag, at, readings = LatchedFlag(ended, late), 0, []
    for gap, took in zip(gaps, takes, strict=True):
        is_set = flag.read(at + took // 2)
        readings.append(Shown(Span(at, at + took), is_set))
        at += took + gap
    return readings


truths = st.integers(2, 30).flatmap(
    lambda n: st.tuples(
        st.integers(1, 400 * MS),
        st.integers(0, 20 * MS),
        st.lists(st.integers(1, 60 * MS), min_size=n, max_size=n),
        st.lists(st.integers(1, 300 * MS), min_size=n, max_size=n),
    )
)


@settings(max_examples=400, deadline=None)
@given(truths)
def test_latched_bounds_hold_the_truth(truth):
    ended, late, gaps, takes = truth
    found = condition_ended(simulated(ended, late, gaps, takes), latched=True, late=20 * MS)
    assert found is None or found.earliest <= ended <= found.latest


def share_missed(read: Callable[[Sequence[Shown]], Span | None]) -> float:
    missed, told = 0, 0
    for number in range(500):
        ended = 150 * MS + number * 7_919_993 % (300 * MS)
        readings = simulated(ended, 0, [15 * MS + number % 7] * 60, [3 * MS] * 60)
        found = read(readings)
        if found is not None:
            told += 1
            missed += not found.earliest <= ended <= found.latest
    assert told == 500
    return missed / told


def test_naive_reading_of_latched_flags_misses_most():
    assert share_missed(lambda readings: condition_ended(readings, latched=True)) == 0
    assert share_missed(naive) > 0.5


def states(*readings: tuple[int, str]) -> list[ShownState]:
    return [ShownState(Span(at, at + 2), state) for at, state in readings]


def test_states_by_hand():
    seen = states((0, "dark"), (10, "dark"), (20, "valid"), (30, "valid"))
    assert entered(seen, "valid") == (10, 22)
    assert entered(seen, "valid", late=5) == (5, 22)
    assert entered(seen, "dark") is None
    assert entered(seen[2:], "valid") is None
    assert returned_states(seen) == ()
    loop = states((0, "init"), (10, "on"), (20, "on"), (30, "off"), (40, "on"))
    assert returned_states(loop) == ("on", "off", "on")
    assert entered(loop, "on") == (30, 42)


def test_a_mark_not_seen_lies_between_its_neighbours():
    found = relock_of(
        {
            "signal recovered": Span(0, 2),
            "signal detected": Span(5, 9),
            "lock": Span(100, 130),
            "output valid": None,
            "carrier up": Span(1000, 1001),
        }
    )
    assert [part.stages for part in found.parts] == [
        ("signal detection",),
        ("clock recovery",),
        ("module output", "NIC input", "PHY", "firmware", "driver", "carrier"),
    ]
    assert [part.length for part in found.parts] == [(3, 9), (91, 125), (870, 901)]
    assert [part.point for part in found.parts] == [6, 108, 885.5]
    assert found.whole == (998, 1001)
    assert found.sums_hold()
    (longest,) = found.longest()
    assert str(longest) == (
        "module output, NIC input, PHY, firmware, driver, carrier (between lock and carrier up)"
    )
    assert sum(part.point for part in found.parts) == 999.5


def test_the_order_bounds_marks_and_no_stage_is_negative():
    found = relock_of(
        {
            "signal recovered": Span(10, 20),
            "signal detected": Span(-40, 60),
            "lock": Span(0, 55),
            "output valid": Span(30, 90),
            "firmware up": Span(60, 70),
            "carrier up": Span(65, 66),
        }
    )
    assert [part.length for part in found.parts] == [
        *((0, 45), (0, 45), (0, 56), (0, 36), (0, 6)),
    ]
    assert found.contradicted == ()


def test_late_and_early_reports_are_named_and_tell_nothing():
    found = relock_of(
        {
            "signal recovered": Span(100, 110),
            "signal detected": Span(10, 90),
            "lock": Span(150, 170),
            "firmware up": Span(900, 950),
            "carrier up": Span(500, 501),
        }
    )
    assert found.contradicted == ("signal detected", "firmware up")
    assert [part.stages for part in found.parts] == [STAGES[:2], STAGES[2:]]


@pytest.mark.parametrize(
    ("marks", "told"),
    [
        ({"carrier up": Span(1, 2)}, "signal recovered"),
        ({"signal recovered": Span(1, 2)}, "carrier up"),
        ({"signal recovered": Span(5, 6), "carrier up": Span(1, 2)}, "before"),
    ],
)
def test_without_both_ends_there_is_no_relock(marks, told):
    with pytest.raises(ValueError, match=told):
        relock_of(marks)


lengths = st.lists(st.integers(0, 10**9), min_size=len(STAGES), max_size=len(STAGES))
errors = st.lists(
    st.tuples(st.integers(0, 10**8), st.integers(0, 10**8)),
    min_size=len(MARKS),
    max_size=len(MARKS),
)
shown = st.lists(st.booleans(), min_size=len(STAGES) - 1, max_size=len(STAGES) - 1)


@settings(max_examples=300, deadline=None)
@given(lengths, errors, shown)
def test_parts_hold_the_truth_and_the_longest_stage_is_named(lengths, errors, shown):
    moments = [sum(lengths[:n]) for n in range(len(MARKS))]
    seen = dict(zip(MARKS, [True, *shown, True], strict=True))
    marks = {
        name: Span(at - before, at + after)
        for name, at, (before, after) in zip(MARKS, moments, errors, strict=True)
        if seen[name]
    }
    found = relock_of(marks)
    assert found.contradicted == ()
    assert found.sums_hold()
    assert [stage for part in found.parts for stage in part.stages] == [*STAGES]
    true = dict(zip(STAGES, lengths, strict=True))
    for part in found.parts:
        least, most = part.length
        assert 0 <= least <= sum(true[stage] for stage in part.stages) <= most
    longest = max(lengths)
    named = {stage for part in found.longest() for stage in part.stages}
    assert named & {stage for stage, took in true.items() if took == longest}
    if found.whole.earliest > 0:
        assert sum(part.point for part in found.parts) == sum(found.whole) / 2


def test_durations_bound_moments_that_nothing_else_shows():
    """By hand: light at 0, output at 1000, carrier at 4000; 2500 and 30 of firmware, each +-1."""
    marks = {
        "signal recovered": Span(0, 0),
        "output valid": Span(990, 1010),
        "carrier up": Span(4000, 4002),
    }
    durations = {
        ("NIC signal", "PHY up"): Span(2499, 2501),
        ("PHY up", "firmware up"): Span(29, 31),
    }
    found = relock_of(marks, durations)
    assert found.contradicted == ()
    assert {part.stages: part.length for part in found.parts} == {
        ("signal detection", "clock recovery", "module output"): (990, 1010),
        ("NIC input",): (0, 484),  # 4002 - 990 - 2499 - 29
        ("PHY",): (2499, 2501),
        ("firmware",): (29, 31),
        ("driver", "carrier"): (0, 484),
    }
    assert found.whole == (4000, 4002)
    assert sum(part.point for part in found.parts) == 4001
    assert found.sums_hold()
    (longest,) = found.longest()
    assert str(longest) == "PHY"


def test_durations_longer_than_what_others_show_are_named():
    marks = {"signal recovered": Span(0, 0), "carrier up": Span(400, 402)}
    found = relock_of(marks, {("NIC signal", "PHY up"): Span(499, 501)})
    assert found.contradicted == (DURATIONS,)
    assert [part.length for part in found.parts] == [(400, 402)]


def test_what_follows_a_carrier_is_divided_too():
    marks = {
        "signal recovered": Span(0, 0),
        "carrier up": Span(400, 402),
        "first datagram": Span(401, 450),
    }
    (part,) = relock_of(marks).after
    assert part.stages == ("address", "first datagram")
    assert part.length == (0, 50)
    early = relock_of({**marks, "first datagram": Span(100, 200)})
    assert early.after == ()
    assert early.contradicted == ("first datagram",)


def times(signal: int | None, active: int | None, whole: int | None = None) -> LinkUpTimes:
    parts = (None if each is None else each * MS for each in (signal, active, whole))
    return LinkUpTimes(*parts)


PHY, ACTIVE = ("NIC signal", "PHY up"), ("PHY up", "firmware up")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (times(2500, 30), times(2600, 31), {PHY: 2600, ACTIVE: 31}),
        (times(2500, 30), times(2600, 30), {PHY: 2600, ACTIVE: 30}),  # both start anew together
        (times(2500, 30), times(2500, 30), {}),
        (times(2500, 30), times(2500, 30, 3000), {}),
        (times(2500, 30), times(3700, 30), {ACTIVE: 30}),  # longer than since the light went
        (times(2500, 30), times(2600, 0), {PHY: 2600}),  # not active yet
        (times(0, 0), times(2600, 31), {PHY: 2600, ACTIVE: 31}),
        (times(None, None), times(None, None), {}),
        (None, times(2600, 31), {}),
        (times(2500, 30), None, {}),
    ],
)
def test_timers_of_another_link_up_are_left_out(before, after, told):
    found = durations_of(before, after, 3600 * MS)
    assert found == {pair: Span((value - 1) * MS, (value + 1) * MS) for pair, value in told.items()}


STEPS = ("DPActivated", "DPTxTurnOff", "DPDeinit", "DPInit", "DPTxTurnOn", "DPActivated")


def paths(*lanes: Sequence[str]) -> ModuleLights:
    """Readings of lanes, each of the same number of states."""
    shown = ModuleLights(latched=True, late=0)
    for number, of_lanes in enumerate(zip(*lanes, strict=True)):
        at = Span(10 * number, 10 * number + 2)
        shown.paths.append(ShownState(at, ", ".join(sorted(set(of_lanes)))))
        for lane, state in enumerate(of_lanes, 1):
            shown.lanes.setdefault(lane, []).append(ShownState(at, state))
    return shown


def test_a_module_begun_anew_is_no_loop_and_a_loop_is_one():
    assert path_sentence(paths(["DPActivated"] * 3)) == ""
    assert path_sentence(paths(STEPS)) == f"left DPActivated: {' > '.join(STEPS[1:])}"
    back = [*STEPS[:4], "DPDeinit", "DPInit", "DPDeinit", *STEPS[3:]]
    assert path_sentence(paths(back)) == "were in a loop, lane 1: DPDeinit > DPInit > DPDeinit"


def test_lanes_that_pass_one_after_another_are_no_loop():
    """What both show comes twice: DPActivated with DPInit."""
    early = [*STEPS, "DPActivated", "DPActivated", "DPActivated"]
    late = ["DPActivated", "DPActivated", "DPInit", "DPInit", "DPInit", "DPInit", "DPTxTurnOn"]
    assert "loop" not in path_sentence(paths(early, [*late, "DPActivated", "DPActivated"]))
