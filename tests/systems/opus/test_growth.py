"""Waits of a training job in sizes that have not run, from numbers written down by hand."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.jobs.statistics.means import MeanEstimate
from lightrig.harness.systems.opus.measurements.growth import (
    answer_in_sizes,
    axis_of,
    growth,
    on_line,
)

MS = 1_000_000


def mean(value: float, half: float, n: int = 7) -> MeanEstimate:
    return MeanEstimate(value, value - half, value + half, n)


def test_a_straight_line_passes_through_two_sizes() -> None:
    """From 2 to 3 stages 70 more; at 7 stages 5 times the second less 4 times the first."""
    found = on_line({2: mean(110, 3), 3: mean(180, 4, n=5)}, 7)
    half = math.hypot(4 * 3, 5 * 4)
    assert (found.value, found.n) == (pytest.approx(180 + 4 * 70), 5)
    assert (found.lower, found.upper) == pytest.approx((460 - half, 460 + half))


def test_three_sizes_have_the_line_of_least_squares() -> None:
    """Sizes 1, 2, 6 with 10, 30, 20; by hand: mean size 3, sum of squares 14, slope 1."""
    found = on_line({1: mean(10, 1), 2: mean(30, 2), 6: mean(20, 3)}, 10)
    assert found.value == pytest.approx(20 + (10 - 3) * (-2 * -10 + -1 * 10 + 3 * 0) / 14)
    weights = (1 / 3 - 7 * 2 / 14, 1 / 3 - 7 * 1 / 14, 1 / 3 + 7 * 3 / 14)
    half = math.hypot(weights[0] * 1, weights[1] * 2, weights[2] * 3)
    assert found.upper - found.value == pytest.approx(half)


@pytest.mark.parametrize(("largest", "sizes"), [(3, [4, 8, 16]), (4, [8, 16, 32])])
def test_further_sizes_are_doublings(largest: int, sizes: list[int]) -> None:
    found = growth("stages", {2: {10: mean(5, 1), 30: mean(7, 1)}, largest: {30: mean(9, 1)}})
    assert found.run == (2, largest)
    assert {switching: list(waits) for switching, waits in found.waits.items()} == {30: sizes}


@pytest.mark.parametrize(
    ("sizes", "axis"),
    [([(2, 2), (3, 2)], "stages"), ([(2, 2), (2, 4), (2, 3)], "replicas")],
)
def test_sizes_differ_in_one_degree(sizes: list[tuple[int, int]], axis: str) -> None:
    assert axis_of(sizes) == axis


@pytest.mark.parametrize("sizes", [[(2, 2), (3, 4)], [(2, 2), (2, 2)], [(2, 2), (3, 2), (3, 2)]])
def test_sizes_that_differ_in_two_degrees_or_none_are_refused(sizes) -> None:
    with pytest.raises(ValueError, match="expected sizes that differ in stages alone"):
        axis_of(sizes)


def answered(stages: int, wait: float | None, *, alike: bool = True) -> Any:
    """Return the answer of a run with two ranks a stage, whose steps wait so many ms at 100 ms."""
    return SimpleNamespace(
        stages=stages,
        ranks=2 * stages,
        exposed={} if wait is None else {100 * MS: mean(wait * MS, 10 * MS)},
        as_printed_before=alike,
        lines=lambda: iter([f"step of {stages} stages"]),
        document=lambda: {"stages": stages},
    )


def test_the_answer_of_several_sizes_has_each_and_those_computed() -> None:
    answer = answer_in_sizes("stages", [answered(2, 410), answered(3, 540)])
    half = math.hypot(1 * 10, 2 * 10)
    assert answer.as_printed_before
    assert [*answer.lines()] == [
        "step of 2 stages",
        "also      3 stages of 2 ranks, on 6 ranks",
        "step of 3 stages",
        "growth    with stages, computed: on a straight line through the runs of 2 and 3, a step "
        "waits",
        f"             100 ms, 4 stages: 670 ms (95 % interval {math.floor(670 - half)} … "
        f"{math.ceil(670 + half)}, n = 7)",
        *[
            f"             100 ms, {size} stages: {written}, n = 7)"
            # 410 + 130 x 6 = 1190 ms within 78.10 ms, 410 + 130 x 14 = 2230 ms within 191.05 ms.
            for size, written in (
                (8, "1.190 s (95 % interval 1.111 … 1.269"),
                (16, "2.23 s (95 % interval 2.03 … 2.43"),
            )
        ],
    ]
    document = answer.document()
    assert document["stages"] == 2
    assert document["also"] == [{"stages": 3}]
    assert [(one["switching_ns"], one["stages"]) for one in document["growth"]] == [
        *((100 * MS, 4), (100 * MS, 8), (100 * MS, 16))
    ]


def test_growth_is_not_stated_where_a_size_has_no_wait() -> None:
    answer = answer_in_sizes("stages", [answered(2, 410), answered(3, None, alike=False)])
    assert not answer.as_printed_before
    assert [*answer.lines()][-1].startswith("growth    is not stated")
    assert answer.document()["growth"] == []
