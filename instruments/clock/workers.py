"""Threads for the tasks of parallel sections, used again and safe to ask for under Ctrl-C.

`threading.Thread.start` waits in Python code for the new thread. A Ctrl-C that comes there is at
times raised as RuntimeError, and one that comes while a `Thread` is deleted is printed and lost.
So the main thread only puts tasks into queues, which it does in one step of C, and a thread of
this module starts the others.
"""

import _thread
import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

Task = Callable[[], None]
_Tasks: TypeAlias = "queue.SimpleQueue[Task | None]"


class Workers:
    """Threads that run tasks; as many as ran at the same time, until `close`."""

    def __init__(self) -> None:
        self._idle: list[_Tasks] = []
        self._without_thread: queue.SimpleQueue[_Tasks | None] = queue.SimpleQueue()
        self._starter: int | None = None
        self._closed = False

    def run(self, task: Task) -> None:
        """Run `task`, which raises nothing, in a thread of its own; returns at once.

        An interrupt of the main thread here either starts the task or does not.
        """
        try:
            tasks = self._idle.pop()
        except IndexError:
            tasks = queue.SimpleQueue()
            # In one line: an interrupt before it starts nothing, one behind it finds a starter.
            self._starter = self._starter or _thread.start_new_thread(self._start_threads, ())
            self._without_thread.put(tasks)
            if self._closed:
                self._end_starter()
        tasks.put(task)

    def close(self) -> None:
        """End each thread that is idle, and each other one after its task."""
        self._closed = True
        self._end_starter()
        self._end_idle()

    def _end_starter(self) -> None:
        if self._starter is not None:
            self._starter = None
            self._without_thread.put(None)

    def _end_idle(self) -> None:
        while self._idle:
            try:
                tasks = self._idle.pop()
            except IndexError:  # another thread took the last one
                return
            tasks.put(None)

    def _start_threads(self) -> None:
        while (tasks := self._without_thread.get()) is not None:
            thread = threading.Thread(target=self._work, args=(tasks,), name="worker", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system has no more threads: a task late, but never lost
                if (task := tasks.get()) is not None:
                    task()

    def _work(self, tasks: _Tasks) -> None:
        while (task := tasks.get()) is not None:
            task()
            del task  # it refers to what the parent measured
            self._idle.append(tasks)
            if self._closed:
                self._end_idle()
