"""Shell of a simulated server: other people's command lines, in a sealed namespace.

A command line that is more than one of the server's own tools (pipes, variables, `sudo`, Python,
a file transfer) is run by this machine's `sh` in a namespace where every file system is
read-only, but for a home and folders in memory, and where of this machine only programs, libraries
and a few public files of /etc are seen. There the server's tools (`ethtool`, `ip`,
`ibstat`, ...) ask the simulated world, and /sys/class shows the simulated ports. Processes see only
each other and have no rights outside.
"""

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

from lightrig.instruments.clock import Clock
from lightrig.instruments.namespaces import machine
from lightrig.instruments.namespaces.machine_setup import prepare_machine
from lightrig.instruments.namespaces.namespaces import (
    Namespaces,
    available,
    enter_command,
    is_root,
)
from lightrig.instruments.simulated.hosts import host_client, sftp_program
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome

_PATH = f"{machine.PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A command's user is mapped to root, but has no rights outside; it sees its own processes. The
# kernel's settings below /proc/sys would let a user with root's number write them.
_SANDBOX = (
    *("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("sh", "-ec", 'mount -o remount,bind,ro /proc; exec "$@"', "sh"),
)

_TOOL = '#!/bin/sh\nexec {python} -I -S {client} {name} "$@"\n'

# Everybody is root already: only the options are passed over, as sudo(8) lists them.
_SUDO = """\
#!/bin/sh
while :; do
    case $1 in
        -u|-g|-p|-h|-C|-T|-r|-t|-D|-R|-U) shift 2 ;;
        --) shift; break ;;
        -*) shift ;;
        *=*) export "$1"; shift ;;
        *) break ;;
    esac
done
[ $# -gt 0 ] || exit 0
exec "$@"
"""

_TIOCSPTLCK, _TIOCGPTPEER = 0x40045431, 0x5441
"""Requests that unlock and open the other end of a terminal; ioctl_tty(2), asm-generic/ioctls.h."""

# Files are transferred by a program of ours, since this machine may have no sftp-server. It sees
# what a server's user can write, and the simulated ports, at the paths where the shell has them.
_SFTP_FOLDERS = (machine.HOME, "/tmp", "/var/tmp", "/dev/shm", "/sys/class")  # noqa: S108 - in memory
_SFTP_PROGRAM = "lightrig-sftp.py"
_SFTP = """\
#!/bin/sh
set -e
mount -t tmpfs tmpfs {root}
for folder in {folders}; do
    [ -d $folder ] || continue
    mkdir -p {root}$folder
    mount --rbind $folder {root}$folder
done
mount -o remount,ro {root}
exec {python} -I {program} {root} {home}
"""


def shell_obstacle() -> str | None:
    """Return why simulated servers can have no shell here; None if they can."""
    if sys.platform == "linux" and not is_root():
        return "the shell of a simulated server needs root with CAP_SYS_ADMIN"
    for program in ("unshare", "mount", "setsid"):
        if shutil.which(program) is None:
            return f"there is no program {program} (util-linux)"
    return available()


@runtime_checkable
class ShellTools(Protocol):
    """Programs of a host in the simulated world."""

    def run(self, argv: Sequence[str]) -> ProgramOutcome:
        """Run a program to its end; called in the clock's time."""

    def answers(self, argv: Sequence[str]) -> bool:
        """Whether a command is one of the simulated world, not of any host's shell."""

    def replaced(self) -> Sequence[str]:
        """Return the programs that stand in the place of this machine's."""

    def class_files(self) -> Mapping[str, str]:
        """Return the files below /sys/class as they are now."""


class HostShell:
    """The shell of one simulated host; its namespace is made at the first command.

    Args:
        name: the server or switch, and its host name.
        user: login name; the user has root's rights within the namespace.
        tools: its programs in the simulated world.
        clock: the world's clock.
    """

    def __init__(self, name: str, user: str, tools: ShellTools, clock: Clock) -> None:
        self._name = name
        self._user = user
        self._tools = tools
        self._clock = clock
        self._opening = threading.Lock()
        self._namespaces: Namespaces | None = None
        self._listener: socket.socket | None = None
        self._pid = 0

    def start(
        self,
        command: str,
        environment: Mapping[str, str],
        stdin: int | IO[bytes],
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
    ) -> "subprocess.Popen[bytes]":
        """Start `sh -c command`; an empty one is a login shell. Raises `LightrigError`."""
        self._open()
        self._show_ports()
        line = ["sh", "-c", command] if command else ["sh", "-i"]
        if os.isatty(stdin if isinstance(stdin, int) else stdin.fileno()):
            line = ["setsid", "--ctty", *line]  # Ctrl-C and job control need a session's terminal
        return self._run(line, environment, stdin, stdout, stderr)

    def open_terminal(self) -> tuple[int, int]:
        """Return the descriptors of a new terminal of the namespace: the client's, the shell's."""
        self._open()
        ours = os.open(self._inside("/dev/pts/ptmx"), os.O_RDWR | os.O_NOCTTY)
        fcntl.ioctl(ours, _TIOCSPTLCK, bytes(4))
        return ours, fcntl.ioctl(ours, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY)

    def answers(self, argv: Sequence[str]) -> bool:
        """Whether a command is one of the simulated world; see `HostTools.answers`."""
        return self._tools.answers(argv)

    def close(self) -> None:
        """End every command, and the namespace."""
        with self._opening:
            if self._listener is not None:
                with contextlib.suppress(OSError):
                    self._listener.shutdown(socket.SHUT_RDWR)
                self._listener.close()
            if self._namespaces is not None:
                self._namespaces.close()

    # ------------------------------------------------------------------------- inside

    def _run(
        self,
        line: Sequence[str],
        environment: Mapping[str, str],
        stdin: int | IO[bytes],
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
    ) -> "subprocess.Popen[bytes]":
        home = str(machine.HOME)
        variables = {
            **environment,
            "HOME": home,
            "PATH": _PATH,
            "SHELL": "/bin/sh",
            "USER": self._user,
            "LOGNAME": self._user,
        }
        assigned = [f"{key}={value}" for key, value in variables.items()]
        inside = ["env", "-i", f"--chdir={home}", *assigned, *line]
        return subprocess.Popen(
            enter_command(self._pid, [*_SANDBOX, *inside], self._name),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )

    def _open(self) -> None:
        """Make the namespace, unless it is there."""
        with self._opening:
            if self._namespaces is not None:
                return
            namespaces = Namespaces([self._name])
            self._pid = namespaces.pid(self._name)
            client = Path(host_client.__file__).read_text(encoding="utf-8")
            try:
                prepare_machine(
                    self._pid,
                    host=self._name,
                    user=self._user,
                    password="*",  # noqa: S106 - the hash that no password has
                    sealed={"programs": self._programs(), "client": client},
                )
                self._listener = socket.socket(socket.AF_UNIX)
                self._listener.bind(self._inside(host_client.SOCKET))
                self._listener.listen(128)
            except BaseException:
                namespaces.close()
                raise
            self._namespaces = namespaces
        threading.Thread(target=self._accept, name=f"shell {self._name}", daemon=True).start()

    def _programs(self) -> dict[str, str]:
        python = shlex.quote(sys.executable)
        tools = {
            name: _TOOL.format(python=python, client=machine.CLIENT, name=name)
            for name in self._tools.replaced()
        }
        sftp = _SFTP.format(
            root=machine.SFTP_ROOT,
            folders=" ".join(map(str, _SFTP_FOLDERS)),
            python=python,
            program=machine.PROGRAMS / _SFTP_PROGRAM,
            home=machine.HOME,
        )
        program = Path(sftp_program.__file__).read_text(encoding="utf-8")
        return {**tools, "sudo": _SUDO, "sftp-server": sftp, _SFTP_PROGRAM: program}

    def _inside(self, path: str) -> str:
        """Return where a file of the namespace is seen from here."""
        return f"/proc/{self._pid}/root{path}"

    def _show_ports(self) -> None:
        """Bring the files below /sys/class up to date."""
        root = Path(self._inside(str(machine.DEVICES_OF_CLASS)))
        for path, text in self._tools.class_files().items():
            file = root / Path(path).relative_to("/sys/class")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

    def _accept(self) -> None:
        assert self._listener is not None
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Answer one tool."""
        with connection, connection.makefile("rb") as requests, contextlib.suppress(OSError):
            line = requests.readline()
            if not line:
                return
            outcome = _await(self._clock, self._name, lambda: self._tools.run(json.loads(line)))
            reply = {"stdout": outcome.stdout, "stderr": outcome.stderr, "status": outcome.status}
            connection.sendall(json.dumps(reply).encode() + b"\n")


def _await(clock: Clock, name: str, run: Callable[[], ProgramOutcome]) -> ProgramOutcome:
    """Run a tool in the clock's time and wait for its end."""
    over = threading.Event()
    outcomes: list[ProgramOutcome] = []

    def end(outcome: ProgramOutcome) -> None:
        outcomes.append(outcome)
        clock.schedule(clock.now() + outcome.took, name, over.set)

    def begin() -> None:
        outcome = run()
        if outcome.pending is None:
            end(outcome)
        else:
            outcome.pending.on_end(end)

    clock.schedule(clock.now(), name, begin)
    over.wait()
    return outcomes[0]
