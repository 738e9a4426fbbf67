"""Requirements of optical switches, on every one of a testbed (docs/how-to/certify.md).

pytest runs it where it is named, and not with the other suites.
"""

import pytest

from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.requirements import requirements


@pytest.fixture(scope="session")
def certifications(testbed, fabric):
    known = requirements()
    return {
        name: Certification(fabric, name, known.profiles[known.profile_of(spec.model)])
        for name, spec in testbed.optical_switches.items()
    }


@pytest.mark.parametrize("number", [each.number for each in requirements().requirements])
def test_clause(certifications, number):
    found = {name: each.outcome(number) for name, each in certifications.items()}
    lines = [f"{name}: {each.verdict}, {each.reason}" for name, each in found.items()]
    verdicts = {each.verdict for each in found.values()}
    if "fail" in verdicts:
        pytest.fail("\n".join(lines), pytrace=False)
    if verdicts != {"pass"}:
        pytest.skip("; ".join(lines))
