"""Streams depend on their name and the seed alone; durations have the stated moments."""

import numpy as np
import pytest

from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.testbeds import Delay

MS = 1_000_000


def draws(stream, count=600):
    return [stream.normal() for _ in range(count)]


def test_streams_are_independent():
    chance = Chance(7)
    alone = draws(chance.stream("ocs/delays"))
    one, other = chance.stream("ocs/delays"), chance.stream("ocs/noise")
    mixed = [(one.normal(), other.normal()) for _ in range(600)]
    assert [first for first, _ in mixed] == alone
    assert draws(chance.stream("ocs/noise")) == [second for _, second in mixed]
    assert draws(Chance(8).stream("ocs/delays")) != alone
    assert abs(np.corrcoef(np.array(mixed).T)[0, 1]) < 0.15


def test_first_draws_of_many_streams_are_those_of_each():
    chance = Chance(7)
    names = [f"ocs/loss/{number}" for number in range(500)]
    assert chance.first_normals(names) == [chance.stream(name).normal() for name in names]
    assert chance.first_normals([]) == []


def test_normals_are_standard():
    values = np.array(draws(Chance(1).stream("x"), 20_000))
    assert values.mean() == pytest.approx(0, abs=0.03)
    assert values.std() == pytest.approx(1, abs=0.03)
    assert len(set(values.tolist())) == 20_000


@pytest.mark.parametrize(
    ("mean", "sd"), [(40 * MS, MS), (3 * MS, MS), (3000 * MS, 300 * MS), (MS, 2 * MS)]
)
def test_durations_have_the_stated_mean_and_sd(mean, sd):
    stream = Chance(1).stream("x")
    values = np.array([stream.duration(Delay(mean, sd)) for _ in range(20_000)])
    assert values.dtype == np.int64
    assert values.min() > 0
    assert values.mean() == pytest.approx(mean, rel=0.02 + 0.03 * sd / mean)
    assert values.std() == pytest.approx(sd, rel=0.05 if sd < mean else 0.3)
    assert np.median(values) < mean


def test_more_pairs_take_longer():
    stream = Chance(1).stream("x")
    exact = Delay(40 * MS, 0, MS // 2)
    assert [stream.duration(exact, pairs) for pairs in (0, 1, 2, 16)] == [
        40 * MS,
        40 * MS,
        40 * MS + MS // 2,
        47 * MS + MS // 2,
    ]
    spread = Delay(40 * MS, 2 * MS, MS)
    values = np.array([stream.duration(spread, 11) for _ in range(20_000)])
    assert values.mean() == pytest.approx(50 * MS, rel=0.01)
    assert values.std() == pytest.approx(2 * MS * 50 / 40, rel=0.05)


def test_a_constant_duration_draws_nothing():
    one, other = Chance(1).stream("x"), Chance(1).stream("x")
    one.duration(Delay(5))
    assert one.normal() == other.normal()
