"""Many switches driven in parallel over real sockets, in real time: skew, threads, memory.

Simulated devices and drivers share one process, so that what is shown is an upper bound of what the
drivers need. Skew is the spread, over all switches of one round, of the moments at which commands
were sent, and at which they were complete. LIGHTRIG_ROUNDS sets the number of rounds.
"""

import math
import os
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.figures import figure
from lightrig.harness.bench.assembly import Assembly
from lightrig.harness.bench.simulation import simulate
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.capabilities import OpticalSwitch
from lightrig.testbeds import Testbed, load

SWITCHES = 64
SERVERS = 256
DEVICES = 1_000
ROUNDS = 100
LIMIT_START_MS = 50.0
LARGE = 576


def described_testbed(switches: int, servers: int, size: int = 16) -> Testbed:
    """Return a testbed with the servers' ports spread evenly over the switches."""
    each = max(1, servers // switches) if servers else 0
    lines = [
        "name: many",
        "switches:",
        f"  ocs[0-{switches - 1}]: {{model: polatis, address: 'tl1://{{name}}.invalid', "
        f"login: env:OCS_LOGIN, size: {size}x{size}}}",
    ]
    if servers:
        lines += [
            "servers:",
            f"  server[0-{servers - 1}]:",
            "    address: 'ssh://bench@{name}.invalid'",
            "    nics: {nic0: {netdev: ens1, rate: 100G, transceiver: lr4}}",
            "transceivers:",
            "  lr4: {wavelength: 1310 nm, launch: {min: -4.3 dBm, max: 4.5 dBm}, "
            "receive: {min: -10.6 dBm, max: 4.5 dBm}}",
            "fibers:",
            *(
                f"  - server[{each * n}-{each * n + each - 1}].nic0 <-> ocs{n}"
                for n in range(switches)
            ),
        ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "many.yaml")
        path.write_text("\n".join(lines) + "\n")
        return load(path)


def main() -> None:
    print(f"{os.cpu_count()} processors, load average {os.getloadavg()[0]:.1f}; simulated")
    rounds = int(os.environ.get("LIGHTRIG_ROUNDS", ROUNDS))
    skew(rounds)
    if comes_first(True):
        skew(rounds, "before all other processes, ")
        comes_first(False)
    servers(rounds)
    devices()
    description()
    large()


def skew(rounds: int, first: str = "") -> None:
    """Print the skew of one query of each of 64 switches, sent in parallel."""
    clock = SystemClock()
    assembly = Assembly(described_testbed(SWITCHES, 0), clock, {}, {}, [])
    before = taken()
    simulate(assembly, [f"ocs{n}" for n in range(SWITCHES)], seed=1)
    note = f"{first}{SWITCHES} switches queried over TL1: "
    spread(clock, list(assembly.switches.values()), rounds, note)
    finish(assembly, note, before)


def spread(clock: SystemClock, switches: Sequence[OpticalSwitch], rounds: int, note: str) -> None:
    """Print the spread of start, completion and whole round over `rounds` rounds of queries."""
    clock.parallel(*(switch.identity for switch in switches))
    starts, ends, took = [], [], []
    for _ in range(rounds):
        moments: list[tuple[int, int]] = [(0, 0)] * len(switches)

        def one(place: int) -> None:
            sent = time.perf_counter_ns()
            switches[place].circuits()
            moments[place] = sent, time.perf_counter_ns()  # noqa: B023 - ends within the round

        clock.parallel(*(partial(one, place) for place in range(len(switches))))
        sent, done = zip(*moments, strict=True)
        starts.append((max(sent) - min(sent)) / 1e6)
        ends.append((max(done) - min(done)) / 1e6)
        took.append((max(done) - min(sent)) / 1e6)
    for name, values in (("start", starts), ("completion", ends), ("whole round", took)):
        median = f"median {statistics.median(values):.1f} ms"
        limit = f"{LIMIT_START_MS:g} ms" if name == "start" else ""
        figure(f"{note}{name}, spread p99", p99(values), f"{median}, n {rounds}", limit=limit)


def finish(assembly: Assembly, note: str, before: str) -> None:
    """Print what is taken now beside `before`, and what is left once all is closed."""
    figure(f"{note}threads, descriptors, resident memory", taken(), f"before: {before}")
    for close in reversed(assembly.closers):
        close()
    for thread in threading.enumerate():
        if thread.name == "worker":  # which ends by itself
            thread.join(10)
    figure(
        f"{note}threads, descriptors once closed", f"{threading.active_count()}, {descriptors()}"
    )


def servers(rounds: int) -> None:
    """Print what 256 servers over SSH take beside 64 switches, and the skew of these then."""
    clock = SystemClock()
    testbed = described_testbed(SWITCHES, SERVERS)
    assembly = Assembly(testbed, clock, {}, {}, [])
    before, begun, cpu = taken(), time.perf_counter(), time.process_time()
    simulate(assembly, [*testbed.switches, *testbed.servers], seed=1)
    opened = list(assembly.servers.values())
    kernels = clock.parallel(*(server.identity for server in opened))
    took, used = time.perf_counter() - begun, time.process_time() - cpu
    assert len({kernel.serial for kernel in kernels}) == SERVERS
    figure(
        f"{SERVERS} servers over SSH beside {SWITCHES} switches, all identified",
        f"{used:.1f} s of processor",
        f"{took:.1f} s of the wall",
    )
    note = f"{SWITCHES} switches queried over TL1, {SERVERS} servers connected: "
    spread(clock, list(assembly.switches.values()), rounds, note)
    finish(assembly, note, before)


def devices() -> None:
    """Print what a thousand simulated devices in one process take."""
    clock = SystemClock()
    assembly = Assembly(described_testbed(DEVICES, 0), clock, {}, {}, [])
    before = threading.active_count(), descriptors(), resident()
    begun, cpu = time.perf_counter(), time.process_time()
    simulate(assembly, [f"ocs{n}" for n in range(DEVICES)], seed=1)
    opened = time.perf_counter() - begun
    names = [switch.identity().serial for switch in assembly.switches.values()]
    took, used = time.perf_counter() - begun, time.process_time() - cpu
    figure(
        f"{DEVICES:,} simulated switches in one process, all {len(set(names)):,} identified",
        f"{used:.1f} s of processor",
        f"{took:.1f} s of the wall, {opened:.1f} s until opened",
    )
    figure(
        f"{DEVICES:,} simulated switches and their drivers: threads, descriptors, memory each",
        f"{threading.active_count()}, {descriptors()}, "
        f"{(resident() - before[2]) * 1024 / DEVICES:.0f} kiB",
        f"before: {before[0]}, {before[1]}",
    )
    for close in reversed(assembly.closers):
        close()
    clock.close()


def description() -> None:
    """Print what the description of 64 switches and 256 servers takes."""
    begun = time.process_time()
    found = described_testbed(SWITCHES, SERVERS)
    figure(
        f"description of {len(found.switches)} switches and {len(found.servers)} servers read",
        f"{time.process_time() - begun:.2f} s of processor",
    )


def large() -> None:
    """Print what a switch of 576 x 576 takes: all circuits set and read, one loss of each."""
    clock = SystemClock()
    assembly = Assembly(described_testbed(1, 0, LARGE), clock, {}, {}, [])
    world = simulate(assembly, ["ocs0"], seed=1)
    assert world is not None
    switch = assembly.switches["ocs0"]
    from lightrig.testbeds import Circuit

    wanted = [Circuit(n, LARGE + n) for n in range(1, LARGE + 1)]
    begun, cpu = time.perf_counter(), time.process_time()
    switch.change((), wanted).done()
    found = switch.circuits()
    took, used = time.perf_counter() - begun, time.process_time() - cpu
    assert found == frozenset(wanted)
    begun = time.process_time()
    paths = [Circuit(i, LARGE + e) for i in range(1, LARGE + 1) for e in range(1, LARGE + 1)]
    losses = world.losses("ocs0", paths)
    matrix = time.process_time() - begun
    figure(
        f"{LARGE} x {LARGE}: {len(found)} circuits set and read back",
        f"{used:.2f} s of processor",
        f"{took:.2f} s of the wall",
    )
    figure(f"{LARGE} x {LARGE}: {len(losses):,} losses drawn", f"{matrix:.2f} s of processor")
    for close in reversed(assembly.closers):
        close()
    clock.close()


def comes_first(wanted: bool) -> bool:
    """Whether this process could be put before all others, or back among them."""
    policy, priority = (os.SCHED_RR, 1) if wanted else (os.SCHED_OTHER, 0)
    try:
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except OSError:
        return False
    return True


def p99(values: list[float]) -> str:
    """Return the nearest-rank p99, or how many samples it needs."""
    if len(values) < 100:
        return f"not enough data: 100 needed; greatest of {len(values)} {max(values):.2f} ms"
    return f"{sorted(values)[math.ceil(0.99 * len(values)) - 1]:.1f} ms"


def taken() -> str:
    """Return the numbers of threads and descriptors, and the resident memory, of this process."""
    return f"{threading.active_count()}, {descriptors()}, {resident():.0f} MiB"


def descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


def resident() -> float:
    """Return the resident memory now, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    main()
