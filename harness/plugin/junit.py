"""Inconclusive tests in JUnit XML, which knows no such outcome.

A test case is passed, failed, in error or skipped there. An inconclusive one is written as
`<skipped type="lightrig.inconclusive">`, so that no reader counts it as passed, with the property
`outcome`; the test suite has their number as a property.
"""

import xml.etree.ElementTree as ET  # of a file that pytest has just written
from pathlib import Path

import pytest


def add_outcomes(config: pytest.Config) -> None:
    """Mark inconclusive tests in the file that `--junitxml` names, if there is one."""
    name = config.getoption("xmlpath", None)
    if not name or not (path := Path(name)).exists():
        return
    tree = ET.parse(path)  # noqa: S314 - pytest has just written it
    for suite in tree.iter("testsuite"):
        count = 0
        for case in suite.iter("testcase"):
            found = {each.get("name"): each.get("value", "") for each in case.iter("property")}
            if found.get("outcome") == "inconclusive" and len(case) == 1:
                kind = {"type": "lightrig.inconclusive", "message": found.get("reason", "")}
                ET.SubElement(case, "skipped", kind)
                count += 1
        if count:
            suite.set("skipped", str(int(suite.get("skipped", "0")) + count))
            properties = suite.find("properties")
            if properties is None:
                properties = ET.Element("properties")
                suite.insert(0, properties)
            ET.SubElement(properties, "property", name="inconclusive", value=str(count))
    tree.write(path, encoding="utf-8", xml_declaration=True)
