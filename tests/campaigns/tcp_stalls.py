"""Stalls of a TCP connection after cuts of its light, beside a model of the kernel's timers.

`CUTS` times (default 20) each, one link of namespaces is cut for 10 ms to 10 s under exchanges of
blocks. The model is the kernel's own behaviour: a link that loses its carrier forgets the neighbour
(`neigh_carrier_down` in net/core/neighbour.c), which is then queried every `retrans_time_ms`,
rounded up to the next slot of the timer wheel (kernel/time/timer.c) and a jiffy; the first query
that is answered ends the stall. A wrong result, a hang or an error breaks the promise, and so do
more than 5 % of stalls outside of their intervals.
"""

import os
import tempfile
from pathlib import Path

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.bench.streams import open_stream
from lightrig.harness.measure.light_faults import Fault, FaultKind
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import bring_up
from lightrig.harness.measure.survival import Survival, job_under_fault
from lightrig.instruments.clock import Span
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import load

MS = 1_000_000
ASKED_MS = (10, 30, 100, 300, 1_000, 3_000, 10_000)
QUERY_MS = Path("/proc/sys/net/ipv4/neigh/default/retrans_time_ms")
JIFFY = 4 * MS
"""Of a kernel with 250 Hz."""
WHEEL = 32 * MS
"""Of such a kernel, distance of slots for timers of 0.256 s to 2 s."""
LATE = 30 * MS
"""Until the block that was cut off is first sent again, and what a busy machine adds."""


def fast_switch(folder: Path) -> Path:
    """Write the testbed of namespaces with a switch that is dark for little longer than asked."""
    text = Path("testbeds/namespaces.yaml").read_text()
    for slow, fast in (("mean: 95 ms, sd: 1 ms", "mean: 3 ms, sd: 0.1 ms"),
                       ("mean: 90 ms, sd: 1 ms", "mean: 4 ms, sd: 0.1 ms")):  # fmt: skip
        assert slow in text
        text = text.replace(slow, fast)
    path = folder / "namespaces.yaml"
    path.write_text(text)
    return path


def predicted(dark: Span, query: int) -> Span:
    """Return bounds of the stall after a dark time, in ns; query: the kernel's period, in ns."""
    slowest = query + WHEEL + JIFFY
    counts = [
        count
        for count in range(1, 100)
        if count * slowest + LATE >= dark.earliest and (count - 1) * query <= dark.latest + LATE
    ]
    return Span(max(counts[0] * query, dark.earliest), counts[-1] * slowest + LATE)


def cut_once(bench: Bench, place: int, asked: int) -> Survival:
    """Cut one link of the plan `pairs`."""
    fabric, links = Fabric(bench), LinkObservation(bench)
    plan = fabric.plans["pairs"]
    bring_up(fabric, links, plan)
    ordered = sorted(fabric.links(plan))
    link = ordered[place % len(ordered)]
    stream = open_stream(bench, link)
    try:
        return job_under_fault(fabric, links, stream, plan, Fault(FaultKind("cut", asked), link))
    finally:
        stream.close()
        links.pause()


def main() -> bool:
    """Cut, and print a table; return whether TCP went on, as predicted."""
    if (why := kernel.available()) is not None:
        print(f"not run: {why}")
        return True
    count, query = int(os.environ.get("CUTS", "20")), int(QUERY_MS.read_text()) * MS
    broken = inside = total = 0
    print("   asked    n  inside  dark s          stall s         widest interval")
    with tempfile.TemporaryDirectory() as folder:
        bench = bind(load(fast_switch(Path(folder))), "simulated", 1)
        try:
            for asked in ASKED_MS:
                found = [cut_once(bench, place, asked * MS) for place in range(count)]
                broken += sum(not each.went_on for each in found)
                bounds = [predicted(each.dark, query) for each in found]
                good = sum(
                    span.earliest <= each.stall <= span.latest
                    for span, each in zip(bounds, found, strict=True)
                )
                dark = [sum(each.dark) / 2e9 for each in found]
                stalls = [each.stall / 1e9 for each in found]
                wide = max((span.latest - span.earliest) / span.latest for span in bounds)
                inside, total = inside + good, total + count
                print(
                    f"{asked:5} ms {count:4} {good:7}  {min(dark):6.3f} {max(dark):6.3f}  "
                    f"{min(stalls):6.3f} {max(stalls):6.3f}  {wide:.0%}",
                    flush=True,
                )
        finally:
            Fabric(bench).restore()
            bench.close()
    print(f"{inside} of {total} stalls inside their intervals; {broken} did not go on")
    return not broken and inside >= 0.95 * total
