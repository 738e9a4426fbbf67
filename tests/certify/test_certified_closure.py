"""Closure: what certify states of light holds the truth of the simulation, and not much more.

Delays without a spread are known by hand: light leaves and comes so long after the command.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from certify_labs import lab, sonic_lab, timed_lab
from single_clauses import clause, interval, subject_of
from sonic_defects import notify_late
from switch_defects import introduce

from lightrig.harness.bench import Bench
from lightrig.harness.certify.subject import Outcome
from lightrig.harness.certify.time_clauses import StageTimes, time_change
from lightrig.harness.measure.insertion_loss.matrix import lit
from lightrig.instruments.clock import Span
from lightrig.instruments.core.stages import Watch
from lightrig.testbeds import Circuit

WINDOW_MS, POLL_MS = 10.0, 2.5
"""Averaging window of the lab's monitors, and the pause of a quarter of it between readings."""

COARSE = (
    "monitor: {averaging: 10 ms, noise: 0.03 dB}",
    "monitor: {averaging: 80 ms, noise: 0.03 dB}",
)
"""Fewer readings a change, where a test looks at many changes."""

Simulated = Callable[..., Bench]


SWAPS = ([Circuit(2, 11), Circuit(3, 10)], [Circuit(2, 10), Circuit(3, 11)])


@pytest.mark.parametrize("write", ["", "  network: {write: {mean: 3 ms, sd: 1 ms}}\n"])
@pytest.mark.parametrize(
    ("dark_ms", "settle_ms", "seed"), [(3, 24, 1), (7.7, 61.3, 2), (3, 47.9, 3), (12.1, 33.2, 4)]
)
def test_times_of_light_hold_the_truth(
    simulated: Simulated, dark_ms: float, settle_ms: float, seed: int, write: str
) -> None:
    """Each holds the one moment at which light left or came, whenever the readings are taken."""
    subject = subject_of(simulated(timed_lab(dark_ms, settle_ms) + write, seed))
    chain, times = subject.chain(), StageTimes()
    with lit(chain):
        subject.apply(SWAPS[1])
        subject.sleep(500_000_000)
        for setting in SWAPS:
            time_change(subject, chain, setting, times)
    for found, truth in (
        (times.dark, dark_ms),
        (times.first_light, settle_ms),
        (times.settled, settle_ms),
    ):
        assert len(found) == 4
        for low, high in found:
            assert 0 <= low <= truth <= high, (low, truth, high)
            # One window, the pause, and the answers on the wire.
            assert write or high - low <= WINDOW_MS + 2 * POLL_MS


def test_light_that_does_not_settle_has_no_upper_bound(simulated: Simulated) -> None:
    """It is watched for 300 ms, and comes after 700 ms: none has settled, and the clause fails."""
    subject = subject_of(simulated(timed_lab(3, 700, acknowledge_ms=760).replace(*COARSE)))
    chain, times = subject.chain(), StageTimes()
    with lit(chain):
        subject.apply(SWAPS[1])
        subject.sleep(2_000_000_000)
        time_change(subject, chain, SWAPS[0], times)
    assert (times.first_light, len(times.settled), len(times.dark)) == ([], 2, 2)
    for low, high in times.settled:
        assert 200 < low < 700
        assert high == math.inf
    outcome = clause(subject, "settling")
    assert (outcome.verdict, outcome.interval, outcome.n) == ("fail", None, 3 + 5 * 2 + 5 * 5)
    assert outcome.value is not None
    assert outcome.reason.startswith(f"not settled {outcome.value:.0f} ms after the command; ")


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(400.0, "pass"), (255.0, "inconclusive"), (100.0, "fail"), (None, "not applicable")],
)
def test_settling_is_judged_by_bounds_that_hold_the_truth(
    simulated: Simulated, limit: float | None, verdict: str
) -> None:
    """A change takes 252 ms; a window and pauses make its bounds at most 120 ms wide."""
    text = timed_lab(4, 252, acknowledge_ms=270).replace(*COARSE)
    subject = subject_of(simulated(text), settling_ms=limit)
    outcome = clause(subject, "settling")
    low, high = interval(outcome)
    assert low <= 252 <= high <= 252 + 80 + 2 * 20
    assert (outcome.verdict, outcome.value, outcome.unit) == (verdict, high, "ms")
    # Five changes each of N/2 and N of five circuits; one alone is removed by every second.
    assert outcome.n == 3 + 5 * 2 + 5 * 5
    stages = [part.partition(": ")[2] for part in outcome.reason.split("; ")[1:]]
    assert len(stages) == 3
    for stage in stages:
        assert stage.split(" at most ")[0] in {"dark", "first light"}
    word = "no limit in this profile" if limit is None else f"limit {limit:g} ms"
    assert outcome.reason.startswith(f"{word}; 1 circuit: ")


def slow_lab(share: str, slow_ms: int) -> str:
    """Return the lab with a share of changes that take `slow_ms`, and others 24 ms."""
    slow = f"slow: {{share: {share}, mean: {slow_ms} ms}}}}\n      dark: {{mean: 2 ms}}"
    text = timed_lab(2, 24).replace(
        "{mean: 24 ms}\n      dark: {mean: 2 ms}", f"{{mean: 24 ms, {slow}"
    )
    return text.replace(*COARSE)


def slow_changes(bench: Bench, since: int, limit_ms: float) -> int:
    """Return by the ground truth how many times light was gone for longer than `limit_ms`."""
    assert bench.truth is not None
    watch = Watch(since, Span(bench.clock.now(), bench.clock.now()))
    gone, came = (
        sorted(
            moment.earliest
            for egress in (10, 11)
            for moment in bench.truth.all_moments("light", f"ocs.{egress}", watch, up=up)
        )
        for up in (False, True)
    )
    pairs = [(before, min(after for after in came if after > before)) for before in gone]
    return sum(after - before > limit_ms * 1e6 for before, after in pairs)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_the_share_of_slow_changes_is_the_true_one(simulated: Simulated, seed: int) -> None:
    bench = simulated(slow_lab("15 %", 424), seed)
    subject, since = subject_of(bench, settling_ms=250.0), bench.clock.now()
    outcome = clause(subject, "slow_share")
    slow = slow_changes(bench, since, 250.0)
    assert slow >= 2
    assert (outcome.verdict, outcome.value) == ("fail", slow / outcome.n)
    assert outcome.reason.startswith(f"{slow} of {outcome.n} changes took longer than 250 ms, 0 ")


def test_changes_without_a_slow_one_pass_after_as_many_as_wald_says(simulated: Simulated) -> None:
    """By hand: ln 20 / ln (0.99 / 0.9) is 31.4."""
    outcome = clause(subject_of(simulated(slow_lab("0 %", 424)), settling_ms=250.0), "slow_share")
    assert (outcome.verdict, outcome.value, outcome.n) == ("pass", 0.0, 32)


def test_changes_that_may_be_slow_or_not_are_not_decided(simulated: Simulated) -> None:
    """Each takes 24 ms, the limit is 25 ms, and a window has 80 ms."""
    subject = subject_of(simulated(slow_lab("0 %", 424)), settling_ms=25.0)
    outcome = clause(subject, "slow_share")
    assert (outcome.verdict, outcome.value, outcome.n) == ("inconclusive", 1.0, 150)
    assert outcome.reason == "0 of 150 changes took longer than 25 ms, 150 more may have"


@pytest.mark.parametrize(
    ("limit", "verdict"), [(150.0, "pass"), (75.0, "inconclusive"), (10.0, "fail")]
)
def test_the_shift_to_distant_ports_holds_the_truth(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, limit: float, verdict: str
) -> None:
    """Light comes 25 ms later for each port of distance: 4 against 1 here."""
    bench = simulated(
        introduce("slow to distant ports", monkeypatch).replace("10 ms, n", "40 ms, n")
    )
    outcome = clause(subject_of(bench, even_ms=limit), "settling_by_move")
    low, high = interval(outcome)
    # The middle of bounds is off by half their width, so the shift of two middles by a whole one.
    assert low < 3 * 25 < high
    assert 2 * 40 < high - low < 140
    assert outcome.verdict == verdict
    assert "after another +" in outcome.reason
    assert outcome.n == 3 * 12


def test_a_slow_watch_decides_no_shift_to_distant_ports(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Light comes 75 ms later at far ports, the limit is 10 ms, and the bench reads too seldom."""
    bench = simulated(
        introduce("slow to distant ports", monkeypatch).replace("10 ms, n", "40 ms, n")
    )
    clock, sleep = bench.clock, bench.clock.sleep
    subject = subject_of(bench, even_ms=10.0)
    pause = max(each.read().window for each in subject.chain().observers) // 4
    monkeypatch.setattr(clock, "sleep", lambda ns: sleep(20 * ns if ns == pause else ns))
    outcome = clause(subject, "settling_by_move")
    assert outcome.verdict == "inconclusive"
    assert outcome.reason.startswith("the watch was slow: up to ")


def test_the_repeatability_holds_the_truth(simulated: Simulated) -> None:
    """Of ten intervals at 99 % none, or by chance one, misses; pooled, 500 degrees of freedom."""
    truth, found = 0.07, list[Outcome]()
    text = lab().replace("sd: 0.2 dB}", f"sd: 0.2 dB, repeatability: {truth} dB}}")
    for seed in range(1, 11):
        found.append(clause(subject_of(simulated(text, seed)), "repeatability"))
    missed = sum(not interval(each)[0] <= truth <= interval(each)[1] for each in found)
    assert missed <= 1
    mean = np.mean([each.value**2 for each in found if each.value is not None])
    assert math.sqrt(mean) == pytest.approx(truth, rel=0.07)
    # Two settings of five circuits, each made six times.
    assert {each.n for each in found} == {2 * 5 * 6}


@pytest.mark.parametrize("settle_ms", [24, 80])
def test_the_difference_from_the_final_power_holds_the_truth(
    simulated: Simulated, settle_ms: int
) -> None:
    """The acknowledgement comes after 40 ms: light that settles after 80 ms is not there yet.

    With noise of 0.03 dB an interval of one difference among 13 is about 0.1 dB to either side.
    """
    outcome = clause(subject_of(simulated(lab(settle_ms=settle_ms))), "acknowledged_light")
    low, high = interval(outcome)
    assert 0 < high - low < 0.3
    if settle_ms == 24:
        assert (outcome.verdict, low) == ("pass", 0.0)
    else:
        # 4 dBm at most, less 0.3 dB at least, above the end of the range, -60 dBm.
        assert (outcome.verdict, 40 < low < high < 64) == ("fail", True)
    assert outcome.n == 1 + 2 + 5 + 5


def test_light_that_a_busy_machine_reads_late_is_no_light_at_the_acknowledgement(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It settles 40 ms after the acknowledgement, and is read 140 ms late: it seems to be there."""
    bench = simulated(lab(settle_ms=80))
    sleep = bench.clock.sleep
    monkeypatch.setattr(bench.clock, "sleep", lambda ns: sleep(ns + 140_000_000))
    outcome = clause(subject_of(bench), "acknowledged_light")
    assert (outcome.verdict, outcome.n) == ("inconclusive", 1 + 2 + 5 + 5)
    assert outcome.reason.startswith("the watch was slow: up to 140 ms passed between two readings")


@pytest.mark.parametrize("of", ["settling", "slow_share"])
def test_times_of_light_that_is_read_seldom_are_undecided_for_that_reason(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """Light settles 24 ms after the command, and is read 300 ms apart."""
    bench = simulated(timed_lab(3, 24))
    sleep = bench.clock.sleep
    monkeypatch.setattr(bench.clock, "sleep", lambda ns: sleep(ns + 300_000_000))
    outcome = clause(subject_of(bench), of)
    assert outcome.verdict == "inconclusive"
    assert "the watch was slow: up to 302 ms passed between two readings of light" in outcome.reason


@pytest.mark.parametrize(("late_ms", "verdict"), [(0, "pass"), (1_307, "pass"), (4_300, "pass")])
def test_the_delay_of_a_notification_holds_the_truth(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, late_ms: int, verdict: str
) -> None:
    """From the first query that shows a change; queries take 10 ms each, one after the other."""
    notify_late(monkeypatch, late_ms * 1_000_000)
    subject = subject_of(simulated(sonic_lab("gnmi")), profile="sonic-ocs")
    outcome = clause(subject, "notifications")
    low, high = interval(outcome)
    assert low <= late_ms <= high
    assert high - low <= 2 * 10
    assert (outcome.value, outcome.unit, outcome.n) == ((low + high) / 2, "ms", 3)
    assert outcome.verdict == verdict
