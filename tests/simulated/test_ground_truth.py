"""Ground truth of long runs."""

import pytest

from lightrig.instruments.clock import Span
from lightrig.instruments.core.stages import (
    CARRIER_DOWN,
    CARRIER_UP,
    DATAGRAMS_LOST,
    FIRST_DATAGRAM,
    EventStage,
    Watch,
)
from lightrig.instruments.simulated.world.ground_truth import (
    MOST_MOMENTS,
    DroppedTruthError,
    GroundTruth,
)

MS = 1_000_000


def test_old_moments_are_dropped_and_not_searched():
    truth = GroundTruth()
    for at in range(MOST_MOMENTS + 1):
        truth.note("ocs.35", "light", up=True, at=Span(at, at + 2))
    dropped = MOST_MOMENTS // 2
    assert truth.first("ocs.35", "light", up=True, since=dropped + 2) == (dropped, dropped + 2)
    assert truth.last("ocs.35", "light", since=dropped + 2) == (MOST_MOMENTS, MOST_MOMENTS + 2)
    with pytest.raises(DroppedTruthError):
        truth.first("ocs.35", "light", up=True, since=dropped + 1)
    with pytest.raises(DroppedTruthError):
        truth.last("ocs.35", "light", since=0)


def test_moment_that_was_planned_is_withdrawn():
    truth = GroundTruth()
    truth.note("server0.nic0", "carrier", up=True, at=Span(5, 5))
    truth.note("server0.nic0", "carrier", up=True, at=Span(9, 9))
    truth.withdraw("server0.nic0", "carrier", up=True)
    assert truth.first("server0.nic0", "carrier", up=True, since=6) is None
    assert truth.knows("server0.nic0", "carrier")


def flapping() -> GroundTruth:
    """Carrier is lost at 10, 300 and 900 and comes at 200, 340 and 2,000."""
    truth = GroundTruth()
    for signal in ("carrier", "datagram"):
        for up, moments in ((False, (10, 300, 900)), (True, (200, 340, 2_000))):
            for at in moments:
                moment = Span(at * MS, at * MS + 2)
                truth.note("server0.nic0", signal, up=up, at=moment)
    return truth


def watch(certain: int, latest: int | None = None) -> Watch:
    return Watch(5 * MS, Span(certain * MS, (certain if latest is None else latest) * MS))


@pytest.mark.parametrize(
    ("stage", "until", "expected"),
    [
        (CARRIER_DOWN, watch(1_500), [10]),
        (CARRIER_UP, watch(100), []),
        (CARRIER_UP, watch(250), [200]),
        (CARRIER_UP, watch(1_500), [340]),
        (CARRIER_UP, watch(9_000), [2_000]),
        (CARRIER_UP, watch(330, 350), [200, 340]),  # it may not have seen the second
        (DATAGRAMS_LOST, watch(1_500), [10]),  # 190 ms are longer than 40 ms
        (FIRST_DATAGRAM, watch(1_500), [200]),
        (DATAGRAMS_LOST, watch(9_000), [900]),
        (FIRST_DATAGRAM, watch(9_000), [2_000]),
        (DATAGRAMS_LOST, watch(100), [10]),  # not over
        (FIRST_DATAGRAM, watch(100), []),
    ],
)
def test_a_stage_is_within_the_watch(stage: EventStage, until: Watch, expected: list[int]) -> None:
    found = flapping().moments_of(stage, "server0.nic0", until)
    assert [moment.earliest // MS for moment in found] == expected


@pytest.mark.parametrize(
    ("since", "latest", "expected"),
    [
        (250, 1_500, [340]),
        (5, 1_500, [200, 340]),
        (250, 9_000, [340, 2_000]),
        (341, 9_000, [2_000]),  # the last alone, as of an event that is judged once it is over
        (341, 1_999, []),
        (2_001, 9_000, []),
    ],
)
def test_all_moments_lie_between_the_command_and_the_end(
    since: int, latest: int, expected: list[int]
) -> None:
    moments = flapping().all_moments(
        "carrier", "server0.nic0", Watch(since * MS, Span(latest * MS, latest * MS)), up=True
    )
    assert [moment.earliest // MS for moment in moments] == expected


def test_subjects_follow_what_is_noted_and_withdrawn() -> None:
    truth = GroundTruth()
    assert truth.subjects("light") == ()
    for subject, found in (("ocs.9", ("ocs.9",)), ("ocs.4", ("ocs.4", "ocs.9"))):
        truth.note(subject, "light", up=True, at=Span(7, 7))
        assert truth.subjects("light") == found
    truth.withdraw("ocs.4", "light", up=True)
    assert truth.subjects("light") == ("ocs.9",)
    truth.note("ocs.4", "light", up=False, at=Span(11, 11))
    assert truth.subjects("light") == ("ocs.4", "ocs.9")
    assert truth.subjects("carrier") == ()
