"""The doctor finds each fault of a simulated lab, and none in a lab without faults."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from lightrig.harness.bench import Fabric
from lightrig.harness.cli.app import application
from lightrig.harness.components import Components
from lightrig.harness.doctor import Findings, examine
from lightrig.harness.doctor.connect import connect_lab
from lightrig.harness.doctor.light import examine_light
from lightrig.harness.doctor.servers import BETWEEN, examine_clocks, examine_tools
from lightrig.instruments.servers.host.commands import ToolMissingError
from lightrig.instruments.servers.ports.nic import NicTools
from lightrig.testbeds import load

LAB = """
name: ward
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: 16x16, loss: {{max: 3 dB}},
        options: {{rerouting: true, monitors: {monitors}}}, identity: {{firmware: {firmware}}}}}
servers:
  server[0-3]:
    address: ssh://bench@{{name}}.invalid
    nics:
      nic0: {{ports: 2, netdev: "ens1f{{p}}", rdma: "mlx5_{{p}}", rate: 100G, transceiver: lr4}}
instruments:
  meter: {{kind: power_meter, model: keysight-n7745a, address: scpi://meter.invalid, channels: 8}}
transceivers:
  lr4:
    wavelength: 1310 nm
    wavelengths: 4
    launch: {{min: -4.3 dBm, max: 4.5 dBm}}
    receive: {{min: -10.6 dBm, max: 4.5 dBm}}
    damage: 5.5 dBm
fibers:
  - server[0-3].nic0.p[0-1] <-> ocs
plans:
  ring:
    - server0.nic0.p1 <-> server1.nic0.p0
    - server1.nic0.p1 <-> server2.nic0.p0
    - server2.nic0.p1 <-> server3.nic0.p0
    - server3.nic0.p1 <-> server0.nic0.p0
simulation:
  nic: {{bring_up: {{mean: 1 s, sd: 0.1 s}}}}
  faults: [{faults}]
"""
FIRMWARE = "6.7.3.9"
FAULTS = {
    "swapped fibers": "at: [server0.nic0.p0, server3.nic0.p1]",
    "dirty connector": "at: [server0.nic0.p1], loss: 4 dB",
    "wrong port": "at: [server2.nic0.p0, ocs.12]",
    "dark laser": "at: [server3.nic0.p0]",
    "wrong host key": "at: [server1]",
    "clock skew": "at: [server2], ppm: 900",
    "stale cross-connect": "at: [ocs, 5>23]",
    "full error queue": "at: [meter]",
    "missing tool": "at: [server0], tool: mlxlink",
}
NAMED = {
    "swapped fibers": ("server0.nic0.p0", "and that of server3.nic0.p1 are swapped"),
    "dirty connector": ("server0.nic0.p1", "a dirty connector"),
    "wrong port": ("server2.nic0.p0", "in the wrong port: ocs.12, and the file says ocs.5"),
    "dark laser": ("server3.nic0.p0", "its laser is dark"),
    "wrong host key": ("server1", "another host key"),
    "clock skew": ("server2", "its clock is skewed"),
    "stale cross-connect": ("ocs", "a stale cross-connect: 5>23"),
    "full error queue": ("meter", "entries in its error queue"),
    "missing tool": ("server0", "has no program mlxlink"),
    "wrong firmware": ("ocs", "expects '9.9'"),
}


LOCATED = {
    "server0.nic0.p0": (
        "swapped fibers",
        ("fiber server0.nic0.p0 -> ocs.1", "fiber server3.nic0.p1 -> ocs.8"),
    ),
    "server0.nic0.p1": ("dirty connector or bent fiber", ("fiber server0.nic0.p1 -> ocs.2",)),
    "server2.nic0.p0": ("fiber in a wrong port", ("fiber server2.nic0.p0 -> ocs.5",)),
    "server3.nic0.p0": ("dark laser", ("server3.nic0.p0",)),
    "server1": ("instrument failed", ("server1",)),
}
"""Kind and components by subject; the file counts the ingress ports up from server0.nic0.p0."""


def lab(folder: Path, *faults: str, firmware: str = FIRMWARE, monitors: str = "both") -> Path:
    path = folder / "lab.yaml"
    listed = ", ".join(f"{{fault: {fault}, {FAULTS[fault]}}}" for fault in faults)
    path.write_text(LAB.format(faults=listed, firmware=f'"{firmware}"', monitors=monitors))
    return path


def seen(path: Path) -> Findings:
    return examine(load(path), simulated=True, seed=1)


def problems(findings: Findings) -> list[tuple[str, str]]:
    return [(finding.subject, finding.text) for finding in findings.problems]


def test_all_ten_faults_together_are_found_and_nothing_else(tmp_path: Path) -> None:
    found = problems(seen(lab(tmp_path, *FAULTS, firmware="9.9")))
    for fault, (subject, excerpt) in NAMED.items():
        assert any(subject == s and excerpt in text for s, text in found), (fault, found)
    assert len(found) == len(NAMED), found


def test_what_is_wrong_has_its_kind_and_the_components_that_explain_it(tmp_path: Path) -> None:
    found = {one.subject: one.finding for one in seen(lab(tmp_path, *FAULTS)).problems}
    for subject, (kind, components) in LOCATED.items():
        finding = found[subject]
        assert finding is not None
        assert (finding.kind, tuple(map(str, finding.components))) == (kind, components)
        assert finding.next_step


def test_the_clocks_of_all_servers_are_compared_with_one_wait(tmp_path: Path) -> None:
    bench = connect_lab(load(lab(tmp_path, "clock skew")), simulated=True, seed=1).bench
    with contextlib.closing(bench):
        findings = Findings(Components(bench.testbed))
        began = bench.clock.now()
        examine_clocks(bench.servers.values(), bench.clock, findings)
        assert BETWEEN <= bench.clock.now() - began < 2 * BETWEEN
    graded = {(found.subject, found.grade) for found in findings.found}
    names = ("server0", "server1", "server2", "server3")
    assert graded == {(name, "wrong" if name == "server2" else "ok") for name in names}


def test_servers_that_answer_slowly_are_asked_side_by_side_and_once_more_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links come up after 6 s; the ports of all servers in turn take longer than doctor waits."""
    path = lab(tmp_path)
    path.write_text(path.read_text().replace("mean: 1 s, sd: 0.1 s", "mean: 6 s, sd: 0.1 s"))
    bench = connect_lab(load(path), simulated=True, seed=1).bench
    began: dict[str, list[int]] = {"device": [], "module": []}

    def slowly(name: str, duration: int) -> Callable[[NicTools, str], Any]:
        read = getattr(NicTools, name)

        def answer(tools: NicTools, netdev: str) -> Any:
            began[name].append(bench.clock.now())
            bench.clock.sleep(duration)
            return read(tools, netdev)

        return answer

    with contextlib.closing(bench):
        for name, duration in (("device", 2_500_000_000), ("module", 100_000_000)):
            monkeypatch.setattr(NicTools, name, slowly(name, duration))
        findings = Findings(Components(bench.testbed))
        examine_light(bench, Fabric(bench), findings)
    assert problems(findings) == []
    received = began["module"][8:]  # those before were of one laser after the other
    assert len(received) == 8
    assert len(set(received[:4])) == 1, "a port of each server at once"


@pytest.mark.parametrize("monitors", ["both", "egress"])
def test_a_lab_without_faults_has_no_problems(tmp_path: Path, monitors: str) -> None:
    findings = seen(lab(tmp_path, monitors=monitors))
    assert problems(findings) == []
    checks = {finding.check for finding in findings.found}
    assert {"identity", "round trip", "clock", "tools", "light", "NIC", "size"} <= checks
    unconfirmed = {f.subject: f for f in findings.found if f.check == "unconfirmed"}
    assert unconfirmed["ocs"].grade == "note"
    assert "code of a denial for a port in use (SRCN)" in unconfirmed["ocs"].text
    assert "layout of a DENY block" not in unconfirmed["ocs"].text  # PyPolatis confirms it
    assert "error for a port without monitor" not in unconfirmed["ocs"].text  # of another wire
    single = {f.subject: f for f in findings.found if f.check == "one source"}["ocs"]
    assert single.grade == "note"
    assert "layout of a DENY block and of headers (PyPolatis" in single.text
    assert "a port in use is moved" not in single.text  # MMU.Ifosic confirms it as well
    assert "SRCN" not in single.text  # none confirms it


@pytest.mark.parametrize(
    "fault",
    [
        "wrong port",
        *(
            pytest.param(name, marks=pytest.mark.long)  # with all others in one lab above
            for name in ("swapped fibers", "dirty connector", "dark laser", "missing tool")
        ),
    ],
)
def test_each_fault_alone_is_the_only_problem(tmp_path: Path, fault: str) -> None:
    subject, excerpt = NAMED[fault]
    (found,) = problems(seen(lab(tmp_path, fault)))
    assert found[0] == subject
    assert excerpt in found[1]


def test_without_monitors_at_the_ingress_a_dark_and_a_swapped_one_are_found(
    tmp_path: Path,
) -> None:
    found = problems(seen(lab(tmp_path, "swapped fibers", "dark laser", monitors="egress")))
    assert {subject for subject, _ in found} == {"server0.nic0.p0", "server3.nic0.p0"}


def test_every_problem_has_a_fix(tmp_path: Path) -> None:
    for finding in seen(lab(tmp_path, *FAULTS, firmware="9.9")).problems:
        assert finding.fix, finding


def test_the_command_prints_the_problems(tmp_path: Path) -> None:
    path = lab(tmp_path, "dark laser")
    result = CliRunner().invoke(application(), ["doctor", str(path), "--simulated", "--json"])
    assert result.exit_code == 1
    findings = json.loads(result.stdout)
    assert all(finding["simulated"] for finding in findings)
    assert [f["subject"] for f in findings if f["grade"] == "wrong"] == ["server3.nic0.p0"]
    shown = CliRunner().invoke(
        application(), ["doctor", str(path), "--simulated", "--only-problems"]
    )
    assert "its laser is dark" in shown.stdout
    (wrong,) = (f for f in findings if f["grade"] == "wrong")
    assert wrong["text"] in shown.stdout
    assert wrong["fix"] in shown.stdout
    assert "1 problem in the simulated lab" in shown.stdout


@pytest.mark.parametrize(("firmware", "status"), [("9.9", 1), (FIRMWARE, 0)])
def test_problems_found_without_a_change_of_the_lab_end_with_status_1(
    tmp_path: Path, firmware: str, status: int
) -> None:
    arguments = ["doctor", str(lab(tmp_path, firmware=firmware)), "--simulated", "--read-only"]
    assert CliRunner().invoke(application(), arguments).exit_code == status


@pytest.mark.parametrize(
    ("old", "new"), [("--look", "--read-only"), ("--wrong", "--only-problems")]
)
def test_former_options_work_and_name_the_new_one(tmp_path: Path, old: str, new: str) -> None:
    path = lab(tmp_path, "dark laser")
    runs = [
        CliRunner().invoke(application(), ["doctor", str(path), "--simulated", option])
        for option in (old, new)
    ]
    assert f"{old} is deprecated; use {new}" in runs[0].stderr
    assert runs[0].stdout == runs[1].stdout
    assert "deprecated" not in runs[1].stderr
    assert old not in CliRunner().invoke(application(), ["doctor", "--help"]).stdout


def test_a_lab_that_does_not_answer_ends_with_status_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    result = CliRunner().invoke(application(), ["doctor", str(lab(tmp_path)), "--json"])
    assert result.exit_code == 3
    assert {f["check"] for f in json.loads(result.stdout) if f["grade"] == "wrong"} == {"contact"}


@pytest.mark.parametrize(
    ("address", "grade"), [("netns://a", "note"), ("ssh://a.invalid", "wrong")]
)
def test_a_tool_that_a_namespace_lacks_is_a_note(tmp_path: Path, address: str, grade: str) -> None:
    """A namespace has the programs of its machine: nothing is wrong with the lab."""
    path = tmp_path / "box.yaml"
    path.write_text(
        "name: box\nswitches: {ocs: {model: polatis, address: 'tl1://o.invalid', size: 4x4}}\n"
        f"servers: {{a: {{address: '{address}', nics: {{nic0: {{netdev: f0, rate: 100G}}}}}}}}\n"
    )

    class WithoutEthtool:
        name = "a"

        @property
        def commands(self) -> Self:
            return self

        def run(self, argv: list[str]) -> None:
            if argv[0] == "ethtool":
                raise ToolMissingError("a", "ethtool", "ethtool --version")

    findings = Findings(Components(None))
    server: Any = WithoutEthtool()
    assert examine_tools(server, load(path).servers["a"], findings=findings) == {"ethtool"}
    (found,) = findings.found
    assert (found.grade, found.text, found.fix) == (
        grade,
        "has no program ethtool",
        "install the package ethtool",
    )
