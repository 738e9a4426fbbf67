"""A run with `--relock`: its tests alone are run, and it counts as one by hand."""

from __future__ import annotations

import pytest

FIXTURE = "relock"


def is_unasked(item: pytest.Item) -> bool:
    """Whether a test is of the runs with `--relock` and this is none, or the reverse.

    Reading transceivers lengthens what else is measured, so that no run has both.
    """
    fixtures = getattr(item, "fixturenames", ())
    if "lightrig_testbed" not in fixtures:
        return False  # a test of something else, which measures no testbed
    return (FIXTURE in fixtures) != bool(item.config.getoption("relock"))


def is_by_hand(config: pytest.Config) -> bool:
    """Whether a run belongs to no night."""
    return bool(config.getoption("by_hand") or config.getoption("relock"))
