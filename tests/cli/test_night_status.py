"""The status with which `lightrig night` ends, of nights whose testbeds ended differently."""

import json

import pytest
import typer

from lightrig.harness.cli import night
from lightrig.harness.night.outcomes import TestbedNight

MEASURED = TestbedNight("one", "measured", passed=7, inconclusive=1)
FAILED = TestbedNight("two", "measured", passed=5, failed=2)
CUT_OFF = TestbedNight("three", "interrupted", passed=3, reason="the power failed")
MISSING = TestbedNight("four", "not run", reason="host b is down")


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ([MEASURED, MEASURED], None),
        ([MEASURED, FAILED, MEASURED], 1),
        ([FAILED, FAILED], 1),
        ([MEASURED, MISSING, MEASURED], 3),
        ([CUT_OFF, MEASURED], 3),
        ([FAILED, CUT_OFF], 3),
        ([MISSING, MISSING], 3),
    ],
)
def test_one_testbed_among_several_decides_the_status(capsys, found, status):
    """docs/reference: 0 passed, 1 a test failed, 3 the lab was unavailable."""
    try:
        night._report(None, found, True, page=False)
        ended = None
    except typer.Exit as error:
        ended = error.exit_code
    assert ended == status
    shown = json.loads(capsys.readouterr().out)["testbeds"]
    assert [one["testbed"] for one in shown] == [one.testbed for one in found]
