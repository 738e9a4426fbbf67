"""What a certification makes of errors, of clauses that wait, and of a switch that is not as found;
restarts, operators and times whose outcome is known by hand.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from certify_labs import LAB, lab, sonic_lab
from single_clauses import clause, subject_of
from sonic_defects import cut_power, install_firmware
from switch_defects import introduce

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.certify import certification
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.clauses import CLAUSES
from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.subject import Outcome, Trial
from lightrig.instruments.core.capabilities import Identity
from lightrig.instruments.core.errors import (
    CANNOT,
    DeniedError,
    GarbledError,
    NoReplyError,
    NotDoneError,
)
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Reply, Tl1Request

POLATIS = requirements().profiles["polatis"]
EVERY = Trial(permitted=frozenset({"harmless", "interrupting", "destructive"}))
ALL, BY_ONE = "2>10 3>11 4>12 5>13 6>14", "3>10 4>11 5>12 6>13 7>14"
Simulated = Callable[..., Bench]


def certify(bench: Bench, **options: Any) -> Certification:
    return Certification(Fabric(bench), "ocs", POLATIS, **options)


def denial(code: str) -> DeniedError:
    return DeniedError("ocs", code=code, text="no such request", command="ENT-PATCH")


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (denial("IDNV"), "fail"),
        (denial(CANNOT), "not tested"),
        (NotDoneError("ocs", "acknowledged the change, but is not in it"), "fail"),
        (GarbledError("ocs", "answered nonsense"), "inconclusive"),
        (KeyError(3), "inconclusive"),
    ],
    ids=["denied", "cannot", "not done", "garbled", "unforeseen"],
)
def test_an_error_is_a_failure_of_the_switch_or_says_nothing_of_it(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, error: Exception, verdict: str
) -> None:
    def clause_(*_: object) -> Outcome:
        raise error

    monkeypatch.setattr(certification, "CLAUSES", {**CLAUSES, "identity": clause_})
    trial = certify(simulated(lab()))
    assert trial.outcome("1.1").verdict == verdict
    assert trial.outcome("1.2") == Outcome("not tested", "depends on 1.1, which did not pass")


def test_clauses_are_tried_once_after_those_they_depend_on(simulated: Simulated) -> None:
    """3.1 depends on 1.2, and that on 1.1; what is known is not tried again."""
    begun: list[str] = []
    known = {"1.1": Outcome("pass", "of an earlier process")}
    trial = certify(simulated(lab()), known=known, begin=begun.append)
    assert trial.outcome("3.1").verdict == "pass"
    assert trial.outcome("3.1") is trial.outcome("3.1")
    assert begun == ["1.2", "3.1"]
    assert trial.outcome("1.1").reason == "of an earlier process"
    assert trial.not_restored == ""


def test_the_first_reason_why_a_switch_is_not_as_found_is_kept(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its circuits cannot be removed, and then its labels cannot be read."""
    execute, broken = SimulatedPolatis.execute, list[bool]()

    def answer(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        if broken and (request.verb == "DLT-PATCH" or "LABEL" in request.verb):
            return Tl1Reply(["nonsense"])
        return execute(device, request)

    def clause_(subject: Any, requirement: object) -> Outcome:
        subject.apply(subject.pairs)
        broken.append(True)
        return Outcome("pass", "by hand")

    monkeypatch.setattr(SimulatedPolatis, "execute", answer)
    monkeypatch.setattr(certification, "CLAUSES", {**CLAUSES, "identity": clause_})
    trial = certify(simulated(lab()))
    assert trial.outcome("1.1").verdict == "pass"
    assert trial.not_restored.startswith("NOT as found: ocs")
    assert trial.outcome("1.2") == Outcome("not tested", "the switch is not as it was found")
    broken.clear()


@pytest.mark.parametrize(
    ("permitted", "leased", "reason"),
    [
        ({"harmless"}, True, "not permitted: interrupting (--allow interrupting)"),
        ({"harmless", "destructive"}, True, "not permitted: interrupting (--allow interrupting)"),
        (
            {"harmless", "interrupting"},
            False,
            "not permitted: interrupting, and the switch is not leased",
        ),
        (
            {"harmless", "interrupting"},
            True,
            "50 further clients are served at once, 200 one after the other",
        ),
    ],
)
def test_what_interrupts_needs_a_permission_and_a_lease(
    simulated: Simulated, permitted: set[str], leased: bool, reason: str
) -> None:
    bench = simulated(lab())
    if not leased:
        bench.external = frozenset({"ocs"})
    passed = Outcome("pass", "by hand")
    trial = Trial(permitted=frozenset(permitted))
    found = certify(bench, trial=trial, known={"2.7": passed}).outcome("2.8")
    assert found.reason == reason


# ------------------------------------------------------------------------- clients and endurance


def test_a_lost_connection_is_tried_at_five_moments(simulated: Simulated) -> None:
    """A command that has left is carried out: only the one that is cut off at once is not.

    Each takes 1 s before the first query and 0.2 s before the second; pauses of 0.1 s, and 85 ms
    of the moments themselves. Another connection takes less than 0.1 s.
    """
    bench = simulated(lab())
    began = bench.clock.now()
    found = clause(subject_of(bench), "lost_connection")
    stated = "0 ms unchanged, 5 ms changed, 10 ms changed, 20 ms changed, 50 ms changed"
    assert (found.verdict, found.reason) == ("pass", f"lost after {stated}")
    assert 6.5 < (bench.clock.now() - began) / 1e9 < 7.5


@pytest.mark.parametrize(("profile", "verdict"), [("polatis", "fail"), ("generic", "pass")])
def test_half_of_a_lost_change_is_allowed_where_batches_may_be_made_in_part(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, profile: str, verdict: str
) -> None:
    bench = simulated(introduce("half of a lost change", monkeypatch))
    found = clause(subject_of(bench, profile=profile), "lost_connection")
    assert found.verdict == verdict, found
    assert ("changed in part" in found.reason) is (verdict == "pass")


def test_other_circuits_than_those_wanted_are_no_part_of_a_change(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where batches may be made in part: here each change leaves 7>20 as well."""
    execute = SimulatedPolatis.execute

    def answer(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        reply = execute(device, request)
        lines = (
            [*reply.lines, "7,20"]
            if request.verb == "RTRV-PATCH" and len(reply.lines) > 4
            else None
        )
        return reply if lines is None else Tl1Reply(lines)

    monkeypatch.setattr(SimulatedPolatis, "execute", answer)
    found = clause(subject_of(simulated(lab()), profile="generic"), "lost_connection")
    assert (found.verdict, found.reason.rpartition(", ")[2]) == (
        "fail",
        "neither those before nor those wanted",
    )


def test_identity_is_asked_again_after_a_hundred_changes(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 18 s are 128 changes or so; from the second answer on the serial number is another."""
    found = clause(subject_of(simulated(lab()), replace(EVERY, hours=0.005)), "endurance")
    assert found.verdict == "pass"
    assert 115 < found.n < 140
    bench = simulated(introduce("changing serial", monkeypatch))
    found = clause(subject_of(bench, replace(EVERY, hours=0.005)), "endurance")
    stated = "after 100 changes it states another identity or size"
    assert (found.verdict, found.reason) == ("fail", stated)


def test_a_batch_that_a_driver_cannot_send_is_not_tested(simulated: Simulated) -> None:
    """Of a DiCon each command sets one port."""
    text = lab().replace("model: polatis, address: tl1:", "model: dicon-gp600, address: scpi:")
    text = text.replace("options: {rerouting: true}", "options: {}").replace("8x12", "8x8")
    found = clause(subject_of(simulated(text), profile="generic"), "port_twice")
    assert (found.verdict, found.n) == ("not tested", 0)
    assert [part.partition(":")[0] for part in found.reason.split("; ")] == [
        "the driver sends no ingress port twice",
        "the driver sends no egress port twice",
    ]


# ------------------------------------------------------------------------- restarts and operators


def test_without_light_at_each_reading_a_warm_restart_is_judged_afterwards(
    simulated: Simulated,
) -> None:
    """Monitors restart with the switch; an operator restarts it, and it answers at once."""
    asked: list[str] = []
    subject = subject_of(simulated(lab()), replace(EVERY, ask=asked.append))
    found = clause(subject, "warm_restart")
    assert (found.verdict, found.unit, found.n) == ("pass", "s", 1)
    assert found.reason.endswith("; light is there afterwards")
    assert found.value is not None
    assert 0 <= found.value < 1
    assert asked == ["Restart ocs (warm), and go on once it has begun to."]


def test_a_restart_lasts_from_its_command_to_the_first_answer(simulated: Simulated) -> None:
    """The simulated switch takes 0.3 s for each of its commands: for the restart and the answer."""
    found = clause(subject_of(simulated(sonic_lab()), EVERY, "sonic-ocs"), "warm_restart")
    assert (found.verdict, found.value, found.unit) == ("pass", pytest.approx(0.6, abs=0.05), "s")
    assert found.reason.startswith("circuits stay, it answers again within 0.6 s; ")


def test_light_that_a_warm_restart_takes_away_fails(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = simulated(lab())
    switch: Any = bench.switches["ocs"]

    def restart(text: str) -> None:
        switch.set_shutters([12, 14], is_open=False)

    found = clause(subject_of(bench, replace(EVERY, ask=restart)), "warm_restart")
    assert (found.verdict, found.reason) == ("fail", "the light of egress ports [12, 14] was gone")


@pytest.mark.parametrize(
    ("late_s", "verdict", "reason"),
    [
        (0, "pass", "light at each reading"),
        (5, "inconclusive", "the watch was slow: up to 6000 ms"),
    ],
)
def test_light_is_watched_each_second_while_the_switch_does_not_answer(
    simulated: Simulated,
    monkeypatch: pytest.MonkeyPatch,
    late_s: int,
    verdict: str,
    reason: str,
) -> None:
    """It is silent for 20 s, and each question waits 10 s; the watch may come late to its reading.

    That light is read by a meter is pretended: it is of the monitors, and stays.
    """
    bench = simulated(lab())
    switch, clock, second = bench.switches["ocs"], bench.clock, 1_000_000_000
    identity, event, restarted = switch.identity, clock.event, list[int]()

    def answer() -> Identity:
        if restarted and clock.now() < restarted[0] + 20 * second:
            clock.sleep(10 * second)
            raise NoReplyError("ocs", "did not answer")
        return identity()

    class Late:
        def __init__(self) -> None:
            self._event = event()
            self.set, self.is_set = self._event.set, self._event.is_set

        def wait(self, timeout: int | None = None) -> bool:
            done = self._event.wait(timeout)
            if not done and timeout == second:
                clock.sleep(late_s * second)
            return done

    monkeypatch.setattr(switch, "identity", answer)
    monkeypatch.setattr(clock, "event", Late)
    subject = subject_of(bench, replace(EVERY, ask=lambda _: restarted.append(clock.now())))
    by_meter = replace(subject.chain(), method="meter")
    monkeypatch.setattr(type(subject), "chain", lambda _: by_meter)
    found = clause(subject, "warm_restart")
    assert found.verdict == verdict, found
    assert reason in found.reason


def test_a_power_loss_is_awaited_for_a_minute_between_two_settings(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was saved is the first of three settings; the two others are made in turn."""
    operator = cut_power(monkeypatch)
    subject = subject_of(simulated(sonic_lab()), replace(EVERY, ask=operator), "sonic-ocs")
    found = clause(subject, "power_loss")
    assert (found.verdict, found.reason[:36]) == ("pass", "circuits are those that were saved, ")
    assert subject.asked == [f"set {ALL}", f"set {ALL}", f"set {BY_ONE}"]
    bench = simulated(sonic_lab())
    began = bench.clock.now()
    unwilling = subject_of(bench, replace(EVERY, ask=lambda text: None), "sonic-ocs")
    found = clause(unwilling, "power_loss")
    assert found == Outcome("not tested", "no change failed within a minute: no power was lost")
    assert 60 <= (bench.clock.now() - began) / 1e9 < 75


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        (("another", "the firmware"), "pass"),
        (("another",), "fail"),  # and never goes back
        ((), "fail"),
    ],
)
def test_an_upgrade_states_another_firmware_and_then_that_from_before(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, steps: tuple[str, ...], verdict: str
) -> None:
    install = install_firmware(monkeypatch)

    def act(text: str) -> None:
        if any(f"Install {step}" in text for step in steps):
            install(text)

    subject = subject_of(simulated(sonic_lab()), replace(EVERY, ask=act), "sonic-ocs")
    found = clause(subject, "upgrade")
    assert found.verdict == verdict, found
    assert subject.asked == [f"set {ALL}", f"may lose {ALL} and get {ALL}"]
    if verdict == "fail":
        last = "SONiC.OCS-202611.2" if steps else "SONiC.OCS-202505.1"
        assert found.reason == f"it states the firmwares SONiC.OCS-202505.1, {last}, {last}"


# ------------------------------------------------------------------------------- few cabled ports


def few(ingress: int, egress: int) -> str:
    """Return the lab with so many cabled ports of each side, from 2 and from 10 on."""
    text = (
        LAB.replace("REROUTING", "true").replace("ACKNOWLEDGE", "40 ms").replace("SETTLE", "24 ms")
    )
    text = text.replace("p[0-5] -> ocs.[2-7]", f"p[0-{ingress - 1}] -> ocs.[2-{ingress + 1}]")
    return text.replace(
        "ocs.[10-14] -> server0.nic0.p[0-4]",
        f"ocs.[10-{egress + 9}] -> server0.nic0.p[0-{egress - 1}]",
    )


@pytest.mark.parametrize(
    ("code", "ports", "is_tried"),
    [
        ("refusals", (2, 2), True),
        ("refusals", (1, 5), False),
        ("batch", (3, 3), True),
        ("batch", (5, 2), False),
        ("exchange", (2, 5), False),
        ("lost_connection", (5, 1), False),
        ("slow_share", (1, 2), True),
        ("slow_share", (5, 1), False),
        ("settling_by_move", (2, 5), True),
        ("settling_by_move", (1, 5), False),
        ("settling_by_move", (6, 4), False),
        ("repeatability", (1, 2), True),
    ],
)
def test_clauses_that_need_more_ports_are_not_applicable(
    simulated: Simulated, code: str, ports: tuple[int, int], is_tried: bool
) -> None:
    text = few(*ports).replace("averaging: 10 ms", "averaging: 80 ms")
    subject = subject_of(simulated(text), EVERY, settling_ms=250.0, even_ms=250.0)
    found = clause(subject, code)
    assert found.verdict == ("pass" if is_tried else "not applicable"), found
    assert subject.asked == [] or is_tried
