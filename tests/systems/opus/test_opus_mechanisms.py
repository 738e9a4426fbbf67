"""Mechanisms of Opus' paper: each test shows the claims that mark it.

The control plane runs in virtual time, against an ideal switch, with operations and computation of
10 ms; an audit reads what happened.
"""

from collections import Counter
from itertools import combinations, product

import pytest

from lightrig.harness.systems.opus.planning.messages import Program, Rewire
from lightrig.harness.systems.opus.planning.operations import (
    ASYMMETRIC,
    Operation,
    RailJob,
    neighbours,
)
from lightrig.harness.systems.opus.planning.orchestrator import Orchestrator
from lightrig.harness.systems.opus.planning.run_events import Confirmed, Rewiring
from lightrig.harness.systems.opus.planning.schedule import PhaseTable, numbered
from lightrig.harness.systems.opus.planning.shim import Shim
from lightrig.harness.systems.opus.planning.topology import TopologyId
from lightrig.harness.systems.opus.planning.wiring import Attachment, RailWiring
from lightrig.harness.systems.opus.runtime.rails import Rails
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.suites.claims.opus.auditor import audit
from lightrig.suites.claims.opus.emulation import emulate
from lightrig.suites.claims.opus.steps import phase_tables, ring

MS = 1_000_000
WINDOW = 10 * MS
MODES = ("default", "provisioning")
SAFETY = ("under reconfiguration", "no light path", "under traffic")
REDUNDANT = ("changes nothing", "never used", "disturbed")


def claim(name):
    return pytest.mark.claim(f"opus:{name}")


def attached(job, first=1):
    """Two ports of a rail's switch for each rank, from `first` on."""
    return {
        rank: (Attachment(port, 1000 + port), Attachment(port + 1, 1001 + port))
        for rank, port in zip(job.ranks(0), range(first, 1000, 2), strict=False)
    }


def run(job, tables, mode, switching=50 * MS):
    """Return the rail after all steps of `tables`; its switch takes `switching` ns."""
    clock = VirtualClock()
    shims = [Shim(rank, job.stage_of[rank], table, mode) for rank, table in enumerate(tables)]
    wiring = RailWiring.of(job, 0, attached(job))
    rails = Rails(
        clock, job, shims, [wiring], lambda _: clock.sleep(switching), ["ocs"], gathering=0
    )
    programs = {rank: table.all() for rank, table in enumerate(tables)}
    emulate(rails, programs, transfer=WINDOW, compute=WINDOW)
    return rails


def commands(rails):
    return sum(isinstance(event, Rewiring) for event in rails.journal.events)


def violations(rails, stages, events=None):
    (wiring,) = rails.wirings
    begun = {"ocs": wiring.circuits(TopologyId.uniform(stages, ASYMMETRIC))}
    found = audit(events or rails.journal.events, begun, {"ocs": wiring.ports()})
    return {one.rule for one in found}


@pytest.fixture(scope="module", params=list(product((2, 3, 4), MODES)), ids=str)
def job(request):
    """Return a job of PP 2 to 4 and DP 2 after two steps, in either mode, and its stages."""
    stages, mode = request.param
    made = RailJob.grid("emulated", stages, [2])
    return run(made, phase_tables(made, 2, microbatches=2, gathers=2), mode), stages


@claim("safety")
def test_no_operation_under_change_and_no_change_under_an_operation(job):
    rails, stages = job
    assert commands(rails) > 0
    assert not violations(rails, stages) & set(SAFETY)


@claim("minimal")
def test_no_command_changes_nothing_is_never_used_or_disturbs_a_stage(job):
    rails, stages = job
    assert not violations(rails, stages) & set(REDUNDANT)


def test_changes_that_no_switch_confirms_are_violations(job):
    """Operations over such circuits are on a topology under change."""
    rails, stages = job
    events = [one for one in rails.journal.events if not isinstance(one, Confirmed)]
    assert violations(rails, stages, events) & set(SAFETY)


@claim("pipeline-alone")
@pytest.mark.parametrize("mode", MODES)
def test_where_only_the_pipeline_crosses_servers_nothing_is_reconfigured(mode):
    made = RailJob.grid("pipeline", 4, [1])
    tables = phase_tables(made, 2, microbatches=4, gathers=0, reduces=0)
    rails = run(made, tables, mode)
    assert rails.journal.events
    assert commands(rails) == 0


@pytest.fixture(scope="module")
def alternating():
    """Two parallelisms in turn: PP 1, DP 2 and CP 2."""
    made = RailJob.grid("alternating", 1, [2, 2])
    tables = [
        PhaseTable(numbered([Operation(ring(made, rank, digit), 0, digit) for digit in (1, 2)]), 3)
        for rank in range(len(made.stage_of))
    ]
    return made, tables


def waits(alternating, mode, switching):
    """Return how long operations waited, but for the first ones, which had no phase before."""
    found = run(*alternating, mode, switching).journal.waits
    begun = min(wait.at for wait in found)
    return [wait.length for wait in found if wait.at > begun]


@claim("exposed-delay")
@pytest.mark.parametrize("switching", [0, 5, 10, 20, 100, 1000], ids="{} ms".format)
def test_provisioned_operations_wait_for_what_their_window_does_not_hide(alternating, switching):
    found = waits(alternating, "provisioning", switching * MS)
    assert found
    assert all(abs(length - max(0, switching * MS - WINDOW)) <= MS for length in found)


@pytest.mark.parametrize("switching", [20, 100], ids="{} ms".format)
def test_without_provisioning_no_window_hides_anything(alternating, switching):
    assert set(waits(alternating, "default", switching * MS)) == {switching * MS}


@claim("undisturbed")
def test_an_event_moves_circuits_of_its_stages_alone():
    """The stage of a port by hand: ports 1 to 16 are of ranks 0 to 7, two ranks a stage."""
    made, second = RailJob.grid("one", 4, [2]), RailJob.grid("other", 2, [2])
    wiring = RailWiring.of(made, 0, attached(made))
    beside = RailWiring.of(second, 0, attached(second, 101))
    stage_of = {1 + 2 * rank + port: rank // 2 for rank in range(8) for port in (0, 1)}
    topologies = [TopologyId("".join(digits)) for digits in product("01", repeat=4)]
    moved = Counter()
    for before, after in product(topologies, repeat=2):
        if not (stages := before.rewired(after)):
            continue
        jobs = {"one": (wiring, before), "other": (beside, TopologyId("00"))}
        orchestrator = Orchestrator.of(0, jobs)
        _, sent = orchestrator.receive(Program(0, "one", 1, 1, after, stages))
        for order in (one for one in sent if isinstance(one, Rewire)):
            for circuit in order.remove | order.add:
                ends = {stage_of[circuit.ingress], stage_of[circuit.egress - 1000]}
                assert ends & set(stages), (before, after, circuit)
                moved[before, after] += 1
        assert moved[before, after] or wiring.circuits(before) == wiring.circuits(after)
    assert len(moved) > 100


@claim("digits-of-send")
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_send_changes_at_most_two_digits(stages):
    """Those of its two stages, and each that was another parallelism's."""
    most = 0
    for digits in product("012", repeat=stages):
        topology = TopologyId("".join(digits))
        for pair in neighbours(stages):
            wanted = topology.with_stages(dict.fromkeys(pair, ASYMMETRIC))
            changed = {stage for stage in pair if digits[stage] != "0"}
            assert set(topology.changed(wanted)) == changed
            most = max(most, len(changed))
    assert most == 2


@claim("groups")
@pytest.mark.parametrize("shape", list(product((2, 3, 4), repeat=3)), ids=str)
def test_groups_of_three_dimensions(shape):
    """P1 P2 + P2 P3 + P3 P1: one for each line; a pipeline is a ring of pairs of stages."""
    stages, first, second = shape
    groups = RailJob.grid("grid", stages, [first, second]).groups.values()
    kinds = Counter(group.dimension == ASYMMETRIC for group in groups)
    lines = {frozenset(group.ranks) for group in groups if group.dimension != ASYMMETRIC}
    assert len(lines) == kinds[False] == stages * first + stages * second
    assert kinds[True] == (stages if stages > 2 else 1) * first * second
    assert all(len(one & other) <= 1 for one, other in combinations(lines, 2))
