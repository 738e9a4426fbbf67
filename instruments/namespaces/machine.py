"""Program that gives a namespace the files of a machine of its own; `namespaces.sshd` runs it.

It runs once inside the namespace, whose mounts are private. It puts memory file systems where
programs of one machine exchange files, and into one of them the account and the configuration of
an SSH server. The request is one JSON object on stdin:

    {"host": host name, "user": login name, "password": its crypt(3) hash, "sshd": path,
     "path": search path of programs, "shared": [paths that stay visible]}

The reply is {"host_key": "ssh-ed25519 AAAA..."} or {"error": text}. Nothing is written to a disk.

It is run as a file of its own and imports nothing of ours, so that it starts in 15 ms.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path("/run/lightrig")
"""The folder of the SSH server's files, in each namespace another one."""

SSHD_CONFIG = FOLDER / "sshd_config"
SSHD_LOG = FOLDER / "sshd.log"

_PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - hidden, not used
_HOST_KEY = FOLDER / "host_key"

_CONFIG = """\
HostKey {host_key}
PidFile none
UsePAM no
UseDNS no
PrintMotd no
PermitRootLogin yes
AllowUsers {user}
PasswordAuthentication yes
KbdInteractiveAuthentication no
AcceptEnv LANG LC_*
SetEnv PATH="{path}"
Subsystem sftp internal-sftp
LogLevel VERBOSE
"""


class _SetupError(Exception):
    """A step failed; the text names it."""


def _is_hidden(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _hide(folder: str) -> None:
    """Put an empty file system in memory at `folder`."""
    _run("mount", "-t", "tmpfs", "-o", "nosuid,nodev,mode=1777", "tmpfs", folder)


def _replace(target: str, text: str, mode: int = 0o644) -> None:
    """Put a file with `text` in the place of `target`, for this namespace only."""
    replacement = FOLDER / Path(target).name
    replacement.write_text(text)
    replacement.chmod(mode)
    _run("mount", "--bind", str(replacement), target)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise _SetupError(f"{command[0]}: {(done.stderr or done.stdout).strip()}")


def _accounts(user: str, password: str, home: Path) -> str:
    """Return this machine's accounts with `user` as the first one, who has root's rights."""
    unchanged = [
        line
        for line in Path("/etc/passwd").read_text(encoding="utf-8").splitlines()
        if not line.startswith(f"{user}:")
    ]
    return "\n".join([f"{user}:{password}:0:0:{user}:{home}:/bin/sh", *unchanged, ""])


def prepare(request: dict[str, Any]) -> str:
    """Set the machine up; return its public host key. Raises `_SetupError` or OSError."""
    shared: Sequence[str] = request["shared"]
    for folder in _PRIVATE:
        if not any(_is_hidden(path, folder) for path in shared) and Path(folder).is_dir():
            _hide(folder)
    _hide("/run")
    home = FOLDER / "home"
    for made in (FOLDER, home, Path("/run/sshd")):  # sshd insists on the last one
        made.mkdir(mode=0o755)
    user, host = request["user"], request["host"]
    _replace("/etc/passwd", _accounts(user, request["password"], home))
    _replace("/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {host}\n")
    if Path("/etc/sudoers").exists():
        _replace("/etc/sudoers", f"{user} ALL=(ALL:ALL) NOPASSWD: ALL\n", 0o440)
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host, "-f", str(_HOST_KEY))
    SSHD_CONFIG.write_text(_CONFIG.format(host_key=_HOST_KEY, user=user, path=request["path"]))
    _run(request["sshd"], "-t", "-f", str(SSHD_CONFIG))
    kind, key, *_ = _HOST_KEY.with_suffix(".pub").read_text(encoding="ascii").split()
    return f"{kind} {key}"


def main() -> int:
    """Obey the request on stdin; return the exit status."""
    try:
        reply = {"host_key": prepare(json.load(sys.stdin))}
    except (_SetupError, OSError) as error:
        reply = {"error": str(error)}
    print(json.dumps(reply))
    return 0


if __name__ == "__main__":
    sys.exit(main())
