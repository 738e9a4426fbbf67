"""Launchers of ranks: what a failed start says, and that nothing is left of it."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from program_host import Here
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import UnreachableError
from lightrig.instruments.jobs.core.collectives import CollectiveFailedError
from lightrig.instruments.jobs.traffic.open_mpi import OpenMpiRunner
from lightrig.instruments.jobs.traffic.rank_launcher import RankPlace, ServerLauncher
from lightrig.instruments.jobs.traffic.ring import RING
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.wire.shell import LineChannel, LineListener

RANKS = ("server0", "server1")


def ends(tmp_path: Path, script: str) -> CollectiveFailedError:
    """Return the error of a job whose `mpirun` is a shell script."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("ompi_info", ""), ("mpirun", f"#!/bin/sh\n{script}\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    clock = SystemClock()
    servers = {name: LinuxServer(name, Here(), clock, {}) for name in RANKS}
    runner = OpenMpiRunner(servers, clock, environment=tmp_path)
    with pytest.raises(CollectiveFailedError) as raised:
        runner.form(RANKS)
    runner.close()
    return raised.value


def test_a_launcher_that_fails_is_quoted_with_ranks_and_servers(tmp_path: Path) -> None:
    error = str(ends(tmp_path, "for n in 1 2 3 4 5 6 7; do echo line $n; done; exit 3"))
    assert error.startswith("server0, server1 did not start 2 of 2 ranks of MPI")
    assert "ranks     server0, server1" in error
    assert [line.split()[-2:] for line in error.splitlines() if "mpirun" in line] == [
        ["line", str(number)] for number in range(2, 8)
    ]


def test_a_rank_that_connects_is_not_among_those_that_are_missing(tmp_path: Path) -> None:
    # The first `-c` has the code of rank 0, here without the relay before and the program behind.
    script = """
        while [ "$1" != -c ]; do shift; done
        code="${2##*listening.close()}"
        exec python3 -c "${code%%import base64*}"
    """
    assert str(ends(tmp_path, script)).startswith("server1 did not start 1 of 2 ranks of MPI")


def test_what_a_launcher_leaves_behind_is_killed(tmp_path: Path) -> None:
    """It ends by itself, with a program in its group that nobody else would end."""
    ends(tmp_path, f"sleep 300 & echo $! > {tmp_path}/left; exit 1")
    left = int((tmp_path / "left").read_text())
    until(lambda: not Path(f"/proc/{left}").exists() or zombie(left), SystemClock())


def zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


class Refusing(Here):
    """A server that starts nothing."""

    def start(self, command: Sequence[str], listener: LineListener) -> LineChannel:
        raise UnreachableError("server1", "started no program")


class Noting(Here):
    """A server that notes the processes that it has started."""

    def __init__(self) -> None:
        super().__init__()
        self.channels: list[LineChannel] = []

    def start(self, command: Sequence[str], listener: LineListener) -> LineChannel:
        self.channels.append(super().start(command, listener))
        return self.channels[-1]


def test_ranks_that_have_started_end_where_another_server_refuses() -> None:
    clock, first = SystemClock(), Noting()
    places = [
        RankPlace(name, LinuxServer(name, shell, clock, {}), "lo")
        for name, shell in zip(RANKS, (first, Refusing()), strict=True)
    ]
    with pytest.raises(UnreachableError, match="server1 started no program"):
        ServerLauncher(RING, clock).start(places)
    (channel,) = first.channels
    assert channel.status is not None


def test_a_rank_has_its_name_process_and_clock() -> None:
    clock = SystemClock()
    launcher = ServerLauncher(RING, clock)
    places = [RankPlace(name, LinuxServer(name, Here(), clock, {}), "lo") for name in RANKS]
    started = launcher.start(places)
    try:
        assert tuple(started) == RANKS
        for rank in started.values():
            rank.greeted(rank.submit("hello", {}).result())
            assert os.path.exists(f"/proc/{rank.pid}")
            assert rank.clocks.same_clock
        assert len({rank.pid for rank in started.values()}) == len(RANKS)
    finally:
        for rank in started.values():
            rank.close()
        launcher.stop()
    assert all(rank.over for rank in started.values())
