"""False alarm rate and power of gates between nights.

Ours are held against their promise: at most 1 % where nothing changed, half a point for the
trials being so few. Beside them are the gates of pytest-benchmark, by its own classes, which
compare tonight with the night before and only look for slower: `pip install 'lightrig[peers]'`.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from lightrig.harness.statistics.departures import MOST_BEFORE, find_departures

Nights = NDArray[np.float64]
"""Nights x samples."""
Draw = Callable[[np.random.Generator, int, int], Nights]
Gate = Callable[[Nights], bool]

EVENTS, BEFORE = 30, 10
UNCHANGED, CHANGED = 2000, 200
ERROR, ALLOWED = 0.01, 0.015
PEERS = ("mean:5%", "mean:10%", "median:5%", "min:5%")

_SD = float(np.sqrt(np.log(1 + 0.15**2)))
"""Of the logarithm of a lognormal value whose standard deviation is 15 % of its mean."""


def main() -> None:
    random = np.random.default_rng(1)
    ours = {f"departures {ERROR:.0%}": _ours(MOST_BEFORE)}
    gates = ours | _peers()
    print(
        f"{EVENTS} samples a night, {BEFORE} nights before; by {UNCHANGED:,} unchanged nights and"
    )
    print(f"{CHANGED} changed ones: false alarms -> found of +10 % / +20 %, all in %")
    print(" " * 34 + "".join(f"{name:>16}" for name in gates))
    worst = dict.fromkeys(ours, 0.0)
    for kind, draw in KINDS.items():
        alarms = _rates(gates, draw, 1.0, UNCHANGED, random)
        some, more = (_rates(gates, draw, by, CHANGED, random) for by in (1.1, 1.2))
        cells = (
            f"{100 * alarms[name]:.1f} -> {100 * some[name]:.0f}/{100 * more[name]:.0f}"
            for name in gates
        )
        print(f"{kind:<34}" + "".join(f"{cell:>16}" for cell in cells))
        worst = {name: max(rate, alarms[name]) for name, rate in worst.items()}
    for name, rate in worst.items():
        print(f"  {name}: {rate:.2%} at worst, {rate / ALLOWED:.2f} of the limit of {ALLOWED:.1%}")

    print("found of +10 %, lognormal, by nights before and samples a night")
    for nights in (10, 20):
        gate = {"": _ours(nights)}
        powers = {
            samples: _rates(gate, _lognormal, 1.1, CHANGED, random, nights, samples)[""]
            for samples in (30, 60, 100, 300)
        }
        rejected = ", ".join(f"{power:.0%} from {samples}" for samples, power in powers.items())
        print(f"  {nights} nights: {rejected}")


def _rates(
    gates: Mapping[str, Gate],
    draw: Draw,
    by: float,
    trials: int,
    random: np.random.Generator,
    nights: int = BEFORE,
    samples: int = EVENTS,
) -> dict[str, float]:
    """Return the rate at which each gate calls tonight changed, where it is `by` times itself."""
    alarms = dict.fromkeys(gates, 0)
    for _ in range(trials):
        found = draw(random, nights + 1, samples)
        found[-1] *= by
        for name, gate in gates.items():
            alarms[name] += gate(found)
    return {name: count / trials for name, count in alarms.items()}


# ----------------------------------------------------------------------------- gates


def _ours(most: int) -> Gate:
    def gate(nights: Nights) -> bool:
        levels = np.median(nights, axis=1)
        (found,) = find_departures([levels], [0.0], ERROR, most=most)
        return found is not None

    return gate


def _peers() -> dict[str, Gate]:
    try:
        from pytest_benchmark.stats import Stats
        from pytest_benchmark.utils import parse_compare_fail
    except ImportError:
        print("pytest-benchmark is not installed: pip install 'lightrig[peers]'")
        return {}

    def fields(samples: Nights, check: object) -> dict[str, float]:
        stats = Stats()
        for value in samples.tolist():
            stats.update(value)
        return {check.field: getattr(stats, check.field)}

    def gate(text: str) -> Gate:
        check = parse_compare_fail(text)
        return lambda nights: bool(
            check.fails(fields(nights[-1], check), fields(nights[-2], check))
        )

    return {text: gate(text) for text in PEERS}


# ------------------------------------------------------------------------- what nights do


def _lognormal(random: np.random.Generator, nights: int, samples: int) -> Nights:
    return random.lognormal(0, _SD, (nights, samples))


def _bimodal(random: np.random.Generator, nights: int, samples: int) -> Nights:
    slow = np.where(random.random((nights, samples)) < 0.05, 3.0, 1.0)
    return slow * random.lognormal(0, 0.05, (nights, samples))


def _autocorrelated(random: np.random.Generator, nights: int, samples: int) -> Nights:
    drawn = random.normal(size=(nights, samples))
    for at in range(1, samples):
        drawn[:, at] = 0.7 * drawn[:, at - 1] + np.sqrt(1 - 0.7**2) * drawn[:, at]
    return np.exp(_SD * drawn)


def _scattered(random: np.random.Generator, nights: int, samples: int) -> Nights:
    level = random.normal(0, 0.03, (nights, 1))
    return np.exp(level) * _lognormal(random, nights, samples)


def _drifting(random: np.random.Generator, nights: int, samples: int) -> Nights:
    return np.exp(0.01 * np.arange(nights))[:, None] * _lognormal(random, nights, samples)


def _wandering(random: np.random.Generator, nights: int, samples: int) -> Nights:
    level = np.cumsum(random.normal(0, 0.02, (nights, 1)), axis=0)
    return np.exp(level) * _lognormal(random, nights, samples)


# fmt: off
OUTAGES = np.array([
    3, 3, 3, 4, 2, 3, 3, 3, 2, 2, 2, 2, 3, 3, 3, 4, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 3, 3, 3, 3, 3, 3,
    6, 7, 23, 23, 25, 25, 2, 3, 3, 3, 3, 3, 4, 4, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2,
    2, 3, 3, 3, 3, 3, 3, 2, 2, 2, 3, 3, 3, 3, 3, 2, 2, 2, 2, 3, 3, 10, 10, 10, 13, 13, 13, 13, 13,
    14, 14, 11, 11, 11, 14, 14, 14,
])
# fmt: on
"""Seconds from a RoCE port's error to its being active again, in the order of recovery.

Published, on hardware: link events of four servers, stamped to the second, in the artifact of
Opus (github.com/opusfabric/Opus, MIT, torchtitan/parse/node_*_link_event.txt).
"""


def _recorded(random: np.random.Generator, nights: int, samples: int) -> Nights:
    """Runs of ten outages as they were recorded; where in their seconds they fell is drawn."""
    starts = random.integers(OUTAGES.size, size=(nights, -(-samples // 10), 1))
    runs = OUTAGES[(starts + np.arange(10)) % OUTAGES.size]
    return runs.reshape(nights, -1)[:, :samples] + random.triangular(-1, 0, 1, (nights, samples))


KINDS: dict[str, Draw] = {
    "lognormal": _lognormal,
    "bimodal, 5 % thrice as slow": _bimodal,
    "autocorrelated in the night, 0.7": _autocorrelated,
    "nights scatter by 3 %": _scattered,
    "nights drift by 1 % a night": _drifting,
    "nights wander by 2 % a night": _wandering,
    "recorded outages (published)": _recorded,
}


if __name__ == "__main__":
    main()
