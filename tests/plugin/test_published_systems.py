"""Tests of a published system: the testbeds that they run on, and the fixtures that they take."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
FILE = """\
name: {name}
{system}
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, login: env:OCS_LOGIN, size: 4x4}}
"""
SUITE = """
import pytest

@pytest.mark.of_system("opus", "mixnet")
def test_claim(testbed):
    pass

@pytest.mark.of_system("opus")
@pytest.mark.of_testbed("two")
def test_claim_on_one_file(testbed):
    pass

def test_any(testbed):
    pass
"""


@pytest.mark.parametrize(
    ("system", "collected"),
    [
        ("system: opus", ["test_claim[one]", "test_any[one]"]),
        ("system: mixnet", ["test_claim[one]", "test_any[one]"]),
        ("system: acos", ["test_any[one]"]),
        ("", ["test_any[one]"]),
    ],
)
def test_claims_are_collected_where_the_system_is_declared(pytester, system, collected):
    pytester.makefile(".yaml", one=FILE.format(name="one", system=system))
    pytester.makepyfile(SUITE)
    result = pytester.runpytest(
        "--testbed", "one.yaml", "--instruments", "simulated", "--collect-only", "-q"
    )
    found = [line.partition("::")[2] for line in result.outlines if "::" in line]
    assert found == collected


def test_every_suite_of_claims_names_its_system():
    for file in (ROOT / "suites" / "claims").glob("test_*.py"):
        system = file.stem.split("_")[1]
        assert f'pytest.mark.of_system("{system}")' in file.read_text(), file


SYSTEM_SUITE = """
import sys
import pytest

@pytest.mark.of_system("mixnet")
def test_region(mixnet_region):
    pass

@pytest.mark.of_system("mixnet")
def test_traffic(mixnet_traffic, fabric):
    pass

def test_of_the_lab(shaker, testbed):
    pass

def test_loaded():
    print("loaded:", "lightrig.harness.systems.mixnet.fixtures" in sys.modules)
"""
LAB_CONFTEST = """
import pytest

def pytest_lightrig_unavailable(fixture, testbed):
    if fixture == "shaker" and "shaker" not in testbed.instruments:
        return "no shaker"

@pytest.fixture
def shaker():
    pass
"""


def test_a_fixture_that_a_testbed_cannot_offer_deselects_its_tests(pytester):
    pytester.makefile(".yaml", one=FILE.format(name="one", system="system: mixnet"))
    pytester.makeconftest(LAB_CONFTEST)
    pytester.makepyfile(SYSTEM_SUITE)
    result = pytester.runpytest("--testbed", "one.yaml", "--instruments", "simulated", "-s")
    result.assert_outcomes(passed=1, deselected=3)
    result.stdout.fnmatch_lines(
        [
            "loaded: True",
            "*one: 3 tests not applicable*no two servers that are namespaces (2)*no shaker (1)*",
        ]
    )


def test_without_a_testbed_no_system_is_loaded_and_its_tests_are_skipped(pytester):
    pytester.makeconftest(LAB_CONFTEST)
    pytester.makepyfile(SYSTEM_SUITE)
    result = pytester.runpytest_subprocess("-s", "-rs")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["*loaded: False*", "*no testbed: give --testbed FILE*"])
