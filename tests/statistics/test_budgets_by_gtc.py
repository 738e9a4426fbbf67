"""Budgets, computed by the GUM Tree Calculator as well."""

import math
from typing import Any

import pytest

from lightrig.harness.statistics.samples import SampleError
from lightrig.harness.statistics.uncertainty import Component, combine

BUDGETS = [
    [("noise", 0.021, 7, 1.0), ("reference", 0.04, math.inf, 1.0), ("drift", 0.01, math.inf, 1.0)],
    [("noise", 0.05, 3, 1.0), ("repeatability", 0.02, 11, 1.0)],
    [("noise", 0.012, 15, 1.0), ("tuning", 0.3, math.inf, 0.07), ("slope", 0.09, 5, -2.5)],
    [("module", 3 / math.sqrt(3), math.inf, 1.0), ("module", 3 / math.sqrt(3), math.inf, -1.0)],
]


@pytest.fixture
def gtc() -> Any:
    """The calculator, which loads much of SciPy: not while tests are collected."""
    return pytest.importorskip("GTC", reason="GTC is not installed")


@pytest.mark.parametrize("lines", BUDGETS, ids=lambda lines: lines[0][0])
def test_independent_components_combine_as_gtc_combines_them(lines, gtc):
    parts = [Component(name, u, df, sensitivity=c) for name, u, df, c in lines]
    found = combine(parts)
    other = sum(c * gtc.ureal(0.0, u, df) for _, u, df, c in lines)
    assert found.standard == pytest.approx(other.u, rel=1e-9)
    if math.isinf(other.df):
        assert found.degrees > 1e9
        return
    assert found.degrees == pytest.approx(other.df, rel=1e-6)
    assert found.factor == pytest.approx(gtc.rp.k_factor(other.df, 95), rel=1e-6)


@pytest.mark.parametrize("r", [-1.0, -0.3, 0.6, 1.0])
def test_correlated_components_combine_as_gtc_combines_them(r, gtc):
    first, second, third = 0.06, 0.05, 0.03
    parts = [
        Component("meter in", first, sensitivity=-1.0),
        Component("meter out", second),
        Component("connector", third),
    ]
    a, b = gtc.ureal(0, first, independent=False), gtc.ureal(0, second, independent=False)
    gtc.set_correlation(r, a, b)
    other = b - a + gtc.ureal(0, third)
    assert combine(parts, correlations={(0, 1): r}).standard == pytest.approx(other.u, rel=1e-9)


def test_a_correlation_with_degrees_of_freedom_is_refused():
    parts = [Component("noise", 0.1, 4), Component("meter", 0.1)]
    with pytest.raises(SampleError, match="noise and meter are correlated"):
        combine(parts, correlations={(0, 1): 0.5})
