"""Leases by a labgrid coordinator: a real one, started by the test."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import labgrid_lease
from lightrig.harness.bench.binding import open_lease
from lightrig.harness.bench.labgrid_lease import CoordinatorError, LabgridPlace
from lightrig.harness.bench.lease import (
    Lease,
    LeaseConflictError,
    LeaseLostError,
    MachineLocks,
)
from lightrig.testbeds import CoordinatorSpec, TestbedError, load

pytest.importorskip("labgrid", reason="the extra labgrid is not installed")

SERVE = (
    "import sys; from labgrid.remote.coordinator import main; "
    "sys.argv[1:] = ['--listen', '127.0.0.1:0']; main()"
)

KILLED = """
import os, signal, sys
from pathlib import Path
from lightrig.harness.bench.labgrid_lease import LabgridPlace
from lightrig.harness.bench.lease import Lease, MachineLocks
from lightrig.testbeds import CoordinatorSpec

machine = MachineLocks(Path(sys.argv[2]))
place = LabgridPlace(CoordinatorSpec(sys.argv[1], "rack-7"), machine)
Lease([machine, place], "killed").take("ocs", ["address 1"])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a coordinator with the place rack-7."""
    folder = tmp_path_factory.mktemp("coordinator")
    (folder / "places.yaml").write_text("rack-7: {matches: []}\n")
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", SERVE],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    found = None
    for line in process.stdout:
        if found := re.search(r"listening on 127\.0\.0\.1:(\d+)", line):
            break
    assert found is not None
    yield f"127.0.0.1:{found[1]}"
    process.kill()
    process.communicate()


def lease(folder: Path, address: str, place: str = "rack-7", **options: int) -> Lease:
    machine = MachineLocks(folder)
    spec = CoordinatorSpec(address, place)
    return Lease([machine, LabgridPlace(spec, machine, **options)], "a test")


def kick(address: str, place: str) -> None:
    """Release a place that another has acquired, as `labgrid-client release -k` does."""
    import grpc
    from labgrid.remote.generated import labgrid_coordinator_pb2 as messages
    from labgrid.remote.generated.labgrid_coordinator_pb2_grpc import CoordinatorStub

    with grpc.insecure_channel(address) as channel:
        CoordinatorStub(channel).ReleasePlace(messages.ReleasePlaceRequest(placename=place))


def test_a_place_is_acquired_once(coordinator: str, tmp_path: Path) -> None:
    """By two machines; it is free again when the last instrument is."""
    first, second = lease(tmp_path / "1", coordinator), lease(tmp_path / "2", coordinator)
    first.take("ocs", ["address 1"])
    first.take("laser", ["address 2"])
    first.check()
    hostname = socket.gethostname()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(labgrid_lease.socket, "gethostname", lambda: "elsewhere")
        with pytest.raises(LeaseConflictError) as raised:
            second.take("ocs", ["address 1"])
        assert f"ocs is in use by {hostname}/" in str(raised.value)
        assert "by the place rack-7 of labgrid" in str(raised.value)
        first.give_back(["address 2"])
        with pytest.raises(LeaseConflictError):
            second.take("ocs", ["address 1"])
        first.release()
        second.take("ocs", ["address 1"])
    second.release()


def test_a_place_of_a_killed_run_is_taken_over(coordinator: str, tmp_path: Path) -> None:
    # Not forked: gRPC does not work in the children of a process that uses it.
    killed = subprocess.run([sys.executable, "-c", KILLED, coordinator, tmp_path], check=False)
    assert killed.returncode == -signal.SIGKILL
    following = lease(tmp_path, coordinator)
    following.take("ocs", ["address 1"])
    following.check()
    following.release()


def test_a_released_place_is_a_lost_lease(coordinator: str, tmp_path: Path) -> None:
    held = lease(tmp_path, coordinator, check_interval=0)
    held.take("ocs", ["address 1"])
    held.check()
    kick(coordinator, "rack-7")
    with pytest.raises(LeaseLostError, match="is now acquired by no one"):
        held.check()
    held.release()


def test_a_missing_place_and_coordinator_are_named(coordinator: str, tmp_path: Path) -> None:
    with pytest.raises(CoordinatorError, match="has no such place, it has rack-7"):
        lease(tmp_path, coordinator, "rack-8").take("ocs", ["address 1"])
    with pytest.raises(CoordinatorError, match="place rack-7 of the labgrid coordinator"):
        lease(tmp_path, "127.0.0.1:1").take("ocs", ["address 1"])


def test_a_testbed_names_its_place(
    coordinator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    path = tmp_path / "lab.yaml"
    text = "name: lab\nlabgrid: {{coordinator: '{}', place: rack-7}}\nswitches: {{}}\n"
    path.write_text(text.format(coordinator))
    taken = open_lease(load(path), "a test")
    taken.take("ocs", ["address 1"])
    taken.release()
    path.write_text(text.format("nowhere"))
    with pytest.raises(TestbedError, match=r"2:24: found 'nowhere'"):
        load(path)
