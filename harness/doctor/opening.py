"""Opening whatever answers: a doctor's bench has gaps where an instrument is in trouble."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.bench import Bench
from harness.bench.bench import close_newest_first
from harness.bench.binding import spec_of, way_to
from harness.bench.credentials import look_up
from harness.bench.drivers import Clocks, open_server
from instruments.capabilities import Identified, Identity
from instruments.clock import Clock, SystemClock
from instruments.registry import open_instrument
from instruments.simulated.world import World
from instruments.virtual_clock import VirtualClock
from instruments.way import Way
from instruments.wire.tcp import is_placeholder
from testbeds import LightrigError, ServerSpec, Testbed


@dataclass
class Ward:
    """What answered, and why the rest did not.

    Attributes:
        bench: what answered.
        failures: what was said of the others, by name.
        took: how long opening and identifying took, in ns, by name.
    """

    bench: Bench
    failures: Mapping[str, LightrigError]
    took: Mapping[str, int]


@dataclass
class _Opened:
    instruments: dict[str, Identified] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)
    failures: dict[str, LightrigError] = field(default_factory=dict)
    took: dict[str, int] = field(default_factory=dict)


def admit(testbed: Testbed, *, simulated: bool, seed: int) -> Ward:
    """Open every instrument of `testbed` that answers, on hardware or in a simulated world."""
    names = [
        *testbed.optical_switches,
        *testbed.instruments,
        *(name for name, spec in testbed.servers.items() if spec.address.startswith("ssh://")),
    ]
    clock: Clock = VirtualClock() if simulated else SystemClock()
    closers: list[Callable[[], None]] = [clock.close]
    world: World | None = None
    ways: Callable[[str], Way]
    if simulated:
        world = World(testbed, clock, seed)
        closers.append(world.close)
        ways = _simulated_ways(world, closers)
    else:
        ways = _real_ways(testbed)
    opened = _Opened()
    clocks: Clocks = {}
    for name in names:
        _open(testbed, name, ways, clock, clocks, opened)
        if name in opened.instruments:
            closers.append(opened.instruments[name].close)
    there = opened.instruments
    bench = Bench(
        testbed,
        clock,
        {n: there[n] for n in testbed.optical_switches if n in there},  # type: ignore[misc]
        {n: there[n] for n in testbed.servers if n in there},  # type: ignore[misc]
        {n: there[n] for n in testbed.instruments if n in there},
        opened.identities,
        frozenset(there) if simulated else frozenset(),
        frozenset() if simulated else frozenset(there),
        world=world,
        _closers=[lambda: close_newest_first(closers)],
    )
    return Ward(bench, opened.failures, opened.took)


def _open(
    testbed: Testbed,
    name: str,
    ways: Callable[[str], Way],
    clock: Clock,
    clocks: Clocks,
    opened: _Opened,
) -> None:
    spec = spec_of(testbed, name)
    start = clock.now()
    instrument: Identified | None = None
    try:
        way = ways(name)
        if isinstance(spec, ServerSpec):
            instrument = open_server(spec, way, clock, clocks)
        else:
            instrument = open_instrument(spec, way, clock)
        opened.identities[name] = instrument.identity()
    except LightrigError as error:
        if instrument is not None:
            instrument.close()
        opened.failures[name] = error
        return
    opened.instruments[name] = instrument
    opened.took[name] = clock.now() - start


def _simulated_ways(world: World, closers: list[Callable[[], None]]) -> Callable[[str], Way]:
    folder = tempfile.TemporaryDirectory(prefix="lightrig-")
    closers.append(folder.cleanup)
    known_hosts = Path(folder.name) / "known_hosts"
    known_hosts.write_text("".join(f"{s.known_hosts}\n" for s in world.services.values()))
    return lambda name: way_to(world.services[name], known_hosts)


def _real_ways(testbed: Testbed) -> Callable[[str], Way]:
    def way(name: str) -> Way:
        spec = spec_of(testbed, name)
        address = spec.address or ""
        placeholder = is_placeholder(Way.parse(address, None).host)
        login = look_up(spec.login) if spec.login and not placeholder else None
        return replace(Way.parse(address, login), known_hosts=testbed.known_hosts)

    return way
