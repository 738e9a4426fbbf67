"""The fabric: plans are applied to the switches, verified, and what was found is put back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.bench.bench import Bench
from harness.bench.closing import Closing
from harness.bench.keeping import FoundState, FoundStateError
from instruments.capabilities import Operation, OpticalSwitch
from instruments.clock import Span
from instruments.errors import NotDoneError
from testbeds import (
    Change,
    Circuit,
    LightrigError,
    Link,
    Plan,
    Testbed,
    difference,
    partial_move,
)


class ForeignPortError(LightrigError):
    """A plan would touch a port that is not this testbed's."""


class Fabric:
    """All optical switches of a bench as one thing that is in one plan at a time.

    What the switches held is written down before the first change and put back by
    `restore`; circuits on ports that the testbed has not cabled are never touched.
    """

    def __init__(self, bench: Bench, found: FoundState | None = None) -> None:
        self.bench = bench
        self.closing = Closing(bench.testbed)
        self._found_on_disk = found
        self._found: dict[str, frozenset[Circuit]] | None = None
        self._links: dict[Plan, frozenset[Link]] = {}

    @property
    def testbed(self) -> Testbed:
        """What the fabric belongs to."""
        return self.bench.testbed

    @property
    def plans(self) -> Mapping[str, Plan]:
        """The plans that the testbed file names."""
        return self.testbed.plans

    def links(self, plan: Plan) -> frozenset[Link]:
        """The links between NICs that `plan` closes in both directions."""
        if plan not in self._links:
            self._links[plan] = frozenset(self.testbed.links(plan))
        return self._links[plan]

    def apply(self, plan: Plan, *, closes: bool = True) -> None:
        """Bring every switch to `plan` and read back that it is there.

        A switch that is there already is sent nothing but the reading. closes: whether its
        light is meant to be received, so that a plan that cannot be is refused.

        Raises:
            BudgetError: the light of the plan surely cannot be received.
            ForeignPortError: the plan needs a port that is not the testbed's.
            NotDoneError: a switch said done and is not.
            InstrumentError: a switch refused, or did not answer.
        """
        self.prepare(plan, closes=closes).apply()

    def prepare(self, plan: Plan, *, closes: bool = True) -> "Transition":
        """Read the switches and work out what `plan` changes; sends no change.

        Raises what `apply` does before it begins.
        """
        if closes:
            self.closing.check(plan)
        held = self._held(sorted(plan.circuits))
        if self._found is None:
            self.remember_found()
        changes = {name: self._change(name, held[name], plan) for name in sorted(plan.circuits)}
        return Transition(self.bench, plan, changes)

    def moves(
        self, before: Plan, after: Plan, moving: int, count: int
    ) -> Iterator[tuple[Plan, Plan]]:
        """`count` times a pair of plans, to and fro, between which `moving` circuits move."""
        partly = partial_move(before, after, moving)
        for index in range(count):
            yield (before, partly) if index % 2 == 0 else (partly, before)

    def restore(self) -> None:
        """Put back what the switches held before the first change.

        Raises what the first switch in trouble did, after all others were put back; what
        was found stays on disk then.
        """
        if self._found is None:
            return
        trouble: list[LightrigError] = []
        for name in sorted(self._found):
            wanted = Plan("as found", {name: self._found[name]})
            try:
                held = self._held([name])[name]
                change = self._change(name, held, wanted, checked=False)
                Transition(self.bench, wanted, {name: change}).apply()
            except LightrigError as error:
                trouble.append(error)  # the other switches are put back all the same
        if trouble:
            raise trouble[0]
        self._found = None
        if self._found_on_disk is not None:
            self._found_on_disk.forget()

    def remember_found(self) -> None:
        """Note the testbed's own circuits on every switch, on disk first.

        What an earlier run that was killed has left on disk counts as found.
        """
        kept = self._found_on_disk.read() if self._found_on_disk else None
        if kept is None:
            kept = {}
            for name, circuits in self._held(sorted(self.bench.switches)).items():
                ingress, egress = self.testbed.cabling.own_ports(name)
                kept[name] = frozenset(
                    c for c in circuits if c.ingress in ingress and c.egress in egress
                )
            if self._found_on_disk is not None:
                self._found_on_disk.keep(kept)
        self._found = kept

    def _held(self, names: list[str]) -> dict[str, frozenset[Circuit]]:
        switches = self.bench.switches
        if unknown := set(names) - set(switches):
            raise FoundStateError(
                f"{', '.join(sorted(unknown))} held circuits when a run began, but is not in "
                f"{self.testbed.path} any more; put them back by hand"
            )
        if len(names) == 1:
            return {names[0]: switches[names[0]].circuits()}
        read = self.bench.clock.parallel(*(switches[name].circuits for name in names))
        return dict(zip(names, read, strict=True))

    def _change(
        self, name: str, held: frozenset[Circuit], plan: Plan, *, checked: bool = True
    ) -> Change:
        ingress, egress = self.testbed.cabling.own_ports(name)
        wanted = plan.circuits[name]
        own = frozenset(c for c in held if c.ingress in ingress and c.egress in egress)
        for circuit in wanted if checked else ():
            if circuit.ingress not in ingress or circuit.egress not in egress:
                raise ForeignPortError(
                    f"plan {plan.name} wants {circuit} on {name}, whose ports are not all "
                    f"cabled in {self.testbed.path}"
                )
        for other in held - own:
            for circuit in wanted:
                if other.ingress == circuit.ingress or other.egress == circuit.egress:
                    raise ForeignPortError(
                        f"plan {plan.name} wants {circuit} on {name}, but {other} is there, and "
                        f"one of its ports is not this testbed's; part it by hand"
                    )
        return difference(own, wanted)


@dataclass
class Transition:
    """One change of plan, step by step, so that a measurement can watch between the steps.

    Attributes:
        plan: the plan that it leads to.
        changes: what is removed, kept and added on each switch.
    """

    bench: Bench
    plan: Plan
    changes: Mapping[str, Change]
    _operations: list[Operation] | None = None

    @property
    def moved(self) -> int:
        """How many circuits are made."""
        return sum(len(change.add) for change in self.changes.values())

    def apply(self) -> None:
        """All of it: begin, wait, read back."""
        self.begin()
        self.acknowledged()
        self.verify()

    def begin(self) -> Span:
        """Tell every switch; returns between which stamps the commands were written."""
        self._operations = [
            self.bench.switches[name].change(change.remove, change.add)
            for name, change in self.changes.items()
            if change.remove or change.add
        ]
        if not self._operations:
            now = self.bench.clock.now()
            return Span(now, now)
        return Span(
            min(operation.sent.earliest for operation in self._operations),
            max(operation.sent.latest for operation in self._operations),
        )

    def acknowledged(self) -> Span:
        """Wait until every switch has said done; when the last one's word was there."""
        spans = [operation.done() for operation in self._operations or ()]
        now = self.bench.clock.now()
        return max(spans, default=Span(now, now))

    def verify(self) -> None:
        """Read back; raises `NotDoneError` where a switch is not as it said."""
        for name, change in self.changes.items():
            if change.remove or change.add:
                self._verify(name, self.bench.switches[name], change)

    def _verify(self, name: str, switch: OpticalSwitch, change: Change) -> None:
        held = switch.circuits()
        missing = sorted((change.keep | change.add) - held)
        left = sorted(change.remove & held)
        if not missing and not left:
            return
        details = []
        if missing:
            details.append(("missing", ", ".join(map(str, missing))))
        if left:
            details.append(("still there", ", ".join(map(str, left))))
        details.append(("try", "its front panel or web page: is a port failed or locked?"))
        raise NotDoneError(
            f"{name} ({self.bench.identities[name]})",
            f"said done, but is not in plan {self.plan.name}",
            details=details,
            trace=switch.wire()[-6:],
        )
