"""All phases of schemathesis, where it is installed, against the API of a grid."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from lightrig.harness.orchestration import http_api
from lightrig.harness.orchestration.http_api import HttpServer, read_token
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom

SETTINGS = """
# A job that the fabric cannot hold is of a valid form, and is answered 422.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 404, 409, 422]
"""
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "20")
LIMIT_S = 900


@pytest.mark.long
def test_schemathesis_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = os.environ.get("SCHEMATHESIS") or shutil.which("schemathesis")
    if program is None:
        pytest.skip("schemathesis is not installed")
    monkeypatch.setattr(http_api, "LONGEST_WAIT_S", 0.05)
    (tmp_path / "grid.yaml").write_text(render(4, 3))
    testbed = load(tmp_path / "grid.yaml")
    service = Orchestrator(
        testbed, GridLayout(testbed), Switchroom(testbed, "ingress"), tmp_path / "s.json"
    )
    service.start()
    listening = socket.create_server(("127.0.0.1", 0))
    token = read_token(tmp_path / "s.token", make=True)
    server = HttpServer(service, listening, token)
    (tmp_path / "schemathesis.toml").write_text(SETTINGS)
    try:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/openapi.json"
        words = ("run", url, "-H", f"Authorization: Bearer {token}", "-n", EXAMPLES, "--seed", "1")
        done = subprocess.run(
            [program, *words, "--continue-on-failure"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    finally:
        server.close()
    assert done.returncode == 0, done.stdout
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅  {phase} (in" in done.stdout
