"""Certification: switches with defects fail the clauses that they must, healthy ones none."""

from collections.abc import Callable

import pytest
from switch_defects import DEFECTS, INTRODUCED, introduce, lab

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.clauses import Outcome
from lightrig.harness.certify.requirements import requirements
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Denial, Tl1Reply, Tl1Request
from lightrig.testbeds import Circuit

CLAUSES = ("1.1", "1.2", "2.1", "2.2", "3.1")
POLATIS = requirements().profiles["polatis"]
Simulated = Callable[..., Bench]


def outcomes(bench: Bench) -> dict[str, Outcome]:
    certification = Certification(Fabric(bench), "ocs", POLATIS)
    return {number: certification.outcome(number) for number in CLAUSES}


@pytest.mark.parametrize("defect", INTRODUCED)
def test_a_defect_fails_the_clauses_that_it_must(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    found = outcomes(simulated(introduce(defect, monkeypatch)))
    failed = {number for number, each in found.items() if each.verdict == "fail"}
    required, allowed = set(DEFECTS[defect]["required"]), set(DEFECTS[defect]["allowed"])
    assert required <= failed <= required | allowed, found
    for number, each in found.items():
        # All else is decided, or waits for a clause that failed.
        waits = each.verdict == "not tested" and each.reason.startswith("depends on")
        assert each.verdict == "pass" or number in failed or waits, (number, each)


@pytest.mark.parametrize("rerouting", [True, False], ids=["moves-ports", "refuses-ports"])
def test_a_healthy_switch_passes(simulated: Simulated, rerouting: bool) -> None:
    found = outcomes(simulated(lab(rerouting=rerouting)))
    assert {number: each.verdict for number, each in found.items()} == dict.fromkeys(
        CLAUSES, "pass"
    ), found
    assert found["2.1"].reason.endswith("moved" if rerouting else "refused (SRCN)")
    # One, two, two and twice five circuits: N/2 of five is two.
    assert found["3.1"].n == 1 + 2 + 5 + 5
    low, high = found["3.1"].interval or (-1, -1)
    assert 0 <= low <= high < 0.5


def test_circuits_are_left_as_found_and_other_ports_alone(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = simulated(lab())
    switch = bench.switches["ocs"]
    beside, mine = Circuit(1, 20), Circuit(3, 13)  # ports 1 and 20 are not cabled
    switch.change([], [beside, mine]).done()
    asked: list[str] = []
    execute = SimulatedPolatis.execute

    def record(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        asked.extend([request.aid] if request.verb in {"ENT-PATCH", "DLT-PATCH"} else [])
        return execute(device, request)

    monkeypatch.setattr(SimulatedPolatis, "execute", record)
    found = outcomes(bench)
    assert {each.verdict for each in found.values()} == {"pass"}, found
    assert switch.circuits() == {beside, mine}
    cabled = {*range(2, 8), *range(10, 15), 21}  # 21 is beyond the last port, 20
    ports = {int(port) for each in asked for port in each.replace(",", "&").split("&")}
    assert ports == cabled


def test_clauses_that_interrupt_are_not_permitted(simulated: Simulated) -> None:
    certification = Certification(Fabric(simulated(lab())), "ocs", POLATIS)
    assert certification.outcome("4.1") == Outcome("not tested", "not permitted: interrupting")


def test_a_switch_that_cannot_be_restored_is_reported(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = SimulatedPolatis.execute

    def keep_circuits(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        if request.verb == "DLT-PATCH":
            raise Tl1Denial("PICC", "Permission denied")
        return execute(device, request)

    monkeypatch.setattr(SimulatedPolatis, "execute", keep_circuits)
    certification = Certification(Fabric(simulated(lab())), "ocs", POLATIS)
    certification.outcome("1.2")
    assert "NOT as found: ocs" in certification.not_restored
    assert certification.outcome("2.1").verdict == "not tested"
