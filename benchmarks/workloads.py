"""Simulated steps of training beside those that others simulated, and a step at full size.

Limits: of the usable of 641 released step times at least 97 % within 0.1 %, 90 % within 0.02 %,
all within 0.6 %, in two minutes; 16,384 ranks (DP 64, PP 16, TP 16, folded; 96 layers, 16
micro-batches), by packets and with circuits on demand, in 60 s and 2 GB each.
"""

import time
from collections import defaultdict
from statistics import median

from benchmarks.figures import beside_limit, peak_mib
from lightrig.harness.systems.opus.planning.archived_simulation import on_demand, packet
from lightrig.harness.systems.opus.planning.simulated_control import controlled
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.transformer import workload
from lightrig.harness.workloads.transformer_sizes import Model, Parallelism
from lightrig.suites.claims.opus.simulated_steps import (
    DEVICES,
    Result,
    results,
    simulated,
    with_training_control,
)

WITHIN = (0.0002, 0.001, 0.006)
AT_LEAST = (0.9, 0.97, 1.0)
TABLE_S = 120.0
SIZE_S, SIZE_GB = 60.0, 2


def main() -> None:
    size()
    table()


def size() -> None:
    """Print how long a step of 16,384 ranks takes to compute."""
    model = Model(96, 8192, 28672, 32000, 64, 8, gated=True)
    degrees = Parallelism(64, 16, 16, micro_batches=16)
    bandwidths, timing = {"dp": 50.0, "pp": 50.0, "tp": 450.0}, Timing(936, 12, 4800.0, 4, 2)
    for mode in ("packet", "archived control", "control of training"):
        begun, processor = time.perf_counter(), time.process_time()
        step = workload(model, degrees, 1024 * 4096, DEVICES["H200"], fold_data=mode == "packet")
        match mode:
            case "packet":
                times = packet(step, bandwidths, timing)
            case "archived control":
                times = on_demand(step, bandwidths, timing, 25_000_000)[0]
            case _:
                times = controlled(step, bandwidths, timing, 25_000_000, "provisioning")
        took, processor = time.perf_counter() - begun, time.process_time() - processor
        peak = peak_mib() * 1024 / 1e6
        print(
            f"{step.ranks:,} ranks ({len(step.graph_of):,} simulated), {mode}: {times.events:,} "
            f"events in {took:.1f} s ({processor:.1f} s of processor) of {SIZE_S:.0f} s, "
            f"{peak:.2f} of {SIZE_GB} GB"
        )


def table() -> None:
    """Print how near the model comes to the released step times, by mode."""
    begun, processor = time.perf_counter(), time.process_time()
    errors: dict[str, list[tuple[float, Result]]] = defaultdict(list)
    left_out = [result for result in results() if result.unusable]
    for result in results():
        if not result.unusable:
            step = simulated(result.example, result.mode, result.delay)
            errors[result.mode].append((step / result.nanoseconds - 1, result))
    everything = [one for found in errors.values() for one in found]
    print(f"{'mode':<16}{'rows':>6}{'0.02 %':>9}{'0.1 %':>9}{'0.6 %':>9}  farthest")
    for mode, found in [*errors.items(), ("all", everything)]:
        shares = "".join(f"{share:>9.1%}" for share in _shares(found))
        error, worst = max(found, key=lambda one: abs(one[0]))
        delay = f", {worst.delay} ms" if worst.delay else ""
        print(f"{mode:<16}{len(found):>6}{shares}  {error:+.3%} {worst.example.name}{delay}")
    print(f"{'at least':<22}" + "".join(f"{share:>9.0%}" for share in AT_LEAST))
    for result in left_out:
        print(
            f"left out: {result.example.name}, {result.mode}, {result.delay} ms: {result.unusable}"
        )
    control()
    took, processor = time.perf_counter() - begun, time.process_time() - processor
    beside_limit(f"{len(everything)} steps", took, TABLE_S, "s", f"{processor:.0f} s of processor")
    for within, share, least in zip(WITHIN, _shares(everything), AT_LEAST, strict=True):
        of = f"of {len(everything)} steps, each computed without chance"
        beside_limit(f"share of steps within {within:.2%}", share, least, spread=of, at_least=True)


def control() -> None:
    """Print by how much steps differ where the control plane of training changes the circuits."""
    changed: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for result in results():
        if not result.unusable and result.mode in {"on_demand", "provisioned"}:
            step = with_training_control(result.example, result.mode, result.delay)
            more = step - result.nanoseconds
            changed[result.mode, int(result.delay)].append((more / result.nanoseconds, more / 1e6))
    print(f"with the control plane of training\n{'mode':<16}{'delay':>8}{'rows':>6}{'median':>10}")
    for (mode, delay), found in sorted(changed.items()):
        share, more = median(one for one, _ in found), median(one for _, one in found)
        print(f"{mode:<16}{delay:>5} ms{len(found):>6}{share:>+10.2%}{more:>+12.1f} ms")
    print(
        "it differs as it begins with the circuits of the first message where the archive begins "
        "with rings, asks once where ranks are polled, and changes stages that share no port side "
        "by side where the archive waits until no ring is in use anywhere"
    )


def _shares(found: list[tuple[float, Result]]) -> list[float]:
    return [sum(abs(error) <= limit for error, _ in found) / len(found) for limit in WITHIN]


if __name__ == "__main__":
    main()
