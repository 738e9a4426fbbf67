"""Bit error counting for one test: plan, announce, count and record gates."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lightrig.harness.bench import Bench
from lightrig.harness.measure.bit_errors.curves import Curve, fit
from lightrig.harness.measure.bit_errors.light import Arrival, Receiver
from lightrig.harness.measure.bit_errors.rows import OVER_POWER, RATIO, count_rows
from lightrig.harness.measure.bit_errors.sweeping import MOST_POINTS, PowerSweep
from lightrig.harness.measure.closure import closure_row
from lightrig.harness.measure.gates import (
    Counted,
    GatePlan,
    NothingCountedError,
    count_together,
    count_until_decided,
    count_with_looks,
    gate_for,
    plan_gate,
)
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row, Scalar
from lightrig.harness.statistics.closure import CLOSURE_ERROR, judge_bounds
from lightrig.harness.statistics.sensitivity import Modulation
from lightrig.harness.statistics.sequential import SequentialTest
from lightrig.instruments.core.capabilities import Attenuator, ErrorCounter
from lightrig.testbeds import Limit, format_duration

CONFIDENCE = 0.95
"""Of gates for a limit that states none."""

DEFAULT_LIMIT = Limit(RATIO, "upper", 1.0, 1e-12, "1", CONFIDENCE)
"""Limit that plans the gate where the testbed states none."""

KP4_LIMIT = 2.4e-4
"""The ratio before FEC that RS(544,514) corrects (IEEE 802.3, 121.1.1)."""

_GOOD_BY = 10.0
"""A sequential test tells the limit from a ratio so many times better."""


class BitErrors:
    """Counts the errors of one counter.

    Args:
        bench: where it stands.
        counter: what counts.
        recording: takes rows and counts, and announces gates.
        limit: what is to be shown, and how surely; it plans the gates.
        receiver: the light at its input, None where it is not known.
        quantity: what the ratio is called.
        least: shortest gate, in ns, whatever the limit asks for.
        burst: declared mean number of errors in a burst, None where nothing is declared.
        modulation: of the signal, whose curve over power is fitted.
        pattern: that is sent and expected; empty where FEC counts errors of any traffic.
    """

    def __init__(
        self,
        bench: Bench,
        counter: ErrorCounter,
        recording: Recording,
        limit: Limit = DEFAULT_LIMIT,
        receiver: Receiver | None = None,
        quantity: str = RATIO,
        least: int = 0,
        burst: float | None = None,
        modulation: Modulation = "NRZ",
        pattern: str = "",
    ) -> None:
        self.counter = counter
        self.quantity = quantity
        self._bench = bench
        self._recording = recording
        self.receiver = receiver
        self._last_reported = ""
        confidence = limit.confidence or CONFIDENCE
        self._burst = burst
        self._modulation = modulation
        self._pattern = pattern
        rate = counter.bits_per_second
        self.plan: GatePlan = plan_gate(limit.value, confidence, rate, least, burst)

    def count(self, gates: int = 1) -> None:
        """Count for `gates` gates that each suffice for a verdict if they see no error.

        Raises `NothingCountedError` for the first one that bounds nothing, once it is recorded.
        """
        self.say_plan()
        for _ in range(gates):
            light = self._light()
            counted = count_with_looks(self.counter, self.plan, self._bench.clock, self._burst)
            self.keep(counted, light)

    def until_decided(self) -> None:
        """Count until it is decided whether the limit, or a tenth of it, is the ratio.

        At the confidence of the limit a channel at the limit is not accepted, nor one of a tenth
        of it rejected. Raises `NothingCountedError`.
        """
        error = 1 - self.plan.confidence
        test = SequentialTest(
            self.plan.limit / _GOOD_BY, self.plan.limit, error, error, self._burst or 1.0
        )
        longest = 2 * gate_for(test.fixed_bits(), self.counter.bits_per_second)
        shortest = test.bits_to_settle_without_errors()
        self._say(
            f"{self._named}: until {self.plan.limit:g} is decided: {shortest:.3g} bits if "
            f"none is wrong, {test.expected_bits(test.bad):.3g} in the mean at the limit"
        )
        light = self._light()
        self.keep(count_until_decided(self.counter, test, self._bench.clock, longest), light)

    def over_power(self, attenuator: Attenuator) -> Curve:
        """The ratio over received power, from the first errors until the pattern is lost.

        Records the sensitivity at the limit and at what FEC corrects, where the counts bound
        it; else says why they do not.
        """
        assert self.receiver is not None
        name, recording = self.counter.name, self._recording
        sweep = PowerSweep(self.counter, self.plan, self.receiver, attenuator)
        longest = format_duration(self.plan.duration)
        self._say(
            f"{self._named}: over received power, at most {MOST_POINTS} gates of up to {longest} "
            "each"
        )
        points: list[tuple[Arrival, Counted]] = []
        for decibel, arrival, counted in sweep.points():
            light = {"attenuation_db": decibel, **_light_conditions(arrival)}
            self._record(counted, OVER_POWER, light)
            if counted.void_reason is None and arrival is not None:
                points.append((arrival, counted))
        targets = self.plan.limit, KP4_LIMIT
        curve = fit(points, targets, self.plan.confidence, self._modulation, self._burst)
        rows = list(curve.rows(name, recording.next_event(), self._stated))
        for at_limit in (True, False):  # a limit is on the sensitivity at its own ratio
            some = [
                row for row in rows if (row.conditions["target"] == self.plan.limit) is at_limit
            ]
            recording.record(some, judged=at_limit)
        for reason in curve.reasons:
            recording.note(f"{name}: {reason}")
        return curve

    def say_plan(self, many: int = 1) -> None:
        """Announce the gate duration; `many` counters count at the same time."""
        name = self._named if many == 1 else f"{many} counters, each"
        self._say(f"{name}: {self.plan}")

    def keep(self, counted: Counted, light: Mapping[str, Scalar] | None = None) -> None:
        """Record a count and keep it for the verdict; raises `NothingCountedError`."""
        light = light or {}
        counted = replace(counted, pattern=self._pattern)
        self._recording.add_count(self.quantity, counted)
        self._record(counted, self.quantity, {**light, "planned_ns": self.plan.duration})
        if counted.void_reason is not None:
            raise NothingCountedError({counted.counter: counted.void_reason})

    # --------------------------------------------------------------------------- inside

    @property
    def _named(self) -> str:
        return ", ".join(filter(None, (self.counter.name, self._pattern)))

    @property
    def _stated(self) -> dict[str, Scalar]:
        """The condition of each row of a count; none where no pattern is sent."""
        return {"pattern": self._pattern} if self._pattern else {}

    def _light(self) -> Mapping[str, Scalar]:
        return _light_conditions(self.receiver.arrival() if self.receiver else None)

    def _record(self, counted: Counted, quantity: str, light: Mapping[str, Scalar]) -> None:
        number = self._recording.next_event()
        self._recording.record(
            [
                *count_rows(counted, quantity, number, {**light, **self._stated}),
                *self._closure(counted, number),
            ]
        )

    def _closure(self, counted: Counted, number: int) -> Iterator[Row]:
        """Whether the count is consistent with the true ratio of a simulated gate."""
        truth = self._bench.truth
        true = None if truth is None else truth.bit_error_ratio(counted.counter)
        bounds = counted.ratio_at(1 - CLOSURE_ERROR)
        if true is not None and bounds is not None:
            verdict = judge_bounds([bounds.lower <= true <= bounds.upper])
            time = counted.count.began.earliest
            yield closure_row(counted.counter, "closure.bit_errors", verdict, time, number)

    def _say(self, sentence: str) -> None:
        if sentence != self._last_reported:  # once, not before each of many equal gates
            self._recording.announce(sentence)
        self._last_reported = sentence


def count_all(each: Sequence[BitErrors]) -> None:
    """Count once with all of them, at the same time.

    Raises `NothingCountedError`, naming all that bound nothing, once all are recorded.
    """
    void = {}
    each[0].say_plan(len(each))
    counts = count_together([(one.counter, one.plan) for one in each])
    for one, counted in zip(each, counts, strict=True):
        try:
            one.keep(counted)
        except NothingCountedError:
            void[counted.counter] = str(counted.void_reason)
    if void:
        raise NothingCountedError(void)


def _light_conditions(arrival: Arrival | None) -> dict[str, Scalar]:
    if arrival is None:
        return {}
    text: dict[str, Scalar] = {"received_power_dbm": round(arrival.dbm, 3)}
    if arrival.oma_dbm is not None:
        text["oma_dbm"] = round(arrival.oma_dbm, 3)
    return text
