"""Duration of a change of circuits, from the command to traffic on the new links."""

import pytest


@pytest.mark.limits("reconfiguration", "outage")
def test_between_plans(measure, bring_up, measure_outage, transition, events):
    """Every circuit of one plan is moved to the next; numbered datagrams bound each outage."""
    bring_up(transition.before, partly=True)
    for index in events:
        measure_outage(transition.before if index % 2 else transition.after)
    measure.judge("reconfiguration", "outage")


@pytest.mark.limits("reconfiguration")
def test_by_circuits_moved(
    fabric, measure, bring_up, measure_reconfiguration, transition, moving, events
):
    """Duration by the number of circuits moved at once (as MixNet Fig. 21)."""
    bring_up(transition.before, partly=True)
    moves = fabric.moves(transition.before, transition.after, moving)
    for _, (_before, after) in zip(events, moves, strict=False):
        measure_reconfiguration(after)
    measure.judge("reconfiguration")
