"""Studies give one answer by seed, wherever they are computed."""

import threading

import numpy as np
import pytest

from lightrig.harness.jobs.sweeps import Engine, SweepCancelledError, computed_on, sweep


def drawn(point: int, random: np.random.Generator) -> float:
    return point + float(random.random())


def test_the_answer_is_of_the_seed_and_not_of_processes_or_batches() -> None:
    here = sweep(drawn, range(40), seed=7)
    with computed_on(Engine(processes=2)):
        assert sweep(drawn, range(40), seed=7, batch=3) == here
    assert sweep(drawn, range(40), seed=8) != here
    assert len({value % 1 for value in here}) == 40


def test_progress_reaches_all_points() -> None:
    seen: list[tuple[int, int]] = []
    with computed_on(Engine(progress=lambda done, of: seen.append((done, of)))):
        sweep(drawn, range(10), batch=4)
    assert seen == [(4, 10), (8, 10), (10, 10)]


def test_a_cancelled_study_says_how_far_it_came() -> None:
    stop = threading.Event()

    def progress(done: int, _of: int) -> None:
        if done == 5:
            stop.set()

    with (
        computed_on(Engine(progress=progress, cancelled=stop)),
        pytest.raises(SweepCancelledError, match="cancelled after 5 of 100 points"),
    ):
        sweep(drawn, range(100))
