"""Opus acting in time: emulated ranks on a clock, on nothing, and on a simulated Polatis."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import cast

import pytest
from systems.opus.opus_world import attachments

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.systems.opus.measurements.replay import replayed
from lightrig.harness.systems.opus.planning.controller import Controller
from lightrig.harness.systems.opus.planning.gathering import GATHERING
from lightrig.harness.systems.opus.planning.messages import Rewire
from lightrig.harness.systems.opus.planning.operations import Operation, OpusError, RailJob
from lightrig.harness.systems.opus.planning.run_events import Ended, Rewiring
from lightrig.harness.systems.opus.planning.schedule import PhaseTable
from lightrig.harness.systems.opus.planning.shim import Mode, Shim
from lightrig.harness.systems.opus.planning.topology import GIANT_RING, GiantRing, TopologyId
from lightrig.harness.systems.opus.planning.wiring import RailWiring
from lightrig.harness.systems.opus.runtime.controlled_ranks import ControlledRanks
from lightrig.harness.systems.opus.runtime.on_fabric import FabricRails, attachments_of, fitting_job
from lightrig.harness.systems.opus.runtime.rails import Rails, RailsLostError
from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.jobs.traffic.training import LocalBegin, LocalEnd, TrainingRank, Wanted
from lightrig.suites.claims.opus.auditor import audit
from lightrig.suites.claims.opus.emulation import emulate
from lightrig.suites.claims.opus.rewiring import rows
from lightrig.suites.claims.opus.steps import pair, phase_tables, ring
from lightrig.testbeds import Circuit, LightrigError, load

HOME = Path(__file__).parents[3] / "testbeds"
MS = 1_000_000
JOB = RailJob.grid("llama", 2, [2], rails=2)


class Switches:
    """Takes `delay` ns for each change; refuses those that `refuses` names, as often as it says."""

    def __init__(self, clock: VirtualClock, delay: int = 50 * MS, **refuses: int) -> None:
        self.clock, self.delay, self.refuses = clock, delay, refuses
        self.done: list[Sequence[Rewire]] = []

    def apply(self, rewires: Sequence[Rewire]) -> None:
        self.clock.sleep(self.delay)
        for rewire in rewires:
            left = self.refuses.get(f"rail{rewire.rail}", 0)
            if left:
                self.refuses[f"rail{rewire.rail}"] = left - 1
                raise LightrigError(f"ocs{rewire.rail} denied a command\nwith details")
        self.done.append(rewires)


def rails_on(
    switches: Switches, mode: Mode, steps: int = 2, switch: str = ""
) -> tuple[Rails, dict[int, list]]:
    tables = phase_tables(JOB, steps, microbatches=2, gathers=3)
    shims = [Shim(rank, JOB.stage_of[rank], table, mode) for rank, table in enumerate(tables)]
    wirings = [
        RailWiring.of(JOB, rail, attachments(JOB, rail, 1 + 8 * rail if switch else 1))
        for rail in range(2)
    ]
    names = [switch or f"ocs{rail}" for rail in range(2)]
    rails = Rails(switches.clock, JOB, shims, wirings, switches.apply, names)
    return rails, {rank: table.all() for rank, table in enumerate(tables)}


def one_ring(job: RailJob, rank: int) -> Operation:
    return Operation(ring(job, rank, 1), 0, 1)


def one_ring_each(clock: VirtualClock, job: RailJob, commands: int = 1) -> tuple[Rails, Switches]:
    """All stages in the pipeline, and every rank with one operation of its ring ahead."""
    shims = [
        Shim(rank, stage, PhaseTable((one_ring(job, rank),), 1), "default")
        for rank, stage in enumerate(job.stage_of)
    ]
    switches, wiring = Switches(clock), RailWiring.of(job, 0, attachments(job, 0))
    return Rails(clock, job, shims, [wiring], switches.apply, ["ocs0"], commands=commands), switches


def violations(rails: Rails, *pardoned: str) -> list[str]:
    begun = TopologyId("00")
    found = {
        f"ocs{rail}": RailWiring.of(JOB, rail, attachments(JOB, rail)).circuits(begun)
        for rail in range(2)
    }
    return [str(v) for v in audit(rails.journal.events, found) if v.rule not in pardoned]


def test_provisioning_hides_switching_behind_what_ranks_compute(clock: VirtualClock) -> None:
    took = {}
    for mode in ("default", "provisioning"):
        rails, programs = rails_on(Switches(clock), mode)
        began = clock.now()
        emulate(rails, programs, transfer=20 * MS, compute=100 * MS)
        took[mode] = clock.now() - began
        assert violations(rails) == []
    operations = len(programs[0])
    assert took["provisioning"] < took["default"]
    assert took["provisioning"] >= operations * 120 * MS


@pytest.mark.parametrize("mode", ["default", "provisioning"])
def test_without_delay_the_control_plane_costs_no_time(clock: VirtualClock, mode: Mode) -> None:
    rails, programs = rails_on(Switches(clock, delay=0), mode)
    began = clock.now()
    emulate(rails, programs, transfer=20 * MS)
    assert violations(rails) == []
    waits = [wait.length for wait in rails.journal.waits if wait.rank == 0]
    assert clock.now() - began >= len(programs[0]) * 20 * MS
    assert len(waits) == len(programs[0])


@pytest.mark.parametrize("stages", [2, 4, 8, 16])
def test_stages_that_leave_the_pipeline_together_wait_one_switching_time(
    clock: VirtualClock, stages: int
) -> None:
    """One change for all of them (Opus §5.2), whatever the depth of the pipeline."""
    job = RailJob.grid("together", stages, [2])
    rails, switches = one_ring_each(clock, job)
    emulate(rails, {rank: [one_ring(job, rank)] for rank in range(2 * stages)}, transfer=20 * MS)
    assert {wait.length for wait in rails.journal.waits} == {switches.delay + GATHERING}
    assert len(switches.done) == 1
    wiring = rails.wirings[0]
    found = {"ocs0": wiring.circuits(TopologyId("0" * stages))}
    assert audit(rails.journal.events, found) == []


@pytest.mark.parametrize(("commands", "waited", "slower"), [(2, 51, 201), (1, 81, 381)])
def test_stages_without_a_common_port_change_side_by_side(
    clock: VirtualClock, commands: int, waited: int, slower: int
) -> None:
    """Stage 2 leaves 20 ms after stage 0; only one command at a time makes it wait for that.

    So it does in a replay with changes of 200 ms: one command from 1 to 201, the next to 401.
    """
    job = RailJob.grid("apart", 4, [2])
    rails, switches = one_ring_each(clock, job, commands=commands)
    leaving = {
        rank: job.stage_of[rank] * 10 * MS for rank in range(8) if job.stage_of[rank] % 2 == 0
    }

    def leave(rank: int, at: int) -> None:
        operation = one_ring(job, rank)
        clock.sleep(at)
        rails.before(rank, operation)
        rails.after(rank, operation)

    began = clock.now()
    rails.run([partial(leave, rank, at) for rank, at in leaving.items()])
    waits = {job.stage_of[wait.rank]: wait.length for wait in rails.journal.waits}
    assert waits == {0: 51 * MS, 2: waited * MS}
    # When all agreed, were heard, nothing was in the way, the switch was asked, and sent to.
    changes = [event for event in rails.journal.events if isinstance(event, Rewiring)]
    moments = [(one.agreed, one.heard, one.due, one.wanted, one.at) for one in changes]
    assert [tuple((at or 0) - began for at in each) for each in moments] == [
        (0, 0, 0, 1 * MS, 1 * MS),
        (20 * MS, 20 * MS, 20 * MS, (waited - 30) * MS, (waited - 30) * MS),
    ]
    replay = replayed(rails.journal, 150 * MS).waits.values()
    assert {job.stage_of[wait.rank]: wait.length for wait in replay} == {
        0: 201 * MS,
        2: slower * MS,
    }
    assert [len(rewires) for rewires in switches.done] == [1, 1]
    held = {"ocs0": rails.wirings[0].circuits(TopologyId("0000"))}
    assert audit(rails.journal.events, held) == []


def test_neighbouring_stages_without_a_link_change_side_by_side(clock: VirtualClock) -> None:
    """Stage 0 leaves the pipeline; 10 ms later stages 1 and 2 enter it, beside it."""
    job = RailJob.grid("side by side", 4, [2])
    sent = {rank: Operation(pair(job, rank, 3 - job.stage_of[rank]), 0, 0) for rank in range(2, 6)}
    wanted = {rank: one_ring(job, rank) for rank in range(2)} | sent
    shims = [
        Shim(rank, stage, PhaseTable((wanted.get(rank, one_ring(job, rank)),), 1), "default")
        for rank, stage in enumerate(job.stage_of)
    ]
    begun = TopologyId("0111")
    switches, wiring = Switches(clock), RailWiring.of(job, 0, attachments(job, 0))
    rails = Rails(
        clock, job, shims, [wiring], switches.apply, ["ocs0"], Controller.of(job, begun), commands=2
    )

    def change(rank: int) -> None:
        clock.sleep(10 * MS if rank in sent else 0)
        rails.before(rank, wanted[rank])
        rails.after(rank, wanted[rank])

    rails.run([partial(change, rank) for rank in wanted])
    waits = {job.stage_of[wait.rank]: wait.length for wait in rails.journal.waits}
    assert waits == {0: 51 * MS, 1: 51 * MS, 2: 51 * MS}
    assert audit(rails.journal.events, {"ocs0": wiring.circuits(begun)}) == []
    assert rails.controller.rails[0].topology == TopologyId("1001")


def test_neighbouring_stages_change_one_after_the_other(clock: VirtualClock) -> None:
    """They share a link, and so ports, which one command must have left before the next."""
    job = RailJob.grid("beside", 4, [2])
    rails, switches = one_ring_each(clock, job, commands=4)

    def leave(rank: int) -> None:
        operation = one_ring(job, rank)
        clock.sleep(job.stage_of[rank] * 10 * MS)
        rails.before(rank, operation)
        rails.after(rank, operation)

    rails.run([partial(leave, rank) for rank in range(4)])
    waits = {job.stage_of[wait.rank]: wait.length for wait in rails.journal.waits}
    assert waits == {0: 51 * MS, 1: 92 * MS}
    assert len(switches.done) == 2


def test_rails_on_one_switch_change_in_one_command(clock: VirtualClock) -> None:
    switches = Switches(clock)
    rails, programs = rails_on(switches, "default", switch="ocs0")
    emulate(rails, programs, transfer=20 * MS)
    assert {len(rewires) for rewires in switches.done} == {2}


def test_a_rail_that_fails_does_not_fail_the_rail_beside_it(clock: VirtualClock) -> None:
    """Both are refused in one command, then each has a command of its own."""
    switches = Switches(clock, rail0=3)
    rails, programs = rails_on(switches, "default", switch="ocs0")
    emulate(rails, programs, transfer=20 * MS)
    assert isinstance(rails.controller.rails[0].topology, GiantRing)
    assert isinstance(rails.controller.rails[1].topology, TopologyId)


def test_a_refusal_is_tried_again(clock: VirtualClock) -> None:
    rails, programs = rails_on(Switches(clock, rail0=2), "default")
    emulate(rails, programs, transfer=20 * MS)
    assert violations(rails) == []
    assert [one.what for one in rails.journal.incidents] == [
        "attempt 2 at version 1", "attempt 3 at version 1"
    ]  # fmt: skip
    assert {one.why for one in rails.journal.incidents} == {"ocs0 denied a command"}
    assert rails.controller.rails[0].topology != GIANT_RING


def test_a_rail_that_keeps_refusing_becomes_a_giant_ring(clock: VirtualClock) -> None:
    rails, programs = rails_on(Switches(clock, rail0=3), "provisioning")
    emulate(rails, programs, transfer=20 * MS)
    assert violations(rails) == []
    assert isinstance(rails.controller.rails[0].topology, GiantRing)
    assert isinstance(rails.controller.rails[1].topology, TopologyId)
    reached = [one for one in rails.journal.incidents if one.what == "giant ring reached"]
    assert [one.rail for one in reached] == [0]
    assert "after the job began: giant ring reached" in str(reached[0])
    assert "ocs0 denied a command" in str(reached[0])


def test_a_dead_rail_is_carried_by_the_other(clock: VirtualClock) -> None:
    rails, programs = rails_on(Switches(clock, rail0=6), "default")
    emulate(rails, programs, transfer=20 * MS)
    assert violations(rails, "never confirmed") == []
    assert rails.controller.rails[0].state == "dead"
    assert set(rails.controller.carrier) == {1}
    assert isinstance(rails.controller.rails[1].topology, GiantRing)


def test_without_a_rail_all_ranks_are_notified(clock: VirtualClock) -> None:
    rails, programs = rails_on(Switches(clock, rail0=99, rail1=99), "default")
    with pytest.raises(RailsLostError, match=r"no rail is left: ocs. denied|lost rank"):
        emulate(rails, programs, transfer=20 * MS)


def test_rows_say_how_long_and_why(clock: VirtualClock) -> None:
    rails, programs = rails_on(Switches(clock, rail0=3), "default")
    emulate(rails, programs, transfer=20 * MS)
    kept = list(rows(rails.journal))
    rewirings = [row for row in kept if row.quantity == "opus.rewiring"]
    assert {row.value for row in rewirings if row.subject == "ocs1"} == {50 * MS}
    incidents = [row for row in kept if row.quantity == "opus.incident"]
    assert incidents[-1].conditions == {
        "what": "giant ring reached",
        "why": "ocs0 denied a command",
    }
    waits = [row for row in kept if row.quantity == "opus.wait"]
    assert len(waits) == sum(map(len, programs.values()))


def test_the_system_clock_will_do() -> None:
    clock = SystemClock()
    rails, programs = rails_on(Switches(clock, delay=0), "provisioning", steps=1)
    emulate(rails, programs, transfer=0)
    clock.close()
    assert violations(rails) == []


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bound = bind(load(HOME / "opus.yaml"), "simulated", 1)
    yield bound
    bound.close()


def test_on_a_simulated_polatis(bench: Bench) -> None:
    fabric = Fabric(bench)
    found = bench.switches["ocs"].circuits()
    job = fitting_job(bench.testbed, "llama")
    on_fabric = FabricRails(fabric, job)
    on_fabric.set(TopologyId("00"))
    tables = phase_tables(job, 1, microbatches=2)
    shims = [Shim(rank, job.stage_of[rank], table) for rank, table in enumerate(tables)]
    rails = Rails(
        bench.clock, job, shims, on_fabric.wirings, on_fabric.apply, on_fabric.switches,
        Controller.of(job, TopologyId("00")),
    )  # fmt: skip
    held = on_fabric.circuits()
    emulate(rails, {r: t.all() for r, t in enumerate(tables)}, transfer=MS)
    assert audit(rails.journal.events, held, on_fabric.cabled_ports()) == []
    rewirings = [one for one in rails.journal.events if isinstance(one, Rewiring)]
    # A stage of two ranks alone, or both of a rail's; never the other rail's.
    assert {len(one.add) for one in rewirings} <= {4, 8}
    assert bench.switches["ocs"].circuits() == on_fabric.circuits()["ocs"]
    fabric.restore()
    assert bench.switches["ocs"].circuits() == found


def test_a_change_is_as_many_commands_as_the_switch_is_sent(bench: Bench) -> None:
    """One circuit in the place of a pipeline's leaves ports free; as many as before do not."""
    fabric, switch = Fabric(bench), bench.switches["ocs"]
    on_fabric = FabricRails(fabric, fitting_job(bench.testbed, "llama"))
    on_fabric.set(TopologyId("00"))
    pipeline = on_fabric.wirings[0].circuits(TopologyId("00"))
    one = frozenset({min(on_fabric.wirings[0].circuits(TopologyId("11")))})
    none: frozenset[Circuit] = frozenset()
    for remove, add, count in ((pipeline, one, 2), (one, pipeline, 1), (pipeline, none, 1)):
        rewires = [Rewire(0, "llama", 1, 1, remove, add)]
        found = on_fabric.commands(rewires)
        last = switch.wire()[-1]
        on_fabric.apply(rewires)
        lines = switch.wire()
        sent = [line for line in lines[lines.index(last) :] if re.search(r"> (ENT|DLT)-", line)]
        assert found == len(sent) == count
    fabric.restore()


def test_a_job_that_does_not_fit() -> None:
    with pytest.raises(OpusError, match="no NIC for rank 4"):
        attachments_of(load(HOME / "opus.yaml"), RailJob.grid("large", 4, [2]), 0)


def planning_calls(run: Callable[[], object], module: str = "") -> list[str]:
    """Run it; return the functions of the control plane that it called."""
    called: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and f".opus.planning.{module}" in frame.f_globals["__name__"]:
            called.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return called


def still_pair(clock: VirtualClock) -> tuple[Rails, list[Operation]]:
    """Two stages that have 60 messages in circuits that stay."""
    job = RailJob.grid("job", 2, [1])
    (name,) = [name for name, group in job.groups.items() if group.dimension == 0]
    table = PhaseTable((Operation(name, 0, 0), Operation(name, 1, 0)), steps=30, still=True)
    shims = [Shim(rank, stage, table, "default") for rank, stage in enumerate(job.stage_of)]
    wiring = RailWiring.of(job, 0, attachments(job, 0))
    return Rails(clock, job, shims, [wiring], Switches(clock).apply, ["ocs0"]), table.all()


def test_the_controller_is_asked_nothing_where_ranks_have_nothing_to_send(
    clock: VirtualClock,
) -> None:
    """After the first message of circuits that stay no shim sends anything."""
    rails, (first, *later) = still_pair(clock)
    for rank in (0, 1):
        rails.announce(rank, first, lambda: None)
    for rank in (0, 1):
        rails.begin(rank, first)
        rails.after(rank, first)

    def messages(operations: Sequence[Operation]) -> None:
        for operation in operations:
            for rank in (0, 1):
                rails.began(rank, operation, clock.now(), clock.now())
                rails.after(rank, operation, clock.now())

    assert planning_calls(lambda: messages(later[:-1]), "controller") == []
    assert len(rails.journal.waits) == 2 * 59
    messages(later[-1:])  # circuits are given back
    assert not any(rails.controller.holding)


@pytest.mark.parametrize("still", [True, False])
def test_rails_whose_circuits_stay_hear_of_messages_when_somebody_asks(
    clock: VirtualClock, still: bool
) -> None:
    """Until then the harness computes nothing for them, which ranks beside it would wait for.

    The second message of rank 1, at 40 to 45, has not ended yet when it is asked what runs.
    """
    rails, (first, second, *_) = still_pair(clock)
    permitted: list[tuple[int, int, str | None]] = []

    class Rank:
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def go(self, number: int, refused: str | None = None) -> None:
            permitted.append((self.rank, number, refused))

    ranks = cast("list[TrainingRank]", [Rank(0), Rank(1)])
    heard = ControlledRanks(lambda rank, line: None, rails, ranks, dict, still=still)
    wanted = [Wanted(each.group, each.index, "send", 100) for each in (first, second)]
    for rank in (0, 1):
        heard.wants(rank, 0, wanted[0])
    heard.begin()
    assert sorted(permitted) == [(0, 0, None), (1, 0, None)]
    clock.sleep(100)
    now = clock.now()
    at = [Span(now - back, now - back) for back in (60, 55)]
    begun = [LocalEnd(0, at[0]), LocalBegin(1, wanted[1], *at)]

    def ran() -> None:
        heard.ran(0, [*begun, LocalEnd(1, at[1])])
        heard.ran(1, begun)

    assert bool(planning_calls(ran)) is not still
    assert len(rails.journal.waits) == (2 if still else 4)
    assert heard.unfinished() == {1: str(second)}
    assert [wait.length for wait in rails.journal.waits] == [0, 0, 5, 5]
    heard.ran(1, [LocalEnd(1, at[1])])
    heard.catch_up()
    assert heard.unfinished() == {}
    ends = [event for event in rails.journal.events if isinstance(event, Ended)]
    assert sorted((end.rank, now - end.at) for end in ends) == [(0, 55), (0, 60), (1, 55), (1, 60)]
