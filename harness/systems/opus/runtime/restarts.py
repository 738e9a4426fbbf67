"""Restarts of a training job after a failure: on circuits formed anew, from its last checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lightrig.harness.jobs.first_step import no_step
from lightrig.harness.jobs.measure.light_faults import FaultError
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.planning.shim import Mode
from lightrig.harness.systems.opus.runtime.link_watch import LinkLostError
from lightrig.harness.systems.opus.runtime.training import Attempt, Trained, TrainingJob
from lightrig.harness.systems.opus.runtime.training_faults import (
    FaultMaker,
    TrainingFault,
)
from lightrig.instruments.jobs.traffic.training import RankLostError, Script
from lightrig.testbeds import LightrigError


def restart_variables(count: int, most: int) -> Mapping[str, str]:
    """Return the variables by which torchrun tells a script its restarts, of at most `most`."""
    return {"TORCHELASTIC_RESTART_COUNT": str(count), "TORCHELASTIC_MAX_RESTARTS": str(most)}


class TrainingStoppedError(LightrigError):
    """A job failed and was not started again."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure that a restart followed; moments are on the bench's clock, in ns.

    Attributes:
        error: that ended the attempt.
        attempt: which it ended.
        ended: when all ranks had ended.
        circuits: when the ring of all ranks was set, with a carrier at each of its ports.
        programs: when the ranks' programs had been started again, with PyTorch loaded.
        moved: server and spare where ranks moved from one to the other.
        rerouted: rails that were left, each with the one that carries its traffic since.
    """

    error: LightrigError
    attempt: Attempt
    ended: int
    circuits: int
    programs: int
    moved: tuple[str, str] | None = None
    rerouted: tuple[tuple[int, int], ...] = ()

    @property
    def cause(self) -> str:
        """The error in one line."""
        return str(self.error).partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Reformed:
    """What a ring of all ranks took that was formed anew; see `Failure`."""

    moved: tuple[str, str] | None = None
    rerouted: tuple[tuple[int, int], ...] = ()


def form_again(job: TrainingJob, error: LightrigError) -> Reformed:
    """Set the ring of all ranks anew after `error`, with a spare server or other rails if needed.

    The ranks of a server whose program has ended move to a spare at once: it may be dead. Where a
    link stays dark, its carriers do not say which end is broken: the ranks of one end move, and, if
    the ring stays dark, those of the other in their place. Without a spare that helps, the traffic
    of the rails with a dark link goes over the links of another rail (Opus §4.2).

    Raises `LightrigError` where no ring can be formed.
    """
    server = error.instrument if isinstance(error, RankLostError) else ""
    if job.spares and server in job.placement:
        spare = job.spares.pop(0)
        job.move_ranks(server, spare)
        job.reform()
        return Reformed((server, spare))
    try:
        job.reform()
    except LightrigError:
        first = error.link.port.owner if isinstance(error, LinkLostError) else ""
        dark = sorted(job.dark_servers(), key=lambda name: (name != first, name))
        for server in dark if job.spares else ():
            job.move_ranks(server, job.spares[0])
            try:
                job.reform()
            except LightrigError:
                job.move_ranks(job.spares[0], server)
            else:
                return Reformed((server, job.spares.pop(0)))
        rails = job.dark_rails()
        if not rails or len(rails) == job.job.rails - len(job.without):
            raise
        job.leave_rails(rails)
        job.reform()
        return Reformed(rerouted=tuple((rail, job.on_fabric.carrying(rail)) for rail in rails))
    return Reformed()


class RestartedTraining:
    """A script on circuits, started again after each failure as often as is allowed.

    Args:
        job: whose ranks run it; `environment` and `beside` are this training's.
        restarts: how many are allowed.
        faults: to make in a simulation.
        restarted: called with each failure that a restart follows, before it.

    Attributes:
        failures: so far.
    """

    def __init__(
        self,
        job: TrainingJob,
        restarts: int,
        faults: Sequence[TrainingFault],
        restarted: Callable[[LightrigError, int], None],
    ) -> None:
        self._job, self._restarts, self._restarted = job, restarts, restarted
        self.failures: list[Failure] = []
        self._faults = FaultMaker(job, faults, self._ended)
        job.beside = self._faults.beside

    @property
    def made(self) -> Sequence[str]:
        """The faults that were made, and when."""
        return self._faults.made

    def run(self, script: Script, tables: Sequence[PhaseTable], mode: Mode) -> Trained:
        """Run the script to its end.

        Raises `TrainingStoppedError` after the last allowed failure, where no circuits can be
        formed, or where the script does other operations than were profiled, which a restart would
        not change; `NoStepError` where it ended after a restart without the steps that are left;
        `FaultError` for a fault in a step that was not run, and as `TrainingJob.renew`.
        """
        given = dict(self._job.environment)
        while True:
            variables = restart_variables(len(self.failures), self._restarts)
            self._job.environment = {**given, **variables}
            before = self._job.attempt
            try:
                trained = self._job.train(script, tables, mode)
            except LightrigError as error:
                attempt = self._job.attempt
                if attempt is None or attempt is before or attempt.failed is None:
                    raise
                unprofiled = attempt.listener.unprofiled is not None
                if unprofiled or len(self.failures) == self._restarts:
                    described = self._described(error, attempt, script.name)
                    raise TrainingStoppedError(described) from error
                self._restart(error, attempt, script.name)
            else:
                if left := self._faults.left:
                    raise FaultError(f"{left[0]} in step {left[0].step}: none was so late")
                last = self._job.attempt
                assert last is not None
                if self.failures and not last.steps and self._ended() < tables[0].profiled_steps:
                    part = f"after restart {len(self.failures)}"
                    raise no_step(trained, script.name, part)
                return trained

    def _restart(self, error: LightrigError, attempt: Attempt, script: str) -> None:
        clock = self._job.fabric.bench.clock
        ended = clock.now()
        self._restarted(error, len(self.failures) + 1)
        try:
            formed = form_again(self._job, error)
        except LightrigError as refused:
            described = self._described(error, attempt, script)
            raise TrainingStoppedError(
                f"{described}\n  restart   impossible, since without it there is no ring of all "
                f"ranks: {refused}"
            ) from refused
        circuits = clock.now()
        self._job.renew()
        self.failures.append(
            Failure(error, attempt, ended, circuits, clock.now(), formed.moved, formed.rerouted)
        )

    def _ended(self) -> int:
        return sum(failure.attempt.steps for failure in self.failures)

    def _described(self, error: LightrigError, attempt: Attempt, script: str) -> str:
        """Return the error with the step, what ranks waited for, and what may help."""
        lines = [str(error)]
        unprofiled = attempt.listener.unprofiled
        if unprofiled is not None:
            part = f"after restart {len(self.failures)}" if self.failures else "on circuits"
            before = f"{script} does other operations {part} than on the ring of all ranks"
            lines = [f"{before}, so no circuits are known for them: {unprofiled}", *lines]
        if attempt.listener.steps:
            after = f" after restart {len(self.failures)}" if self.failures else ""
            lines.append(f"  step      {attempt.steps + 1}{after}")
        began = attempt.listener.began
        if began is not None and attempt.failed is not None:
            after_s = (attempt.failed - began) / 1e9
            lines.append(f"  noticed   {after_s:.3f} s after the first operation")
        if isinstance(error, LinkLostError) and attempt.unfinished:
            waiting = (f"rank {rank} for {name}" for rank, name in attempt.unfinished.items())
            lines.append(f"  waiting   {', '.join(waiting)}")
        if unprofiled is not None:
            lines.append(
                "  try       a script whose operations after a checkpoint are those before it; "
                "TORCHELASTIC_RESTART_COUNT is the only variable in which a restart differs"
            )
        elif self._restarts:
            lines.append(f"  restarts  {len(self.failures)} of {self._restarts} were made")
        else:
            lines.append(
                "  try       --max-restarts 1, for a script that goes on from its last checkpoint"
            )
        return "\n".join(lines)
