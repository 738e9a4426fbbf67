"""Linux network and mount namespaces that live as long as the program that made them.

`Namespaces` starts one holder process per name, each in a network and a mount namespace of its
own, with a fresh sysfs on /sys so that /sys/class/net shows that namespace's devices. A namespace
has no name in the file system: it disappears with the last process in it. A keeper process stands
between the program and the holders; it ends them, and everything else that still runs in their
namespaces, as soon as the program's pipe closes, however the program ends.

A user without the privilege to make namespaces gets them inside one user namespace, shared by all
holders, in which that user is mapped to root.

Only namespaces made here are ever changed.
"""

import functools
import os
import sys
from collections.abc import Sequence

from lightrig.instruments.namespaces import agent, enter
from lightrig.instruments.namespaces.agent_process import AgentError, AgentProcess
from lightrig.testbeds.errors import LightrigError

# Run as files, without site packages: they need none, and start ten times sooner.
_PYTHON = (sys.executable, "-I", "-S")

OBSTACLE = "network namespaces cannot be made here"
_REMEDY = (
    "run it as root, raise user.max_net_namespaces and user.max_user_namespaces (sysctl), "
    "or give a container --privileged"
)


class NamespaceError(LightrigError):
    """Raised where namespaces cannot be made, and for the name of one that does not exist."""


class Namespaces(AgentProcess):
    """One network and mount namespace per name, until closed or until this program ends.

    `names` are the caller's; the kernel does not know them. Raises `NamespaceError` when
    namespaces cannot be made, with the step that was refused.
    """

    def __init__(self, names: Sequence[str]) -> None:
        if len(set(names)) != len(names):
            raise NamespaceError(f"namespaces need different names, got {', '.join(names)}")
        super().__init__([*_PYTHON, agent.__file__, "keep", str(len(names))], "the keeper process")
        try:
            pids: list[int] = self.read_reply()["pids"]
        except AgentError as error:
            self.close()
            raise NamespaceError(f"{OBSTACLE}: {error}; {_REMEDY}") from error
        self._pids = dict(zip(names, pids, strict=True))

    def pid(self, name: str) -> int:
        """Return the process id of the holder of `name`; raise `NamespaceError`."""
        try:
            return self._pids[name]
        except KeyError:
            known = ", ".join(self._pids)
            raise NamespaceError(f"no namespace is called {name}; there are {known}") from None


def enter_command(pid: int, argv: Sequence[str], host: str | None = None) -> list[str]:
    """Return the command that runs `argv` in the user, network and mount namespaces of `pid`.

    `host` is the host name that `argv` and its children see; None for this machine's. The command
    replaces itself by `argv`: same process, same pipes, same working directory, or the root where
    the namespaces hide that one. It ends with status 126 and a message on stderr when the
    namespaces cannot be entered.
    """
    return [*_PYTHON, enter.__file__, str(pid), *([] if host is None else [host]), "--", *argv]


def is_root() -> bool:
    """Whether this process is root and has root's rights; a container's root may lack them."""
    return os.geteuid() == 0 and agent.privileged()


@functools.cache
def available() -> str | None:
    """Return why namespaces cannot be made here, after trying to make one; None if they can."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    try:
        Namespaces(["trial"]).close()
    except NamespaceError as error:
        return str(error)
    return None
