"""What killed runs have left in the folder of temporary files is removed by the next run."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lightrig.instruments.temporary_folders import TemporaryFolder, remove_abandoned
from tests.campaigns.process_kills import is_alive

MAKES = """
import os, signal, sys
from lightrig.instruments.temporary_folders import TemporaryFolder, remove_abandoned
folder = TemporaryFolder()
open(folder.name + "/known_hosts", "w").write("of a run")
print(folder.name, flush=True)
signal.pause()
"""

FIRST_THREAD_ENDS = """
import ctypes, threading, time
from lightrig.instruments.temporary_folders import TemporaryFolder
folder = TemporaryFolder()
threading.Thread(target=time.sleep, args=(600,)).start()
print(folder.name, flush=True)
libc = ctypes.CDLL(None)
libc.pthread_exit.argtypes = [ctypes.c_void_p]
libc.pthread_exit(None)
"""

KILLED_AT_EACH_STEP = """
import itertools, os, signal, sys, tempfile, time
from pathlib import Path
from lightrig.instruments.temporary_folders import TemporaryFolder, remove_abandoned

def child(steps):
    left = itertools.count(steps, -1)
    def step(event, arguments):
        if event.startswith(("os.", "shutil.", "fcntl.", "open")) and not next(left):
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(step)
    folder = TemporaryFolder("run")
    for name in ("a", "z"):
        Path(folder.name, name).touch()
        Path(folder.name, "sub" + name).mkdir()
        Path(folder.name, "sub" + name, "file").touch()
    folder.cleanup()
    os._exit(0)

place, several = Path(tempfile.gettempdir()), 0
for steps in itertools.count(1):
    process = os.fork()
    if not process:
        child(steps)
    _, status = os.waitpid(process, 0)
    left = [*place.iterdir()]
    several += bool(left)
    hour_ago = time.time() - 3700
    for each in left:
        if each.name.startswith("."):
            os.utime(each, (hour_ago, hour_ago))
    remove_abandoned()
    if still := [*place.iterdir()]:
        print(steps, [str(each) for each in place.glob("**/*")])
        remove_abandoned()
        break
    if not status:
        break
print("left by", several, "of", steps)
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


def test_nothing_is_left_of_one_killed_at_any_step_of_making_and_removing_it(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_EACH_STEP],
        env={**os.environ, "TMPDIR": str(place)},
        capture_output=True,
        text=True,
        check=True,
    )
    left, steps = map(int, re.findall(r"left by (\d+) of (\d+)", done.stdout)[0])
    assert [*place.iterdir()] == [], done.stdout
    assert 10 < left < steps, "kills before the folder is made, and after it is removed"


def test_a_folder_stays_until_the_last_thread_of_a_process_has_ended(place: Path) -> None:
    """Its first thread, whose state /proc shows as that of the process, may end before others."""
    process = subprocess.Popen(
        [sys.executable, "-c", FIRST_THREAD_ENDS],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    )
    assert process.stdout is not None
    name = Path(process.stdout.readline().strip())
    stat = Path(f"/proc/{process.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "Z":
        os.sched_yield()
    assert is_alive(process.pid)
    remove_abandoned()
    assert name.exists()
    process.kill()
    while is_alive(process.pid):
        os.sched_yield()
    remove_abandoned()
    assert not name.exists()
    process.communicate()


def test_a_process_looks_once_for_what_others_left(place: Path) -> None:
    """Each bench has such a folder, and each of them looked at all hundreds of others."""
    TemporaryFolder().cleanup()
    process, abandoned = run(place)
    process.kill()
    process.communicate()
    TemporaryFolder().cleanup()
    assert abandoned.exists()
    forked = os.fork()
    if not forked:  # a process as another
        TemporaryFolder().cleanup()
        os._exit(0)
    os.waitpid(forked, 0)
    assert not abandoned.exists()


def test_an_empty_folder_that_no_run_has_made_stays(place: Path) -> None:
    """Such as one that a person has made to set LIGHTRIG_STATE to it."""
    made = place / "lightrig-state"
    made.mkdir()
    TemporaryFolder().cleanup()
    assert made.exists()


def test_a_folder_that_is_made_right_now_stays(place: Path) -> None:
    made = place / ".lightrig-new-run"
    made.mkdir()
    TemporaryFolder().cleanup()
    assert made.exists()


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
    remove_abandoned(lambda _folder: False)
    assert (abandoned / "known_hosts").read_text() == "of a run"
    remove_abandoned(lambda folder: folder == abandoned)
    assert not abandoned.exists()
