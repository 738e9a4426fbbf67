"""Links alone and at once: in namespaces with a limit of two ports, and by simulated perftest."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.findings import Finding
from lightrig.harness.jobs.bench.loads import RdmaLoad, flows_of
from lightrig.harness.jobs.bench.rdma import RdmaOverCircuits
from lightrig.harness.jobs.measure.concurrent_load import measure_concurrent_load, shared_parts
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.jobs.core.loads import Flow, FlowRate
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Port, load
from tests.campaigns.shared_trunk import SharedTrunk, measured, trunk_lab

ROUNDS = 6


class Told:
    """A recording that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.found: list[Finding] = []
        self.undecided: list[str] = []
        self.recording = Recording(
            self.rows.extend, undecided=self.undecided.append, found=self.found.extend
        )

    def values(self, quantity: str) -> dict[str, list[float]]:
        values: dict[str, list[float]] = {}
        for row in self.rows:
            if row.quantity == quantity:
                values.setdefault(row.subject, []).append(row.value)
        return values


@pytest.mark.long
def test_a_limit_of_two_servers_is_found_and_none_without_it(tmp_path: Path) -> None:
    """What server4 and server1 send passes one queue; the campaign `shared_trunk` draws the two."""
    if (reason := kernel.available()) is not None:
        pytest.skip(reason)
    for program in ("tc", "nsenter"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on this machine")
    with trunk_lab(tmp_path) as (bench, fabric):
        without, with_it = Told(), Told()
        assert not measured(bench, fabric, without.recording).sets
        with SharedTrunk(["server4.nic0", "server1.nic0"]):
            (found,) = measured(bench, fabric, with_it.recording).sets
    names = ["server1.nic0 > server0.nic0", "server4.nic0 > server5.nic0"]
    assert [str(flow) for flow in found.flows] == names
    assert found.confirmed
    assert not without.found
    (finding,) = with_it.found
    assert finding.subjects == tuple(names)
    assert [str(one) for one in finding.components] == [
        "link server0.nic0 - server1.nic0", "link server4.nic0 - server5.nic0",
    ]  # fmt: skip
    alone, shares = (with_it.values(f"datagrams.{name}") for name in ("alone", "concurrent_share"))
    assert set(alone) == set(shares)
    assert len(shares) == 6
    assert all(len(values) >= ROUNDS for values in shares.values())
    # Of 20 Mbit/s, a frame of 1442 B has 1400 B of data: at most 19.4 Mbit/s and the queue's burst.
    assert all(max(values) < 19.42e6 + 32 * 8192 / 0.1 for values in alone.values())
    for name in names:
        assert sorted(shares[name])[len(shares[name]) // 2] < 0.9


@pytest.mark.long
def test_simulated_perftest_runs_both_ways_on_all_links_at_once(
    simulated: Callable[..., Bench],
) -> None:
    bench = simulated(Path("testbeds/opus.yaml"), 3)
    fabric, told = Fabric(bench), Told()
    plan = next(plan for plan in bench.testbed.plans.values() if fabric.links(plan))
    links = LinkObservation(bench)
    bring_up(fabric, links, plan)
    rdma = RdmaLoad(bench, RdmaOverCircuits(bench))
    found = measure_concurrent_load(fabric, links, told.recording, rdma, plan, "rdma")
    assert not found.sets
    assert not found.alike
    shares = told.values("rdma.concurrent_share")
    links = fabric.links(plan)
    assert set(shares) == {
        f"{one} > {other}" for link in links for one, other in ((link.a, link.b), (link.b, link.a))
    }
    assert all(len(values) == ROUNDS for values in shares.values())
    assert all(0.9 < value < 1.1 for values in shares.values() for value in values)


class Scripted:
    """A load whose flows have the rates that a test gives, by which of them run."""

    def __init__(self, rate: Callable[[Flow, Sequence[Flow]], FlowRate]) -> None:
        self.rate = rate

    def rates(self, flows: Sequence[Flow]) -> list[FlowRate]:
        return [self.rate(flow, flows) for flow in flows]


@pytest.fixture(name="fabric")
def _fabric(simulated: Callable[..., Bench]) -> Fabric:
    return Fabric(simulated(Path("testbeds/opus.yaml"), 3))


def scripted(fabric: Fabric, rate: Callable[[Flow, Sequence[Flow]], FlowRate]) -> Told:
    told = Told()
    plan = next(plan for plan in fabric.testbed.plans.values() if fabric.links(plan))
    links = LinkObservation(fabric.bench)
    measure_concurrent_load(fabric, links, told.recording, Scripted(rate), plan, "datagrams")
    return told


def test_a_bench_whose_programs_wait_for_a_processor_cannot_tell(fabric: Fabric) -> None:
    """Alone they do not, so that what they lose at once would be taken for a shared limit."""
    told = scripted(
        fabric, lambda _, flows: FlowRate(1e9 / len(flows), 0.1 if len(flows) == 1 else 0.4)
    )
    assert not told.rows
    assert not told.found
    (sentence,) = told.undecided
    assert "cannot tell whether" in sentence
    assert "waited for a processor in 40 % of its time" in sentence


def test_flows_that_do_not_overlap_cannot_tell(fabric: Fabric) -> None:
    told = scripted(fabric, lambda _, flows: FlowRate(1e9 if len(flows) == 1 else None))
    assert not told.found
    assert "did not run side by side" in told.undecided[0]


def test_all_alike_are_all_of_them_or_the_bench(fabric: Fabric) -> None:
    most = len(flows_of(fabric.testbed, next(iter(fabric.testbed.plans.values()))))
    told = scripted(fabric, lambda _, flows: FlowRate(1e9 * (0.6 if len(flows) == most else 1.0)))
    (finding,) = told.found
    assert "all of them, or the bench" in finding.evidence
    assert "at once 60 % of each one's rate alone (6 rounds)" in finding.evidence


def test_flows_share_nics_servers_and_switches_of_the_file() -> None:
    testbed = load("testbeds/namespaces.yaml")
    flows = flows_of(testbed, testbed.plans["ring"])
    parts = {name: set(map(str, found)) for name, found in shared_parts(testbed, flows).items()}
    assert parts["server1.nic0 sending"] == {
        "server1.nic0.p0 > server0.nic0.p1", "server1.nic0.p1 > server2.nic0.p0",
    }  # fmt: skip
    assert parts["server1 receiving"] == {
        "server0.nic0.p1 > server1.nic0.p0", "server2.nic0.p0 > server1.nic0.p1",
    }  # fmt: skip
    assert parts["server1"] == parts["server1 sending"] | parts["server1 receiving"]
    assert parts["ocs"] == set(map(str, flows))
    assert len(flows) == 8
    assert Flow(Port("server1", "nic0.p0"), Port("server0", "nic0.p1")) in flows
