"""Processor time of a job and of others, beside what the programs measured of themselves."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lightrig.instruments.jobs.programs.processor_use import ProcessorUse

MS = 1_000_000
TICKS = 30 * MS  # the kernel's counts of whole processes have ticks of 10 ms
COMPUTES = """
import json, os, sys, time
if sys.argv[2:]:
    os.sched_setaffinity(0, {int(sys.argv[2])})
print("ready", flush=True)
sys.stdin.readline()
begun, ran = time.monotonic_ns(), time.thread_time_ns()
while time.thread_time_ns() < ran + int(sys.argv[1]):
    pass
print(json.dumps([time.thread_time_ns() - ran, time.monotonic_ns() - begun]), flush=True)
sys.stdin.readline()
"""


class Program:
    """A program that computes for a time, and lives until it is ended."""

    def __init__(self, ns: int, *options: str, detached: bool = False) -> None:
        before = ["setsid", "--fork"] if detached else []
        command = [*before, sys.executable, "-c", COMPUTES, str(ns), *options]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, start_new_session=not detached
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"  # what its start took is not looked at

    def begin(self) -> None:
        """Let it compute."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, int]:
        """Return the time that it ran, and the time that this took, in ns."""
        assert self.process.stdout is not None
        ran, took = json.loads(self.process.stdout.readline())
        return ran, took

    def close(self) -> None:
        """End it."""
        self.process.communicate()


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    made: list[Program] = []
    yield made
    for program in made:
        program.close()


def test_programs_that_the_job_has_not_started_are_others(programs: list[Program]) -> None:
    """One of the job computes for 0.3 s, and one of nobody for 0.6 s."""
    programs += [Program(300 * MS), Program(600 * MS, detached=True)]
    mine, other = programs
    use, roots, groups = ProcessorUse(), [mine.process.pid], [mine.process.pid]
    assert use.look(roots, groups) is None
    mine.begin()
    other.begin()
    (ran, _), (foreign, _) = mine.end(), other.end()
    found = use.look(roots, groups)
    assert found is not None
    assert found["job"] == pytest.approx(ran, abs=TICKS + 100 * MS)  # this process looks, too
    assert found["busy"] - found["job"] > foreign - TICKS
    assert found["ran"] == pytest.approx(ran, abs=20 * MS)


def test_two_ranks_on_one_processor_wait_for_each_other(programs: list[Program]) -> None:
    """Neither sleeps: what each took and did not run it waited."""
    processor = str(min(os.sched_getaffinity(0)))
    programs += [Program(300 * MS, processor), Program(300 * MS, processor)]
    groups = [program.process.pid for program in programs]
    use = ProcessorUse()
    use.look([], groups)
    for program in programs:
        program.begin()
    waited = sum(took - ran for ran, took in [program.end() for program in programs])
    found = use.look([], groups)
    assert found is not None
    if found["waited"] is None:
        pytest.skip("the kernel does not count how long threads wait")
    assert waited > 200 * MS
    assert found["waited"] == pytest.approx(waited, rel=0.1, abs=20 * MS)


def counted(*names: str) -> int:
    """Return the time that all processors spent so, in ns, by proc_stat(5)."""
    columns = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    with open("/proc/stat", encoding="utf-8") as file:
        ticks = dict(zip(columns, map(int, file.readline().split()[1:]), strict=False))
    return sum(ticks[name] for name in names) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def test_interrupts_of_packets_are_no_program() -> None:
    """Datagrams over the loopback are received in interrupts of those who send them."""
    programs, use = ("user", "nice", "system", "steal"), ProcessorUse()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as source,
    ):
        sink.bind(("127.0.0.1", 0))
        source.connect(sink.getsockname())
        before = counted(*programs)
        use.look([], [])
        interrupts = counted("softirq")
        while counted("softirq") < interrupts + 100 * MS:
            for _ in range(1000):
                source.send(bytes(1000))
        found = use.look([], [])
    assert found is not None
    assert found["busy"] <= counted(*programs) - before


WAKES = """
import json, sys, time
sys.stdin.readline()
for _ in range(300):
    time.sleep(0.001)
with open("/proc/thread-self/schedstat") as file:
    print(json.dumps(list(map(int, file.read().split()[1:]))), flush=True)
sys.stdin.readline()
"""


def test_a_thread_that_wakes_often_does_not_wait_because_of_that() -> None:
    """By its own count it waited at most so long more than 0.1 ms at each of its wake-ups."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", WAKES]
    program = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
    assert program.stdin is not None
    assert program.stdout is not None
    use = ProcessorUse()
    use.look([], [program.pid])
    program.stdin.write("\n")
    program.stdin.flush()
    waited, begun = json.loads(program.stdout.readline())
    found = use.look([], [program.pid])
    program.communicate()
    assert found is not None
    if found["waited"] is None:
        pytest.skip("the kernel does not count how long threads wait")
    assert begun >= 300
    assert found["waited"] <= max(0, waited - 300 * MS // 10) + MS
