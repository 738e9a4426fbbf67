"""Events are set aside by the delay of the simulation alone, counted, and named."""

from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.measure.recording import (
    LimitExceededError,
    NotEnoughDataError,
    SimulatedRecording,
)
from lightrig.harness.measure.stages import Reconfiguration, Seen
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span
from lightrig.instruments.simulated.namespaces.fiber_plant import Delay
from lightrig.testbeds import Port, parse_limit

MS = 1_000_000
PORT = Port("server1", "nic0.p1")
LIMIT = parse_limit("reconfiguration.carrier_up", {"max": "250 ms"})


class Lab:
    """A recording whose rows and sentences are kept, and a world that is late as wanted."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.sentences: list[str] = []
        self.undecided: list[str] = []
        self.asked: list[int] = []
        self.recording = SimulatedRecording(
            self.rows.extend,
            {LIMIT.quantity: LIMIT},
            undecided=self.undecided.append,
            note=self._noted,
            test="test_moves[small]",
        )

    def _noted(self, sentence: str, /, *, in_report: bool) -> None:
        self.sentences.append(sentence)

    def measured(self, carrier_ms: int, late_ms: float | None) -> bool:
        """One event; returns whether it is set aside."""
        number = self.recording.next_event()
        sent = (number + 1) * 10_000 * MS

        def longest_delay(since: int) -> Delay | None:
            self.asked.append(since)
            return None if late_ms is None else Delay(PORT, since + 90 * MS, int(late_ms * MS))

        bench: Any = SimpleNamespace(world=SimpleNamespace(longest_delay=longest_delay))
        at = Span(sent + carrier_ms * MS, sent + (carrier_ms + 2) * MS)
        seen = (Seen("server0.nic0.p0", "carrier_up", at),)
        event = Reconfiguration("crossed", 1, Span(sent, sent), seen, ())
        if self.recording.sets_aside(bench, event, number):
            return True
        low, high = carrier_ms * MS, (carrier_ms + 2) * MS
        conditions = {"event": number}
        row = Row("small", LIMIT.quantity, low + MS, low, high, "ns", sent, conditions)
        self.recording.record([row])
        return False


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.mark.parametrize("carrier_ms", [3, 97, 4_000])
def test_the_delay_decides_whatever_was_measured(lab: Lab, carrier_ms: int) -> None:
    assert not lab.measured(carrier_ms, None)
    assert not lab.measured(carrier_ms, 50)
    assert lab.measured(carrier_ms, 50.001)
    assert lab.asked == [10_000 * MS, 20_000 * MS, 30_000 * MS]  # since each command


def test_what_is_set_aside_is_in_rows_of_its_own(lab: Lab) -> None:
    lab.measured(97, 3)
    lab.measured(310, 73.5)
    assert [(r.subject, r.quantity, r.value, r.conditions) for r in lab.rows[1:]] == [
        ("server1.nic0.p1", "set_aside.delay", 73_500_000, {"event": 1}),
        ("carrier_up", "set_aside.stage", 311_000_000, {"event": 1}),
    ]
    assert (lab.rows[2].lower, lab.rows[2].upper) == (310_000_000, 312_000_000)


def test_up_to_ten_percent_are_replaced_and_named(lab: Lab) -> None:
    late = [lab.measured(310, 60 + number) for number in range(2)]
    late += [lab.measured(97, 4) for _ in range(18)]
    assert late == [True, True] + 18 * [False]
    lab.recording.judge("reconfiguration")
    assert not lab.undecided
    assert lab.sentences == [
        "test_moves[small]: 2 of 20 events set aside, not judged: the simulation's own links "
        "followed its light more than 50 ms late, up to 61 ms"
    ]
    lab.recording.judge("reconfiguration")
    assert len(lab.sentences) == 1


def test_more_than_ten_percent_decide_nothing(lab: Lab) -> None:
    for _ in range(2):
        lab.measured(97, 60)
    for _ in range(17):
        lab.measured(97, 4)
    lab.recording.judge("reconfiguration")
    assert len(lab.undecided) == 1
    assert "2 of 19 events set aside" in lab.undecided[0]
    assert lab.undecided[0].endswith("more than 10 % decide nothing.")
    lab.recording.undecided = None
    with pytest.raises(NotEnoughDataError, match="decide nothing"):
        lab.recording.judge("reconfiguration")


def test_a_limit_that_judged_events_break_is_broken(lab: Lab) -> None:
    lab.measured(97, 60)
    lab.measured(310, 4)
    with pytest.raises(LimitExceededError, match="1 of 1 samples exceed"):
        lab.recording.judge("reconfiguration")
