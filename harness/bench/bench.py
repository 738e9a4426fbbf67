"""The bench: every instrument of a testbed, open and identified."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from instruments.capabilities import Identified, Identity, OpticalSwitch, Server
from instruments.clock import Clock
from instruments.simulated.truth import Truth
from instruments.simulated.world import World
from testbeds import Testbed


@dataclass
class Bench:
    """A testbed come alive.

    Attributes:
        testbed: what the file says.
        clock: the one that everything on this bench takes its time from.
        switches: by name.
        servers: by name.
        instruments: meters, sources and whatever else stands on the bench, by name.
        identities: what each instrument said of itself, by name.
        simulated: names of what is simulated; everything else is hardware or a namespace.
        shared: names of what is reached at its address, where others can reach it as well;
            a served simulation is both, everything else ends with this process.
        notes: what a person should know of the choice, one sentence each.
        world: what is behind the simulated instruments, if there are any.
    """

    testbed: Testbed
    clock: Clock
    switches: Mapping[str, OpticalSwitch]
    servers: Mapping[str, Server]
    instruments: Mapping[str, Identified]
    identities: Mapping[str, Identity]
    simulated: frozenset[str]
    shared: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    world: World | None = None
    _closers: list[Callable[[], None]] = field(default_factory=list)

    @property
    def private(self) -> bool:
        """Whether no switch on this bench outlives this process."""
        return self.shared.isdisjoint(self.switches)

    @property
    def truth(self) -> Truth | None:
        """What really happened, where a world was simulated; for closure only."""
        return self.world.truth if self.world is not None else None

    def check_world(self) -> None:
        """Raise what has broken the simulated world, if anything has."""
        if self.world is not None and self.world.failure is not None:
            raise self.world.failure

    def participants(self) -> tuple[str, ...]:
        """Name and identity of everything on the bench, for a row's provenance."""
        return tuple(f"{name}: {identity}" for name, identity in self.identities.items())

    def close(self) -> None:
        """Close every session, every peer and the clock; newest first."""
        close_newest_first(self._closers)


def close_newest_first(closers: Iterable[Callable[[], None]]) -> None:
    """Call `closers` from the last to the first, all of them even if one raises."""
    with contextlib.ExitStack() as stack:
        for closer in closers:
            stack.callback(closer)
