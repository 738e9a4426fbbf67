"""The fabric: applies plans to the optical switches, verifies them, restores the initial state.

Applying a plan is a reconciliation, the same for every switch: read the circuits, keep those that
the plan wants, remove those that conflict with it, add what is missing, read back and compare. It
is idempotent, needs no memory of earlier plans, and a switch that another program has changed in
the meantime is brought to the plan as well. Three rules make it safe in a shared laboratory:

- Circuits on ports that the testbed does not cable are never touched; a plan that would have to
  remove one is refused before anything is sent.
- The initial state is on disk before the first change, so that a killed run can be undone.
- An acknowledgement is not believed: the switch is read back after every change.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.power_budget import PowerBudget
from lightrig.harness.bench.saved_state import SavedState, SavedStateError
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import Operation, OpticalSwitch
from lightrig.instruments.core.errors import NotDoneError
from lightrig.testbeds import (
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
    """A plan needs a port that this testbed does not cable, or that a foreign circuit uses."""


class Fabric:
    """All optical switches of a bench, which are brought from plan to plan together.

    Args:
        bench: the open instruments.
        saved: the initial state on disk; None for a bench that ends with this process.
    """

    def __init__(self, bench: Bench, saved: SavedState | None = None) -> None:
        self.bench = bench
        self.power_budget = PowerBudget(bench.testbed)
        self._saved_state = saved
        self._initial: dict[str, frozenset[Circuit]] | None = None
        self._links: dict[Plan, frozenset[Link]] = {}

    @property
    def testbed(self) -> Testbed:
        """The testbed of the bench."""
        return self.bench.testbed

    @property
    def plans(self) -> Mapping[str, Plan]:
        """The plans that the testbed file names."""
        return self.testbed.plans

    def links(self, plan: Plan) -> frozenset[Link]:
        """Return the links between NICs that `plan` connects in both directions."""
        if plan not in self._links:
            self._links[plan] = frozenset(self.testbed.links(plan))
        return self._links[plan]

    def apply(self, plan: Plan, *, check_budget: bool = True) -> None:
        """Bring every switch to `plan` and read back that it is there.

        A switch that is in `plan` already is only read. check_budget: whether to refuse a plan
        whose light cannot be received.

        Raises:
            BudgetError: the received power of a path is certainly too low.
            ForeignPortError: the plan needs a port that the testbed does not cable.
            NotDoneError: a switch acknowledged the change but did not make it.
            InstrumentError: a switch refused, or did not answer.
        """
        self.prepare(plan, check_budget=check_budget).apply()

    def prepare(self, plan: Plan, *, check_budget: bool = True) -> "Transition":
        """Read the switches and compute the changes to `plan`, without sending them.

        Raises what `apply` raises before the first change.
        """
        if check_budget:
            self.power_budget.check(plan)
        present = self._read(sorted(plan.circuits))
        if self._initial is None:
            self.save_initial_state()
        changes = {name: self._change(name, present[name], plan) for name in sorted(plan.circuits)}
        return Transition(self.bench, plan, changes)

    def moves(
        self, before: Plan, after: Plan, moving: int, count: int
    ) -> Iterator[tuple[Plan, Plan]]:
        """Yield `count` pairs of plans, forth and back, that differ by `moving` circuits."""
        partly = partial_move(before, after, moving)
        for index in range(count):
            yield (before, partly) if index % 2 == 0 else (partly, before)

    def restore(self) -> None:
        """Restore the circuits of all switches from before the first change.

        Raises the error of the first switch that failed, after all others were restored; the
        saved state stays on disk then.
        """
        if self._initial is None:
            return
        errors: list[LightrigError] = []
        for name in sorted(self._initial):
            wanted = Plan("as found", {name: self._initial[name]})
            try:
                present = self._read([name])[name]
                # Unchecked: the state found is right, even where the cabling has changed since.
                change = self._change(name, present, wanted, checked=False)
                Transition(self.bench, wanted, {name: change}).apply()
            except LightrigError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        self._initial = None
        if self._saved_state is not None:
            self._saved_state.clear()

    def save_initial_state(self) -> None:
        """Save the circuits on the testbed's ports of all switches, first of all on disk.

        A state that a killed run has left on disk is used instead of the present one: it is the
        last that the laboratory wanted.
        """
        saved = self._saved_state.read() if self._saved_state else None
        if saved is None:
            saved = {}
            for name, circuits in self._read(sorted(self.bench.switches)).items():
                ingress, egress = self.testbed.cabling.cabled_ports(name)
                saved[name] = frozenset(
                    c for c in circuits if c.ingress in ingress and c.egress in egress
                )
            if self._saved_state is not None:
                self._saved_state.save(saved)
        self._initial = saved

    def _read(self, names: list[str]) -> dict[str, frozenset[Circuit]]:
        switches = self.bench.switches
        if unknown := set(names) - set(switches):
            raise SavedStateError(
                f"{', '.join(sorted(unknown))} has a saved state, but is no longer in "
                f"{self.testbed.path}; restore its circuits by hand"
            )
        if len(names) == 1:
            return {names[0]: switches[names[0]].circuits()}
        read = self.bench.clock.parallel(*(switches[name].circuits for name in names))
        return dict(zip(names, read, strict=True))

    def _change(
        self, name: str, present: frozenset[Circuit], plan: Plan, *, checked: bool = True
    ) -> Change:
        ingress, egress = self.testbed.cabling.cabled_ports(name)
        wanted = plan.circuits[name]
        # Both ports: a circuit with one foreign port is somebody else's, and is not removed.
        ours = frozenset(c for c in present if c.ingress in ingress and c.egress in egress)
        for circuit in wanted if checked else ():
            if circuit.ingress not in ingress or circuit.egress not in egress:
                raise ForeignPortError(
                    f"plan {plan.name} wants {circuit} on {name}, whose ports are not all "
                    f"cabled in {self.testbed.path}"
                )
        for foreign in present - ours:
            for circuit in wanted:
                if foreign.ingress == circuit.ingress or foreign.egress == circuit.egress:
                    raise ForeignPortError(
                        f"plan {plan.name} wants {circuit} on {name}, but {foreign} is there, and "
                        f"one of its ports is not this testbed's; disconnect it by hand"
                    )
        return difference(ours, wanted)


@dataclass
class Transition:
    """One change of plan in steps, so that a measurement can observe between them.

    Attributes:
        plan: the plan to reach.
        changes: circuits to remove, keep and add, by switch.
    """

    bench: Bench
    plan: Plan
    changes: Mapping[str, Change]
    _operations: list[Operation] | None = None

    @property
    def moved(self) -> int:
        """Number of circuits to make."""
        return sum(len(change.add) for change in self.changes.values())

    def apply(self) -> None:
        """Send the changes, wait for the acknowledgements, read back."""
        self.begin()
        self.acknowledged()
        self.verify()

    def begin(self) -> Span:
        """Send the changes to all switches; return the span of the writes.

        All commands are written before the first acknowledgement is awaited: the switches work
        in parallel.
        """
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
        """Wait for all acknowledgements; return the stamp of the last one."""
        spans = [operation.done() for operation in self._operations or ()]
        now = self.bench.clock.now()
        return max(spans, default=Span(now, now))

    def verify(self) -> None:
        """Read back; raises `NotDoneError` if a switch did not make the change."""
        for name, change in self.changes.items():
            if change.remove or change.add:
                self._verify(name, self.bench.switches[name], change)

    def _verify(self, name: str, switch: OpticalSwitch, change: Change) -> None:
        present = switch.circuits()
        missing = sorted((change.keep | change.add) - present)
        left = sorted(change.remove & present)
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
            f"acknowledged the change, but is not in plan {self.plan.name}",
            details=details,
            trace=switch.wire()[-6:],
        )
