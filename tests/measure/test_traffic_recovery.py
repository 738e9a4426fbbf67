"""Traffic while circuits change: what its operations say, and what is asked of whom."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.served_lab import describe

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.jobs.measure.recovery import (
    Recovery,
    WrongTrafficError,
    recovery_rows,
    traffic_under_change,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.core.errors import NotDoneError
from lightrig.instruments.jobs.core.traffic import Traffic
from lightrig.testbeds import Plan

MS = 1_000_000
RANKS = ("server0", "server1")
SIZE = 1_250_000


def span(ms: float) -> Span:
    return Span(round(ms * MS), round(ms * MS))


def traffic(*ends: float, late: float = 0, **more: Any) -> Traffic:
    """Operations of which each begins when the one before ended; rank 1 ends `late` ms later."""
    begins = [0.0, *ends[:-1]]
    one = tuple((span(b), span(e)) for b, e in zip(begins, ends, strict=True))
    other = tuple(
        (b, Span(e.earliest + round(late * MS), e.latest + round(late * MS))) for b, e in one
    )
    fields = {"wrong": 0, "failures": {}} | more
    return Traffic(RANKS, SIZE, {"server0": one, "server1": other}, tool="Gloo", **fields)


def recovery(found: Traffic, sent: float = 35) -> Recovery:
    return Recovery("ring", "mesh", span(sent), span(sent + 20), found)


def test_the_first_all_reduce_is_the_first_that_was_begun_after_the_command() -> None:
    found = recovery(traffic(10, 20, 30, 130, 140, 150, late=1))
    assert found.first_completed() == span(141 - 35)
    assert found.interruption() == span(101 - 11)
    assert found.survived


def test_bandwidth_counts_a_pause() -> None:
    """Of two ranks the bus bandwidth is the algorithm's: 10 Mbit in 10 ms."""
    after, bandwidth = zip(*recovery(traffic(10, 20, 30, 130, 140)).bandwidths(), strict=True)
    assert [at.latest / MS for at in after] == [-15, -5, 95, 105]
    assert bandwidth == (10**9, 10**9, 10**8, 10**9)


def test_an_operation_that_one_rank_did_not_complete_is_not_counted() -> None:
    whole = traffic(10, 20, 30)
    shorter = {**whole.operations, "server1": whole.operations["server1"][:2]}
    cut = Traffic(RANKS, SIZE, shorter, 0, {"server1": "timed out"}, "Gloo")
    found = recovery(cut, sent=15)
    assert len(cut.completed()) == 2
    assert found.first_completed() is None
    assert not found.survived


def test_nothing_before_the_command_leaves_the_interruption_unknown() -> None:
    assert recovery(traffic(50, 60), sent=5).interruption() is None


@pytest.fixture
def bench(tmp_path: Path, simulated: Callable[..., Bench]) -> Bench:
    return simulated(describe(tmp_path))


class Source:
    """Traffic that was made up; remembers what it was asked."""

    def __init__(self, found: Traffic) -> None:
        self.found = found
        self.asked: list[Any] = []

    def start(self, ranks: Any, size: int) -> "Source":
        self.asked.append((tuple(ranks), size))
        return self

    def stop(self) -> Traffic:
        self.asked.append("stop")
        return self.found


def change(bench: Bench, source: Source, routed: list[Plan]) -> Recovery:
    fabric, plans = Fabric(bench), bench.testbed.plans
    before, after = plans["straight"], plans["crossed"]
    fabric.apply(before)
    return traffic_under_change(
        fabric, source, RANKS, (before, after), routed.append, size=SIZE, before=MS, after=MS
    )


def test_circuits_change_while_traffic_runs_and_routes_follow(bench: Bench) -> None:
    source, routed = Source(traffic(10, 20)), list[Plan]()
    found = change(bench, source, routed)
    assert source.asked == [(RANKS, SIZE), "stop"]
    assert [plan.name for plan in routed] == ["crossed"]
    assert bench.switches["ocs"].circuits() == routed[0].circuits["ocs"]
    assert (found.before, found.after) == ("straight", "crossed")
    rows = {row.quantity: row for row in recovery_rows(found, Fabric(bench), 3)}
    assert rows["recovery.survived"].value == 1
    assert rows["recovery.routed"].lower is not None
    assert rows["recovery.bus_bandwidth"].conditions["event"] == 3


def test_traffic_is_stopped_where_routes_are_refused(bench: Bench) -> None:
    source = Source(traffic(10))
    fabric, plans = Fabric(bench), bench.testbed.plans

    def refuse(_: Plan) -> None:
        raise RuntimeError("refused")

    pair = plans["straight"], plans["crossed"]
    fabric.apply(pair[0])
    with pytest.raises(RuntimeError, match="refused"):
        traffic_under_change(fabric, source, RANKS, pair, refuse, size=8, before=MS, after=MS)
    assert source.asked[-1] == "stop"


def test_traffic_runs_before_the_change_and_after_the_routes(bench: Bench) -> None:
    """7 ms before the command, 13 ms after the routes, which take 3 ms."""
    fabric, plans, clock = Fabric(bench), bench.testbed.plans, bench.clock
    times: list[int] = []

    class Timed(Source):
        def start(self, ranks: Any, size: int) -> "Source":
            times.append(clock.now())
            return super().start(ranks, size)

        def stop(self) -> Traffic:
            times.append(clock.now())
            return super().stop()

    pair = plans["straight"], plans["crossed"]
    fabric.apply(pair[0])
    found = traffic_under_change(
        *(fabric, Timed(traffic(10)), RANKS, pair, lambda _: clock.sleep(3 * MS)),
        size=8,
        before=7 * MS,
        after=13 * MS,
    )
    started, stopped = times
    assert found.sent.earliest - started >= 7 * MS
    assert found.routed.latest - found.routed.earliest == 3 * MS
    assert found.routed.earliest > found.sent.latest
    assert stopped == found.routed.latest + 13 * MS


def test_a_switch_that_did_not_do_the_change_ends_the_measurement(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric, plans = Fabric(bench), bench.testbed.plans
    pair = plans["straight"], plans["crossed"]
    fabric.apply(pair[0])
    source, routed = Source(traffic(10)), list[Plan]()
    present = bench.switches["ocs"].circuits()
    monkeypatch.setattr(bench.switches["ocs"], "circuits", lambda: present)
    with pytest.raises(NotDoneError, match="is not in plan crossed"):
        traffic_under_change(
            *(fabric, source, RANKS, pair, routed.append),
            size=8,
            before=MS,
            after=MS,
        )
    assert (source.asked[-1], routed) == ("stop", [])


def test_wrong_values_are_no_figures(bench: Bench) -> None:
    with pytest.raises(WrongTrafficError, match="7 values"):
        change(bench, Source(traffic(10, 20, wrong=7)), [])
