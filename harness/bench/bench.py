"""The bench: all instruments of a testbed, open and identified."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lightrig.harness.bench.coverage import Coverage
from lightrig.harness.bench.interlocks import Interlocks
from lightrig.harness.bench.kernel_messages import KernelMessages
from lightrig.harness.bench.lease import Lease
from lightrig.harness.bench.port_shutters import PortShutters
from lightrig.harness.bench.roce_indices import RoceIndices
from lightrig.harness.bench.saved_state import SavedStates
from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.core.capabilities import (
    BlocksPorts,
    HasSettings,
    Identified,
    Identity,
    OpticalSwitch,
    Server,
)
from lightrig.instruments.wire.trace import recorder_of
from lightrig.testbeds import Testbed

if TYPE_CHECKING:  # a bench on hardware loads no simulation
    from lightrig.instruments.simulated.lab import SimulatedLab
    from lightrig.instruments.simulated.world.ground_truth import GroundTruth


@dataclass
class Bench:
    """The open instruments of a testbed.

    Attributes:
        testbed: the description.
        clock: the source of time for everything on this bench.
        switches: by name.
        servers: by name.
        instruments: all others, such as meters and sources, by name.
        identities: the identity that each instrument reported, by name.
        simulated: names of what is simulated; everything else is hardware or a namespace.
        external: names of instruments at an address outside this process, which other processes
            can use as well: hardware, and simulations that another process serves.
        notes: reasons for the choice between hardware and simulation, one sentence each.
        world: the simulated world, if there is one.
        lease: exclusive use of the external instruments, until the bench is closed.
        saved_states: where states to be restored are on disk; None if all instruments end with
            this process.
        purpose: what the bench is used for, as others are told.
        neighbours: benches of other parts of the testbed that this process has open.
        setting_notes: called with a setting and its value before it is sent, by instrument.
        shutters: those of the testbed's ports, of each switch whose driver has them.
        kernel: the kernel messages of the servers.
        roce_indices: of the RoCE addresses of NIC ports.
    """

    testbed: Testbed
    clock: Clock
    switches: Mapping[str, OpticalSwitch]
    servers: Mapping[str, Server]
    instruments: Mapping[str, Identified]
    identities: Mapping[str, Identity]
    simulated: frozenset[str]
    external: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    world: SimulatedLab | None = None
    lease: Lease | None = None
    saved_states: SavedStates | None = None
    purpose: str = "a measurement"
    _closers: list[Callable[[], None]] = field(default_factory=list)
    neighbours: Mapping[str, Bench] = field(default_factory=dict, init=False)
    setting_notes: dict[str, Callable[[str, float], None]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Let every setting of an instrument pass the interlocks before it is sent."""
        self.coverage = Coverage(self.testbed)
        self.interlocks = Interlocks(self)
        self.kernel = KernelMessages(self.servers, self.clock)
        self.roce_indices = RoceIndices(self.testbed, self.servers, self.clock)
        self.shutters = {
            name: PortShutters(switch, self.channels(name))
            for name, switch in self.switches.items()
            if isinstance(switch, BlocksPorts)
        }
        for name, settable in self.settable.items():
            settable.on_setting = partial(self._before_setting, name)

    def _before_setting(self, name: str, setting: str, value: float) -> None:
        # An instrument that is another's by now is not asked for its light either.
        self.check_lease()
        self.interlocks.check_setting(name, setting, value)
        if (note := self.setting_notes.get(name)) is not None:
            note(setting, value)

    @property
    def settable(self) -> Mapping[str, HasSettings]:
        """What has settings, by name: instruments, and the shutters of switches."""
        found = {n: each for n, each in self.instruments.items() if isinstance(each, HasSettings)}
        return {**found, **self.shutters}

    def channels(self, name: str) -> Sequence[int]:
        """Return the channels of an instrument, or the ports of a switch that are cabled."""
        if name in self.switches:
            return sorted(frozenset().union(*self.testbed.cabling.cabled_ports(name)))
        return range(1, self.testbed.instruments[name].channels + 1)

    @property
    def in_process(self) -> bool:
        """Whether all switches of this bench end with this process."""
        return self.external.isdisjoint(self.switches)

    @property
    def truth(self) -> GroundTruth | None:
        """The ground truth of the simulated world, if there is one; for closure only."""
        return self.world.known_truth() if self.world is not None else None

    def check_world(self) -> None:
        """Raise the error that has broken the simulated world, if there is one."""
        if self.world is not None and self.world.failure is not None:
            raise self.world.failure

    def check_lease(self) -> None:
        """Raise `LeaseLostError` if another host may use the instruments by now."""
        if self.lease is not None:
            self.lease.check()

    def untraced(self) -> contextlib.AbstractContextManager[None]:
        """Record nothing on wires meanwhile: what is read for days would fill a disk."""
        recorder = recorder_of(self.clock)
        return contextlib.nullcontext() if recorder is None else recorder.suspended()

    def participants(self) -> tuple[str, ...]:
        """Return name and identity of all instruments, for a row's provenance."""
        return tuple(f"{name}: {identity}" for name, identity in self.identities.items())

    def close(self) -> None:
        """Close all sessions, simulated devices and the clock; newest first, servers at once."""
        try:
            if isinstance(self.clock, SystemClock):
                self.clock.parallel(*(server.close for server in self.servers.values()))
        finally:
            close_newest_first(self._closers)


def close_newest_first(closers: Iterable[Callable[[], None]]) -> None:
    """Call `closers` in reverse order, all of them even if one raises."""
    with contextlib.ExitStack() as stack:
        for closer in closers:
            stack.callback(closer)
