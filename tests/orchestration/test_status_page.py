"""The page of a fabric that `lightrig orchestrate --page` keeps: what waits and why, and links."""

import html
import re
from collections.abc import Collection
from pathlib import Path

import pytest
from real_time import until

from lightrig.harness.orchestration.health import MISSES
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.status_page import PageWriter, status_page
from lightrig.harness.orchestration.switch_sessions import Outcomes, Reading
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom


def grid(folder: Path) -> tuple[Orchestrator, Switchroom]:
    (folder / "grid.yaml").write_text(render(4, 2))
    room = Switchroom(load(folder / "grid.yaml"))
    service = Orchestrator(room.testbed, GridLayout(room.testbed), room, folder / "s.json")
    service.start()
    return service, room


class Elsewhere(Switchroom):
    """Switches of which one sees light beside the port where the file has its fiber."""

    port = ("xocs0-0", 1)
    works = False

    def probe(self, names: Collection[str]) -> Outcomes:
        found = {**super().probe(names)}
        switch, port = self.port
        reading = found[switch]
        if not self.works and isinstance(reading, Reading):
            assert port in reading.lit
            lit, dark = reading.lit - {port} | {999}, reading.dark | {port}
            found[switch] = Reading(reading.circuits, lit, dark)
        return found


def submit(service: Orchestrator, job: str, columns: int, rows: int) -> None:
    shape = {"columns": columns, "rows": rows}
    service.request({"do": "submit", "job": job, "shape": shape})


def rows(page: str, *, having: str) -> list[str]:
    """Return the rows of tables that have a text, each as the text of its cells."""
    found = [re.sub("<[^>]*>", " ", row) for row in re.findall(r"<tr>(.*?)</tr>", page)]
    cells = [" ".join(html.unescape(row).split()) for row in found]
    return [row for row in cells if having in row]


def test_the_page_has_jobs_nodes_switches_links_and_what_waits(tmp_path: Path) -> None:
    service, room = grid(tmp_path)
    submit(service, "pair", 2, 1)
    submit(service, "wide", 4, 2)
    service.request({"do": "drain", "nodes": ["node3-1"]})
    service.request({"do": "failed", "nodes": ["node2-1"]})
    room.silent = {"xocs0-0"}
    for _ in range(MISSES):
        service.step()
    page = status_page(service, "grid.yaml")
    assert rows(page, having="wide")[0].startswith("wide waits 0 1 1 ")
    assert "nodes-missing : " in rows(page, having="wide")[0]
    (pair,) = [row for row in rows(page, having="pair") if row.startswith("pair ready")]
    assert pair.endswith("xocs0-0")
    assert rows(page, having="node3-1 drained")
    assert rows(page, having="node2-1 failed reported")
    assert rows(page, having="node0-0 in a job pair 0 0")
    assert rows(page, having="xocs0-0 silent xocs0-0 did not answer")
    links = rows(page, having="pair 0 node0-0.")
    listed = {
        frozenset((f"node0-0.{link['port']}", link["to"]))
        for link in service.links("pair")[0]["ranks"][0]["links"]
    }
    assert {frozenset(row.split()[2:]) for row in links} == listed
    assert 'http-equiv="refresh"' in page


def test_a_page_is_written_anew_when_the_status_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightrig.harness.orchestration.status_page.LOOK_AGAIN_S", 0.02)
    service, _ = grid(tmp_path)
    file = tmp_path / "page.html"
    writer = PageWriter(service, "grid.yaml", file)
    assert "No job is wanted" in file.read_text()
    submit(service, "pair", 2, 1)
    until(lambda: rows(file.read_text(), having="pair ready"), SystemClock(), 10_000_000)
    assert rows(file.read_text(), having="pair ready")
    writer.close()
    assert "The service has ended." in file.read_text()
    assert [each.name for each in tmp_path.iterdir() if each.name.endswith(".tmp")] == []


def test_light_that_contradicts_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(render(4, 2))
    room = Elsewhere(load(tmp_path / "grid.yaml"), "ingress")
    service = Orchestrator(room.testbed, GridLayout(room.testbed), room, tmp_path / "s.json")
    service.start()
    submit(service, "wide", 4, 2)
    for _ in range(MISSES):
        service.step()
    switch, port = room.port
    (node,) = [
        fiber.source.owner
        for fiber in room.testbed.fibers
        if (fiber.sink.owner, fiber.sink.name) == (switch, str(port))
    ]
    status = service.status()
    assert status["faulty"] == {}  # its other ports have light, and the job goes on
    assert status["jobs"]["wide"]["ready"]
    assert list(status["dark_ports"]) == [node]
    assert f"no light at {switch} port {port}, and light at others" in status["dark_ports"][node]
    (row,) = rows(status_page(service, "grid.yaml"), having=f"{node} in a job")
    assert f"no light at {switch} port {port}" in row
    room.works = True
    service.step()
    assert service.status()["dark_ports"] == {}
    room.unlit = {node}  # without any light it has failed
    for _ in range(MISSES):
        service.step()
    assert service.status()["dark_ports"] == {}
    assert node in service.status()["faulty"]
