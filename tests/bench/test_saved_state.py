"""After a kill the lease has ended and the saved state is still there."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench.served_lab import circuits
from real_time import over_soon

from lightrig.harness.bench.lease import Lease, LeaseConflictError
from lightrig.harness.bench.saved_state import (
    SavedState,
    SavedStateError,
    state_folder,
)

HOLD = """
import sys
from pathlib import Path
from lightrig.harness.bench.lease import Lease
lease = Lease("lab", Path(sys.argv[1]))
print("leased", flush=True)
sys.stdin.read()
"""


def holder(folder: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "leased\n"
    return process


def test_lease_is_exclusive_and_ends_with_its_process(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(LeaseConflictError) as conflict:
            Lease("lab", tmp_path)
        assert str(conflict.value).startswith("testbed lab is in use by ")
        assert f"process {process.pid}, since 20" in str(conflict.value)
        Lease("another", tmp_path).release()
        process.send_signal(signal.SIGKILL)
        process.wait()
    lease = Lease("lab", tmp_path)
    with over_soon(), pytest.raises(LeaseConflictError, match=f"process {os.getpid()}"):
        Lease("lab", tmp_path)
    lease.release()
    Lease("lab", tmp_path).release()


def test_lease_without_a_note_names_an_unknown_process(tmp_path: Path) -> None:
    lease = Lease("lab", tmp_path)
    (tmp_path / "lab.holder").unlink()
    with pytest.raises(LeaseConflictError, match="an unknown process"):
        Lease("lab", tmp_path)
    lease.release()


def test_state_folder_follows_the_xdg_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "lightrig"
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder() == tmp_path / ".local" / "state" / "lightrig"


def test_saved_state_is_not_overwritten_before_it_is_cleared(tmp_path: Path) -> None:
    found = {"ocs": circuits("1>9", "2>12"), "other": frozenset()}
    SavedState("lab", tmp_path / "made" / "anew").save(found)
    again = SavedState("lab", tmp_path / "made" / "anew")
    assert again.read() == found
    again.save({"ocs": circuits("3>10")})
    assert again.read() == found
    again.clear()
    assert again.read() is None
    again.clear()
    assert list((tmp_path / "made" / "anew").iterdir()) == []


def test_each_testbed_has_a_saved_state(tmp_path: Path) -> None:
    SavedState("lab", tmp_path).save({"ocs": circuits("1>9")})
    assert SavedState("other", tmp_path).read() is None


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"7",
        b'"ocs"',
        b'{"ocs": "1>9"}',
        b'{"ocs": [1]}',
        b'{"ocs": ["1-9"]}',
        b'{"ocs": null}',
        b'{"ocs": ["1>9"]',
        b"\xff\xfe",
    ],
)
def test_damaged_file_raises_an_error_with_its_name(tmp_path: Path, damaged: bytes) -> None:
    found = SavedState("lab", tmp_path)
    found.path.write_bytes(damaged)
    with pytest.raises(SavedStateError, match=r"lab\.found\.json is damaged"):
        found.read()
    assert found.path.read_bytes() == damaged


def test_saved_state_is_readable_json(tmp_path: Path) -> None:
    found = SavedState("lab", tmp_path)
    found.save({"ocs": circuits("2>12", "1>9")})
    assert json.loads(found.path.read_text()) == {"ocs": ["1>9", "2>12"]}
