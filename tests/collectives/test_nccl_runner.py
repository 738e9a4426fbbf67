"""nccl-tests on simulated servers, started and read as on real ones."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.jobs.bench.collectives import without_collective, without_traffic
from lightrig.harness.jobs.bench.nccl import NcclOverCircuits, NoCarrierError, NoGpusError, obstacle
from lightrig.harness.jobs.planning.rings import BrokenRingError
from lightrig.instruments.jobs.core.collectives import CollectiveCall, CollectiveFailedError
from lightrig.instruments.jobs.flows.bandwidth import bus_bandwidth
from lightrig.instruments.jobs.flows.collectives import schedule_of
from lightrig.instruments.jobs.flows.of_testbed import network_of, rank_vertices
from lightrig.instruments.jobs.flows.routing import Router
from lightrig.instruments.jobs.flows.steps import Costs, duration
from lightrig.instruments.jobs.simulated import nccl_tests_tool
from lightrig.instruments.jobs.simulated.fabric_traffic import traffic_of
from lightrig.instruments.jobs.traffic.launchers import Launcher, Mpirun, Srun
from lightrig.instruments.jobs.traffic.nccl_runner import PROGRAMS, progressions
from lightrig.instruments.servers.host.commands import ToolMissingError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome
from lightrig.testbeds import Plan, load

NAMESPACES = Path(__file__).parents[2] / "testbeds" / "namespaces.yaml"
RING = ("server0", "server1", "server3", "server2")
SIZES = tuple(1 << power for power in range(12, 29, 4))
RETRIES_NS = 7 * 4096 * 2**20


@pytest.fixture
def tamper(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], str]], None]:
    """Lets something change what every program prints."""

    def by(change: Callable[[str], str]) -> None:
        real = nccl_tests_tool.run

        def changed(*arguments: Any) -> ProgramOutcome:
            outcome = real(*arguments)
            return outcome._replace(stdout=change(outcome.stdout))

        monkeypatch.setattr(nccl_tests_tool, "run", changed)

    return by


@pytest.mark.parametrize("launcher", [Mpirun(), Srun(), Mpirun(options=("--tag-output",))])
@pytest.mark.parametrize("per_operation", [True, False])
def test_a_ring_all_reduce(
    bench: Bench, giant_ring: Fabric, launcher: Launcher, per_operation: bool
) -> None:
    runner = NcclOverCircuits(bench, launcher, per_operation=per_operation).runner
    found = runner.run(CollectiveCall("all_reduce", RING, SIZES, warm_up=2, iterations=10))
    assert runner.simulated
    assert [each.size for each in found] == list(SIZES)
    for each in found:
        assert each.wrong == 0
        assert each.tool == "nccl-tests 2.17.6"
        assert each.environment == {"launcher": launcher.name}
        expected = (20, 1) if per_operation else (2, 10)
        assert (len(each.times_ns), each.averaged_over) == expected
    largest = found[-1]
    bandwidth = bus_bandwidth("all_reduce", 4, largest.size, min(largest.times_ns))
    assert 0.85 * 200e9 < bandwidth < 200e9


@pytest.mark.parametrize("collective", sorted(PROGRAMS.keys() - {"all_to_all"}))
def test_times_are_those_of_the_flow_model(
    bench: Bench, giant_ring: Fabric, collective: str
) -> None:
    """Closure: the model's overheads are known here, and come out within the noise."""
    call = CollectiveCall(collective, RING, (1 << 26,))  # type: ignore[arg-type]
    (found,) = NcclOverCircuits(bench).runner.run(call)
    testbed = bench.testbed
    router = Router(network_of(testbed, giant_ring.links(giant_ring.plans["giant-ring"])))
    schedule = schedule_of(collective, rank_vertices(testbed, RING), found.size)  # type: ignore[arg-type]
    expected = 12_000 + duration(router, schedule, Costs(3_000, 0.93))
    assert sum(found.times_ns) / 40 == pytest.approx(expected, rel=0.006)


def test_sizes_of_no_single_progression(bench: Bench, giant_ring: Fabric) -> None:
    call = CollectiveCall("all_gather", RING, (1000, 4096, 8192, 16384, 100_000))
    found = NcclOverCircuits(bench).runner.run(call)
    # Each rank's share is of whole 16 bytes.
    assert [each.size for each in found] == [960, 4096, 8192, 16384, 99_968]


def test_progressions() -> None:
    assert progressions((8,)) == [([8], 2)]
    assert progressions((8, 16, 64, 256, 300)) == [([8, 16], 2), ([64, 256], 4), ([300], 2)]


def test_a_link_that_is_missing_is_an_error_after_the_retries(
    bench: Bench, giant_ring: Fabric
) -> None:
    wrong_order = ("server0", "server3", "server1", "server2")
    before = bench.clock.now()
    with pytest.raises(CollectiveFailedError) as caught:
        NcclOverCircuits(bench).runner.run(CollectiveCall("all_reduce", wrong_order, (8,)))
    assert bench.clock.now() - before > RETRIES_NS
    assert "all_reduce among server0, server3, server1, server2: status 3" in str(caught.value)
    assert "IBV_WC_RETRY_EXC_ERR" in str(caught.value)
    assert "mpirun --host server0.invalid:1,server3.invalid:1" in caught.value.command


def test_variables_change_how_long_it_retries(bench: Bench, giant_ring: Fabric) -> None:
    error = {"NCCL_IB_TIMEOUT": "14", "NCCL_IB_RETRY_CNT": "1"}
    before = bench.clock.now()
    with pytest.raises(CollectiveFailedError):
        NcclOverCircuits(bench, environment=error).runner.run(
            CollectiveCall("all_reduce", ("server0", "server3"), (8,))
        )
    assert bench.clock.now() - before < 5_000_000_000


def test_tcp_run_without_link_ends_with_the_timeout(bench: Bench, giant_ring: Fabric) -> None:
    runner = NcclOverCircuits(bench, environment={"NCCL_NET": "Socket"}).runner
    call = CollectiveCall("send_receive", ("server0", "server3"), (8,))
    before = bench.clock.now()
    with pytest.raises(CollectiveFailedError, match=r"did not end send_receive .* within 40 s"):
        runner.run(call, timeout=40_000_000_000)
    assert 40e9 <= bench.clock.now() - before < 41e9
    (found,) = NcclOverCircuits(bench).runner.run(CollectiveCall("send_receive", RING, (8,)))
    assert found.wrong == 0  # and the next one runs


def test_dark_links_carry_nothing(dark_bench: Bench) -> None:
    with pytest.raises(CollectiveFailedError):
        NcclOverCircuits(dark_bench).runner.run(CollectiveCall("all_reduce", RING, (8,)))


def test_more_ranks_than_gpus(bench: Bench, giant_ring: Fabric) -> None:
    ranks = ("server0",) * 3
    with pytest.raises(CollectiveFailedError, match="invalid device ordinal"):
        NcclOverCircuits(bench).runner.run(CollectiveCall("all_reduce", ranks, (8,)))


def test_wrong_values_are_counted(
    bench: Bench, giant_ring: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.world is not None
    monkeypatch.setattr(traffic_of(bench.world), "wrong_values", 3)
    for per_operation in (True, False):
        runner = NcclOverCircuits(bench, per_operation=per_operation).runner
        (found,) = runner.run(CollectiveCall("all_reduce", RING, (8,)))
        assert found.wrong == 6


def test_no_program(bench: Bench, giant_ring: Fabric) -> None:
    server = bench.servers["server0"]
    assert isinstance(server, LinuxServer)
    with pytest.raises(ToolMissingError, match="all_reduce_perf"):
        server.commands.run(["/opt/nothing/all_reduce_perfect"])


def test_namespaces_have_no_gpus() -> None:
    class NoBench:
        testbed = load(Path("testbeds/namespaces.yaml"))

    with pytest.raises(NoGpusError, match="have no GPUs"):
        NcclOverCircuits(NoBench())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda text: text.replace("# Writing JSON output to", "#"), "Writing JSON"),
        (lambda text: "\n".join(text.splitlines()[:-6]), "rows|average|size"),
        (lambda text: text.replace("all_reduce_perf", "alltoall_perf"), "all_reduce"),
        (lambda text: text.replace("Rank  3", "Rank  7"), "ranks"),
        (lambda text: "", "table"),
    ],
)
def test_printed_operation_must_be_the_requested_one(
    bench: Bench,
    giant_ring: Fabric,
    tamper: Callable[[Callable[[str], str]], None],
    change: Callable[[str], str],
    expected: str,
) -> None:
    tamper(change)
    call = CollectiveCall("all_reduce", RING, (1 << 20, 1 << 21))
    with pytest.raises(ToolOutputError, match=expected) as caught:
        NcclOverCircuits(bench).runner.run(call)
    assert "server0: mpirun" in str(caught.value)


def test_rows_that_are_missing_at_the_end(
    bench: Bench, giant_ring: Fabric, tamper: Callable[[Callable[[str], str]], None]
) -> None:
    """Without the table's end nothing in it says that it had more rows."""
    tamper(lambda text: "".join(text.splitlines(keepends=True)[:-5]))
    call = CollectiveCall("all_reduce", RING, (1 << 20, 1 << 21, 1 << 22))
    with pytest.raises(ToolOutputError, match="rows of 1048576, 2097152, 4194304 B"):
        NcclOverCircuits(bench, per_operation=False).runner.run(call)


def by_gpu(*servers: str) -> tuple[str, ...]:
    return tuple(name for name in servers for _ in range(2))


def test_the_ring_of_each_plan(bench: Bench) -> None:
    nccl = NcclOverCircuits(bench)
    plans = bench.testbed.plans
    assert nccl.ranks(plans["giant-ring"]) == by_gpu(*RING)
    assert nccl.ranks(plans["east-west"]) == by_gpu("server0", "server2")
    assert obstacle(bench.testbed, "all_reduce", plans["giant-ring"]) == ""
    assert obstacle(bench.testbed, "all_to_all", plans["east-west"]) == ""
    missing = obstacle(bench.testbed, "all_to_all", plans["giant-ring"])
    assert "no link joins server0 and server3, server1 and server2" in missing


def test_a_ring_that_lacks_a_link(bench: Bench) -> None:
    whole = bench.testbed.plans["giant-ring"]
    lost = {
        circuit
        for link in bench.testbed.links(whole)
        if {link.a.owner, link.b.owner} == {"server0", "server1"}
        for circuits in bench.testbed.cabling.circuits_for_link(link.a, link.b).circuits.values()
        for circuit in circuits
    }
    broken = Plan("broken", {"ocs": whole.circuits["ocs"] - lost})
    with pytest.raises(BrokenRingError, match="server0"):
        NcclOverCircuits(bench).ranks(broken)
    assert "no link between" in obstacle(bench.testbed, "all_reduce", broken)


def test_collectives_that_a_testbed_can_never_run_are_known_from_its_file(bench: Bench) -> None:
    plans = bench.testbed.plans
    assert without_collective(bench.testbed, "all_reduce", plans["giant-ring"]) == ""
    assert "no link joins" in without_collective(bench.testbed, "all_to_all", plans["giant-ring"])
    assert without_traffic(bench.testbed) == "nccl-tests cannot run until stopped"
    namespaces = load(NAMESPACES)
    ring, pairs = namespaces.plans["ring"], namespaces.plans["pairs"]
    assert without_traffic(namespaces) == ""
    assert without_collective(namespaces, "all_to_all", ring) == ""  # they forward
    assert "no link between" in without_collective(namespaces, "all_reduce", pairs)


def test_of_many_pairs_without_a_link_some_are_named() -> None:
    """A ring of five has five pairs without a link, a torus of 25 has hundreds."""
    small, large = load(Path("testbeds/railx5.yaml")), load(Path("testbeds/railx.yaml"))
    assert obstacle(small, "all_to_all", small.plans["torus"]).count(" and ") == 5 + 1
    reason = obstacle(large, "all_to_all", large.plans["torus"])
    assert reason.count(" and ") == 6 + 1
    assert ", others, and the servers do not forward" in reason


def test_links_count_when_the_ranks_connect(bench: Bench, giant_ring: Fabric) -> None:
    """A test that is started as light goes finds the links down two seconds later."""
    server = bench.servers["server0"]
    assert isinstance(server, LinuxServer)
    before = bench.testbed.plans["giant-ring"]
    program = ["mpirun", "--host", "server0,server2", "all_reduce_perf", "-b", "8", "-e", "8"]
    started = server.commands.start(program)
    giant_ring.apply(Plan("dark", {"ocs": frozenset()}))
    try:
        assert started.result(120_000_000_000).status == 3
    finally:
        giant_ring.apply(before)


def test_ports_on_packet_switches_are_waited_for() -> None:
    bench = bind(load(Path("testbeds/mixnet.yaml")), "simulated", 3)
    try:
        nccl, plan = NcclOverCircuits(bench), bench.testbed.plans["packet"]
        Fabric(bench).apply(plan)
        nccl.route(plan)
        assert bench.clock.now() > 2_000_000_000  # the NICs take seconds
        ranks = nccl.ranks(plan)
        assert ranks == tuple(name for name in bench.testbed.servers for _ in range(8))
        (found,) = nccl.runner.run(CollectiveCall("all_to_all", ranks, (1 << 28,)))
        # Of what a server's eight ranks send, 24 of 32 shares leave it, by four NICs.
        rate = 8 * (24 / 32) * 8e9 * found.size / min(found.times_ns)
        assert 0.8 * 400e9 < rate < 400e9
    finally:
        bench.close()


def test_a_packet_switch_that_gives_no_carrier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightrig.harness.jobs.bench.nccl.CARRIER_TIMEOUT", 1_500_000_000)
    bench = bind(load(Path("testbeds/mixnet.yaml")), "simulated", 3)
    try:
        nccl = NcclOverCircuits(bench)
        with pytest.raises(NoCarrierError, match=r"server0\.nic0, .*: no carrier"):
            nccl.route(bench.testbed.plans["packet"])  # which was never applied
    finally:
        bench.close()


def test_one_seed_is_one_result() -> None:
    def times() -> list[tuple[int, ...]]:
        bench = bind(load(Path("testbeds/opus.yaml")), "simulated", 11)
        try:
            fabric, nccl = Fabric(bench), NcclOverCircuits(bench)
            plan = bench.testbed.plans["giant-ring"]
            fabric.apply(plan)
            bench.clock.sleep(10_000_000_000)
            call = CollectiveCall("all_reduce", nccl.ranks(plan), (1 << 10, 1 << 20))
            return [each.times_ns for each in nccl.runner.run(call)]
        finally:
            bench.close()

    assert times() == times()
