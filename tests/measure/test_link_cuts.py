"""A link is cut under a job: outcomes of jobs that this file writes, and of TCP in namespaces."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from standing_reads import reading_stands

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.jobs.bench.streams import open_stream
from lightrig.harness.jobs.measure import survival
from lightrig.harness.jobs.measure.light_faults import Fault, FaultKind, without_light
from lightrig.harness.jobs.measure.link_use import LinkUse
from lightrig.harness.jobs.measure.survival import (
    NoFaultError,
    Outcome,
    Survival,
    job_under_fault,
    survival_rows,
)
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.jobs.core.streams import StreamState
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Link, Port, load

MS = 1_000_000


@dataclass
class Scripted:
    """A job whose exchanges take 2 ms; what it does from a moment on is `after`."""

    clock: Clock
    after: Callable[[StreamState, int], StreamState]
    stopped: bool = False

    def __post_init__(self) -> None:
        self.start = self.clock.now()

    def state(self) -> StreamState:
        now = self.clock.now()
        first = Span(self.start, self.start), Span(self.start + 2 * MS, self.start + 2 * MS)
        done, began = (now - self.start) // (2 * MS), Span(now, now)
        usual = StreamState(done, 0, (first,), (2 * MS,), began, "", None, 200 * MS)
        return self.after(usual, now - self.start)

    def stop(self) -> StreamState:
        self.stopped = True
        return self.state()


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    bench = bind(load("testbeds/opus.yaml"), "simulated", 7)
    yield bench
    bench.close()


def cut(bench: Bench, after: Callable[[StreamState, int], StreamState]) -> Survival:
    """Cut one link of the ring for 400 ms; from 310 ms after its start the job is in the cut."""
    fabric, links = Fabric(bench), LinkObservation(bench)
    plan = fabric.plans["giant-ring"]
    bring_up(fabric, links, plan)
    job = Scripted(bench.clock, after)
    link = sorted(fabric.links(plan))[2]
    fault = Fault(FaultKind("cut", 400 * MS), link)
    found = job_under_fault(fabric, links, job, plan, fault, timeout=3_000 * MS)
    links.pause()
    assert job.stopped
    left = set(bench.testbed.links(without_light(fabric, plan, fault)))
    assert fabric.links(plan) - left == {link}
    assert found.dark.latest >= 400 * MS
    return found


def test_a_carrier_of_a_server_that_did_not_look_stays_for_no_fault_of_the_switch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its probe does not get to its ports for ten minutes, and says how old its readings are."""
    fabric, links = Fabric(bench), LinkObservation(bench)
    plan = fabric.plans["giant-ring"]
    bring_up(fabric, links, plan)
    link = sorted(fabric.links(plan))[2]
    reading_stands(monkeypatch, bench.clock, link.a.owner, bench.clock.now() + 600_000 * MS)
    monkeypatch.setattr(survival, "LINK_TIMEOUT", 500 * MS)
    job = Scripted(bench.clock, lambda state, _: state)
    with pytest.raises(NoFaultError, match=f"{link}: the watch was slow: .* of {link.a.owner}'s"):
        job_under_fault(fabric, links, job, plan, Fault(FaultKind("cut", 400 * MS), link))
    links.pause()


def stalled(clock_start: int, state: StreamState, length: int) -> StreamState:
    """The same job with one exchange of `length`, from 305 ms after the start on."""
    began = clock_start + 305 * MS
    slow = Span(began, began), Span(began + length, began + length)
    return replace(state, slow=(*state.slow, slow), durations=(*state.durations, length))


def test_a_job_that_does_not_stall_is_unharmed(bench: Bench) -> None:
    def as_usual(state: StreamState, at: int) -> StreamState:
        return stalled(state.began.earliest - at, state, 2 * MS) if at > 305 * MS else state

    found = cut(bench, as_usual)
    assert (found.outcome, found.went_on, found.wrong) == ("unharmed", True, 0)


def test_a_job_that_goes_on_late_was_stalled(bench: Bench) -> None:
    def late(state: StreamState, at: int) -> StreamState:
        return stalled(state.began.earliest - at, state, 1_234 * MS) if at > 305 * MS else state

    found = cut(bench, late)
    assert (found.outcome, found.stall, found.usual) == (
        "stalled, then went on", 1_234 * MS, 2 * MS,
    )  # fmt: skip
    dark, stall, went_on = survival_rows(found, 4)
    assert (dark.quantity, stall.quantity, went_on.quantity) == (
        "survival.dark", "survival.stall", "survival.went_on",
    )  # fmt: skip
    assert (stall.value, went_on.value) == (1_234 * MS, 1)
    assert stall.conditions is not None
    assert stall.conditions["outcome"] == "stalled, then went on"


def test_a_job_that_never_goes_on_hangs(bench: Bench) -> None:
    def hangs(state: StreamState, at: int) -> StreamState:
        stuck = state.began.earliest - at + 305 * MS
        return replace(state, began=Span(stuck, stuck)) if at > 305 * MS else state

    found = cut(bench, hangs)
    assert (found.outcome, found.went_on) == ("hang", False)
    # The cut, and 3 s of timeout after it.
    assert found.stall >= 3_400 * MS


def test_an_error_ends_the_wait(bench: Bench) -> None:
    def fails(state: StreamState, at: int) -> StreamState:
        if at <= 305 * MS:
            return state
        began = state.began.earliest - at + 305 * MS
        failed = Span(began + 150 * MS, began + 150 * MS)
        return replace(state, began=Span(began, began), failed=failed, error="TimeoutError: x")

    found = cut(bench, fails)
    assert (found.outcome, found.stall, found.error) == ("error", 150 * MS, "TimeoutError: x")
    assert [row.conditions["error"] for row in survival_rows(found, 1) if row.conditions] == [
        "TimeoutError: x"
    ] * 3


def test_a_wrong_answer_is_a_wrong_result_whatever_else(bench: Bench) -> None:
    found = cut(bench, lambda state, at: replace(state, wrong=3 if at > 305 * MS else 1))
    assert (found.outcome, found.wrong, found.went_on) == ("wrong result", 2, False)


def test_moments_of_a_job_that_goes_on_slowly(bench: Bench) -> None:
    """Results every 2 ms; from 5 s on twenty every 3 ms, then every 2.1 ms, 95 % as fast."""
    resumed = 5_000 * MS

    def ends(start: int, at: int) -> list[Span]:
        moments = [2 * MS * n for n in range(1, 153)]
        if at > resumed:
            moments += [resumed + 3 * MS * n for n in range(20)]
            moments += [resumed + 57 * MS + 2_100_000 * n for n in range(1, 60)]
        return [Span(start + each, start + each + MS // 10) for each in moments if each <= at]

    def slowly(state: StreamState, at: int) -> StreamState:
        start = state.began.earliest - at
        again = [Span(start + each * MS, start + (each + 1) * MS) for each in (100, 500, 900)]
        found = replace(state, ends=tuple(ends(start, at)))
        if at > 305 * MS:
            found = replace(stalled(start, found, resumed - 305 * MS), retransmitted=tuple(again))
            if at <= resumed:
                found = replace(found, began=Span(start + 305 * MS, start + 305 * MS))
        return found

    found = cut(bench, slowly)
    assert (found.outcome, found.stall) == ("stalled, then went on", 4_695 * MS)
    start = found.moments["first result"].earliest - resumed
    assert found.lost.latest < start + resumed
    assert found.moments["first retransmission"].earliest == start + 500 * MS
    assert found.moments["rate back to 95 %"].earliest == start + resumed + 67_500_000
    assert found.moments["carrier lost"] == found.lost
    assert list(found.moments.values()) == sorted(found.moments.values())
    assert found.began == min(at.earliest for at in found.moments.values())


@pytest.mark.parametrize(
    ("length", "outcome"),
    [
        (50, "unharmed"),
        (51, "slower, then as before"),
        (199, "slower, then as before"),
        (200, "stalled, then went on"),
    ],
)
def test_a_stall_is_judged_by_the_longest_exchange_before(
    bench: Bench, length: int, outcome: str
) -> None:
    """One of 50 ms, long before the cut; 200 ms is TCP's least timeout."""

    def as_long(state: StreamState, at: int) -> StreamState:
        start = state.began.earliest - at
        early = Span(start + 9 * MS, start + 9 * MS), Span(start + 59 * MS, start + 59 * MS)
        durations = (*state.durations, 50 * MS)
        found = replace(state, slow=(*state.slow, early), durations=durations)
        return stalled(start, found, length * MS) if at > 305 * MS else found

    found = cut(bench, as_long)
    assert (found.outcome, found.stall, found.usual) == (outcome, length * MS, 50 * MS)


@pytest.mark.parametrize("wrong", [0, 2])
def test_a_job_that_is_started_anew_after_an_error_is_re_formed(bench: Bench, wrong: int) -> None:
    """Its first result takes 30 ms; a wrong one is none."""
    fabric, links = Fabric(bench), LinkObservation(bench)
    plan = fabric.plans["giant-ring"]
    bring_up(fabric, links, plan)
    started: list[Scripted] = []

    def fails(state: StreamState, at: int) -> StreamState:
        failed = state.began.earliest - at + 320 * MS
        lost = replace(state, failed=Span(failed, failed), error="ConnectionResetError")
        return lost if at > 320 * MS else state

    def anew() -> Scripted:
        def first(state: StreamState, at: int) -> StreamState:
            ended = state.began.earliest - at + 30 * MS
            done = at >= 30 * MS
            ends = (Span(ended, ended),) if done else ()
            return replace(state, exchanges=int(done), ends=ends, wrong=wrong * done)

        started.append(Scripted(bench.clock, first))
        return started[-1]

    fault = Fault(FaultKind("cut", 300 * MS), sorted(fabric.links(plan))[1])
    job = Scripted(bench.clock, fails)
    found = job_under_fault(fabric, links, job, plan, fault, timeout=900 * MS, reform=anew)
    links.pause()
    (again,) = started
    assert again.stopped
    assert again.start >= found.back.earliest
    assert found.outcome == ("error" if wrong else "re-formed")
    first = found.moments.get("first result after re-forming")
    at = again.start + 30 * MS
    assert first == (None if wrong else Span(at, at))


def test_packets_are_led_over_the_links_left_until_all_are_back(bench: Bench) -> None:
    """The job has results every 2 ms, but none from 300 to 600 ms after its start."""
    fabric, links = Fabric(bench), LinkObservation(bench)
    plan, clock = fabric.plans["giant-ring"], bench.clock
    bring_up(fabric, links, plan)
    present = fabric.links(plan)
    fault = Fault(FaultKind("cut", 400 * MS), sorted(present)[2])
    led: list[tuple[int, set[Link]]] = []

    def reroute(given: Iterable[Link]) -> None:
        led.append((clock.now(), set(given)))
        clock.sleep(5 * MS)

    def goes_on(state: StreamState, at: int) -> StreamState:
        start = state.began.earliest - at
        ends = [*range(2, 300, 2), *range(600, at // MS, 2)]
        return replace(state, ends=tuple(Span(start + t * MS, start + t * MS) for t in ends))

    job = Scripted(clock, goes_on)
    found = job_under_fault(fabric, links, job, plan, fault, timeout=900 * MS, reroute=reroute)
    links.pause()
    (first, left), (second, all_of_them) = led
    assert (left, all_of_them) == (present - {fault.link}, present)
    assert found.moments["routes over the links left"] == Span(first, first + 5 * MS)
    assert found.moments["routes as before"] == Span(second, second + 5 * MS)
    assert found.moments["carrier lost"].latest <= first < found.back.earliest <= second
    # Over the other links it goes on in the dark.
    (result,) = {*found.moments["first result"]}
    assert result == job.start + 600 * MS < found.back.earliest
    assert found.phase is not None
    # The last end before the carrier went was at 298 ms, a round is 2 ms.
    assert found.phase == pytest.approx((found.lost.earliest - job.start - 298 * MS) / (2 * MS))


def test_packets_are_lost_for_as_long_as_asked(bench: Bench) -> None:
    fabric, links = Fabric(bench), LinkObservation(bench)
    plan, clock = fabric.plans["giant-ring"], bench.clock
    bring_up(fabric, links, plan)
    calls: list[tuple[int, float]] = []
    fault = Fault(FaultKind("dim", 70 * MS, loss=0.02), sorted(fabric.links(plan))[1])

    def lose(ports: object, share: float) -> Span:
        assert ports == fault.ports(bench.testbed, plan)
        calls.append((clock.now(), share))
        clock.sleep(4 * MS)
        return Span(clock.now() - 3 * MS, clock.now())

    job = Scripted(clock, lambda state, at: state)
    found = job_under_fault(fabric, links, job, plan, fault, timeout=900 * MS, lose=lose)
    links.pause()
    (first, share), (second, none) = calls
    assert (share, none) == (0.02, 0.0)
    assert second == first + 74 * MS
    assert (found.lost, found.back) == (
        Span(first + MS, first + 4 * MS),
        Span(second + MS, second + 4 * MS),
    )
    assert (found.dark, found.duration, found.went_on) == (Span(0, 0), 70 * MS, True)
    assert found.moments["packets lost"] == found.lost
    assert found.moments["packets lost no more"] == found.back


@pytest.mark.parametrize(
    ("groups", "outcome"),
    [([{"a", "b"}, {"c"}], "parted"), ([{"a", "b"}], "re-formed")],
)
def test_ranks_that_go_on_without_lost_ones(
    bench: Bench, groups: list[set[str]], outcome: Outcome
) -> None:
    """They shrink apart in the dark, 200 ms after it began, and go on at once."""

    def shrunk(state: StreamState, at: int) -> StreamState:
        if at <= 505 * MS:
            return state
        began = state.began.earliest - at
        left = Span(began + 505 * MS, began + 505 * MS)
        slow = stalled(began, state, 200 * MS)
        return replace(slow, reformed=(left,), groups=frozenset(map(frozenset, groups)))

    found = cut(bench, shrunk)
    assert (found.outcome, found.went_on, found.stall) == (outcome, False, 200 * MS)
    assert found.groups == tuple(tuple(sorted(group)) for group in groups)
    assert found.moments["carrier lost"].latest < found.moments["re-formed"].earliest
    assert found.moments["re-formed"].latest < found.moments["carrier back"].earliest


def test_ranks_that_come_back_re_form_again(bench: Bench) -> None:
    """Two shrink in the dark, after 200 and 203 ms, and all three are together 5 s later."""

    def shrunk(state: StreamState, at: int) -> StreamState:
        if at <= 505 * MS:
            return state
        began = state.began.earliest - at
        reformed = tuple(Span(began + ms * MS, began + ms * MS) for ms in (505, 508, 5_505, 5_507))
        slow = stalled(began, state, 200 * MS)
        return replace(slow, reformed=reformed, groups=frozenset({frozenset("abc")}))

    found = cut(bench, shrunk)
    assert (found.outcome, found.groups) == ("re-formed", (("a", "b", "c"),))
    first, again = (found.moments[name] for name in ("re-formed", "re-formed again"))
    assert again.since(first).earliest == (5_507 - 508) * MS
    assert first.latest < found.moments["carrier back"].earliest < again.earliest


def test_two_groups_of_which_one_stands_still_hang(bench: Bench) -> None:
    groups = frozenset({frozenset({"a"}), frozenset({"b", "c"})})

    def hangs(state: StreamState, at: int) -> StreamState:
        stuck = state.began.earliest - at + 305 * MS
        stands = replace(state, began=Span(stuck, stuck), groups=groups)
        return stands if at > 305 * MS else state

    assert cut(bench, hangs).outcome == "hang"


@pytest.fixture(scope="module")
def namespaces() -> Iterator[Bench]:
    if (reason := kernel.available()) is not None:
        pytest.skip(reason)
    bench = bind(load("testbeds/namespaces.yaml"), "simulated", 3)
    yield bench
    bench.close()


def tcp_cut(bench: Bench, asked: int, user_timeout: int = 0) -> Survival:
    fabric, links = Fabric(bench), LinkObservation(bench)
    plan = fabric.plans["pairs"]
    bring_up(fabric, links, plan)
    link = sorted(fabric.links(plan))[1]
    stream = open_stream(bench, link, user_timeout=user_timeout)
    try:
        fault = Fault(FaultKind("cut", asked), link)
        return job_under_fault(fabric, links, stream, plan, fault, timeout=20_000 * MS)
    finally:
        stream.close()
        links.pause()
        fabric.restore()


@pytest.mark.long
def test_tcp_goes_on_after_a_cut(namespaces: Bench) -> None:
    found = tcp_cut(namespaces, 250 * MS)
    assert found.outcome == "stalled, then went on", found
    assert found.exchanges > 0
    # The block that was lost waits for light. Then for the next retransmission (200 ms, doubled
    # each time: RFC 6298) or the next query of the neighbour (1 s: arp(7), retrans_time).
    assert found.dark.earliest - 5 * MS <= found.stall <= found.dark.latest + 1_500 * MS


@pytest.mark.long
def test_tcp_gives_up_after_its_user_timeout(namespaces: Bench) -> None:
    found = tcp_cut(namespaces, 5_000 * MS, user_timeout=700 * MS)
    assert found.outcome == "error", found
    assert "TimeoutError" in found.error or "No route" in found.error
    # Given up at a retransmission or, where the answer was on its way, at a query a second later.
    assert 700 * MS <= found.stall <= 5_000 * MS


def test_a_link_is_used_that_carries_a_hundredth_of_the_busiest_one() -> None:
    """ARP and probes alone are no use; where no port counts, nothing is said."""
    busy, quiet, ends, other = (
        Link(Port(f"server{n}", "nic0"), Port(f"server{n + 1}", "nic1")) for n in range(4)
    )
    use = LinkUse({busy: 1_000_000, quiet: 9_999, ends: 10_000})
    assert [use.uses(link) for link in (busy, quiet, ends, other)] == [True, False, True, None]
    assert use.used == [busy, ends]
    assert LinkUse({busy: 0}).uses(busy) is None


@pytest.mark.parametrize("drawn", [False, True])
def test_a_fault_on_a_link_that_the_job_does_not_use_is_not_felt(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, drawn: bool
) -> None:
    """Where the place was drawn, a link that the job uses takes its place."""
    fabric, links = Fabric(bench), LinkObservation(bench)
    plan = fabric.plans["giant-ring"]
    bring_up(fabric, links, plan)
    used, unused = sorted(fabric.links(plan))[:2]
    counted: Any = lambda bench, links: SimpleNamespace(  # noqa: E731
        use=lambda: LinkUse({used: 10**6, unused: 100})
    )
    monkeypatch.setattr(survival, "LinkCounters", counted)
    job = Scripted(bench.clock, lambda state, _: state)
    fault = Fault(FaultKind("cut", 400 * MS), unused)
    found = job_under_fault(fabric, links, job, plan, fault, timeout=3_000 * MS, drawn=drawn)
    links.pause()
    assert found.fault.link == (used if drawn else unused)
    assert found.outcome == ("unharmed" if drawn else "not felt: other link")
    assert (found.used, found.went_on) == (drawn, True)


def test_a_moment_stands_after_what_caused_it_where_bounds_overlap(bench: Bench) -> None:
    """The carrier is seen to go in bounds that begin before the command's answer does."""
    found = cut(bench, lambda state, _: state)
    names = list(found.moments)
    for cause, effect in (
        ("command", "carrier lost"),
        ("command", "acknowledged"),
        ("command to bring the circuits back", "carrier back"),
    ):
        assert names.index(cause) < names.index(effect)
    assert all(at.earliest <= at.latest for at in found.moments.values())
