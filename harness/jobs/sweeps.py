"""Sweeps and Monte Carlo studies: one function of a point and a seed, on any number of processors.

Each point has a random generator of its own, made of the study's seed and the point's place among
the points, never of the worker that happens to compute it: the answer is the same in this process,
in several, and on the workers of a Dask scheduler, in whatever order they end.
"""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from lightrig.testbeds import LightrigError

Point = TypeVar("Point")
Answer = TypeVar("Answer")
Work = Callable[[Point, np.random.Generator], Answer]

_POLL_S = 0.5
_AHEAD = 4
"""Batches that are queued for each process: enough to keep it busy, few enough to be cancelled."""


class SweepCancelledError(LightrigError):
    """A study was cancelled; `done` of its points were computed."""

    def __init__(self, done: int, of: int) -> None:
        super().__init__(f"cancelled after {done:,} of {of:,} points")
        self.done = done


@dataclass(frozen=True, slots=True)
class Engine:
    """Hosts and processes that compute studies.

    processes: on this machine; 1 computes in this one.
    scheduler: address of a Dask scheduler, whose workers compute instead.
    progress: called with the number of points computed, and of all, after each batch.
    cancelled: ends a study soon after it is set; what is queued is not begun.
    """

    processes: int = 1
    scheduler: str | None = None
    progress: Callable[[int, int], None] = lambda _done, _of: None
    cancelled: threading.Event = field(default_factory=threading.Event)


_current: ContextVar[Engine | None] = ContextVar("engine", default=None)


@contextmanager
def computed_on(engine: Engine) -> Iterator[None]:
    """Compute all studies within on `engine`."""
    token = _current.set(engine)
    try:
        yield
    finally:
        _current.reset(token)


def sweep(
    work: Work[Point, Answer], points: Sequence[Point], seed: int = 0, *, batch: int = 1
) -> list[Answer]:
    """Return `work(point, generator)` of each point, in the order of the points.

    Args:
        work: a function that other processes can import.
        points: values that can be pickled.
        seed: of the study.
        batch: points that travel together; of no influence on the answer.

    Raises `SweepCancelledError`, and whatever `work` raises.
    """
    engine = _current.get() or Engine()
    starts = range(0, len(points), batch)
    batches = [(work, list(points[start : start + batch]), start, seed) for start in starts]
    run = _on_dask if engine.scheduler else _in_processes if engine.processes > 1 else _here
    answers: list[Any] = [None] * len(points)
    done = 0
    for start, found in run(batches, engine):
        answers[start : start + len(found)] = found
        done += len(found)
        engine.progress(done, len(points))
    if done < len(points):
        raise SweepCancelledError(done, len(points))
    return answers


def generator(seed: int, place: int) -> np.random.Generator:
    """Return the generator of the point at `place` of a study: independent of all others'."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(place,)))


_Batch = tuple[Any, list[Any], int, int]
_Found = Iterator[tuple[int, list[Any]]]


def _compute(work: Any, points: list[Any], start: int, seed: int) -> tuple[int, list[Any]]:
    return start, [work(point, generator(seed, place)) for place, point in enumerate(points, start)]


def _here(batches: Sequence[_Batch], engine: Engine) -> _Found:
    for each in batches:
        if engine.cancelled.is_set():
            return
        yield _compute(*each)


def _in_processes(batches: Sequence[_Batch], engine: Engine) -> _Found:
    left = iter(batches)
    pending: set[Future[tuple[int, list[Any]]]] = set()
    # A fork would copy the locks of this process's threads; Ctrl-C is for the process that asked.
    started = multiprocessing.get_context("forkserver")
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with ProcessPoolExecutor(engine.processes, started, signal.signal, ignore) as pool:
        try:
            while not engine.cancelled.is_set():
                while len(pending) < _AHEAD * engine.processes and (each := next(left, None)):
                    pending.add(pool.submit(_compute, *each))
                if not pending:
                    return
                done, pending = wait(pending, _POLL_S, FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _on_dask(batches: Sequence[_Batch], engine: Engine) -> _Found:
    import distributed  # noqa: PLC0415 - an extra that only this needs

    with distributed.Client(engine.scheduler) as client:
        pending = {client.submit(_compute, *each, pure=False) for each in batches}
        try:
            while pending and not engine.cancelled.is_set():
                with suppress(distributed.TimeoutError):
                    found = distributed.wait(pending, _POLL_S, "FIRST_COMPLETED")
                    pending = found.not_done
                    for future in found.done:
                        yield future.result()
        finally:
            client.cancel(list(pending))
