"""Trials of settings on numbers without a world, with planted effects, drift and order."""

import itertools
import math

import numpy as np
import pytest
import scipy

from lightrig.harness.statistics.samples import SampleError
from lightrig.harness.statistics.trials import (
    blocks_of_pilot,
    effects,
    orders,
    planned_blocks,
)

DAY = 86400.0
PLANTED = (0.0, 0.01, 0.02, 0.03, 0.04, 0.05)
MATTERS = 0.02


class Numbers:
    """Values that drift by 10 % a day, scatter, and are higher when measured last in a block.

    Of each seed the shape of the drift, the scatter's, and the time that a measurement takes.
    """

    def __init__(self, seed, factors):
        self.generator = np.random.default_rng(seed)
        self.factors = factors
        self.now = 0.0
        self.pause = self.generator.uniform(30, 900)
        self.phase, self.sign = self.generator.uniform(0, 2 * math.pi), (-1) ** (seed // 18)
        self.walk = 0.0
        self.shape = seed // len(PLANTED) % 3
        self.scatter = self.generator.uniform(0.005, 0.04)

    def measure(self, in_order):
        values = np.ones((len(in_order), len(self.factors)))
        for block, order in enumerate(in_order):
            for place, setting in enumerate(order):
                took = self.pause * self.generator.gamma(9) / 9
                self.now += took
                self.walk += 0.1 * math.sqrt(took / DAY) * self.generator.normal()
                drift = (
                    self.sign * 0.1 * self.now / DAY,
                    0.1 / (2 * math.pi) * math.sin(2 * math.pi * self.now / DAY + self.phase),
                    self.walk,
                )[self.shape]
                skewed = self.generator.gamma(4) / 2 - 2  # of standard deviation 1, too
                scatter = skewed if self.shape == 1 else self.generator.normal()
                level = 3.4e9 * self.factors[setting] * (1 + 0.01 * place)
                values[block, setting] = level * math.exp(drift + self.scatter * scatter)
        return values


def trial(seed, factors):
    """Return the effects of a trial that its pilot has planned, and its number of blocks."""
    numbers = Numbers(seed, factors)
    pilot = orders(blocks_of_pilot(len(factors)), len(factors), numbers.generator)
    blocks = planned_blocks(numbers.measure(pilot), pilot, "ratio", MATTERS)
    in_order = orders(blocks, len(factors), numbers.generator)
    return effects(numbers.measure(in_order), in_order, "ratio"), blocks


def judged(seeds):
    """Return the shares of trials that hold the planted effect, and that see one where none is."""
    holds, seen, large = [], [], []
    for seed, planted in zip(seeds, itertools.cycle(PLANTED)):
        ((effect,), _) = trial(seed, [1.0, 1 + planted])
        holds.append(effect.lower <= planted <= effect.upper)
        if planted == 0:
            seen.append(effect.is_seen)
        elif planted >= MATTERS:
            large.append(effect.is_seen)
    return np.mean(holds), np.mean(seen), np.mean(large)


def test_sixty_trials_of_numbers_hold_what_was_planted():
    """Of 60 at 95 %, fewer than 52 hold with a probability of 1 in 800; of 10, 3 see too much."""
    holds, seen, large = judged(range(60))
    assert holds >= 52 / 60
    assert seen <= 0.2
    assert large >= 0.8


@pytest.mark.long
def test_a_thousand_trials_hold_what_was_planted_and_a_thousand_see_nothing_where_nothing_is():
    holds, _, large = judged(range(1000))
    assert 0.93 <= holds <= 0.97
    assert large >= 0.9
    false = [trial(seed, [1.0, 1.0])[0][0].is_seen for seed in range(10_000, 11_000)]
    assert np.mean(false) <= 0.065


def test_one_setting_after_another_would_see_the_drift():
    """What the blocks are for: the same numbers, all of the first before all of the second."""
    mistaken = 0
    for seed in range(20):
        numbers = Numbers(seed, [1.0, 1.0])
        numbers.shape, numbers.pause, numbers.scatter = 0, DAY / 60, 0.02
        values = np.log(numbers.measure([(0,)] * 30 + [(1,)] * 30))
        first, second = values[:30, 0], values[30:, 1]
        mistaken += scipy.stats.ttest_ind(first, second).pvalue < 0.05
    assert mistaken >= 19


def test_three_settings_have_intervals_that_hold_together():
    together = []
    for seed in range(200):
        found, blocks = trial(seed, [1.0, 1.03, 0.98])
        assert blocks % 3 == 0
        together.append(
            all(
                one.lower <= true <= one.upper
                for one, true in zip(found, (0.03, -0.02), strict=True)
            )
        )
    assert np.mean(together) >= 0.91  # 95 % less three standard deviations


def test_the_effect_and_its_interval_are_those_of_least_squares():
    """By the normal equations of blocks, settings and places, written out in full."""
    generator = np.random.default_rng(5)
    in_order = orders(12, 2, generator)
    values = generator.normal(7, 2, (12, 2)) + np.arange(12)[:, None]
    rows, known = [], []
    for block, order in enumerate(in_order):
        for place, setting in enumerate(order):
            rows.append([*(np.arange(12) == block), setting, place])
            known.append(values[block, setting])
    matrix, y = np.array(rows, dtype=float), np.array(known)
    solution, squares, rank, _ = np.linalg.lstsq(matrix, y, rcond=None)
    assert rank == 14
    standard = math.sqrt(squares[0] / 10 * np.linalg.inv(matrix.T @ matrix)[12, 12])
    half = scipy.stats.t.ppf(0.975, 10) * standard
    (effect,) = effects(values, in_order, "difference")
    assert effect.value == pytest.approx(solution[12], rel=1e-9)
    assert effect.lower == pytest.approx(solution[12] - half, rel=1e-9)
    assert effect.upper == pytest.approx(solution[12] + half, rel=1e-9)


@pytest.mark.parametrize(("settings", "blocks"), [(2, 2), (2, 14), (3, 9), (5, 10)])
def test_each_setting_is_at_each_place_as_often(settings, blocks):
    in_order = orders(blocks, settings, np.random.default_rng(3))
    assert len(in_order) == blocks
    for place in zip(*in_order, strict=True):
        assert sorted(place) == sorted([*range(settings)] * (blocks // settings))
    assert {*map(frozenset, in_order)} == {frozenset(range(settings))}


def test_orders_are_of_chance():
    firsts = {orders(20, 2, np.random.default_rng(seed))[0] for seed in range(20)}
    assert firsts == {(0, 1), (1, 0)}
    patterns = {tuple(orders(20, 2, np.random.default_rng(seed))) for seed in range(20)}
    assert len(patterns) == 20


def test_a_smaller_effect_that_matters_takes_more_blocks():
    numbers = Numbers(0, [1.0, 1.0])
    numbers.scatter = 0.04
    pilot = orders(8, 2, numbers.generator)
    values = numbers.measure(pilot)
    planned = [planned_blocks(values, pilot, "ratio", matters) for matters in (0.1, 0.02, 0.005)]
    assert planned == sorted(planned)
    # Far above the fewest, the number goes with the square of the effect.
    assert planned[2] / planned[1] == pytest.approx(16, rel=0.15)
    assert planned_blocks(np.ones((8, 2)), pilot, "ratio", 0.02) == 8


def test_an_effect_that_is_less_than_matters():
    in_order = orders(8, 2, np.random.default_rng(1))
    (none,) = effects(np.full((8, 2), 4.0), in_order, "ratio")
    assert (none.value, none.is_seen) == (0, False)
    assert none.is_less_than(0.01, "ratio")
    (half,) = effects(np.tile([4.0, 2.0], (8, 1)), in_order, "ratio")
    assert half.value == pytest.approx(-0.5)
    assert half.is_seen
    assert not half.is_less_than(0.9, "ratio")  # half as much is as far as twice as much
    assert half.is_less_than(1.1, "ratio")


@pytest.mark.parametrize(
    ("values", "scale", "sentence"),
    [
        ([[1.0, 2.0]] * 3, "difference", "shape"),
        ([[1.0, math.nan]] * 8, "difference", "not finite"),
        ([[1.0, -2.0]] * 8, "ratio", "expected values above 0"),
        ([[1.0]] * 8, "difference", "a column a setting"),
    ],
)
def test_values_that_make_no_trial_are_refused(values, scale, sentence):
    in_order = orders(8, 2, np.random.default_rng(1))
    with pytest.raises(SampleError, match=sentence):
        effects(values, in_order, scale)


def test_orders_that_are_not_balanced_are_refused():
    with pytest.raises(SampleError, match="at one place more often"):
        effects([[1.0, 2.0]] * 8, [(0, 1)] * 8, "difference")
    for blocks, settings in ((3, 2), (0, 2), (4, 1)):
        with pytest.raises(SampleError, match="expected a multiple"):
            orders(blocks, settings, np.random.default_rng(1))
    with pytest.raises(SampleError, match="expected a number above 0"):
        planned_blocks(
            [[1.0, 2.0]] * 8, orders(8, 2, np.random.default_rng(1)), "difference", math.nan
        )
