"""Certification: switches with defects fail the clauses that they must, healthy ones none."""

from collections.abc import Callable

import pytest
from switch_defects import DEFECTS, introduce, lab, sonic_lab

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.subject import Outcome, Trial
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Denial, Tl1Reply, Tl1Request
from lightrig.testbeds import Circuit

KNOWN = requirements()
POLATIS = KNOWN.profiles["polatis"]
NUMBERS = [each.number for each in KNOWN.requirements]
EVERYTHING = Trial(permitted=frozenset({"harmless", "interrupting", "destructive"}))
# Of a Polatis over one wire, without operator: it has no restart, and states no factory losses.
UNTRIED = {"1.4", "4.1", "4.2", "5.3"}
# SONiC has no monitors, no reset, and says nothing of its light.
UNTRIED_OF_SONIC = {"1.4", "3.1", "3.2", "4.3", "5.1", "5.2", "5.3"}
SETTLING = "5.1"
Simulated = Callable[..., Bench]


def outcomes(
    bench: Bench, profile: str = "polatis", without: str | None = None
) -> dict[str, Outcome]:
    certification = Certification(Fabric(bench), "ocs", KNOWN.profiles[profile], EVERYTHING)
    return {number: certification.outcome(number) for number in NUMBERS if number != without}


@pytest.mark.parametrize("timed", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_fails_the_clauses_that_it_must(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, defect: str, timed: bool
) -> None:
    """Settling is half of the work: where a defect cannot touch it, the long tests time it."""
    sonic = DEFECTS[defect].get("lab") == "sonic"
    bench = simulated(introduce(defect, monkeypatch))
    untouched = SETTLING not in {*DEFECTS[defect]["required"], *DEFECTS[defect]["allowed"]}
    without = SETTLING if untouched and not timed else None
    found = outcomes(bench, "sonic-ocs" if sonic else "polatis", without)
    failed = {number for number, each in found.items() if each.verdict == "fail"}
    required, allowed = set(DEFECTS[defect]["required"]), set(DEFECTS[defect]["allowed"])
    assert required <= failed <= required | allowed, found
    untried = UNTRIED_OF_SONIC if sonic else UNTRIED
    for number, each in found.items():
        # All else is decided, or waits for a clause that failed.
        waits = each.verdict == "not tested" and each.reason.startswith(
            ("depends on", "the switch is not as it was found")
        )
        expected = "not tested" if number in untried else "pass"
        assert each.verdict == expected or number in failed or waits, (number, each)


@pytest.mark.parametrize("rerouting", [True, False], ids=["moves-ports", "refuses-ports"])
def test_a_healthy_switch_passes(simulated: Simulated, rerouting: bool) -> None:
    found = outcomes(simulated(lab(rerouting=rerouting)))
    verdicts = {number: each.verdict for number, each in found.items()}
    assert verdicts == {n: "not tested" if n in UNTRIED else "pass" for n in NUMBERS}, found
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
    certification = Certification(Fabric(bench), "ocs", POLATIS, EVERYTHING)
    found = {number: certification.outcome(number) for number in NUMBERS}
    forbidden = {"2.8", "4.1", "4.2", "4.3"}
    assert {found[n].verdict for n in NUMBERS if n not in UNTRIED | forbidden} == {"pass"}, found
    others = "not permitted: 1>20 of others would be interrupted"
    assert {found[number].reason for number in forbidden} == {others}
    assert switch.circuits() == {beside, mine}
    cabled = {*range(2, 8), *range(10, 15), 21}  # 21 is beyond the last port, 20
    ports = {int(port) for each in asked for port in each.replace(",", "&").split("&")}
    assert ports == cabled


def test_clauses_that_interrupt_are_not_permitted(simulated: Simulated) -> None:
    certification = Certification(Fabric(simulated(lab())), "ocs", POLATIS)
    reason = "not permitted: interrupting (--allow interrupting)"
    assert certification.outcome("4.1") == Outcome("not tested", reason)


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


def test_sonic_restarts_and_keeps_what_was_saved(simulated: Simulated) -> None:
    bench = simulated(sonic_lab())
    switch = bench.switches["ocs"]
    found = outcomes(bench, "sonic-ocs")
    verdicts = {number: each.verdict for number, each in found.items()}
    assert verdicts == {n: "not tested" if n in UNTRIED_OF_SONIC else "pass" for n in NUMBERS}, (
        found
    )
    assert found["4.2"].reason.startswith("what was saved is back")
    # What is stored afterwards is the configuration that was found: no circuit and no label.
    switch.restart(warm=False)  # type: ignore[attr-defined]
    assert switch.circuits() == frozenset()
    assert set(switch.labels().values()) == {""}  # type: ignore[attr-defined]


def test_an_operator_restarts_a_switch_that_cannot(simulated: Simulated) -> None:
    asked: list[str] = []
    trial = Trial(permitted=frozenset({"harmless", "interrupting"}), ask=asked.append)
    certification = Certification(Fabric(simulated(lab())), "ocs", POLATIS, trial)
    outcome = certification.outcome("4.1")
    assert (outcome.verdict, len(asked)) == ("pass", 1), outcome
    assert "Restart ocs (warm)" in asked[0]


def test_a_sample_of_ports_is_used_and_no_other(simulated: Simulated) -> None:
    bench = simulated(lab())
    certification = Certification(Fabric(bench), "ocs", POLATIS, Trial(seed=5, ports=3))
    subject = certification.subject
    assert (len(subject.ingress), len(subject.egress)) == (3, 3)
    assert certification.outcome("3.2").verdict == "pass"
    again = Certification(Fabric(bench), "ocs", POLATIS, Trial(seed=5, ports=3)).subject
    assert (again.ingress, again.egress) == (subject.ingress, subject.egress)


def test_wires_of_one_switch_agree_and_those_of_two_do_not(simulated: Simulated) -> None:
    bench = simulated(lab())
    switch = bench.switches["ocs"]
    second = type(switch).open(  # type: ignore[attr-defined]
        bench.testbed.switches["ocs"],
        switch.endpoint,
        bench.clock,  # type: ignore[attr-defined]
    )
    trial = Trial(wires={"tl1://second": second})
    outcome = Certification(Fabric(bench), "ocs", POLATIS, trial).outcome("1.4")
    assert (outcome.verdict, outcome.n) == ("pass", 3), outcome
    second.circuits = lambda: frozenset({Circuit(2, 10)})
    outcome = Certification(Fabric(bench), "ocs", POLATIS, trial).outcome("1.4")
    assert (outcome.verdict, "over tl1://second" in outcome.reason) == ("fail", True), outcome
    second.close()
