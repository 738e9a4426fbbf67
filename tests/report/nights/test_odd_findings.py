"""Findings of nights that later nights do not look for, of parts that left, and of many at once."""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from lightrig.harness.components import LabComponent
from lightrig.harness.findings import SETTINGS, Finding
from lightrig.harness.record import Context, Journal, Row, TestOutcome
from lightrig.harness.record.recovery import settle
from lightrig.harness.record.run_folder import store_findings, store_ports
from lightrig.harness.report.nights import judge_nights, write_nights

LAB = """
name: {name}
switches:
  ocs: {{model: polatis, address: "tl1://{switch}.invalid", size: 8x8}}
servers:
  server[0-1]:
    address: "ssh://bench@{{name}}.invalid"
    nics: {{nic0: {{netdev: e0, rate: 100G, transceiver: optics}}}}
transceivers:
  optics:
    wavelength: 1310 nm
    launch: {{min: -4.3 dBm, max: 4.5 dBm}}
    receive: {{min: -10.6 dBm, max: 4.5 dBm}}
fibers:
  - server[0-1].nic0 <-> ocs
plans: {{one: [server0.nic0 <-> server1.nic0]}}
"""
TEST = "suites/test_reconfiguration.py::test_between_plans[{}/one]"
STALE = Finding(
    "circuits",
    "ocs: a stale cross-connect: 3>12",
    ("ocs",),
    (LabComponent("switch", "ocs"),),
    next_step="remove it by hand",
)


def of_server(number: int) -> Finding:
    """What no test names: a finding of a server's own."""
    name = f"server{number}"
    sentence = f"{name}: has no program rdma"
    return Finding("tools", sentence, (name,), (LabComponent("server", name),))


@pytest.fixture
def night(tmp_path: Path) -> Callable[..., None]:
    """Record a run of January 2026; `found`: at its beginning, None where it has not looked."""

    def recorded(
        day: int,
        found: Sequence[Finding] | None,
        name: str = "lab",
        switch: str = "ocs",
        failed: str = "",
        mtus: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        folder = tmp_path / "runs" / f"202601{day:02}-020000-{name}"
        folder.mkdir(parents=True)
        (folder / f"{name}.yaml").write_text(LAB.format(name=name, switch=switch))
        header = {
            "run": folder.name,
            "night": f"2026-01-{day:02}",
            "testbeds": {name: "x.yaml"},
            "descriptions": {name: f"{name}.yaml"},
        }
        test = TEST.format(name)
        with Journal(folder / "journal.jsonl", header) as journal:
            context = Context(name, test, ("ocs: x",), False, {"clock": "system"})
            row = Row("server0.nic0", "carrier_up", 5e9, 5e9, 5e9, "ns", 1, {"event": 0})
            journal.append(context, row)
            why = {"why": failed} if failed else {}
            journal.note_test(TestOutcome(test, "failed" if failed else "passed", 1.0, why))
        settle(folder)
        if found is not None:
            store_findings(folder, name, [one.document() for one in found])
        if mtus:
            ports = {port: {"mtu": mtu} for port, mtu in mtus.items()}
            store_ports(folder, name, {"kernels": {}, "ports": ports})

    return recorded


def cards_of(folder: Path) -> str:
    page = write_nights(folder, folder / "nights.html").read_text()
    found = re.search(r'<section class="lr-head lr-causes".*?</section>', page, re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", found[0])).split()) if found else ""


def test_a_night_that_has_not_looked_loses_no_card(
    night: Callable[..., None], tmp_path: Path
) -> None:
    night(1, [])
    night(2, [STALE])
    night(3, [STALE])
    night(4, None)
    night(6, None)
    cards = cards_of(tmp_path)
    assert "a stale cross-connect: 3>12" in cards
    assert "since 2026-01-02 , 2 nights in a row" in cards
    assert (
        "Last looked for in the night of 2026-01-03: no run since began with `--profile night`."
        in cards
    )


def test_a_night_that_looked_and_found_nothing_ends_it(
    night: Callable[..., None], tmp_path: Path
) -> None:
    night(2, [STALE])
    night(3, None)
    night(4, [])
    night(5, None)
    assert cards_of(tmp_path) == ""


def test_a_finding_of_the_last_night_is_no_old_one(
    night: Callable[..., None], tmp_path: Path
) -> None:
    night(2, [STALE])
    night(3, None)
    night(4, [STALE])
    cards = cards_of(tmp_path)
    assert "2 nights in a row" in cards
    assert "Last looked for" not in cards


def test_runs_of_older_versions_keep_the_sentence_of_a_failed_test(
    night: Callable[..., None], tmp_path: Path
) -> None:
    """Their journals have no findings, and nothing was read as they began."""
    night(1, None, failed="AssertionError: no light at ocs.12")
    night(2, None, failed="AssertionError: no light at ocs.12")
    cards = cards_of(tmp_path)
    assert "between_plans[lab/one] failed: no light at ocs.12" in cards
    assert "since 2026-01-01 , 2 nights in a row" in cards


def test_a_part_that_the_file_no_longer_has_is_told(
    night: Callable[..., None], tmp_path: Path
) -> None:
    night(2, [of_server(7), of_server(1)])
    seventh, first = cards_of(tmp_path).split("server7 lab")[1].split("server1 lab")
    assert "No longer in the testbed file: server7." in seventh
    assert "No longer" not in first


@pytest.mark.parametrize("shared", [True, False])
def test_testbeds_that_share_a_switch_tell_of_each_other(
    night: Callable[..., None], tmp_path: Path, shared: bool
) -> None:
    """Both call their switch ocs; whether it is one their addresses tell."""
    night(2, [STALE], name="east")
    night(2, [STALE], name="west", switch="ocs" if shared else "core")
    cards = cards_of(tmp_path)
    assert cards.count("a stale cross-connect: 3>12") == 2
    for other in ("west", "east"):
        sentence = f"Testbed {other} has ocs too, and suspects it or ports of it."
        assert cards.count(sentence) == int(shared)


def test_of_500_findings_of_a_night_none_is_lost(
    night: Callable[..., None], tmp_path: Path
) -> None:
    night(2, [of_server(number) for number in range(500)])
    ((_, causes),) = judge_nights(tmp_path).causes
    assert len(causes) == 500
    cards = cards_of(tmp_path)
    assert "480 more of lab" in cards
    for number in range(500):
        assert f"server{number}: has no program rdma" in cards


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (("server1",), "server1.nic0"),
        (("server0",), "server0.nic0"),
        ((), "server0.nic0 or server1.nic0"),
        (("server0", "server1"), "server0.nic0 or server1.nic0"),
    ],
)
def test_of_two_ends_that_differ_the_one_that_was_new_is_named(
    night: Callable[..., None], tmp_path: Path, changed: Sequence[str], named: str
) -> None:
    """Where neither end was new in the first night, or both were, either may be wrong."""
    ends = tuple(f"server{n}.nic0" for n in (0, 1))
    sentence = "server0.nic0 - server1.nic0: MTU is 1500 at server0.nic0 and 9000 at server1.nic0"
    parts = tuple(LabComponent("port", end) for end in ends)
    differs = Finding(SETTINGS, sentence, ends, parts)
    mtus = dict.fromkeys(ends, 4200)
    night(1, [], mtus=mtus)
    after = (
        {end: 1500 if end.startswith(tuple(changed)) else 4200 for end in ends} if changed else mtus
    )
    night(2, [differs], mtus=after)
    night(3, [differs], mtus=after)
    assert cards_of(tmp_path).startswith(f"Suspected causes {named} lab")
