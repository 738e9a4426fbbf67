"""Does a training job on photonic rails learn as on a mesh, and what do its circuits cost it?

Real ranks of PyTorch, one in each namespace, send real packets over circuits that a simulated
switch moves. The script is plain PyTorch (examples/train_llama.py) and knows nothing of it.
"""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from harness.bench import Fabric, bind
from harness.bench.opus import Script, TrainingJob, fitting_job
from harness.bench.opus.traced import traced, with_operations
from harness.fabrics.opus.auditor import Rewiring, audit
from harness.fabrics.opus.operations import ASYMMETRIC
from harness.fabrics.opus.topology import GiantRing
from harness.measure import opus
from harness.measure.training import (
    LitFabric,
    changes,
    control,
    losses,
    reconfigurations,
    rows,
    shifts,
    step_times,
    timeline,
)
from harness.plugin.keys import NOTES, RUN
from harness.record import Row
from instruments.transcript import Transcript, read
from instruments.wire import recording
from testbeds import SimulatedFault

pytestmark = pytest.mark.of_testbed("rails4")

MS = 1_000_000
SCRIPT = Path(__file__).parents[2] / "examples" / "train_llama.py"
MODES = ("default", "provisioning")
SWITCHING = {20 * MS: 4, 100 * MS: 4, 300 * MS: 2, 1000 * MS: 2}
"""What a change takes in ns, and over how many steps that is watched."""
BATCH = ("--batch", "12")
"""More to compute between the phases, so that there are windows."""
FEW, STEPS = 7, 12
SHIFTS = 4
"""Parameters are gathered before the forward and before the backward passes, and activations and
gradients are sent in between: data, pipeline, data, pipeline."""
ANSWERS, SILENT_FOR = 60, 8_000 * MS
"""In the middle of a step; the wire waits 10 s for an answer, and the next one comes."""


def script(steps: int, *more: str) -> Script:
    return Script(SCRIPT.read_text("utf-8"), SCRIPT.name, ("--steps", str(steps), *more))


@pytest.fixture(scope="module")
def job(bench, links) -> Iterator[TrainingJob]:
    """The ranks, with PyTorch loaded."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    links.pause()
    fabric = LitFabric(bench)
    made = TrainingJob(fabric, fitting_job(bench.testbed, "llama"))
    yield made
    made.close()
    fabric.restore()


@pytest.fixture(scope="module")
def tables(job):
    """Every rank's phase table, by profiling three steps on the giant ring."""
    return job.profile(script(3))[0]


@pytest.fixture(scope="module")
def native(job):
    """The same script on a mesh, with nothing in its way."""
    return job.on_plan(script(FEW), job.fabric.plans["mesh"])


@pytest.fixture(scope="module", params=MODES)
def trained(request, job, tables):
    """The script on rails, in one mode after the other."""
    return job.train(script(FEW), tables, request.param)


@pytest.fixture
def falling_silent(testbed) -> Iterator[Fabric]:
    """A fabric of its own, whose switch does not answer for a while."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    fault = SimulatedFault("silent instrument", ("ocs",), answers=ANSWERS, lasting_ns=SILENT_FOR)
    simulation = replace(testbed.simulation, faults=(fault,))
    bench = bind(replace(testbed, simulation=simulation), "simulated", seed=1)
    fabric = Fabric(bench)
    yield fabric
    fabric.restore()
    bench.close()


@pytest.fixture
def recorded_incidents(request, pytestconfig):
    """Keeps a run's rows, and tells in the report what went wrong, when and why."""

    def tell(bench, trained):
        run, journal = pytestconfig.stash[RUN], trained.rails.journal
        run.recorder(bench, request.node.nodeid, {})(list(opus.rows(journal)))
        for incident in journal.incidents:
            run.note(bench.testbed.name, str(incident))
            pytestconfig.stash[NOTES].setdefault(bench.testbed.name, []).append(str(incident))

    return tell


@pytest.fixture
def record(request, pytestconfig, bench) -> Callable[[list[Row]], None]:
    """Keeps rows of this test."""
    callspec = getattr(request.node, "callspec", None)
    params = callspec.params if callspec else {}
    mode = params.get("mode", params.get("trained"))
    held = {"mode": mode} if mode else {}
    return pytestconfig.stash[RUN].recorder(bench, request.node.nodeid, held)


def printed(trained):
    return [(loss.rank, loss.step, loss.value) for loss in losses(trained)]


def violations(job, trained):
    found = audit(trained.rails.journal.happenings, trained.found, job.on_fabric.own_ports())
    return [str(violation) for violation in found]


def test_losses_are_those_of_a_mesh(job, tables, native, trained, record):
    """To the last bit: sums of two are the same in either order, and all else is copied."""
    record([*rows(trained, {"network": "rails"}), *opus.rows(trained.rails.journal)])
    off = [
        (here, abs(here.value - there.value))
        for here, there in zip(losses(trained), losses(native), strict=True)
    ]
    record(
        [
            Row(f"rank {loss.rank}", "training.loss_off_mesh", n, n, n, "1", loss.at.earliest)
            for loss, n in off
        ]
    )
    assert printed(trained) == printed(native)
    assert not violations(job, trained)
    assert not trained.rails.journal.incidents


def test_four_reconfigurations_a_step(job, tables, trained, record):
    """Each stage's circuits pass between data and pipeline four times a step (Opus §5.1)."""
    assert {table.shifts for table in tables} == {SHIFTS}
    counts = reconfigurations(trained, tables)
    at = job.fabric.bench.clock.now()
    record(
        [
            Row(f"stage {stage}", "opus.reconfigurations", n, n, n, "1", at, {"step": step})
            for stage, steps in counts.items()
            for step, n in enumerate(steps)
        ]
    )
    assert set(map(tuple, counts.values())) == {(SHIFTS,) * FEW}


def test_the_wire_bears_out_what_was_promised(job, tables, bench, tmp_path):
    """What the switch was told, by its recorded wire, beside what ranks did: nothing is wrong."""
    (switch,) = bench.switches
    recorder = recording.record(bench.clock, tmp_path)
    bench.switches[switch].close()  # the next command opens it again, and is kept
    trained = job.train(script(3), tables, "provisioning")
    recorder.close()
    happenings = trained.rails.journal.happenings
    (kept,) = tmp_path.glob(f"*{switch}*")
    since = happenings[0].at
    pieces = tuple(piece for piece in read(kept).pieces if piece.at >= since)
    wire = traced(Transcript({}, pieces), switch, trained.found[switch])
    told = {one.add for one in happenings if isinstance(one, Rewiring)}
    assert told == {one.add for one in wire if isinstance(one, Rewiring) and one.add}
    own = job.on_fabric.own_ports()
    assert not list(map(str, audit(with_operations(happenings, wire), trained.found, own)))


def test_timeline_of_a_step(job, tables, record):
    """Switch, light, carrier and traffic of each phase, on one time axis (Opus Fig. 9)."""
    with job.fabric.lit():
        trained = job.train(script(2), tables, "provisioning")
    found = list(timeline(trained, job))
    record(found)
    kinds = {row.quantity for row in found}
    assert kinds == {"rails.traffic", "rails.switch", "rails.light", "rails.carrier"}
    assert not violations(job, trained)


@pytest.mark.parametrize("mode", MODES)
def test_waits_by_switching(job, tables, bench, record, mode):
    """On demand an operation waits for a whole change, provisioned for what no window hides.

    At most, and within 10 % of the step: N T_reconfig, and the sum of max(0, T_reconfig -
    T_window) over the changes of a step (Opus §4.2, §5.2).
    """
    (switch,) = bench.switches
    native = job.on_plan(script(FEW, *BATCH), job.fabric.plans["mesh"])
    for switching, steps in SWITCHING.items():
        bench.world.take(switch, switching)
        trained = job.train(script(steps, *BATCH), tables, mode)
        took, found = changes(trained), shifts(trained, tables)
        # Both stages pass to the pipeline at once, but one after the other to data.
        lengths = [round(mean(took)) * (1 if one.dimension == ASYMMETRIC else 2) for one in found]
        bounds = [
            one.exposed(length) if mode == "provisioning" else length
            for one, length in zip(found, lengths, strict=True)
        ]
        about = {"network": "rails", "switching_ns": switching}
        at = job.fabric.bench.clock.now()

        def told(quantity, values, at=at, about=about):
            return [Row("job", quantity, one, one, one, "ns", at, about) for one in values]

        a_step = sum(bounds) * SHIFTS // len(bounds)
        record(
            [
                *rows(trained, about),
                *told("opus.change", took),
                *told("opus.waited", [one.waited for one in found]),
                *told("opus.waited_at_most", bounds),
                *told("opus.step_at_most", [one.latest + a_step for one in step_times(native)]),
            ]
        )
        assert not violations(job, trained)
        whole = sum(span.latest for span in step_times(trained))
        assert sum(one.waited for one in found) <= sum(bounds) + 0.1 * whole
    bench.world.take(switch, min(SWITCHING))


def test_control_at_no_switching(job, tables, record):
    """What shims, controller and their messages add to a step when switching takes no time.

    At most, and counted within the run: other runs on the same machine differ by more.
    """
    mesh = job.fabric.plans["mesh"]
    alone = job.on_plan(script(STEPS), mesh)
    record(list(rows(alone, {"network": "mesh", "mode": "none"})))
    for mode in MODES:
        held = job.emulate(script(STEPS), tables, mode, mesh)
        assert printed(held) == printed(alone)
        at = job.fabric.bench.clock.now()
        steps = [(span.earliest + span.latest) // 2 for span in step_times(held)]
        shares = [
            took / (step - took)
            for took, step in zip(control(held, tables)[1:], steps, strict=True)
            if took < step
        ]
        assert len(shares) == len(steps)
        record(list(rows(held, {"network": "mesh", "mode": mode})))
        record([Row("job", "opus.control", n, n, n, "share", at, {"mode": mode}) for n in shares])


def test_training_goes_on_over_the_giant_ring(falling_silent, recorded_incidents):
    """A switch that stops answering leaves one ring of all ranks; the report says when and why."""
    fabric = falling_silent
    job = TrainingJob(fabric, fitting_job(fabric.testbed, "llama"))
    try:
        phases = job.profile(script(2))[0]
        before = job.on_plan(script(4), fabric.plans["mesh"])
        trained = job.train(script(4), phases, "default", retries=0)
    finally:
        job.close()
    recorded_incidents(fabric.bench, trained)
    incidents = trained.rails.journal.incidents
    assert [one.what for one in incidents][-1] == "giant ring reached"
    assert all("did not answer" in one.why for one in incidents)
    (rail,) = trained.rails.controller.rails
    assert isinstance(rail.topology, GiantRing)
    assert printed(trained) == printed(before)
    assert not violations(job, trained)
