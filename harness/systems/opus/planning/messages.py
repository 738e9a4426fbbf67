"""Messages between shims, controller, orchestrators and switches."""

from dataclasses import dataclass, field
from typing import TypeAlias

from lightrig.harness.systems.opus.planning.topology import GIANT_RING, Topology
from lightrig.testbeds import Circuit


@dataclass(frozen=True, slots=True)
class TopoWrite:
    """A rank needs the connectivity of `group` for its operation `index` (Opus §4.1).

    `turn` counts the rank's requests, so that a message that is repeated or late is known for
    what it is. `stage` is the pipeline stage of the rank. It also says that the rank has finished
    with what it was granted before.
    """

    rank: int
    turn: int
    group: str
    index: int
    stage: int


@dataclass(frozen=True, slots=True)
class Release:
    """A rank no longer uses what it was granted at `turn`.

    The paper has no such message. In default mode a rank says nothing between its last Send and
    its next operation, and until that it may wait, on another network, for a neighbour that has
    to leave the pipeline first. Without it either a link is cut whose sender has not seen the
    end of its operation, or both wait.
    """

    rank: int
    turn: int


@dataclass(frozen=True, slots=True)
class Granted:
    """The answer to `TopoWrite`: the operation may run, on `rail`, in `topology`."""

    rank: int
    turn: int
    rail: int
    topology: Topology


@dataclass(frozen=True, slots=True)
class Released:
    """The answer to `Release`."""

    rank: int
    turn: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The other answer to `TopoWrite`: no rail is left that could carry the operation."""

    rank: int
    turn: int
    reason: str


@dataclass(frozen=True, slots=True)
class Program:
    """The controller wants the `stages` of a rail to be as in `topology`, and no others moved.

    `attempt` counts from 1 for each `version`. Changes of different stages may be under way
    together; `topology` is that of all of them.
    """

    rail: int
    job: str
    version: int
    attempt: int
    topology: Topology
    stages: frozenset[int]


@dataclass(frozen=True, slots=True)
class Programmed:
    """The rail's switch has made the change `version`."""

    rail: int
    job: str
    version: int


@dataclass(frozen=True, slots=True)
class NotProgrammed:
    """The rail's switch did not do what `attempt` asked of it."""

    rail: int
    job: str
    version: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Rewire:
    """Command to a rail's switch: remove the circuits `remove`, then add `add`; no others.

    Doing it twice is the same as doing it once. `topology` and `stages` are those of the `Program`
    that it carries out, for a service that is told topologies.
    """

    rail: int
    job: str
    version: int
    attempt: int
    remove: frozenset[Circuit]
    add: frozenset[Circuit]
    topology: Topology = field(default=GIANT_RING, compare=False)
    stages: frozenset[int] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class Rewired:
    """The switch has read back that it is as `Rewire` wanted it."""

    rail: int
    job: str
    version: int
    attempt: int


@dataclass(frozen=True, slots=True)
class NotRewired:
    """The switch denied, did not answer, or is not as it said."""

    rail: int
    job: str
    version: int
    attempt: int
    reason: str


FromShim: TypeAlias = TopoWrite | Release
ToShim: TypeAlias = Granted | Released | Failed
FromRail: TypeAlias = Programmed | NotProgrammed
FromSwitch: TypeAlias = Rewired | NotRewired
Message: TypeAlias = FromShim | ToShim | FromRail | FromSwitch | Program | Rewire
