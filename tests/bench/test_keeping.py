"""What outlives a killed process: the lease ends with it, the found state does not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench.served_lab import circuits
from real_time import over_soon

from harness.bench.keeping import FoundState, FoundStateError, Lease, LeaseHeldError, state_folder

HOLD = """
import sys
from pathlib import Path
from harness.bench.keeping import Lease
lease = Lease("lab", Path(sys.argv[1]))
print("held", flush=True)
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
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lease_is_exclusive_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        with pytest.raises(LeaseHeldError) as held:
            Lease("lab", tmp_path)
        assert str(held.value).startswith("testbed lab is in use by ")
        assert f"process {process.pid}, since 20" in str(held.value)
        Lease("another", tmp_path).release()
        process.send_signal(signal.SIGKILL)
        process.wait()
    lease = Lease("lab", tmp_path)
    with over_soon(), pytest.raises(LeaseHeldError, match=f"process {os.getpid()}"):
        Lease("lab", tmp_path)
    lease.release()
    Lease("lab", tmp_path).release()


def test_a_holder_that_left_no_note_is_unknown(tmp_path: Path) -> None:
    lease = Lease("lab", tmp_path)
    (tmp_path / "lab.holder").unlink()
    with pytest.raises(LeaseHeldError, match="an unknown process"):
        Lease("lab", tmp_path)
    lease.release()


def test_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder() == tmp_path / "lightrig"
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder() == tmp_path / ".local" / "state" / "lightrig"


def test_what_was_found_survives_and_is_not_overwritten(tmp_path: Path) -> None:
    found = {"ocs": circuits("1>9", "2>12"), "other": frozenset()}
    FoundState("lab", tmp_path / "made" / "anew").keep(found)
    again = FoundState("lab", tmp_path / "made" / "anew")
    assert again.read() == found
    again.keep({"ocs": circuits("3>10")})
    assert again.read() == found
    again.forget()
    assert again.read() is None
    again.forget()
    assert list((tmp_path / "made" / "anew").iterdir()) == []


def test_testbeds_do_not_share_it(tmp_path: Path) -> None:
    FoundState("lab", tmp_path).keep({"ocs": circuits("1>9")})
    assert FoundState("other", tmp_path).read() is None


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
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, damaged: bytes) -> None:
    found = FoundState("lab", tmp_path)
    found.path.write_bytes(damaged)
    with pytest.raises(FoundStateError, match=r"lab\.found\.json is damaged"):
        found.read()
    assert found.path.read_bytes() == damaged


def test_it_can_be_read_by_people(tmp_path: Path) -> None:
    found = FoundState("lab", tmp_path)
    found.keep({"ocs": circuits("2>12", "1>9")})
    assert json.loads(found.path.read_text()) == {"ocs": ["1>9", "2>12"]}
