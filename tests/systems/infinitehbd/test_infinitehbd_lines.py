"""Lines, rings and binary exchange: the wiring that a file has, and jobs on a line over wires."""

from pathlib import Path

import pytest

from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import SwitchSessions
from lightrig.harness.systems.infinitehbd.generator import render
from lightrig.harness.systems.infinitehbd.planning.wiring import (
    InfiniteHbdError,
    k_hop,
    powers_of_two,
)
from lightrig.harness.systems.infinitehbd.runtime.layout import RowLayout, wiring_of
from lightrig.testbeds import Testbed, TestbedError, load
from tests.campaigns import orchestrations
from tests.campaigns.switchroom import Switchroom, joined


def loaded(folder: Path, text: str) -> Testbed:
    (folder / "row.yaml").write_text(text)
    return load(folder / "row.yaml")


@pytest.mark.parametrize(("nodes", "hops"), [(5, 2), (9, 3), (14, 3), (17, 4)])
@pytest.mark.parametrize("line", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_the_wiring_is_read_from_the_fibers(
    tmp_path: Path, nodes: int, hops: int, line: bool, binary: bool
) -> None:
    make = powers_of_two if binary else k_hop
    expected = make(nodes, hops, closed=not line)
    text = render(nodes, hops=hops, line=line, binary=binary, group=2)
    found = wiring_of(loaded(tmp_path, text))
    assert {*map(tuple, found.links().tolist())} == {*map(tuple, expected.links().tolist())}
    assert found.closed == expected.closed


@pytest.mark.parametrize("binary", [False, True])
def test_a_line_that_its_longest_link_exceeds_is_refused(binary: bool) -> None:
    with pytest.raises(InfiniteHbdError, match="found 3 nodes, expected at least"):
        render(3, hops=3, line=True, binary=binary)


def test_fibers_over_other_nodes_are_refused(tmp_path: Path) -> None:
    text = render(9, hops=2).replace("node[0-7].trx1.p0", "node[1-8].trx1.p0")
    moved = [line for line in text.splitlines() if "-> node[2-8].trx1" not in line]
    testbed = loaded(tmp_path, "\n".join(moved))
    with pytest.raises(InfiniteHbdError, match="expected those of 2 bundles on a ring or a line"):
        wiring_of(testbed)


def test_jobs_on_binary_exchange_are_refused_by_name(tmp_path: Path) -> None:
    testbed = loaded(tmp_path, render(9, hops=3, binary=True))
    with pytest.raises(InfiniteHbdError, match=r"wired for binary exchange, over .*Appendix G"):
        RowLayout(testbed)


def test_a_fat_tree_that_servers_do_not_fill_is_a_problem_of_the_file(tmp_path: Path) -> None:
    text = render(12, fat_tree=(2, 4)).replace("per_domain: 4", "per_domain: 5")
    with pytest.raises(TestbedError, match="found 2 servers a ToR and 5 a domain, of 12 in all"):
        loaded(tmp_path, text)
    assert loaded(tmp_path, render(12, fat_tree=(2, 4))).fat_tree.per_tor == 2


def test_a_line_holds_no_group_over_its_ends(tmp_path: Path) -> None:
    """Seven nodes, the one in the middle failed: two groups of three, and none of five."""
    testbed = loaded(tmp_path, render(7, hops=2, line=True))
    room = Switchroom(testbed)
    running = Orchestrator(testbed, RowLayout(testbed), room, tmp_path / "s.json")
    running.start()
    running.request({"do": "failed", "nodes": ["node0", "node6"]})
    job = {"do": "submit", "job": "a", "shape": {"size": 2, "groups": 3}}
    status = running.request(job)
    assert status["jobs"]["a"]["missing"] == 1  # node5 and node1 have no link
    assert joined(testbed, room.circuits)["node1"] == {"node2"}


def test_pairs_of_gpus_that_no_link_needs_are_joined_by_cables(tmp_path: Path) -> None:
    """Of four bundles two lead outside; a ring of all GPUs of a node needs the others closed."""
    testbed = loaded(tmp_path, render(8, hops=2, gpus=4, dac=True))
    cables = {
        (fiber.source, fiber.sink)
        for fiber in testbed.fibers
        if fiber.source.owner == fiber.sink.owner
    }
    pairs = {(str(a), str(b)) for a, b in cables if a.owner == "node3"}
    ends = {
        ("node3.dac2.p0", "node3.dac2.p1"),
        ("node3.dac3.p0", "node3.dac3.p1"),
    }
    assert pairs == ends | {(b, a) for a, b in ends}
    assert len(cables) == 8 * 4
    assert RowLayout(testbed).wiring == k_hop(8, 2, closed=True)
    with pytest.raises(InfiniteHbdError, match="found 4 bundles for 4 GPUs"):
        render(12, hops=4, gpus=4, dac=True)


@pytest.mark.long
def test_a_line_of_14_nodes_works_over_wires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules start on their first path, which at the line's end leads nowhere."""
    for name in ("LIGHTRIG_STATE", "LIGHTRIG_SERVED"):
        monkeypatch.setenv(name, "")
    text = render(14, hops=3, line=True)
    with orchestrations.served(tmp_path, text) as (_, file):
        testbed = load(file)
        sessions = SwitchSessions(testbed)
        running = Orchestrator(testbed, RowLayout(testbed), sessions, tmp_path / "s.json")
        running.start()
        running.request({"do": "submit", "job": "a", "shape": {"size": 7, "groups": 2}})
        for _ in range(orchestrations.STEPS):
            running.step()
            status = running.status()
            if status["settled"] and status["jobs"]["a"]["ready"]:
                break
        running.close()
    assert (status["faulty"], status["jobs"]["a"]["missing"]) == ({}, 0)
    assert status["jobs"]["a"]["ready"]
