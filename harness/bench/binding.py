"""Which part of a testbed is hardware and which is simulated, and opening it.

The choice is made for an optical domain as a whole, everything that fibers connect:
light from a real laser does not reach a simulated meter.
"""

import gc
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import networkx as nx

from harness.bench.bench import Bench, close_newest_first
from harness.bench.credentials import look_up
from harness.bench.drivers import Clocks, open_namespace, open_server
from harness.modes import Mode
from instruments import kernel
from instruments.capabilities import Identified, Identity, OpticalSwitch, Server
from instruments.clock import Clock, SystemClock
from instruments.errors import WrongIdentityError
from instruments.registry import Spec, open_instrument
from instruments.simulated.kernel_links import KernelLinks, KernelPort
from instruments.simulated.services import Service
from instruments.simulated.world import World
from instruments.virtual_clock import VirtualClock
from instruments.way import Way
from instruments.wire.tcp import is_placeholder
from testbeds import LightrigError, ServerSpec, Testbed

PLANT = "plant"
"""The namespace between the servers: where the fibers of a namespaces testbed are."""


class LabTroubleError(LightrigError):
    """Hardware was asked for, and some of it did not answer as described."""


class NotHereError(LightrigError):
    """The machine cannot hold the testbed, for a reason that is no fault of the lab."""


@dataclass(frozen=True, slots=True)
class _Absent:
    name: str
    address: str
    why: str
    after: float

    def __str__(self) -> str:
        return f"{self.name} at {self.address}, after {self.after:.2f} s: {self.why}"


def bind(testbed: Testbed, mode: Mode, seed: int = 0) -> Bench:
    """Open every instrument of `testbed`, on hardware or in a simulated world.

    `auto` uses the hardware of each optical domain that answers in full and simulates the
    others; `hardware` accepts no absence; `simulated` contacts nothing outside this machine.

    Raises:
        LabTroubleError: in `hardware` mode, naming every instrument that did not answer, at
            which address and after how long.
        NotHereError: the testbed needs namespaces and this machine has none.
    """
    opened: dict[str, Identified] = {}
    identities: dict[str, Identity] = {}
    absent: list[_Absent] = []
    notes: list[str] = []
    real: set[str] = set()
    clock: Clock = SystemClock()
    clocks: Clocks = {}
    if mode != "simulated":
        for domain in _domains(testbed):
            found, missing = _open_domain(testbed, domain, clock, clocks)
            absent += missing
            if missing:
                for instrument, _ in found.values():
                    instrument.close()
                notes.append(f"{', '.join(sorted(domain))} simulated, since {missing[0]}")
                continue
            real |= domain
            for name, (instrument, identity) in found.items():
                opened[name], identities[name] = instrument, identity
    if mode == "hardware" and absent:
        for instrument in opened.values():
            instrument.close()
        raise _trouble(testbed, absent, len(_names(testbed)))
    namespaces = [s for s in testbed.servers.values() if s.address.startswith("netns://")]
    closers: list[Callable[[], None]] = []
    if not real and not namespaces:
        clock.close()
        clock = VirtualClock()
        closers += [_stay_on_one_processor(), _spare_the_collector()]
    builder = _Builder(testbed, clock, seed, opened, identities, closers)
    try:
        builder.simulate([name for name in _names(testbed) if name not in real], namespaces)
    except BaseException:
        close_newest_first(builder.closers)
        raise
    simulated = {name for name, identity in builder.identities.items() if identity.simulated}
    if builder.world is not None:  # some instruments cannot say what they are
        simulated |= builder.world.services.keys()
    return Bench(
        testbed,
        clock,
        {name: builder.switches[name] for name in testbed.optical_switches},
        {name: builder.servers[name] for name in testbed.servers},
        {name: builder.instruments[name] for name in testbed.instruments},
        {name: builder.identities[name] for name in _names(testbed)},
        frozenset(simulated),
        frozenset(real),
        tuple(notes),
        builder.world,
        builder.closers,
    )


def bind_switches(testbed: Testbed) -> Bench:
    """Open the optical switches of `testbed` alone, on hardware: circuits need nothing else.

    Raises `LabTroubleError` for every switch that did not answer as described.
    """
    clock = SystemClock()
    names = set(testbed.optical_switches)
    found, absent = _open_domain(testbed, names, clock, {})
    if absent:
        for instrument, _ in found.values():
            instrument.close()
        clock.close()
        raise _trouble(testbed, absent, len(names))
    builder = _Builder(
        testbed,
        clock,
        0,
        {name: instrument for name, (instrument, _) in found.items()},
        {name: identity for name, (_, identity) in found.items()},
        [],
    )
    simulated = frozenset(name for name, each in builder.identities.items() if each.simulated)
    return Bench(
        *(testbed, clock, builder.switches, {}, {}, builder.identities, simulated),
        shared=frozenset(names),
        _closers=builder.closers,
    )


def _trouble(testbed: Testbed, absent: list[_Absent], asked: int) -> LabTroubleError:
    return LabTroubleError(
        f"{len(absent)} of {asked} instruments of {testbed.path} did not answer as described:\n  "
        + "\n  ".join(map(str, absent))
    )


def _names(testbed: Testbed) -> list[str]:
    return [*testbed.optical_switches, *testbed.servers, *testbed.instruments]


def spec_of(testbed: Testbed, name: str) -> Spec | ServerSpec:
    """What the file says of the switch, server or instrument of that name."""
    return testbed.switches.get(name) or testbed.servers.get(name) or testbed.instruments[name]


def _domains(testbed: Testbed) -> list[set[str]]:
    graph = nx.Graph()
    graph.add_nodes_from(_names(testbed))
    for fiber in testbed.fibers:
        if {fiber.source.owner, fiber.sink.owner} <= set(graph):
            graph.add_edge(fiber.source.owner, fiber.sink.owner)
    return sorted(map(set, nx.connected_components(graph)), key=min)


def _stay_on_one_processor() -> Callable[[], None]:
    """Keep this thread, and those that it starts, on one processor; returns what undoes it.

    In virtual time one thread runs at once, and most of them only hand over to the next:
    waking it on another processor costs a third of a reconfiguration's time. Processes that run
    side by side take different ones.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(allowed)[os.getpid() % len(allowed)]})
    return lambda: os.sched_setaffinity(0, allowed)


def _spare_the_collector() -> Callable[[], None]:
    """Keep what is loaded so far out of garbage collections; returns what undoes it.

    Going through all that the libraries have loaded takes a tenth of a virtual night.
    """
    gc.collect()
    gc.freeze()
    return gc.unfreeze


# ---------------------------------------------------------------------------- hardware


def _open_domain(
    testbed: Testbed, domain: set[str], clock: Clock, clocks: Clocks
) -> tuple[dict[str, tuple[Identified, Identity]], list[_Absent]]:
    """Try every member side by side; what answered, and what did not."""
    names = [name for name in _names(testbed) if name in domain]
    outcomes = clock.parallel(*(partial(_try, testbed, name, clock, clocks) for name in names))
    found = {
        name: outcome
        for name, outcome in zip(names, outcomes, strict=True)
        if not isinstance(outcome, _Absent)
    }
    return found, [outcome for outcome in outcomes if isinstance(outcome, _Absent)]


def _try(
    testbed: Testbed, name: str, clock: Clock, clocks: Clocks
) -> tuple[Identified, Identity] | _Absent:
    spec = spec_of(testbed, name)
    address = spec.address or "no address"
    start = clock.now()
    instrument: Identified | None = None
    try:
        placeholder = is_placeholder(Way.parse(address, None).host)
        # Nobody needs credentials for an instrument that is not there to be asked.
        login = look_up(spec.login) if spec.login and not placeholder else None
        way = replace(Way.parse(address, login), known_hosts=testbed.known_hosts)
        if not isinstance(spec, ServerSpec):
            instrument = open_instrument(spec, way, clock)
        elif way.scheme == "netns":
            return _Absent(name, address, "a namespace is cabled to no hardware", 0.0)
        else:
            instrument = open_server(spec, way, clock, clocks)
        identity = instrument.identity()
        _check_identity(spec, identity)
    except LightrigError as error:
        if instrument is not None:
            instrument.close()
        why = str(error).splitlines()[0].removeprefix(f"{name} ")
        return _Absent(name, address, why, (clock.now() - start) / 1e9)
    return instrument, identity


def _check_identity(spec: Spec | ServerSpec, found: Identity) -> None:
    if isinstance(spec, ServerSpec):
        return
    for what in ("model", "serial", "firmware"):
        expected = getattr(spec.identity, what)
        if expected is not None and expected != getattr(found, what):
            raise WrongIdentityError(
                spec.name,
                f"is not the expected one: {what} {getattr(found, what)!r}, expected {expected!r}",
            )


# --------------------------------------------------------------------------- simulated


class _Builder:
    """Opens what is left to simulate, through the same drivers as hardware."""

    def __init__(
        self,
        testbed: Testbed,
        clock: Clock,
        seed: int,
        opened: Mapping[str, Identified],
        identities: Mapping[str, Identity],
        closers: list[Callable[[], None]],
    ) -> None:
        self._testbed = testbed
        self._clock = clock
        self._clocks: Clocks = {}
        self._seed = seed
        self.identities = dict(identities)
        self.switches: dict[str, OpticalSwitch] = {}
        self.servers: dict[str, Server] = {}
        self.instruments: dict[str, Identified] = {}
        self.world: World | None = None
        self.closers = [*closers, clock.close]
        for name, instrument in opened.items():
            self._keep(name, instrument)

    def simulate(self, names: list[str], namespaces: list[ServerSpec]) -> None:
        """Make one world for everything in `names` and open drivers to its peers."""
        if not names:
            return
        pids, links = self._namespaces(namespaces) if namespaces else ({}, None)
        self.world = World(self._testbed, self._clock, self._seed, links)
        self.closers.append(self.world.close)
        folder = tempfile.TemporaryDirectory(prefix="lightrig-")
        self.closers.append(folder.cleanup)
        known_hosts = Path(folder.name) / "known_hosts"
        known_hosts.write_text(
            "".join(f"{service.known_hosts}\n" for service in self.world.services.values())
        )
        for name in names:
            spec = spec_of(self._testbed, name)
            if name in pids:
                assert isinstance(spec, ServerSpec)
                self._open(name, open_namespace(spec, pids[name], self._clock, self._clocks))
                continue
            way = way_to(self.world.services[name], known_hosts)
            if isinstance(spec, ServerSpec):
                self._open(name, open_server(spec, way, self._clock, self._clocks))
            else:
                self._open(name, open_instrument(spec, way, self._clock))

    def _open(self, name: str, instrument: Identified) -> None:
        self._keep(name, instrument)
        self.identities[name] = instrument.identity()

    def _keep(self, name: str, instrument: Identified) -> None:
        self.closers.append(instrument.close)
        if name in self._testbed.switches:
            self.switches[name] = instrument  # type: ignore[assignment]
        elif name in self._testbed.servers:
            self.servers[name] = instrument  # type: ignore[assignment]
        else:
            self.instruments[name] = instrument

    def _namespaces(self, specs: list[ServerSpec]) -> tuple[dict[str, int], KernelLinks]:
        if reason := kernel.available():
            raise NotHereError(f"{self._testbed.path} needs network namespaces: {reason}")
        namespaces = kernel.Namespaces([PLANT, *(spec.name for spec in specs)])
        self.closers.append(namespaces.close)
        pids = {spec.name: namespaces.pid(spec.name) for spec in specs}
        ports = [
            KernelPort(spec.name, pids[spec.name], port.netdev, port.ip or "", nic.rate_bps)
            for spec in specs
            for nic in spec.nics.values()
            for port in nic.ports
        ]
        switches = [s.name for s in self._testbed.switches.values() if s.kind == "packet"]
        links = KernelLinks(namespaces.pid(PLANT), ports, switches)
        self.closers.append(links.close)
        return pids, links


def way_to(service: Service, known_hosts: Path) -> Way:
    """The way to a simulated instrument."""
    return Way(
        service.scheme,
        service.host,
        service.port or None,
        service.login,
        known_hosts=known_hosts,
        resource=service.resource,
    )
