"""Nominal and observed error rates of every statistic and gate, beside other packages' results.

Writes docs/appendix/error-rates.md. Where statsmodels is not installed (extra `peers`), the
comparison with it is left out and said so. lifelines, which estimates from polled samples as well,
needs an older pandas than Lightrig's.
"""

import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special, stats

from benchmarks import error_rates_of_limits, error_rates_of_series
from lightrig.harness.jobs.statistics.latency_bandwidth import latency_bandwidth
from lightrig.harness.statistics.binomial import clopper_pearson
from lightrig.harness.statistics.bit_errors import (
    anytime_interval,
    bits_needed,
    error_ratio,
    judge_error_ratio,
)
from lightrig.harness.statistics.closure import judge_deviations
from lightrig.harness.statistics.departures import find_departures
from lightrig.harness.statistics.loss_matrix import slope
from lightrig.harness.statistics.quantiles import quantile
from lightrig.harness.statistics.sensitivity import Sensitivity, sensitivity
from lightrig.harness.statistics.sequential import SequentialTest
from lightrig.harness.statistics.uncertainty import Component, combine, pooled
from lightrig.harness.statistics.verdicts import judge_quantile

PAGE = Path(__file__).parents[1] / "docs" / "appendix" / "error-rates.md"
HEAD = """# Error rates

Written by `python -m benchmarks error_rates`, from simulated samples with fixed seeds. An error
is an interval without the truth, a verdict that is wrong, or an alarm where nothing changed. The
observed rate has its 95 % interval (Clopper and Pearson) in brackets; a rate below the nominal
one is on the safe side, since order statistics and counts are discrete.

| statistic | condition | nominal | observed | repetitions |
| --- | --- | --- | --- | --- |
"""


class Rate(NamedTuple):
    """One line of the table."""

    statistic: str
    condition: str
    nominal: float
    errors: int
    repetitions: int

    def line(self) -> str:
        """The line as Markdown."""
        low, high = clopper_pearson(self.errors, self.repetitions, 0.95)
        observed = f"{self.errors / self.repetitions:.2%} ({low:.2%} … {high:.2%})"
        cells = (self.statistic, self.condition, f"{self.nominal:.2%}", observed)
        return f"| {' | '.join(cells)} | {self.repetitions:,} |"


def main() -> None:
    """Measure all rates and write the page."""
    lines = []
    for made in (
        _quantiles,
        _verdicts,
        _limits,
        _ratios,
        _sequential,
        _sensitivity,
        _closure,
        _drift,
        _series,
    ):
        for rate in made():
            lines.append(rate.line())
            print(lines[-1], flush=True)
    lines += [
        "",
        "| the same, computed by others | cases | greatest difference |",
        "| --- | --- | --- |",
    ]
    for name, cases, difference in _compared():
        lines.append(f"| {name} | {cases} | {difference} |")
        print(lines[-1], flush=True)
    PAGE.write_text(HEAD + "\n".join(lines) + "\n")


def _count(repetitions: int, is_error: Callable[[], bool]) -> int:
    return sum(is_error() for _ in range(repetitions))


def _quantiles() -> Iterator[Rate]:
    random = np.random.default_rng(1)
    for q, n, sides in (
        (0.5, 30, "two"),
        (0.5, 300, "two"),
        (0.9, 100, "two"),
        (0.99, 299, "upper"),
    ):
        true = math.exp(float(special.ndtri(q)))

        def misses(q: float = q, n: int = n, sides: Any = sides, true: float = true) -> bool:
            values = random.lognormal(0, 1, n)
            found: Any = quantile(values, values, q, sides=sides)
            return not (found.lower is None or found.lower <= true) or found.upper < true

        yield Rate(
            f"interval of a quantile, q = {q}", f"{n} samples", 0.05, _count(4000, misses), 4000
        )

    def censored() -> bool:
        values = random.lognormal(3, 0.5, 100)
        early = np.floor((values - 7) / 10) * 10 + 7
        found: Any = quantile(early, early + 10, 0.5)
        return not found.lower <= math.exp(3) <= found.upper

    yield Rate("interval of a median", "100 samples, polled", 0.05, _count(4000, censored), 4000)


def _verdicts() -> Iterator[Rate]:
    random = np.random.default_rng(2)
    for share, wrong in ((0.9899, "pass"), (0.9901, "fail")):

        def decides(share: float = share, wrong: str = wrong) -> bool:
            above = (random.random(1000) > share).astype(float)
            return judge_quantile(above, above, 0.5, 0.99).outcome == wrong

        yield Rate(
            "limit on a p99", f"at the limit, wrong {wrong}", 0.05, _count(2000, decides), 2000
        )


def _limits() -> Iterator[Rate]:
    yield from (Rate(*case) for case in error_rates_of_limits.cases())


def _ratios() -> Iterator[Rate]:
    random = np.random.default_rng(3)
    for true, bits in ((1e-3, 10_000), (1e-8, 10**9), (1e-11, 10**12), (0.3, 10**9)):
        counts = random.binomial(bits, true, 5000)
        missed = sum(
            not (one := error_ratio(int(count), bits)).lower <= true <= one.upper
            for count in counts
        )
        yield Rate(
            "interval of a bit error ratio", f"{true:g}, {bits:.0e} bits", 0.05, missed, 5000
        )
    bits = bits_needed(1e-12, 0.95, 5)
    counts = random.poisson(1e-12 * bits, 20_000)
    outcomes = [judge_error_ratio(int(count), bits, 1e-12).outcome for count in counts]
    yield Rate(
        "limit on a bit error ratio",
        "at the limit, wrong pass",
        0.05,
        outcomes.count("pass"),
        20_000,
    )
    yield Rate(
        "limit on a bit error ratio",
        "at the limit, wrong fail",
        0.05,
        outcomes.count("fail"),
        20_000,
    )

    def ever() -> bool:
        looks = np.cumsum(random.poisson(3e-12 * 10**11, 60))
        for number, errors in enumerate(looks.tolist(), 1):
            low, high = anytime_interval(errors, number * 10**11, 1e-12)
            if not low <= 3e-12 <= high:
                return True
        return False

    yield Rate(
        "interval that holds at any time", "60 looks, ever wrong", 0.05, _count(150, ever), 150
    )


def _sequential() -> Iterator[Rate]:
    random = np.random.default_rng(4)
    test = SequentialTest(1e-13, 1e-12)
    step = test.bits_without_errors() // 24

    def decided(ratio: float) -> str:
        errors, bits = 0, 0
        while True:
            errors, bits = errors + int(random.poisson(ratio * step)), bits + step
            if (found := test.decide(errors, bits)) != "go on":
                return found

    good = _count(4000, lambda: decided(test.good) == "reject")
    yield Rate("sequential test", "good link rejected", 0.05, good, 4000)
    bad = _count(4000, lambda: decided(test.bad) == "accept")
    yield Rate("sequential test", "bad link accepted", 0.05, bad, 4000)


def _sensitivity() -> Iterator[Rate]:
    random = np.random.default_rng(5)
    powers, target = np.arange(-12.0, -5.0, 1.0), 2.4e-4

    def misses(bits: float, scale: float, burst: int) -> bool:
        at, off = random.uniform(-10, -8), scale * random.normal()
        q = -special.ndtri(target) * 10 ** (0.1 * (powers - at))
        errors = burst * random.poisson(bits * special.ndtr(-q) / burst)
        found = sensitivity(powers + off, errors, np.full(7, bits), target, scale_db=scale)
        return isinstance(found, Sensitivity) and not found.lower <= at <= found.upper

    for bits in (1e7, 1e9, 1e11):
        yield Rate(
            "sensitivity",
            f"{bits:.0e} bits a power",
            0.05,
            _count(200, lambda b=bits: misses(b, 0, 1)),
            200,
        )
    yield Rate(
        "sensitivity",
        "power scale 0.06 dB (k = 1)",
        0.05,
        _count(200, lambda: misses(1e9, 0.06, 1)),
        200,
    )
    yield Rate(
        "sensitivity", "errors in bursts of 30", 0.05, _count(200, lambda: misses(1e8, 0, 30)), 200
    )


def _closure() -> Iterator[Rate]:
    random = np.random.default_rng(6)
    for shared in (0.0, 0.5, 1.0):

        def fails(shared: float = shared) -> bool:
            common = random.normal(0, math.sqrt(shared))
            normal = common + random.normal(0, math.sqrt(1 - shared), 64)
            return not judge_deviations(normal / 1.96).closed

        condition = f"64 intervals, {shared:.0%} of the variance shared"
        yield Rate("closure of 95 % intervals", condition, 1e-4, _count(20_000, fails), 20_000)


def _drift() -> Iterator[Rate]:
    for name, draw in _nights().items():
        random = np.random.default_rng(7)

        def alarms(draw: Any = draw, random: Any = random) -> bool:
            (found,) = find_departures([np.median(draw(random), axis=1)], [0.0], 0.01)
            return found is not None and not found.confirmed

        yield Rate("departure of a night", name, 0.01, _count(600, alarms), 600)
    for within, between in ((0.03, 0.01), (0.03, 0.05), (0.3, 0.1)):
        random = np.random.default_rng(8)

        def misses(within: float = within, between: float = between, random: Any = random) -> bool:
            levels = random.normal(0, between, (11, 1))
            nights = np.exp(levels + random.normal(0, within, (11, 30)))
            nights[-1] *= 1000
            return find_departures([np.median(nights, axis=1)], [0.0], 0.01) == [None]

        condition = f"x1000 missed; sd {within:g} within, {between:g} between nights"
        yield Rate("departure of a night", condition, 0.0, _count(200, misses), 200)


def _series() -> Iterator[Rate]:
    return (Rate(*row) for row in error_rates_of_series.rows())


def _nights() -> dict[str, Callable[[np.random.Generator], Any]]:
    def scattered(random: np.random.Generator) -> Any:
        return np.exp(random.normal(0, 0.05, (11, 1))) * random.lognormal(0, 0.15, (11, 30))

    def wandering(random: np.random.Generator) -> Any:
        steps = np.cumsum(random.normal(0, 0.02, (11, 1)), axis=0)
        return np.exp(steps) * random.lognormal(0, 0.15, (11, 30))

    def tied(random: np.random.Generator) -> Any:
        return np.where(random.random((11, 30)) < 0.75, 1.0, random.lognormal(0.3, 0.3, (11, 30)))

    def bimodal(random: np.random.Generator) -> Any:
        slow = np.where(random.random((11, 30)) < 0.05, 3.0, 1.0)
        return slow * random.lognormal(0, 0.05, (11, 30))

    return {
        "lognormal": lambda random: random.lognormal(0, 0.15, (11, 30)),
        "bimodal": bimodal,
        "nights scatter by 5 %": scattered,
        "nights wander by 2 % a night": wandering,
        "75 % of the samples equal": tied,
    }


# -------------------------------------------------------------------------------- others


def _compared() -> Iterator[tuple[str, str, str]]:
    random = np.random.default_rng(9)
    cases = [(0, 1000), (5, 10**6), (93_796, 3 * 10**12), (37, 100), (999, 1000)]
    ours = np.array([clopper_pearson(k, n, 0.95) for k, n in cases])
    theirs = [stats.binomtest(k, n).proportion_ci(0.95, "exact") for k, n in cases if n < 10**9]
    small = [n < 10**9 for _, n in cases]
    yield (
        "Clopper-Pearson: scipy.stats.binomtest",
        str(sum(small)),
        _apart(ours[small], [(t.low, t.high) for t in theirs]),
    )
    proportion = _module("statsmodels.stats.proportion")
    if proportion is not None:
        found = [proportion.proportion_confint(k, n, 0.05, "beta") for k, n in cases]
        yield (
            "Clopper-Pearson: statsmodels proportion_confint (beta)",
            str(len(cases)),
            _apart(ours, found),
        )
    differences = []
    for n in (10, 30, 101, 500):
        values = random.lognormal(0, 1, n)
        mine: Any = quantile(values, values, 0.5)
        ci = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
        differences.append(_apart([[mine.lower, mine.upper]], [[ci.low, ci.high]]))
    yield "interval of a median: scipy.stats.quantile_test", "4", max(differences)
    x = np.arange(30.0)
    y = 0.3 * x + random.normal(0, 1, 30)
    mine_slope = slope(x, y, error=0.05)
    theil = stats.theilslopes(y, x, 0.95)
    yield (
        "slope of a laser: scipy.stats.theilslopes",
        "1",
        _apart([[mine_slope.value]], [[theil.slope]]) + " of the slope",
    )
    yield from _fits_compared(random)


def _fits_compared(random: np.random.Generator) -> Iterator[tuple[str, str, str]]:
    first, second = random.normal(0, 1, 5), random.normal(0, 3, 12)
    parts = [pooled([each], "noise") for each in (first, second)]
    means = [
        Component(part.name, part.standard / math.sqrt(each.size), part.degrees)
        for part, each in zip(parts, (first, second), strict=True)
    ]
    welch = stats.ttest_ind(first, second, equal_var=False)
    interval = welch.confidence_interval(0.95)
    budget = combine(means)
    yield (
        "budget of two means: scipy.stats.ttest_ind (Welch)",
        "1",
        _apart(
            [[budget.degrees, budget.expanded]], [[welch.df, (interval.high - interval.low) / 2]]
        ),
    )
    sizes = 2.0 ** np.arange(10, 26, 2)
    times = (20_000 + sizes * 0.08) * (1 + random.normal(0, 0.02, sizes.size))
    line: Any = latency_bandwidth(sizes, times)
    found, covariance = optimize.curve_fit(
        lambda size, latency, slope: latency + slope * size,
        sizes,
        times,
        p0=(1e4, 0.1),
        sigma=[line.time_ns(size) for size in sizes],
    )
    reach = stats.t.ppf(0.975, sizes.size - 2) * np.sqrt(np.diag(covariance))
    yield (
        "latency and bandwidth: scipy.optimize.curve_fit",
        "1",
        _apart(
            [[line.latency, line.latency_upper, 8e9 / line.bandwidth, 8e9 / line.bandwidth_lower]],
            [[found[0], found[0] + reach[0], found[1], found[1] + reach[1]]],
        ),
    )


def _apart(ours: Any, theirs: Any) -> str:
    mine, peers = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    scale = np.maximum(np.abs(peers), 1e-300)
    return f"{float(np.max(np.abs(mine - peers) / scale)):.1g}"


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed: pip install 'lightrig[peers]'")
        return None


if __name__ == "__main__":
    main()
