"""Stalls of a TCP connection after cuts of its light, beside a model of the kernel's timers.

`CUTS` times (default 20) each, one link of namespaces is cut for each of `CUTS_MS` (default 10 ms
to 10 s) under exchanges of blocks. The model is the kernel's own behaviour: a link that loses its
carrier forgets the neighbour (`neigh_carrier_down` in net/core/neighbour.c), which is queried by
the next packet and then every `retrans_time_ms`; the first query that is answered ends the stall.
The timer of a query fires at a slot of the timer wheel (kernel/time/timer.c), 8 jiffies apart;
where the slots are is read before the cut, from /proc/timer_list. So the second query comes 1.000
to 1.032 s after the first one, by its place between two slots, and each further one 1.024 s later.
A wrong result, a hang or an error breaks the promise, and so do more than 5 % of stalls outside of
their intervals, or an interval wider than 20 % and than 50 ms.
"""

import itertools
import os
import re
import statistics
import tempfile
from collections.abc import Iterator
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
ASKED_MS = tuple(map(int, os.environ.get("CUTS_MS", "10 30 100 300 1000 3000 10000").split()))
QUERY_MS = Path("/proc/sys/net/ipv4/neigh/default/retrans_time_ms")
JIFFY = 4 * MS
"""Of a kernel with 250 Hz."""
SLOTS = 8
"""Jiffies from slot to slot for timers of 64 to 503 jiffies on such a kernel."""
SENT = 1 * MS
"""From the loss of the carrier to the next packet, which queries the neighbour."""
LATE = 30 * MS
"""Time that a busy machine adds to that, and until the block that was cut off is answered."""
WIDE, WIDE_NS = 0.2, 50 * MS


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


def slot_phase(timer_list: str) -> int:
    """Return the jiffies from a multiple of `SLOTS` of them, on the monotonic clock, to a slot."""
    now, jiffies = (
        int(re.findall(pattern, timer_list, re.MULTILINE)[0])
        for pattern in (r"^now at (\d+) nsecs", r"^jiffies: (\d+)")
    )
    return (now // JIFFY - jiffies) % SLOTS


def queries(first: int, query: int, phase: int) -> Iterator[int]:
    """Yield when a neighbour is queried that was first queried at `first`, in ns."""
    yield first
    at = first // JIFFY
    while True:
        at = ((at + query // JIFFY - phase) // SLOTS + 1) * SLOTS + phase
        yield at * JIFFY


def predicted(found: Survival, query: int, phase: int) -> Span:
    """Return bounds of the stall, in ns; query: the kernel's period, in ns."""
    lost, back = found.lost, found.back
    middles = [(each.earliest + each.latest) // 2 for each in (lost, back)]
    likely = list(itertools.islice(queries(middles[0] + SENT, query, phase), 100))
    place = next(place for place, at in enumerate(likely) if at >= middles[1])
    first, last = (
        next(itertools.islice(queries(at, query, phase), place, None))
        for at in (lost.earliest, lost.latest + LATE)
    )
    # The exchange began with that packet, or as long before the loss as one usually takes.
    return Span(first - lost.latest - LATE, last - lost.earliest + found.usual + LATE)


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
    # The clock and the jiffies of one reading may be on either side of a tick.
    phase = statistics.mode(slot_phase(Path("/proc/timer_list").read_text()) for _ in range(9))
    broken = inside = total = wide = 0
    print("   asked    n  inside  dark s          stall s         widest interval")
    with tempfile.TemporaryDirectory() as folder:
        bench = bind(load(fast_switch(Path(folder))), "simulated", 1)
        try:
            for asked in ASKED_MS:
                found = [cut_once(bench, place, asked * MS) for place in range(count)]
                broken += sum(not each.went_on for each in found)
                bounds = [predicted(each, query, phase) for each in found]
                missed = [
                    (each, span)
                    for span, each in zip(bounds, found, strict=True)
                    if not span.earliest <= each.stall <= span.latest
                ]
                dark = [sum(each.dark) / 2e9 for each in found]
                stalls = [each.stall / 1e9 for each in found]
                widths = [span.latest - span.earliest for span in bounds]
                shares = [width / span.latest for width, span in zip(widths, bounds, strict=True)]
                wide += sum(
                    share > WIDE and width > WIDE_NS
                    for share, width in zip(shares, widths, strict=True)
                )
                inside, total = inside + count - len(missed), total + count
                print(
                    f"{asked:5} ms {count:4} {count - len(missed):7}  {min(dark):6.3f} "
                    f"{max(dark):6.3f}  {min(stalls):6.3f} {max(stalls):6.3f}  {max(shares):.0%}",
                    flush=True,
                )
                for each, span in missed:
                    lost, back = ([at - each.began for at in s] for s in (each.lost, each.back))
                    print(f"    {each.stall} ns not in {span}; lost {lost}, back {back}")
        finally:
            Fabric(bench).restore()
            bench.close()
    print(f"{inside} of {total} stalls inside their intervals; {broken} did not go on")
    print(f"{wide} intervals too wide; load {os.getloadavg()[0]:.1f}")
    return not broken and not wide and inside >= 0.95 * total
