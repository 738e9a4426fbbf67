"""Ports that take longer than the others of the same events are found, and only those."""

import numpy as np
import pytest
import scipy

from lightrig.harness.statistics.samples import SampleError
from lightrig.harness.statistics.unlike_ports import (
    by_event_and_port,
    medians_of_rest,
    unlike_ports,
)


def times(draws, events=20, ports=16, slow=(), factor=1.3):
    """Return times of ports in s: events differ by 20 %, the ports of one by 2 %."""
    found = 3.0 * np.exp(draws.normal(0, 0.2, (events, 1)) + draws.normal(0, 0.02, (events, ports)))
    found[:, list(slow)] *= factor
    return found


def test_two_of_sixteen_ports_that_take_longer_are_found():
    draws = np.random.default_rng(34)
    found = times(draws, slow=(4, 11))
    unlike = unlike_ports(found - 0.001, found + 0.001)
    assert {one.port for one in unlike} == {4, 11}
    for one in unlike:
        assert one.n == 20
        assert one.lower <= 0.3 * one.usual <= one.upper
        assert one.confidence == pytest.approx(1 - 0.01 / 16)


def test_the_interval_is_that_of_an_independent_program():
    """Of exact times the interval of the median difference is `scipy.stats.quantile_test`'s."""
    found = times(np.random.default_rng(5), slow=(2,))
    (one,) = unlike_ports(found, found)
    others = np.delete(found, 2, axis=1)
    differences = found[:, 2] - np.median(others, axis=1)
    test = scipy.stats.quantile_test(differences, p=0.5)
    interval = test.confidence_interval(confidence_level=1 - 0.01 / 16)
    assert (one.lower, one.upper) == pytest.approx((interval.low, interval.high))
    assert one.excess == pytest.approx(float(np.median(differences)))


def test_like_ports_are_rarely_named():
    """At 0.5 of an error and without a least difference; below 0.5 x 50 and its scatter."""
    draws = np.random.default_rng(6)
    named = 0
    for _ in range(50):
        found = times(draws)
        named += bool(unlike_ports(found, found, error=0.5, least=0.0))
    assert 0 < named < 38
    assert sum(bool(unlike_ports(x, x)) for x in (times(draws) for _ in range(40))) == 0


def test_bounds_that_overlap_and_small_differences_name_nobody():
    found = times(np.random.default_rng(7), slow=(3,), factor=1.3)
    assert unlike_ports(found - 2, found + 2) == []
    small = times(np.random.default_rng(8), slow=(3,), factor=1.08)
    assert unlike_ports(small, small) == []
    assert [one.port for one in unlike_ports(small, small, least=0.05)] == [3]


def test_a_port_is_compared_with_the_median_of_the_remaining_ports():
    """Against NumPy's median of each row without the port, with ties and with ports left out."""
    draws = np.random.default_rng(11)
    found = draws.integers(0, 6, (40, 7)).astype(float)
    found[draws.random(found.shape) < 0.2] = np.nan
    medians = medians_of_rest(found)
    for port in range(7):
        rest = np.delete(found, port, axis=1)
        there = np.isfinite(found[:, port]) & (np.isfinite(rest).sum(axis=1) > 0)
        assert medians[there, port] == pytest.approx(np.nanmedian(rest[there], axis=1))


def test_a_faster_port_and_one_with_few_events():
    found = times(np.random.default_rng(9), slow=(1,), factor=0.6)
    found[5:, 7] *= 2
    found[:15, 7] = np.nan
    (one,) = unlike_ports(found, found)
    assert one.port == 1
    assert one.upper < 0


def test_rows_become_a_table_of_events_and_ports():
    ports, (table,) = by_event_and_port([7, 7, 9], ["b", "a", "b"], [1.0, 2.0, 3.0])
    assert ports == ["a", "b"]
    assert table == pytest.approx(np.array([[2.0, 1.0], [np.nan, 3.0]]), nan_ok=True)


def test_bounds_have_one_shape():
    with pytest.raises(SampleError, match="shapes"):
        unlike_ports([1.0], [1.0])


def test_the_port_that_differs_most_comes_first():
    found = times(np.random.default_rng(9), slow=(4,), factor=1.3)
    found[:, 9] *= 0.4
    assert [one.port for one in unlike_ports(found, found)] == [9, 4]
