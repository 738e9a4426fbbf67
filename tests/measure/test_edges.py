"""Times when light came and went, from the samples of a log."""

import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from lightrig.harness.measure.edges import edges
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import PowerLog
from lightrig.instruments.simulated.world.detector import Exposure

US = 1000
LIGHT = 0.5
BEGUN = Span(7_000_000, 7_400_000)


def log_of(samples, period=US):
    return PowerLog(BEGUN, period, np.asarray(samples, dtype=np.float64))


def log_of_light(steps, samples, period=US):
    """The log of light that changes to a level at a time, as (ns, mW)."""
    exposure = Exposure(0, steps[0][1])
    for at, milliwatt in steps[1:]:
        exposure.lit(at, milliwatt)
    return log_of(exposure.means(period, samples), period)


@given(
    gone=st.integers(3 * US, 500 * US),
    dark=st.integers(4 * US, 400 * US),
    again=st.floats(0.25, 1.0),
    period=st.sampled_from([US, 1500, 2 * US]),
)
def test_a_dark_interval_is_known_to_the_sample(gone, dark, again, period):
    dark = max(dark, 4 * period)
    gone = max(gone, 3 * period)
    back = gone + dark
    log = log_of_light([(0, LIGHT), (gone, 0.0), (back, LIGHT * again)], 1000, period)
    fall, rise = edges(log)
    assert (fall.rising, rise.rising) == (False, True)
    assert fall.at.earliest <= gone <= fall.at.latest
    assert rise.at.earliest <= back <= rise.at.latest
    assert max(fall.at.latest - fall.at.earliest, rise.at.latest - rise.at.earliest) <= 2 * period
    apart = rise.at.since(fall.at)
    assert apart.earliest <= dark <= apart.latest
    assert abs(sum(apart) / 2 - dark) <= period


@settings(max_examples=50)
@given(
    start=st.integers(5 * US, 50 * US),
    duration=st.integers(0, 40 * US),
    bend=st.floats(0.2, 5.0),
    rising=st.booleans(),
)
def test_of_a_slow_edge_the_middle_is_found(start, duration, bend, rising):
    fine = np.linspace(0, 1, 400) ** bend
    shape = fine if rising else 1 - fine
    times = [0, *(start + round(duration * x) for x in np.linspace(0, 1, 400))]
    levels = [shape[0], *shape]
    log = log_of_light([(t, LIGHT * level) for t, level in zip(times, levels, strict=True)], 200)
    crossed = [i for i, level in enumerate(levels) if (level >= 0.5) == rising]
    middle = times[crossed[0]]
    (edge,) = edges(log)
    assert edge.rising == rising
    assert edge.at.earliest - 1 <= middle <= edge.at.latest + duration // 300 + 1


@settings(max_examples=50)
@given(
    level=st.floats(0.0, 1.0),
    noise=st.floats(0.0, 0.1),
    seed=st.integers(0, 2**32 - 1),
    samples=st.integers(0, 3000),
)
def test_noise_is_no_edge(level, noise, seed, samples):
    values = level + noise * np.random.default_rng(seed).standard_normal(samples)
    assert edges(log_of(values)) == []


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), noise=st.floats(0.0, 0.02))
def test_noise_moves_no_edge_by_more_than_two_samples(seed, noise):
    log = log_of_light([(0, LIGHT), (300_400, 0.0), (370_900, LIGHT)], 2000)
    noisy = log.milliwatt + noise * LIGHT * np.random.default_rng(seed).standard_normal(2000)
    fall, rise = edges(log_of(noisy))
    assert abs(sum(fall.at) / 2 - 300_400) <= 2 * US
    assert abs(sum(rise.at) / 2 - 370_900) <= 2 * US


def test_a_weaker_circuit_does_not_hide_the_dark_before_it():
    log = log_of_light([(0, 1.0), (100 * US, 0.0), (160 * US, 0.3)], 5000)
    assert [edge.rising for edge in edges(log)] == [False, True]


def test_weaker_light_is_no_loss_of_signal():
    log = log_of_light([(0, 1.0), (100 * US, 0.6)], 500)
    assert edges(log) == []
    assert [edge.rising for edge in edges(log, least_db=2.0)] == [False]


def test_many_edges_come_in_order():
    steps = [(n * 50_300, LIGHT * (n % 2)) for n in range(40)]
    found = edges(log_of_light(steps, 2500))
    assert [edge.rising for edge in found] == [n % 2 == 1 for n in range(1, 40)]
    for edge, (at, _) in zip(found, steps[1:], strict=True):
        assert edge.at.earliest <= at <= edge.at.latest
    assert all(a.at.latest < b.at.earliest for a, b in itertools.pairwise(found))


def test_on_the_clock_an_edge_is_as_uncertain_as_the_start_of_its_log():
    log = log_of_light([(0, LIGHT), (100_300, 0.0)], 200)
    (fall,) = edges(log)
    assert fall.on_clock(log) == Span(
        BEGUN.earliest + fall.at.earliest, BEGUN.latest + fall.at.latest
    )


def test_the_longest_log_has_edges_too():
    log = log_of_light([(0, LIGHT), (500_000_300, 0.0), (500_070_300, LIGHT)], 1_000_000)
    fall, rise = edges(log)
    assert abs(sum(rise.at.since(fall.at)) / 2 - 70_000) <= US


@pytest.mark.parametrize("samples", [[], [0.0], [1.0, 1.0]])
def test_a_short_log_has_no_edges(samples):
    assert edges(log_of(samples)) == []


def test_light_that_hesitates_on_its_way_down_goes_once():
    # Back and forth around a fifth, on its way from light to dark.
    log = log_of([LIGHT] * 50 + [0.202 * LIGHT, 0.198 * LIGHT] * 5 + [0.0] * 50)
    (fall,) = edges(log)
    assert not fall.rising
