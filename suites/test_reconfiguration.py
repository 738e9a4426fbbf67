"""Duration of a change of circuits, from the command to traffic on the new links."""

import pytest


@pytest.mark.limits("reconfiguration", "outage")
def test_between_plans(measure, transition, samples):
    """Every circuit of one plan is moved to the next; numbered datagrams bound each outage."""
    measure.bring_up(transition.before)
    for index in range(samples):
        measure.outage(transition.before if index % 2 else transition.after)
    measure.judge("reconfiguration", "outage")


@pytest.mark.limits("reconfiguration")
def test_by_circuits_moved(fabric, measure, transition, moving, samples):
    """Duration by the number of circuits moved at once (as MixNet Fig. 21)."""
    measure.bring_up(transition.before)
    for _before, after in fabric.moves(transition.before, transition.after, moving, samples):
        measure.reconfiguration(after)
    measure.judge("reconfiguration")
