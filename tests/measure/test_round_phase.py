"""The moment of a command at which light goes at a phase of a round, by hand."""

from lightrig.harness.jobs.measure.round_phase import RoundPhase, median_round
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.core.streams import StreamState


def state(*ends: int, began: int = 0) -> StreamState:
    at = tuple(Span(end - 3, end) for end in ends)
    return StreamState(len(ends), 0, (), (), Span(began, began), "", None, None, ends=at)


def test_the_median_round_is_the_middle_one() -> None:
    # Rounds of 100, 130 and 900.
    assert median_round(state(1_000, 1_100, 2_000, 2_130)) == 130
    assert median_round(state(1_000)) == 0


def test_a_command_is_sent_a_delay_before_the_phase() -> None:
    rounds = state(1_000, 1_100, 1_200, began=1_210)
    phase = RoundPhase(0.25)
    # The round began at 1,210: a quarter of it is at 1,235, the one after next at 1,435.
    assert phase.wait(rounds, now=1_230) == 5
    assert phase.wait(rounds, now=1_240) == 95
    phase.delays += [30, 250, 45]
    assert phase.wait(rounds, now=1_230) == 60
    assert phase.wait(state(1_000), now=1_230) == 0
