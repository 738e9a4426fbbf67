"""OSU micro-benchmarks, perftest and iperf3 on simulated servers, read by the parsers."""

import pytest

from harness.bench import Bench, Fabric
from instruments.servers.commands import Commands
from instruments.servers.linux import LinuxServer
from instruments.servers.tools import iperf3, osu, perftest
from instruments.servers.tools.output import ToolReportedError

LINE_RATE = 100e9
BOTH_RAILS = 200e9


@pytest.fixture
def on(bench: Bench, giant_ring: Fabric) -> dict[str, Commands]:
    found = {}
    for name, server in bench.servers.items():
        assert isinstance(server, LinuxServer)
        found[name] = server.commands
    return found


def mpirun(*hosts: str) -> list[str]:
    return ["mpirun", "--host", ",".join(hosts)]


# ------------------------------------------------------------------------------------ OSU


def test_osu_latency_and_bandwidth(on: dict[str, Commands]) -> None:
    pair = mpirun("server0", "server1.invalid")
    latency = osu.parse(on["server0"].run([*pair, "osu_latency", "-m", "8:1048576"]).stdout)
    assert latency.test == "MPI Latency Test"
    times = [row.latency_ns for row in latency.rows]
    assert times[0] is not None
    assert 2_000 < times[0] < 10_000
    assert [row.size for row in latency.rows] == [8 << n for n in range(18)]
    bandwidth = osu.parse(on["server0"].run([*pair, "osu_bw", "-m", "4194304:4194304"]).stdout)
    (row,) = bandwidth.rows
    assert row.bandwidth_bps is not None
    assert 0.8 * BOTH_RAILS < row.bandwidth_bps < BOTH_RAILS


@pytest.mark.parametrize("program", ["osu_allreduce", "osu_allgather", "osu_reduce_scatter"])
def test_osu_collectives(on: dict[str, Commands], program: str) -> None:
    ring = mpirun("server0", "server1", "server3", "server2")
    report = osu.parse(on["server0"].run([*ring, program, "-m", "4:65536", "-f"]).stdout)
    for row in report.rows:
        assert row.iterations == 200
        assert row.least_ns is not None
        assert row.latency_ns is not None
        assert row.most_ns is not None
        assert row.least_ns <= row.latency_ns <= row.most_ns
    assert report.version == "5.7.1"


def test_osu_without_a_link_waits_for_good(on: dict[str, Commands]) -> None:
    started = on["server0"].start([*mpirun("server0", "server3"), "osu_latency"])
    with pytest.raises(Exception, match="did not end a program within 5 s"):
        started.result(5_000_000_000)


@pytest.mark.parametrize(
    "command",
    [
        ["osu_latency"],
        [*mpirun("server0", "server1"), "osu_latency", "--what"],
        [*mpirun("server0", "server1", "server2"), "osu_bw"],
        [*mpirun("server0", "nowhere"), "osu_allreduce"],
    ],
)
def test_osu_that_cannot_run(on: dict[str, Commands], command: list[str]) -> None:
    assert on["server0"].run(command).status != 0


# -------------------------------------------------------------------------------- perftest


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
    other = on["server1"].start(["ib_send_lat", "-d", "mlx5_01"])
    assert on["server0"].run(["ib_write_bw", "-d", "mlx5_01", "server1"]).status == 1
    assert on["server1"].run(["ib_send_lat", "-d", "mlx5_01"]).status == 1  # the port is taken
    assert on["server0"].run(["ib_send_lat", "-d", "mlx5_01", "server1"]).status == 0
    assert other.result().status == 0


# ---------------------------------------------------------------------------------- iperf3


def test_iperf3(on: dict[str, Commands]) -> None:
    assert on["server1"].run(["iperf3", "-s", "-D", "-p", "5300"]).status == 0
    command = ["iperf3", "-c", "server1", "-p", "5300", "-J", "-t", "3", "-P", "2"]
    for extra in ([], ["-R"], ["--bind-dev", "ens1f1np1"]):
        report = iperf3.parse(on["server0"].run([*command, *extra]).stdout)
        assert report.streams == 2
        assert len(report.intervals) == 3
        assert report.received is not None
        assert 0.9 * LINE_RATE < report.received.bps < LINE_RATE


def test_iperf3_the_other_way_round(on: dict[str, Commands]) -> None:
    on["server0"].run(["iperf3", "-s", "-D"])
    report = iperf3.parse(on["server1"].run(["iperf3", "-c", "server0", "-J", "-t", "1"]).stdout)
    assert report.sent.bps > 0.9 * LINE_RATE


def test_iperf3_that_finds_nobody(on: dict[str, Commands]) -> None:
    with pytest.raises(ToolReportedError, match="Connection refused"):
        iperf3.parse(on["server0"].run(["iperf3", "-c", "server2", "-J"]).stdout)
    on["server3"].run(["iperf3", "-s", "-D"])
    result = on["server0"].run(["iperf3", "-c", "server3", "-J"])
    assert result.status == 0
    with pytest.raises(ToolReportedError, match="No route to host"):
        iperf3.parse(result.stdout)
    assert on["server3"].run(["iperf3", "-s", "-1"]).status == 1  # already in use


def test_iperf3_that_ends_with_its_client(on: dict[str, Commands]) -> None:
    server = on["server2"].start(["iperf3", "-s", "-1"])
    iperf3.parse(on["server0"].run(["iperf3", "-c", "server2", "-J", "-t", "1"]).stdout)
    assert server.result().status == 0
    assert on["server0"].run(["iperf3", "-c"]).status == 1
