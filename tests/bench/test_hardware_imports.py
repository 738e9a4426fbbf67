"""A run on hardware loads no simulation module."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIND = """
import sys
from lightrig.harness.bench import Fabric, LabUnavailableError, bind, bind_only
import lightrig.harness.doctor
import lightrig.harness.measure
import lightrig.harness.plugin.collection
import lightrig.harness.plugin.fixtures
import lightrig.harness.plugin.session
from lightrig.testbeds import load

for file in sys.argv[1:]:
    for opening in (
        lambda found: bind(found, "hardware"),
        lambda found: bind_only(found, {*found.optical_switches}, "a test"),
    ):
        try:
            opening(load(file))
        except LabUnavailableError as error:
            assert "did not answer" in str(error)
        else:
            raise AssertionError("instruments of this file are placeholders")
    of_ours = ("lightrig.instruments.simulated", "lightrig.harness")
    print(*(name for name in sys.modules if name.startswith(of_ours) and "simulat" in name))
"""
TESTBEDS = ("opus", "infinitehbd")


@pytest.fixture(scope="module")
def loaded():
    """Names of simulation modules after each testbed was bound, in one process."""
    files = (str(ROOT / "testbeds" / f"{testbed}.yaml") for testbed in TESTBEDS)
    ended = subprocess.run(
        [sys.executable, "-c", BIND, *files],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return dict(zip(TESTBEDS, ended.stdout.splitlines(), strict=True))


@pytest.mark.parametrize("testbed", TESTBEDS)
def test_a_bench_on_hardware_loads_no_simulation(testbed, loaded):
    assert loaded[testbed].split() == []
