"""RDMA is tried until it runs, and what was tried bounds when it did."""

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.jobs.bench.rdma import RdmaOverCircuits
from lightrig.harness.jobs.measure.rdma_recovery import (
    RdmaDownError,
    first_rdma,
    measure_rdma_recovery,
)
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.errors import NoReplyError, NotDoneError
from lightrig.testbeds import Plan

SECOND = 1_000_000_000


@pytest.fixture
def bench(simulated: Callable[..., Bench]) -> Bench:
    return simulated(Path("testbeds/opus.yaml"), 3)


def test_the_first_operation_lies_between_two_tries_after_the_link_is_up(bench: Bench) -> None:
    fabric, rows = Fabric(bench), list[Row]()
    before, after = list(bench.testbed.plans.values())[:2]
    bring_up(fabric, LinkObservation(bench), before)
    link = min(fabric.links(after) - fabric.links(before))
    ends = RdmaOverCircuits(bench).pair(link)
    found = measure_rdma_recovery(fabric, Recording(rows.extend), ends, link, after)
    assert found.tries > 2
    assert 0 < found.after.latest - found.after.earliest < 2 * ends.retry_ns + SECOND
    truth = bench.truth
    assert truth is not None
    up = max(
        at
        for port in (link.a, link.b)
        if (at := truth.first(str(port), "carrier", up=True, since=found.sent.earliest))
    )
    assert up.since(found.sent).earliest <= found.after.latest
    assert found.after.earliest <= up.since(found.sent).latest + SECOND
    (row,) = [row for row in rows if row.quantity == "rdma.recovered"]
    assert (row.lower, row.upper, row.subject) == (*found.after, str(link))
    assert row.conditions["retry_ns"] == 8 * 4096 * 2**14
    assert row.conditions["tries"] == found.tries


class Tries:
    """The ends of a link whose first tries fail after 7 s each, and whose next ends after 2 s."""

    def __init__(self, clock: Clock, failures: int) -> None:
        self._clock = clock
        self._failures = failures
        self.begun: list[int] = []

    retry_ns = SECOND

    def latency(self, size: int, iterations: int, *, timeout: int) -> SimpleNamespace:
        self.begun.append(self._clock.now())
        if len(self.begun) <= self._failures:
            self._clock.sleep(7 * SECOND)
            raise NotDoneError("server0", "Failed status 12")
        self._clock.sleep(2 * SECOND)
        return SimpleNamespace(at=Span(self.begun[-1], self._clock.now()))


class SoftRoce(Tries):
    """Ends that send again without end, as those of rdma_rxe of Linux 6.1 do."""

    def latency(self, size: int, iterations: int, *, timeout: int) -> SimpleNamespace:
        if len(self.begun) >= self._failures:
            return super().latency(size, iterations, timeout=timeout)
        self.begun.append(self._clock.now())
        self._clock.sleep(timeout)
        raise NoReplyError("server0", "did not end a program")


def test_a_try_that_does_not_fail_by_itself_has_a_limit(bench: Bench) -> None:
    """Of 10 s for its start, and of what a device sends again: 1 s here."""
    fabric = Fabric(bench)
    before, after = list(bench.testbed.plans.values())[:2]
    fabric.apply(before)
    link = min(fabric.links(after) - fabric.links(before))
    tries = SoftRoce(bench.clock, 2)
    found = first_rdma(fabric, after, link, tries, timeout=60 * SECOND)  # type: ignore[arg-type]
    assert [later - begun for begun, later in itertools.pairwise(tries.begun)] == [11 * SECOND] * 2
    assert found.tries == 3


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_recovery_is_after_the_begin_of_the_last_try_that_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """Bounds of the time after a command that was sent within 3 s: the nearest and the furthest."""
    fabric, clock = Fabric(bench), bench.clock
    plans = list(bench.testbed.plans.values())[:2]
    plan = next(plan for plan in plans if fabric.links(plan) - fabric.links(plans[0]))
    fabric.apply(plans[0])
    sent, prepare = [], fabric.prepare

    def prepared(wanted: Plan) -> SimpleNamespace:
        transition = prepare(wanted)
        span = transition.begin()
        sent.append(Span(span.earliest - 2 * SECOND, span.latest + SECOND))
        return SimpleNamespace(
            begin=lambda: sent[0], acknowledged=transition.acknowledged, verify=transition.verify
        )

    monkeypatch.setattr(fabric, "prepare", prepared)
    tries = Tries(clock, failures)
    link = min(fabric.links(plan) - fabric.links(plans[0]))
    found = first_rdma(fabric, plan, link, tries, timeout=60 * SECOND)  # type: ignore[arg-type]
    last_failed = tries.begun[-2] if failures else sent[0].latest
    assert found.tries == failures + 1
    assert found.after.earliest == last_failed - sent[0].latest
    assert found.after.latest == tries.begun[-1] + 2 * SECOND - sent[0].earliest


def test_rdma_that_never_runs_is_reported_with_the_last_try(bench: Bench) -> None:
    fabric = Fabric(bench)
    before, after = list(bench.testbed.plans.values())[:2]
    fabric.apply(before)
    apart = min(fabric.links(before) - fabric.links(after))
    ends = RdmaOverCircuits(bench).pair(apart)
    with pytest.raises(RdmaDownError, match=r"did not run within 5 s, in \d+ tries") as down:
        first_rdma(fabric, after, apart, ends, timeout=5 * SECOND)
    assert "Failed status 12" in str(down.value.__cause__)
