"""A run that is signed: what stands beside each value on terminal, page and in JSON."""

import json
import re
from pathlib import Path

import pytest
from report.pages import above
from running import ROOT, Ended, started

PAGE = ROOT / "docs" / "how-to" / "sign-a-report.md"
LAB = ROOT / "testbeds" / "infinitehbd.yaml"


def signed(tmp_path: Path, *arguments: object) -> Ended:
    """Run tests on a lab of a tester and a chamber that states a laboratory."""
    laboratory = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
    testbed = tmp_path / "lab.yaml"
    testbed.write_text(LAB.read_text().replace("\nlimits:", f"\n{laboratory}limits:", 1))
    given = ("--testbed", testbed, "--instruments", "simulated", "--seed", 4, "-n0")
    with started([*map(str, arguments), *map(str, given)], tmp_path / "results", page=True) as run:
        return run.end()


@pytest.mark.long
def test_patterns_and_wavelengths_stand_beside_their_values(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    tests = ("suites/test_bit_error.py", "suites/test_insertion_loss.py")
    chosen = "as_it_is or over_received_power or every_circuit"
    ended = signed(tmp_path, *tests, "-k", chosen, "--json", events)
    assert ended.code == 0, ended.output

    # The lab's file has a tester that sends PRBS31Q, and a chamber; references are at 1550 nm.
    found = map(json.loads, ended.rows)
    rows = [row for row in found if isinstance(row[2], str)]
    of_ratios = [row for row in rows if row[2].startswith(("bit_error_ratio", "sensitivity"))]
    of_losses = [row for row in rows if row[2] == "insertion_loss"]
    assert of_ratios
    assert of_losses
    assert {row[8]["pattern"] for row in of_ratios} == {"PRBS31Q"}
    assert {row[8]["wavelength_nm"] for row in of_losses} == {1550}
    assert all(20 < row[8]["temperature_c"] < 30 for row in of_losses)

    events_seen = [json.loads(line) for line in events.read_text().splitlines()]
    (loss,) = (
        each
        for each in events_seen
        if each["event"] == "quantity" and each["quantity"] == "insertion_loss" and each["final"]
    )
    assert loss["beside"]["wavelength"] == "1550 nm"
    assert re.fullmatch(r"2\d(\.\d+)? °C", loss["beside"]["temperature"])
    (verdict,) = (
        each
        for each in events_seen
        if each["event"] == "verdict" and each["quantity"] == "bit_error_ratio"
    )
    assert re.search(r"worst: ber\.1, PRBS31Q: \d+ errors? in", verdict["reason"])

    assert re.search(r"every_circuit.* insertion_loss .*; 1550 nm; 2\d(\.\d+)? °C", ended.output)
    assert re.search(r"over_received_power.* sensitivity .*; PRBS31Q", ended.output)

    text = above(ended.page)
    assert re.search(r"as it is simulated ber\.1 6 .{0,200}PRBS31Q", text)
    assert "Test patterns ber PRBS31Q 106.25 Gbit/s" in text
    assert "Wavelengths 1550 nm" in text


@pytest.mark.long
def test_each_clause_has_its_place_on_the_page(tmp_path: Path) -> None:
    ended = signed(tmp_path, "suites/test_bit_error.py", "-k", "as_it_is")
    assert ended.code == 0, ended.output
    text = above(ended.page)
    table = PAGE.read_text().partition("| clause |")[2].partition("\n\n")[0]
    places = re.findall(r"\*([^*]+)\*", table)
    assert len(places) > 15
    missing = [place for place in places if place not in text]
    assert not missing
