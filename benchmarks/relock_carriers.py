"""Carriers of runs with `--relock` in which nothing is read, against an ordinary run's.

Two simulated labs of one seed make the same events: one as an ordinary run, one in turns with
readings of transceivers and of the firmware's timers. Both draw the same durations, so that what
differs is what reading leaves behind in the events without. Then pairs of labs of different seeds,
which are independent: their medians scatter by 0.8 % each, and are compared over all pairs. Limit
of both: the medians differ by 1 %.
"""

import os
import statistics
import tempfile
from itertools import count
from pathlib import Path

from benchmarks.figures import beside_limit
from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.relock_turns import TURNS, RelockTurns
from lightrig.harness.record import Row
from lightrig.harness.statistics.quantiles import Quantile, quantile
from lightrig.testbeds import load

EVENTS = int(os.environ.get("LIGHTRIG_EVENTS", "200"))
"""Events without readings of each run."""
PAIRS = int(os.environ.get("LIGHTRIG_PAIRS", "4"))
"""Pairs of labs of different seeds."""
LIMIT = 0.01
LAB = """
name: small
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", login: env:X, size: 4x4}}
servers:
  server[0-1]: {address: "ssh://{name}.invalid", nics: {nic0: {
    ports: 2, netdev: "ens1f{p}", rdma: "mlx5_{p}", rate: 400G, transceiver: fr}}}
transceivers:
  fr: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -10 dBm, max: 4 dBm}}
fibers: ["server[0-1].nic0.p[0-1] <-> ocs"]
plans:
  straight: [server0.nic0.p0 <-> server1.nic0.p0, server0.nic0.p1 <-> server1.nic0.p1]
  crossed: [server0.nic0.p0 <-> server1.nic0.p1, server0.nic0.p1 <-> server1.nic0.p0]
"""


def main() -> None:
    unread = [number for number in range(EVENTS * len(TURNS)) if _source(number) == "none"][:EVENTS]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "small.yaml")
        file.write_text(LAB)
        print(f"carrier after the command, {EVENTS} events without readings of each run")
        apart = [
            compared(file, (1, 1), unread, unread),
            *(compared(file, (2 * n, 2 * n + 1), [*range(EVENTS)], unread) for n in _pairs()),
        ]
    one, *pairs = apart
    what = "medians of events without readings apart"
    beside_limit(f"{what}, one seed", abs(one), LIMIT, spread=f"n {EVENTS} each, the same draws")
    if pairs[1:]:
        error = statistics.stdev(pairs) / len(pairs) ** 0.5
        beside_limit(
            *(f"{what}, seeds of their own", abs(statistics.fmean(pairs)), LIMIT),
            spread=f"standard error {error:.2%}, {len(pairs)} pairs",
        )


def _pairs() -> range:
    return range(1, PAIRS + 1)


def compared(file: Path, seeds: tuple[int, int], ordinary: list[int], unread: list[int]) -> float:
    """Return by which share the median is greater with --relock; print both.

    seeds: of the ordinary run and of the other. ordinary, unread: the events of each.
    """
    events = (("ordinary run", ordinary), ("with --relock", unread))
    medians = []
    for seed, (name, numbers) in zip(seeds, events, strict=True):
        bench = bind(load(file), "simulated", seed)
        found = carriers(bench, numbers, reading=name != "ordinary run")
        lower, upper = (found.lower or 0) / 1e6, found.upper / 1e6
        label = f"{name}, seed {seed}"
        print(f"  {label:<24} {found.value / 1e6:9.1f} ms ({lower:.1f} to {upper:.1f})")
        medians.append(found.value)
    return medians[1] / medians[0] - 1


def _source(number: int) -> str:
    return TURNS[number % len(TURNS)]


def carriers(bench: Bench, unread: list[int], *, reading: bool) -> Quantile:
    """Return the median of the last carriers of the events `unread`, and close the bench."""
    fabric, links, found = Fabric(bench), LinkObservation(bench), list[Row]()
    recording = Recording(found.extend, {})
    plans = bench.testbed.plans["straight"], bench.testbed.plans["crossed"]
    bring_up(fabric, links, plans[0])
    turns = RelockTurns(fabric, links, recording)
    for number in count():
        plan = plans[(number + 1) % 2]
        if reading:
            turns.event(plan)
        else:
            measure_reconfiguration(fabric, links, recording, plan)
        if number == unread[-1]:
            break
    bench.close()
    last = [
        row
        for row in found
        if row.quantity == "reconfiguration.carrier_up" and row.conditions["event"] in unread
    ]
    assert len(last) == len(unread)
    low, high = [row.lower or 0 for row in last], [row.upper or row.value for row in last]
    median = quantile(low, high, 0.5, 0.95, points=[row.value for row in last])
    assert isinstance(median, Quantile)
    return median


if __name__ == "__main__":
    main()
