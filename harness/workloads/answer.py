"""What a step on a fabric comes to: its time, what it waits for, a curve over switching times."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lightrig.harness.workloads.fabrics import Bill, FabricError, SimulatedFabric
from lightrig.harness.workloads.graph import Workload
from lightrig.harness.workloads.measured_switching import MeasuredSwitching
from lightrig.harness.workloads.networks import Switching
from lightrig.harness.workloads.simulator import StepTimes
from lightrig.testbeds.quantities import format_duration, format_watt

LINKS = {
    "dp": "data-parallel rings",
    "pp": "between stages",
    "tp": "tensor-parallel, within servers",
    "ep": "between experts",
    "cp": "between parts of sequences",
}
WAITS = {
    "receive": "data of a neighbouring stage",
    "send": "a message that is being sent",
    "circuits": "circuits that were being changed",
    **LINKS,
}
_SLOPE_NS = 1_000_000
"""How much longer switching is made to see how many changes the step waits for."""
_DRAWS, _FEWEST_DRAWS, _EVENTS = 40, 5, 4_000_000
"""Steps that are computed with drawn switching times, and from how many events on fewer are."""
_SAME = 0.01
"""Part of a step within which a tenth of the bandwidth counts as the same."""


class Source(Protocol):
    """What gives a workload, with data-parallel ranks folded or one by one."""

    @property
    def name(self) -> str:
        """How the answer names it."""

    def workload(self, *, fold_data: bool) -> Workload:
        """Return the step."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A computed step; times in nanoseconds."""

    name: str
    fabric: str
    mode: str
    ranks: int
    simulated_ranks: int
    folded: Mapping[str, int]
    switching: int | None
    times: StepTimes
    critical_changes: float | None
    curve: Sequence[tuple[int, int]]
    compared: Mapping[str, int]
    traffic: Mapping[str, int]
    carried: Mapping[Hashable, float]
    tenth: int
    assumptions: Sequence[str] = field(default_factory=tuple)
    measured: MeasuredSwitching | None = None
    drawn: Sequence[int] = ()
    bill: Bill | None = None

    @property
    def network_matters(self) -> bool:
        """Whether a tenth of the bandwidth out of servers makes a difference."""
        return self.tenth > self.times.step * (1 + _SAME)

    @property
    def last(self) -> int:
        """The simulated rank that ends last."""
        return max(range(len(self.times.ends)), key=self.times.ends.__getitem__)

    def document(self) -> dict[str, Any]:
        """Return the answer for `--json`, in s and bytes."""
        return {
            "computed": True,
            "workload": self.name,
            "fabric": self.fabric,
            "mode": self.mode,
            "ranks": self.ranks,
            "simulated_ranks": self.simulated_ranks,
            "folded": dict(self.folded),
            "switching_s": None if self.switching is None else self.switching / 1e9,
            "switching_of": self._measured(),
            "step_s": self.times.step / 1e9,
            "drawn_steps_s": [step / 1e9 for step in self.drawn],
            "compute_s": self.times.compute[self.last] / 1e9,
            "exposed_s": self.times.exposed / 1e9,
            "changes": self.times.changes,
            "changes_on_critical_path": self.critical_changes,
            "waits_s": {
                kind: waited / 1e9 for kind, waited in sorted(self.times.waits[self.last].items())
            },
            "bytes": dict(self.traffic),
            "links": [
                {"link": list(link) if isinstance(link, tuple) else link, "bytes": carried}
                for link, carried in self.carried.items()
            ],
            "curve": [
                {"switching_s": switching / 1e9, "step_s": step / 1e9}
                for switching, step in self.curve
            ],
            "compared": {
                mode: {"step_s": step / 1e9, "more": self.times.step / step - 1}
                for mode, step in self.compared.items()
            },
            "tenth_of_bandwidth_s": self.tenth / 1e9,
            "bill": None
            if self.bill is None
            else {"dollars": self.bill.dollars, "watts": self.bill.watts, "of": self.bill.of},
            "network_matters": self.network_matters,
            "assumptions": list(self.assumptions),
        }

    def _measured(self) -> dict[str, Any] | None:
        if self.measured is None or self.switching is None:
            return None
        found = self.measured
        return {
            "run": found.run,
            "testbed": found.testbed,
            "quantity": found.quantity,
            "samples": len(found.samples),
            "simulated": found.simulated,
        }

    def lines(self) -> list[str]:
        """Return the answer for people."""
        lines = [
            f"{self.name} on {self.fabric}, {self.mode}: computed, "
            + ("with switching times of a run" if self.drawn else "nothing was measured"),
            f"  step      {format_duration(self.times.step)}, of which "
            f"{format_duration(self.times.exposed)} is not hidden by compute",
        ]
        if self.switching is not None:
            critical = self.critical_changes or 0.0
            each = f"{format_duration(self.switching)} each"
            if self.drawn:
                assert self.measured is not None
                lines.append(
                    f"            the middle of {len(self.drawn)} computed steps, from "
                    f"{format_duration(min(self.drawn))} to {format_duration(max(self.drawn))}"
                )
                each = f"each as in run {self.measured.run} (median {each.removesuffix(' each')})"
            lines.append(
                f"  changes   {self.times.changes} of circuits, {each}, of which the step waits "
                f"for {critical:.1f}"
            )
        waits = sorted(self.times.waits[self.last].items(), key=lambda one: -one[1])
        for head, (kind, waited) in zip(["waits", *[""] * 9], waits, strict=False):
            lines.append(f"  {head:<10}{format_duration(waited)} for {WAITS.get(kind, kind)}")
        for head, (kind, sent) in zip(["bytes", *[""] * 9], self.traffic.items(), strict=False):
            lines.append(f"  {head:<10}{sent / 1e9:,.3f} GB {LINKS.get(kind, kind)}")
        for head, (mode, step) in zip(["compared", *[""] * 9], self.compared.items(), strict=False):
            more = self.times.step / step - 1
            lines.append(f"  {head:<10}{format_duration(step)} {mode}: this takes {more:+.2%}")
        for head, (switching, step) in zip(["curve", *[""] * 20], self.curve, strict=False):
            lines.append(f"  {head:<10}{format_duration(step)} at {format_duration(switching)}")
        if self.bill is not None:
            power = "" if self.bill.watts is None else f" and {format_watt(self.bill.watts)}"
            lines.append(f"  cost      {self.bill.dollars:,.0f} US$" + power + f": {self.bill.of}")
        if not self.network_matters:
            lines.append("  network   does not matter here: a tenth of its bandwidth is as good")
        folded = ", ".join(f"{size} {name}" for name, size in self.folded.items())
        lines.append(
            f"  ranks     {self.ranks:,}, of which {self.simulated_ranks:,} are simulated"
            + (f": those of {folded} do the same at the same times" if folded else "")
        )
        lines += [f"  assumed   {assumption}" for assumption in self.assumptions]
        return lines


def answer(
    source: Source,
    fabric: SimulatedFabric,
    label: str,
    *,
    mode: str,
    switching: Sequence[int],
    compare: Sequence[str] = (),
    measured: MeasuredSwitching | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Answer:
    """Return a step's answer at the first of the switching times, and its curve over all of them.

    measured: what changes take instead; the answer is the middle one of several steps, each with
    times drawn from them. progress: hears how many steps of how many have been computed.
    Raises `FabricError` for a mode that the fabric has not, and `WorkloadError`.
    """
    for one in (mode, *compare):
        if one not in fabric.modes:
            raise FabricError(f"{label}: no mode {one!r}; its modes are {', '.join(fabric.modes)}")

    changes = fabric.changes(mode)
    done, total = 0, 2 + len(compare) + (len(switching) if changes else 0)

    def step(of: SimulatedFabric, chosen: str, time: Switching) -> tuple[Workload, StepTimes]:
        nonlocal done
        workload = source.workload(fold_data=of.folds(chosen))
        found = of.simulate(workload, chosen, time)
        done += 1
        progress(done, total)
        return workload, found

    workload, times = step(fabric, mode, switching[0])
    drawn: list[StepTimes] = []
    fixed = times
    if changes and measured is not None:
        count = max(_FEWEST_DRAWS, min(_DRAWS, _EVENTS // max(times.events, 1)))
        total += count
        drawn = [step(fabric, mode, measured.draws(seed))[1] for seed in range(count)]
        drawn.sort(key=lambda one: one.step)
        times = drawn[(count - 1) // 2]
    carried = dict(fabric.carried)
    critical = None
    if changes:
        later = step(fabric, mode, switching[0] + _SLOPE_NS)[1]
        critical = (later.step - fixed.step) / _SLOPE_NS
    curve = [(switching[0], times.step)] if changes and len(switching) > 1 else []
    curve += [(time, step(fabric, mode, time)[1].step) for time in switching[1:] if changes]
    return Answer(
        source.name,
        label,
        mode,
        workload.ranks,
        len(workload.graph_of),
        workload.folded,
        switching[0] if changes else None,
        times,
        critical,
        curve,
        {one: step(fabric, one, switching[0])[1].step for one in compare},
        workload.traffic(),
        carried,
        step(fabric.scaled(0.1), mode, switching[0])[1].step,
        (
            *workload.assumptions,
            *fabric.assumptions(mode),
            *([measured.assumption()] if drawn and measured is not None else []),
        ),
        measured,
        [one.step for one in drawn],
        fabric.bill(workload, mode),
    )
