"""Program that runs a command in namespaces; started by `namespaces.enter_command`.

`PID [HOST] -- COMMAND ...` runs a command in the user, network and mount namespaces of PID, with
the host name HOST if one is given.

Each command on a server that is a namespace begins with this program, some two hundred in a test.
So it is a file of its own, short, since Python compiles it at each start, and imports next to
nothing: it starts in 9 ms of processor time, `agent` in 21.
"""

import ctypes
import os
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000


def call(name: str, *arguments: object) -> None:
    """Call a C library function; its errno, when it says -1, is raised as an OSError."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def enter(pid: int, host: str | None) -> None:
    """Move this process into the user, network and mount namespaces of `pid`.

    With `host` it gets a UTS namespace of its own besides, with that host name. The working
    directory stays the same where these namespaces have it; else it is their root.
    """
    try:
        directory = os.getcwd()
    except FileNotFoundError:  # removed since
        directory = "/"
    kinds = {"user": CLONE_NEWUSER, "net": CLONE_NEWNET, "mnt": CLONE_NEWNS}
    # All are opened first: another user namespace may not look into /proc/PID.
    spaces = {kind: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name, kind in kinds.items()}
    ours = os.stat("/proc/self/ns/user")
    for kind, descriptor in spaces.items():
        # Joining the user namespace that one is already in is an error to the kernel.
        if kind != CLONE_NEWUSER or not os.path.samestat(os.fstat(descriptor), ours):
            call("setns", ctypes.c_int(descriptor), ctypes.c_int(kind))
        os.close(descriptor)
    # A holder that has ended has left these namespaces to us alone: nobody would end us.
    os.kill(pid, 0)
    if host is not None:
        call("unshare", ctypes.c_int(CLONE_NEWUTS))
        name = host.encode()
        call("sethostname", ctypes.c_char_p(name), ctypes.c_size_t(len(name)))
    # Joining a mount namespace moves the working directory to its root; there it stays where the
    # namespace hides the directory, as it does /tmp and /var/tmp behind an SSH server.
    try:  # noqa: SIM105 - contextlib takes a quarter of this program's time to import
        os.chdir(directory)
    except OSError:
        pass


def main() -> int:
    """Run the command that the arguments name."""
    match sys.argv[1:]:
        case [pid, "--", *argv] | [pid, _, "--", *argv] if argv:
            try:
                enter(int(pid), sys.argv[2] if sys.argv[2] != "--" else None)
                os.execvp(argv[0], argv)  # noqa: S606 - replacing itself is the purpose
            except OSError as error:
                print(f"cannot run {argv[0]} in the namespaces of {pid}: {error}", file=sys.stderr)
                return 126
        case _:
            print("usage: PID [HOST] -- COMMAND ...", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main())
