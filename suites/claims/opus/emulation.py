"""Ranks that do nothing but take their time: a job's steps without GPUs."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial

from lightrig.harness.systems.opus.planning.operations import Operation
from lightrig.harness.systems.opus.runtime.rails import Rails, RailsLostError
from lightrig.instruments.clock import Event
from lightrig.testbeds import LightrigError


def emulate(
    rails: Rails, programs: Mapping[int, Sequence[Operation]], *, transfer: int, compute: int = 0
) -> None:
    """Run a job whose operations take `transfer` ns once all of their ranks have joined.

    Before each of them a rank computes for `compute` ns. Raises `RailsLostError`.
    """
    clock, lock = rails.clock, threading.Lock()
    joined: dict[Operation, tuple[set[int], Event]] = {}
    lost: list[int] = []

    def event_of(operation: Operation) -> tuple[set[int], Event]:
        return joined.setdefault(operation, (set(), clock.event()))

    def join(rank: int, operation: Operation) -> None:
        with lock:
            ranks, all_joined = event_of(operation)
            ranks.add(rank)
            if len(ranks) == len(rails.job.groups[operation.group].ranks) or lost:
                all_joined.set()
        all_joined.wait()
        if lost:
            raise RailsLostError(f"{operation} lost rank {lost[0]}")

    def run(rank: int) -> None:
        try:
            for operation in programs[rank]:
                clock.sleep(compute)
                if rails.before(rank, operation) == "rail":
                    join(rank, operation)
                clock.sleep(transfer)
                rails.after(rank, operation)
        except LightrigError:
            with lock:
                lost.append(rank)
                for _, all_joined in joined.values():
                    all_joined.set()
            raise

    rails.run([partial(run, rank) for rank in sorted(programs)])
