"""Runs with `--relock`: what they select, what they tell, and that they belong to no night."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from report.pages import above
from runs.running import Ended, Started, started

from lightrig.harness.record import Row, read_journal
from lightrig.harness.report.nights import write_nights

SUITE = "suites/test_relock.py"

LAB = """
name: small
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", login: env:X, size: 4x4}}
servers:
  server[0-1]: {address: "ssh://{name}.invalid", nics: {nic0: {
    ports: 2, netdev: "ens1f{p}", rate: 400G, transceiver: fr}}}
transceivers:
  fr: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -10 dBm, max: 4 dBm}}
fibers: ["server[0-1].nic0.p[0-1] <-> ocs"]
plans:
  straight: [server0.nic0.p0 <-> server1.nic0.p0, server0.nic0.p1 <-> server1.nic0.p1]
  crossed: [server0.nic0.p0 <-> server1.nic0.p1, server0.nic0.p1 <-> server1.nic0.p0]
"""

Run = Callable[..., Ended]


@pytest.fixture
def run(start: Callable[..., Started], tmp_path: Path) -> Run:
    def begin(*arguments: object, more: str = "") -> Ended:
        file = tmp_path / "small.yaml"
        file.write_text(LAB + more)
        given = ("--testbed", file, "--instruments", "simulated", "--samples", "8")
        return start(*given, *arguments).end()

    return begin


def rows(ended: Ended) -> list[Row]:
    (journal,) = ended.results.glob("runs/*/journal.jsonl")
    return [row for _, row in read_journal(journal).rows()]


def test_without_the_option_it_is_deselected(run: Run) -> None:
    ended = run(SUITE)
    assert ended.code == 5, ended.output
    assert "1 deselected" in ended.output


def test_it_is_a_run_of_its_own_that_names_the_longest_stage(run: Run) -> None:
    ended = run(SUITE, "suites/test_reconfiguration.py", "suites/test_bit_error.py", "--relock")
    assert ended.code == 0, ended.output
    assert "1 passed" in ended.output
    assert "not applicable" not in ended.output
    assert re.search(
        r"small: the longest stage between light and carrier: .*firmware, driver"
        r" \(between output valid and driver's line\)",
        ended.output,
    )
    quantities = {row.quantity for row in rows(ended)}
    assert quantities >= {
        "relock.whole",
        "relock.signal_detection",
        "relock.clock_recovery",
        "relock.module_output",
        "relock.between",
    }
    (journal,) = ended.results.glob("runs/*/journal.jsonl")
    header = json.loads(journal.read_text().splitlines()[0])
    assert header["by_hand"] is True
    assert header["relock"] is True
    assert not list(ended.results.glob("rows/**/*.parquet"))  # those of nights
    assert list(ended.results.glob("by_hand/**/*.parquet"))


def test_its_page_has_one_change_the_hardware_and_the_trend_which_no_page_of_nights_has(
    tmp_path: Path,
) -> None:
    """The second of two runs shows both; a night between them is not of its kind."""
    file, results = tmp_path / "small.yaml", tmp_path / "results"
    file.write_text(LAB)

    def page_after(*arguments: object) -> str:
        given = ("--testbed", file, "--instruments", "simulated", "--samples", "14", *arguments)
        with started(given, results, page=True) as one:
            ended = one.end()
        assert ended.code == 0, ended.output
        pages = results.glob("runs/*/report.html")
        return above(max(pages, key=lambda page: page.stat().st_mtime_ns))

    assert "Runs with --relock" not in page_after(SUITE, "--relock")
    page_after("suites/test_reconfiguration.py::test_between_plans")
    page = page_after(SUITE, "--relock", "--seed", "1")
    assert "One change, both ends of a link" in page
    nic = "NIC 0x15b3:0x1021:0x0000 (simulated)"
    firmware = "firmware 28.41.1000 (SIM_0000000001) (simulated)"
    assert f"transceiver fr, {nic}, {firmware} 4 ports" in page
    assert "(between output valid and driver" in page  # the page escapes what follows
    assert "2 runs since" in page
    nights = write_nights(results, results / "nights.html").read_text()
    assert "carrier_up" in nights
    assert "relock" not in nights.lower()


def test_limits_on_its_quantities_are_judged(run: Run) -> None:
    ended = run(SUITE, "--relock", more="limits: {relock.whole: {p50: 1 s, confidence: 90 %}}\n")
    assert ended.code == 1, ended.output
    assert re.search(r"relock[. ]whole", ended.output)
    assert len([row for row in rows(ended) if row.quantity == "relock.whole"]) == 8 * 4
