"""The auditor finds nothing in a run that went well, and each promise that is broken on purpose."""

from collections.abc import Callable, Sequence

import pytest

from lightrig.harness.systems.opus.planning.run_events import (
    Began,
    Confirmed,
    Ended,
    GivenUp,
    Rewiring,
    RunEvent,
)
from lightrig.suites.claims.opus.auditor import Rule, audit
from lightrig.testbeds import Circuit

OCS = "ocs"


def circuits(*texts: str) -> frozenset[Circuit]:
    return frozenset(map(Circuit.parse, texts))


PIPELINE, RINGS = circuits("1>12", "2>11", "3>14", "4>13"), circuits("1>13", "3>11", "2>14", "4>12")
FOUND = {OCS: PIPELINE}
OWN = {OCS: (frozenset(range(1, 5)), frozenset(range(11, 15)))}


def carried(at: int, operation: str, path: frozenset[Circuit], *ranks: int) -> list[RunEvent]:
    return [
        *(Began(at, rank, operation, OCS, path) for rank in ranks),
        *(Ended(at + 5, rank, operation) for rank in ranks),
    ]


def moved(
    at: int, change: str, remove: frozenset[Circuit], add: frozenset[Circuit]
) -> list[RunEvent]:
    return [Rewiring(at, OCS, change, remove, add), Confirmed(at + 5, OCS, change)]


def good() -> list[RunEvent]:
    """Send/Recv, over to the rings, a collective, and back."""
    return [
        *carried(0, "pp#0", PIPELINE, 0, 1),
        *moved(10, "v1", PIPELINE, RINGS),
        *carried(20, "dp#0", RINGS, 0, 1),
        *moved(30, "v2", RINGS, PIPELINE),
        *carried(40, "pp#1", PIPELINE, 0, 1),
    ]


def rules(events: Sequence[RunEvent]) -> list[Rule]:
    return [violation.rule for violation in audit(events, FOUND, OWN, put_back=True)]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert rules(good()) == []


def starts_while_moving(run: list[RunEvent]) -> None:
    run.insert(5, run.pop(6))


def starts_without_light(run: list[RunEvent]) -> None:
    run[6] = Began(20, 0, "dp#0", OCS, RINGS | circuits("4>11"))
    run[7] = Began(20, 1, "dp#0", OCS, RINGS | circuits("4>11"))


def parts_under_traffic(run: list[RunEvent]) -> None:
    run.insert(5, run.pop(3))


def does_nothing(run: list[RunEvent]) -> None:
    run[6:6] = moved(16, "v1b", frozenset(), RINGS)


def rewires_unused_circuits(run: list[RunEvent]) -> None:
    del run[6:10]


def moves_what_stays(run: list[RunEvent]) -> None:
    run[4] = Rewiring(10, OCS, "v1", PIPELINE | circuits("1>13"), RINGS)


def changes_foreign_ports(run: list[RunEvent]) -> None:
    run[4] = Rewiring(10, OCS, "v1", PIPELINE | circuits("9>19"), RINGS)


def leaves_the_old_one(run: list[RunEvent]) -> None:
    run[4] = Rewiring(10, OCS, "v1", PIPELINE - circuits("1>12"), RINGS)
    run[10] = Rewiring(30, OCS, "v2", RINGS, PIPELINE - circuits("1>12"))


def never_says_done(run: list[RunEvent]) -> None:
    run[10:] = [
        *moved(30, "v2", RINGS, PIPELINE),
        *carried(40, "pp#1", PIPELINE, 0, 1),
        Rewiring(50, OCS, "v3", circuits("1>12"), frozenset(), fallback=True),
    ]


def hangs(run: list[RunEvent]) -> None:
    run.pop()


def goes_two_ways(run: list[RunEvent]) -> None:
    run[7] = Began(20, 1, "dp#0", OCS, circuits("2>14", "4>12"))


def stays_in_the_rings(run: list[RunEvent]) -> None:
    del run[10:]


PLANTED: list[tuple[Callable[[list[RunEvent]], None], Rule]] = [
    (starts_while_moving, "under reconfiguration"),
    (starts_without_light, "no light path"),
    (parts_under_traffic, "under traffic"),
    (does_nothing, "changes nothing"),
    (rewires_unused_circuits, "never used"),
    (moves_what_stays, "disturbed"),
    (changes_foreign_ports, "foreign port"),
    (leaves_the_old_one, "port used twice"),
    (never_says_done, "never confirmed"),
    (hangs, "never ended"),
    (goes_two_ways, "split"),
    (stays_in_the_rings, "not put back"),
]


@pytest.mark.parametrize(("plant", "rule"), PLANTED, ids=[rule for _, rule in PLANTED])
def test_each_injected_violation_is_found(
    plant: Callable[[list[RunEvent]], None], rule: Rule
) -> None:
    run = good()
    plant(run)
    assert rule in rules(run)
    assert len(set(rules(run)) - {rule, "not put back"}) == 0


def test_a_violation_of_every_rule_is_injected() -> None:
    assert len({rule for _, rule in PLANTED}) == len(PLANTED) == 12


def test_a_change_that_was_tried_again_is_one_change() -> None:
    run = good()
    run[4:5] = [run[4], Rewiring(12, OCS, "v1", PIPELINE, RINGS, again=True)]
    assert rules(run) == []


def test_a_retried_change_is_in_flux_until_confirmed() -> None:
    run = good()
    run[5:] = [
        GivenUp(15, OCS, "v1"),
        *carried(20, "pp#1", PIPELINE, 0, 1),
    ]
    assert set(rules(run)) == {"under reconfiguration", "not put back"}
    run[6:] = [
        Rewiring(16, OCS, "ring", RINGS | PIPELINE, PIPELINE, again=True, fallback=True),
        Confirmed(18, OCS, "ring"),
        *carried(20, "pp#1", PIPELINE, 0, 1),
    ]
    assert set(rules(run)) == {"disturbed"}


def test_a_violation_is_one_sentence() -> None:
    run = good()
    parts_under_traffic(run)
    (violation,) = audit(run, FOUND, OWN)
    assert str(violation) == (
        "under traffic at 0.000000 s: v1 on ocs parts 1>12, 2>11, 3>14, 4>13 under pp#0 of rank 1"
    )


def test_a_change_that_is_confirmed_after_it_was_given_up_is_known_again() -> None:
    """It counts for circuits that nothing else has touched since, and for no others."""
    begun = [Rewiring(10, OCS, "v1", PIPELINE, RINGS), GivenUp(12, OCS, "v1")]
    used = carried(20, "dp#0", RINGS, 0, 1)
    assert "under reconfiguration" in rules([*begun, *used])
    assert "under reconfiguration" not in rules([*begun, Confirmed(15, OCS, "v1"), *used])
    parted = [Rewiring(13, OCS, "v2", RINGS, PIPELINE), Confirmed(15, OCS, "v1")]
    assert "under reconfiguration" in rules([*begun, *parted, *used])
