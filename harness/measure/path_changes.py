"""Switching time of modules, from the fast log of a power meter on their paths.

The time between two edges of simultaneous logs is known to one sample, independently of when the
command arrived. So the dark time of a module is known to a few microseconds; the time since the
host's call is less certain.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from lightrig.harness.bench import Fabric, Transition
from lightrig.harness.findings import NOT_SEEN, each_at
from lightrig.harness.measure.climate import await_steady_temperature
from lightrig.harness.measure.closure import closure_row
from lightrig.harness.measure.edges import Edge, edges
from lightrig.harness.measure.reconfiguration import IncompleteError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.closure import judge_bounds
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import (
    LightSource,
    Operation,
    PowerLog,
    Preloading,
    Restorable,
    SimultaneousLogs,
)
from lightrig.testbeds import LightrigError, Plan, Port

PERIOD = 1_000
"""Of a sample, in ns: the shortest that a meter averages over."""

SAMPLES = 10_000
_LEAD = 1_000_000
"""Lead of the logs before the command, in ns."""

Session = Literal["written", "preloaded"]
"""Whether paths are written when they are to change, or were before and are only triggered."""


class NotLoggedError(LightrigError):
    """No meter logs the light of modules between two plans, or the modules cannot preload."""


class Module(NamedTuple):
    """A module that two plans move: its switch and ingress, and the ends of its two paths.

    Of each path there is the egress, and the channel of the meter that sees it.
    """

    switch: str
    ingress: int
    egress: tuple[int, int]
    channels: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.switch}.{self.ingress}"

    def turned(self) -> "Module":
        """The same module on its way back."""
        return self._replace(egress=self.egress[::-1], channels=self.channels[::-1])


@dataclass(frozen=True)
class PathChanges:
    """One change of all modules of a switch, as a meter saw it.

    Attributes:
        plans: from which to which.
        session: whether the paths were written or preloaded.
        called: when the driver was called, on the bench's clock.
        sent: between which stamps the last command was written.
        word: when the modules had reported completion.
        lost, back: by module, when light left its old path and came onto its new one, in ns
            from the beginning of the logs.
        start: when the logs began, on the bench's clock.
    """

    plans: tuple[str, str]
    session: Session
    called: int
    sent: Span
    word: Span
    lost: dict[Module, Edge]
    back: dict[Module, Edge]
    start: Span

    def dark(self) -> dict[Module, Span]:
        """Bounds of each module's dark time, without light on either path, in ns."""
        return {
            module: Span(max(at.earliest, 0), max(at.latest, 0))
            for module, edge in self.back.items()
            for at in (edge.at.since(self.lost[module].at),)
        }

    def end_to_end(self) -> Span:
        """From the call until light is on every new path, at least and at most, in ns.

        Light leaves no earlier than the command and has recovered when the modules report
        completion, which is a tighter bound than the start of the logs.
        """
        last = max(edge.at for edge in self.back.values())
        low = self.start.earliest + last.earliest - self.called
        high = self.start.latest + last.latest - self.called
        host_limit = self.word.latest - self.called
        dark = max(dark.earliest for dark in self.dark().values())
        least = self.sent.earliest - self.called + dark
        return Span(max(low, least), max(min(high, host_limit), least))


def measure_path_changes(
    fabric: Fabric,
    recording: Recording,
    meter: SimultaneousLogs,
    plans: tuple[Plan, Plan],
    session: Session,
    count: int,
    *,
    period: int = PERIOD,
) -> None:
    """Move modules `count` times to and fro between two plans, and record each on a meter.

    period: of a sample of the meter's log, in ns; slower modules need a longer log.
    Raises what `modules_on` and `change_paths` do.
    """
    await_steady_temperature(fabric.bench, recording)
    modules = modules_on(fabric, meter, plans)
    with lit(fabric, modules):
        fabric.apply(plans[0], check_budget=False)
        for index in range(count):
            path = plans if index % 2 == 0 else plans[::-1]
            seen = modules if index % 2 == 0 else [module.turned() for module in modules]
            found = change_paths(fabric, meter, seen, path, session, period=period)
            recording.record(path_change_rows(found, fabric, recording.next_event()))


def modules_on(fabric: Fabric, meter: SimultaneousLogs, plans: tuple[Plan, Plan]) -> list[Module]:
    """The modules of which `meter` sees the path of either plan.

    Raises `NotLoggedError` where there are none, or more than one switch has some.
    """
    cabling = fabric.testbed.cabling
    found = []
    for switch, circuits in plans[0].circuits.items():
        after = {c.ingress: c.egress for c in plans[1].circuits.get(switch, ())}
        for circuit in sorted(circuits):
            egress = circuit.egress, after.get(circuit.ingress, circuit.egress)
            ends = [cabling.receiver(switch, each) for each in egress]
            seen = [int(end.name) for end in ends if end is not None and end.owner == meter.name]
            if len(seen) == 2 and egress[0] != egress[1]:
                found.append(Module(switch, circuit.ingress, egress, (seen[0], seen[1])))
    if len({module.switch for module in found}) != 1:
        raise NotLoggedError(
            f"{meter.name} sees no modules of one switch on both paths of plans {plans[0].name} "
            f"and {plans[1].name} of {fabric.testbed.path}"
        )
    return found


@contextmanager
def lit(fabric: Fabric, modules: Sequence[Module]) -> Iterator[None]:
    """Switch on the light of the sources that lead to `modules`; afterwards it is as before."""
    bench = fabric.bench
    with ExitStack() as stack:
        for module in modules:
            source: Port | None = bench.testbed.cabling.transmitter(module.switch, module.ingress)
            laser = bench.instruments.get(source.owner) if source else None
            if source is None or not isinstance(laser, LightSource):
                continue  # a transceiver's own light, which is on
            if isinstance(laser, Restorable):
                stack.callback(laser.snapshot([int(source.name)]))
            laser.set_emission(int(source.name), on=True)
        yield


def change_paths(
    fabric: Fabric,
    meter: SimultaneousLogs,
    modules: Sequence[Module],
    plans: tuple[Plan, Plan],
    session: Session,
    *,
    period: int = PERIOD,
) -> PathChanges:
    """Go from the first plan, in place and lit, to the second, logged by `meter`.

    Raises:
        NotLoggedError: the switch cannot preload.
        IncompleteError: light did not go and come, once each, within the logs.
        NotDoneError: the switch said done and is not.
        InstrumentError: an instrument refused or failed.
    """
    clock, name = fabric.bench.clock, modules[0].switch
    switch = fabric.bench.switches[name]
    transition: Transition = fabric.prepare(plans[1])
    change = transition.changes[name]
    begin: Callable[[], Operation] = partial(switch.change, change.remove, change.add)
    if session == "preloaded":
        if not isinstance(switch, Preloading):
            raise NotLoggedError(f"{name} cannot be told paths before they are to change")
        switch.preload(plans[1].circuits[name])
        begin = switch.trigger
    channels = sorted({channel for module in modules for channel in module.channels})
    pending = meter.log_together(channels, samples=SAMPLES, period=period)
    clock.sleep(_LEAD)
    called = clock.now()
    operation = begin()
    word = operation.done()
    logs = pending.result()
    transition.verify()
    return PathChanges(
        (plans[0].name, plans[1].name),
        session,
        called,
        operation.sent,
        word,
        {m: _only(logs[m.channels[0]], m, rising=False) for m in modules},
        {m: _only(logs[m.channels[1]], m, rising=True) for m in modules},
        logs[channels[0]].start,
    )


def _only(log: PowerLog, module: Module, *, rising: bool) -> Edge:
    found = [edge for edge in edges(log) if edge.rising == rising]
    if len(found) != 1:
        what = "come onto its new path" if rising else "leave its old path"
        raise IncompleteError(
            f"the light of {module} was seen to {what} {len(found)} times within "
            f"{len(log.milliwatt) * log.period / 1e6:g} ms, expected once",
            each_at(NOT_SEEN, [str(module)]),
        )
    return found[0]


def path_change_rows(found: PathChanges, fabric: Fabric, number: int) -> Iterator[Row]:
    """Each module's dark time, the host's latency, and the share of intervals with the truth."""
    before, after = found.plans
    conditions: dict[str, Scalar] = {
        "event": number,
        "paths": f"{before} → {after}",
        "session": found.session,
    }
    time = found.called
    for module, (low, high) in found.dark().items():
        middle = (low + high) // 2
        yield Row(str(module), "path_change.dark", middle, low, high, "ns", time, conditions)
    switch = next(iter(found.back)).switch
    whole = {
        "end_to_end": found.end_to_end(),
        "done": Span(found.word.latest - time, found.word.latest - time),
    }
    for what, (low, high) in whole.items():
        middle = (low + high) // 2
        yield Row(switch, f"path_change.{what}", middle, low, high, "ns", time, conditions)
    inside = list(_inside(found, fabric))
    if inside:
        verdict = judge_bounds(inside)
        yield closure_row(fabric.testbed.name, "closure.path_change", verdict, time, number)


def _inside(found: PathChanges, fabric: Fabric) -> Iterator[bool]:
    """Whether the true dark time of each module is in its interval; nothing on hardware.

    It lasts from half of the old light to half of the new; light in a step has no half.
    """
    truth = fabric.bench.truth
    if truth is None:
        return
    for module, (low, high) in found.dark().items():
        old, new = (f"{module.switch}.{egress}" for egress in module.egress)
        middle = "half" if truth.knows(new, "half") else "light"
        went = truth.first(old, middle, up=False, since=found.called)
        came = truth.first(new, middle, up=True, since=found.called)
        if went is not None and came is not None:
            yield low <= came.earliest - went.earliest <= high
