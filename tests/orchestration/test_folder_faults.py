"""A service whose folder is full, read-only or out of descriptors goes on, and says so."""

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from lightrig.harness.systems.railx.generator import render

ALL = {"do": "submit", "job": "all", "shape": {"columns": 0, "rows": 0}}
HINDERED = "no switch is changed until that is mended"

needs_mounts = pytest.mark.skipif(os.geteuid() != 0, reason="makes a namespace of mounts")


@contextlib.contextmanager
def service(folder: Path, *before: str) -> Iterator[tuple[int, httpx.Client, Path]]:
    """Run a service with its state in `folder`; yield its process, a client and its errors."""
    (folder.parent / "grid.yaml").write_text(render(3, 1, mesh=1, ports=2))
    program = str(Path(sys.executable).with_name("lightrig"))
    command = [*before, program, "orchestrate", "railx", str(folder.parent / "grid.yaml")]
    command += ["--state", str(folder / "s.json"), "--port", "0", "--json", "--period", "0.1"]
    command += ["--instruments", "simulated"]
    errors = folder.parent / "errors"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout is not None
        place = json.loads(process.stdout.readline())
        inside = Path(f"/proc/{process.pid}/root")  # its own mounts
        token = inside.joinpath(*Path(place["token"]).parts[1:]).read_text().strip()
        with httpx.Client(
            base_url=f"http://{place['address']}",
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=30,
        ) as client:
            try:
                yield process.pid, client, errors
            finally:
                process.terminate()
        assert process.wait(60) == 0


def until(condition: Callable[[], bool], client: httpx.Client) -> None:
    """Wait for a condition while the service answers that it goes on."""
    while not condition():
        assert client.get("/healthz").json() == {"alive": True}


def mounted(process: int, *command: str) -> None:
    enter = ["nsenter", "--target", str(process), "--mount"]
    subprocess.run([*enter, *command], check=True)


@pytest.mark.long
@needs_mounts
@pytest.mark.parametrize("fault", ["read-only", "full"])
def test_a_service_goes_on_when_its_folder_takes_nothing(tmp_path: Path, fault: str) -> None:
    """Beyond the term of its lead it changes no switch; then it leads again, with a new number."""
    folder = tmp_path / "state"
    folder.mkdir(0o700)
    mount = f'mount -t tmpfs -o size=256k,mode=700 none {folder}; exec "$@"'
    unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, "sh"]
    with service(folder, *unshare) as (process, client, errors):
        lead = client.get("/v1/status").json()["lead"]
        if fault == "read-only":
            mounted(process, "mount", "-o", "remount,ro", str(folder))
        else:
            fill = f"cat /dev/zero > {folder}/filling 2> /dev/null || true"
            mounted(process, "sh", "-c", fill)
        refused = client.post("/v1/requests", json=ALL)
        assert (refused.status_code, refused.headers["Retry-After"]) == (507, "1")
        assert "make room or give this account access" in refused.json()["detail"]
        if fault == "read-only":  # where no byte is free, the record of the lead is still renewed
            until(lambda: HINDERED in errors.read_text(), client)
        status = client.get("/v1/status").json()
        assert (status["jobs"], status["epoch"]) == ({}, 0)
        if fault == "read-only":
            mounted(process, "mount", "-o", "remount,rw", str(folder))
        else:
            mounted(process, "rm", f"{folder}/filling")
        until(lambda: client.post("/v1/requests", json=ALL).status_code == 200, client)
        assert client.get("/v1/status").json()["lead"] == lead + (fault == "read-only")
        assert errors.read_text().count(HINDERED) == (fault == "read-only")


@pytest.mark.long
def test_a_service_without_descriptors_for_its_lead_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(0o700)
    with service(folder) as (process, client, errors):
        lead = client.get("/v1/status").json()["lead"]
        used = len(os.listdir(f"/proc/{process}/fd"))
        soft, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
        resource.prlimit(process, resource.RLIMIT_NOFILE, (used, hard))
        until(lambda: HINDERED in errors.read_text(), client)
        refused = client.post("/v1/requests", json=ALL)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        resource.prlimit(process, resource.RLIMIT_NOFILE, (soft, hard))
        until(lambda: client.post("/v1/requests", json=ALL).status_code == 200, client)
        assert client.get("/v1/status").json()["lead"] > lead
