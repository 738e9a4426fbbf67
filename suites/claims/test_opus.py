"""Do photonic rails follow a training step's phases, and are Opus' promises kept meanwhile?

Ranks are emulated, one on every NIC: they wait for their topology, take their time, and say that
they are done. What the control plane did is put to an auditor, which knows nothing of its program.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from harness.bench import Bench, Fabric, bind
from harness.bench.opus import FabricRails, Journal, Rails, emulate, fitting_job
from harness.fabrics.opus.auditor import Rewiring, audit
from harness.fabrics.opus.operations import OpusError
from harness.fabrics.opus.shim import Mode, Shim
from harness.fabrics.opus.steps import phase_tables
from harness.fabrics.opus.topology import GiantRing, TopologyId
from harness.measure.opus import rows
from harness.plugin.keys import NOTES, RUN
from testbeds import SimulatedFault, Testbed

MS = 1_000_000
STEPS, MICROBATCHES, GATHERS = 3, 2, 4
TRANSFER, COMPUTE = 20 * MS, 10 * MS
SILENT_AFTER, SILENT_FOR = 1_000 * MS, 62_000 * MS
"""Two rails on one switch, three attempts each, and the wire waits 10 s for an answer."""


@dataclass
class Trained:
    """A training run that is over."""

    rails: Rails
    journal: Journal
    violations: list[str]
    shifts: set[int]


def train(fabric: Fabric, mode: Mode) -> Trained:
    """Some steps of a pipeline on `fabric`, which is put back by its owner."""
    try:
        job = fitting_job(fabric.testbed, "llama")
        on_fabric = FabricRails(fabric, job)
    except OpusError as error:
        pytest.skip(str(error))
    on_fabric.set(TopologyId.uniform(job.stages, 0))
    tables = phase_tables(job, STEPS, microbatches=MICROBATCHES, gathers=GATHERS)
    shims = [Shim(rank, job.stage_of[rank], table, mode) for rank, table in enumerate(tables)]
    rails = Rails(
        fabric.bench.clock, job, shims, on_fabric.wirings, on_fabric.apply, on_fabric.switches
    )
    found, own = on_fabric.held(), on_fabric.own_ports()
    programs = {rank: table.all() for rank, table in enumerate(tables)}
    emulate(rails, programs, transfer=TRANSFER, compute=COMPUTE)
    violations = [str(v) for v in audit(rails.journal.happenings, found, own)]
    return Trained(rails, rails.journal, violations, {table.shifts for table in tables})


@pytest.fixture
def recorded(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config
) -> Callable[[Bench, Journal], None]:
    """Keeps what a run has shown, and tells in the report what went wrong, when and why."""
    run, notes = pytestconfig.stash[RUN], pytestconfig.stash[NOTES]

    def record(bench: Bench, journal: Journal) -> None:
        run.recorder(bench, request.node.nodeid, {})(list(rows(journal)))
        for incident in journal.incidents:
            run.note(bench.testbed.name, str(incident))
            notes.setdefault(bench.testbed.name, []).append(str(incident))

    return record


@pytest.fixture
def falling_silent(testbed: Testbed) -> Iterator[Fabric]:
    """A fabric of its own, whose simulated switches do not answer for a while."""
    if any(server.address.startswith("netns://") for server in testbed.servers.values()):
        pytest.skip("a namespace's time is real, and so would be its timeouts")
    faults = tuple(
        SimulatedFault("silent instrument", (switch,), after_ns=SILENT_AFTER, lasting_ns=SILENT_FOR)
        for switch in testbed.optical_switches
    )
    simulation = replace(testbed.simulation, faults=(*testbed.simulation.faults, *faults))
    bench = bind(replace(testbed, simulation=simulation), "simulated", seed=1)
    fabric = Fabric(bench)
    yield fabric
    fabric.restore()
    bench.close()


@pytest.mark.parametrize("mode", ["default", "provisioning"])
def test_circuits_follow_the_phases(fabric, recorded, mode):
    """Two microbatches shift six times a step on every rank (Opus §5.2), and no promise breaks."""
    trained = train(fabric, mode)
    recorded(fabric.bench, trained.journal)
    assert not trained.violations
    assert not trained.journal.incidents
    assert trained.shifts == {6}
    rewirings = [one for one in trained.journal.happenings if isinstance(one, Rewiring)]
    assert len(rewirings) <= STEPS * trained.shifts.pop() * 2 * trained.rails.job.rails


def test_a_switch_that_stops_answering_leaves_a_giant_ring(falling_silent, recorded):
    """It is asked again, then for one ring of all ranks, and the job ends on that (Opus §4.2)."""
    trained = train(falling_silent, "provisioning")
    recorded(falling_silent.bench, trained.journal)
    assert not trained.violations
    assert all(isinstance(rail.topology, GiantRing) for rail in trained.rails.controller.rails)
    reached = [one for one in trained.journal.incidents if one.what == "giant ring reached"]
    assert {incident.rail for incident in reached} == set(range(trained.rails.job.rails))
    assert all(incident.at >= SILENT_AFTER and incident.why for incident in reached)
