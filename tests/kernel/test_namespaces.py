"""Namespaces come, are apart from the machine, and go however their maker ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.namespaces import namespaces as kernel

pytestmark = pytest.mark.usefixtures("possible")

MAKER = """
import json, subprocess, sys, threading
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks, KernelPort
spaces = kernel.Namespaces(["a", "b", "plant"])
ports = [
    KernelPort(server, spaces.pid(server), "fabric0", f"192.0.2.{number}/24")
    for number, server in ((1, "a"), (2, "b"))
]
links = KernelLinks(spaces.pid("plant"), ports)
links.apply(frozenset({"a.fabric0", "b.fabric0"}), frozenset())
def run(*argv, **options):
    return subprocess.Popen(kernel.enter_command(spaces.pid("a"), argv), **options)
stray = run("sh", "-c", "echo in; exec sleep 60", stdout=subprocess.PIPE)
stray.stdout.readline()
carrier = run("cat", "/sys/class/net/fabric0/carrier", stdout=subprocess.PIPE).communicate()[0]
pids = [stray.pid, *map(spaces.pid, ("a", "b", "plant"))]
print(json.dumps({"pids": pids, "carrier": carrier.decode()}), flush=True)
sys.stdin.read()
links.close()
spaces.close()
stray.wait()
"""

# A user whose id is not 0 and who has no capability, yet may read what root may read.
UNPRIVILEGED = """
import os, sys
from lightrig.instruments.namespaces import agent as namespaces
namespaces.unshare(namespaces.CLONE_NEWUSER)
for name, text in (("setgroups", "deny"), ("uid_map", "1000 0 1"), ("gid_map", "1000 0 1")):
    open(f"/proc/self/{name}", "w").write(text)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""


def devices() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


def wait_until_ended(pids: list[int]) -> None:
    clock = SystemClock()
    for _ in range(1_000):
        if all(map(ended, pids)):
            return
        clock.sleep(10_000_000)
    raise AssertionError(f"still there: {[pid for pid in pids if not ended(pid)]}")


def make(*argv: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    ("user", "end"),
    [
        ("this", "killed"),
        pytest.param("this", "closed", marks=pytest.mark.long),
        pytest.param("unprivileged", "closed", marks=pytest.mark.long),
        pytest.param("unprivileged", "killed", marks=pytest.mark.long),
    ],
)
def test_no_device_remains_after_closing(end: str, user: str) -> None:
    before = devices()
    if user == "unprivileged" and os.getuid() != 0:
        pytest.skip("this user is unprivileged already")
    with make(MAKER) if user == "this" else make(UNPRIVILEGED, MAKER) as maker:
        assert maker.stdin is not None
        assert maker.stdout is not None
        made = json.loads(maker.stdout.readline())
        assert made["carrier"] == "1\n"
        assert not any(map(ended, made["pids"]))
        assert devices() == before
        if end == "killed":
            maker.kill()
            maker.wait()
        else:
            maker.stdin.close()
            assert maker.wait(60) == 0
        wait_until_ended(made["pids"])
    assert devices() == before


def test_a_namespace_has_only_its_loopback_which_is_up(run: Callable[..., str]) -> None:
    with kernel.Namespaces(["one"]) as spaces:
        pid = spaces.pid("one")
        assert run(pid, "ls", "/sys/class/net") == "lo\n"
        assert int(run(pid, "cat", "/sys/class/net/lo/flags"), 16) & 1
        assert Path(run(pid, "pwd").strip()) == Path.cwd()


@pytest.mark.parametrize("folder", ["hidden", "removed"])
def test_a_command_begins_at_the_root_where_its_folder_is_missing(
    folder: str, run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As setns(2) leaves a process that joins a mount namespace."""
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    with kernel.Namespaces(["one"]) as spaces:
        pid = spaces.pid("one")
        if folder == "hidden":
            run(pid, "mount", "-t", "tmpfs", "tmpfs", str(tmp_path))
        else:
            below.rmdir()
        assert run(pid, "pwd") == "/\n"


def test_namespaces_outlive_the_thread_that_made_them() -> None:
    made: list[kernel.Namespaces] = []
    thread = threading.Thread(target=lambda: made.append(kernel.Namespaces(["one"])))
    thread.start()
    thread.join()
    with made[0] as spaces:
        SystemClock().sleep(50_000_000)
        assert not ended(spaces.pid("one"))
    assert ended(spaces.pid("one"))


def test_a_killed_keeper_takes_its_holders_with_it() -> None:
    with kernel.Namespaces(["one"]) as spaces:
        pid = spaces.pid("one")
        keeper = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(keeper, signal.SIGKILL)
        wait_until_ended([pid])


def test_names_are_checked() -> None:
    with pytest.raises(kernel.NamespaceError, match="different names"):
        kernel.Namespaces(["one", "one"])
    with kernel.Namespaces(["one"]) as spaces, pytest.raises(kernel.NamespaceError, match="one"):
        spaces.pid("two")


def test_entering_a_missing_namespace_is_an_error() -> None:
    ended_process = subprocess.Popen([sys.executable, "-c", ""])
    ended_process.wait()
    command = kernel.enter_command(ended_process.pid, ["true"])
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    assert tried.returncode == 126
    assert f"namespaces of {ended_process.pid}" in tried.stderr
