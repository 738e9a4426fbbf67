"""Times of circuit changes, and the time that training waits."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lightrig.harness.systems.mixnet.planning.calendar import LayerTimes, calendar, waiting

TIMES = LayerTimes(attention=40, experts=100, attention_backward=80, experts_backward=200)


def test_a_fast_switch_only_blocks_the_first_exchange():
    changes = list(calendar(3, TIMES, delay=25, first="block"))
    assert {change.before for change in changes if change.blocked} == {"dispatch"}
    assert waiting(iter(changes)) == 3 * 25


def test_a_prediction_hides_behind_attention_and_is_corrected_behind_the_experts():
    changes = list(calendar(2, TIMES, delay=25, first="predict"))
    assert [(c.layer, c.before, c.knows, c.hidden_by) for c in changes] == [
        (0, "combine", "gate", 100),
        (1, "dispatch", "predicted", 40),
        (1, "combine", "gate", 100),
        (0, "combine gradient", "gate", 80),
    ]
    assert waiting(iter(changes)) == 0


def test_circuits_are_set_twice_in_a_layer():
    layers = [change.layer for change in calendar(4, TIMES, delay=25)]
    assert [layers.count(layer) for layer in range(4)] == [2, 2, 2, 1]


def test_communication_beyond_computation_blocks():
    assert waiting(calendar(2, TIMES, delay=150, first="reuse")) == 50 + 50 + 70


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(0, 300), st.sampled_from(["block", "predict", "reuse"]))
def test_a_slower_switch_never_blocks_less(layers, delay, first):
    now, later = (waiting(calendar(layers, TIMES, d, first)) for d in (delay, delay + 10))
    assert now <= later
