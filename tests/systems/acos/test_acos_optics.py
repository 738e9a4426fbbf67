"""Switches, fibers and the light that leads through them."""

import numpy as np
import pytest

from lightrig.harness.systems.acos.planning.optics import (
    CROSS,
    DARK,
    FabricError,
    OpticalFabric,
    select,
    selected,
)


def crossed_pair():
    """Two GPUs of one lane, looped in the bar state and joined to each other when crossed."""
    fabric = OpticalFabric(2, 1)
    choice = select(fabric, ("loop", "pair"))
    fabric.join(choice.transmit[:, 0, 0], choice.receive[:, 0, 0])
    one, two = fabric.exchange(
        "swap", choice.transmit[0, :, 1], choice.transmit[1, :, 1], "test", "TP"
    )
    fabric.join(one, choice.receive[0, :, 1])
    fabric.join(two, choice.receive[1, :, 1])
    return fabric


def test_a_crossed_exchange_swaps_the_two_fibers():
    fabric = crossed_pair()
    states = selected(fabric, fabric.rest(), np.ones((2, 1), dtype=np.int8))
    assert fabric.trace(states).gpus.tolist() == [[0], [1]]
    fabric.of(states, "swap")[...] = CROSS
    assert fabric.trace(states).gpus.tolist() == [[1], [0]]
    assert fabric.trace(states).stages.sum(axis=2).tolist() == [[3], [3]]


def test_a_link_is_dark_unless_both_ends_select_its_topology():
    fabric = crossed_pair()
    states = selected(fabric, fabric.rest(), np.array([[1], [0]], dtype=np.int8))
    fabric.of(states, "swap")[...] = CROSS
    assert fabric.trace(states).gpus.tolist() == [[DARK], [1]]  # GPU 1 is in its loop


def test_a_broken_switch_passes_nothing_on():
    fabric = crossed_pair()
    states = selected(fabric, fabric.rest(), np.ones((2, 1), dtype=np.int8))
    broken = np.array([fabric.arrays["swap"].first])
    assert (fabric.trace(states, broken).arrives == DARK).all()


def test_a_port_takes_one_fiber_and_a_switch_only_its_states():
    fabric = crossed_pair()
    spare = fabric.diverge("spare", 2, (1,), "test", "TP")
    states = fabric.rest()
    fabric.of(states, "spare")[...] = 2
    with pytest.raises(FabricError, match=r"spare: a state is none of 0\.\.1"):
        fabric.trace(states)
    fabric.join(spare.outputs[0, :1], np.array([0]))
    with pytest.raises(FabricError, match="a port has two fibers"):
        fabric.trace(fabric.rest())
    with pytest.raises(FabricError, match="swap is there twice"):
        fabric.diverge("swap", 2, (1,), "test", "TP")
    with pytest.raises(FabricError, match="1x5"):
        fabric.diverge("wide", 5, (1,), "test", "TP")
