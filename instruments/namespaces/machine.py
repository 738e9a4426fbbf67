"""Program that gives a namespace the files of a machine of its own.

It runs once inside the namespace, whose mounts are private. It puts memory file systems where
programs of one machine exchange files, and into one of them an account. The request is one JSON
object on stdin:

    {"host": host name, "user": login name, "password": its crypt(3) hash, "shared": [paths that
     stay visible], "sshd": {"program": path, "path": search path} or null,
     "sealed": {"programs": {name: text}, "client": text} or null}

With `sshd` (`namespaces.sshd`) the configuration and the host key of an SSH server are added. With
`sealed` (a simulated server's shell) all file systems of this machine become read-only, devices are
the harmless ones, `programs` stand in the place of this machine's, and what is not a program, a
library or below `shared` is hidden: of /etc a few files are left.

The reply is {"host_key": "ssh-ed25519 AAAA..." or ""} or {"error": text}. Nothing is written to a
disk.

It is run as a file of its own and imports nothing of ours, so that it starts in 15 ms.
"""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path("/run/lightrig")
"""The folder of the SSH server's files, in each namespace another one."""

HOME = FOLDER / "home"
"""The home of the account."""

SSHD_CONFIG = FOLDER / "sshd_config"
SSHD_LOG = FOLDER / "sshd.log"

PROGRAMS = FOLDER / "bin"
CLIENT = FOLDER / "client.py"
DEVICES_OF_CLASS = FOLDER / "class"
"""Directory that a sealed namespace has as /sys/class; its maker keeps it up to date."""
SFTP_ROOT = FOLDER / "sftp"
"""Directory in which a sealed namespace shows the files that it transfers."""

_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE, _RDONLY = 442, -100, 0x8000, 1
_HARMLESS = ("null", "zero", "full", "random", "urandom", "tty")
_BINARIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - hidden, not used
_OF_ROOT = ("bin", "dev", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "usr")
_OF_ETC = (
    *("alternatives", "group", "host.conf", "hostname", "hosts", "inputrc", "ld.so.cache"),
    *("ld.so.conf", "ld.so.conf.d", "locale.conf", "localtime", "nsswitch.conf", "os-release"),
    *("passwd", "profile", "protocols", "services", "shells", "terminfo"),
)
"""Files of /etc that programs need."""
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


def _hide_around(folder: str, shared: Sequence[str]) -> None:
    """Hide `folder` but for what is shared of it."""
    below = sorted({path for path in shared if _is_hidden(path, folder) and Path(path).is_dir()})
    retained = [path for path in below if not any(_is_hidden(path, f"{o}/") for o in below)]
    aside = [Path(f"/run/aside{number}") for number in range(len(retained))]
    for path, place in zip(retained, aside, strict=True):
        place.mkdir()
        _run("mount", "--rbind", path, str(place))
    _hide(folder)
    for path, place in zip(retained, aside, strict=True):
        Path(path).mkdir(parents=True, exist_ok=True)
        _run("mount", "--move", str(place), path)
        place.rmdir()


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


def _accounts(user: str, password: str) -> str:
    """Return this machine's accounts with `user` as the first one, who has root's rights."""
    unchanged = [
        line
        for line in Path("/etc/passwd").read_text(encoding="utf-8").splitlines()
        if not line.startswith(f"{user}:")
    ]
    return "\n".join([f"{user}:{password}:0:0:{user}:{HOME}:/bin/sh", *unchanged, ""])


def _seal() -> None:
    """Make every file system read-only, and leave only harmless devices; raises OSError."""
    attributes = (ctypes.c_uint64 * 4)(_RDONLY, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.sizeof(attributes)
    arguments = (_AT_FDCWD, b"/", _AT_RECURSIVE, ctypes.byref(attributes), size)
    if libc.syscall(_SYS_MOUNT_SETATTR, *arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"mount_setattr: {os.strerror(number)}")
    # Each command needs to write its map of users, before it gets a /proc of its own.
    _run("mount", "-t", "proc", "proc", "/proc")
    _hide("/run")
    devices = Path("/run/dev")
    devices.mkdir()
    _hide(str(devices))
    for name in _HARMLESS:
        (devices / name).touch()
        _run("mount", "--bind", f"/dev/{name}", str(devices / name))
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1")):
        (devices / name).symlink_to(target)
    (devices / "stderr").symlink_to("fd/2")
    (devices / "ptmx").symlink_to("pts/ptmx")
    for name in ("shm", "pts"):
        (devices / name).mkdir()
    _run("mount", "--move", str(devices), "/dev")
    _run("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666,mode=620", "devpts", "/dev/pts")


def _confine(shared: Sequence[str]) -> None:
    """Show nothing of this machine but programs, libraries, some files of /etc and `shared`."""
    root = Path("/run/root")
    root.mkdir()
    _run("mount", "-t", "tmpfs", "-o", "nosuid,nodev,mode=755", "tmpfs", str(root))
    for folder in ("run", "etc", *(each[1:] for each in _PRIVATE[:2])):
        (root / folder).mkdir(parents=True)
    for folder in _PRIVATE[:2]:  # before what is shared below them
        _hide(f"{root}{folder}")
    (root / "etc/sudoers").touch()
    parts = [Path("/", name) for name in _OF_ROOT] + [Path("/etc", name) for name in _OF_ETC]
    for path in (*parts, *map(Path, shared)):
        shown = root / path.relative_to("/")
        if os.path.lexists(shown) or not path.exists():
            continue
        shown.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            shown.symlink_to(path.readlink())
            continue
        if path.is_dir():
            shown.mkdir()
        else:
            shown.touch()
        _run("mount", "--rbind", str(path), str(shown))
    _run("mount", "-o", "remount,bind,ro", str(root))
    os.chdir(root)
    _run("pivot_root", ".", ".")  # pivot_root(2): the former root lies on the new one then
    _run("umount", "-l", ".")
    os.chdir("/")


def _install(programs: dict[str, str], client: str) -> None:
    """Put `programs` before this machine's on the search path, and in the place of each."""
    PROGRAMS.mkdir()
    CLIENT.write_text(client)
    for name, text in programs.items():
        program = PROGRAMS / name
        program.write_text(text)
        program.chmod(0o755)
        found = {str((Path(folder) / name).resolve()) for folder in _BINARIES}
        for path in sorted(found):
            # Not a program that has several names, such as one of busybox.
            if Path(path).is_file() and Path(path).name == name:
                _run("mount", "--bind", str(program), path)
    SFTP_ROOT.mkdir()
    DEVICES_OF_CLASS.mkdir()
    _run("mount", "--bind", str(DEVICES_OF_CLASS), "/sys/class")


def _make_host_key(host: str) -> str:
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host, "-f", str(_HOST_KEY))
    kind, key, *_ = _HOST_KEY.with_suffix(".pub").read_text(encoding="ascii").split()
    return f"{kind} {key}"


def prepare(request: dict[str, Any]) -> str:
    """Set the machine up; return its public host key. Raises `_SetupError` or OSError."""
    shared: Sequence[str] = request["shared"]
    sealed, sshd = request["sealed"], request["sshd"]
    if sealed:
        _seal()
        _confine(shared)
    _hide("/run")
    for folder in _PRIVATE if not sealed else _PRIVATE[2:]:  # the others are in memory already
        if Path(folder).is_dir():
            _hide_around(folder, shared)
    for made in (FOLDER, HOME, Path("/run/sshd")):  # sshd insists on the last one
        made.mkdir(mode=0o755)
    user, host = request["user"], request["host"]
    _replace("/etc/passwd", _accounts(user, request["password"]))
    _replace("/etc/hosts", f"127.0.0.1 localhost\n127.0.1.1 {host}\n")
    if Path("/etc/hostname").exists():
        _replace("/etc/hostname", f"{host}\n")
    if Path("/etc/sudoers").exists():
        _replace("/etc/sudoers", f"{user} ALL=(ALL:ALL) NOPASSWD: ALL\n", 0o440)
    if sealed:
        _install(sealed["programs"], sealed["client"])
    if not sshd:
        return ""
    host_key = _make_host_key(host)
    SSHD_CONFIG.write_text(_CONFIG.format(host_key=_HOST_KEY, user=user, path=sshd["path"]))
    _run(sshd["program"], "-t", "-f", str(SSHD_CONFIG))
    return host_key


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
