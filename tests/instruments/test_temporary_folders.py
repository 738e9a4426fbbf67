"""What killed runs have left in the folder of temporary files is removed by the next run."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lightrig.instruments.temporary_folders import TemporaryFolder, remove_abandoned

MAKES = """
import os, signal, sys
from lightrig.instruments.temporary_folders import TemporaryFolder, remove_abandoned
folder = TemporaryFolder()
open(folder.name + "/known_hosts", "w").write("of a run")
print(folder.name, flush=True)
signal.pause()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def run(place: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_next_run_removes_what_a_killed_one_left(place: Path) -> None:
    (killed, abandoned), (running, in_use) = run(place), run(place)
    # Not of a run: a stranger's names, and a link to a folder of somebody else.
    (place / "lightrig-notes").mkdir()
    (place / "lightrig-notes" / "text").write_text("by hand")
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / ".lock").touch()
    (place / "lightrig-link").symlink_to(place / "elsewhere")
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
        assert abandoned.parent == place
        assert (abandoned / "known_hosts").read_text() == "of a run"
        with TemporaryFolder() as name:
            assert not abandoned.exists()
            assert (in_use / "known_hosts").read_text() == "of a run"
            assert Path(name).stat().st_mode & 0o777 == 0o700
        assert not Path(name).exists()
    finally:
        for process in (killed, running):
            process.kill()
            process.communicate()
    assert (place / "lightrig-notes" / "text").read_text() == "by hand"
    assert (place / "elsewhere" / ".lock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root with setpriv can become another account")
def test_a_folder_of_another_account_stays(place: Path) -> None:
    folder = place / "lightrig-other"
    folder.mkdir(0o777)
    (folder / ".lock").touch()
    os.chown(folder, 65534, 65534)
    with TemporaryFolder():
        assert (folder / ".lock").exists()


def test_a_folder_with_results_stays_until_its_maker_finds_it_useless(place: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES.replace("Folder()", "Folder('night', has_results=True)")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    )
    assert process.stdout is not None
    abandoned = Path(process.stdout.readline().strip())
    assert abandoned.name.startswith("lightrig-night-")
    asked: list[Path] = []
    remove_abandoned(lambda folder: not asked.append(folder))
    assert asked == [], "its process lives"
    process.kill()
    process.wait(60)
    process.stdout.close()
    TemporaryFolder().cleanup()
    remove_abandoned(lambda _folder: False)
    assert (abandoned / "known_hosts").read_text() == "of a run"
    remove_abandoned(lambda folder: folder == abandoned)
    assert not abandoned.exists()
