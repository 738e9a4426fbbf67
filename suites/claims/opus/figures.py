"""Series of the paper's figures: archived tables, released steps, and steps simulated again."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from lightrig.harness.claims.figures.curves import Curve, Figures, exact_curve
from lightrig.harness.systems.opus.planning.costs import (
    GB200,
    H200,
    Parts,
    advantage,
    packet_network,
    photonic_rails,
)
from lightrig.suites.claims.opus.claims import CONFIG_1, CONFIG_2, CONFIG_3, step_seconds
from lightrig.suites.claims.opus.simulated_overheads import gpt_example, llama_example, overhead
from lightrig.suites.claims.opus.simulated_steps import Example, results, simulated
from lightrig.suites.claims.opus.windows import EXPERIMENTS, GRADIENTS, SEND, windows

MODES = {
    "EPS": "eps",
    "ideal one-shot": "one_shot",
    "Opus": "on_demand",
    "Opus +Provisioning": "provisioned",
}
DELAYS_MS = (0, 10, 50, 100, 250, 500, 750, 1000)
GIBPS = (12.5, 25.0, 50.0, 100.0, 200.0)
"""Of links out of a server; 12.5 is what the paper calls 100 Gbit/s."""
_CHANGES = 6
"""Reconfigurations of a step in configurations 1 and 2, as printed in §5.2."""
_TABLES = {1: CONFIG_1, 2: CONFIG_2}
_PARTS = {"H200": H200, "GB200": GB200}
_DEGREES = (2, 4, 8, 16)
"""Of data parallelism; TP and PP stay."""


def archived_steps(configuration: int) -> Sequence[Curve]:
    """Return step times by switching time, and the estimate of §5.2, in ns over ms (Fig. 10)."""
    return [_by_delay(name, found, 1e9) for name, found in _archived(configuration).items()]


def archived_ratios(configuration: int) -> Sequence[Curve]:
    """Return the same over the native step time."""
    found = _archived(configuration)
    native = next(iter(found["Native"].values()))
    return [_by_delay(name, each, 1 / native) for name, each in found.items()]


def _archived(configuration: int) -> Mapping[str, Mapping[int, float]]:
    default, ahead = (
        step_seconds(f"{_TABLES[configuration]}_{mode}.csv") for mode in ("baseline", "provision")
    )
    delays = sorted(int(each) for each in default if each != "native" and int(each) <= 1000)
    return {
        "Native": dict.fromkeys(delays, default["native"]),
        "Opus": {each: default[str(each)] for each in delays},
        "Opus +Provisioning": {each: ahead[str(each)] for each in delays if str(each) in ahead},
        "estimate": {each: default["native"] + _CHANGES * each / 1000 for each in delays},
    }


def _by_delay(name: str, found: Mapping[int, float], factor: float) -> Curve:
    return exact_curve(name, {each * 1e6: value * factor for each, value in found.items()})


def control_overheads() -> Sequence[Curve]:
    """Return the part by which steps are longer than native ones at no delay (Fig. 11, left)."""
    default, ahead = (step_seconds(f"{CONFIG_2}_{mode}.csv") for mode in ("baseline", "provision"))
    return [
        exact_curve(
            "over native EPS",
            {
                "Opus": default["0"] / default["native"] - 1,
                "Opus +Provisioning": ahead["0"] / ahead["native"] - 1,
            },
        )
    ]


def suppressed_overheads() -> Sequence[Curve]:
    """Return the same of configuration 3, at two delays (Fig. 11, right)."""
    found = step_seconds(CONFIG_3)
    bars = {f"Opus, {ms} ms": found[ms] / found["native"] - 1 for ms in ("0", "100")}
    return [exact_curve("over native EPS", bars)]


def _example(gpu: str, gibps: float) -> Example:
    return llama_example(gibps) if gpu == "H200" else gpt_example(4, 32, "GB200", gibps)


def _sweep(
    points: Iterable[tuple[float, Example, int]], step: Callable[[Example, str, int], float | None]
) -> Sequence[Curve]:
    listed = list(points)
    curves = []
    for name, mode in MODES.items():
        found = {x: step(example, mode, delay) for x, example, delay in listed}
        known = {x: value for x, value in found.items() if value is not None}
        if known:
            curves.append(exact_curve(name, known))
    return curves


def _ours(example: Example, mode: str, delay: int) -> float:
    return float(
        simulated(example, mode, str(delay) if mode in ("on_demand", "provisioned") else "")
    )


def _released(example: Example, mode: str, delay: int) -> float | None:
    wanted = str(delay) if mode in ("on_demand", "provisioned") else ""
    for one in results():
        if (one.example, one.mode, one.delay) == (example, mode, wanted) and not one.unusable:
            return float(one.nanoseconds)
    return None


def steps_by_delay(gpu: str) -> Sequence[Curve]:
    """Return simulated step times in ns by switching time in ns (Fig. 12, 13, left)."""
    example = _example(gpu, 50.0 if gpu == "H200" else 100.0)
    return _sweep(((ms * 1e6, example, ms) for ms in DELAYS_MS), _ours)


def released_by_delay(gpu: str) -> Sequence[Curve]:
    """Return the authors' released step times of the same sweep."""
    example = _example(gpu, 50.0 if gpu == "H200" else 100.0)
    return _named_released(_sweep(((ms * 1e6, example, ms) for ms in DELAYS_MS), _released))


def steps_by_bandwidth(gpu: str) -> Sequence[Curve]:
    """Return simulated step times in ns by bit/s out of a server, at 10 ms (right)."""
    return _sweep(((8e9 * each, _example(gpu, each), 10) for each in GIBPS), _ours)


def released_by_bandwidth(gpu: str) -> Sequence[Curve]:
    """Return the authors' released step times of the same sweep."""
    found = _sweep(((8e9 * each, _example(gpu, each), 10) for each in GIBPS), _released)
    return _named_released(found)


def _named_released(curves: Sequence[Curve]) -> Sequence[Curve]:
    return [Curve(f"{one.name}, released", one.x, one.y, one.lower, one.upper) for one in curves]


def overheads_by_delay(gpu: str) -> Sequence[Curve]:
    """Return how much longer provisioned steps are than on each base, by delay in ns."""
    example = _example(gpu, 50.0 if gpu == "H200" else 100.0)
    return _overheads((ms * 1e6, example, ms) for ms in DELAYS_MS)


def overheads_by_bandwidth(gpu: str) -> Sequence[Curve]:
    """Return the same by bandwidth, at 10 ms."""
    return _overheads((8e9 * each, _example(gpu, each), 10) for each in GIBPS)


def overheads_by_size(gpu: str) -> Sequence[Curve]:
    """Return the same of GPT on packet switches, by GPUs (Fig. 14)."""
    tensor, gibps = (8, 50.0) if gpu == "H200" else (32, 100.0)
    points = (
        (float(degree * 4 * tensor), gpt_example(degree, tensor, gpu, gibps), 10)
        for degree in _DEGREES
    )
    return _overheads(points, ("EPS",))


def _overheads(
    points: Iterable[tuple[float, Example, int]], bases: Sequence[str] = ("EPS", "ideal one-shot")
) -> Sequence[Curve]:
    listed = list(points)
    curves = []
    for base in bases:
        found = [overhead(example, delay, MODES[base]) for _, example, delay in listed]
        curves.append(
            Curve(
                f"against {base}",
                tuple(x for x, *_ in listed),
                tuple(one.value for one in found),
                tuple(one.lower for one in found),
                tuple(one.upper for one in found),
            )
        )
    return curves


def _bills(gpu: str, which: int) -> Sequence[Curve]:
    parts = _PARTS[gpu]
    gpus = [degree * 4 * parts.gpus for degree in _DEGREES]
    return [
        exact_curve("EPS", {float(each): packet_network(parts, each)[which] for each in gpus}),
        exact_curve("Opus", {float(each): photonic_rails(parts, each)[which] for each in gpus}),
    ]


def dollars(gpu: str) -> Sequence[Curve]:
    """Return dollars of both networks by GPUs."""
    return _bills(gpu, 0)


def watts(gpu: str) -> Sequence[Curve]:
    """Return watts of both networks by GPUs."""
    return _bills(gpu, 1)


def savings(gpu: str) -> Sequence[Curve]:
    """Return by how many times EPS costs and draws more, by GPUs."""
    parts: Parts = _PARTS[gpu]
    found = {
        float(degree * 4 * parts.gpus): advantage(parts, degree * 4 * parts.gpus)
        for degree in _DEGREES
    }
    return [
        exact_curve("cost", {gpus: one.dollars for gpus, one in found.items()}),
        exact_curve("power", {gpus: one.watts for gpus, one in found.items()}),
    ]


def window_distribution() -> Sequence[Curve]:
    """Return the share of windows of experiment 1 at most so long, in ns (Fig. 4a)."""
    sizes = np.sort([size for size, _ in windows(1)])
    levels = np.logspace(5, 10, 101)
    below = np.searchsorted(sizes, levels, side="right") / sizes.size
    return [exact_curve("experiment 1", dict(zip(levels.tolist(), below.tolist(), strict=True)))]


def windows_by_next() -> Sequence[Curve]:
    """Return the mean window of experiment 1 in ns, by what follows it (Fig. 4b)."""
    found = {
        name: float(np.mean([size for size, following in windows(1) if following == name]))
        for name in (SEND, GRADIENTS)
    }
    return [exact_curve("mean", found)]


def windows_by_experiment() -> Sequence[Curve]:
    """Return mean and quartiles of the windows of each experiment, in ns (Fig. 4c)."""
    sizes = {f"experiment {n}": [size for size, _ in windows(n)] for n in EXPERIMENTS}
    quartiles = {"25 %": 25, "median": 50, "75 %": 75}
    return [
        exact_curve("mean", {name: float(np.mean(each)) for name, each in sizes.items()}),
        *(
            exact_curve(
                name, {each: float(np.percentile(found, q)) for each, found in sizes.items()}
            )
            for name, q in quartiles.items()
        ),
    ]


FIGURES: Figures = {
    "window-distribution": window_distribution,
    "windows-by-next": windows_by_next,
    "windows-by-experiment": windows_by_experiment,
    "archived-steps": archived_steps,
    "archived-ratios": archived_ratios,
    "control-overheads": control_overheads,
    "suppressed-overheads": suppressed_overheads,
    "steps-by-delay": steps_by_delay,
    "released-by-delay": released_by_delay,
    "steps-by-bandwidth": steps_by_bandwidth,
    "released-by-bandwidth": released_by_bandwidth,
    "overheads-by-delay": overheads_by_delay,
    "overheads-by-bandwidth": overheads_by_bandwidth,
    "overheads-by-size": overheads_by_size,
    "dollars": dollars,
    "watts": watts,
    "savings": savings,
}
"""Functions that return series, by the names that results/published/figures uses."""
