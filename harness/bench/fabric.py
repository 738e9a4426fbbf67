"""The fabric: applies plans to the optical switches, verifies them, restores the initial state.

Applying a plan is a reconciliation, the same for every switch: read the circuits, keep those that
the plan wants, remove those that conflict with it, add what is missing, read back and compare. It
is idempotent, needs no memory of earlier plans, and a switch that another program has changed in
the meantime is brought to the plan as well. Three rules make it safe in a shared laboratory:

- Circuits on ports that the testbed does not cable are never touched; a plan that would have to
  remove one is refused before anything is sent.
- The initial state is on disk before the first change, so that a killed run can be undone.
- An acknowledgement is not believed: the switch is read back after every change. A circuit that
  appears or goes between two changes was changed by somebody else, and that is an error.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.interlocks import PowerBudget
from lightrig.harness.bench.lab_folder import LabFolderError
from lightrig.harness.bench.restoring import InitialStates, Obstacles
from lightrig.harness.bench.saved_state import (
    SavedCircuits,
    SavedSettings,
    SavedStates,
    as_texts,
)
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
from lightrig.testbeds.out_of_service import ends_of


class ForeignPortError(LightrigError):
    """A plan needs a port that this testbed does not cable, or that a foreign circuit uses."""


class OutOfServiceError(LightrigError):
    """A circuit needs a port that a person has put out of service."""


class ForeignChangeError(LightrigError):
    """Circuits of the testbed were made or removed, and not by this process."""


class Fabric(InitialStates[SavedCircuits]):
    """All optical switches of a bench, which are brought from plan to plan together.

    Args:
        bench: the open instruments.
        states: the saved states on disk; by default the bench's, which has none if its switches
            end with this process.
    """

    def __init__(self, bench: Bench, states: SavedStates | None = None) -> None:
        if states is None:
            super().__init__(bench, bench.saved_states, bench.external)
        else:
            super().__init__(bench, states, bench.switches)
        self.power_budget = PowerBudget(bench.testbed)
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
        """Return the links between NICs that `plan` connects in both directions.

        In a test that measures the links that there are, those that are known to be down are left
        out.
        """
        if plan not in self._links:
            self._links[plan] = frozenset(self.testbed.links(plan))
        found, coverage = self._links[plan], self.bench.coverage
        return found - coverage.down(found) if coverage.is_partial else found

    def apply(self, plan: Plan, *, check_budget: bool = True) -> "Applied":
        """Bring every switch to `plan` and read back that it is there; return when it was.

        A switch that is in `plan` already is only read. Links of servers come up later: see
        `bring_up`, and `await_packets` for what connects over them. check_budget: whether to refuse
        a plan whose light cannot be received.

        Raises:
            BudgetError: the received power of a path is certainly too low.
            ForeignPortError: the plan needs a port that the testbed does not cable.
            InterlockError: a circuit would be changed under too much light.
            NotDoneError: a switch acknowledged the change but did not make it.
            OutOfServiceError: the plan needs a port that is out of service.
            InstrumentError: a switch refused, or did not answer.
        """
        return self.prepare(plan, check_budget=check_budget).apply()

    def prepare(self, plan: Plan, *, check_budget: bool = True) -> "Transition":
        """Read the switches and compute the changes to `plan`, without sending them.

        In a test that measures the links that there are, without those that are known to be down.

        Raises what `apply` raises before the first change.
        """
        if check_budget:
            self.power_budget.check(plan)
        wanted, plan = plan, self.bench.coverage.part(plan)
        self.bench.coverage.applied(plan, wanted=wanted)
        if not self.states:
            self.save_initial_state()
        present = self._read(sorted(plan.circuits))
        self._check_undisturbed(present)
        changes = {name: self._change(name, present[name], plan) for name in sorted(plan.circuits)}
        at_once = {
            name: change.keep | change.remove | change.add for name, change in changes.items()
        }
        for name, change in changes.items():
            before, after = change.keep | change.remove, change.keep | change.add
            self.note_change(name, before, after, at_once=at_once)
        return Transition(self.bench, plan, changes, on_verified=self._settled)

    def note_change(
        self,
        switch: str,
        before: frozenset[Circuit],
        after: frozenset[Circuit],
        *,
        at_once: Mapping[str, frozenset[Circuit]] | None = None,
    ) -> None:
        """Note on disk which circuits a switch is about to have, and check that it may change.

        Code that moves circuits without `prepare` calls this first. at_once: all circuits
        that switches have before or after a change of several. Raises `InterlockError` where
        a circuit would be changed under too much light, `OutOfServiceError` for one of a port that
        is out of service, and `LeaseLostError` where another host may use the switch by now.
        """
        self._refuse_out_of_service(switch, after - before)
        self._note_change(switch, before, after, at_once or {})

    def _refuse_out_of_service(self, switch: str, made: frozenset[Circuit]) -> None:
        """Raise `OutOfServiceError`: somebody may have the connector of such a port in hand."""
        out = self.testbed.out
        if not out:
            return
        if refused := [c for c in sorted(made) if not ends_of(switch, c).isdisjoint(out.ports)]:
            raise OutOfServiceError(
                f"{_listed(refused)} of {switch} is not made: out of service is "
                f"{', '.join(map(str, out.entries.values()))}\n"
                f"  try       `lightrig in {self.testbed.path} PORT`, once it is mended",
                subjects=[str(port) for c in refused for port in ends_of(switch, c) & out.ports],
            )

    def _note_change(
        self,
        switch: str,
        before: frozenset[Circuit],
        after: frozenset[Circuit],
        at_once: Mapping[str, frozenset[Circuit]],
    ) -> None:
        # A switch that is another's by now is not asked for its light either.
        self.bench.check_lease()
        self.bench.interlocks.check(switch, before, after, at_once)
        if before != after and switch in self.states:
            # Not flushed to the disk: after a power failure the difference is asked about.
            self.states.put(switch, self.states[switch].changing(before, after), durable=False)

    def moves(
        self, before: Plan, after: Plan, moving: int, count: int | None = None
    ) -> Iterator[tuple[Plan, Plan]]:
        """Yield pairs of plans, forth and back, that differ by `moving` circuits.

        count: number of pairs; without it they never end.
        """
        partly = partial_move(before, after, moving)
        for index in itertools.count() if count is None else range(count):
            yield (before, partly) if index % 2 == 0 else (partly, before)

    def present(self, switch: str) -> tuple[frozenset[Circuit], frozenset[Circuit]]:
        """Return the circuits of a switch now: the testbed's, and those of somebody else."""
        circuits = self._read([switch])[switch]
        ours = self._ours(switch, circuits)
        return ours, circuits - ours

    def _settled(self, switch: str) -> None:
        """Take what a switch was read back with for all that this process has left there."""
        if (state := self.states.get(switch)) is not None:
            self.states[switch] = replace(state, before=state.after)

    def note_selection(self, switch: str, circuits: frozenset[Circuit]) -> None:
        """Note that a switch is about to be brought from its last circuits to `circuits`."""
        if switch in self.states:
            self.note_change(switch, self.states[switch].after, circuits)

    def _names(self) -> list[str]:
        return sorted(self.bench.switches)

    def _present(self, names: Sequence[str]) -> list[SavedCircuits]:
        found = []
        for name, circuits in self._read(names).items():
            ours = self._ours(name, circuits)
            made = self._origin(name)
            found.append(SavedCircuits(made, ours, self._cabling(name), ours, ours))
        return found

    def _differing(self, state: SavedCircuits, now: SavedCircuits) -> list[str]:
        found = []
        if made := state.foreign(now.found):
            found.append(f"{_listed(made)} made by somebody else")
        if removed := state.missing(now.found):
            found.append(f"{_listed(removed)} removed by somebody else")
        if ports := state.recabled(now.cabling):
            found.append(f"recabled since: port {', '.join(ports)}")
        return found

    def _beside(self, now: SavedCircuits) -> Sequence[SavedSettings]:
        return (SavedSettings(now.origin, {}),)

    def _beyond(self, state: SavedCircuits, now: SavedCircuits) -> str:
        restored = state.found | state.end
        foreign = restored - self._ours(now.origin.instrument, restored)
        if not foreign:
            return ""
        return (
            f"it was found with {_listed(foreign)}, whose ports are not all cabled in "
            f"{self.testbed.path}"
        )

    def _steps(self, obstacles: Obstacles, *, force: bool) -> Sequence[Callable[[str], None]]:
        return [lambda name: self._restore(name, force=force)]

    def _restore(self, name: str, *, force: bool) -> None:
        state = self.states[name]
        wanted = Plan("as found", {name: state.end})
        present = self._read([name])[name]
        # Circuits that are missing are no conflict here: a switch that has restarted has none.
        # One that somebody has made may be in use.
        if not force and (made := state.foreign(self._ours(name, present))):
            (now,) = self._present([name])
            raise self._conflict(state, now, f"{_listed(made)} made by somebody else")
        # Unchecked: all ports of a saved state were found to be the testbed's.
        change = self._change(name, present, wanted, checked=False)
        # A full disk is no reason to leave the circuits as they are.
        with contextlib.suppress(LabFolderError):
            self._note_change(name, change.keep | change.remove, change.keep | change.add, {})
        Transition(self.bench, wanted, {name: change}).apply()

    def _check_undisturbed(self, present: Mapping[str, frozenset[Circuit]]) -> None:
        """Raise `ForeignChangeError` where circuits are not as this process has left them."""
        lines, changed = [], list[str]()
        for name, circuits in present.items():
            ours, state = self._ours(name, circuits), self.states.get(name)
            if state is None:
                continue
            if made := state.foreign(ours):
                lines.append(f"{name}: {_listed(made)} made")
            if removed := state.missing(ours):
                lines.append(f"{name}: {_listed(removed)} removed")
            if made or removed:
                changed.append(name)
                self.states[name] = replace(state, before=ours, after=ours)  # reported once
        if lines:
            raise ForeignChangeError(
                f"circuits of testbed {self.testbed.name} were changed, and not by this run: "
                + "; ".join(lines)
                + "\n  try       its front panel, other programs, and whether it has restarted",
                subjects=changed,
            )

    def _ours(self, name: str, circuits: frozenset[Circuit]) -> frozenset[Circuit]:
        """Return the circuits with both ports cabled in the testbed; others are foreign.

        Of a switch with one ingress, such as a module at the end of a line, no circuit is anybody
        else's: the light in all of them is that of the one port that is cabled.
        """
        ingress, egress = self.testbed.cabling.cabled_ports(name)
        alone = len(self.testbed.switches[name].ingress_ports) == 1
        return frozenset(
            c for c in circuits if c.ingress in ingress and (alone or c.egress in egress)
        )

    def _cabling(self, name: str) -> dict[str, str]:
        cabling = self.testbed.cabling
        ingress, egress = cabling.cabled_ports(name)
        return {
            **{str(port): str(cabling.transmitter(name, port)) for port in sorted(ingress)},
            **{str(port): str(cabling.receiver(name, port)) for port in sorted(egress)},
        }

    def _read(self, names: Sequence[str]) -> dict[str, frozenset[Circuit]]:
        switches = self.bench.switches
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
        ours = self._ours(name, present)
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


def _listed(circuits: Iterable[Circuit]) -> str:
    return ", ".join(as_texts(circuits))


@dataclass(frozen=True, slots=True)
class Applied:
    """Moments of a change of plan: between which stamps it was sent, and last acknowledged."""

    sent: Span
    acknowledged: Span


@dataclass
class Transition:
    """One change of plan in steps, so that a measurement can observe between them.

    Attributes:
        plan: the plan to reach.
        changes: circuits to remove, keep and add, by switch.
        on_verified: called with the name of each switch that was read back as wanted.
    """

    bench: Bench
    plan: Plan
    changes: Mapping[str, Change]
    on_verified: Callable[[str], None] = lambda _switch: None
    _operations: dict[str, Operation] | None = None

    @property
    def moved(self) -> int:
        """Number of circuits to make."""
        return sum(len(change.add) for change in self.changes.values())

    def apply(self) -> Applied:
        """Send the changes, wait for the acknowledgements, read back."""
        sent = self.begin()
        applied = Applied(sent, self.acknowledged())
        self.verify()
        return applied

    def begin(self) -> Span:
        """Send the changes to all switches; return the span of the writes.

        All commands are written before the first acknowledgement is awaited: the switches work
        in parallel.
        """
        self._operations = {
            name: self.bench.switches[name].change(change.remove, change.add)
            for name, change in self.changes.items()
            if change.remove or change.add
        }
        if not self._operations:
            now = self.bench.clock.now()
            return Span(now, now)
        return Span(
            min(operation.sent.earliest for operation in self._operations.values()),
            max(operation.sent.latest for operation in self._operations.values()),
        )

    def acknowledged(self) -> Span:
        """Wait for all acknowledgements; return the stamp of the last one."""
        spans = self.acknowledgements().values()
        now = self.bench.clock.now()
        return max(spans, default=Span(now, now))

    def acknowledgements(self) -> dict[str, Span]:
        """Wait for all acknowledgements; return the stamp of each changed switch's last one."""
        return {name: operation.done() for name, operation in (self._operations or {}).items()}

    def verify(self) -> None:
        """Read back; raises `NotDoneError` if a switch did not make the change."""
        for name, change in self.changes.items():
            if change.remove or change.add:
                self._verify(name, self.bench.switches[name], change)
                self.on_verified(name)

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
        ingress, egress = self.bench.testbed.cabling.cabled_ports(name)
        unknown = present - change.keep - change.add - change.remove
        if foreign := [c for c in unknown if c.ingress in ingress and c.egress in egress]:
            details.append(("meaning", f"{_listed(foreign)} was made by somebody else meanwhile"))
        details.append(("try", "its front panel or web page: is a port failed or locked?"))
        raise NotDoneError(
            f"{name} ({self.bench.identities[name]})",
            f"acknowledged the change, but is not in plan {self.plan.name}",
            details=details,
            trace=switch.wire()[-6:],
        )
