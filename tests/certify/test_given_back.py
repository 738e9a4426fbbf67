"""Labels and blocks are given back whatever a clause meets, and no clause ends the command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from certify_labs import lab
from switch_defects import limit_profile
from typer.testing import CliRunner, Result

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.certify import certification
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.clauses import CLAUSES
from lightrig.harness.certify.configuration import Configuration
from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.sheet import Sheet
from lightrig.harness.certify.subject import Trial
from lightrig.harness.cli.app import application
from lightrig.instruments.core.errors import DeniedError, GarbledError
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Denial, Tl1Reply, Tl1Request

Simulated = Callable[..., Bench]
LABELLED, BLOCKED = 12, 13
FOUND = {LABELLED: "rack 4"}


def list_labelled_ports_alone(patch: pytest.MonkeyPatch) -> None:
    execute = SimulatedPolatis.execute

    def answer(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        reply = execute(device, request)
        if request.verb != "RTRV-PORT-LABEL":
            return reply
        return Tl1Reply([line for line in reply.lines if not line.endswith(":")])

    patch.setattr(SimulatedPolatis, "execute", answer)


def labels(bench: Bench) -> dict[int, str]:
    stated = bench.switches["ocs"].labels()  # type: ignore[attr-defined]
    return {port: text for port, text in stated.items() if text}


def blocked(bench: Bench) -> list[int]:
    ports = list(range(9, 21))
    passing = bench.switches["ocs"].shutters(ports)  # type: ignore[attr-defined]
    return [port for port, passes in passing.items() if not passes]


@pytest.fixture
def bench(simulated: Simulated) -> Bench:
    bound = simulated(lab())
    switch: Any = bound.switches["ocs"]
    switch.set_label(LABELLED, FOUND[LABELLED])
    switch.set_shutters([BLOCKED], is_open=False)
    return bound


def certify(bench: Bench) -> Certification:
    profile = requirements().profiles["polatis"]
    permitted = frozenset({"harmless", "interrupting", "destructive"})
    return Certification(Fabric(bench), "ocs", profile, Trial(permitted=permitted))


@pytest.mark.parametrize("sparse", [False, True])
def test_labels_of_a_switch_that_lists_labelled_ports_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, sparse: bool
) -> None:
    if sparse:
        list_labelled_ports_alone(monkeypatch)
    outcome = certify(bench).outcome("1.3")
    assert (outcome.verdict, outcome.n) == ("pass", 6 + 5), outcome
    assert labels(bench) == FOUND


def test_what_a_killed_run_has_labelled_is_given_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ports that had no label and were not listed are set back too."""
    list_labelled_ports_alone(monkeypatch)
    switch: Any = bench.switches["ocs"]
    found = Configuration.of(switch, {5, LABELLED, BLOCKED})
    for port in (5, LABELLED, BLOCKED):
        switch.set_label(port, "changed")
    switch.set_shutters([BLOCKED], is_open=True)
    read = Configuration.model_validate_json(found.model_dump_json())  # as --resume has it
    read.give_back(switch)
    assert (labels(bench), blocked(bench)) == (FOUND, [BLOCKED])


def test_a_label_that_is_not_listed_fails(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = SimulatedPolatis.execute

    def answer(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        reply = execute(device, request)
        if request.verb != "RTRV-PORT-LABEL":
            return reply
        return Tl1Reply([line for line in reply.lines if not line.startswith("5:")])

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedPolatis, "execute", answer)
        outcome = certify(bench).outcome("1.3")
    assert outcome.verdict == "fail"
    assert outcome.reason == "with a label for port 5, port 5 is labelled '', not 'lightrig 5'"
    assert labels(bench) == FOUND


def change_all_and_fail(error: Exception) -> Callable[..., Any]:
    def clause(subject: Any, requirement: Any) -> Any:
        for port in (*subject.ingress, *subject.egress):
            subject.switch.set_label(port, "changed")
        subject.switch.set_shutters(subject.egress, is_open=True)
        subject.apply(subject.pairs)
        raise error

    return clause


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (GarbledError("ocs", "answered nonsense"), "ocs answered nonsense"),
        (KeyError(3), "this clause ended with KeyError: 3 at test_given_back.py:"),
    ],
    ids=["of an instrument", "unforeseen"],
)
def test_a_clause_that_ends_with_an_error_leaves_all_as_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    clauses = {**CLAUSES, "labels": change_all_and_fail(error)}
    monkeypatch.setattr(certification, "CLAUSES", clauses)
    trial = certify(bench)
    outcome = trial.outcome("1.3")
    assert outcome.verdict == "inconclusive"
    assert outcome.reason.startswith(reason)
    assert (labels(bench), blocked(bench)) == (FOUND, [BLOCKED])
    assert bench.switches["ocs"].circuits() == frozenset()
    assert trial.not_restored == ""
    assert trial.outcome("1.2").verdict == "pass"


def test_what_cannot_be_given_back_is_reported(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = SimulatedPolatis.execute
    broken: list[bool] = []

    def answer(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        reply = execute(device, request)
        return Tl1Reply(["nonsense"]) if broken and "LABEL" in request.verb else reply

    def clause(subject: Any, requirement: Any) -> Any:
        subject.switch.set_label(LABELLED, "changed")
        broken.append(True)
        raise KeyError(3)

    monkeypatch.setattr(SimulatedPolatis, "execute", answer)
    monkeypatch.setattr(certification, "CLAUSES", {**CLAUSES, "labels": clause})
    trial = certify(bench)
    assert trial.outcome("1.3").verdict == "inconclusive"
    assert "label" in trial.not_restored
    broken.clear()


def test_marks_of_a_killed_certification_are_no_found_labels(bench: Bench) -> None:
    """A run that was killed and whose progress is gone has left them."""
    switch: Any = bench.switches["ocs"]
    for port, text in ((2, "lightrig 2"), (3, "lightrig 2"), (10, "lightrig saved")):
        switch.set_label(port, text)
    assert certify(bench).outcome("1.3").verdict == "pass"
    assert labels(bench) == {**FOUND, 3: "lightrig 2"}  # of another port: somebody's own


def test_all_is_given_back_though_one_label_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = SimulatedPolatis.execute
    switch: Any = bench.switches["ocs"]
    found = Configuration.of(switch, range(2, 15))
    for port in (2, 5, LABELLED):
        switch.set_label(port, "changed")
    switch.set_shutters([BLOCKED], is_open=True)

    def answer(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        if "PORT-LABEL" in request.verb and request.aid == "2" and request.verb[:4] != "RTRV":
            raise Tl1Denial("SROF", "not now")
        return execute(device, request)

    monkeypatch.setattr(SimulatedPolatis, "execute", answer)
    with pytest.raises(DeniedError, match="not now"):
        found.give_back(switch)
    assert labels(bench) == {**FOUND, 2: "changed"}
    assert blocked(bench) == [BLOCKED]


def test_a_switch_that_does_not_answer_before_a_clause_decides_that_clause_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others have on the switch is asked before clauses that interrupt."""
    trial = certify(bench)
    for number in ("1.1", "1.2", "2.7"):
        trial.outcome(number)
    execute = SimulatedPolatis.execute

    def answer(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        reply = execute(device, request)
        return Tl1Reply(["nonsense"]) if request.verb == "RTRV-PATCH" else reply

    with monkeypatch.context() as patch:
        patch.setattr(SimulatedPolatis, "execute", answer)
        outcome = trial.outcome("2.8")
    assert outcome.verdict == "inconclusive", outcome
    assert "nonsense" in outcome.reason
    assert trial.outcome("2.1").verdict == "pass"


def run(folder: Path, *arguments: str) -> Result:
    (folder / "lab.yaml").write_text(lab())
    options = ("--instruments", "simulated", "--out", str(folder))
    whole = ["certify", str(folder / "lab.yaml"), "ocs", *options, *arguments]
    return CliRunner().invoke(application("certify"), whole)


def test_the_command_writes_a_sheet_whatever_a_clause_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_profile(monkeypatch, ("1.1", "1.3", "2.1"))
    clauses = {**CLAUSES, "labels": change_all_and_fail(KeyError(3))}
    monkeypatch.setattr(certification, "CLAUSES", clauses)
    done = run(tmp_path)
    assert done.exit_code == 1, done.output
    sheet = Sheet.model_validate_json((tmp_path / "ocs.json").read_text())
    verdicts = {each.requirement.number: each.verdict for each in sheet.clauses}
    tested = {number: verdicts[number] for number in ("1.1", "1.3", "2.1")}
    assert tested == {"1.1": "pass", "1.3": "inconclusive", "2.1": "pass"}
    assert sheet.not_restored == ""
    kept = tmp_path / "ocs.1.3.traceback.txt"
    assert f"(whole in {kept})" in next(c.reason for c in sheet.clauses if c.verdict[:2] == "in")
    assert kept.read_text().endswith("KeyError: 3\n")
    assert "in clause\n    raise error" in kept.read_text()
    assert "Traceback" not in done.output


def test_a_sparse_switch_is_certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_profile(monkeypatch, ("1.1", "1.3"))
    list_labelled_ports_alone(monkeypatch)
    done = run(tmp_path)
    assert done.exit_code == 0, done.output
    assert "Traceback" not in done.output
