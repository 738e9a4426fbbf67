"""Program that makes and holds namespaces; started by `namespaces.namespaces`.

It is run as a file of its own and imports nothing of ours, so that it starts in 15 ms.

`keep COUNT` starts COUNT holder processes, each in a network and a mount namespace of its
own, prints {"pids": [...]} or {"error": text}, and ends them when stdin ends. `enter` runs commands
in them.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import NoReturn

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x8, 0x4000, 0x40000
_PR_SET_PDEATHSIG = 1
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 0x1


class _HolderError(Exception):
    """A holder could not make its namespaces; the text says which step was refused."""


def _call(name: str, *arguments: object) -> None:
    """Call a C library function; its errno, when it says -1, is raised as an OSError."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Move this process into new namespaces of the kinds in `flags`; raises OSError."""
    _call("unshare", ctypes.c_int(flags))


def setns(descriptor: int, kind: int) -> None:
    """Move this thread into the namespace that `descriptor` is open on; raises OSError."""
    _call("setns", ctypes.c_int(descriptor), ctypes.c_int(kind))


def mount(source: str, target: str, kind: str | None, flags: int) -> None:
    """Put a file system of `kind` at `target`; raises OSError."""
    _call(
        "mount",
        ctypes.c_char_p(source.encode()),
        ctypes.c_char_p(target.encode()),
        ctypes.c_char_p(None if kind is None else kind.encode()),
        ctypes.c_ulong(flags),
        None,
    )


def prctl(option: int, value: int) -> None:
    """Set one attribute of this process; raises OSError."""
    _call("prctl", ctypes.c_int(option), ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)


@contextlib.contextmanager
def network_of(pid: int) -> Iterator[None]:
    """Within this block, this thread's network namespace is that of `pid`; raises OSError.

    Sockets opened in the block stay in that network; so does what /proc/sys/net means.
    """
    with open("/proc/thread-self/ns/net", "rb") as home, open(f"/proc/{pid}/ns/net", "rb") as away:
        setns(away.fileno(), CLONE_NEWNET)
        try:
            yield
        finally:
            setns(home.fileno(), CLONE_NEWNET)


def privileged() -> bool:
    """Whether this process may make network and mount namespaces without a user namespace."""
    wanted = 1 << _CAP_NET_ADMIN | 1 << _CAP_SYS_ADMIN
    with open("/proc/self/status", encoding="ascii") as status:
        effective = next(line for line in status if line.startswith("CapEff:"))
    return int(effective.split()[1], 16) & wanted == wanted


def _become_root_of_a_user_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {uid} 1"),
        ("gid_map", f"0 {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(sock, _SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _hold(keeper: int, ready: int) -> NoReturn:
    """Make the namespaces, say so on `ready` (an empty line, or what failed), and stay."""
    try:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(0)
        unshare(CLONE_NEWNET | CLONE_NEWNS)
        mount("none", "/", None, _MS_REC | _MS_PRIVATE)
        mount("sysfs", "/sys", "sysfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        _raise_loopback()
    except OSError as error:
        os.write(ready, f"{error}\n".encode())
        os._exit(1)
    os.write(ready, b"\n")
    os.close(ready)
    while True:
        signal.pause()


def _start_holder() -> int:
    keeper = os.getpid()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        os.close(reading)
        _hold(keeper, writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as report:
        line = report.readline()
    if line != "\n":
        raise _HolderError(line.strip() or "a holder process ended at once")
    return pid


def _end_all(holders: Sequence[int], networks: Sequence[int]) -> None:
    """End the holders, then every process in one of `networks` (open descriptors)."""
    for pid in holders:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    # In this order: whoever enters a namespace from now on finds its holder gone, and ends.
    ours = {os.fstat(descriptor).st_ino for descriptor in networks}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        # Processes come and go meanwhile, and others are not ours to look at.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if os.stat(f"/proc/{entry}/ns/net").st_ino in ours:
                os.kill(int(entry), signal.SIGKILL)


def _keep(count: int) -> int:
    """Start `count` holders, print their process ids, end them when stdin ends."""
    parent = os.getppid()
    asked, ask = os.pipe()

    def leave(number: int, frame: FrameType | None) -> None:
        # The kernel sends the death signal when the thread ends that started us, too.
        if number == signal.SIGTERM or os.getppid() != parent:
            os.write(ask, b"\n")

    # Ctrl-C reaches the whole process group; the program may still need us to put things back.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGUSR1, leave)
    holders: list[int] = []
    networks: list[int] = []
    try:
        if not privileged():
            _become_root_of_a_user_namespace()
        # A change of credentials clears this attribute, so it comes after.
        prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
        for _ in range(count):
            holders.append(_start_holder())
            networks.append(os.open(f"/proc/{holders[-1]}/ns/net", os.O_RDONLY))
        print(json.dumps({"pids": holders}), flush=True)
        # Nothing is ever written to stdin: it becomes readable when it ends.
        select.select([0, asked], [], [])
    except (OSError, _HolderError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    finally:
        _end_all(holders, networks)
    return 0


def main() -> int:
    """`keep COUNT` holds namespaces until stdin ends."""
    match sys.argv[1:]:
        case ["keep", count]:
            return _keep(int(count))
        case _:
            print("usage: keep COUNT", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
