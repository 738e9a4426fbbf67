"""What a report that is signed states beside its results: ISO/IEC 17025, 7.8, clause by clause.

A line whose fact is not stated stays empty: nothing is invented. The letters of the clauses are
recalled from the edition of 2017, which was not at hand: unconfirmed.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from lightrig.harness.report.frames import TestbedFrame
from lightrig.testbeds import Limit, Testbed

RULES: Mapping[str, str] = {
    "guarded": "guarded acceptance: a value passes if its whole interval keeps the limit, fails if "
    "its whole interval is beyond it",
    "simple": "simple acceptance: by the value alone; near a limit it is wrong in up to half",
    "lenient": "a value fails only if its whole interval is beyond the limit",
}
"""Decision rules in words (ISO 14253-1, ILAC-G8)."""

RELATES = (
    "The results relate only to the items tested, as they were when tested, and to the times "
    "stated."
)


class Line(NamedTuple):
    """One fact of a report; `text` is empty where nobody states it."""

    clause: str
    title: str
    text: str


def lines(frame: TestbedFrame, testbed: Testbed, started: str = "") -> Iterator[Line]:
    """Yield the facts of a testbed that states a laboratory, in the order of the standard.

    started: date and time at which the run began.
    """
    stated = testbed.laboratory
    if stated is None:
        return
    yield Line("7.8.2.1 b", "Laboratory", ", ".join(filter(None, (stated.name, stated.address))))
    yield Line("7.8.2.1 c", "Place of the tests", stated.place or stated.address)
    yield Line("7.8.2.1 e", "Customer", stated.customer)
    yield Line("7.8.2.1 f", "Method", stated.method)
    yield Line("7.8.2.1 g", "Items and their condition", stated.items)
    yield Line("7.8.2.1 h", "Items received", stated.received)
    yield Line("7.8.2.1 i", "Date of the tests", started)
    yield Line("7.8.2.1 l", "Statement", RELATES)
    yield Line("7.8.2.1 o", "Authorised by", stated.person)
    yield Line("7.8.2.1 j", "Date of issue and signature", "")
    yield Line("7.8.3.1 a", "Environment", stated.environment or _temperatures(frame))
    yield Line("7.8.3.1 a", "Test patterns", _patterns(frame, testbed))
    yield Line("7.8.3.1 a", "Wavelengths", _wavelengths(frame))
    certificates = (f"{name}: {number}" for name, number in stated.certificates.items())
    yield Line("6.5, 7.8.4.1", "Calibration certificates", "; ".join(certificates))
    yield Line("7.8.6.2", "Decision rule and risk", _rules(testbed.limits))


def _conditions(frame: TestbedFrame, name: str) -> list[float]:
    found = [
        series.conditions[name]
        for test in frame.tests
        for series in test.series.values()
        if name in series.conditions
    ]
    values = np.concatenate(found or [np.array([])])
    return sorted(set(values[np.isfinite(values)].tolist()))


def _temperatures(frame: TestbedFrame) -> str:
    found = _conditions(frame, "temperature_c")
    ends = dict.fromkeys(f"{celsius:.1f}" for celsius in found[:1] + found[-1:])
    return f"{' to '.join(ends)} °C, by the chamber" if found else ""


def _wavelengths(frame: TestbedFrame) -> str:
    return ", ".join(f"{nm:g} nm" for nm in _conditions(frame, "wavelength_nm"))


def _patterns(frame: TestbedFrame, testbed: Testbed) -> str:
    """Return each tester's pattern and rate, of testers whose bit error ratios were recorded."""
    if not any(name.startswith("bit_error_ratio") for t in frame.tests for name in t.series):
        return ""
    testers = (one for one in testbed.instruments.values() if one.kind == "bit_error_tester")
    sent = (
        (one.name, one.options.get("pattern", "PRBS31"), one.options.get("rate", ""))
        for one in testers
    )
    return "; ".join(" ".join(map(str, filter(None, each))) for each in sent)


def _rules(limits: Mapping[str, Limit]) -> str:
    """Return the decision rules of the limits, and the probability of a wrong statement."""
    by_rule: dict[str, list[str]] = {}
    for name, limit in limits.items():
        by_rule.setdefault(RULES[limit.decision], []).append(name)
    rules = "; ".join(
        rule if len(by_rule) == 1 else f"{', '.join(names)}: {rule}"
        for rule, names in by_rule.items()
    )
    risks = {1 - each.confidence for each in limits.values() if each.confidence is not None}
    risk = (
        f". A statement on a quantile or ratio is wrong with a probability of at most "
        f"{100 * max(risks):.3g} %"
        if risks
        else ""
    )
    return rules + risk
