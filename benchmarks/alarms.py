"""False alarms and missed changes of nights, where nights are not normal.

57 quantities of 60 samples a night, with nights that scatter by 2 to 5 %: normally, autocorrelated
by 0.6, with the tails of Student's t of 3 degrees of freedom, or with 3 % of nights off by +25 %.
`harness.statistics.departures` is what the nights page and `lightrig results compare` ask, at 1 %,
or what a lab's baselines file states. "departed, unconfirmed" is no alarm: its share is shown
without a limit, since an odd night is one.

`python -m benchmarks alarms` judges 1,000 nights of each kind, `python -m benchmarks.alarms 5` five
labs of 20 nights each.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from lightrig.harness.statistics.binomial import clopper_pearson
from lightrig.harness.statistics.departures import find_departures
from lightrig.testbeds import format_share

COMPARED, SAMPLES, BEFORE, JUDGED = 57, 60, 10, 20
LABS = 50
STATED = (0.01, 0.05)
"""Errors of all quantities of a night together: without a baselines file, and with one."""
FAMILY = 8
"""Series of a family, such as the ports of one switch."""
STEP, SCATTER = 1.3, 0.03

Random: TypeAlias = np.random.Generator
Numbers: TypeAlias = np.ndarray


def _autocorrelated(random: Random, nights: int, sd: float) -> Numbers:
    steps = random.normal(size=nights)
    for night in range(1, nights):
        steps[night] = 0.6 * steps[night - 1] + 0.8 * steps[night]
    return sd * steps


def _outliers(random: Random, nights: int, sd: float) -> Numbers:
    return random.normal(0, sd, nights) + np.where(random.random(nights) < 0.03, 0.25, 0.0)


KINDS: dict[str, Callable[[Random, int, float], Numbers]] = {
    "normal": lambda random, nights, sd: random.normal(0, sd, nights),
    "autocorrelated by 0.6": _autocorrelated,
    "Student's t, 3 degrees": lambda random, nights, sd: sd * random.standard_t(3, nights) / 3**0.5,
    "3 % of nights off by 25 %": _outliers,
}


class Lab:
    """Samples of `COMPARED` quantities over `nights` nights, by quantity and night."""

    def __init__(self, random: Random, kind: str, nights: int, sd: float | None = None) -> None:
        self.samples: list[list[Numbers]] = []
        for _ in range(COMPARED):
            between, within = random.uniform(0.02, 0.05), random.uniform(0.02, 0.15)
            levels = KINDS[kind](random, nights, between if sd is None else sd)
            noise = random.normal(0, within, (nights, SAMPLES))
            self.samples.append(list(100 * np.exp(levels[:, None] + noise)))

    def outcomes(self, night: int, error: float) -> set[tuple[int, str]]:
        """Return quantities with their words, where they have one."""
        found: set[tuple[int, str]] = set()
        for first in range(0, COMPARED, FAMILY):
            family = self.samples[first : first + FAMILY]
            levels = [np.median(each[: night + 1], axis=1) for each in family]
            uncertainties = [
                1.2533 * np.std(each[: night + 1], axis=1) / SAMPLES**0.5 for each in family
            ]
            departures = find_departures(levels, uncertainties, error / COMPARED)
            found |= {
                (first + at, "changed" if one.confirmed else "departed, unconfirmed")
                for at, one in enumerate(departures)
                if one is not None
            }
        return found


def alarms(kind: str, labs: int, error: float, seed: int = 1) -> tuple[int, int, int]:
    """Return nights with a false "changed", with an unconfirmed departure, and judged."""
    changed = departed = judged = 0
    for number in range(labs):
        lab = Lab(np.random.default_rng((seed, number)), kind, BEFORE + JUDGED)
        for night in range(BEFORE, BEFORE + JUDGED):
            found = {outcome for _, outcome in lab.outcomes(night, error)}
            changed += "changed" in found
            departed += "departed, unconfirmed" in found
            judged += 1
    return changed, departed, judged


def first_mornings(labs: int, error: float, seed: int = 2) -> list[str]:
    """Return, for each lab, the outcomes on three mornings of a quantity slower by `STEP`."""
    found: list[str] = []
    for number in range(labs):
        lab = Lab(np.random.default_rng((seed, number)), "normal", BEFORE + 3, SCATTER)
        slow = number % COMPARED
        for night in range(BEFORE, BEFORE + 3):
            lab.samples[slow][night] = STEP * lab.samples[slow][night]
        mornings = range(BEFORE, BEFORE + 3)
        each = [dict(lab.outcomes(night, error)).get(slow, "nothing") for night in mornings]
        found.append("; ".join(each))
    return found


def rows(labs: int) -> Iterator[str]:
    """Yield the lines of both tables."""
    yield "| nights | stated | false changed | departed, unconfirmed | nights judged |"
    yield "| --- | --- | --- | --- | --- |"
    for kind in KINDS:
        for stated in STATED:
            changed, departed, judged = alarms(kind, labs, stated)
            low, high = clopper_pearson(changed, judged, 0.95)
            rate = f"{changed / judged:.2%} ({low:.2%} … {high:.2%})"
            share = f"{departed / judged:.1%}"
            yield f"| {kind} | {format_share(stated)} | {rate} | {share} | {judged:,} |"
    yield ""
    yield f"x {STEP:g} at {SCATTER:.0%} scatter, {BEFORE} nights before, one of {COMPARED}:"
    for stated in STATED:
        mornings = first_mornings(2 * labs, stated)
        third = sum(each.split("; ")[-1] == "changed" for each in mornings)
        first = sum(each.startswith("departed") for each in mornings)
        yield (
            f"{format_share(stated)}: departed on the first morning in {first} of {len(mornings)}, "
            f"changed on the third in {third}"
        )


def main(arguments: Sequence[str] = ()) -> None:
    """Print the tables."""
    for line in rows(int(arguments[0]) if arguments else LABS):
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
