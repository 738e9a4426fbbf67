"""Stalls of a TCP connection after cuts of its light, beside a model of the kernel's timers.

`CUTS` times (default 20) each, one link of namespaces is cut for each of `CUTS_MS` (default 10 ms
to 10 s) under exchanges of blocks. The model is the kernel's own behaviour (Linux 6.18):

- A port that loses its carrier forgets its neighbours (`neigh_carrier_down` in
  net/core/neighbour.c). The next packet queries the neighbour, which is then queried every
  `retrans_time_ms`; the first query of either end that is answered ends the stall, since an answer
  and a query both tell the address.
- The two ports of a link lose their carriers some milliseconds apart. A packet that one sends in
  between is lost without a query, and so is its tail loss probe; then the first query comes with
  TCP's retransmission timeout, 0.2 s and more later.
- The timer of a query fires at a slot of the timer wheel (kernel/time/timer.c), 8 jiffies apart;
  where the slots are is read before the cut, from /proc/timer_list. So the second query comes
  1.000 to 1.032 s after the first one, by its place between two slots, and each further one 1.024
  s later. After three unanswered ones the kernel gives up, tells TCP so, which sends its block
  again at once (RFC 6069, `tcp_ld_RTO_revert` in net/ipv4/tcp_ipv4.c): the next query.

Both ends' entries are read every 2 ms (`neighbour_entries`) until the light comes back: the last
query in the dark gives the next one. Only where the next one and the light come within `NEAR` of
each other, the entry's reading after that decides whether it was answered; the table counts these.

A wrong result, a hang or an error breaks the promise, and so do more than 5 % of stalls outside of
their intervals, or an interval wider than 20 % and than 50 ms.
"""

import contextlib
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.jobs.bench.streams import open_stream
from lightrig.harness.jobs.measure.light_faults import Fault, FaultKind
from lightrig.harness.jobs.measure.survival import Survival, job_under_fault
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import NoReplyError
from lightrig.instruments.jobs.traffic.tcp_stream import TcpStream
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Link, load
from tests.campaigns import neighbour_entries

MS = 1_000_000
ASKED_MS = tuple(map(int, os.environ.get("CUTS_MS", "10 30 100 300 1000 3000 10000").split()))
QUERY_MS = Path("/proc/sys/net/ipv4/neigh/default/retrans_time_ms")
JIFFY = 4 * MS
"""Of a kernel with 250 Hz."""
SLOTS = 8
"""Jiffies from slot to slot for timers of 64 to 503 jiffies on such a kernel."""
LATE = 50 * MS
"""Time that a busy machine adds to a query, and until the block that was cut off is answered."""
SOON = 30 * MS
"""The same of a stall without a query in the dark, whose interval may be 50 ms wide."""
NEAR = 10 * MS
"""Longest time between a port's carrier and the first packet that passes it."""
PROBED = 12 * MS
"""From a packet to its tail loss probe, which starts the retransmission timeout anew, and a jiffy:
two round trips and two jiffies (tcp_schedule_loss_probe in net/ipv4/tcp_output.c)."""
INCOMPLETE, VALID = 0x01, 0xDE
"""NUD_INCOMPLETE, and the states in which a neighbour's address is known (linux/neighbour.h)."""
TRIES = 5
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


def next_query(at: int, query: int, phase: int) -> int:
    """Return when a neighbour is queried next that was queried at `at`, in ns."""
    ends = at // JIFFY + query // JIFFY
    return (((ends - phase) // SLOTS + 1) * SLOTS + phase) * JIFFY


class Reading(NamedTuple):
    """A change of a neighbour's entry: see `neighbour_entries`; times in ns."""

    before: int
    after: int
    state: int
    queries: int


@dataclass(frozen=True)
class Cut:
    """A cut, and what the entries of each end were read to be, in order.

    rto: the sender's retransmission timeout before it, in ns (TCP_INFO).
    """

    found: Survival
    rto: int
    ends: tuple[tuple[Reading, ...], ...]

    @property
    def began(self) -> Span:
        """Bounds of when the exchange began that was cut off.

        Its packet was lost while the sender's entry was still there, or was the first to query.
        """
        gone = self.lost[0][0]
        queried = [each.after for end in self.lost for each in end if each.state == INCOMPLETE]
        usual = self.found.usual + MS
        return Span(gone.before - usual, min([gone.after + usual, *queried]))

    @property
    def lost(self) -> list[list[Reading]]:
        """The readings of each end, the sender first, from the loss of its entry on."""
        return [
            list(
                itertools.dropwhile(
                    lambda each: each.after < self.found.began or each.state & VALID, end
                )
            )
            for end in self.ends
        ]


def answered(end: Sequence[Reading], back: Span, query: int, phase: int) -> tuple[Span, bool]:
    """Return when the first query of an end was sent that its neighbour could answer.

    And whether the light came back so close to it that the entry's next reading decides.
    """
    queries = [each for each in end if each.state == INCOMPLETE]
    dark = [each for each in queries if each.after < back.earliest]
    at = Span(*(dark or queries)[-1 if dark else 0][:2])
    while at.latest < back.earliest - NEAR:
        at = Span(*(next_query(each, query, phase) for each in at))
    close = at.earliest <= back.latest + NEAR
    known = [each.before for each in end if each.state & VALID and each.after >= at.earliest]
    if close and (not known or known[0] > at.latest + LATE):
        # It was sent, and the entry still had no address afterwards.
        at = Span(*(next_query(each, query, phase) for each in at))
    return at, close


def predicted(cut: Cut, query: int, phase: int) -> tuple[Span, bool]:
    """Return bounds of the stall, in ns, and whether a reading after the light was back decides.

    query: the kernel's period, in ns.
    """
    back, began, usual = cut.found.back, cut.began, cut.found.usual
    querying = [end for end in cut.lost if any(each.state == INCOMPLETE for each in end)]
    if not querying:
        # Each packet was lost while both entries were there: TCP's own timeout is the first query.
        earliest = max(cut.rto - JIFFY, back.earliest - began.latest)
        return Span(earliest, usual + PROBED + cut.rto + SOON), False
    at, close = min(answered(end, back, query, phase) for end in querying)
    return Span(at.earliest - began.latest, at.latest - began.earliest + LATE), close


@contextlib.contextmanager
def reading(bench: Bench, link: Link) -> Iterator[Callable[[], tuple[tuple[Reading, ...], ...]]]:
    """Meanwhile read the neighbour's entry of each end; what is yielded ends that."""
    ports = {spec.port: spec for spec in bench.testbed.nic_ports}
    programs = []
    for near, far in ((link.a, link.b), (link.b, link.a)):
        shell = bench.servers[near.owner].local_shell()
        address = (ports[far].ip or "").partition("/")[0]
        command = [sys.executable, "-I", "-S", neighbour_entries.__file__]
        programs.append(
            subprocess.Popen(
                shell.local_command([*command, ports[near].netdev, address]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    try:
        first = [each.stdout.readline() for each in programs]  # before anything is cut
        yield lambda: tuple(
            tuple(
                Reading(*map(int, line.split()))
                for line in (head + each.communicate()[0]).splitlines()
            )
            for head, each in zip(first, programs, strict=True)
        )
    finally:
        for each in programs:
            each.kill()
            each.wait()


def started(bench: Bench, link: Link) -> TcpStream:
    """Start a stream; a busy machine may not start its programs in time, before anything is cut."""
    for _ in range(TRIES):
        with contextlib.suppress(NoReplyError):
            return open_stream(bench, link)
    return open_stream(bench, link)


def cut_once(bench: Bench, place: int, asked: int) -> Cut:
    """Cut one link of the plan `pairs`."""
    fabric, links = Fabric(bench), LinkObservation(bench)
    plan = fabric.plans["pairs"]
    bring_up(fabric, links, plan)
    ordered = sorted(fabric.links(plan))
    link = ordered[place % len(ordered)]
    stream = started(bench, link)
    try:
        with reading(bench, link) as entries:
            fault = Fault(FaultKind("cut", asked), link)
            rto = stream.state().rto
            assert rto is not None
            found = job_under_fault(fabric, links, stream, plan, fault)
            return Cut(found, rto, entries())
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
    print("   asked    n  inside  dark s          stall s         greatest width  by the entry")
    with tempfile.TemporaryDirectory() as folder:
        bench = bind(load(fast_switch(Path(folder))), "simulated", 1)
        try:
            for asked in ASKED_MS:
                cuts = [cut_once(bench, place, asked * MS) for place in range(count)]
                found = [each.found for each in cuts]
                broken += sum(not each.went_on for each in found)
                bounds, close = zip(*(predicted(each, query, phase) for each in cuts), strict=True)
                missed = [
                    (each, span)
                    for span, each in zip(bounds, cuts, strict=True)
                    if not span.earliest <= each.found.stall <= span.latest
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
                    f"{max(dark):6.3f}  {min(stalls):6.3f} {max(stalls):6.3f}  "
                    f"{max(shares):8.0%} {sum(close):7}",
                    flush=True,
                )
                for cut, span in missed:
                    print(f"    {cut.found.stall} ns not in {span}; back {cut.found.back}")
                    print(
                        "    " + "; ".join(f"{[tuple(each) for each in end]}" for end in cut.lost)
                    )
        finally:
            Fabric(bench).restore()
            bench.close()
    print(f"{inside} of {total} stalls inside their intervals; {broken} did not go on")
    print(f"{wide} intervals too wide; load {os.getloadavg()[0]:.1f}")
    return not broken and not wide and inside >= 0.95 * total
