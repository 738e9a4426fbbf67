"""Requests of a rank's shim, and those of the printed pseudocode."""

from dataclasses import dataclass, replace

import pytest

from lightrig.harness.systems.opus.planning.messages import (
    Failed,
    Granted,
    Release,
    Released,
    TopoWrite,
)
from lightrig.harness.systems.opus.planning.operations import Operation, OpusError, RailJob
from lightrig.harness.systems.opus.planning.schedule import PhaseTable, numbered
from lightrig.harness.systems.opus.planning.shim import Mode, ScheduleError, Shim
from lightrig.harness.systems.opus.planning.topology import GIANT_RING, Topology, TopologyId
from lightrig.suites.claims.opus.steps import phase_tables

SEND, GATHER = Operation("pp", 0, 0), Operation("dp", 0, 1)
BARRIER = Operation("world", 0, 1, purpose="management")
WITHIN = Operation("tp", 0, 2, purpose="scale-up")
TABLE = PhaseTable(numbered([SEND, GATHER, GATHER, SEND]), 2)
ALL_PIPELINE = TopologyId("00")


def shim(mode: Mode) -> Shim:
    return Shim(rank=3, stage=1, table=TABLE, mode=mode)


def granted(asked: Shim, topology: Topology = ALL_PIPELINE) -> Shim:
    return asked.receive(Granted(3, asked.turn, 0, topology))


def run_one(before: Shim, operation: Operation) -> tuple[Shim, list[object]]:
    """Announce, grant if it must be, start, end; everything that was said."""
    announced, _, asked = before.pre_comm(operation)
    ready = announced if announced.may_start else granted(announced)
    after, told = ready.started().post_comm(operation)
    return after, [*asked, *told]


def test_default_mode_asks_at_each_shift_and_each_send() -> None:
    now, said = shim("default"), []
    for position in range(8):
        operation = TABLE.at(position)
        assert operation is not None
        now, more = run_one(now, operation)
        said += more
    asks = [message for message in said if isinstance(message, TopoWrite)]
    assert [(ask.group, ask.index) for ask in asks] == [
        ("pp", 0), ("dp", 0), ("pp", 1), ("pp", 2), ("dp", 2), ("pp", 3)
    ]  # fmt: skip
    assert [ask.turn for ask in asks] == [1, 2, 3, 4, 5, 6]
    assert {(ask.rank, ask.stage) for ask in asks} == {(3, 1)}
    assert [type(message) for message in said[:4]] == [TopoWrite, Release] * 2


def test_provisioning_asks_once_what_came_before_is_done() -> None:
    now, said = run_one(shim("provisioning"), SEND)
    assert [(ask.group, ask.index) for ask in said if isinstance(ask, TopoWrite)] == [
        ("pp", 0), ("dp", 0)
    ]  # fmt: skip
    now = granted(now)
    announced, _, asked = now.pre_comm(GATHER)
    assert not asked
    assert announced.may_start


def test_the_second_operation_of_a_phase_rides_on_the_first_ones_grant() -> None:
    now = granted(run_one(shim("default"), SEND)[0].pre_comm(GATHER)[0]).started()
    second, _, asked = now.pre_comm(replace(GATHER, index=1))
    assert second.may_start
    assert not asked


def test_nothing_is_asked_for_while_an_operation_is_under_way() -> None:
    now = granted(shim("default").pre_comm(SEND)[0]).started()
    waiting, _, asked = now.pre_comm(GATHER)
    assert not asked
    assert not waiting.may_start
    after, asked_now = waiting.post_comm(SEND)
    assert [(ask.group, ask.index) for ask in asked_now if isinstance(ask, TopoWrite)] == [
        ("dp", 0)
    ]
    assert granted(after).may_start


def test_barriers_and_what_stays_in_a_server_go_their_own_ways() -> None:
    for operation, network in ((BARRIER, "front end"), (WITHIN, "scale-up")):
        after, chosen, asked = shim("default").pre_comm(operation)
        assert (after, chosen, asked) == (shim("default"), network, ())
        assert after.post_comm(operation) == (after, ())


def test_late_and_repeated_answers_change_nothing() -> None:
    asked = shim("default").pre_comm(SEND)[0]
    for answer in (Granted(3, 0, 0, ALL_PIPELINE), Granted(3, 7, 0, ALL_PIPELINE), Released(3, 1)):
        assert asked.receive(answer) == asked
    ready = granted(asked)
    assert granted(ready) == ready
    released = ready.started().post_comm(SEND)[0]
    assert granted(released) == released
    assert released.receive(Released(3, 1)).pending is None


def test_an_unanswered_message_is_repeated() -> None:
    asked, _, sent = shim("default").pre_comm(SEND)
    assert asked.overdue() == sent
    assert granted(asked).overdue() == ()


def test_the_framework_is_notified() -> None:
    asked = shim("default").pre_comm(SEND)[0]
    assert "giant ring" in granted(asked, GIANT_RING).notice
    lost = asked.receive(Failed(3, 1, "no rail is left: dark"))
    assert (lost.failed, lost.notice) == (True, "no rail is left: dark")


def test_another_operation_than_the_profiled_one_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="rank 3 issued dp#0, expected pp#0"):
        shim("default").pre_comm(GATHER)
    with pytest.raises(OpusError, match="never started"):
        shim("default").post_comm(SEND)
    with pytest.raises(OpusError, match="may not start"):
        shim("default").started()
    with pytest.raises(OpusError, match="has no place in the table"):
        PhaseTable((BARRIER,))


def test_two_microbatches_shift_six_times_on_both_stages() -> None:
    """As the published runs of two stages do."""
    tables = phase_tables(RailJob.grid("llama", 2, [2]), 1, microbatches=2, gathers=3)
    assert {table.shifts for table in tables} == {6}


# ------------------------------------------------------------------------ as it is printed


@dataclass
class Printed:
    """Algorithms 1 and 2 of the paper by the letter, for one rank alone; a phase is a length."""

    phases: list[int]
    busy: bool = False
    stage: int = 0
    index: int = 0

    def bounds(self, stage: int) -> tuple[int, int]:
        first = sum(self.phases[:stage])
        return first, first + self.phases[stage] - 1 if stage < len(self.phases) else -1

    def pre_comm(self) -> bool:
        """Whether the operation goes on; False where it waits until the topology is free."""
        if self.busy:
            return False
        if self.index == self.bounds(self.stage)[0]:  # phase_change_before
            self.stage += 1
            self.busy = True
        self.index += 1
        return True

    def post_comm(self, *, stages_back: int) -> None:
        end = self.bounds(self.stage - stages_back)[1]
        if self.index - 1 == end:  # phase_change_after
            self.busy = False


@pytest.mark.parametrize("stages_back", [0, 1], ids=["as printed", "with the stage before"])
def test_the_printed_pseudocode_blocks_in_a_phase_of_two(stages_back: int) -> None:
    """It marks the topology busy at a phase's first operation, and frees it after the last."""
    printed = Printed([2, 1])
    assert printed.pre_comm()
    printed.post_comm(stages_back=stages_back)
    assert not printed.pre_comm(), "and nobody is left who could set the topology free"

    table = PhaseTable(numbered([GATHER, GATHER, SEND]), 1)
    ours = Shim(0, 0, table)
    for operation in table.all():
        announced, _, _ = ours.pre_comm(operation)
        if not announced.may_start:
            announced = announced.receive(Granted(0, announced.turn, 0, ALL_PIPELINE))
        ours, _ = announced.started().post_comm(operation)
    assert table.at(ours.position) is None
