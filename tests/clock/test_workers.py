"""Threads of parallel sections: used again, and ended."""

import threading

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.clock.workers import Workers


def wait_for_end(before: set[threading.Thread]) -> None:
    """Wait until every thread has ended that was not there before."""
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
    assert before.issuperset(threading.enumerate())


def test_a_thread_is_used_again_and_ends_at_close():
    before = set(threading.enumerate())
    workers, ran = Workers(), []
    for _ in range(20):
        ended = threading.Event()

        def task(ended: threading.Event = ended) -> None:
            ran.append(threading.current_thread())
            ended.set()

        workers.run(task)
        assert ended.wait(30)
    # A thread that has set its event may not be idle yet.
    assert len(set(ran)) < 5
    workers.close()
    workers.close()
    wait_for_end(before)


def test_a_task_after_close_runs_and_leaves_no_thread():
    before = set(threading.enumerate())
    workers = Workers()
    workers.close()
    for _ in range(2):
        ended = threading.Event()
        workers.run(ended.set)
        assert ended.wait(30)
    wait_for_end(before)


def test_without_another_thread_tasks_run_one_after_the_other(monkeypatch):
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    clock = SystemClock()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert clock.parallel(lambda: 1, lambda: 2, lambda: 3) == [1, 2, 3]
    clock.close()
