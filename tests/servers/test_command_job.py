"""A job by command on outputs that were recorded with their times, ten times as fast."""

import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from real_time import until

from lightrig.harness.jobs.bench.jobs import CommandJobs, NoJobsError
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.core.collectives import CollectiveFailedError
from lightrig.instruments.jobs.traffic.command_job import CommandJob
from lightrig.testbeds import Plan

OUTPUTS = Path(__file__).parent / "timed_outputs"
REPLAY = """
    import os, signal, sys, time
    def ended(*_):
        open(sys.argv[0] + ".ended", "w").write("by SIGTERM")
        sys.exit(1)
    signal.signal(signal.SIGTERM, ended)
    open(sys.argv[0] + ".pid", "w").write(str(os.getpid()))
    began = time.monotonic()
    for line in open(sys.argv[1]):
        at, _, text = line.rstrip("\\n").partition("\\t")
        if "@@" in text and at != "4":
            continue
        time.sleep(max(began + float(at) / 10 - time.monotonic(), 0))
        if at == "4":
            continue
        print(text, flush=True)
    if sys.argv[2] == "stay":
        time.sleep(60)
    sys.exit(int(sys.argv[2]))
"""
RCCL = """\
# rccl-tests version 2.17.9-develop:4a65e8d rccl-headers=22707 rccl-library=22707
# Collective test starting: all_reduce_perf
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
       16384          4096     float     sum      -1     81.9    0.20    0.20       0     81.9    0.20    0.20       0
       16384          4096     float     sum      -1     81.9    0.20    0.20       0     81.9    0.20    0.20       7
"""  # noqa: E501 - as it is printed
MS = 1_000_000


def alive(pid: int) -> bool:
    """Whether a process runs, by its state in proc(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., CommandJob]]:
    """Start a job that prints a file, and ends with a status or stays."""
    (tmp_path / "replay.py").write_text(textwrap.dedent(REPLAY))
    clock, jobs = SystemClock(), list[CommandJob]()

    def start(file: Path, status: str = "stay") -> CommandJob:
        line = [sys.executable, str(tmp_path / "replay.py"), str(file), status]
        jobs.append(CommandJob(line, clock))
        return jobs[-1]

    yield start
    for each in jobs:
        each.stop()
    clock.close()


def test_a_row_that_comes_late_is_the_stall(started: Callable[..., CommandJob]) -> None:
    """Eleven whole rows: the fifth came 3.57 s after the fourth, others 0.41 to 0.46 s."""
    job = started(OUTPUTS / "nccl_tests_cut_2s.txt")
    until(lambda: job.state().exchanges == 10, SystemClock())
    found = job.state()
    assert (found.wrong, found.error, found.failed, found.warned) == (0, "", None, ())
    assert max(found.durations) == found.durations[3]
    # On a busy machine a line may be read late.
    assert 300 * MS < found.durations[3] < 600 * MS
    assert len(found.ends) == 10
    assert found.began == found.ends[-1]


def test_half_a_row_is_no_exchange_and_a_warning_is_no_end(
    started: Callable[..., CommandJob],
) -> None:
    """The row in which the link was lost was cut off by NCCL's warning."""
    job = started(OUTPUTS / "nccl_tests_cut_25s.txt")
    until(lambda: len(job.state().warned) > 3, SystemClock())
    found = job.state()
    assert (found.exchanges, found.wrong, found.error) == (4, 0, "")
    assert found.began == found.ends[-1]
    # The first warning came 14.7 s after the last whole row.
    assert found.warned[0].latest - found.ends[-1].latest > 1_200 * MS


def test_the_tables_of_rccl_are_read_and_wrong_values_counted(
    started: Callable[..., CommandJob], tmp_path: Path
) -> None:
    file = tmp_path / "rccl.txt"
    file.write_text("".join(f"0.1\t{line}\n" for line in RCCL.splitlines()))
    job = started(file)
    until(lambda: job.state().exchanges == 2, SystemClock())
    assert (job.state().wrong, job.state().error) == (1, "")


def test_a_program_that_ends_has_failed_with_its_last_words(
    started: Callable[..., CommandJob], tmp_path: Path
) -> None:
    failure = (
        "node7: Test NCCL failure all_reduce.cu:57 "
        "'remote process exited or there was a network error / socket closed'"
    )
    lines = [*RCCL.splitlines()[:5], failure, " .. node7 pid 17: Test failure common.cu:402"]
    file = tmp_path / "failed.txt"
    file.write_text("".join(f"0.1\t{line}\n" for line in lines))
    job = started(file, "3")
    until(lambda: bool(job.state().error), SystemClock())
    found = job.state()
    assert found.error == failure
    assert found.failed is not None
    # It ends 0.3 s after its last line: since then something may have been wrong.
    rows = "".join(f"0.1\t{line}\n" for line in RCCL.splitlines()) + "4\t@@\n"
    (tmp_path / "ended.txt").write_text(rows)
    job = started(tmp_path / "ended.txt", "0")
    until(lambda: bool(job.state().error), SystemClock())
    found = job.state()
    assert found.failed is not None
    assert found.failed.earliest == found.ends[-1].latest
    assert found.failed.latest - found.failed.earliest > 250 * MS
    assert job.state().error.startswith("the program ended; its last line:        16384")


def test_what_does_not_begin_is_an_error_with_what_was_printed(
    started: Callable[..., CommandJob], tmp_path: Path
) -> None:
    file = tmp_path / "none.txt"
    file.write_text("0\tmpirun: no host node9\n")
    with pytest.raises(CollectiveFailedError, match="no host node9"):
        started(file, "1")
    with pytest.raises(CollectiveFailedError, match="No such file"):
        CommandJob([str(tmp_path / "nothing")], SystemClock())


def test_a_job_that_no_one_has_stopped_ends_with_the_jobs(tmp_path: Path) -> None:
    """After an error of a switch, say; one that was stopped is left alone."""
    file = tmp_path / "rows.txt"
    file.write_text("".join(f"0.1\t{line}\n" for line in RCCL.splitlines()))
    (tmp_path / "replay.py").write_text(textwrap.dedent(REPLAY))
    bench: Any = SimpleNamespace(
        simulated={"ocs"},
        clock=SystemClock(),
        testbed=SimpleNamespace(servers={"node0": None}, path="lab.yaml"),
    )
    line = f"{sys.executable} {tmp_path}/replay.py {file} stay"
    jobs = CommandJobs(bench, line)
    jobs.close()
    job = jobs.start(Plan("ring", {}), "all_reduce")
    assert alive(int((tmp_path / "replay.py.pid").read_text()))
    assert job.state().exchanges >= 1
    jobs.close()
    assert (tmp_path / "replay.py.ended").read_text() == "by SIGTERM"
    assert not alive(int((tmp_path / "replay.py.pid").read_text()))
    jobs.close()
    bench.simulated = {"node0"}
    with pytest.raises(NoJobsError, match="node0 is"):
        CommandJobs(bench, line)


def test_what_it_has_started_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "both.sh"
    rows = "\n".join(RCCL.splitlines()[:5])
    file.write_text(f"cat <<'END'\n{rows}\nEND\nsleep 60 & echo $! > {tmp_path}/pid; wait\n")
    job = CommandJob(["sh", str(file)], SystemClock())
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), SystemClock())
    pid = int((tmp_path / "pid").read_text())
    job.stop()
    until(lambda: not alive(pid), SystemClock())


DAEMON = "import os, time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0)"


def test_what_has_left_its_group_ends_with_it(tmp_path: Path) -> None:
    """A daemon of a launcher (orted) has a session of its own."""
    file, written = tmp_path / "both.sh", tmp_path / "pid"
    rows = "\n".join(RCCL.splitlines()[:5])
    daemon = f"{DAEMON}; open({str(written)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    file.write_text(f"cat <<'END'\n{rows}\nEND\npython3 -c {shlex.quote(daemon)}; sleep 60\n")
    job = CommandJob(["sh", str(file)], SystemClock())
    until(lambda: written.exists() and written.read_text(), SystemClock())
    assert alive(int(written.read_text()))
    job.stop()
    until(lambda: not alive(int(written.read_text())), SystemClock())
