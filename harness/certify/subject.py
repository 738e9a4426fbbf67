"""A switch under certification, and the outcome of a clause. Power in dBm, differences in dB."""

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from lightrig.harness.bench import Fabric
from lightrig.harness.certify.requirements import Profile
from lightrig.harness.measure.insertion_loss.chains import (
    Chain,
    NothingToMeasureError,
    chains,
)
from lightrig.harness.measure.insertion_loss.readings import cyclic_shifts
from lightrig.harness.measure.insertion_loss.references import references_of
from lightrig.instruments.core.capabilities import OpticalSwitch
from lightrig.instruments.core.errors import CANNOT, DeniedError
from lightrig.testbeds import Circuit, Plan

Verdict: TypeAlias = Literal["pass", "fail", "inconclusive", "not applicable", "not tested"]

_ABSENT = 9999
"""Port that no switch has, for switches that do not state their size."""
_PAUSE_NS = 100_000_000


@dataclass(frozen=True)
class Outcome:
    """Verdict on a clause; `value` and `interval` are in `unit`, from `n` samples."""

    verdict: Verdict
    reason: str
    value: float | None = None
    interval: tuple[float, float] | None = None
    unit: str = ""
    n: int = 0


class DecidedError(Exception):
    """Raised by a part of a clause that has found its outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


@dataclass(frozen=True)
class Trial:
    """How a switch is tried.

    Attributes:
        seed: of what is drawn.
        ports: at most so many cabled ports of each side are used, drawn; None for all.
        permitted: classes of clauses that are run.
        ask: asks the operator to do something, and returns once that is done; None without one.
        wires: further wires of the switch, by their addresses.
        hours: for how long its endurance is tried; 0 for not at all.
        before_down: called with a server and a device of it before that is brought down.
    """

    seed: int = 0
    ports: int | None = None
    permitted: frozenset[str] = frozenset({"harmless"})
    ask: Callable[[str], None] | None = None
    wires: Mapping[str, OpticalSwitch] = field(default_factory=dict)
    hours: float = 0.0
    before_down: Callable[[str, str], None] = lambda server, netdev: None


@dataclass(frozen=True)
class Subject:
    """A switch that is tried, on the cabled ports of its testbed alone."""

    fabric: Fabric
    name: str
    profile: Profile
    trial: Trial = Trial()
    ingress: list[int] = field(init=False)
    egress: list[int] = field(init=False)
    _known: set[Circuit] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        draws = random.Random(f"{self.name}/{self.trial.seed}/ports")  # noqa: S311
        for side, cabled in zip(
            ("ingress", "egress"), self.fabric.testbed.cabling.cabled_ports(self.name), strict=True
        ):
            ports = sorted(cabled)
            if self.trial.ports is not None and len(ports) > self.trial.ports:
                ports = sorted(draws.sample(ports, self.trial.ports))
            object.__setattr__(self, side, ports)

    @property
    def switch(self) -> OpticalSwitch:
        """The driver."""
        return self.fabric.bench.switches[self.name]

    @property
    def size(self) -> tuple[int, int] | None:
        """Numbers of ingress and egress ports as the switch states them; None where it does not."""
        query: Callable[[], tuple[int, int]] | None = getattr(self.switch, "size", None)
        return None if query is None else query()

    @property
    def pairs(self) -> list[Circuit]:
        """One circuit of each cabled port, in order, as many as the smaller side has."""
        return [Circuit(*each) for each in zip(self.ingress, self.egress, strict=False)]

    def pairs_of(self, least: int) -> list[Circuit]:
        """Return `pairs`; raises `DecidedError` where there are fewer than `least`."""
        if len(self.pairs) < least:
            numerals = ("no", "one", "two", "three")
            few = f"fewer than {numerals[least] if least < len(numerals) else least} cabled ports"
            raise DecidedError(Outcome("not applicable", f"{few} on a side"))
        return self.pairs

    def sleep(self, duration: int) -> None:
        """Wait for `duration` ns."""
        self.fabric.bench.clock.sleep(duration)

    def plan(self, circuits: Collection[Circuit]) -> Plan:
        """Return a plan of these circuits and no others on the testbed's ports of the switch."""
        return Plan("certification", {self.name: frozenset(circuits)})

    def apply(self, circuits: Collection[Circuit]) -> None:
        """Bring the testbed's ports of the switch to `circuits`; light is not judged.

        Waits before that, since modules that are still switching refuse the next change.
        """
        self.sleep(_PAUSE_NS)
        self.fabric.apply(self.plan(circuits), check_budget=False)

    def settings(self) -> list[Collection[Circuit]]:
        """Return three shifts of all ports, or settings of plans where the switch is not able to.

        Raises `DeniedError` where there are no such plans; one setting may be made.
        """
        shifts = cyclic_shifts(self.ingress, self.egress)[:3]
        try:
            self.apply(shifts[0])
        except DeniedError as error:
            plans = self.fabric.plans.values()
            planned = [each.circuits[self.name] for each in plans if self.name in each.circuits]
            if error.code != CANNOT or not planned:
                raise
            return list(planned[:3])
        return list(shifts)

    def plans_of(self, least: int) -> list[Plan]:
        """Return the testbed's plans that change nothing but the ports of this trial.

        Raises `DecidedError` where there are fewer than `least`.
        """
        found = [
            plan
            for plan in self.fabric.plans.values()
            if set(plan.circuits) == {self.name}
            and self.ours(plan.circuits[self.name]) == plan.circuits[self.name]
        ]
        if len(found) < least:
            few = f"needs {least} plans of the testbed that use the ports of this trial alone"
            raise DecidedError(Outcome("not tested", few))
        return found

    def ours(self, circuits: Collection[Circuit]) -> frozenset[Circuit]:
        """Return the circuits between ports of this trial."""
        ingress, egress = set(self.ingress), set(self.egress)
        return frozenset(c for c in circuits if c.ingress in ingress and c.egress in egress)

    def note(self, remove: Collection[Circuit], add: Collection[Circuit]) -> frozenset[Circuit]:
        """Note that circuits may be removed and made beside the fabric; return those of now."""
        present = self.switch.circuits()
        left = self.ours(present - frozenset(remove)) | self.ours(add)
        self.fabric.note_change(self.name, self.ours(present), left)
        return present

    def attempt(
        self,
        circuits: Collection[Circuit],
        remove: Collection[Circuit] = (),
        by: OpticalSwitch | None = None,
    ) -> DeniedError | None:
        """Ask for `circuits`, whatever is there; return the refusal, None where acknowledged.

        Notes before that these circuits, and none of those there, may be what is left. by: another
        client of the switch.
        """
        present = self.switch.circuits()
        self.fabric.note_change(self.name, present, self.ours(circuits))
        try:
            (by or self.switch).change(remove, circuits).done()
        except DeniedError as error:
            return error
        return None

    def note_strange(self) -> None:
        """Note the circuits between a port of the testbed and one that is not, before a clause."""
        self._known.clear()
        self._known.update(self._strange())

    def remove_strange(self) -> None:
        """Remove such circuits that have come since: a request of a clause has made them."""
        if made := self._strange() - self._known:
            self.switch.change(made, []).done()

    def _strange(self) -> frozenset[Circuit]:
        ingress, egress = self.fabric.testbed.cabling.cabled_ports(self.name)
        made = self.switch.circuits()
        return frozenset(c for c in made if (c.ingress in ingress) != (c.egress in egress))

    def absent(self) -> int:
        """Return the number of a port that the switch does not have, on either side."""
        return _ABSENT if self.size is None else sum(self.size) + 1

    def chain(self) -> Chain:
        """Return how the light of the switch is read; raises `DecidedError` where it is not."""
        bench = self.fabric.bench
        try:
            found = chains(bench, references_of(bench))
        except NothingToMeasureError as error:
            raise DecidedError(Outcome("not tested", str(error))) from error
        chain = next((each for each in found if each.switch == self.name), None)
        if chain is None or chain.method == "modules":
            unseen = "no monitor and no meter sees the light of this switch"
            raise DecidedError(Outcome("not tested", unseen))
        return chain


def listed(circuits: Collection[Circuit]) -> str:
    """Return circuits as part of a sentence."""
    return ", ".join(map(str, sorted(circuits))) or "no circuit"
