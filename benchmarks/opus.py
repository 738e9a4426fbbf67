"""Cost of Opus' control plane for a step when switching takes no time: programs and threads alone.

Eight emulated ranks on two rails run steps of two microbatches on the machine's own clock, with
and without the control plane; switches obey at once and operations take no time, so that the
difference is the shims', the controller's and the orchestrators'. All ranks share one interpreter.
The simulated Polatis is timed apart, in its virtual time: what the switch and its wire add.
Also in virtual time: how long operations wait for the switches by depth of the pipeline, when all
stages leave it at once and in steps of the 1F1B schedule.
"""

import time
from collections.abc import Sequence
from pathlib import Path

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.operations import Network, Operation, RailJob
from lightrig.harness.systems.opus.planning.run_events import Rewiring
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.planning.shim import Mode, Shim
from lightrig.harness.systems.opus.planning.topology import TopologyId
from lightrig.harness.systems.opus.planning.wiring import Attachment, RailWiring
from lightrig.harness.systems.opus.runtime.on_fabric import FabricRails
from lightrig.harness.systems.opus.runtime.rails import Rails
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.suites.claims.opus.auditor import audit
from lightrig.suites.claims.opus.emulation import emulate
from lightrig.suites.claims.opus.steps import phase_tables, ring
from lightrig.testbeds import load

STEPS, ROUNDS = 20, 5
MODES: tuple[Mode, ...] = ("default", "provisioning")
SWITCHING, TRANSFER, COMPUTE = 100_000_000, 1_000_000, 20_000_000


class Uncontrolled(Rails):
    """Every operation may run."""

    def before(self, rank: int, operation: Operation) -> Network:
        """At once."""
        return "rail"

    def after(self, rank: int, operation: Operation) -> None:
        """Discard the message."""


def main() -> None:
    testbed = load(Path(__file__).parent.parent / "testbeds" / "opus.yaml")
    job = RailJob.grid("llama", 2, [2], rails=2)
    bench = bind(testbed, "simulated", seed=1)
    fabric = Fabric(bench)
    on_fabric = FabricRails(fabric, job)
    tables = phase_tables(job, STEPS, microbatches=2, gathers=4)
    operations = len(tables[0].operations)
    print(
        f"{STEPS} steps of {operations} operations on each of {len(tables)} ranks, {ROUNDS} rounds"
    )
    for name, mode in {"no control": None, **{mode: mode for mode in MODES}}.items():
        seconds = sorted(_obeyed_at_once(job, on_fabric, tables, mode) for _ in range(ROUNDS))
        median, least, most = (
            value / STEPS * 1e3 for value in (seconds[ROUNDS // 2], seconds[0], seconds[-1])
        )
        print(f"  {name}: {median:.2f} ms a step (median of {ROUNDS}, {least:.2f} to {most:.2f})")
    few = phase_tables(job, 3, microbatches=2, gathers=4)
    for mode in MODES:
        on_fabric.set(TopologyId("00"))
        rails = _rails(job, on_fabric, few, mode, bench.clock, on_fabric.apply)
        start = bench.clock.now()
        emulate(rails, dict(enumerate(map(PhaseTable.all, few))), transfer=0)
        virtual = (bench.clock.now() - start) / 1e9
        count = sum(isinstance(one, Rewiring) for one in rails.journal.events)
        print(
            f"  {mode}, simulated Polatis: {virtual / 3:.2f} s and {count / 3:g} rewirings a step"
        )
    fabric.restore()
    bench.close()
    for stages in (2, 4, 8, 16):
        _by_depth(stages)


def _by_depth(stages: int) -> None:
    """Print waits in switching times, and the violations that the auditor finds."""
    job = RailJob.grid("deep", stages, [2])
    leaving = {rank: (Operation(ring(job, rank, 1), 0, 1),) for rank in range(2 * stages)}
    waits, violations, _, _ = _emulated(job, leaving, "default")
    found = [f"leaving at once {max(waits) / SWITCHING:.2f}"]
    tables = phase_tables(job, 1, microbatches=2 * stages)
    steps = {rank: table.operations for rank, table in enumerate(tables)}
    for mode in MODES:
        _, more, took, commands = _emulated(job, steps, mode)
        _, _, alone, _ = _emulated(job, steps, mode, switching=0)
        violations += more
        found.append(f"{mode} +{(took - alone) / SWITCHING:.1f} a step, {commands} commands")
    print(f"  PP={stages}: switching times: {'; '.join(found)}; {violations} violations")


def _emulated(
    job: RailJob, programs: dict[int, tuple[Operation, ...]], mode: Mode, switching: int = SWITCHING
) -> tuple[list[int], int, int, int]:
    """Return the waits, violations, time and switch commands of ranks in virtual time."""
    clock = VirtualClock()
    commands: list[int] = []

    def apply(rewires: Sequence[Rewire]) -> None:
        commands.append(len(rewires))
        clock.sleep(switching)

    ports = {
        rank: (Attachment(2 * rank + 1, 2 * rank + 1), Attachment(2 * rank + 2, 2 * rank + 2))
        for rank in programs
    }
    wiring = RailWiring.of(job, 0, ports)
    shims = [
        Shim(rank, job.stage_of[rank], PhaseTable(program, 1), mode)
        for rank, program in programs.items()
    ]
    rails = Rails(clock, job, shims, [wiring], apply, ["ocs"], commands=job.stages)
    began = clock.now()
    emulate(rails, programs, transfer=TRANSFER, compute=COMPUTE)
    took = clock.now() - began
    clock.close()
    found = {"ocs": wiring.circuits(TopologyId.uniform(job.stages, 0))}
    violations = len(audit(rails.journal.events, found))
    return [wait.length for wait in rails.journal.waits], violations, took, len(commands)


def _obeyed_at_once(
    job: RailJob, on_fabric: FabricRails, tables: tuple[PhaseTable, ...], mode: Mode | None
) -> float:
    clock = SystemClock()
    kind = Rails if mode else Uncontrolled
    rails = _rails(job, on_fabric, tables, mode or "default", clock, lambda rewire: None, kind)
    start = time.perf_counter()
    emulate(rails, {rank: table.all() for rank, table in enumerate(tables)}, transfer=0)
    took = time.perf_counter() - start
    clock.close()
    return took


def _rails(job, on_fabric, tables, mode, clock, apply, kind=Rails) -> Rails:
    shims = [Shim(rank, job.stage_of[rank], table, mode) for rank, table in enumerate(tables)]
    return kind(clock, job, shims, on_fabric.wirings, apply, on_fabric.switches)


if __name__ == "__main__":
    main()
