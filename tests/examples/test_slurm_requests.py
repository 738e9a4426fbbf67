"""The requests of the example for Slurm to a service, with commands of Slurm stood in for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.slurm import ring_of_job
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom

PAIR = {"columns": 2, "rows": 1}


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orchestrator]:
    from lightrig.harness.orchestration.http_api import HttpServer, unix_socket

    (tmp_path / "grid.yaml").write_text(render(4, 2))
    testbed = load(tmp_path / "grid.yaml")
    running = Orchestrator(testbed, GridLayout(testbed), Switchroom(testbed), tmp_path / "s.json")
    running.start()
    server = HttpServer(running, unix_socket(tmp_path / "api"), None)
    monkeypatch.setattr(ring_of_job, "SOCKET", str(tmp_path / "api"))
    yield running
    server.close()


def test_a_job_has_its_ring_or_the_reason(
    service: Orchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str, ...]] = []

    def command(*words: str) -> str:
        commands.append(words)
        return "7\n8\n" if words[0] == "squeue" else ""

    monkeypatch.setattr(ring_of_job, "command", command)
    start = ring_of_job.start
    assert start("slurm-7", PAIR, ["node1-0", "node3-0"]) == "node1-0,node3-0"
    with pytest.raises(ring_of_job.RefusedError, match="job slurm-8 is impossible: no 2 x 1 nodes"):
        start("slurm-8", PAIR, ["node0-0", "node1-1"])
    service.request({"do": "failed", "nodes": ["node0-0"]})
    with pytest.raises(ring_of_job.RefusedError, match=r"failed: node0-0 \(reported\)"):
        start("slurm-8", PAIR, ["node0-0", "node0-1", "node2-0"])
    drained = ("State=DRAIN", "Reason=lightrig: reported")
    assert ("scontrol", "update", "NodeName=node0-0", *drained) in commands
    assert set(service.status()["jobs"]) == {"slurm-7", "slurm-8"}
    # A job that Slurm no longer has is withdrawn before the next.
    monkeypatch.setattr(ring_of_job, "command", lambda *words: "8\n")
    ring_of_job.sweep("slurm-9")
    assert set(service.status()["jobs"]) == {"slurm-8"}
    assert ring_of_job.epilog("slurm-8") == ring_of_job.epilog("slurm-8") == 0
    assert service.status()["jobs"] == {}
