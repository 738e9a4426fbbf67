"""Fabrics that a file describes by their sizes: the structure agrees with the whole testbed."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import SimulatedSwitches
from lightrig.harness.orchestration.wiring import TestbedWiring
from lightrig.harness.systems.railx import generator
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.planning.physical import RailxError
from lightrig.harness.systems.railx.runtime import structure
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.harness.systems.railx.runtime.structure import GridStructure
from lightrig.harness.vocabulary import InstalledNames
from lightrig.testbeds import Circuit, SizesOnlyError, TestbedError, load

SIZES = [
    (2, 1, 1, 1), (1, 2, 1, 2), (3, 2, 1, 2), (2, 3, 2, 1), (3, 3, 1, 2),
    (5, 1, 2, 2), (1, 4, 1, 3), (4, 3, 1, 3), (2, 5, 2, 2), (6, 2, 1, 5),
]  # fmt: skip
"""Columns, rows, m and n."""

NAMES = InstalledNames()
Change = Callable[[str], str]


def files(tmp_path: Path, sizes: tuple[int, int, int, int], change: Change = str) -> list[Path]:
    """Write a fabric by its sizes and whole, both with the same change."""
    written = []
    for by_sizes in (True, False):
        columns, rows, mesh, ports = sizes
        text = render(columns, rows, mesh=mesh, ports=ports, by_sizes=by_sizes)
        written.append(tmp_path / f"{'sizes' if by_sizes else 'whole'}.yaml")
        assert change is str or change(text) != text, "the change changes nothing"
        written[-1].write_text(change(text))
    return written


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_structure_is_that_of_the_whole_testbed(tmp_path: Path, sizes) -> None:
    by_sizes, whole = files(tmp_path, sizes)
    found, testbed = GridStructure(by_sizes, NAMES), load(whole, NAMES)
    wiring = TestbedWiring(testbed)
    assert found.switches == wiring.switches
    counts = {name: count for name, count, _ in found.parts()}
    assert counts == {
        "switches": len(testbed.switches),
        "servers": len(testbed.servers),
        "NIC ports": len(testbed.nic_ports),
        "fibers": len(testbed.fibers),
        "plans": len(testbed.plans),
        "limits": len(testbed.limits),
    }
    assert set(GridLayout(found).nodes) == set(testbed.servers)
    for name, plan in testbed.plans.items():
        assert sorted(found.links(plan)) == sorted(testbed.links(plan))
        links = f"{name} ({len(plan)} circuits, {len(testbed.links(plan))} links)"
        assert links in next(listed for what, _, listed in found.parts() if what == "plans")
    for switch, spec in testbed.switches.items():
        assert found.lights(switch) == wiring.lights(switch)
        assert found.loops(switch) == wiring.loops(switch)
        part = found.testbed_of(switch)
        assert (part.switches[switch].address, part.lab_folder) == (spec.address, None)
        assert part.cabling.cabled_ports(switch) == testbed.cabling.cabled_ports(switch)
        assert set(part.fibers) == {
            fiber for fiber in testbed.fibers if switch in (fiber.source.owner, fiber.sink.owner)
        }
        for server in part.servers.values():
            assert server.address == testbed.servers[server.name].address
            ports = [port.port for nic in server.nics.values() for port in nic.ports]
            assert all(
                testbed.nic_port(port).netdev == part.nic_port(port).netdev for port in ports
            )


FIELDS: dict[str, tuple[str, str]] = {
    "an unknown model": ("model: polatis", "model: polatos"),
    "an option that the model has not": ("rerouting: true", "rerooting: true"),
    "a switch with too few ports": ("size: 6x6", "size: 4x4"),
    "switches at one address": ("tl1://{name}.invalid", "tl1://ocs.invalid"),
    "servers at one address": ("ssh://bench@{name}.invalid", "ssh://bench@node.invalid"),
    "an unknown transceiver": ("transceiver: rail", "transceiver: rial"),
    "a least power above the greatest": ("min: -3.3 dBm", "min: 3.7 dBm"),
    "a rate without a unit": ("rate: 400G", "rate: 400 apples"),
    "ports with one network device": ("n}p{p}", "n}"),
    "a limit on an unknown quantity": ("insertion_loss:", "insertion_los:"),
    "a limit in a wrong unit": ("p90: 45 ms", "p90: 45 dB"),
    "a simulated time that is none": ("mean: 20 ms, sd: 0.5 ms", "mean: 20 miles, sd: 0.5 ms"),
    "an unknown key of a server": ("    nics:", "    nicks: 3\n    nics:"),
}


@pytest.mark.parametrize("fault", FIELDS)
def test_a_fault_in_a_field_is_rejected_by_both(tmp_path: Path, fault: str) -> None:
    old, new = FIELDS[fault]
    by_sizes, whole = files(tmp_path, (3, 3, 1, 2), lambda text: text.replace(old, new))
    with pytest.raises(TestbedError) as found:
        GridStructure(by_sizes, NAMES)
    with pytest.raises(TestbedError):
        load(whole, NAMES)
    # Each problem is located in the file of sizes, whose longest line has the switches.
    assert {problem.file for problem in found.value.problems} == {str(by_sizes)}
    lines = by_sizes.read_text().splitlines()
    assert all(problem.line <= len(lines) for problem in found.value.problems)
    part = next(number for number, line in enumerate(lines, 1) if new.splitlines()[0] in line)
    assert any(part - 5 <= problem.line <= part for problem in found.value.problems)


ROW = "node[0-2]-1.x1.p[0-1] <-> xocs1-1"
GENERATED: dict[str, tuple[str, str, list[str]]] = {
    "a switch without fibers": ("fibers", ROW, []),
    "a switch that is cabled twice": ("fibers", ROW, [ROW, ROW]),
    "a switch that there is not": ("fibers", ROW, [ROW.replace("ocs1", "ocs7")]),
    "the nodes of another row": ("fibers", ROW, [ROW.replace("]-1", "]-0")]),
    "a node that there is not": ("fibers", ROW, [ROW.replace("0-2", "0-3")]),
    "a switch of another rail": ("fibers", ROW, [ROW.replace("1.x1", "1.x0")]),
    "a plan that joins a port twice": ("plans", "[1-2,0]", ["[1-2,1]"]),
    "a plan with a node that there is not": ("plans", "[1-2,0]", ["[1-3]"]),
    "a plan across two rails": ("plans", ".y[0-1].p1", [".y[1,0].p1"]),
}


@pytest.mark.parametrize("fault", GENERATED)
def test_a_fault_of_the_generator_is_rejected_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    section, old, new = GENERATED[fault]
    made = getattr(generator, section)
    changed = 0

    def faulty(*stated: object) -> Iterator[str]:
        nonlocal changed
        for text in made(*stated):
            if old in text:
                changed += 1
                yield from (text.replace(old, each) for each in new)
            else:
                yield text

    monkeypatch.setattr(generator, section, faulty)
    monkeypatch.setattr(structure, section, faulty)
    by_sizes, whole = files(tmp_path, (3, 3, 1, 2))
    with pytest.raises(TestbedError):
        load(whole, NAMES)
    assert changed
    with pytest.raises(TestbedError):
        GridStructure(by_sizes, NAMES)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("columns: 3", "columns: 0", "found the number 0"),
        ("columns: 3", "columns: 2.5", "2.5"),
        ("columns: 3", "columns: 10000000", "10000000"),
        ("mesh: 1", "mash: 1", "the key 'mesh' is missing"),
        ("mesh: 1", "mesh: 6000", "found 72000 switches, expected at most 65536"),
        ("columns: 3, rows: 3", "columns: 1, rows: 1", "found one node"),
        ("ports: 2}", "ports: 2, context: 3}", "context and expert together"),
        ("  rail: {model", "  rails: {model", "one part 'rail'"),
        ("servers:", "plans: {mine: []}\nservers:", "expected no plans"),
        ("{name}", "{n}", "expected {name} in it"),
        ("ports: 2, netdev", "ports: 1, netdev", "one NIC 'rail' with `ports: 2`"),
        ("fabric: {columns: 3, rows: 3, mesh: 1, ports: 2}", "fabric:", "found nothing"),
    ],
)
def test_impossible_sizes_are_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "sizes.yaml"
    text = render(3, 3, mesh=1, ports=2, by_sizes=True)
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(TestbedError, match=message):
        GridStructure(file, NAMES)


def test_phases_are_plans_of_rows(tmp_path: Path) -> None:
    by_sizes, whole = tmp_path / "sizes.yaml", tmp_path / "whole.yaml"
    for file in (by_sizes, whole):
        file.write_text(render(9, 3, phases=(3, 3), by_sizes=file is by_sizes))
    testbed = load(whole)
    (listed,) = (each for what, _, each in GridStructure(by_sizes).parts() if what == "plans")
    assert listed == [
        f"{name} ({len(plan)} circuits, {len(testbed.links(plan))} links)"
        for name, plan in testbed.plans.items()
    ]
    with pytest.raises(RailxError, match="no namespaces"):
        render(5, 1, namespaces=True, by_sizes=True)


def test_other_readers_of_testbeds_refuse_sizes(tmp_path: Path) -> None:
    by_sizes, _ = files(tmp_path, (3, 3, 1, 2))
    with pytest.raises(SizesOnlyError, match=r"sizes.yaml:6:1: describes a fabric by its sizes"):
        load(by_sizes)


def test_jobs_are_placed_as_on_the_whole_testbed(tmp_path: Path) -> None:
    by_sizes, whole = files(tmp_path, (4, 3, 1, 3))
    seen = []
    for number, fabric in enumerate((GridStructure(by_sizes), load(whole))):
        switches = SimulatedSwitches(fabric)
        state = tmp_path / f"{number}.json"
        running = Orchestrator(fabric, GridLayout(fabric), switches, state)
        running.start()
        for columns, rows, job in ((2, 2, "a"), (2, 3, "b")):
            shape = {"columns": columns, "rows": rows}
            running.request({"do": "submit", "job": job, "shape": shape})
        running.request({"do": "failed", "nodes": ["node0-1"]})
        status = running.status()
        assert status["settled"]
        present = switches.probe(running.circuits())
        seen.append((dict(present), status["jobs"], running.links("a")))
    (found, jobs, links), (expected, expected_jobs, expected_links) = seen
    assert (found, jobs) == (expected, expected_jobs)
    for group, other in zip(links, expected_links, strict=True):
        for rank, same in zip(group["ranks"], other["ranks"], strict=True):
            assert (rank["node"], sorted(map(str, rank["links"]))) == (
                same["node"], sorted(map(str, same["links"])),
            )  # fmt: skip


def test_simulated_switches_refuse_what_no_switch_can_do(tmp_path: Path) -> None:
    _, whole = files(tmp_path, (3, 3, 1, 2))
    testbed = load(whole)
    switches = SimulatedSwitches(testbed)
    twice = switches.order({"xocs0-0": frozenset({Circuit(1, 8), Circuit(1, 10)})})
    assert "a port is in two circuits" in str(twice["xocs0-0"])
    strange = switches.order({"xocs0-0": frozenset({Circuit(7, 8)})})
    assert "no fiber leads to ingress port 7" in str(strange["xocs0-0"])
    assert not switches.probe(["xocs0-0"])["xocs0-0"].circuits


@pytest.mark.long
def test_a_hall_of_200704_chips_is_planned_anew_around_a_failed_node(tmp_path: Path) -> None:
    (tmp_path / "hall.yaml").write_text(render(64, 64, mesh=7, ports=9))
    program = f"""
import json, pathlib, resource
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.harness.systems.railx.runtime.structure import GridStructure
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import SimulatedSwitches
from lightrig.harness.vocabulary import InstalledNames
fabric = GridStructure({str(tmp_path / "hall.yaml")!r}, InstalledNames())
state = pathlib.Path({str(tmp_path / "s.json")!r})
running = Orchestrator(fabric, GridLayout(fabric), SimulatedSwitches(fabric), state)
running.start()
job = {{"do": "submit", "job": "all", "shape": {{"columns": 0, "rows": 0}}}}
sizes = [len(running.request(job)["jobs"]["all"]["groups"][0]["nodes"])]
status = running.request({{"do": "failed", "nodes": ["node17-40"]}})
sizes.append(len(status["jobs"]["all"]["groups"][0]["nodes"]))
assert status["settled"] and status["jobs"]["all"]["ready"]
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([sizes, most]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    sizes, most_kib = json.loads(done.stdout)
    assert sizes == [4096, 4032]  # without one row or one column
    assert most_kib < 2 << 20
