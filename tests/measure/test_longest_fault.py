"""The longest fault that a job survives: durations to try, and its row in every case."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.jobs.measure.light_faults import Fault, FaultKind
from lightrig.harness.jobs.measure.survival_map import LongestFault
from lightrig.testbeds import Link, Port

S = 1_000_000_000
LINK = Link(Port("server0", "nic0"), Port("server1", "nic0"))


def tried(survived_s: float, trials: int = 9, late_s: float = 0.0) -> tuple[LongestFault, Any]:
    """Try durations of 0.1 to 10 s on a job that survives up to `survived_s`."""
    search = LongestFault(S // 10, 10 * S)
    drawn = [Fault(FaultKind("cut", 7 * S), LINK, after=n) for n in range(trials)]
    asked = []
    for fault in search.faults(drawn):
        asked.append(fault.what.duration)
        assert fault == replace(drawn[len(asked) - 1], what=fault.what)
        duration = fault.what.duration + round(late_s * S)
        survival: Any = SimpleNamespace(
            duration=duration, went_on=duration <= survived_s * S, outcome="unharmed"
        )
        search.found(survival)
        not_felt: Any = SimpleNamespace(duration=1, went_on=True, outcome="not felt: other link")
        search.found(not_felt)  # which says nothing of its duration
    return search, asked


def test_the_longest_fault_has_an_interval() -> None:
    search, asked = tried(1.7)
    assert asked[0] == pytest.approx(S, rel=0.1)  # between 0.1 and 10 s
    row, found = search.row("lab", 77), search.longest
    ends = tuple(round(each * S) for each in (found.value, found.lower, found.upper))
    assert (row.value, row.lower, row.upper) == ends
    assert found.lower <= 1.7 <= found.upper < 3
    assert (row.subject, row.quantity, row.unit, row.time_ns) == (
        *("lab", "survival.longest_cut"),
        *("ns", 77),
    )
    assert row.conditions == {"trials": 9, "shown": str(search)}
    assert " (95 % interval " in str(search)


@pytest.mark.parametrize(
    ("survived_s", "bound", "ends"), [(99.0, "at least", (1, 10)), (0.0, "less than", (0.1, 1))]
)
def test_a_fault_beyond_those_tried_is_a_bound(
    survived_s: float, bound: str, ends: tuple[float, float]
) -> None:
    search, _ = tried(survived_s, trials=4)
    row = search.row("lab", 0)
    assert ends[0] * S < row.value < ends[1] * S
    assert row.lower == row.upper == row.value
    assert (row.conditions["bound"], row.conditions["trials"]) == (bound, 4)
    assert str(search).startswith(f"{bound} ")
    # With more trials it is the end of the range.
    search, _ = tried(survived_s, trials=12)
    assert search.row("lab", 0).value == ends[survived_s > 1] * S if survived_s else S // 10
    assert str(search) == f"{bound} {'10 s' if survived_s else '100 ms'}"


def test_light_that_comes_back_late_counts_for_as_long_as_it_was_away() -> None:
    """Each fault lasts 0.5 s longer than asked for; those of 1.7 s are survived."""
    found = tried(1.7, trials=12, late_s=0.5)[0].longest
    assert found.lower <= 1.7 <= found.upper
    assert found.value > 1.4
