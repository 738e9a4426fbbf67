"""Hosts of a lab: which testbeds each can reach, and how a night's worker is started there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from lightrig.testbeds.base import Part
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.quantities import Duration


class HostPart(Part):
    """A host, the testbeds that it can reach, and how a worker is started on it."""

    testbeds: Annotated[list[str], Field(min_length=1)]
    start: str | None = Field(
        None,
        description="Command that starts its worker; {command} stands for lightrig and its "
        "arguments, {arguments} for the arguments alone. Left out, the worker is started there "
        "by other means: lightrig night FILE --worker HOST --scheduler ADDRESS",
        examples=["{command}", "ssh lab1 'cd /opt/lightrig && .venv/bin/lightrig {arguments}'"],
    )
    parallel: Annotated[int, Field(ge=1)] = Field(
        1, description="Number of testbeds that it measures at once"
    )


class HostsDocument(Part):
    """A night over several hosts."""

    results: str = Field("results", description="Shared folder or URL where all runs come together")
    suites: list[str] = Field(["suites"], description="Files and folders that pytest collects")
    pytest: list[str] = Field(
        default_factory=list, description="Further options of pytest", examples=[["--seed", "1"]]
    )
    scheduler: str = Field(
        "tcp://127.0.0.1:0", description="Where the scheduler listens; port 0 is any free one"
    )
    attempts: Annotated[int, Field(ge=1)] = Field(
        2, description="How often a testbed is begun at most, where workers are lost"
    )
    wait: Duration = Field(
        "5 min",
        validate_default=True,
        description="How long a testbed waits for a host that reaches it, before it is not run",
    )
    hosts: Annotated[dict[str, HostPart], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host: its testbeds by their files as written, and the command that starts its worker."""

    name: str
    testbeds: tuple[str, ...]
    start: str | None
    parallel: int


@dataclass(frozen=True, slots=True)
class LabHosts:
    """A night over several hosts; files are relative to the folder of `path`.

    results: where all runs come together. options: of pytest. scheduler: its address.
    attempts: how often a testbed is begun at most. wait_ns: for a host that reaches it.
    """

    path: Path
    results: str
    suites: tuple[Path, ...]
    options: tuple[str, ...]
    scheduler: str
    attempts: int
    wait_ns: int
    hosts: tuple[LabHost, ...]

    @property
    def testbeds(self) -> tuple[str, ...]:
        """Every testbed that a host reaches, as written, in the order of the file."""
        return tuple(dict.fromkeys(file for host in self.hosts for file in host.testbeds))

    def host(self, name: str) -> LabHost | None:
        """Return the host of that name."""
        return next((host for host in self.hosts if host.name == name), None)

    def resolve(self, file: str) -> Path:
        """Return the path of a testbed's file on this host."""
        return self.path.parent / file


def load_hosts(path: Path) -> LabHosts:
    """Read the file of a night's hosts; raises `TestbedError` with every problem and its place."""
    document, _, findings = read_as(HostsDocument, path)
    for name, host in document.hosts.items():
        if host.start is not None and not (
            "{command}" in host.start or "{arguments}" in host.start
        ):
            findings.add(
                ("hosts", name, "start"), "expected {command} or {arguments} in the command"
            )
    findings.raise_if_any()
    results = document.results if "://" in document.results else path.parent / document.results
    return LabHosts(
        path,
        str(results),
        tuple(path.parent / suite for suite in document.suites),
        tuple(document.pytest),
        document.scheduler,
        document.attempts,
        int(document.wait),
        tuple(
            LabHost(name, tuple(host.testbeds), host.start, host.parallel)
            for name, host in document.hosts.items()
        ),
    )
