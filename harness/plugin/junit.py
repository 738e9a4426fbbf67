"""Inconclusive tests and attempts in JUnit XML, which knows neither, and counts that add up.

A test case is passed, failed, in error or skipped there. An inconclusive one is written as
`<skipped type="lightrig.inconclusive">`, so that no reader counts it as passed, with the property
`outcome`; the test suite has their number as a property. Attempts that others have followed are
`<flakyFailure>` of the test case where the last one passed, else `<rerunFailure>`, as Maven's
Surefire writes them: pytest writes a case for each, which readers count as passed.
"""

import re
import xml.etree.ElementTree as ET  # of a file that pytest has just written
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lightrig.harness.plugin.keys import CAUSE

_COUNTED = {"error": "errors", "failure": "failures", "skipped": "skipped"}
"""Elements of a test case that say how it ended, the worst first, and the attributes of a suite."""


def add_outcomes(
    config: pytest.Config, reruns: Mapping[str, Sequence[str]], cause: str | None = None
) -> None:
    """Correct the file that `--junitxml` names, if there is one.

    reruns: the reasons of attempts that others have followed, by node id. cause: of the end of a
    run that has ended before its tests.
    """
    name = config.getoption("xmlpath", None)
    if not name or not (path := Path(name)).exists():
        return
    tree = ET.parse(path)  # noqa: S314 - pytest has just written it
    for suite in tree.iter("testsuite"):
        for test, reasons in reruns.items():
            _put_attempts_into_one(suite, test, reasons)
        _count(suite)
        _mark_inconclusive(suite)
        if cause is not None:
            _add_property(suite, CAUSE, cause)
    tree.write(path, encoding="utf-8", xml_declaration=True)


def _put_attempts_into_one(suite: ET.Element, test: str, reasons: Sequence[str]) -> None:
    names, bracket, parameters = test.partition("[")
    *classes, function = names.split("::")
    classes[0] = re.sub(r"\.py$", "", classes[0]).replace("/", ".")
    # With `junit_prefix`, the class has more in front.
    of_class, name = ".".join(classes), f"{function}{bracket}{parameters}"
    cases = [
        case
        for case in suite.iter("testcase")
        if case.get("name") == name and f".{case.get('classname')}".endswith(f".{of_class}")
    ]
    before, rest = cases[: len(reasons)], cases[len(reasons) :]
    if not rest:
        return
    passed = not any(rest[0].find(kind) is not None for kind in _COUNTED)
    for case, reason in zip(before, reasons, strict=True):
        suite.remove(case)
        kind = "flakyFailure" if passed else "rerunFailure"
        ET.SubElement(rest[0], kind, type="lightrig.attempt", message=reason)


def _mark_inconclusive(suite: ET.Element) -> None:
    count = 0
    for case in suite.iter("testcase"):
        found = {each.get("name"): each.get("value", "") for each in case.iter("property")}
        skipped = case.find("skipped")
        if found.get("outcome") == "inconclusive" and skipped is not None:
            skipped.set("type", "lightrig.inconclusive")
            count += 1
    if count:
        _add_property(suite, "inconclusive", str(count))


def _add_property(suite: ET.Element, name: str, value: str) -> None:
    properties = suite.find("properties")
    if properties is None:
        properties = ET.Element("properties")
        suite.insert(0, properties)
    ET.SubElement(properties, "property", name=name, value=value)


def _count(suite: ET.Element) -> None:
    """Count each test case once; pytest counts one with an error in its tear-down twice."""
    counts = {"tests": 0, **dict.fromkeys(_COUNTED.values(), 0)}
    for case in suite.iter("testcase"):
        counts["tests"] += 1
        ends = [end for end in case if end.tag in _COUNTED]
        worst = next((kind for kind in _COUNTED if any(end.tag == kind for end in ends)), None)
        if worst is not None:
            counts[_COUNTED[worst]] += 1
        for end in ends:
            if end.tag != worst:
                case.remove(end)
    for name, count in counts.items():
        suite.set(name, str(count))
