"""The workbench that the page serves, for tests that type what the page types."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import preloaded
import pytest

from lightrig.harness.cli.serve import LOGIN
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.namespaces.sshd import SshdError, sshd_program

ROOT = Path(__file__).parents[2]
FILE = ROOT / "testbeds" / "workbench.yaml"


def skip_where_impossible() -> None:
    """Skip where this machine cannot serve namespaces."""
    if reason := kernel.available():
        pytest.skip(reason)
    try:
        sshd_program()
    except SshdError as error:
        pytest.skip(str(error))


@dataclass
class Workbench:
    """A served workbench: its file, the environment of its users, and a client of the switch."""

    file: Path
    environment: dict[str, str]
    address: tuple[str, int]
    login: tuple[str, str]

    def circuits(self) -> set[str]:
        """Return all circuits, asked over TL1 by a socket that knows nothing of Lightrig."""
        user, password = self.login
        with socket.create_connection(self.address) as wire, wire.makefile("rwb") as stream:

            def ask(command: str) -> str:
                stream.write(command.encode())
                stream.flush()
                found = b""
                while not found.rstrip().endswith(b";"):
                    found += stream.read1()
                return found.decode()

            ask(f"ACT-USER::{user}:1::{password};")
            answer = ask("RTRV-PATCH:::2:;")
        lines = (line.strip().strip('"') for line in answer.splitlines())
        return {line.replace(",", ">") for line in lines if line.replace(",", "").isdigit()}


@contextmanager
def workbench(folder: Path) -> Iterator[Workbench]:
    """Serve the workbench, as `bench.yaml` in a folder."""
    file = folder / "bench.yaml"
    command = ["lightrig", "serve", str(FILE), "--write", str(file), "--port", "0", "--json"]
    (folder / "state").mkdir(mode=0o700)
    with preloaded.Process(command, folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        services = {each["name"]: each for each in json.loads(process.stdout.readline())}
        ocs = services["ocs"]
        host, port = ocs["address"].removeprefix("tl1://").split(":")
        login = ocs["user"], ocs["password"]
        environment = {
            **os.environ, LOGIN: ":".join(login), "LIGHTRIG_STATE": str(folder / "state"),
        }  # fmt: skip
        try:
            yield Workbench(file, environment, (host, int(port)), login)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
