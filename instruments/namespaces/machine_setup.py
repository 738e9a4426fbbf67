"""Gives a namespace the files of a machine of its own, with the program `machine`."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightrig
from lightrig.instruments.namespaces import machine
from lightrig.instruments.namespaces.namespaces import enter_command
from lightrig.testbeds.errors import LightrigError


class MachineError(LightrigError):
    """A namespace cannot have the files of a machine; the text names the step that failed."""


def prepare_machine(
    pid: int,
    *,
    host: str,
    user: str,
    password: str,
    sshd: Mapping[str, Any] | None = None,
    sealed: Mapping[str, Any] | None = None,
) -> str:
    """Give the namespaces of process `pid` a machine's files; see `machine` for the arguments.

    `password` is the hash of the user's password, "*" for one that has none. Returns the public
    host key, empty without `sshd`. Raises `MachineError`.
    """
    interpreter = str(Path(sys.executable).parent)
    packages = map(os.path.realpath, lightrig.__path__)
    request = {
        "host": host,
        "user": user,
        "password": password,
        "shared": [sys.prefix, sys.base_prefix, interpreter, *packages],
        "sshd": sshd,
        "sealed": sealed,
    }
    done = subprocess.run(
        enter_command(pid, [sys.executable, "-I", "-S", machine.__file__]),
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        reply: dict[str, str] = json.loads(done.stdout)
    except ValueError:
        reply = {"error": done.stderr.strip()}
    if "error" in reply:
        raise MachineError(reply["error"])
    return reply["host_key"]
