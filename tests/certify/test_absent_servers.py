"""A served switch whose servers are off: clauses that use none are tried all the same."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import preloaded
import pytest
from certify_labs import traffic_lab
from switch_defects import limit_profile
from typer.testing import CliRunner
from unused_ports import unused_ports

from lightrig.harness.bench.binding import LabUnavailableError, bind
from lightrig.harness.certify.sheet import Sheet
from lightrig.harness.cli.app import application
from lightrig.testbeds import load

ALONE = """
name: traffic
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x6, options: {rerouting: true}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The lab with a served switch, whose servers refuse connections."""
    source, target = tmp_path / "alone.yaml", tmp_path / "served.yaml"
    source.write_text(ALONE)
    port, closed = unused_ports(6)[0], unused_ports(1)[0]
    command = ["lightrig", "serve", source, "--port", port, "--write", target, "--json"]
    pipe = subprocess.PIPE
    with preloaded.Process(command, stdout=pipe, stderr=pipe) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said, process.communicate()[1]
            (ocs,) = json.loads(said)
            monkeypatch.setenv("LIGHTRIG_SERVED", f"{ocs['user']}:{ocs['password']}")
            text = traffic_lab().replace("bench@{name}.invalid", f"{{name}}@127.0.0.1:{closed}")
            switch = load(target).switches["ocs"]
            text = text.replace(
                '"tl1://ocs.invalid"', f'"{switch.address}", login: "{switch.login}"'
            )
            lab = tmp_path / "lab.yaml"
            lab.write_text(text)
            yield lab
        finally:
            process.kill()


def test_clauses_without_servers_are_tried(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LabUnavailableError):
        bind(load(file), "hardware")
    limit_profile(monkeypatch, ("1.1", "1.2", "6.1"))
    options = ("--instruments", "hardware", "--yes", "--out", str(file.parent))
    done = CliRunner().invoke(application("certify"), ["certify", str(file), "ocs", *options])
    assert done.exit_code == 1, done.output
    assert "without server0 at ssh://server0@127.0.0.1" in done.stderr
    sheet = Sheet.model_validate_json((file.parent / "ocs.json").read_text())
    found = {each.requirement.number: each for each in sheet.clauses}
    assert [found[n].verdict for n in ("1.1", "1.2", "6.1")] == ["pass", "pass", "not tested"]
    assert "is needed here, and did not answer" in found["6.1"].reason
    assert {each.name for each in sheet.instruments} == {"ocs"}
