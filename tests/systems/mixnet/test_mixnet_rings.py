"""Sums over servers, then over rings of their packet NICs: values, bytes and repeats."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.systems.mixnet.generator import render
from lightrig.harness.systems.mixnet.measurements.link_bytes import link_bytes
from lightrig.harness.systems.mixnet.planning.delegation import packet_rings, ring_bytes
from lightrig.harness.systems.mixnet.planning.demand import Placement
from lightrig.harness.systems.mixnet.planning.region import Region
from lightrig.harness.systems.mixnet.planning.routing import Routing
from lightrig.harness.systems.mixnet.runtime.training import ExpertTraining
from lightrig.instruments.jobs.traffic.training import Script
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Port, load

SERVERS = 6
COUNT, SUMS = 300_001, 3
SCRIPT = f"""
import hashlib
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
ranks = dist.get_world_size()
for number in range({SUMS}):
    given = [
        torch.randn({COUNT}, generator=torch.Generator().manual_seed(100 * number + rank))
        for rank in range(ranks)
    ]
    found = given[dist.get_rank()].clone()
    dist.all_reduce(found)
    exact = torch.stack(given).double()
    # Of n numbers added in any order: n - 1 roundings, each of at most half a unit of the last
    # place of a partial sum (Higham, Accuracy and Stability, 4.4).
    unit = (ranks - 1) * 2.0**-24
    bound = unit / (1 - unit) * exact.abs().sum(0)
    inside = bool(((found.double() - exact.sum(0)).abs() <= bound).all())
    print(number, inside, hashlib.sha256(found.numpy().tobytes()).hexdigest())
"""


def test_every_packet_nic_has_a_ring_of_the_delegates_near_it() -> None:
    """Four GPUs, two circuits and two packet NICs: the latter stand near GPUs 2 and 3."""
    region = Region.uniform(3, optical=2, packet=2, gpus=4)
    placement = Placement.even(12, 3)
    first, second = packet_rings(placement, Routing(region, ()))
    assert (first.gateways, second.gateways) == ([2, 6, 10], [11, 7, 3])
    ends = [(str(a), str(b)) for a, b in second.links]
    assert ends == [
        ("server2.nic3", "server1.nic3"), ("server1.nic3", "server0.nic3"),
        ("server0.nic3", "server2.nic3"),
    ]  # fmt: skip
    # Each ring has 600 bytes in three chunks; a server sends four, each with a frame, and asks for
    # as many of the one before.
    carried = ring_bytes([first, second], 1200)
    assert carried[Port("server0", "nic2"), Port("server1", "nic2")] == 4 * (200 + 48)
    assert carried[Port("server1", "nic2"), Port("server0", "nic2")] == 4 * 48
    assert sum(carried.values()) == 2 * 3 * 4 * (200 + 2 * 48)


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    if reason := kernel.available():
        pytest.skip(reason)
    pytest.importorskip("torch", reason="PyTorch is not installed")
    path = tmp_path / "region.yaml"
    path.write_text(render(SERVERS, 2, 1, 2, namespaces=True), "utf-8")
    bench = bind(load(path), "simulated", seed=1)
    try:
        fabric = Fabric(bench)
        yield fabric
        fabric.restore()
    finally:
        bench.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_sums_are_the_same_in_every_run_and_within_the_bound_of_rounding(fabric: Fabric) -> None:
    """Twelve ranks on six servers; both packet NICs of each carry half of the bytes."""
    training = ExpertTraining(fabric)
    try:
        script, plan = Script(SCRIPT, "sums.py"), fabric.plans["uniform"]
        runs = [training.train(script, 1, plan, count=True, rings=True) for _ in range(2)]
    finally:
        training.close()
    printed = [
        {rank: [line for _, line in lines] for rank, lines in run.printed.items()} for run in runs
    ]
    assert printed[0] == printed[1]
    assert len({tuple(lines) for lines in printed[0].values()}) == 1
    assert [line.split()[:2] for line in printed[0][0]] == [
        [str(number), "True"] for number in range(SUMS)
    ]
    # Each ring adds up half of the numbers: 2 (n - 1) / n of them leave each server.
    half = SUMS * 4 * COUNT / 2 * 2 * (SERVERS - 1) / SERVERS
    for run in runs:
        for link in link_bytes(fabric.testbed, run.periods):
            owner = link.source.owner if link.source else None  # sums have a period of no counts
            again = sum(1448 * period.again.get(owner, 0) for period in run.periods if owner)
            assert link.planned == pytest.approx(half, rel=0.01)
            assert 0.99 * link.planned < link.counted < 1.01 * (link.planned + again), str(link)
