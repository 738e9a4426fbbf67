"""Circuits that share ports count as fewer samples than there are."""

import itertools

import numpy as np
import pytest

from lightrig.harness.statistics.clusters import clustered_samples
from lightrig.harness.statistics.quantiles import quantile
from lightrig.harness.statistics.samples import SampleError


def losses(draws, rows, columns, of_rows, of_columns, of_cells):
    """Return losses of all circuits, with their ingress and egress, whose median is 0."""
    values = draws.normal(0, of_rows, rows)[:, None] + draws.normal(0, of_columns, columns)
    values = values + draws.normal(0, of_cells, (rows, columns))
    first, second = np.indices((rows, columns))
    return values.ravel(), first.ravel(), second.ravel()


def by_resampling(values, first, second, draws, times=600):
    """Return the effective number by resampling ports of both sides (A. B. Owen, Ann. Appl. Stat. 1
    (2007) 386-411): the variance of the share below the median, against that of coins."""
    rows, columns = first.max() + 1, second.max() + 1
    below = np.zeros((rows, columns))
    below[first, second] = values <= np.median(values)
    shares = [
        below[draws.integers(0, rows, rows)][:, draws.integers(0, columns, columns)].mean()
        for _ in range(times)
    ]
    return 0.25 / np.var(shares)


def test_by_hand():
    """Two ingress ports by three egress ports; below the median are 1, 2 and 3.

    Less their mean of 1/2 the rows sum to 1/2 + 1/2 - 1/2 = 1/2 and -1/2, the columns to 1, 0, -1.
    Alone they have 6/5 x 6/4 = 9/5, together 2 (1/4 + 1/4) + 3/2 (1 + 0 + 1) - 9/5 = 11/5: as many
    as 6 x 9 / 11 = 4.9.
    """
    first, second = zip(*itertools.product("ab", [7, 8, 9]), strict=True)
    assert clustered_samples([1, 2, 6, 3, 5, 4], first, second, 0.5) == 4
    assert clustered_samples([1, 2, 6, 3, 5, 4], first, second, 0.5, least=5) == 5


def test_samples_of_one_circuit_count_once():
    """By hand: three circuits without a shared port, each measured twice.

    Their sums are 2/3, 2/3 and -4/3: 3/2 x 8/3 = 4 by either side, and by circuits, so together 4;
    alone 6/5 x (4/9 + 8/9) = 8/5: as many as 6 x 8 / 20 = 2.4.
    """
    first, second = [1, 1, 2, 2, 3, 3], [5, 5, 6, 6, 7, 7]
    assert clustered_samples([1, 1, 2, 2, 3, 3], first, second, 0.5) == 2


def test_a_single_cluster_is_left_out():
    """By hand: one ingress, two egress ports; sums 1 and -1: 2 (1 + 1) = 4 against 4/3 alone."""
    assert clustered_samples([1, 2, 3, 4], [1, 1, 1, 1], [5, 5, 6, 6], 0.5) == 1
    assert clustered_samples([1, 2, 3, 4], [1, 1, 1, 1], [5, 6, 7, 8], 0.5) == 4
    assert clustered_samples([1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8], 0.5) == 4


@pytest.mark.parametrize(("of_rows", "of_columns"), [(1.0, 0.6), (0.0, 0.8)])
def test_it_is_that_of_ports_drawn_again(of_rows, of_columns):
    """Over labs, since one lab's ports scatter. Resampling counts the cells' own scatter thrice."""
    draws = np.random.default_rng(20261125)
    ratios = []
    for _ in range(12):
        found = losses(draws, 14, 18, of_rows, of_columns, 0.3)
        ratios.append(clustered_samples(*found, 0.5) / by_resampling(*found, draws))
    assert float(np.median(ratios)) == pytest.approx(1.0, abs=0.15)


def test_independent_samples_count_each():
    draws = np.random.default_rng(4)
    counts = [clustered_samples(*losses(draws, 16, 12, 0, 0, 1), 0.5) for _ in range(40)]
    assert np.median(counts) > 0.85 * 16 * 12


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (6, 16)])
def test_a_median_over_circuits_covers_that_of_all_ports(rows, columns):
    """Ports are drawn from those with median 0: 95 % intervals hold it, naive ones do not."""
    draws = np.random.default_rng(rows)
    inside, naive = 0, 0
    for _ in range(300):
        values, first, second = losses(draws, rows, columns, 1, 1, 0.5)
        count = clustered_samples(values, first, second, 0.5, least=6)
        found = quantile(values, values, 0.5, effective=count)
        inside += found.lower <= 0 <= found.upper
        plain = quantile(values, values, 0.5)
        naive += plain.lower <= 0 <= plain.upper
    assert inside >= 0.94 * 300
    assert naive < 0.8 * 300


def test_clusters_are_as_many_as_samples():
    with pytest.raises(SampleError, match="clusters"):
        clustered_samples([1.0, 2.0], [1], [1, 2], 0.5)
