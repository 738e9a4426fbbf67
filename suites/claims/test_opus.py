"""Photonic rails follow the phases of a training step, and Opus' guarantees hold.

Ranks are emulated, one on every NIC: they wait for their topology, sleep for the time of an
operation, and report its end. An auditor that shares no code with the control plane checks its
events.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.measure.recording import Recording
from lightrig.harness.systems.opus.planning.operations import OpusError
from lightrig.harness.systems.opus.planning.run_events import Rewiring
from lightrig.harness.systems.opus.planning.shim import Mode, Shim
from lightrig.harness.systems.opus.planning.topology import GiantRing, TopologyId
from lightrig.harness.systems.opus.runtime.on_fabric import FabricRails, attachments_of, fitting_job
from lightrig.harness.systems.opus.runtime.rails import Journal, Rails
from lightrig.suites.claims.opus.auditor import audit
from lightrig.suites.claims.opus.emulation import emulate
from lightrig.suites.claims.opus.rewiring import rows
from lightrig.suites.claims.opus.steps import phase_tables
from lightrig.testbeds import SimulatedFault, Testbed

MS = 1_000_000
STEPS, STEPS_IN_REAL_TIME, MICROBATCHES, GATHERS = 3, 1, 2, 4
TRANSFER, COMPUTE = 20 * MS, 10 * MS
SILENT_AFTER, SILENT_A_RAIL = 1_000 * MS, 31_000 * MS
"""Three attempts for each rail, one after another, each with a timeout of 10 s."""


@dataclass
class Trained:
    """A completed training run."""

    rails: Rails
    journal: Journal
    violations: list[str]
    shifts: set[int]


def lacks_rails(testbed: Testbed) -> str:
    """Return why a testbed has no rails for a job; empty where it has."""
    try:
        job = fitting_job(testbed, "llama")
        for rail in range(job.rails):
            attachments_of(testbed, job, rail)
    except OpusError as error:
        return str(error)
    return ""


def lacks_virtual_time(testbed: Testbed) -> str:
    """Return why a switch cannot be silent for minutes; empty in virtual time."""
    if any(server.is_local_namespace for server in testbed.servers.values()):
        return "a namespace's time is real, and so would be its timeouts"
    return ""


pytestmark = [pytest.mark.of_system("opus"), pytest.mark.needs(lacks=lacks_rails)]


def train(fabric: Fabric, mode: Mode) -> Trained:
    """Run some steps of a pipeline on `fabric`, whose fixture restores it."""
    job = fitting_job(fabric.testbed, "llama")
    on_fabric = FabricRails(fabric, job)
    on_fabric.set(TopologyId.uniform(job.stages, 0))
    steps = STEPS if fabric.bench.clock.virtual else STEPS_IN_REAL_TIME
    tables = phase_tables(job, steps, microbatches=MICROBATCHES, gathers=GATHERS)
    shims = [Shim(rank, job.stage_of[rank], table, mode) for rank, table in enumerate(tables)]
    rails = Rails(
        fabric.bench.clock, job, shims, on_fabric.wirings, on_fabric.apply, on_fabric.switches
    )
    found, ports_of_job = on_fabric.circuits(), on_fabric.cabled_ports()
    programs = {rank: table.all() for rank, table in enumerate(tables)}
    emulate(rails, programs, transfer=TRANSFER, compute=COMPUTE)
    violations = [str(v) for v in audit(rails.journal.events, found, ports_of_job)]
    return Trained(rails, rails.journal, violations, {table.shifts for table in tables})


def record(measure: Recording, bench: Bench, journal: Journal) -> None:
    """Record a run, and note its incidents in the report."""
    measure.record(rows(journal), bench=bench)
    for incident in journal.incidents:
        measure.note(str(incident))


@pytest.fixture
def falling_silent(testbed: Testbed) -> Iterator[Fabric]:
    """A separate fabric whose simulated switches do not answer for a while."""
    silent_for = SILENT_A_RAIL * fitting_job(testbed, "llama").rails
    faults = tuple(
        SimulatedFault("silent instrument", (switch,), after_ns=SILENT_AFTER, lasting_ns=silent_for)
        for switch in testbed.optical_switches
    )
    simulation = replace(testbed.simulation, faults=(*testbed.simulation.faults, *faults))
    bench = bind(replace(testbed, simulation=simulation), "simulated", seed=1)
    fabric = Fabric(bench)
    yield fabric
    fabric.restore()
    bench.close()


@pytest.mark.parametrize("mode", ["default", "provisioning"])
def test_circuits_follow_the_phases(fabric, measure, mode):
    """Two microbatches shift six times a step on every rank (Opus §5.2), without violations."""
    trained = train(fabric, mode)
    record(measure, fabric.bench, trained.journal)
    assert not trained.violations
    assert not trained.journal.incidents
    assert trained.shifts == {6}
    rewirings = [one for one in trained.journal.events if isinstance(one, Rewiring)]
    assert len(rewirings) <= STEPS * trained.shifts.pop() * 2 * trained.rails.job.rails


@pytest.mark.needs(lacks=lacks_virtual_time)
def test_a_switch_that_stops_answering_leaves_a_giant_ring(falling_silent, measure):
    """Commands are repeated, then one ring of all ranks is requested and used (Opus §4.2)."""
    trained = train(falling_silent, "provisioning")
    record(measure, falling_silent.bench, trained.journal)
    assert not trained.violations
    assert all(isinstance(rail.topology, GiantRing) for rail in trained.rails.controller.rails)
    reached = [one for one in trained.journal.incidents if one.what == "giant ring reached"]
    assert {incident.rail for incident in reached} == set(range(trained.rails.job.rails))
    assert all(incident.at >= SILENT_AFTER and incident.why for incident in reached)
