"""Loss of each fiber between a switch's power monitors and a NIC's transceiver.

Insertion loss ends at the switch's monitors, so that no series of it shows a dirty receiver. A
module is good to some dB; how it reads is alike every night, which is what nights compare.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import scipy

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.fiber_light import fiber_light
from lightrig.harness.measure.insertion_loss.chains import NothingToMeasureError, monitored_ports
from lightrig.harness.measure.insertion_loss.observers import has_module
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.core.capabilities import HasNic, PowerMonitor
from lightrig.testbeds import Fiber, LightrigError, Port

QUANTITY, RELATIVE = "fiber_loss", "fiber_loss.relative"

READINGS = 4
_REFRESH = 1_000_000_000
"""Time in which modules measure anew, in ns."""
_DARK_DBM = -40.0

Powers = dict[Port, tuple[str, float]]
"""Of NIC ports: the quantity that a reading is for, and the power in dBm."""


def measure_fiber_losses(fabric: Fabric, recording: Recording) -> None:
    """Record the loss of each fiber between a monitored port of a switch and a transceiver.

    Plans are applied, those with the most links first, until each fiber that any plan lights was
    read. Rows are `fiber_loss` in dB, and `fiber_loss.relative` where it is not known how many
    lanes share the fiber: less by a constant, the share of one lane. The interval is that of the
    mean of `READINGS` readings, by Student's t, without the modules' own accuracy. A fiber without
    light has no row.

    Raises:
        NothingToMeasureError: no fiber has a monitor at one end and a readable module at the other.
    """
    bench = fabric.bench
    waiting = _fibers(bench)
    if not waiting:
        raise NothingToMeasureError(
            f"no fiber of testbed {bench.testbed.name} leads from a port with a power monitor to a "
            "transceiver that can be read"
        )
    testbed = bench.testbed
    plans = sorted(testbed.plans.values(), key=lambda each: -len(testbed.links(each)))
    for plan in plans:
        lit = {
            Port(switch, str(end))
            for switch, circuits in plan.circuits.items()
            for one in circuits
            for end in one
        }
        these = [one for one in waiting if not lit.isdisjoint((one.source, one.sink))]
        if not these:
            continue
        fabric.apply(plan)
        rows = list(_rows(bench, these, recording.next_event()))
        recording.record(rows)
        found = {row.subject for row in rows}
        waiting = [one for one in waiting if str(one) not in found]


def _fibers(bench: Bench) -> list[Fiber]:
    """Return the fibers with a monitor at one end and a module at the other."""
    at: dict[str, list[int]] = defaultdict(list)
    for fiber in bench.testbed.fibers:
        for end in (fiber.source, fiber.sink):
            if end.owner in bench.switches:
                at[end.owner].append(int(end.name))
    monitored = {
        Port(name, str(port))
        for name, ports in at.items()
        for port in monitored_ports(bench.switches[name], ports)
    }
    return [
        fiber
        for fiber in bench.testbed.fibers
        for end, far in ((fiber.source, fiber.sink), (fiber.sink, fiber.source))
        if end in monitored and has_module(bench, far)
    ]


def _rows(bench: Bench, fibers: Sequence[Fiber], event: int) -> Iterator[Row]:
    began, losses = bench.clock.now(), defaultdict[tuple[Fiber, str], list[float]](list)
    ends = {end for fiber in fibers for end in (fiber.source, fiber.sink)}
    for _ in range(READINGS):
        bench.clock.sleep(_REFRESH)
        monitors = _monitors(bench, ends)
        sent, received = _modules(bench, ends)
        for fiber in fibers:
            leaves, arrives = fiber.source, fiber.sink
            quantity, module = (sent.get(leaves) or received.get(arrives)) or ("", -math.inf)
            monitor = monitors.get(arrives if leaves in sent else leaves, -math.inf)
            if min(module, monitor) <= _DARK_DBM:
                continue
            lost = module - monitor if leaves in sent else monitor - module
            losses[fiber, quantity].append(lost)
    for (fiber, quantity), each in losses.items():
        if len(each) < READINGS:
            continue  # its light came or went meanwhile
        mean = float(np.mean(each))
        half = float(np.std(each, ddof=1)) / math.sqrt(READINGS)
        half *= float(scipy.special.stdtrit(READINGS - 1, 0.975))
        interval = mean - half, mean + half
        yield Row(str(fiber), quantity, mean, *interval, "dB", began, {"event": event})


def _monitors(bench: Bench, ends: Collection[Port]) -> dict[Port, float]:
    found: dict[Port, float] = {}
    for name, switch in bench.switches.items():
        ports = sorted(int(end.name) for end in ends if end.owner == name)
        if ports and isinstance(switch, PowerMonitor):
            reading = switch.power(ports).dbm
            found |= {Port(name, str(port)): dbm for port, dbm in reading.items()}
    return found


def _modules(bench: Bench, ends: Iterable[Port]) -> tuple[Powers, Powers]:
    """Return what the transceivers at `ends` send and receive, as far as they answer."""
    of_server: dict[str, list[Port]] = defaultdict(list)
    for end in sorted(ends):
        if end.owner in bench.servers:
            of_server[end.owner].append(end)
    sent: Powers = {}
    received: Powers = {}
    asked: list[Callable[[], tuple[Powers, Powers]]] = [
        partial(_server, bench, name, ports) for name, ports in of_server.items()
    ]
    for sends, receives in bench.clock.parallel(*asked):
        sent |= sends
        received |= receives
    return sent, received


def _server(bench: Bench, name: str, ports: Sequence[Port]) -> tuple[Powers, Powers]:
    server, sent, received = bench.servers[name], Powers(), Powers()
    for port in ports:
        if not isinstance(server, HasNic):
            continue
        try:
            module = server.nic.module(bench.testbed.nic_port(port).netdev).value
        except LightrigError:
            continue  # its other tests fail, and name it
        light = fiber_light(bench.testbed, port, module)
        mine = [lane.tx_power_dbm for lane in light.lanes]
        theirs = [lane.rx_power_dbm for lane in light.lanes if module.rx_power_is != "oma"]
        for known, lanes, into in ((light.sent, mine, sent), (light.received, theirs, received)):
            power = _mean(lanes) if known is None else known
            into[port] = (RELATIVE if known is None else QUANTITY, power)
    return sent, received


def _mean(lanes: Iterable[float | None]) -> float:
    """Return the mean of lanes' powers in dBm; -inf for none."""
    known = [10 ** (lane / 10) for lane in lanes if lane is not None]
    mean = sum(known) / len(known) if known else 0.0
    return 10 * math.log10(mean) if mean else -math.inf
