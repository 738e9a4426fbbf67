"""Fault plans are read with the place of every mistake, and checked against a testbed."""

from pathlib import Path

import pytest

from lightrig.testbeds import TestbedError, load
from lightrig.testbeds.fault_plan import (
    FAULT_KINDS,
    FaultPlanError,
    RunningFault,
    fault_of,
    load_fault_plan,
)

MIXNET = Path(__file__).parents[2] / "testbeds" / "mixnet.yaml"
SECOND = 1_000_000_000


def plan_of(folder: Path, text: str) -> tuple[RunningFault, ...]:
    path = folder / "faults.yaml"
    path.write_text(text)
    return load_fault_plan(path)


def test_a_plan_is_read(tmp_path: Path) -> None:
    silent, flap, cut = plan_of(
        tmp_path,
        "faults:\n"
        "  - {fault: instrument silent, at: [ocs], tests: '*between*', after: 1 s, lasting: 3 s}\n"
        "  - {fault: NIC flap, at: [server0.nic0]}\n"
        "  - {fault: fiber attenuated, at: [server0.nic0], loss: 30 dB}\n",
    )
    assert silent == RunningFault("instrument silent", ("ocs",), "*between*", SECOND, 3 * SECOND)
    assert str(silent) == "instrument silent at ocs after 1 s for 3 s"
    assert silent.is_for("suites/test_reconfiguration.py::test_between_plans[a]")
    assert not silent.is_for("suites/test_reconfiguration.py::test_by_circuits_moved[a]")
    assert flap.lasting_ns == SECOND // 10
    assert str(cut) == "fiber attenuated by 30 dB at server0.nic0 after 0 ns"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{fault: gremlins}", "2:13: found 'gremlins', expected"),
        ("{fault: fiber cut, at: [a.b], after: soon}", "2:42: found 'soon', expected a duration"),
        ("{fault: fiber cut, at: [a.b], loud: 1 s}", "2:35: found the unknown key 'loud'"),
        ("{at: [ocs]}", "the key 'fault' is missing"),
    ],
)
def test_mistakes_are_located(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(TestbedError) as raised:
        plan_of(tmp_path, f"faults:\n  - {line}\n")
    assert problem in str(raised.value)


def test_a_marker_states_a_fault() -> None:
    fault = fault_of("fiber cut", {"at": "server0.nic0", "after": "2 s"})
    assert fault == RunningFault("fiber cut", ("server0.nic0",), after_ns=2 * SECOND)
    with pytest.raises(FaultPlanError, match=r"marker fault\('gremlins', ...\) is wrong: fault: "):
        fault_of("gremlins", {})


PLACES = {
    "fibers swapped": ("server0.nic0", "server1.nic0"),
    "server lost": ("server3",),
    "clock step": (),
    "disk full": (),
    **{kind: ("ocs",) for kind in FAULT_KINDS if kind.startswith("instrument")},
}


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_places_are_those_of_the_testbed(kind: str) -> None:
    testbed = load(MIXNET)
    at = PLACES.get(kind, ("server0.nic0",))
    RunningFault(kind, at).check(testbed)  # type: ignore[arg-type]
    with pytest.raises(FaultPlanError, match=f"expected {len(at)} places, found {len(at) + 1}"):
        RunningFault(kind, (*at, "ocs")).check(testbed)  # type: ignore[arg-type]
    if at:
        with pytest.raises(FaultPlanError, match="testbed mixnet has no nowhere there, it has "):
            RunningFault(kind, (*at[1:], "nowhere")).check(testbed)  # type: ignore[arg-type]
