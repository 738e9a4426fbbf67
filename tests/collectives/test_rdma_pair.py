"""RDMA between two simulated servers, as the driver of perftest measures it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.jobs.bench.rdma import NoRdmaError, RdmaOverCircuits
from lightrig.harness.jobs.measure.rdma import measure_rdma
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.core.errors import NoReplyError
from lightrig.instruments.jobs.simulated import perftest_tool
from lightrig.instruments.jobs.simulated.fabric_traffic import Listeners
from lightrig.instruments.jobs.traffic.rdma_pair import RdmaEnd, RdmaPair
from lightrig.instruments.servers.host.commands import ToolFailedError, ToolMissingError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome
from lightrig.testbeds import SimulatedFault, load
from lightrig.testbeds.parts import SshTimeouts


def end(bench: Bench, server: str, device: str) -> RdmaEnd:
    driver = bench.servers[server]
    assert isinstance(driver, LinuxServer)
    return RdmaEnd(driver.commands, device, f"{server}.invalid")


def test_latency_and_bandwidth(bench: Bench, giant_ring: Fabric) -> None:
    pair = RdmaPair(end(bench, "server0", "mlx5_01"), end(bench, "server1", "mlx5_01"), gid_index=3)
    latency = pair.latency(size=8, iterations=500)
    assert (latency.size, latency.iterations) == (8, 500)
    assert 1_500 < latency.typical_ns < 2_500
    assert latency.at.earliest < latency.at.latest
    bandwidth = pair.bandwidth(size=1 << 20)
    assert 0.9 * 100e9 < bandwidth.average_bps < 100e9


def test_sink_may_start_late(
    bench: Bench, giant_ring: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = Listeners.connect, []

    def too_early_twice(self: Listeners, *arguments: Any) -> ProgramOutcome:
        client, server, port, program, transfer = arguments
        tries.append(program)
        return real(self, client, server, port, program if len(tries) > 2 else "", transfer)

    monkeypatch.setattr(Listeners, "connect", too_early_twice)
    pair = RdmaPair(end(bench, "server0", "mlx5_01"), end(bench, "server1", "mlx5_01"))
    assert pair.latency().iterations == 1000
    assert len(tries) == 3


def test_sink_may_take_as_long_as_a_measurement_to_listen(
    bench: Bench, giant_ring: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy server was seen to take more than 5 s to start perftest."""
    real, listens = Listeners.connect, bench.clock.now() + 40_000_000_000

    def late(self: Listeners, *arguments: Any) -> ProgramOutcome:
        client, server, port, program, transfer = arguments
        known = program if bench.clock.now() > listens else ""
        return real(self, client, server, port, known, transfer)

    monkeypatch.setattr(Listeners, "connect", late)
    pair = RdmaPair(end(bench, "server0", "mlx5_01"), end(bench, "server1", "mlx5_01"))
    assert pair.latency().iterations == 1000


def test_a_measurement_may_take_as_long_as_its_servers_tools(
    bench: Bench, giant_ring: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an emulated server sudo and perftest took more than a minute to start."""
    real = perftest_tool.printed_table

    def slow(*arguments: Any) -> tuple[str, int]:
        table, took = real(*arguments)
        return table, took + 70_000_000_000

    monkeypatch.setattr(perftest_tool, "printed_table", slow)
    ends = end(bench, "server0", "mlx5_01"), end(bench, "server1", "mlx5_01")
    with pytest.raises(NoReplyError, match="within 60 s"):
        RdmaPair(*ends, port=18900).latency()
    ends[1].commands.timeout_ns = 180_000_000_000
    assert RdmaPair(*ends, port=18901).latency().iterations == 1000


def test_sink_that_cannot_listen_is_not_waited_for(bench: Bench, giant_ring: Fabric) -> None:
    before = bench.clock.now()
    with pytest.raises(ToolFailedError, match=r"(?s)server1 ran .*IB device mlx5_77 not found"):
        RdmaPair(end(bench, "server0", "mlx5_01"), end(bench, "server1", "mlx5_77")).latency()
    assert bench.clock.now() - before < 5_000_000_000


def test_ports_that_are_not_joined(bench: Bench, giant_ring: Fabric) -> None:
    ends = end(bench, "server0", "mlx5_00"), end(bench, "server3", "mlx5_01")
    for timeout, retries_ns in ((14, 8 * 4096 * 2**14), (10, 8 * 4096 * 2**10)):
        before = bench.clock.now()
        with pytest.raises(ToolFailedError, match="Failed status 12"):
            RdmaPair(*ends, qp_timeout=timeout).bandwidth()
        assert retries_ns < bench.clock.now() - before < retries_ns + 400_000_000


@pytest.mark.parametrize(
    ("stated", "retry_ns"),
    [
        # 4.096 us, doubled until it is the time that is stated at least; eight transmissions.
        ({}, 8 * 67_108_864),
        ({"server0": 1_000_000_000}, 8 * 1_073_741_824),
        ({"server0": 1_000_000_000, "server1": 1_100_000_000}, 8 * 2_147_483_648),
        ({"server1": 67_108_864}, 8 * 67_108_864),
        ({"server1": 67_108_865}, 8 * 134_217_728),
    ],
)
def test_the_retransmission_of_the_slower_server_holds(
    bench: Bench, giant_ring: Fabric, stated: Mapping[str, int], retry_ns: int
) -> None:
    testbed = bench.testbed
    servers = {
        name: replace(spec, timeouts=SshTimeouts(retransmission_ns=stated.get(name)))
        for name, spec in testbed.servers.items()
    }
    link = next(
        each
        for each in giant_ring.links(testbed.plans["giant-ring"])
        if {each.a.owner, each.b.owner} == {"server0", "server1"}
    )
    bench.testbed = replace(testbed, servers=servers)
    assert RdmaOverCircuits(bench).pair(link).retry_ns == retry_ns


def test_a_device_that_is_not_there(bench: Bench, giant_ring: Fabric) -> None:
    with pytest.raises(ToolFailedError, match="IB device mlx5_77 not found"):
        RdmaPair(
            end(bench, "server0", "mlx5_77"), end(bench, "server1", "mlx5_01"), port=18600
        ).latency()


def test_servers_without_perftest(bench: Bench) -> None:
    for server in ("server0", "server1"):
        lacking = replace(
            bench.testbed.simulation,
            faults=(SimulatedFault("missing tool", (server,), tool="ib_send_lat"),),
        )
        lab = bind(replace(bench.testbed, simulation=lacking), "simulated", 2)
        try:
            pair = RdmaPair(end(lab, "server0", "mlx5_01"), end(lab, "server1", "mlx5_01"))
            with pytest.raises(ToolMissingError, match=f"{server} has no program ib_send_lat"):
                pair.latency()
        finally:
            lab.close()


def test_a_row_of_another_size(
    bench: Bench, giant_ring: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = perftest_tool.printed_table

    def sink(*arguments: object) -> tuple[str, int]:
        table, took = real(*arguments)  # type: ignore[arg-type]
        return table.replace(" 2       1000", " 4       1000"), took

    monkeypatch.setattr(perftest_tool, "printed_table", sink)
    pair = RdmaPair(end(bench, "server0", "mlx5_01"), end(bench, "server1", "mlx5_01"), port=18700)
    with pytest.raises(ToolOutputError, match="one row of 2 B"):
        pair.latency()


def test_sink_without_a_source_is_ended(bench: Bench, giant_ring: Fabric) -> None:
    commands = end(bench, "server2", "").commands
    started = commands.start(["ib_send_lat", "-d", "mlx5_01", "-p", "18800"])
    with pytest.raises(NoReplyError, match="within 2 s"):
        started.result(2_000_000_000)
    assert commands.run(["uname"]).status == 0


def test_every_link_of_a_plan_is_measured(bench: Bench, giant_ring: Fabric) -> None:
    taken: list[Row] = []
    recording, over = Recording(taken.extend), RdmaOverCircuits(bench)
    plan = bench.testbed.plans["giant-ring"]
    for link in giant_ring.links(plan):
        measure_rdma(giant_ring, recording, over.pair(link), link, plan)
    by_quantity = {row.quantity: [] for row in taken}
    for row in taken:
        by_quantity[row.quantity].append(row)
    assert {name: len(rows) for name, rows in by_quantity.items()} == dict.fromkeys(
        ("rdma.latency", "rdma.latency_p99", "rdma.bandwidth", "rdma.utilization"), 8
    )
    assert all(0.9 < row.value < 1 for row in by_quantity["rdma.utilization"])
    first = by_quantity["rdma.latency"][0]
    assert first.lower == first.value == first.upper
    assert first.conditions == {
        "plan": "giant-ring",
        "line_rate_bps": 100 * 10**9,
        "size": 8,
        "iterations": 1000,
        "gid_index": 3,  # as the simulated tool prints above its table
    }


def test_a_testbed_without_rdma() -> None:
    class NoBench:
        testbed = load(Path("testbeds/namespaces.yaml"))

    with pytest.raises(NoRdmaError, match=r"server0\.nic0\.p0, .* have no RDMA device"):
        RdmaOverCircuits(NoBench())  # type: ignore[arg-type]
