"""Clauses on optics and traffic, judged by known values: uneven rows, limits within bounds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from certify_labs import lab, optics_lab, scope_lab, traffic_lab
from single_clauses import NotedSubject, clause, interval, subject_of

from lightrig.harness.bench import Bench
from lightrig.harness.certify import traffic_clauses
from lightrig.harness.certify.optics_clauses import judged
from lightrig.harness.measure import switch_optics
from lightrig.harness.measure.insertion_loss.chains import Chain
from lightrig.harness.measure.insertion_loss.observers import SeenLight
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.testbeds import Limit, Port

Simulated = Callable[..., Bench]


@pytest.mark.parametrize(
    ("limit", "verdict", "reason"),
    [
        (5.0, "pass", "limit 5 ms; by hand"),
        (4.9, "inconclusive", "limit 4.9 ms; by hand"),
        # The greatest lower bound belongs to another one than the greatest upper bound.
        (3.5, "inconclusive", "limit 3.5 ms; by hand"),
        (3.4, "fail", "limit 3.4 ms; by hand"),
        (None, "not applicable", "the testbed file has no limit on switching.time; by hand"),
    ],
)
def test_bounds_are_judged_by_the_greatest_of_each_side(
    limit: float | None, verdict: str, reason: str
) -> None:
    limits = (
        {} if limit is None else {"switching.time": Limit("t", "upper", 1, limit * 1e6, "ns", None)}
    )
    subject: Any = SimpleNamespace(fabric=SimpleNamespace(testbed=SimpleNamespace(limits=limits)))
    found = judged(
        subject, "switching.time", [(2.0, 4.0), (1.0, 5.0), (3.5, 4.5)], "ms", "by hand", 1e6
    )
    assert (found.verdict, found.reason) == (verdict, reason)
    assert (found.value, found.interval, found.unit, found.n) == (5.0, (1.0, 5.0), "ms", 3)


def row(value: float, low: float | None, high: float | None, quantity: str, **known: Any) -> Row:
    subject = known.pop("subject", f"ocs 1>{round(10 * value)}")
    return Row(subject, quantity, value, low, high, "dB", 1, known)


def test_a_missing_bound_is_the_value(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows 0.3 to 0.5 dB, without a lower bound, and 0.2 to 0.4 dB, without an upper one."""
    name = "wavelength_dependent_loss"

    def measure(fabric: object, recording: Recording, *, switch: str) -> None:
        recording.record(
            [
                row(0.3, None, 0.5, name),
                row(0.4, 0.2, None, name),
                row(9.0, 8.0, 9.5, "polarization_dependent_loss"),
            ]
        )

    monkeypatch.setattr(switch_optics, "measure_wavelength_dependence", measure)
    found = clause(subject_of(simulated(optics_lab())), "wavelength_dependence")
    assert (found.value, found.interval, found.n) == (0.5, (0.3, 0.5), 2)
    # The lab's limit is 0.6 dB.
    assert (found.verdict, found.reason) == ("pass", "limit 0.6 dB; greatest of all circuits")


@pytest.mark.parametrize(
    ("rise", "time", "verdict"),
    [
        ("1.5 ms", "35 ms", "inconclusive"),
        ("3 ms", "19.3 ms", "inconclusive"),
        ("3 ms", "35 ms", "pass"),
        ("1.5 ms", "5 ms", "fail"),
        ("0.5 ms", "19.3 ms", "fail"),
    ],
)
def test_the_worse_of_rise_and_time_is_the_verdict(
    simulated: Simulated, rise: str, time: str, verdict: str
) -> None:
    """Light rises within 1.5 ms and is there after about 19 ms: such limits decide nothing."""
    text = scope_lab().replace("max: 35 ms", f"max: {time}").replace("max: 3 ms", f"max: {rise}")
    subject = subject_of(simulated(text))
    found = clause(subject, "rise")
    assert found.verdict == verdict, found
    for name in ("rise", "fall", "bounce", "time"):
        assert f"{name} at most " in found.reason


def test_without_a_limit_the_time_is_stated_and_not_judged(simulated: Simulated) -> None:
    """Light rises within 1.5 ms and is there after about 19 ms: the latter is the value."""
    text = scope_lab()
    limits = next(line for line in text.splitlines() if line.startswith("limits:"))
    found = clause(subject_of(simulated(text.replace(limits, ""))), "rise")
    assert found.verdict == "not applicable"
    assert found.reason.startswith("the testbed file has no limit on switching.time; rise at most ")
    assert found.value is not None
    assert 17 < found.value < 22


# ------------------------------------------------------------------- 3.4, by monitors and by hand


class Scripted:
    """A reader of ports 10 to 14 that shows a value by the circuits that are made."""

    def __init__(self, subject: NotedSubject, shown: Callable[[list[int], int], float]) -> None:
        self._subject, self._shown = subject, shown

    def prepare(self) -> Callable[[], None]:
        """Ready as it is."""
        return lambda: None

    def read(self) -> SeenLight:
        """Show what was scripted."""
        made = sorted(c.egress for c in self._subject.switch.circuits())
        return SeenLight({port: self._shown(made, port) for port in range(10, 15)}, 1_000_000)


class ScriptedSubject(NotedSubject):
    """A switch whose light is scripted."""

    shown: Callable[[list[int], int], float]

    def chain(self) -> Chain:
        """Read the script alone."""
        return replace(super().chain(), observers=(Scripted(self, type(self).shown),))


def scripted(bench: Bench, shown: Callable[[list[int], int], float]) -> NotedSubject:
    known = subject_of(bench)
    of = type("OfThisTest", (ScriptedSubject,), {"shown": staticmethod(shown)})
    found: NotedSubject = of(known.fabric, known.name, known.profile, known.trial)
    return found


def test_crosstalk_by_monitors_is_that_by_hand(simulated: Simulated) -> None:
    """At -10 dBm, 42 dB below it is -52 dBm at 11 and in the dark -60 dBm: 6.31 nW less 1 nW.

    That is -52.75 dBm, so -42.75 dB below the circuit at 10; elsewhere what is shown in the dark
    bounds it: -50 dB. The limit is -48 dB.
    """

    def shown(made: list[int], port: int) -> float:
        if made == [10]:
            return {10: -10.0, 11: -52.0}.get(port, -60.0)
        return -9.0 if port in made else -60.0

    found = clause(scripted(simulated(lab()), shown), "crosstalk")
    low, high = interval(found)
    assert low < -42.75 < high
    assert high - low < 0.5
    assert (found.verdict, found.value, found.n) == ("fail", high, 5 * 4)
    assert found.reason == "limit -48 dB; by monitors"
    bounded = clause(
        scripted(simulated(lab()), lambda made, p: -9.0 if p in made else -60.0), "crosstalk"
    )
    assert (bounded.verdict, bounded.interval) == ("pass", (-120.0, -51.0))


def test_crosstalk_of_circuits_without_light_is_left_out(simulated: Simulated) -> None:
    """Light enters at the port of 12 alone: one circuit, at four other ports."""
    found = clause(
        scripted(simulated(lab()), lambda made, p: -9.0 if made == [12] == [p] else -60.0),
        "crosstalk",
    )
    assert (found.verdict, found.n) == ("pass", 4)
    dark = clause(scripted(simulated(lab()), lambda made, port: -60.0), "crosstalk")
    assert (dark.verdict, dark.reason) == (
        "not tested",
        "no light enters, or no egress is left dark",
    )


# ---------------------------------------------------------------------------------- 6, by traffic


def frame_loss(
    patch: pytest.MonkeyPatch, rows: Sequence[tuple[str, float, float, int, int]]
) -> None:
    """Let frame losses be these: subject, value, upper bound, lost words, most symbol errors."""
    left = list(rows)

    def measure(bench: Bench, recording: Recording, ports: Sequence[Port]) -> None:
        for name, value, high, lost, most in (left.pop(0), left.pop(0)):
            known: dict[str, Any] = {"lost": lost, "most_symbol_errors": most}
            recording.record([Row(name, "frame_loss_ratio", value, None, high, "1", 1, known)])

    patch.setattr(traffic_clauses, "measure_frame_loss", measure)


WORST_ELSEWHERE = [("a", 1e-12, 2e-12, 3, 16), ("b", 5e-12, 6e-12, 0, 4), ("c", 0.0, 9e-12, 2, 9)]
WORST_ELSEWHERE += [("d", 2e-12, 3e-12, 0, 1)]


def test_lost_code_words_of_all_ports_fail_whichever_is_worst(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words are lost at a and c; the greatest ratio has b, the greatest upper bound c."""
    frame_loss(monkeypatch, WORST_ELSEWHERE)
    found = clause(subject_of(simulated(traffic_lab())), "frame_loss")
    assert found.verdict == "fail"
    worst = "worst b, at most 16 symbol errors in a code word"
    assert found.reason == f"5 code words were not corrected; {worst}"
    assert (found.value, found.interval, found.n) == (9e-12, (0.0, 9e-12), 4)


@pytest.mark.parametrize(
    ("limit", "verdict"), [("", "pass"), ("1.0e-11", "pass"), ("7.0e-12", "inconclusive")]
)
def test_frame_loss_without_a_lost_word_is_judged_by_the_limit_if_any(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, limit: str, verdict: str
) -> None:
    frame_loss(monkeypatch, [(*each[:3], 0, each[4]) for each in WORST_ELSEWHERE])
    text = traffic_lab()
    if limit:
        text = text.replace("limits: {", f"limits: {{frame_loss_ratio: {{max: {limit}}}, ")
    found = clause(subject_of(simulated(text)), "frame_loss")
    assert (found.verdict, found.value) == (verdict, 9e-12), found
    assert "not corrected" not in found.reason


def test_the_error_ratio_is_that_of_the_worst_port_and_holds_the_truth(
    simulated: Simulated,
) -> None:
    """One port in three has so little light that one bit in 33,000 is wrong (limit: KP4's)."""
    bench = simulated(traffic_lab())
    assert bench.world is not None
    true = {"server0": 1e-6, "server1": 2e-6, "server2": 3e-5}
    for port, nic in bench.world.roster.items():
        nic.spec = replace(nic.spec, ber=true[port.owner])
    found = clause(subject_of(bench), "error_ratio")
    low, high = interval(found)
    assert low <= 3e-5 <= high <= 2 * low
    assert found.value == pytest.approx(3e-5, rel=0.2)
    assert found.reason.endswith("; greatest ratio, of server2.nic0")
    # Two plans of one link between two ports each; IEEE 802.3 lets KP4 have 2.2e-4 or so.
    assert (found.verdict, found.n) == ("pass", 4)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_outages_and_rdma_hold_the_truth_of_the_links(simulated: Simulated, seed: int) -> None:
    """Light goes 2 ms after the command and comes after 300 ms, the link's carrier 3 s later.

    Traffic runs 150 ms after the carrier: 3450.1 ms after the command, 3448.1 ms after the last.
    """
    text = traffic_lab(settle_ms=300).replace("sd: 0.2 s", "sd: 0 s}, resume: {mean: 150 ms")
    text = text.replace("settle: {mean: 300 ms}", "settle: {mean: 300 ms}, dark: {mean: 2 ms}")
    for code, truth in (("traffic", 3448.1), ("rdma", 3450.1)):
        found = clause(subject_of(simulated(text, seed)), code)
        low, high = interval(found)
        assert low <= truth <= high
        assert (found.verdict, found.value, found.unit, found.n) == ("pass", high, "ms", 6)
