"""Other accounts of this machine, by number: what they may do, and what they cannot."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.instruments.temporary_folders import TemporaryFolder

ANN, BEN, EVE = 61_001, 61_002, 61_003
"""Numbers of accounts that no machine has a name for."""

GROUP = 61_100


def _has_accounts() -> bool:
    """Whether this process may become each of these; root of a user namespace may have no other."""
    maps = Path("/proc/self/uid_map").read_text().splitlines()
    ranges = [(int(first), int(count)) for first, _, count in map(str.split, maps)]
    return any(first <= ANN and first + count > EVE for first, count in ranges)


needs_accounts = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("setpriv") is None or not _has_accounts(),
    reason="only root with setpriv can become another account",
)


def shell(number: int, command: str, group: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run a shell command as an account, without any of this process's environment."""
    rights = [f"--reuid={number}", f"--regid={group or number}", "--clear-groups"]
    return subprocess.run(
        [
            "setpriv",
            *rights,
            "env",
            "-i",
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            "sh",
            "-c",
            command,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@contextlib.contextmanager
def acting_as(number: int, group: int | None = None) -> Iterator[None]:
    """Within, this process has the rights of an account."""
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(group or number)
    os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@contextlib.contextmanager
def reachable_folder() -> Iterator[Path]:
    """Make a folder that every account can reach, and only root can change."""
    with TemporaryFolder("tests") as made:
        Path(made).chmod(0o755)
        yield Path(made)
