"""A thousand reconfigurations of sixteen circuits in a simulated world, over real sockets.

Every one is commanded over TL1, read back, watched by the switch's power monitors and by
probes on four servers over SSH, and recorded with closure. The limit is four seconds.
"""

import tempfile
import time
from pathlib import Path

from harness.bench import Fabric, bind
from harness.measure.links import LinkObservation
from harness.measure.measure import Measure
from harness.run import Run
from testbeds import load

EVENTS = 1000
LIMIT_SECONDS = 4.0


def main() -> None:
    testbed = load(Path(__file__).parent.parent / "testbeds" / "opus.yaml")
    bench = bind(testbed, "simulated", seed=1)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), {"seed": 1})
        fabric = Fabric(bench)
        measure = Measure(fabric, LinkObservation(bench), run.recorder(bench, "benchmark", {}))
        plans = testbed.plans["east-west"], testbed.plans["north-south"]
        measure.bring_up(plans[0])
        start, virtual = time.perf_counter(), bench.clock.now()
        for number in range(EVENTS):
            event = measure.reconfiguration(plans[(number + 1) % 2])
        seconds = time.perf_counter() - start
        virtual = bench.clock.now() - virtual
        rows = list(run.record().rows())
        closure = [row.value for _, row in rows if row.quantity.startswith("closure.")]
        fabric.restore()
        bench.close()
    print(f"{EVENTS} reconfigurations of {event.moved} circuits in {seconds:.2f} s of real time")
    print(f"  {seconds / LIMIT_SECONDS:.2f} of the limit of {LIMIT_SECONDS:g} s")
    print(f"  {virtual / 1e9 / seconds:.0f} times as fast as the lab they simulate")
    print(f"  {len(rows)} rows; {closure.count(1.0)} of {len(closure)} closures complete")


if __name__ == "__main__":
    main()
