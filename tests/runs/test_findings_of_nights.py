"""What a night finds wrong before its first test reaches the pages, and stops no test."""

import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from runs.running import Ended, started

from lightrig.harness.report.nights import write_nights

LAB = """
name: lab
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 8x8}
servers:
  server[0-1]:
    address: "ssh://bench@{name}.invalid"
    nics:
      nic0: {ports: 2, netdev: "ens1f{p}", rate: 100G, transceiver: optics}
transceivers:
  optics:
    wavelength: 1310 nm
    launch: {min: -4.3 dBm, max: 4.5 dBm}
    receive: {min: -10.6 dBm, max: 4.5 dBm}
    damage: 5.5 dBm
fibers:
  - server[0-1].nic0.p[0-1] <-> ocs
plans:
  straight:
    - server[0].nic0.p[0-1] <-> server[1].nic0.p[0-1]
  crossed:
    - server[0].nic0.p[0-1] <-> server[1].nic0.p[1,0]
"""
LOSSES = "suites/test_insertion_loss.py::every_circuit"
CHANGES = "suites/test_reconfiguration.py::between_plans"
STALE = """
simulation:
  faults:
    - {fault: stale cross-connect, at: [ocs, "1>9"]}
"""
"""Both ports are server0.nic0.p0's, so that a test removes the circuit, and later puts it back."""
EXCHANGED = """
simulation:
  faults:
    - {fault: swapped fibers, at: [server0.nic0.p0, server0.nic0.p1]}
    - {fault: swapped fibers, at: [ocs.9, ocs.10]}
"""
"""Both fibers of two NIC ports, so that each link comes up between wrong ports."""
HEARD = {"straight": ("p1", "p0"), "crossed": ("p0", "p1")}
"""Which port of server1 then sends to server0.nic0.p0, and which one should, by plan."""


@pytest.fixture
def night(tmp_path: Path) -> Callable[..., Ended]:
    """Measure the losses of a lab in a night of January 2026."""
    results = tmp_path / "all"

    def measured(day: int, text: str, *options: str, test: str = LOSSES) -> Ended:
        file = tmp_path / "lab.yaml"
        file.write_text(text)
        arguments = (
            *(*test.split("::")[:1], "-k", test.split("::")[1], "--testbed", file),
            *("--instruments", "simulated", "--samples", "2", *options),
            *("--run-name", f"202601{day:02}-020000-lab"),
        )
        with started(arguments, results, page=True) as run:
            return run.end()

    return measured


def cards_of(page: str) -> str:
    found = re.search(r'<section class="lr-head lr-causes".*?</section>', page, re.DOTALL)
    return html.unescape(re.sub("<[^>]+>", " ", found[0])) if found else ""


def test_a_finding_of_a_night_is_on_its_cards_since_the_night_that_found_it(
    night: Callable[..., Ended], tmp_path: Path
) -> None:
    """The circuit is there from the second night on, and no test asks for it."""
    results = tmp_path / "all"
    for day, text in ((1, LAB), (2, LAB + STALE), (4, LAB + STALE)):
        ended = night(day, text, "--profile", "night")
        assert ended.code == 0, ended.output
        page = write_nights(results, tmp_path / "nights.html").read_text()
        of_run = next(results.glob(f"runs/202601{day:02}*/report.html")).read_text()
        if text == LAB:
            assert not cards_of(page)
            assert not cards_of(of_run)
            continue
        assert "a stale cross-connect: 1>9" in ended.output
        for cards in (cards_of(page), cards_of(of_run)):
            assert "a stale cross-connect: 1>9" in cards
            assert "remove it by hand, or find its owner" in cards
        assert "2026-01-02" in cards_of(page)
        assert ("2 nights in a row" in cards_of(page)) == (day == 4)


def test_only_a_night_looks_at_all_that_can_be_read(
    night: Callable[..., Ended], tmp_path: Path
) -> None:
    ended = night(1, LAB + STALE)
    assert ended.code == 0, ended.output
    assert "stale" not in ended.output
    assert not [*(tmp_path / "all").glob("runs/*/testbeds/lab/findings.json")]


def test_pairs_of_fibers_that_are_exchanged_are_named_where_every_test_passes(
    night: Callable[..., Ended], tmp_path: Path
) -> None:
    results = tmp_path / "all"
    for day, text in ((1, LAB), (2, LAB + EXCHANGED), (3, LAB + EXCHANGED)):
        ended = night(day, text, test=CHANGES)
        assert ended.code == 0, ended.output
        cards = cards_of(write_nights(results, tmp_path / "nights.html").read_text())
        of_run = cards_of(next(results.glob(f"runs/202601{day:02}*/report.html")).read_text())
        if text == LAB:
            assert not cards
            assert not of_run
            continue
        for each in (cards, of_run):
            assert re.search("two of 8 fibers, swapped", each)
            (plan,) = {*re.findall("links of plan (.*?) join wrong ports", each)}
            sends, due = HEARD[plan]
            assert f"server0.nic0.p0 receives from server1.nic0.{sends}, not " in each
            assert f"not server1.nic0.{due}" in each
            assert "`lightrig doctor`" in each
        assert "2026-01-02" in cards
