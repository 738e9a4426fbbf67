"""What circuits that follow its gates cost a mixture of experts, for a person and as JSON."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lightrig.harness.jobs.printed_numbers import NumbersComparison
from lightrig.harness.jobs.statistics.means import MeanEstimate, mean_of
from lightrig.harness.systems.mixnet.measurements.circuit_waits import CAUSES, Cause, step_waits
from lightrig.harness.systems.mixnet.measurements.link_bytes import LinkBytes
from lightrig.harness.systems.mixnet.measurements.packet_operations import PacketOperations
from lightrig.harness.systems.mixnet.planning.course import Course
from lightrig.harness.systems.mixnet.planning.expert_regions import ExpertRegion
from lightrig.harness.systems.mixnet.runtime.trained import TrainedExperts

_FEWEST = 2
"""Steps after the first that an interval needs."""


@dataclass(frozen=True)
class RegionAnswer:
    """What circuits that follow its gates cost one region.

    Attributes:
        switch: that its circuits are on.
        ranks, groups: of the job on its servers, and expert-parallel groups among them.
        layers: of the model.
        exchanges: all-to-alls of rows that ran; again: of them those of layers whose activations
            were not kept.
        changes: changes that moved circuits, and how many circuits they made.
        step, waited: time from the last all-to-all of a step to that of the next, and how long the
            next one's waited.
        causes: parts of that wait, by cause.
        optical: share of the bytes between servers that took circuits.
    """

    switch: str
    ranks: int
    groups: int
    layers: int
    exchanges: int
    again: int
    changes: int
    circuits: int
    step: MeanEstimate | None
    waited: MeanEstimate | None
    causes: Mapping[Cause, MeanEstimate]
    optical: float

    def lines(self) -> Iterator[str]:
        """Yield what a person reads."""
        again = f", {self.again} of them again" if self.again else ""
        groups = f" in {self.groups} groups" if self.groups > 1 else ""
        yield (f"experts   {self.ranks} ranks{groups}, {self.layers} layers, {self.exchanges} "
               f"all-to-alls of rows{again}")  # fmt: skip
        if self.step is None or self.waited is None:
            yield "step      too few steps after the first for a mean with an interval"
        else:
            yield f"step      {self.step}"
            yield f"          its all-to-alls wait for circuits {self.waited}"
            for cause, wait in self.causes.items():
                if wait.value:
                    yield f"          {cause:<21} {wait}"
        yield f"circuits  {self.changes} changes made {self.circuits} circuits"
        yield f"          {self.optical:.1%} of the bytes between servers took circuits"


@dataclass(frozen=True)
class ExpertsAnswer:
    """A script by Gloo over packets alone, and on circuits; a `TrainingReport`.

    Attributes:
        ranks: of the job.
        mode: how the first all-to-all of a layer gets its circuits.
        simulated: instruments that were.
        comparison: numbers that ranks printed, on circuits beside those over packets.
        regions: each with a controller of its own.
        packets: what no circuit carries.
        links: bytes over each link, as planned and as counted.
        again: segments of TCP that were sent again, which their senders have counted twice.
    """

    ranks: int
    mode: str
    simulated: tuple[str, ...]
    comparison: NumbersComparison
    regions: tuple[RegionAnswer, ...]
    packets: tuple[PacketOperations, ...]
    links: tuple[LinkBytes, ...]
    again: int

    @property
    def as_printed_before(self) -> bool:
        """Whether the ranks printed the same numbers in both runs, and printed any."""
        return bool(self.comparison.count) and not self.comparison.different

    def document(self) -> Mapping[str, Any]:
        """Return all of it as JSON has it: times in ns."""
        links = [
            {"source": _text(link.source), "sink": _text(link.sink),
             "planned": link.planned, "counted": link.counted}
            for link in self.links
        ]  # fmt: skip
        return asdict(self) | {"links": links}

    def lines(self) -> Iterator[str]:
        """Yield what a person reads, the result first."""
        compared = self.comparison
        if not compared.count:
            yield (f"results   NOT compared: no rank printed a number that {compared.pattern!r} "
                   "finds; state another pattern with --results")  # fmt: skip
        elif compared.different:
            yield (f"results   {len(compared.different)} of {compared.count} numbers DIFFER from "
                   "those over packets alone:")  # fmt: skip
            for rank, first, then in compared.different[:4]:
                yield (f"          rank {rank} printed {then or 'nothing'}, over packets "
                       f"{first or 'nothing'}")  # fmt: skip
        else:
            yield f"results   {compared.count} numbers, each equal to that over packets alone"
        for number, region in enumerate(self.regions):
            if len(self.regions) > 1:
                yield f"region    {number}, on {region.switch}"
            yield from region.lines()
        for each in self.packets:
            yield f"packets   {each}"
        yield "links     bytes of all-to-alls by the plan, and of all data by the kernel"
        for link in self.links:
            off = f", {link.off:.2%} off" if link.planned else ""
            yield f"          {link!s:<32} {link.planned:>11,} {link.counted:>11,}{off}"
        if self.again:
            yield f"          {self.again} segments were sent again, which senders count twice"


def answer(
    *,
    ranks: int,
    mode: str,
    simulated: Sequence[str],
    comparison: NumbersComparison,
    courses: Sequence[tuple[ExpertRegion, Course]],
    trained: TrainedExperts,
    packets: Sequence[PacketOperations],
    links: Sequence[LinkBytes],
) -> ExpertsAnswer:
    """Return the answer of a run."""
    return ExpertsAnswer(
        ranks=ranks,
        mode=mode,
        simulated=tuple(simulated),
        comparison=comparison,
        regions=tuple(
            _region(number, region, course.layers, trained)
            for number, (region, course) in enumerate(courses)
        ),
        packets=tuple(packets),
        links=tuple(links),
        again=sum(sum(period.again.values()) for period in trained.periods),
    )


def _region(
    number: int, region: ExpertRegion, layers: int, trained: TrainedExperts
) -> RegionAnswer:
    exchanges = [each for each in trained.exchanges if each.region == number]
    changes = [each for each in trained.changes if each.region == number]
    ends: dict[int, int] = {}
    for each in exchanges:
        ends[each.step] = max(ends.get(each.step, 0), each.ended)
    steps = [after - before for before, after in itertools.pairwise(ends.values())]
    waits = step_waits(trained, number)
    enough = min(len(steps), len(waits)) >= _FEWEST
    between = [each for each in exchanges if each.carried]
    return RegionAnswer(
        switch=region.switch,
        ranks=len(region.ranks),
        groups=len(region.groups),
        layers=layers,
        exchanges=len(exchanges),
        again=sum(each.phase in ("dispatch again", "combine again") for each in exchanges),
        changes=sum(1 for each in changes if each.moved),
        circuits=sum(each.moved for each in changes),
        step=mean_of(steps) if enough else None,
        waited=mean_of([sum(each.values()) for each in waits]).at_least_zero() if enough else None,
        causes={cause: mean_of([each[cause] for each in waits]).at_least_zero() for cause in CAUSES}
        if enough
        else {},
        optical=sum(each.optical for each in between) / max(len(between), 1),
    )


def _text(port: object) -> str | None:
    return None if port is None else str(port)
