"""Linux namespaces of our own: they live as long as the program that made them.

`Namespaces` starts one holder process a name, each in a network and a mount namespace of
its own, with a fresh sysfs on /sys so that /sys/class/net shows that namespace's devices.
No name is written anywhere: when the last process in a namespace ends, it is gone. A keeper
process stands between the program and the holders; it ends them, and whatever else still
runs in their namespaces, as soon as the program closes its pipe, in whatever way it dies.

A user without the privilege to make namespaces gets them inside one user namespace, shared
by all holders, in which that user is mapped to root.

Only namespaces made here are ever changed.
"""

import functools
import json
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from instruments import namespaces
from testbeds.errors import LightrigError

# Run as a file, without site packages: it needs none, and starts ten times sooner.
_PROGRAM = (sys.executable, "-I", "-S", namespaces.__file__)
_END_SECONDS = 10.0


class NamespaceError(LightrigError):
    """Namespaces cannot be made here, or one that was asked for does not exist."""


class Namespaces:
    """One network and mount namespace a name, until closed or until this program ends.

    `names` are the caller's words for them; they appear nowhere outside. Raises
    `NamespaceError` when namespaces cannot be made, with the step that was refused.
    """

    def __init__(self, names: Sequence[str]) -> None:
        if len(set(names)) != len(names):
            raise NamespaceError(f"each namespace needs a name of its own, got {', '.join(names)}")
        self._keeper = subprocess.Popen(
            [*_PROGRAM, "keep", str(len(names))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._keeper.stdout is not None
        answer = self._keeper.stdout.readline()
        reply: dict[str, Any] = (
            json.loads(answer) if answer else {"error": "the keeper process ended at once"}
        )
        if "error" in reply:
            self.close()
            raise NamespaceError(f"network namespaces cannot be made here: {reply['error']}")
        pids: list[int] = reply["pids"]
        self._pids = dict(zip(names, pids, strict=True))

    def pid(self, name: str) -> int:
        """Process id of the holder called `name`; raises `NamespaceError` for another name."""
        try:
            return self._pids[name]
        except KeyError:
            known = ", ".join(self._pids)
            raise NamespaceError(f"no namespace is called {name}; there are {known}") from None

    def close(self) -> None:
        """End the holders and whatever still runs in their namespaces. May be called twice."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        try:
            self._keeper.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        self._keeper.stdout.close()

    def __enter__(self) -> "Namespaces":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def enter_command(pid: int, argv: Sequence[str]) -> list[str]:
    """Command that runs `argv` in the user, network and mount namespaces of `pid`.

    It replaces itself by `argv`: same process, same pipes, same working directory. It ends
    with status 126 and a sentence on stderr when the namespaces cannot be entered.
    """
    return [*_PROGRAM, "enter", str(pid), "--", *argv]


@functools.cache
def available() -> str | None:
    """None when namespaces can be made here (one is made, to know), else why not."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    try:
        Namespaces(["trial"]).close()
    except NamespaceError as error:
        return str(error)
    return None
