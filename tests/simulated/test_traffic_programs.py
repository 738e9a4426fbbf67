"""Whatever is typed at the programs that send traffic, they end, and the world goes on."""

from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.simulated.fabric_traffic import FabricTraffic
from lightrig.instruments.jobs.simulated.traffic_tools import TrafficTools
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.links import NicLinks
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.testbeds import Testbed, load

WORDS = (
    *("-b", "-e", "-f", "-i", "-n", "-w", "-c", "-g", "-d", "-J", "-I", "-m", "-x", "-a", "-s"),
    *("-p", "-u", "-t", "-P", "-R", "-D", "-1", "-l", "-N", "--host", "-np", "--report_gbits"),
    *("--nodelist=server0,server2", "--distribution=arbitrary", "--tag-output", "--bind-dev"),
    *("0", "1", "2", "-1", "8M", "1G", "999999999999", "float", "half", "x", "", "mlx5_00"),
    *("server0", "server2", "server0:2,server2:2", "server0,server2,nowhere", "8:64", "A=1"),
    *("NCCL_IB_TIMEOUT=x", "NCCL_NET=Socket", "out.json", "ens0f0np0"),
)


PROGRAMS = (
    *("all_reduce_perf", "alltoall_perf", "ib_write_bw", "ib_send_lat"),
    *("mpirun", "srun", "env"),
)


class Paused(SystemClock):
    """A clock that stands still until `run` does all that is due."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[Callable[[], None]] = []

    def schedule(self, at: int, owner: str, action: Callable[[], None]) -> None:  # type: ignore[override]
        self.due.append(action)

    def now(self) -> int:
        return 100_000_000_000

    def run(self) -> None:
        while self.due:
            self.due.pop(0)()


@pytest.fixture(scope="module")
def traffic() -> FabricTraffic:
    """Opus, with all links of its first plan up."""
    testbed: Testbed = load(Path("testbeds/opus.yaml"))
    clock, chance = Paused(), Chance(1)
    links = NicLinks(testbed.simulation.nic, clock, chance, GroundTruth())
    for link in testbed.links("east-west"):
        links.hears(link.a, link.b, 0)
        links.hears(link.b, link.a, 0)
    return FabricTraffic(testbed, links, clock, chance)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(PROGRAMS),
    st.lists(st.sampled_from(WORDS), max_size=6),
    st.sampled_from([[], ["all_reduce_perf", "-b", "8", "-e", "64"], ["ib_send_lat"]]),
)
def test_random_command_lines_end_and_the_world_goes_on(
    traffic: FabricTraffic, program: str, words: list[str], behind: list[str]
) -> None:
    assert isinstance(traffic.clock, Paused)
    outcome = TrafficTools("server0", traffic).programs()[program]([*words, *behind])
    ends = [outcome]
    if outcome.pending is not None:
        ends = []
        outcome.pending.on_end(ends.append)
        traffic.clock.run()
    waits_for_a_client = program in ("ib_write_bw", "ib_send_lat", "env")
    assert ends or waits_for_a_client
    for end in ends:
        assert end.took >= 0
        assert end.status == 0 or end.stderr or end.stdout


def test_all_links_are_up(traffic: FabricTraffic) -> None:
    assert traffic.up() == frozenset(traffic.testbed.links("east-west"))
