"""Faults that a simulated run makes in a step of training: a cut fiber, a killed server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from lightrig.harness.bench.fabric import Fabric
from lightrig.harness.jobs.measure.light_faults import FaultError, split_fault
from lightrig.harness.systems.opus.runtime.training import Attempt, TrainingJob
from lightrig.instruments.clock.workers import Task
from lightrig.testbeds import Port, QuantityError, Testbed
from lightrig.testbeds.plans import without_first_port
from lightrig.testbeds.quantities import format_duration, parse_duration

LOOK = 10_000_000
"""Period at which the number of steps is looked at, in ns."""


_SETTINGS = {"cut": {"step", "port"}, "kill": {"step"}}


@dataclass(frozen=True, slots=True)
class TrainingFault:
    """A fault, made when all ranks are in a step.

    Attributes:
        kind: both fibers of a NIC port are cut, or all ranks of a server are killed.
        step: counted from 1 over all steps that are run, repeated ones included.
        place: the NIC port, or the server.
        lasting: of a cut, in ns.
    """

    kind: Literal["cut", "kill"]
    step: int
    place: str
    lasting: int = 0

    def __str__(self) -> str:
        """Return what is done, where."""
        if self.kind == "cut":
            return f"the fibers of {self.place} are cut for {format_duration(self.lasting)}"
        return f"all ranks on {self.place} are killed"


def parse_training_fault(text: str, testbed: Testbed) -> TrainingFault:
    """Read `cut:5s,step=4,port=server1.nic0.p0` or `kill:server1,step=4`.

    Without a port it is the first one. Raises `FaultError`.
    """
    kind, given, settings = split_fault(text, _SETTINGS)
    ports = {without_first_port(str(s.port)): str(s.port) for s in testbed.nic_ports}
    step = settings.get("step", "")
    if not step.isdecimal() or not int(step):
        raise FaultError(f"{text!r}: step=N is missing, the step in which it is made")
    if kind == "kill":
        if given not in testbed.servers:
            names = ", ".join(testbed.servers)
            raise FaultError(f"{text!r}: found {given!r}, expected a server: {names}")
        return TrainingFault("kill", int(step), given)
    stated = settings.get("port", next(iter(ports)))
    port = ports.get(without_first_port(stated))
    if port is None:
        listed = ", ".join(ports.values())
        raise FaultError(f"{text!r}: found {stated!r}, expected a port: {listed}")
    try:
        lasting = parse_duration(given)
    except QuantityError as error:
        raise FaultError(f"{text!r}: {error}") from error
    return TrainingFault("cut", int(step), port, lasting)


def check_possible(faults: Sequence[TrainingFault], fabric: Fabric) -> None:
    """Raise `FaultError` where a fiber is to be cut and the light is not simulated."""
    if fabric.bench.world is None and any(fault.kind == "cut" for fault in faults):
        raise FaultError("--fault cut: the light is not simulated; take the fiber out")


class FaultMaker:
    """Makes each fault once, in its step.

    Args:
        job: whose ranks train.
        faults: to make.
        ended: returns the number of steps that earlier attempts have ended.

    Attributes:
        left: those that are still to be made.
        made: what was done, and when.
    """

    def __init__(
        self, job: TrainingJob, faults: Sequence[TrainingFault], ended: Callable[[], int]
    ) -> None:
        self._job, self.left, self._ended = job, list(faults), ended
        self.made: list[str] = []

    def beside(self, attempt: Attempt) -> Sequence[Task]:
        """Return the tasks that make faults beside an attempt."""
        return [partial(self._watch, attempt)] if self.left else []

    def _watch(self, attempt: Attempt) -> None:
        while self.left and not attempt.over.wait(LOOK):
            began, step = attempt.listener.began, self._ended() + attempt.steps + 1
            for fault in list(self.left):
                if began is not None and step >= fault.step:
                    self.left.remove(fault)
                    attempt.fault = self._make(fault)
                    after_s = (attempt.fault - began) / 1e9
                    self.made.append(
                        f"{fault}, as --fault wants, {after_s:.3f} s after the first operation"
                    )

    def _make(self, fault: TrainingFault) -> int:
        """Make a fault; return when."""
        bench = self._job.fabric.bench
        if fault.kind == "cut":
            assert bench.world is not None
            return bench.world.cut(Port(*fault.place.split(".", 1)), fault.lasting)
        at = bench.clock.now()
        for rank in self._job.ranks:
            if rank.name == fault.place:
                rank.kill()
        return at
