"""How long does a change of circuits take, from the command to traffic on the new links?"""


def test_between_plans(fabric, measure, transition, samples):
    """Every circuit of one plan is moved to the next."""
    measure.bring_up(transition.before)
    for index in range(samples):
        measure.reconfiguration(transition.before if index % 2 else transition.after)
    measure.judge("reconfiguration")


def test_by_circuits_moved(fabric, measure, transition, moving, samples):
    """Does it take longer the more circuits move at once? As MixNet Fig. 21 asks."""
    measure.bring_up(transition.before)
    for _before, after in fabric.moves(transition.before, transition.after, moving, samples):
        measure.reconfiguration(after)
    measure.judge("reconfiguration")
