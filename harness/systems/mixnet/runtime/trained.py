"""What a training script has done on circuits that follow its gates."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lightrig.harness.jobs.bench.port_traffic import PortTraffic
from lightrig.harness.systems.mixnet.planning.calendar import Knowledge, Phase
from lightrig.harness.systems.mixnet.planning.control import Prediction
from lightrig.harness.systems.mixnet.planning.delegation import Links
from lightrig.harness.systems.mixnet.planning.demand import Matrix
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.traffic.training import Done
from lightrig.testbeds import Plan, Port


@dataclass(frozen=True, slots=True)
class TrainingExchange:
    """One all-to-all of a step.

    Attributes:
        traffic: bytes from each rank to each.
        plan: the circuits that it ran over.
        optical: share of its bytes between servers that took circuits.
        wanted: when the last rank announced it, in ns.
        permitted: when the last rank was permitted to begin it, in ns.
        began: when the last rank began it, in ns.
        ended: when the last rank had ended it, in ns.
        predicted: its duration by the model of flows, in ns.
        carried: bytes that each directed link between servers was planned to carry.
        region: whose experts exchanged.
    """

    step: int
    layer: int
    phase: Phase
    traffic: Matrix
    plan: Plan
    optical: float
    wanted: int
    permitted: int
    began: int
    ended: int
    predicted: float
    carried: Links
    region: int = 0

    @property
    def waited(self) -> int:
        """How long it waited after its last rank had announced it, in ns."""
        return self.began - self.wanted


@dataclass(frozen=True, slots=True)
class CircuitChange:
    """One change of circuits.

    Attributes:
        before: the all-to-all that it served first.
        knows: where its demand came from.
        moved: circuits that were made.
        began: when the controller began it, in ns.
        planned: when its circuits were planned.
        left: when packets had left the circuits that were to move.
        switched: when the switch had been read back.
        lit: when all NIC ports had carrier.
        done: when packets had taken the new circuits. A change that moves none is done as soon as
            it is planned.
        region: whose circuits changed.
    """

    step: int
    layer: int
    before: Phase
    knows: Knowledge
    moved: int
    began: int
    planned: int
    left: int
    switched: int
    lit: int
    done: int
    region: int = 0


@dataclass(frozen=True, slots=True)
class NewCircuits:
    """Circuits that were brought in, and the moments of that; see `CircuitChange`."""

    routing: Routing
    moved: int
    left: int
    switched: int
    lit: int
    done: int


@dataclass(frozen=True, slots=True)
class LinkPeriod:
    """What NIC ports of a region have carried while the circuits of one plan were in place.

    Attributes:
        plan: the circuits.
        planned: bytes of all-to-alls over each directed link, or of sums over rings.
        counted: what the kernel has counted at each NIC port meanwhile.
        again: segments that each server's kernel has sent again, since a queue dropped them.
    """

    plan: Plan
    planned: Links
    counted: Mapping[Port, PortTraffic]
    again: Mapping[str, int]


@dataclass(frozen=True)
class TrainedExperts:
    """A script that has run: what each rank printed and when, its all-to-alls and changes.

    periods: what links carried, one after another, where that was asked for.
    operations: of each rank, those between servers that no circuit carries.
    """

    printed: Mapping[int, Sequence[tuple[Span, str]]]
    exchanges: Sequence[TrainingExchange]
    changes: Sequence[CircuitChange]
    predictions: Sequence[Prediction]
    periods: Sequence[LinkPeriod] = ()
    operations: Mapping[int, Sequence[Done]] = field(default_factory=dict)

    def losses(self) -> list[tuple[int, str]]:
        """Return the lines with a step's loss that each rank has printed."""
        return [
            (rank, line)
            for rank, lines in sorted(self.printed.items())
            for _, line in lines
            if line.startswith("step ")
        ]

    def step_times(self) -> list[int]:
        """Return the time of each step after the first, in ns, by the last rank's loss."""
        ends: defaultdict[str, int] = defaultdict(int)
        for _, lines in sorted(self.printed.items()):
            for at, line in lines:
                if line.startswith("step "):
                    name = line.split()[1]
                    ends[name] = max(ends[name], (at.earliest + at.latest) // 2)
        moments = [ends[name] for name in sorted(ends, key=int)]
        return [after - before for before, after in itertools.pairwise(moments)]
