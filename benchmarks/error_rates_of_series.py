"""Error rates of what is found in series of nights, in loss matrices, in fits and in budgets.

Rows for the table of `benchmarks.error_rates`: statistic, condition, nominal rate, errors,
repetitions.
"""

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from scipy import special

from lightrig.harness.jobs.statistics.latency_bandwidth import LatencyBandwidth, latency_bandwidth
from lightrig.harness.statistics.changes import find_changes, trend
from lightrig.harness.statistics.departures import find_departures, find_reaches
from lightrig.harness.statistics.frame_loss import (
    Code,
    frame_loss_of_bit_errors,
    frame_loss_of_histogram,
)
from lightrig.harness.statistics.loss_matrix import outliers, slope, take_apart
from lightrig.harness.statistics.uncertainty import Component, combine, margin, pooled
from lightrig.harness.statistics.verdicts import judge_maximum

Row: TypeAlias = tuple[str, str, float, int, int]
COMPARED = 57
"""Quantities of a night of testbeds/namespaces.yaml that are compared with the nights before."""


def rows() -> Iterator[Row]:
    """Measure all of them."""
    for made in (_power, _nights, _decisions, _matrices, _fits, _frames, _budgets):
        yield from made()


def _count(repetitions: int, is_error: Callable[[], bool]) -> int:
    return sum(is_error() for _ in range(repetitions))


def _power() -> Iterator[Row]:
    error = 0.01 / COMPARED
    for within, between in ((0.15, 0.0), (0.03, 0.02)):
        random = np.random.default_rng(20)
        missed = 0
        for _ in range(200):
            family = [
                np.median(np.exp(levels + random.normal(0, within, (11, 30))), axis=1)
                for levels in random.normal(0, between, (8, 11, 1))
            ]
            (first, *_) = find_reaches(family, [0.0] * 8, error)
            assert first is not None
            assert first.above is not None
            again = np.exp(random.normal(0, between) + random.normal(0, within, 30))
            family[0][-1] = first.above / first.before * np.median(again)
            missed += find_departures(family, [0.0] * 8, error)[0] is None
        condition = f"missed among {COMPARED}; sd {within:g} within, {between:g} between nights"
        yield "change that is stated to be seen", condition, 0.2, missed, 200


def _nights() -> Iterator[Row]:
    random = np.random.default_rng(21)

    def nights(drift: float = 0.0) -> list[np.ndarray]:
        levels = 1 + drift * np.arange(60) + random.normal(0, 0.02, 60)
        return [np.array([level]) for level in levels]

    for name, drift in (("no change", 0.0), ("a straight drift", 0.001)):
        alarms = _count(1000, lambda drift=drift: bool(find_changes(nights(drift))))  # type: ignore[misc]
        yield "abrupt change among nights", f"60 nights, {name}", 0.01, alarms, 1000
    yield (
        *("slow drift among nights", "60 nights without any", 0.01),
        *(_count(1000, lambda: trend(nights()) is not None), 1000),
    )

    def misses() -> bool:
        found = trend(nights(0.001))
        return found is None or not found.lower <= 0.001 <= found.upper

    yield "interval of a slow drift", "60 nights", 0.05, _count(1000, misses), 1000
    for count in (1, 16):
        found = sum(
            one is not None
            for _ in range(3200 // count)
            for one in find_departures(
                list(random.normal(1, 0.02, (count, 11))), [0.001] * count, 0.01
            )
        )
        yield "departure of the last night", f"10 nights before, {count} series", 0.01, found, 3200


def _decisions() -> Iterator[Row]:
    random = np.random.default_rng(23)
    half = float(special.ndtri(0.975))
    for rule, nominal in (("guarded", 0.025), ("simple", 0.5)):
        for wrong in ("pass", "fail"):

            def decides(rule: str = rule, wrong: str = wrong) -> bool:
                value = random.normal(4.0, 0.1)
                ends = [value - 0.1 * half], [value + 0.1 * half]
                return judge_maximum(*ends, 4.0, decision=rule).outcome == wrong  # type: ignore[arg-type]

            condition = f"loss at the limit, {rule}, wrong {wrong}"
            yield "limit on a greatest value", condition, nominal, _count(5000, decides), 5000


def _matrices() -> Iterator[Row]:
    random = np.random.default_rng(24)
    ports = circuits = 0
    for _ in range(2000):
        found = outliers(take_apart(random.normal(1, 0.1, (16, 16))), least=0.0, error=0.01)
        cells = [one for one in found if one.row is not None and one.column is not None]
        circuits += bool(cells)
        ports += len(found) > len(cells)
    yield "port named in a loss matrix", "16 x 16, all alike, any", 0.01, ports, 2000
    yield "circuit named in a loss matrix", "16 x 16, all alike, any", 0.01, circuits, 2000

    def misses() -> bool:
        found = slope(np.arange(30.0), 0.3 * np.arange(30) + random.standard_t(3, 30), error=0.05)
        return not found.lower <= 0.3 <= found.upper

    yield "interval of a laser's slope", "30 levels, Student's t", 0.05, _count(2000, misses), 2000


def _fits() -> Iterator[Row]:
    random = np.random.default_rng(25)
    sizes = 2.0 ** np.arange(10, 26, 2)
    true = 20_000 + 8e9 * sizes / 100e9
    missed = {"latency": 0, "bandwidth": 0}
    for _ in range(2000):
        found = latency_bandwidth(sizes, true * (1 + random.normal(0, 0.02, sizes.size)))
        assert isinstance(found, LatencyBandwidth)
        missed["latency"] += not found.latency_lower <= 20_000 <= found.latency_upper
        missed["bandwidth"] += not found.bandwidth_lower <= 100e9 <= found.bandwidth_upper
    for name, errors in missed.items():
        yield f"interval of a {name}", "8 sizes, 2 % scatter", 0.05, errors, 2000


def _frames() -> Iterator[Row]:
    code, codewords = Code(528, 7), 10**7
    for ratio in (2e-5, 1e-4):
        random = np.random.default_rng(26)
        true = frame_loss_of_bit_errors(ratio, code)
        symbol = -math.expm1(10 * math.log1p(-ratio))

        def misses(
            random: np.random.Generator = random, true: float = true, symbol: float = symbol
        ) -> bool:
            errors = [special.bdtr(k, 528, symbol) for k in range(8)]
            shares = np.diff([0.0, *errors, 1.0])
            counts = random.multinomial(codewords, shares / shares.sum()).tolist()
            bins = [(k, k, count) for k, count in enumerate(counts[:8])]
            return not true <= frame_loss_of_histogram(bins, counts[8], codewords, code).upper

        condition = f"RS(528,514), bit error ratio {ratio:g}, 1e+07 code words"
        yield "bound on a frame loss ratio", condition, 0.025, _count(2000, misses), 2000


def _budgets() -> Iterator[Row]:
    random = np.random.default_rng(27)
    for n, stated in ((4, 0.0), (4, 0.5), (4, 1.0), (4, 3.0), (13, 1.0)):

        def misses(n: int = n, stated: float = stated) -> bool:
            samples = random.normal(0, 1, n)
            scatter = pooled([samples], "noise")
            mean = Component("noise", scatter.standard / math.sqrt(n), scatter.degrees)
            reference = stated / math.sqrt(n)
            budget = combine([mean, Component("reference", reference)])
            return abs(samples.mean() + random.normal(0, reference)) > budget.expanded

        condition = f"mean of {n}, and a stated component of {stated:g} times its uncertainty"
        yield "interval of a budget", condition, 0.05, _count(10_000, misses), 10_000

    def closes() -> bool:
        sent, lost, needed = random.normal(0, (0.2, 0.1, 0.3))
        stage, least = (3 + float(lost), 0.1), (-3 + float(needed), 0.3)
        return margin((float(sent), 0.2), [stage], least).closes is True

    yield "power budget that closes", "margin of zero", 0.025, _count(10_000, closes), 10_000
