"""Where the time between light and carrier goes: with `--relock`; see docs/appendix/relock.md.

Without the option this is deselected, and with it everything else.
"""

import pytest


@pytest.mark.limits("relock")
def test_stages_of_relock(relock, measure, bring_up, transition, events):
    """Events take turns: in some nothing is read of transceivers, in others their flags are."""
    bring_up(transition.before, partly=True)
    for index in events:
        relock.event(transition.before if index % 2 else transition.after)
    relock.end()
    measure.judge("relock")
