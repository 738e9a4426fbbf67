"""Certification: healthy switches pass, are left as found, and what is not permitted waits."""

from dataclasses import replace

import pytest
from certify_labs import FACTORY, lab, optics_lab, scope_lab, sonic_lab, traffic_lab
from sonic_defects import cut_power, install_firmware, state_factory_losses
from trials import (
    EVERYTHING,
    NUMBERS,
    OF_CIRCUITS,
    POLATIS,
    UNTRIED,
    UNTRIED_OF_SONIC,
    WITHOUT_TIMES,
    Simulated,
    certification_of,
    outcomes,
)

from lightrig.harness.bench import Fabric
from lightrig.harness.certify import time_clauses
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.light_clauses import read
from lightrig.harness.certify.subject import Outcome, Trial
from lightrig.harness.certify.time_clauses import shift_of
from lightrig.harness.measure.insertion_loss.chains import Chain
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Denial, Tl1Reply, Tl1Request
from lightrig.testbeds import Circuit


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        pytest.param(optics_lab(), ("3.4", "5.7", "5.8"), marks=pytest.mark.long),
        (scope_lab(), ("5.6",)),
        (traffic_lab(), ("6.1", "6.2", "6.3", "6.4")),
        (sonic_lab("gnmi"), ("1.5", "2.9")),
    ],
    ids=["optics", "oscilloscope", "traffic", "gnmi"],
)
def test_instruments_and_wires_that_a_clause_needs(
    simulated: Simulated, text: str, numbers: tuple[str, ...]
) -> None:
    certification = certification_of(simulated(text))
    found = outcomes(certification, numbers)
    assert {each.verdict for each in found.values()} == {"pass"}, found
    assert certification.not_restored == ""


def test_factory_losses_and_drift_of_a_healthy_switch(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_factory_losses(monkeypatch)
    found = outcomes(certification_of(simulated(FACTORY)), ("5.3", "5.9"))
    assert {each.verdict for each in found.values()} == {"pass"}, found
    # Four circuits lead from the one ingress, of which the first setting has one.
    assert (found["5.3"].n, "4 losses from" in found["5.9"].reason) == (4, True), found


def test_losses_of_a_sample_move_no_other_ports(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: set[Circuit] = set()
    execute = SimulatedPolatis.execute

    def record(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        reply = execute(device, request)
        made.update(Circuit(*each) for each in device.box.matrix.egress_of.items())
        return reply

    monkeypatch.setattr(SimulatedPolatis, "execute", record)
    certification = Certification(Fabric(simulated(lab())), "ocs", POLATIS, Trial(seed=5, ports=3))
    assert certification.outcome("5.9").verdict == "pass", certification.outcome("5.9")
    ingress, egress = certification.subject.ingress, certification.subject.egress
    assert made == {Circuit(i, e) for i in ingress for e in egress}


def test_a_slow_reading_of_light_is_no_unsettled_circuit(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reading takes 1.5 s, longer than light is watched, so that one alone is of the dark."""
    bench = simulated(lab())
    certification = certification_of(bench)
    assert certification.outcome("3.1").verdict == "pass"

    def read_slowly(chain: Chain) -> dict[int, float]:
        found = read(chain)
        bench.clock.sleep(1_500_000_000)
        return found

    monkeypatch.setattr(time_clauses, "read", read_slowly)
    outcome = certification.outcome("5.1")
    assert outcome.verdict == "inconclusive", outcome


@pytest.mark.long
def test_a_healthy_sonic_passes(simulated: Simulated) -> None:
    found = outcomes(certification_of(simulated(sonic_lab())))
    verdicts = {number: each.verdict for number, each in found.items()}
    expected = {n: "not tested" if n in UNTRIED_OF_SONIC else "pass" for n in NUMBERS}
    assert verdicts == expected, found


@pytest.mark.long
def test_an_operator_cuts_the_power_and_installs_firmware(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut, install = cut_power(monkeypatch), install_firmware(monkeypatch)

    def ask(text: str) -> None:
        cut(text)
        install(text)

    certification = certification_of(simulated(sonic_lab()), replace(EVERYTHING, ask=ask))
    found = outcomes(certification, ["4.4", "4.5"])
    assert {each.verdict for each in found.values()} == {"pass"}, found
    assert found["4.4"].reason.startswith("circuits are those that were saved")
    steps = "SONiC.OCS-202505.1 to SONiC.OCS-202611.2 to SONiC.OCS-202505.1"
    assert steps in found["4.5"].reason
    unwilling = certification_of(simulated(sonic_lab()), replace(EVERYTHING, ask=lambda text: None))
    assert unwilling.outcome("4.4").reason.endswith("no power was lost")
    assert unwilling.outcome("4.5").verdict == "fail"  # it states the same firmware


def test_a_shift_and_its_interval_are_those_by_hand() -> None:
    """By hand: the nine differences are 1, 2, 2.5, 4, 5, 5.5, 8, 9, 9.5, and their median is 5.

    Of so few values the interval at 95 % is all of them: 4.5 - 1.96 * sqrt(5.25) is 0.009.
    """
    value, low, high = shift_of([4.0, 7.0, 11.0], [1.5, 2.0, 3.0], 0.05)
    assert (value, low, high) == (5.0, 1.0, 9.5)
    # Of five and five, 12.5 - 1.96 * sqrt(25 * 11 / 12) is 3.1: three are left out at either end.
    tens, ones = [10.0, 20.0, 30.0, 40.0, 50.0], [1.0, 2.0, 3.0, 4.0, 5.0]
    assert shift_of(tens, ones, 0.05) == (27.0, 8.0, 46.0)


@pytest.mark.parametrize(
    ("rerouting", "numbers"),
    [
        (True, WITHOUT_TIMES),
        pytest.param(False, WITHOUT_TIMES, marks=pytest.mark.long),
        pytest.param(True, NUMBERS, marks=pytest.mark.long),
        pytest.param(False, NUMBERS, marks=pytest.mark.long),
    ],
    ids=["moves-ports", "refuses-ports", "moves-ports-all", "refuses-ports-all"],
)
def test_a_healthy_switch_passes(simulated: Simulated, rerouting: bool, numbers: list[str]) -> None:
    found = outcomes(certification_of(simulated(lab(rerouting=rerouting))), numbers)
    verdicts = {number: each.verdict for number, each in found.items()}
    assert verdicts == {n: "not tested" if n in UNTRIED else "pass" for n in numbers}, found
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
    found = {number: certification.outcome(number) for number in OF_CIRCUITS}
    forbidden = {"2.8", "4.1", "4.2", "4.3", "4.4", "4.5"}
    assert {found[n].verdict for n in OF_CIRCUITS if n not in UNTRIED | forbidden} == {"pass"}, (
        found
    )
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
    found = outcomes(certification_of(bench), ["1.3", "4.1", "4.2"])
    assert {each.verdict for each in found.values()} == {"pass"}, found
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
