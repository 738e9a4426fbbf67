"""What a page that is signed states, and what it leaves empty (ISO/IEC 17025, 7.8)."""

from pathlib import Path

from lightrig.harness.report.frames import TestbedFrame
from lightrig.harness.report.signed_report import lines
from lightrig.testbeds import load

HOME = Path(__file__).parents[2]
PAGE = HOME / "docs" / "how-to" / "sign-a-report.md"


def facts(tmp_path: Path, laboratory: str) -> dict[str, str]:
    text = (HOME / "testbeds" / "infinitehbd.yaml").read_text()
    path = tmp_path / "lab.yaml"
    path.write_text(text.replace("\nlimits:", f"\n{laboratory}limits:", 1))
    found = lines(TestbedFrame("lab", ()), load(path), "2026-11-28T22:07:34Z")
    return {line.title: line.text for line in found}


def test_without_a_laboratory_nothing_is_signed(tmp_path: Path) -> None:
    assert facts(tmp_path, "") == {}


def test_what_is_not_stated_is_an_empty_line(tmp_path: Path) -> None:
    found = facts(tmp_path, "laboratory:\n  name: Optics laboratory\n")
    stated = {"Laboratory", "Date of the tests", "Statement", "Decision rule and risk"}
    assert {title for title, text in found.items() if text} == stated
    assert found["Laboratory"] == "Optics laboratory"
    assert found["Date of the tests"] == "2026-11-28T22:07:34Z"
    assert "only to the items tested" in found["Statement"]
    assert found["Decision rule and risk"].startswith("guarded acceptance")
    assert found["Decision rule and risk"].endswith("at most 5 %")


def test_the_documented_file_states_all_that_the_page_does_not_measure(tmp_path: Path) -> None:
    example = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    found = facts(tmp_path, example)
    empty = {title for title, text in found.items() if not text}
    assert empty == {
        "Date of issue and signature",
        "Environment",
        "Test patterns",
        "Wavelengths",
    }
    assert found["Calibration certificates"] == "voa: C-2026-0117"
    assert found["Place of the tests"] == "1 Example Street, Example"


def test_each_line_has_its_place_in_the_table_of_clauses(tmp_path: Path) -> None:
    table = PAGE.read_text().partition("| clause |")[2]
    for title in facts(tmp_path, "laboratory:\n  name: Optics laboratory\n"):
        assert f"*{title}*" in table
