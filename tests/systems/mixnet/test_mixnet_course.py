"""The course of all-to-alls that a first run shows: passes, micro-batches, layers run again."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lightrig.harness.systems.mixnet.planning.control import CircuitControl, OutOfOrderError
from lightrig.harness.systems.mixnet.planning.course import (
    Course,
    CourseError,
    Seen,
    course_of,
)
from lightrig.harness.systems.mixnet.planning.demand import Placement
from lightrig.harness.systems.mixnet.planning.first_run import Announced, regions_of
from lightrig.harness.systems.mixnet.planning.region import RegionError

GATES = {
    name: np.array(rows, float)
    for name, rows in {
        "a": [[0, 5, 2], [1, 0, 3], [4, 6, 0]],
        "b": [[2, 0, 9], [7, 1, 0], [0, 3, 8]],
        "c": [[1, 4, 0], [0, 2, 6], [5, 0, 3]],
        "d": [[3, 3, 1], [8, 0, 2], [0, 7, 4]],
    }.items()
}


def seen(text: str) -> list[Seen]:
    """Read passes: a letter is a gate, > forward, ~ again, < its gradients; / ends a step."""
    found, step = [], 0
    for part in text.split():
        if part == "/":
            step += 1
            continue
        kind: Any = {">": "forward", "~": "again", "<": "gradient"}[part[0]]
        rows = GATES[part[1]]
        found += [Seen(step, kind, rows), Seen(step, kind, rows.T)]
    return found


def shown(course: Course) -> str:
    """Write each first all-to-all of a pair: its step, layer and phase, and its visit."""
    assert course.places is not None
    return " ".join(
        f"{one.step}{one.layer}{one.phase[0]}{'g' if 'gradient' in one.phase else ''}"
        f"{'~' if 'again' in one.phase else ''}{one.visit}"
        for one in course.places[::2]
    )


@pytest.mark.parametrize(
    ("text", "layers", "expected"),
    [
        (">a >b <b <a / >c >d <d <c", 2, "00d0 01d1 01cg1 00cg0 10d2 11d3 11cg3 10cg2"),
        # An evaluation pass of both layers between two steps.
        (
            ">a >b <b <a / >c >d >a >b <b <a",
            2,
            "00d0 01d1 01cg1 00cg0 10d2 11d3 10d4 11d5 11cg5 10cg4",
        ),
        # Layer 0 runs its experts again.
        (">a >b <b ~a <a", 2, "00d0 01d1 01cg1 00d~0 00cg0"),
        (">a >b ~b <b ~a <a", 2, "00d0 01d1 01d~1 01cg1 00d~0 00cg0"),
        # Two micro-batches, all forward first, the first one's gradients first.
        (">a >b >c >d <b <a <d <c", 2, "00d0 01d1 00d2 01d3 01cg1 00cg0 01cg3 00cg2"),
        (">a <a", 1, "00d0 00cg0"),
    ],
)  # fmt: skip
def test_a_first_run_shows_its_passes(text: str, layers: int, expected: str) -> None:
    course = course_of(seen(text))
    assert (course.layers, shown(course)) == (layers, expected)
    assert course.places is not None
    backs = {"dispatch": "combine", "dispatch again": "combine again"}
    for forth, back in zip(course.places[::2], course.places[1::2], strict=True):
        assert back.phase == backs.get(forth.phase, "dispatch gradient")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (">a >b", "no all-to-alls of gradients"),
        (">a >b <c <a", "brings back rows of no forward pass: [[1, 4, 0]"),
        (">a >b <b <a / >c >a >b <b <a", "an evaluation pass of 1 layers, expected a"),
        (">a >b <b <a / >c <c", "passes of 2 and of 1 layers"),
    ],
)  # fmt: skip
def test_what_are_no_passes_is_located(text: str, why: str) -> None:
    with pytest.raises(CourseError, match=re.escape(why)):
        course_of(seen(text))


def test_rows_that_do_not_come_back_are_located() -> None:
    rows = GATES["a"]
    with pytest.raises(CourseError, match="in step 0 rows do not come back as they were sent"):
        course_of([Seen(0, "forward", rows), Seen(0, "forward", rows)])
    with pytest.raises(CourseError, match="found 1 all-to-alls of rows, expected pairs"):
        course_of([Seen(0, "forward", rows)])


def test_circuits_change_for_evaluation_and_for_layers_that_run_again() -> None:
    """By the rule of a step: backwards once a layer, unless its circuits are there already."""
    text = ">a >b <b ~a <a / >c >d >a >b ~b <b ~a <a"
    course = course_of(seen(text))
    control = CircuitControl(Placement.even(3, 3), 2, "predict", course=course)
    made = []
    for number, one in enumerate(seen(text)):
        control.learn()
        if (due := control.due()) is not None and due.knows == "predicted":
            made.append((number, due.before, due.layer))
            control.changed()
        for rank in range(3):
            control.wants(rank, one.rows[rank].astype(int).tolist())
        if (due := control.due()) is not None:
            made.append((number, due.before, due.layer))
            control.changed()
        permitted = control.permitted()
        assert [each.traffic.tolist() for each in permitted] == [one.rows.tolist()] * 3
        for rank in range(3):
            control.ended(rank)
    assert made == [
        (1, "combine", 0), (2, "dispatch", 1), (3, "combine", 1), (6, "dispatch again", 0),
        (11, "combine", 0), (12, "dispatch", 1), (13, "combine", 1),
        (15, "combine", 0), (16, "dispatch", 1), (17, "combine", 1), (22, "dispatch again", 0),
    ]  # fmt: skip
    assert control.due() is None
    assert control.permitted() == []
    with pytest.raises(OutOfOrderError, match="more than the 26 all-to-alls of rows of the run"):
        control.wants(0, [0, 5, 2])


# ------------------------------------------------------------------------------- regions

SERVER_OF = (0, 0, 1, 1, 2, 2, 3, 3)
ON = {0: "ocs0", 1: "ocs0", 2: "ocs1", 3: "ocs1"}


def announced(
    groups: Sequence[Sequence[int]], given: Sequence[int], *, gate: int = 1
) -> dict[int, list[Announced]]:
    """Return what ranks begin: forth and back in a pass of one layer, and its gradients."""
    found: dict[int, list[Announced]] = {}
    for group in groups:
        for place, rank in enumerate(group):
            forth = tuple(given[place] * (peer + gate) for peer in range(len(group)))
            back = tuple(given[peer] * (place + gate) for peer in range(len(group)))
            found[rank] = [
                Announced(0, part, tuple(group), sent)
                for part in ("forward", "gradient")
                for sent in (forth, back)
            ]
    return found


def test_groups_that_share_servers_are_one_region() -> None:
    """Tensor-parallel ranks 0 and 1 of a server are each in an expert-parallel group."""
    runs = announced([(0, 2), (1, 3), (4, 6), (5, 7)], (3, 5))
    (first, course), (second, _) = regions_of(runs, SERVER_OF, ON)
    assert (first.switch, first.servers, first.ranks) == ("ocs0", (0, 1), (0, 1, 2, 3))
    assert (second.switch, second.servers, second.ranks) == ("ocs1", (2, 3), (4, 5, 6, 7))
    assert first.groups == second.groups == ((0, 2), (1, 3))
    assert first.placement == second.placement == Placement((0, 0, 1, 1), 2)
    assert (course.layers, len(course.places or ())) == (1, 4)


def test_a_region_without_a_rank_or_over_two_switches_is_refused() -> None:
    with pytest.raises(RegionError, match="rank 1 is in no all-to-all of rows"):
        regions_of(announced([(0, 2)], (3, 5)), SERVER_OF, ON)
    with pytest.raises(RegionError, match="over circuits of ocs0, ocs1, expected one region"):
        regions_of(announced([(0, 1, 4, 5)], (3, 5, 1, 2)), SERVER_OF, ON)


def test_ranks_of_a_region_begin_the_same_all_to_alls() -> None:
    runs = announced([(0, 2), (1, 3)], (3, 5))
    runs[3] = runs[3][:2]
    with pytest.raises(CourseError, match="rank 3 begins 2 all-to-alls of rows and rank 0 4"):
        regions_of(runs, SERVER_OF, ON)
    runs = announced([(0, 2), (1, 3)], (3, 5))
    runs[2][1] = runs[2][1]._replace(step=1)
    with pytest.raises(CourseError, match="all-to-all 1 of rank 2 is of step 1"):
        regions_of(runs, SERVER_OF, ON)


def test_a_predicted_demand_stays_within_groups() -> None:
    """Ranks 0 and 2 exchange rows, and 1 and 3; each pair is on two servers."""
    groups = ((0, 2), (1, 3))
    control = CircuitControl(Placement((0, 0, 1, 1), 2), 2, "predict", groups=groups)
    rows = np.array([[1, 0, 9, 0], [0, 4, 0, 6], [7, 0, 3, 0], [0, 2, 0, 8]])
    for given in (rows, rows.T):
        if given is not rows:
            assert control.due() is not None
            control.changed()
        for rank in range(4):
            control.wants(rank, given[rank].tolist())
        control.permitted()
        for rank in range(4):
            control.ended(rank)
        control.learn()
    due = control.due()
    assert due is not None
    assert (due.layer, due.before, due.knows) == (1, "dispatch", "predicted")
    # Each rank of a group sends ten rows: of 20 of the first group 8 go to rank 0 and 12 to rank 2,
    # of the second 6 to rank 1 and 14 to rank 3. Between the servers: 12 + 8 and 14 + 6, halved.
    np.testing.assert_allclose(due.demand, [[0, (12 + 8 + 14 + 6) / 2], [0, 0]])
