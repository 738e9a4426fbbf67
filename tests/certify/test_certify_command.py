"""`lightrig certify FILE SWITCH`: its question, sheets and exit statuses."""

import json
import re
from pathlib import Path

import pytest
from certify_labs import lab
from switch_defects import introduce, limit_profile
from typer.testing import CliRunner, Result

from lightrig.harness.certify.sheet import Sheet
from lightrig.harness.cli.app import application
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Denial, Tl1Reply, Tl1Request

SIMULATED = ("--instruments", "simulated")


def run(tmp_path: Path, text: str, *arguments: str) -> Result:
    (tmp_path / "lab.yaml").write_text(text)
    whole = ["certify", str(tmp_path / "lab.yaml"), "ocs", "--out", str(tmp_path), *arguments]
    return CliRunner().invoke(application("certify"), whole)


def test_a_healthy_switch_has_a_sheet_whose_lines_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_profile(monkeypatch, ("1.1", "1.2", "1.3", "1.4", "2.1", "2.8", "3.2"))
    done = run(tmp_path, lab(), *SIMULATED, "--hours", "0.5")
    assert done.exit_code == 1, done.output  # 2.8 is not permitted
    # As the requirements state them: 4 of 1.2, 1.4 and 2.1, and 14 of 3.2.
    assert "at most 26 times; about 8 s, and endurance for 0.5 h." in done.stderr
    sheet = Sheet.model_validate_json((tmp_path / "ocs.json").read_text())
    tested = [each for each in sheet.clauses if each.verdict != "not tested"]
    numbers = " ".join(each.requirement.number for each in tested)
    assert numbers == "1.1 1.2 1.3 2.1 3.2"
    page = (tmp_path / "ocs.html").read_text()
    summary, *folds = page.split('<details class="lr-card">')
    assert len(folds) == 2  # of clauses, and of instruments
    rows = summary.partition('<section class="lr-card')[2].split("<tr>")[2:]
    assert len(rows) == len(sheet.clauses)
    assert all('<span class="lr-sim">simulated</span>' in row for row in rows)
    assert "6 ingress and 5 egress, of 6 and 5 that are cabled" in page
    clauses = folds[0].split("<section>")[1:]
    assert len(clauses) == len(sheet.clauses)
    assert all('<span class="lr-sim">simulated</span>' in each for each in (*clauses, folds[1]))
    assert not re.search(r'(?:src|href)="|@import|url\(', page)


def test_json_is_the_sheet_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_profile(monkeypatch, ("1.1",))
    done = run(tmp_path, lab(), *SIMULATED, "--json")
    assert done.stdout == (tmp_path / "ocs.json").read_text()
    assert json.loads(done.stdout)["format"] == "lightrig certification sheet 1"


def test_a_defect_ends_with_1_and_a_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_profile(monkeypatch, ("1.1", "2.1"))
    done = run(tmp_path, introduce("silent port", monkeypatch), *SIMULATED)
    assert done.exit_code == 1
    assert "2.1 Refusals" in done.stdout
    assert '"fail"' in (tmp_path / "ocs.json").read_text()
    page = (tmp_path / "ocs.html").read_text()
    assert "<p><strong>Required clauses that have not passed: 2.1 (fail).</strong></p>" in page


def test_hardware_without_a_terminal_needs_a_yes(tmp_path: Path) -> None:
    done = run(tmp_path, lab())
    assert (done.exit_code, "--yes" in done.stderr) == (2, True)
    assert not (tmp_path / "ocs.json").exists()


def test_bad_input_names_what_there_is(tmp_path: Path) -> None:
    unknown = run(tmp_path, lab(), "--profile", "no-such")
    assert (unknown.exit_code, "polatis, sonic-ocs" in unknown.stderr) == (2, True), unknown.stderr
    other = run(tmp_path, lab().replace("ocs", "other"))
    assert (other.exit_code, "'ocs'; it has other" in other.stderr) == (2, True), other.stderr


def test_a_switch_that_is_not_as_found_ends_with_6_and_a_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = SimulatedPolatis.execute

    def keep_circuits(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        if request.verb == "DLT-PATCH":
            raise Tl1Denial("PICC", "Permission denied")
        return execute(device, request)

    monkeypatch.setattr(SimulatedPolatis, "execute", keep_circuits)
    done = run(tmp_path, lab(), *SIMULATED)
    assert done.exit_code == 6, done.output
    assert "NOT as found" in done.stderr
    sheet = Sheet.model_validate_json((tmp_path / "ocs.json").read_text())
    assert "NOT as found: ocs" in sheet.not_restored
    assert "NOT as found" in (tmp_path / "ocs.html").read_text()
