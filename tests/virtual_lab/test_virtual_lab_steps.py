"""Steps of building and booting the virtual lab, with scripts that take no time."""

import os
import platform
import select
import subprocess
from pathlib import Path

import pytest

from . import lab as lab_module
from . import steps
from .lab import booted
from .processor_counter import counter_khz
from .steps import VirtualLabError, built, is_built, step

ROOT_SCRIPT = '#!/bin/sh\nmkdir "$1"\ndate +%s%N > "$1/stamp"\n'
IMAGE_SCRIPT = (
    '#!/bin/sh\nmkdir -p "$2"\ncat "$1/stamp" > "$2/root"\ndate +%s%N > "$2/host_key.pub"\n'
)


ANSWER = """exec python3 -c '
import socket, sys
path = next(a for a in sys.argv if "monitor" in a).split(":")[1].split(",")[0]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
client, _ = listener.accept()
client.send(b"QMP")
client.recv(1)
listener.accept()
' "$@"
"""
"""A machine whose monitor answers once."""

ENDS_SECONDS = 60


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the scripts; what they build is in `lab` beside it."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    write(folder / "build_root.sh", ROOT_SCRIPT)
    write(folder / "build_image.sh", IMAGE_SCRIPT)
    write(folder / "unpack_kernel.py", "")
    (folder / "virtual_lab.yaml").write_text("name: lab\n")
    monkeypatch.setattr(steps, "HERE", folder)
    return folder


def write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def test_a_step_says_how_long_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    with step("root"):
        pass
    assert capsys.readouterr().out == "root ...\nroot: 0 s\n"
    with pytest.raises(VirtualLabError, match=r"^image, after 0 s: no room$"), step("image"):
        raise OSError("no room")


def test_root_and_image_are_made_again_where_their_scripts_change(scripts: Path) -> None:
    lab = scripts.parent / "lab"
    assert not is_built(lab)
    image = built(lab)
    assert is_built(lab)
    root, key = (image / "root").read_text(), (image / "host_key.pub").read_text()
    built(lab)
    assert ((image / "root").read_text(), (image / "host_key.pub").read_text()) == (root, key)

    write(scripts / "build_image.sh", IMAGE_SCRIPT + "# changed\n")
    assert not is_built(lab)
    built(lab)
    assert (image / "root").read_text() == root
    assert (image / "host_key.pub").read_text() != key

    write(scripts / "build_root.sh", ROOT_SCRIPT + "# changed\n")
    built(lab)
    assert (image / "root").read_text() != root


def test_a_script_that_fails_is_named_with_its_last_lines_and_runs_again(scripts: Path) -> None:
    lab = scripts.parent / "lab"
    write(scripts / "build_root.sh", "#!/bin/sh\necho no mirror >&2\nexit 4\n")
    with pytest.raises(VirtualLabError, match=r"^root, after 0 s: .*status 4.*no mirror"):
        built(lab)
    write(scripts / "build_root.sh", ROOT_SCRIPT)
    built(lab)
    assert is_built(lab)


@pytest.mark.parametrize("interrupted", [False, True])
def test_what_a_script_started_ends_with_it(
    scripts: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    """Its program closes the pipe only by its end; an interrupt comes as by Ctrl-C."""
    pipe = scripts.parent / "pipe"
    os.mkfifo(pipe)
    end = "sleep 300" if interrupted else "exit 4"
    write(scripts / "build_root.sh", f"#!/bin/sh\nexec 3>{pipe}\nsleep 300 &\necho >&3\n{end}\n")
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    wait = subprocess.Popen.wait

    def wait_once(process: "subprocess.Popen[str]", timeout: float | None = None) -> int:
        assert select.select([reading], [], [], ENDS_SECONDS)[0]
        monkeypatch.setattr(subprocess.Popen, "wait", wait)
        if interrupted:
            raise KeyboardInterrupt
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_once)
    with pytest.raises(KeyboardInterrupt if interrupted else VirtualLabError):
        built(scripts.parent / "lab")
    assert os.read(reading, 1) == b"\n"
    assert select.select([reading], [], [], ENDS_SECONDS)[0], "the script's program still runs"
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_machine_that_does_not_start_ends_the_lab_and_is_named(
    scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = scripts.parent / "programs"
    programs.mkdir()
    pids = scripts.parent / "pids"
    # The first machine runs for as long as it may, the second one ends at once.
    ends_at_once = 'case "$*" in *"-name server1"*) echo no memory; exit 1;; esac'
    script = f"#!/bin/sh\necho $$ >> {pids}\n{ends_at_once}\n"
    write(programs / "setpriv", script + ANSWER)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(lab_module, "SSH_HOSTS", ("127.0.78.0", "127.0.78.1"))
    ends = r"^boot, after \d+ s: the machine of server1 has ended: no memory"
    with pytest.raises(VirtualLabError, match=ends), booted(scripts.parent / "lab"):
        pass
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split())


def test_the_processors_counter_is_measured() -> None:
    """As Linux does it in a machine: twice, and within a thousandth of each other."""
    first, second = counter_khz(0.1), counter_khz(0.1)
    if platform.machine() == "x86_64":
        assert first is not None
        assert 100_000 < first < 10_000_000
        assert second == pytest.approx(first, rel=1e-3)
    else:
        assert first is second is None
