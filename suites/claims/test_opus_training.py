"""A training job on photonic rails: the same losses as on a mesh, and the cost of its circuits.

Real ranks of PyTorch, one in each namespace, send real packets over circuits that a simulated
switch moves. The script is plain PyTorch (examples/train_llama.py).
"""

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.jobs.statistics.means import mean_less, mean_of
from lightrig.harness.record import Row
from lightrig.harness.systems.opus.measurements.training import (
    LitFabric,
    changes,
    control,
    losses,
    reconfigurations,
    rows,
    shifts,
    step_times,
    timeline,
    waits_by_step,
)
from lightrig.harness.systems.opus.planning.operations import ASYMMETRIC
from lightrig.harness.systems.opus.planning.run_events import Rewiring
from lightrig.harness.systems.opus.planning.topology import GiantRing
from lightrig.harness.systems.opus.runtime.on_fabric import fitting_job
from lightrig.harness.systems.opus.runtime.training import TrainingJob
from lightrig.instruments.core.transcript import Transcript, read
from lightrig.instruments.jobs.traffic.training import Script
from lightrig.instruments.wire.trace import record as record_wires
from lightrig.suites.claims.opus import rewiring as opus
from lightrig.suites.claims.opus.auditor import audit
from lightrig.suites.claims.opus.traced import traced, with_operations
from lightrig.testbeds import SimulatedFault

pytestmark = [pytest.mark.of_system("opus"), pytest.mark.of_testbed("rails4")]

MS = 1_000_000
SCRIPT = Path(__file__).parents[2] / "examples" / "train_llama.py"
OVERLAPPED = Path(__file__).parents[2] / "examples" / "train_overlapped.py"
HIDDEN = 100 * MS
"""Switching time that the windows of that script, of 200 ms, can hide."""
MODES = ("default", "provisioning")
SWITCHING = {20 * MS: 4, 100 * MS: 4, 300 * MS: 4, 1000 * MS: 4}
"""Steps to measure, by the switching time in ns; the interval of waits leaves out the first."""
BATCH = ("--batch", "12")
"""More computation between the phases, so that there are windows."""
FEW, STEPS = 7, 12
SHIFTS = 4
"""Parameters are gathered before the forward and before the backward passes, and activations and
gradients are sent in between: data, pipeline, data, pipeline."""
ANSWERS, SILENT_FOR = 60, 8_000 * MS
"""Silence in the middle of a step; the timeout is 10 s, and the next command succeeds."""


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
    """The same script on a mesh, without the control plane."""
    return job.on_plan(script(FEW), job.fabric.plans["mesh"])


@pytest.fixture(scope="module", params=MODES)
def trained(request, job, tables):
    """The script on rails, in each mode."""
    return job.train(script(FEW), tables, request.param)


@pytest.fixture
def falling_silent(testbed) -> Iterator[Fabric]:
    """A separate fabric whose switch does not answer for a while."""
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
def record(request, measure) -> Callable[[Iterable[Row]], None]:
    """Record rows of this test with its training mode as a condition."""
    callspec = getattr(request.node, "callspec", None)
    mode = callspec.params.get("trained") if callspec else None
    return partial(measure.record, conditions={"mode": mode} if mode else None)


def measure_wait(waited, at, about, measure):
    """Record and note the mean of what steps waited, in ns, with its interval and their number."""
    found = mean_of(waited)
    values = (round(one) for one in (found.value, found.lower, found.upper))
    row = Row("job", "opus.waited_a_step", *values, "ns", at, about | {"n": found.n})
    measure.record([row])
    switching = f"{about['switching_ns'] / 1e6:g} ms of switching"
    measure.note(f"{about['mode']}, {switching}: the phases of a step wait {found}")


def printed(trained):
    return [(loss.rank, loss.step, loss.value) for loss in losses(trained)]


def violations(job, trained):
    found = audit(trained.rails.journal.events, trained.found, job.on_fabric.cabled_ports())
    return [str(violation) for violation in found]


def test_losses_are_those_of_a_mesh(job, tables, native, trained, record):
    """Losses equal those of a mesh to the last bit: sums of two commute, and the rest is copied."""
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
    """The recorded wire of the switch and the operations of ranks show no violation."""
    (switch,) = bench.switches
    recorder = record_wires(bench.clock, tmp_path)
    bench.switches[switch].close()  # the next command opens it again, and is recorded
    trained = job.train(script(3), tables, "provisioning")
    recorder.close()
    events = trained.rails.journal.events
    (trace,) = tmp_path.glob(f"*{switch}*")
    since = events[0].at
    pieces = tuple(piece for piece in read(trace).pieces if piece.at >= since)
    wire = traced(Transcript({}, pieces), switch, trained.found[switch])
    measured = {one.add for one in events if isinstance(one, Rewiring)}
    assert measured == {one.add for one in wire if isinstance(one, Rewiring) and one.add}
    ports = job.on_fabric.cabled_ports()
    assert not list(map(str, audit(with_operations(events, wire), trained.found, ports)))


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
def test_waits_by_switching(job, tables, bench, record, measure, mode):
    """On demand an operation waits for a whole change, provisioned for the part no window hides.

    The bounds, to within 10 % of the step, are N T_reconfig, and the sum of max(0, T_reconfig -
    T_window) over the changes of a step (Opus §4.2, §5.2). What a step waits has an interval of
    95 %, over steps.
    """
    (switch,) = bench.switches
    native = job.on_plan(script(FEW, *BATCH), job.fabric.plans["mesh"])
    for switching, steps in SWITCHING.items():
        bench.world.set_switching_time(switch, switching)
        trained = job.train(script(steps, *BATCH), tables, mode)
        took, found = changes(trained), shifts(trained, tables)
        # Both stages change to the pipeline together, but to data one after the other.
        lengths = [round(mean(took)) * (1 if one.dimension == ASYMMETRIC else 2) for one in found]
        bounds = [
            one.exposed(length) if mode == "provisioning" else length
            for one, length in zip(found, lengths, strict=True)
        ]
        about = {"network": "rails", "switching_ns": switching}
        at = job.fabric.bench.clock.now()

        def measured(quantity, values, at=at, about=about):
            return [Row("job", quantity, one, one, one, "ns", at, about) for one in values]

        a_step = sum(bounds) * SHIFTS // len(bounds)
        measure_wait(waits_by_step(trained, tables), at, about | {"mode": mode}, measure)
        record(
            [
                *rows(trained, about),
                *measured("opus.reconfiguration_time", took),
                *measured("opus.waited", [one.waited for one in found]),
                *measured("opus.wait_bound", bounds),
                *measured("opus.step_at_most", [one.latest + a_step for one in step_times(native)]),
            ]
        )
        assert not violations(job, trained)
        whole = sum(span.latest for span in step_times(trained))
        assert sum(one.waited for one in found) <= sum(bounds) + 0.1 * whole
    bench.world.set_switching_time(switch, min(SWITCHING))


def test_provisioning_hides_what_overlaps(job, bench, measure):
    """A script that computes between its phases waits less a step if circuits are provisioned.

    Both waits and their difference have intervals of 95 %, over steps (Opus §4.2).
    """
    (switch,) = bench.switches
    source = OVERLAPPED.read_text("utf-8")

    def overlapped(steps: int) -> Script:
        return Script(source, OVERLAPPED.name, ("--steps", str(steps)))

    phases, waited = job.profile(overlapped(4))[0], {}
    bench.world.set_switching_time(switch, HIDDEN)
    try:
        for mode in MODES:
            trained = job.train(overlapped(STEPS), phases, mode)
            assert not violations(job, trained)
            waited[mode] = waits_by_step(trained, phases)
            about = {"mode": mode, "switching_ns": HIDDEN, "script": OVERLAPPED.name}
            measure_wait(waited[mode], job.fabric.bench.clock.now(), about, measure)
    finally:
        bench.world.set_switching_time(switch, min(SWITCHING))
    saved = mean_less(waited["default"], waited["provisioning"])
    measure.note(f"provisioning saves {saved} a step at {HIDDEN / 1e6:g} ms of switching")
    assert saved.lower > 0, str(saved)


def test_control_at_no_switching(job, tables, record):
    """Control time in a step when switching takes no time.

    An upper bound, counted within the run: runs on the same machine differ by more.
    """
    mesh = job.fabric.plans["mesh"]
    alone = job.on_plan(script(STEPS), mesh)
    record(list(rows(alone, {"network": "mesh", "mode": "none"})))
    for mode in MODES:
        controlled = job.emulate(script(STEPS), tables, mode, mesh)
        assert printed(controlled) == printed(alone)
        at = job.fabric.bench.clock.now()
        steps = [(span.earliest + span.latest) // 2 for span in step_times(controlled)]
        shares = [
            took / (step - took)
            for took, step in zip(control(controlled, tables)[1:], steps, strict=True)
            if took < step
        ]
        assert len(shares) == len(steps)
        record(list(rows(controlled, {"network": "mesh", "mode": mode})))
        record([Row("job", "opus.control", n, n, n, "share", at, {"mode": mode}) for n in shares])


def test_training_goes_on_over_the_giant_ring(falling_silent, measure):
    """A silent switch leaves one ring of all ranks; the report states when and why."""
    fabric = falling_silent
    job = TrainingJob(fabric, fitting_job(fabric.testbed, "llama"))
    try:
        phases = job.profile(script(2))[0]
        before = job.on_plan(script(4), fabric.plans["mesh"])
        trained = job.train(script(4), phases, "default", retries=0)
    finally:
        job.close()
    measure.record(opus.rows(trained.rails.journal), bench=fabric.bench)
    incidents = trained.rails.journal.incidents
    for incident in incidents:
        measure.note(str(incident))
    assert [one.what for one in incidents][-1] == "giant ring reached"
    assert all("did not answer" in one.why for one in incidents)
    (rail,) = trained.rails.controller.rails
    assert isinstance(rail.topology, GiantRing)
    assert printed(trained) == printed(before)
    assert not violations(job, trained)
