"""perftest on simulated servers, read by its parser."""

import pytest

from lightrig.harness.bench import Bench, Fabric
from lightrig.instruments.jobs.tools import perftest
from lightrig.instruments.servers.host.commands import Commands
from lightrig.instruments.servers.host.linux import LinuxServer

LINE_RATE = 100e9


@pytest.fixture
def on(bench: Bench, giant_ring: Fabric) -> dict[str, Commands]:
    found = {}
    for name, server in bench.servers.items():
        assert isinstance(server, LinuxServer)
        found[name] = server.commands
    return found


@pytest.mark.parametrize("unit", [[], ["--report_gbits"]])
def test_rdma_bandwidth(on: dict[str, Commands], unit: list[str]) -> None:
    options = ["-d", "mlx5_01", "-a", "-n", "1000", *unit]
    server = on["server1"].start(["ib_write_bw", *options])
    client = on["server0"].run(["ib_write_bw", *options, "server1.invalid"])
    for text in (client.stdout, server.result().stdout):
        (report,) = perftest.parse(text)
        assert report.test == "RDMA_Write BW Test"
        assert report.settings["Device"] == "mlx5_01"
        assert [row.size for row in report.bandwidths] == [2 << n for n in range(23)]
        assert 0.9 * LINE_RATE < report.bandwidths[-1].average_bps < LINE_RATE
        assert report.bandwidths[0].messages_per_s < 20e6


def test_rdma_latency(on: dict[str, Commands]) -> None:
    for program in ("ib_send_lat", "ib_read_lat"):
        server = on["server1"].start([program, "-d", "mlx5_01"])
        client = on["server0"].run([program, "-d", "mlx5_01", "-s", "8", "server1"])
        (report,) = perftest.parse(client.stdout)
        (row,) = report.latencies
        assert row.size == 8
        there_and_back = 2 if program == "ib_read_lat" else 1
        assert 1_500 * there_and_back < row.average_ns < 2_500 * there_and_back
        server.result()


def test_rdma_between_ports_that_are_not_joined(on: dict[str, Commands]) -> None:
    server = on["server3"].start(["ib_write_bw", "-d", "mlx5_01"])
    client = on["server0"].run(["ib_write_bw", "-d", "mlx5_00", "server3"])
    assert client.status == 1
    assert "Failed status 12" in client.stderr
    assert server.result().status == 1


def test_rdma_without_a_server_or_a_device(on: dict[str, Commands]) -> None:
    refused = on["server0"].run(["ib_write_bw", "-d", "mlx5_00", "server1"])
    assert "Couldn't connect to server1:18515" in refused.stderr
    missing = on["server0"].run(["ib_write_bw", "-d", "mlx5_77", "server1"])
    assert "IB device mlx5_77 not found" in missing.stderr
    second = on["server1"].start(["ib_send_lat", "-d", "mlx5_01"])
    assert on["server0"].run(["ib_write_bw", "-d", "mlx5_01", "server1"]).status == 1
    assert on["server1"].run(["ib_send_lat", "-d", "mlx5_01"]).status == 1  # the port is taken
    assert on["server0"].run(["ib_send_lat", "-d", "mlx5_01", "server1"]).status == 0
    assert second.result().status == 0
