"""Collectives by MPI among ranks on this machine's loopback, and what a missing MPI says."""

import importlib.util
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest
from program_host import Here
from real_time import LONG, until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.core.collectives import (
    CollectiveCall,
    CollectiveFailedError,
    Exchange,
)
from lightrig.instruments.jobs.core.traffic import MortalTrafficSource
from lightrig.instruments.jobs.flows.bandwidth import Collective
from lightrig.instruments.jobs.traffic import mpi
from lightrig.instruments.jobs.traffic.mpi import MpiRunner, NoMpiError
from lightrig.instruments.servers.host.linux import LinuxServer

COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
PAIR = ("server1", "server0")


@pytest.fixture
def runner() -> Iterator[Callable[..., MpiRunner]]:
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    made: list[MpiRunner] = []

    def build(**settings: Any) -> MpiRunner:
        clock = SystemClock()
        servers = {name: LinuxServer(name, Here(), clock, {}) for name in PAIR}
        made.append(MpiRunner(servers, clock, interface="lo", **settings))
        return made[-1]

    yield build
    for each in made:
        each.close()


def call(collective: Collective, *sizes: int) -> CollectiveCall:
    return CollectiveCall(collective, PAIR, sizes, warm_up=1, iterations=3)


def test_every_collective_is_timed_and_checked_and_traffic_goes_on_until_it_is_stopped(
    runner: Callable[[], MpiRunner],
) -> None:
    found = runner()
    for collective in COLLECTIVES:
        small, large = found.run(call(collective, 1000, 100_000))
        assert (small.wrong, large.wrong) == (0, 0)
        assert 990 <= small.size <= 1000
        assert len(small.times_ns) == 3
        assert small.tool.startswith("MPICH 5")
        assert small.environment["MPIR_CVAR_NOLOCAL"] == "1"
    processes = [found.program(rank).pid for rank in PAIR]
    turned = PAIR[::-1]
    (second,) = found.run(CollectiveCall("send_receive", turned, (4000,), 0, 1))
    assert (second.ranks, second.wrong) == (turned, 0)
    assert [found.program(rank).pid for rank in PAIR] == processes
    before = SystemClock().now()
    traffic = found.start(PAIR, 4096).stop()
    completed = traffic.completed()
    assert traffic.ranks == PAIR
    assert (traffic.wrong, traffic.failures) == (0, {})
    assert before < completed[0][0].earliest < completed[-1][1].latest
    assert not isinstance(found, MortalTrafficSource)


@pytest.mark.long
def test_an_exchange_runs_on_a_process_for_each_lane_in_any_order_of_ranks() -> None:
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed")
    clock = SystemClock()
    servers = {name: LinuxServer(name, Here(), clock, {}) for name in PAIR}
    found = MpiRunner(servers, clock, interface="lo", lanes=["lo"])
    try:
        lanes = (((0, 400_000), (0, 0)), ((0, 4000), (8000, 0)))
        for ranks in (PAIR, PAIR[::-1]):
            exchanged = found.exchange(Exchange(ranks, lanes), iterations=3)
            assert (exchanged.wrong, len(exchanged.times_ns)) == (0, 3)
        unused = found.exchange(Exchange(PAIR, lanes[:1]), iterations=1)
        assert unused.wrong == 0
        names = [*PAIR, *(f"{rank} on lane 1" for rank in PAIR)]
        assert len({found.program(name).pid for name in names}) == 4
        (reduced,) = found.run(call("all_reduce", 64))
        assert reduced.wrong == 0
    finally:
        found.close()


def test_a_rank_that_ends_fails_the_collective_and_the_next_begins_anew(
    runner: Callable[[], MpiRunner],
) -> None:
    found = runner()
    running = found.start(PAIR, 4096)
    os.kill(found.program("server0").pid, signal.SIGKILL)
    with pytest.raises(CollectiveFailedError, match="in a collective of 2 ranks"):
        running.stop()
    (again,) = found.run(call("all_reduce", 64))
    assert again.wrong == 0
    os.kill(found.program("server1").pid, signal.SIGKILL)
    until(lambda: found.program("server1").over, SystemClock())
    (anew,) = found.run(call("all_reduce", 64))
    assert anew.wrong == 0


@pytest.mark.long
def test_an_operation_that_does_not_end_fails_within_its_timeout(
    runner: Callable[..., MpiRunner],
) -> None:
    found = runner(timeout=2_000_000_000)
    found.form(PAIR)
    running = [found.program(rank).submit("loop", {"size": 4096}, LONG) for rank in PAIR]
    stopped = found.program("server0").pid
    os.kill(stopped, signal.SIGSTOP)  # as a server behind links that stay parted
    found.program("server1").submit("stop", {}).result()
    answer = running[PAIR.index("server1")].result()
    assert "not complete after 2 s" in answer["failure"]
    os.kill(stopped, signal.SIGKILL)


def test_without_mpi_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(mpi.importlib, "import_module", missing)
    with pytest.raises(NoMpiError, match=r"pip install 'lightrig\[mpi\]'"):
        mpi.mpiexec()
