"""The scheduler of the examples on served switches: reasons, a dead switch, a line of 14 nodes."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.scheduler import Scheduler
from lightrig.harness.systems.infinitehbd.generator import render as render_row
from lightrig.harness.systems.railx.generator import render as render_grid
from lightrig.testbeds import Testbed, load
from tests.campaigns import sequences
from tests.campaigns.switchroom import joined
from tests.campaigns.wire_sequences import LOGIN, Process, ServedRoom, served

PROGRAM = Path(__file__).parents[2] / "examples" / "scheduler.py"
SHAPES = [{"columns": c, "rows": r} for c, r in ((2, 1), (3, 1), (1, 2), (2, 2), (3, 2), (9, 1))]
"""The last is wider than the grid."""


class Grid(sequences.Grid):
    """RailX: four columns, two rows."""

    def testbed(self, root: Path) -> Testbed:
        (root / "grid.yaml").write_text(render_grid(4, 2, mesh=3, ports=1))
        return load(root / "grid.yaml")


class Line(sequences.Row):
    """InfiniteHBD: a line of 14 nodes with links over three."""

    def testbed(self, root: Path) -> Testbed:
        (root / "line.yaml").write_text(render_row(14, hops=3, line=True))
        return load(root / "line.yaml")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("LIGHTRIG_STATE", LOGIN):
        monkeypatch.setenv(name, "")  # restored afterwards
    return tmp_path


@pytest.fixture
def grid(folders: Path) -> Iterator[tuple[ServedRoom, Process, Path]]:
    with served(Grid(), folders) as (room, file):
        service = Process("railx", file, folders, period_s=1.0)
        yield room, service, folders / "api.socket"
        service.close()


def client(socket: Path) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(socket), verify=False)
    return httpx.Client(base_url="http://lightrig", transport=transport, timeout=120)


def lost_switch_noted_s(room: ServedRoom, api: httpx.Client) -> float:
    """Let a switch of a running job hang; return the s until the job's epoch is greater."""
    submit = {"do": "submit", "job": "big", "shape": {"columns": 4, "rows": 1}}
    api.post("/v1/requests", json=submit).raise_for_status()
    job = api.get("/v1/jobs/big", params={"wait": 60}).json()
    assert job["ready"]
    rail = job["groups"][0]["details"]["x"]["rails"][0]
    switch = f"xocs{job['groups'][0]['details']['rows'][0]}-{rail}"
    assert any(
        link["port"].startswith(f"x{rail}.") for link in job["rings"][0]["ranks"][0]["links"]
    )
    room.silent = {switch}
    room.fail()
    began = time.monotonic()
    again = api.get("/v1/jobs/big", params={"after": job["epoch"], "wait": 60}).json()
    took = time.monotonic() - began
    assert again["epoch"] > job["epoch"]
    assert again["without"] == [switch]
    links = [link for rank in again["rings"][0]["ranks"] for link in rank["links"]]
    assert links
    assert not any(link["port"].startswith(f"x{rail}.") for link in links)
    return took


def test_jobs_run_or_are_refused_and_those_that_wait_have_reasons(
    grid: tuple[ServedRoom, Process, Path],
) -> None:
    room, service, socket = grid
    with client(socket) as api:
        counts = Scheduler(api, SHAPES, 1, 8).run(16, 0.2)
        assert counts["ran"] + counts["refused"] == 16
        assert counts["refused"] > 0
        assert sum(number for name, number in counts.items() if name.startswith("reason")) > 0
        assert api.get("/v1/jobs").json()["jobs"] == {}
        assert not any(room.circuits.values())
        lost_switch_noted_s(room, api)
    assert service.is_alive


@pytest.mark.long
def test_200_jobs_run_on_served_switches(grid: tuple[ServedRoom, Process, Path]) -> None:
    room, _, socket = grid
    words = [sys.executable, str(PROGRAM), json.dumps(SHAPES), "--socket", str(socket)]
    hangs = threading.Timer(5, lambda: (room.silent.add("xocs0-0"), room.fail()))
    hangs.start()
    try:
        done = subprocess.run(
            [*words, "--jobs", "200", "--seconds", "0.3"],
            check=False,
            capture_output=True,
            text=True,
            timeout=900,
        )
    finally:
        hangs.cancel()
    assert done.returncode == 0, done.stderr
    counts: dict[str, Any] = json.loads(done.stdout)
    print(counts)
    assert counts["ran"] + counts["refused"] == 200
    assert counts["refused"] > 0
    reasons = {name for name in counts if name.startswith("reason")}
    assert {"reason nodes-missing", "reason priority"} <= reasons


@pytest.mark.long
def test_a_line_places_its_groups_over_wires(folders: Path) -> None:
    """Three groups of four; light joins neighbours of a group, and no other nodes."""
    with served(Line(), folders) as (room, file):
        service = Process("infinitehbd", file, folders)
        try:
            with client(folders / "api.socket") as api:
                closed = {"do": "submit", "job": "all", "shape": {"size": 0}}
                assert api.post("/v1/requests", json=closed).status_code == 422  # no ring
                submit = {"do": "submit", "job": "a", "shape": {"size": 4, "groups": 3}}
                assert api.post("/v1/requests", json=submit).status_code == 200
                job = api.get("/v1/jobs/a", params={"wait": 60}).json()
                assert job["ready"]
                status = api.get("/v1/status").json()
                assert (status["faulty"], job["missing"]) == ({}, 0)
                light = joined(room.testbed, room.circuits)
                for group in job["groups"]:
                    places = [int(node.removeprefix("node")) for node in group["nodes"]]
                    assert all(0 < b - a <= 3 for a, b in pairwise(places))
                    for a, b in pairwise(group["nodes"]):
                        assert b in light[a]
                    assert all(light[node] <= {*group["nodes"]} for node in group["nodes"])
        finally:
            service.close()
