"""A sweep over sizes: what is refused, what is recorded, how it is judged."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.jobs.bench.nccl import NcclOverCircuits
from lightrig.harness.jobs.measure.collectives.sweep import (
    UncheckedResultsError,
    WrongResultsError,
    doubling,
    measure_collective,
    rows,
    sweep,
)
from lightrig.harness.jobs.measure.collectives.topology import Topology, topology
from lightrig.harness.jobs.statistics.latency_bandwidth import LatencyBandwidth, NoLine
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.recording import LimitExceededError, Recording
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.core.collectives import CollectiveCall, CollectiveMeasurement
from lightrig.instruments.jobs.flows.of_testbed import RanksError
from lightrig.instruments.jobs.simulated.fabric_traffic import traffic_of
from lightrig.testbeds import load, parse_limit

RING = ("server0", "server1", "server3", "server2")
OVER = Topology("ring", RING, 1, 10**9)
SIZES = doubling(1 << 10, 1 << 20, 4)


class ClaimResult:
    """A runner that takes 1 us and what a rate of 1 Gbit/s on a ring of four makes of the size."""

    simulated = True

    def __init__(self, wrong: int | None = 0) -> None:
        self.wrong = wrong

    def run(self, call: CollectiveCall, *, timeout: int = 0) -> Sequence[CollectiveMeasurement]:
        return [
            CollectiveMeasurement(
                call.collective,
                call.ranks,
                size,
                tuple(1_000 + 12 * size + each for each in range(8)),
                1,
                self.wrong,
                "told 1.0",
                {"launcher": "none"},
                Span(5, 7),
            )
            for size in call.sizes
        ]


CALL = CollectiveCall("all_reduce", RING, tuple(SIZES))


def test_every_operation_is_a_row_with_its_topology() -> None:
    found = list(rows(sweep(ClaimResult(), CALL, OVER)))
    bus = [row for row in found if row.quantity == "collective.bus_bandwidth"]
    assert len(bus) == 8 * len(SIZES)
    last = bus[-1]
    assert last.subject == "all_reduce server0 - server1 - server3 - server2"
    assert last.value == pytest.approx(1e9, rel=1e-3)
    assert last.time_ns == 7
    assert last.conditions == {
        "launcher": "none",
        "plan": "ring",
        "ring": "server0 - server1 - server3 - server2",
        "ranks": 4,
        "hops": 1,
        "line_rate_bps": 10**9,
        "collective": "all_reduce",
        "size": 1 << 20,
        "averaged_over": 1,
        "tool": "told 1.0",
    }
    algorithm = [row.value for row in found if row.quantity == "collective.algorithm_bandwidth"]
    assert algorithm[-1] == pytest.approx(1e9 / 1.5, rel=1e-3)
    times = [row for row in found if row.quantity == "collective.time"]
    assert [row.unit for row in times] == ["ns"] * len(bus)
    # A time without bounds would be one that nobody knows.
    assert all(row.lower == row.value == row.upper for row in times)


def test_utilization_is_that_of_the_largest_size() -> None:
    found = [
        row
        for row in rows(sweep(ClaimResult(), CALL, OVER))
        if row.quantity == "collective.utilization"
    ]
    assert len(found) == 8
    for row in found:
        assert row.conditions["size"] == 1 << 20
        assert row.value == pytest.approx(1.0, rel=1e-3)
        assert row.unit == "share"


def test_the_fitted_line_is_recorded_with_its_interval() -> None:
    done = sweep(ClaimResult(), CALL, OVER)
    assert isinstance(done.fit(), LatencyBandwidth)
    latency, bandwidth = list(rows(done))[-2:]
    assert (latency.quantity, bandwidth.quantity) == (
        "collective.latency",
        "collective.fitted_bus_bandwidth",
    )
    assert latency.value == pytest.approx(1_003.5, rel=1e-3)
    assert bandwidth.value == pytest.approx(1e9, rel=1e-6)
    for row in (latency, bandwidth):
        assert row.lower is not None
        assert row.upper is not None
        assert row.lower <= row.value <= row.upper
        assert row.conditions["points"] == len(SIZES)
        assert "size" not in row.conditions


def test_two_sizes_have_no_line() -> None:
    done = sweep(ClaimResult(), replace(CALL, sizes=(8, 16)), OVER)
    assert isinstance(done.fit(), NoLine)
    assert not [row for row in rows(done) if row.quantity == "collective.latency"]


def test_wrong_results_are_no_number() -> None:
    with pytest.raises(WrongResultsError, match=r"1024 B among server0 - .* in 2 values"):
        sweep(ClaimResult(2), CALL, OVER)
    with pytest.raises(UncheckedResultsError, match=r"told 1\.0"):
        sweep(ClaimResult(None), CALL, OVER)


def test_the_topology_of_a_plan(bench: Bench) -> None:
    testbed = bench.testbed
    giant, pairs = testbed.plans["giant-ring"], testbed.plans["east-west"]
    assert topology(testbed, giant, RING) == Topology("giant-ring", RING, 1, 200 * 10**9)
    forwarded = topology(testbed, giant, tuple(testbed.servers))
    assert (forwarded.hops, forwarded.line_rate_bps) == (2, 200 * 10**9)
    with pytest.raises(RanksError, match="no link from server0 to server1"):
        topology(testbed, pairs, ("server0", "server1"))


def test_the_topology_of_a_packet_switch() -> None:
    mixnet = load(Path("testbeds/mixnet.yaml"))
    found = topology(mixnet, mixnet.plans["packet"], tuple(mixnet.servers))
    assert (found.hops, found.line_rate_bps) == (2, 400 * 10**9)
    found = topology(mixnet, mixnet.plans["mesh"], tuple(mixnet.servers))
    assert (found.hops, found.line_rate_bps) == (1, 100 * 10**9)


@pytest.fixture
def recorded(bench: Bench) -> tuple[Recording, list[Row]]:
    taken: list[Row] = []
    return Recording(taken.extend, bench.testbed.limits), taken


def test_a_measured_ring_keeps_its_limit_or_breaks_it(
    giant_ring: Fabric,
    links: LinkObservation,
    recorded: tuple[Recording, list[Row]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (measure, taken), bench = recorded, giant_ring.bench
    plan = bench.testbed.plans["giant-ring"]
    runner = NcclOverCircuits(bench).runner
    call = CollectiveCall("all_reduce", RING, tuple(doubling(1 << 12, 1 << 28, 8)))
    done = measure_collective(giant_ring, links, measure, runner, call, plan)
    fitted = done.fit()
    assert isinstance(fitted, LatencyBandwidth)
    assert fitted.bandwidth * 1.5 == pytest.approx(0.93 * 200e9, rel=0.02)
    assert {row.quantity for row in taken} == {
        f"collective.{name}"
        for name in (
            *("time", "algorithm_bandwidth", "bus_bandwidth"),
            *("utilization", "latency", "fitted_bus_bandwidth"),
        )
    }
    limits = bench.testbed.limits
    for text, within in (("80 %", True), ("99 %", False)):
        limit = parse_limit("collective.utilization", {"min": text})
        monkeypatch.setitem(limits, "collective.utilization", limit)  # type: ignore[arg-type]
        if within:
            measure.judge("collective")
        else:
            with pytest.raises(LimitExceededError, match=r"collective\.utilization"):
                measure.judge("collective")


def test_nothing_is_recorded_of_a_wrong_result(
    giant_ring: Fabric,
    links: LinkObservation,
    recorded: tuple[Recording, list[Row]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (measure, taken), bench = recorded, giant_ring.bench
    assert bench.world is not None
    monkeypatch.setattr(traffic_of(bench.world), "wrong_values", 1)
    call = CollectiveCall("all_reduce", RING, (8, 16))
    with pytest.raises(WrongResultsError):
        measure_collective(
            *(giant_ring, links, measure, NcclOverCircuits(bench).runner, call),
            bench.testbed.plans["giant-ring"],
        )
    assert taken == []
