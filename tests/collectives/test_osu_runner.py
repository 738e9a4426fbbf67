"""OSU micro-benchmarks on simulated servers, started and read as on real ones."""

from collections.abc import Callable
from typing import Any

import pytest

from harness.bench import Bench, Fabric
from instruments.collectives import CollectiveCall, CollectiveFailedError
from instruments.servers.launchers import Mpirun, Srun
from instruments.servers.linux import LinuxServer
from instruments.servers.osu_runner import PROGRAMS, OsuBenchmarks
from instruments.servers.tools.output import ToolOutputError
from instruments.simulated import osu_tool
from testbeds.flows import bus_bandwidth

RING = ("server0", "server1", "server3", "server2")


def runner_of(bench: Bench, **more: Any) -> OsuBenchmarks:
    servers = {name: each for name, each in bench.servers.items() if isinstance(each, LinuxServer)}
    return OsuBenchmarks(
        {name: server.commands for name, server in servers.items()},
        {name: f"{name}.invalid" for name in servers},
        simulated=True,
        **more,
    )


@pytest.mark.parametrize("launcher", [Mpirun(), Srun()])
@pytest.mark.parametrize("collective", sorted(PROGRAMS.keys() - {"all_to_all"}))
def test_a_ring_is_measured(
    bench: Bench, giant_ring: Fabric, collective: Any, launcher: Any
) -> None:
    call = CollectiveCall(collective, RING, (1 << 20, 1 << 26), warm_up=2, iterations=10)
    found = runner_of(bench, launcher=launcher).run(call)
    assert [each.size for each in found] == [1 << 20, 1 << 26]
    assert all(each.tool == "OSU micro-benchmarks 5.7.1" for each in found)
    assert all(
        (each.wrong, each.averaged_over, len(each.times_ns)) == (None, 10, 1) for each in found
    )
    assert found[0].environment == {"launcher": launcher.name}
    bandwidth = bus_bandwidth(collective, 4, 1 << 26, found[1].times_ns[0])
    assert 0.5 * 200e9 < bandwidth < 200e9


def test_what_cannot_be_asked_says_why(bench: Bench, giant_ring: Fabric) -> None:
    runner = runner_of(bench)
    with pytest.raises(CollectiveFailedError, match="no benchmark of it"):
        runner.run(CollectiveCall("send_receive", RING, (1024,)))
    with pytest.raises(CollectiveFailedError, match="1022 B for 4 ranks"):
        runner.run(CollectiveCall("all_gather", RING, (1022,)))


def test_servers_that_no_circuit_joins_are_named(dark_bench: Bench) -> None:
    with pytest.raises(CollectiveFailedError, match="did not end all_reduce among server0"):
        runner_of(dark_bench).run(CollectiveCall("all_reduce", RING, (1024,)), timeout=10**10)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("1024 ", "2048 "),
        lambda text: "",
        lambda text: "\n".join(line[:29] for line in text.splitlines()),
    ],
)
def test_what_is_not_the_answer_is_refused(
    bench: Bench,
    giant_ring: Fabric,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[str], str],
) -> None:
    real = osu_tool._table

    def changed(*arguments: Any) -> tuple[str, int]:
        text, took = real(*arguments)
        return change(text), took

    monkeypatch.setattr(osu_tool, "_table", changed)
    with pytest.raises(ToolOutputError):
        runner_of(bench).run(CollectiveCall("all_reduce", RING, (1024,)))
