"""Events of a test: by the plans of its limits, replaced where set aside, as time permits."""

from collections.abc import Callable

import numpy as np
import pytest

from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.sampling import Events
from lightrig.harness.record import Row
from lightrig.testbeds import Limit, parse_limit

S = 1_000_000_000
CARRIER = "reconfiguration.carrier_up"
DATAGRAM = "reconfiguration.first_datagram"
SIGNAL = "reconfiguration.signal_recovered"


class Trial(Recording):
    """A recording of events of which some are late, and some set aside."""

    def __init__(
        self,
        *limits: Limit,
        late: dict[str, set[int]],
        set_aside: set[int],
        early: Callable[[int], float],
    ) -> None:
        self.rows: list[Row] = []
        self.sentences: list[str] = []
        super().__init__(
            self.rows.extend,
            {limit.quantity: limit for limit in limits},
            note=self._noted,
        )
        self.late = late
        self.early = early
        self.without = set_aside
        self.limits = limits
        self.now = 0

    def _noted(self, sentence: str, /, *, in_report: bool) -> None:
        self.sentences.append(sentence)

    def too_many_set_aside(self, wanted: int) -> bool:
        return self.set_aside > 0.1 * (wanted + self.set_aside)

    def run(self, usual: int = 5, pace: int = S, **options: object) -> int:
        """Take the events, and return their number."""
        events = Events(self, self.limits, usual, lambda: self.now, **options)  # type: ignore[arg-type]
        for index in events:
            assert index == self.next_event()
            self.now += pace
            if index in self.without:
                self.set_aside += 1
                continue
            for limit in self.limits:
                value = 400 if index in self.late.get(limit.quantity, ()) else self.early(index)
                conditions = {"event": index}
                self.record([Row("lab", limit.quantity, value, None, None, "ns", 0, conditions)])
        return self.events


Make = Callable[..., Trial]


def limit(quantity: str, which: str) -> Limit:
    return parse_limit(quantity, {which: "250 ns"})


@pytest.fixture
def trial() -> Make:
    def make(
        *limits: Limit,
        late: dict[str, set[int]] | None = None,
        set_aside: set[int] | None = None,
        early: Callable[[int], float] = lambda _index: 100,
    ) -> Trial:
        return Trial(*limits, late=late or {}, set_aside=set_aside or set(), early=early)

    return make


def outcomes(run: Trial) -> dict[str, str]:
    return {one.quantity: verdict.outcome for one, verdict in run.verdicts("reconfiguration")}


def test_the_first_stage_is_enough_where_none_is_late(trial: Make) -> None:
    run = trial(limit(CARRIER, "p95"), limit(DATAGRAM, "p95"))
    assert run.run() == 70
    assert set(outcomes(run).values()) == {"pass"}


def test_one_late_event_of_one_limit_brings_the_second_stage(trial: Make) -> None:
    run = trial(limit(CARRIER, "p95"), limit(DATAGRAM, "p95"), late={DATAGRAM: {33}})
    assert run.run() == 198
    assert set(outcomes(run).values()) == {"pass"}
    assert run.sentences == ["70 events do not decide all limits; 128 more take about 128 s"]


def test_a_limit_that_is_decided_stands_whatever_the_second_stage_shows(trial: Make) -> None:
    late = {CARRIER: set(range(80, 90)), DATAGRAM: {1, 2, 3, 4, 100}}
    run = trial(limit(CARRIER, "p95"), limit(DATAGRAM, "p95"), late=late)
    assert run.run() == 198
    assert outcomes(run) == {CARRIER: "pass", DATAGRAM: "not enough data"}


def test_events_that_follow_each_other_are_as_many_more_as_they_count_for(trial: Make) -> None:
    """In levels of two events, 70 count as fewer than the 59 that are needed."""
    levels = np.random.default_rng(5).uniform(90, 110, 100)
    run = trial(
        limit(CARRIER, "p95"), limit(DATAGRAM, "p95"), early=lambda event: levels[event // 2]
    )
    assert 70 < run.run() < 198
    assert set(outcomes(run).values()) == {"pass"}
    more = run.events - 70
    assert run.sentences[0].startswith("70 events do not decide all limits; ")
    assert sum(int(one.split("; ")[1].split()[0]) for one in run.sentences) == more


def test_events_that_follow_each_other_and_are_late_take_the_second_stage(trial: Make) -> None:
    levels = np.random.default_rng(5).uniform(90, 110, 100)
    run = trial(limit(CARRIER, "p95"), late={CARRIER: {72}}, early=lambda event: levels[event // 2])
    assert run.run() == 198
    assert outcomes(run) == {CARRIER: "pass"}


def test_what_fails_at_once_has_no_second_stage(trial: Make) -> None:
    run = trial(limit(CARRIER, "p95"), late={CARRIER: set(range(200))})
    assert run.run() == 70
    assert outcomes(run) == {CARRIER: "fail"}


def test_a_limit_without_a_plan_fixes_the_number_for_all(trial: Make) -> None:
    run = trial(limit(CARRIER, "p95"), limit(SIGNAL, "p99"), late={CARRIER: {3, 9, 80}})
    assert run.run() == 299
    assert outcomes(run) == {CARRIER: "pass", SIGNAL: "pass"}
    assert not [row for row in run.rows if row.quantity == "sampling.look"]


def test_a_number_that_is_given_is_fixed(trial: Make) -> None:
    run = trial(limit(CARRIER, "p95"), late={CARRIER: {2}})
    assert run.run(given=93) == 93
    assert outcomes(run) == {CARRIER: "pass"}


def test_without_a_limit_on_a_quantile_the_number_is_the_usual(trial: Make) -> None:
    assert trial(limit(CARRIER, "max")).run() == 5


def test_the_usual_number_is_of_events_that_count(trial: Make) -> None:
    assert trial(limit(CARRIER, "max"), set_aside={4}).run(usual=20) == 21


def test_plans_of_several_quantiles_are_looked_at_by_their_own_numbers(trial: Make) -> None:
    run = trial(limit(CARRIER, "p95"), limit(DATAGRAM, "p90"), late={DATAGRAM: {7}})
    assert run.run() == 98  # the p90 has its first look after 34, its second after 98
    assert set(outcomes(run).values()) == {"pass"}


def test_events_set_aside_are_replaced(trial: Make) -> None:
    run = trial(limit(CARRIER, "p95"), set_aside={0, 5, 70, 71})
    assert run.run() == 74
    assert outcomes(run) == {CARRIER: "pass"}


def test_too_many_set_aside_end_the_test(trial: Make) -> None:
    run = trial(limit(CARRIER, "p95"), set_aside=set(range(0, 40, 2)))
    assert run.run() == 15  # the eighth of at most 78 is one too many
    assert outcomes(run) == {CARRIER: "not enough data"}


@pytest.mark.parametrize(("pace", "events"), [(4 * S, 198), (5 * S, 70)])
def test_a_second_stage_that_takes_too_long_is_left_out(
    trial: Make, pace: int, events: int
) -> None:
    """At most ten minutes of real time: 128 events of 4 s are 512 s, of 5 s 640 s."""
    run = trial(limit(CARRIER, "p95"), late={CARRIER: {33}})
    assert run.run(pace=pace, real=True) == events
    assert ("left out" in run.sentences[0]) == (events == 70)
    virtual = trial(limit(CARRIER, "p95"), late={CARRIER: {33}})
    assert virtual.run(pace=pace) == 198


def test_the_looks_become_rows(trial: Make) -> None:
    run = trial(limit(CARRIER, "p95"))
    run.run()
    looks = [row for row in run.rows if row.quantity == "sampling.look"]
    assert [(row.subject, row.value, row.conditions) for row in looks] == [
        (CARRIER, 70, {"passes": 0, "fails": 8}),
        (CARRIER, 198, {"passes": 4, "fails": 17}),
    ]
