"""A bench of the instruments that answer, with the errors of the rest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lightrig.harness.bench import Bench
from lightrig.harness.bench.assembly import Clocks, open_server, spec_of
from lightrig.harness.bench.bench import close_newest_first
from lightrig.harness.bench.binding import lease_address, lease_identity, open_lease, state_folder
from lightrig.harness.bench.lease import Lease
from lightrig.harness.bench.saved_state import SavedStates
from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.capabilities import Identified, Identity
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.registry import open_instrument
from lightrig.instruments.temporary_folders import TemporaryFolder
from lightrig.instruments.wire.tcp import is_placeholder
from lightrig.testbeds import LightrigError, ServerSpec, Testbed
from lightrig.testbeds.credentials import look_up

if TYPE_CHECKING:
    from lightrig.instruments.simulated.lab import SimulatedLab


@dataclass
class ConnectedLab:
    """The instruments that answered, and the errors of the rest.

    Attributes:
        bench: the instruments that answered.
        failures: the errors of the rest, by name.
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


def connect_lab(testbed: Testbed, *, simulated: bool, seed: int) -> ConnectedLab:
    """Open every instrument of `testbed` that answers, on hardware or in a simulated world.

    Raises `LeaseConflictError` and `LabFolderError`, as `bind` does.
    """
    names = [
        *testbed.optical_switches,
        *testbed.instruments,
        *(name for name, spec in testbed.servers.items() if spec.address.startswith("ssh://")),
    ]
    clock: Clock = VirtualClock() if simulated else SystemClock()
    closers: list[Callable[[], None]] = [clock.close]
    world: SimulatedLab | None = None
    endpoints: Callable[[str], Endpoint]
    if simulated:
        world, endpoints = _simulated_endpoints(testbed, clock, seed, closers)
    else:
        endpoints = _hardware_endpoints(testbed)
    opened = _Opened()
    clocks: Clocks = {}
    lease: Lease | None = None
    try:
        if not simulated:
            lease = open_lease(testbed, f"lightrig doctor of testbed {testbed.name}")
            closers.append(lease.release)
        for name in names:
            if lease is not None:
                lease_address(testbed, name, lease)
            _open(testbed, name, endpoints, clock, clocks, opened)
            if name in opened.instruments:
                closers.append(opened.instruments[name].close)
                if lease is not None:
                    lease_identity(testbed, name, opened.identities[name], lease)
    except BaseException:
        close_newest_first(closers)
        raise
    answering = opened.instruments
    bench = Bench(
        testbed,
        clock,
        {n: answering[n] for n in testbed.optical_switches if n in answering},  # type: ignore[misc]
        {n: answering[n] for n in testbed.servers if n in answering},  # type: ignore[misc]
        {n: answering[n] for n in testbed.instruments if n in answering},
        opened.identities,
        frozenset(answering) if simulated else frozenset(),
        frozenset() if simulated else frozenset(answering),
        world=world,
        lease=lease,
        saved_states=None if simulated else SavedStates(state_folder(testbed)),
        purpose="lightrig doctor",
        _closers=[lambda: close_newest_first(closers)],
    )
    return ConnectedLab(bench, opened.failures, opened.took)


def _open(
    testbed: Testbed,
    name: str,
    endpoints: Callable[[str], Endpoint],
    clock: Clock,
    clocks: Clocks,
    opened: _Opened,
) -> None:
    spec = spec_of(testbed, name)
    start = clock.now()
    instrument: Identified | None = None
    try:
        endpoint = endpoints(name)
        if isinstance(spec, ServerSpec):
            instrument = open_server(spec, endpoint, clock, clocks)
        else:
            instrument = open_instrument(spec, endpoint, clock)
        opened.identities[name] = instrument.identity()
    except LightrigError as error:
        if instrument is not None:
            instrument.close()
        opened.failures[name] = error
        return
    opened.instruments[name] = instrument
    opened.took[name] = clock.now() - start


def _simulated_endpoints(
    testbed: Testbed, clock: Clock, seed: int, closers: list[Callable[[], None]]
) -> tuple["SimulatedLab", Callable[[str], Endpoint]]:
    # An examination of hardware loads no simulation.
    from lightrig.harness.bench.simulation import endpoint_of  # noqa: PLC0415
    from lightrig.instruments.simulated.lab import SimulatedLab  # noqa: PLC0415

    world = SimulatedLab(testbed, clock, seed)
    closers.append(world.close)
    folder = TemporaryFolder()
    closers.append(folder.cleanup)
    return world, lambda name: endpoint_of(world.services[name], Path(folder.name))


def _hardware_endpoints(testbed: Testbed) -> Callable[[str], Endpoint]:
    def endpoint(name: str) -> Endpoint:
        spec = spec_of(testbed, name)
        address = spec.address or ""
        placeholder = is_placeholder(Endpoint.parse(address, None).host)
        login = look_up(spec.login) if spec.login and not placeholder else None
        return replace(
            Endpoint.parse(address, login),
            known_hosts=testbed.known_hosts,
            ssh_config=testbed.ssh_config,
        )

    return endpoint
