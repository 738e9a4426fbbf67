"""Overheads of switching in simulated steps (§5.3, Figs. 12 to 14), by the released rules."""

from __future__ import annotations

from functools import partial

from lightrig.harness.claims.computed import Computed, Registry, exactly
from lightrig.suites.claims.opus.simulated_steps import Example, simulated

DEVIATION, NARROW, LARGE = 0.0002, 0.0005, 0.006
"""How far released steps of the sizes used here are from ours at most; of GB200 with 100 Gbit/s; of
2,048 GB200."""
_BATCH = "batch_256_mb-1_96stack_seq4096"


def llama_example(gibps: float) -> Example:
    """128 H200, Fig. 12."""
    return Example(f"llama_dp4_pp4_tp8_{_BATCH}_{gibps:g}BW", "H200", "llama", 4, 4, 8, gibps)


def gpt_example(data: int, tensor: int, gpu: str, gibps: float) -> Example:
    """GPT of Figs. 13 and 14: 512 GB200, 512 H200, 2,048 GB200."""
    prefix = "gb200_" * (gpu == "GB200")
    name = f"{prefix}stg_dp{data}_pp4_tp{tensor}_{_BATCH}_{gibps:g}BW"
    return Example(name, gpu, "gpt", data, 4, tensor, gibps)


H200, GB200 = llama_example(50.0), gpt_example(4, 32, "GB200", 100.0)
H200_512, GB200_2048 = gpt_example(16, 8, "H200", 50.0), gpt_example(16, 32, "GB200", 100.0)


def _more(example: Example, delay_ms: int, base: str) -> float:
    """Part by which a step with circuits, asked for ahead, is longer than on a base."""
    step = simulated(example, "provisioned", str(delay_ms))
    return step / simulated(example, base, "") - 1


def overhead(example: Example, delay_ms: int, base: str) -> Computed:
    fabric = {"eps": "packet switches", "one_shot": "a one-shot fabric"}[base]
    step = simulated(example, "provisioned", str(delay_ms))
    beside = simulated(example, base, "")
    ratio = step / beside
    narrow = example.gpu == "GB200" and example.gibps < 25
    deviation = LARGE if example == GB200_2048 else NARROW if narrow else DEVIATION
    return Computed(
        ratio - 1,
        ratio * (1 - deviation) - 1,
        ratio * (1 + deviation) - 1,
        1,
        f"Simulated by the released rules: {step / 1e9:.4f} s at {delay_ms} ms over "
        f"{beside / 1e9:.4f} s on {fabric}; a step is taken to be within {deviation:.2%}, as the "
        "released ones of its size are.",
    )


def _greatest(delay_ms: int) -> Computed:
    """Of 10 ms: all sizes; of more, the two that the figures sweep."""
    ten = {
        "128 H200": (H200, 10),
        "512 GB200": (GB200, 10),
        "512 H200": (H200_512, 10),
        "2,048 GB200": (GB200_2048, 10),
    }
    swept = {"128 H200": (H200, delay_ms), "512 GB200": (GB200, delay_ms)}
    found = {
        f"{name} at {delay} ms": _more(example, delay, "eps")
        for name, (example, delay) in [*ten.items(), *swept.items()]
    }
    most = max(found, key=found.__getitem__)
    return exactly(found[most], f"Simulated by the released rules: the greatest, {most}.")


def _sensitivity() -> Computed:
    """How much more of a step 90 ms of switching take on GB200 than on H200."""
    slopes = [
        (simulated(one, "provisioned", "100") - simulated(one, "provisioned", "10"))
        / simulated(one, "eps", "")
        for one in (GB200, H200)
    ]
    return exactly(
        slopes[0] / slopes[1],
        f"Simulated by the released rules: 90 ms more take {slopes[0]:.1%} of a step of 512 GB200, "
        f"{slopes[1]:.1%} of one of 128 H200.",
    )


def _shrinks() -> Computed:
    """The greater quotient of overheads at 1,600 and 100 Gbit/s."""
    pairs = [
        (llama_example(200.0), llama_example(12.5)),
        (gpt_example(4, 32, "GB200", 200.0), gpt_example(4, 32, "GB200", 12.5)),
    ]
    found = [_more(fast, 10, "one_shot") / _more(slow, 10, "one_shot") for fast, slow in pairs]
    return exactly(max(found), "Simulated by the released rules, at 10 ms, against one-shot.")


SIMULATED: Registry = {
    "overhead-h200": partial(overhead, H200, 100, "eps"),
    "overhead-gb200": partial(overhead, GB200, 10, "eps"),
    "overhead-h200-one-shot": partial(overhead, H200, 100, "one_shot"),
    "overhead-gb200-one-shot": partial(overhead, GB200, 10, "one_shot"),
    "overhead-h200-100g": partial(overhead, llama_example(12.5), 10, "one_shot"),
    "overhead-gb200-100g": partial(overhead, gpt_example(4, 32, "GB200", 12.5), 10, "one_shot"),
    "overhead-h200-512": partial(overhead, H200_512, 10, "eps"),
    "overhead-gb200-2048": partial(overhead, GB200_2048, 10, "eps"),
    "overhead-anywhere": partial(_greatest, 10),
    "overhead-100ms": partial(_greatest, 100),
    "sensitivity": _sensitivity,
    "bandwidth-shrinks-overhead": _shrinks,
}
