"""The file of what is wanted: other versions, cut and changed files, each named and none used."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom

Start = Callable[[], Orchestrator]


def signed(document: Mapping[str, Any]) -> str:
    """Return a file with the digest of its content, as docs/how-to/orchestrate.md has it."""
    content = {name: value for name, value in document.items() if name != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return json.dumps({**content, "sha256": hashlib.sha256(text.encode()).hexdigest()})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "s.json"


@pytest.fixture
def start(tmp_path: Path, file: Path) -> Start:
    (tmp_path / "grid.yaml").write_text(render(4, 2))
    room = Switchroom(load(tmp_path / "grid.yaml"))

    def started() -> Orchestrator:
        service = Orchestrator(room.testbed, GridLayout(room.testbed), room, file)
        service.start()
        return service

    return started


@pytest.fixture
def document(start: Start, file: Path) -> dict[str, Any]:
    service = start()
    shape = {"columns": 2, "rows": 1}
    service.request({"do": "submit", "job": "a", "shape": shape})
    service.request({"do": "drain", "nodes": ["node3-1"]})
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_a_file_has_the_digest_of_its_content(document: dict[str, Any]) -> None:
    assert document["format"] == 2
    assert json.loads(signed(document)) == document


def test_a_file_of_the_first_form_is_read(
    start: Start, file: Path, document: dict[str, Any]
) -> None:
    """It had no digest, and its jobs neither `within` nor `moved`."""
    older = {**document, "format": 1}
    del older["sha256"]
    for job in older["jobs"]:
        del job["within"], job["moved"]
    file.write_text(json.dumps(older))
    status = start().status()
    assert status["jobs"]["a"]["groups"][0]["nodes"] == ["node0-0", "node1-0"]
    assert status["drained"] == ["node3-1"]
    start().request({"do": "repaired", "nodes": ["node3-1"]})
    assert json.loads(file.read_text())["format"] == 2


@pytest.mark.parametrize("each", [0, 3, None, "2", True, 2.5])
def test_a_file_of_another_form_is_named(
    start: Start, file: Path, document: dict[str, Any], each: object
) -> None:
    file.write_text(signed({**document, "format": each}))
    with pytest.raises(OrchestrationError, match=r"s\.json is no state .*its format is"):
        start()


def test_a_file_that_is_cut_anywhere_is_refused(
    start: Start, file: Path, document: dict[str, Any]
) -> None:
    text = file.read_text()
    for length in range(0, len(text) - 1, 37):
        file.write_text(text[:length])
        with pytest.raises(OrchestrationError, match="it is cut or damaged"):
            start()


def test_a_changed_character_is_found(start: Start, file: Path, document: dict[str, Any]) -> None:
    text = file.read_text()
    at = text.index("node0-0", text.index('"jobs"'))
    file.write_text(text[:at] + "node2-0" + text[at + 7 :])
    with pytest.raises(OrchestrationError, match="its digest is that of another content"):
        start()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"epoch": 1.5}, "epoch: "),
        ({"epoch": True}, "epoch: "),
        ({"drained": "node3-1"}, "drained: "),
        ({"jobs": None}, "jobs: "),
        ({"further": 1}, "further: Extra"),
        ({"history": [{"epoch": 1}]}, r"history\.0\.time: "),
        ({"nodes": []}, "it is that of other nodes"),
    ],
)
def test_what_the_form_does_not_have_is_named(
    start: Start, file: Path, document: dict[str, Any], change: dict[str, Any], why: str
) -> None:
    file.write_text(signed({**document, **change}))
    with pytest.raises(OrchestrationError, match=why):
        start()


def test_a_key_twice_is_named(start: Start, file: Path, document: dict[str, Any]) -> None:
    text = file.read_text()
    file.write_text(text.replace('"drained":', '"drained": [], "drained":', 1))
    with pytest.raises(OrchestrationError, match="the key 'drained' twice"):
        start()
