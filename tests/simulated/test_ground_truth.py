"""Ground truth of long runs."""

import pytest

from lightrig.instruments.clock import Span
from lightrig.instruments.simulated.world.ground_truth import (
    MOST_MOMENTS,
    DroppedTruthError,
    GroundTruth,
)


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
