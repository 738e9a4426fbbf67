"""A thousand reconfigurations of sixteen circuits in a simulated world, over real sockets.

Every one is commanded over TL1, read back, watched by the switch's power monitors and by
probes on four servers over SSH: that has four seconds. Recording every row of it, with
closure, is timed apart.
"""

import tempfile
import time
from pathlib import Path

from benchmarks.figures import beside_limit
from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import reconfigure
from lightrig.harness.measure.stages import closure_rows, rows
from lightrig.harness.run import Run
from lightrig.testbeds import load

EVENTS = 1000
LIMIT_SECONDS = 4.0


class _Timer:
    """Adds up the real time and the processor time of `with` blocks, in s."""

    def __init__(self) -> None:
        self.wall = self.processor = 0.0

    def __enter__(self) -> None:
        self.wall -= time.perf_counter()
        self.processor -= time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter()
        self.processor += time.process_time()


def main() -> None:
    testbed = load(Path(__file__).parent.parent / "testbeds" / "opus.yaml")
    bench = bind(testbed, "simulated", seed=1)
    fabric, links = Fabric(bench), LinkObservation(bench)
    plans = testbed.plans["east-west"], testbed.plans["north-south"]
    bring_up(fabric, links, plans[0])

    observing, recording, moved = _Timer(), _Timer(), 0
    virtual = bench.clock.now()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), {"seed": 1})
        record = run.recorder(bench, "benchmark", {})
        for number in range(EVENTS):
            with observing:
                event = reconfigure(fabric, plans[(number + 1) % 2], links)
            with recording:
                record([*rows(event, fabric, number), *closure_rows(event, fabric, number)])
            moved = event.moved
        virtual = bench.clock.now() - virtual
        stored = [row for _, row in run.record().rows()]
    fabric.restore()
    bench.close()

    closure = [row.value for row in stored if row.quantity.startswith("closure.")]
    print(f"{EVENTS} reconfigurations of {moved} circuits observed in {observing.wall:.2f} s")
    beside_limit("all events observed", observing.wall, LIMIT_SECONDS, "s")
    print(f"  {observing.processor / EVENTS * 1e3:.2f} ms of processor time each")
    print(f"  {virtual / 1e9 / observing.wall:.0f} times as fast as the lab they simulate")
    print(f"  recorded in {recording.wall:.2f} s more: {len(stored)} rows")
    print(f"  {recording.processor / EVENTS * 1e3:.2f} ms of processor time each")
    print(f"  {closure.count(1.0)} of {len(closure)} closures complete")


if __name__ == "__main__":
    main()
