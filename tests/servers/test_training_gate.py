"""Gate of a rank's operations: counted by group, joined where a stage sends and receives."""

import threading
from typing import Any

import pytest

from lightrig.instruments.jobs.programs.training_gate import Gate, RefusedError

GROUPS = {"data": (0, 1), "pipeline": (0, 2)}


class Rank:
    """A gate and its events.

    permits: whether what it wants is permitted at once; refused: why not.
    """

    def __init__(
        self, *, gated: bool = True, permits: bool = True, refused: str | None = None, **more: Any
    ) -> None:
        self.events: list[dict] = []
        self.wanted = threading.Event()
        self.permits, self.refused = permits, refused
        self.gate = Gate(GROUPS, self._emit, gated=gated, **more)

    def _emit(self, event: dict) -> None:
        self.events.append(event)
        if "wants" in event:
            self.wanted.set()
            if self.permits:
                self.gate.go(event["wants"], self.refused)

    def ended(self) -> list[int]:
        return [each["ended"] for each in self.events if "ended" in each]


@pytest.fixture
def free() -> Rank:
    """A rank whose operations are permitted at once."""
    return Rank()


def test_operations_are_counted_by_their_group(free: Rank) -> None:
    gate = free.gate
    for kind, ranks in (("allreduce", (1, 0)), ("send", (0, 2)), ("allreduce", (0, 1))):
        number = gate.begin(kind, ranks, 8)
        gate.waited_for(number)
        gate.done(number)
    assert [one[:4] for one in gate.operations] == [
        ["data", 0, "allreduce", 8],
        ["pipeline", 0, "send", 8],
        ["data", 1, "allreduce", 8],
    ]
    assert all(0 < asked <= began <= ended for *_, asked, began, ended, _, _ in gate.operations)


def test_gated_operation_waits_for_permission() -> None:
    rank, begun = Rank(permits=False), threading.Event()

    def run() -> None:
        rank.gate.begin("allreduce", (0, 1), 4)
        begun.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert rank.wanted.wait(30)
    assert not begun.is_set()
    assert rank.events == [{"wants": 0, "operation": ["data", 0, "allreduce", 4]}]
    rank.gate.go(0, None)
    thread.join()
    assert begun.is_set()


def test_refused_operation_raises_the_reason() -> None:
    with pytest.raises(RefusedError, match="no rail is left"):
        Rank(refused="no rail is left").gate.begin("allreduce", (0, 1), 4)


def test_ranks_that_no_rail_joins_are_named(free: Rank) -> None:
    with pytest.raises(RefusedError, match=r"allreduce among ranks \[0, 3\].*data \[0, 1\]"):
        free.gate.begin("allreduce", (3, 0), 4)
    assert not free.events


def test_calls_before_the_first_wait_are_one_operation(free: Rank) -> None:
    gate = free.gate
    there = gate.begin("send", (0, 2), 3)
    assert gate.begin("recv", (2, 0), 4) == there
    gate.done(there)
    gate.done(there)
    assert free.ended() == []  # more might be begun
    gate.waited_for(there)
    gate.waited_for(there)
    assert free.ended() == [there]
    assert gate.operations[there][3] == 7
    again = gate.begin("send", (0, 2), 3)
    assert gate.operations[again][:2] == ["pipeline", 1]


def test_an_operation_of_another_group_ends_the_joining(free: Rank) -> None:
    gate = free.gate
    sent = gate.begin("send", (0, 2), 3)
    gate.done(sent)
    gate.begin("allreduce", (0, 1), 3)
    assert free.ended() == [sent]
    assert gate.begin("send", (0, 2), 3) != sent


def test_an_operation_ends_when_its_last_part_does(free: Rank) -> None:
    gate = free.gate
    both = gate.begin("send", (0, 2), 3)
    gate.begin("recv", (0, 2), 3)
    gate.waited_for(both)
    gate.done(both)
    assert free.ended() == []
    gate.done(both)
    assert free.ended() == [both]
    gate.waited_for(both)
    assert free.ended() == [both]


def test_watched_rank_sends_no_events() -> None:
    rank = Rank(gated=False)
    number = rank.gate.begin("allreduce", (0, 1), 4)
    rank.gate.done(number)
    assert rank.events == []
    *_, asked, began, ended, _, _ = rank.gate.operations[number]
    assert asked == began <= ended


PHASES = {
    "first": [["data", True, 1], ["data", False, 1], ["pipeline", True, 1]],
    "then": [["data", True, 1], ["data", False, 1], ["pipeline", True, 1]],
}


@pytest.fixture
def deciding() -> Rank:
    """A rank that knows its phases: two collectives, one send, and again."""
    return Rank(phases=PHASES)


def test_a_rank_decides_itself_within_a_phase(deciding: Rank) -> None:
    """It says nothing until its phase is over, and then all that has run."""
    gate = deciding.gate
    first, second = (gate.begin("allreduce", (0, 1), 4) for _ in range(2))
    gate.done(first)
    assert [next(iter(event)) for event in deciding.events] == ["wants"]
    gate.done(second)
    (ran,) = (event["ran"] for event in deciding.events if "ran" in event)
    assert [entry[:2] for entry in ran] == [["began", 1], ["ended", 0], ["ended", 1]]
    assert ran[0][2] == ["data", 1, "allreduce", 4]
    sent = gate.begin("send", (0, 2), 4)
    gate.waited_for(sent)
    gate.done(sent)
    assert [event["wants"] for event in deciding.events if "wants" in event] == [0, 2]
    assert deciding.events[-1]["ran"][0][:2] == ["ended", 2]
    assert deciding.ended() == []


def test_a_rank_that_asks_ahead_of_an_end_reports_what_has_begun(deciding: Rank) -> None:
    gate = deciding.gate
    first, second = (gate.begin("allreduce", (0, 1), 4) for _ in range(2))
    gate.begin("send", (0, 2), 4)
    assert [next(iter(event)) for event in deciding.events] == ["wants", "ran", "wants"]
    assert [entry[:2] for entry in deciding.events[1]["ran"]] == [["began", second]]
    gate.done(first)
    assert len(deciding.events) == 3
    gate.done(second)
    assert len(deciding.events) == 3  # the send was granted meanwhile, and goes on


def test_an_operation_of_another_group_than_profiled_asks(deciding: Rank) -> None:
    gate = deciding.gate
    gate.begin("allreduce", (0, 1), 4)
    gate.begin("send", (0, 2), 4)
    assert [event["wants"] for event in deciding.events if "wants" in event] == [0, 1]


def test_what_ran_last_is_reported_when_the_script_has_ended(deciding: Rank) -> None:
    """Nothing is asked after it that would carry the report."""
    gate = deciding.gate
    number = gate.begin("allreduce", (0, 1), 4)
    gate.done(number)
    assert [next(iter(event)) for event in deciding.events] == ["wants"]
    gate.finish()
    assert [entry[:2] for entry in deciding.events[1]["ran"]] == [["ended", number]]
    gate.finish()
    assert len(deciding.events) == 2


@pytest.mark.parametrize("decides", [False, True])
def test_a_result_is_handed_over_before_its_end_is_reported(decides: bool) -> None:
    """A report wakes the harness; the script would wait for it as if it computed."""
    phases = {"first": [["data", True, 1], ["pipeline", True, 1]], "then": []}
    rank, reported = Rank(phases=phases if decides else None), []
    number = rank.gate.begin("allreduce", (0, 1), 4)

    def hand_over() -> None:
        reported.append(len(rank.events))
        assert rank.gate.operations[number][6]  # it has ended

    rank.gate.done(number, hand_over)
    assert reported == [1]  # what was wanted
    assert set(rank.events[1]) == {"ran" if decides else "ended"}


def test_a_script_that_goes_on_at_once_wants_after_what_has_ended() -> None:
    """It may begin its next operation before the thread that hands results over reports."""
    phases = {"first": [["data", True, 1], ["pipeline", True, 1]], "then": []}
    rank = Rank(phases=phases)
    gate = rank.gate
    gate.done(gate.begin("allreduce", (0, 1), 4), lambda: gate.begin("send", (0, 2), 4))
    assert [next(iter(event)) for event in rank.events] == ["wants", "ran", "wants"]


def test_messages_are_joined_as_both_ranks_agreed() -> None:
    """Three of the pair are one operation, whatever the script waits for between them."""
    phases = {"first": [["pipeline", True, 3], ["pipeline", True, 1]], "then": []}
    rank = Rank(phases=phases)
    gate = rank.gate
    for kind, size in (("send", 3), ("recv", 4), ("send", 5)):
        assert gate.begin(kind, (0, 2), size) == 0
        gate.waited_for(0)
        gate.done(0)
    assert gate.begin("recv", (2, 0), 6) == 1
    gate.done(1)
    assert [one[:4] + one[8:] for one in gate.operations] == [
        ["pipeline", 0, "send", 12, "srs"],
        ["pipeline", 1, "recv", 6, "r"],
    ]
    ran = [entry[:2] for event in rank.events for entry in event.get("ran", ())]
    assert ran == [["ended", 0], ["ended", 1]]


def test_an_operation_beyond_all_that_was_profiled_asks() -> None:
    phases = {"first": [["data", True, 1]], "then": []}
    rank = Rank(phases=phases)
    for _ in range(3):
        rank.gate.done(rank.gate.begin("allreduce", (0, 1), 4))
    assert [event["wants"] for event in rank.events if "wants" in event] == [0, 1, 2]


def test_an_operation_reports_its_line_of_the_script() -> None:
    """That which runs, not the function of a module that it calls, nor a finished line."""
    gate = Rank(script="/run/mine.py").gate
    source = (
        "\ndef within():\n    begin('allreduce', (0, 1), 4)\n\nwithin()\nbegin('send', (0, 2), 4)\n"
    )
    exec(compile(source, "/run/mine.py", "exec"), {"begin": gate.begin})
    with gate.beside("barrier", (3, 0, 2, 1), 0):
        pass
    assert [one[7] for one in gate.operations] == [3, 6]
    assert gate.front_end[0][:4] == ["front end 0,1,2,3", 0, "barrier", 0]
    assert gate.front_end[0][7] is None


def test_steps_are_those_of_the_first_optimizer(free: Rank) -> None:
    first, second = object(), object()
    for optimizer in (first, second, first):
        free.gate.done(free.gate.begin("allreduce", (0, 1), 4))
        free.gate.stepped(optimizer)
    assert free.gate.steps == [1, 3]
    assert [each["stepped"] for each in free.events if "stepped" in each] == [1, 2]


def test_a_step_of_a_rank_that_decides_itself_is_one_event() -> None:
    """Each wakes the harness: that of the second step has its two messages, the third's nothing."""
    phases = {"first": [["data", True, 1]], "then": [["data", False, 1], ["data", False, 1]]}
    rank, optimizer = Rank(phases=phases), object()
    for count in (1, 2, 0):
        for _ in range(count):
            rank.gate.done(rank.gate.begin("allreduce", (0, 1), 4))
        rank.gate.stepped(optimizer)
    wants, first, second, third = rank.events
    assert wants["wants"] == 0
    assert [entry[:2] for entry in first.pop("ran")] == [["ended", 0]]
    ran = [["began", 1], ["ended", 1], ["began", 2], ["ended", 2]]
    assert [entry[:2] for entry in second.pop("ran")] == ran
    assert [first, second, third] == [{"stepped": 1}, {"stepped": 2}, {"stepped": 3}]


def alone(rank: Rank) -> list[list]:
    return [each["alone"] for each in rank.events if "alone" in each]


def test_collectives_without_a_rank_whose_script_has_ended_are_reported() -> None:
    """One that is in progress when it ends, and each that begins later; not one that it began."""
    ended: dict[int, dict[str, int]] = {}
    rank = Rank(gated=False, ended=ended)
    first, second = (rank.gate.begin("allreduce", (0, 1), 8) for _ in range(2))
    ended[1] = {"data": 1}
    rank.gate.report_alone()
    assert alone(rank) == [["allreduce", "data", 1, None, 1, 1]]
    for number in (first, second):
        rank.gate.done(number)
    rank.gate.report_alone()
    with rank.gate.beside("barrier", (0, 1, 2), 0):
        pass
    assert alone(rank)[1:] == [["barrier", "front end 0,1,2", 0, None, 1, 0]]


def test_messages_and_groups_without_the_ended_rank_are_not_reported() -> None:
    """Two ranks may join their messages otherwise, so that their numbers say nothing."""
    rank = Rank(gated=False, ended={2: {}})
    rank.gate.begin("recv", (0, 2), 8)
    rank.gate.begin("allreduce", (0, 1), 8)
    with rank.gate.beside("send", (0, 2), 8):
        assert alone(rank) == []
