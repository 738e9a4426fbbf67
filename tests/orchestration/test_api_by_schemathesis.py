"""All phases of schemathesis, where it is installed, against the API of a grid and of rails."""

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.orchestration.layout import Layout
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.opus.generator import render as render_rails
from lightrig.harness.systems.opus.runtime.job_controllers import JobControllers
from lightrig.harness.systems.opus.runtime.rail_layout import RailLayout
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom

SETTINGS = """
# A job that the fabric cannot hold is of a valid form, and is answered 422.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 403, 404, 409, 422]
"""
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "20")
LIMIT_S = 900


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "layout_of"),
    [(render(4, 3), GridLayout), (render_rails(2, 3, 2), RailLayout)],
    ids=["grid", "rails"],
)
def test_schemathesis_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, layout_of: type[Layout]
) -> None:
    from lightrig.harness.orchestration import http_api
    from lightrig.harness.orchestration.http_api import HttpServer, new_token

    program = os.environ.get("SCHEMATHESIS") or shutil.which("schemathesis")
    if program is None:
        pytest.skip("schemathesis is not installed")
    monkeypatch.setattr(http_api, "LONGEST_WAIT_S", 0.05)
    (tmp_path / "lab.yaml").write_text(text)
    testbed = load(tmp_path / "lab.yaml")
    layout: Any = layout_of(testbed)  # type: ignore[call-arg]
    service = Orchestrator(testbed, layout, Switchroom(testbed, "ingress"), tmp_path / "s.json")
    service.start()
    ranks = JobControllers(service, tmp_path / "r.json") if layout_of is RailLayout else None
    if ranks is not None:
        ranks.start()
    listening = socket.create_server(("127.0.0.1", 0))
    token = new_token(tmp_path / "s.token")
    server = HttpServer(service, listening, token, ranks=ranks)
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
        if ranks is not None:
            ranks.close()
    assert done.returncode == 0, done.stdout
    for phase in ("Examples", "Coverage", "Fuzzing", "Stateful"):
        assert f"✅  {phase} (in" in done.stdout
