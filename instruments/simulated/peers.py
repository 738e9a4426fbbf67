"""What a simulated instrument is given and gives: found by model among the entry points.

Third parties' peers stand in the same group as Lightrig's own (docs/drivers.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, TypeAlias, cast, runtime_checkable

from instruments.clock import Clock
from instruments.simulated.ambient import Ambient
from instruments.simulated.light import Channels
from instruments.simulated.optics import Matrix
from instruments.simulated.peer_server import SessionFactory
from instruments.simulated.randomness import Chance
from instruments.simulated.ssh_peer import Outcome
from instruments.simulated.truth import Truth
from testbeds import InstrumentSpec, LightrigError, SwitchSpec

GROUP = "lightrig.peers"

Spec: TypeAlias = SwitchSpec | InstrumentSpec


class NoPeerError(LightrigError):
    """The testbed has an instrument that nothing here can simulate."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a peer may know of the world around it.

    Attributes:
        spec: what the testbed's file says of it.
        clock: everything it does, it does in this time.
        chance: streams of draws, by name.
        truth: where it notes what really happened.
        login: the user and password it accepts.
        serial: its serial number, which says that it is simulated.
        matrix: the mirrors of a switch; None for an instrument.
        light: the light at an instrument's channels; nothing comes to a switch's.
        ambient: how warm it is.
    """

    spec: Spec
    clock: Clock
    chance: Chance
    truth: Truth
    login: tuple[str, str]
    serial: str
    matrix: Matrix | None
    light: Channels
    ambient: Ambient = field(default_factory=Ambient)


class Peer(Protocol):
    """One simulated instrument, for any number of sessions on any of its wires."""

    def wires(self) -> Mapping[str, SessionFactory]:
        """What makes a session, by the scheme of the wire: `tl1`, `scpi`, `serial`, ..."""


@runtime_checkable
class CommandPeer(Protocol):
    """A peer that is spoken to by commands over SSH."""

    def run_command(self, argv: Sequence[str]) -> Outcome:
        """Run a command to its end; called in the clock's time, so it must not wait."""


class PeerFactory(Protocol):
    """What an entry point of the group names."""

    def __call__(self, around: Surroundings) -> Peer:
        """Make the peer."""


def peer(around: Surroundings) -> Peer:
    """The simulated instrument that a spec describes; raises `NoPeerError`."""
    known: dict[str, EntryPoint] = {entry.name: entry for entry in entry_points(group=GROUP)}
    spec = around.spec
    if spec.model not in known:
        raise NoPeerError(
            f"{spec.name}: nothing here can simulate model {spec.model!r}; "
            f"there are: {', '.join(sorted(known))}"
        )
    return cast(PeerFactory, known[spec.model].load())(around)
