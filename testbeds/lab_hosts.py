"""Hosts of a lab: which testbeds each can reach, and how a night's worker is started there."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field

from lightrig.testbeds.base import Part
from lightrig.testbeds.findings import Findings
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.quantities import Duration

LOOPBACK = "tls://127.0.0.1:0"
"""An address that only this machine reaches, with any free port."""


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
    address: str = Field(
        LOOPBACK,
        description="Where its worker listens for the scheduler, an address of the host; port 0, "
        "or none, is any free one",
        examples=["tls://10.0.0.6"],
    )


class HostsDocument(Part):
    """A night over several hosts."""

    results: str = Field("results", description="Shared folder or URL where all runs come together")
    suites: list[str] = Field(["suites"], description="Files and folders that pytest collects")
    pytest: list[str] = Field(
        default_factory=list, description="Further options of pytest", examples=[["--seed", "1"]]
    )
    scheduler: str = Field(
        LOOPBACK,
        description="Where the scheduler listens, an address of the machine that starts the night; "
        "port 0 is any free one",
        examples=["tls://10.0.0.5:8786"],
    )
    keys: str | None = Field(
        None,
        description="Folder of the key files of scheduler and workers, which lightrig night FILE "
        "--make-keys fills; addresses beyond loopback need it. Left out, each night makes its own",
        examples=["keys"],
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
    """A host: its testbeds by their files as written, and the command that starts its worker.

    address: where its worker listens, `tls://HOST[:PORT]`.
    """

    name: str
    testbeds: tuple[str, ...]
    start: str | None
    parallel: int
    address: str


@dataclass(frozen=True, slots=True)
class LabHosts:
    """A night over several hosts; files are relative to the folder of `path`.

    results: where all runs come together. options: of pytest.
    scheduler: its address, `tls://HOST[:PORT]`. keys: folder of key files; None on loopback only.
    attempts: how often a testbed is begun at most. wait_ns: for a host that reaches it.
    """

    path: Path
    results: str
    suites: tuple[Path, ...]
    options: tuple[str, ...]
    scheduler: str
    keys: Path | None
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
    listening: dict[tuple[str, ...], str] = {("scheduler",): document.scheduler} | {
        ("hosts", name, "address"): host.address for name, host in document.hosts.items()
    }
    _check_addresses(findings, document, listening)
    findings.raise_if_any()
    results = document.results if "://" in document.results else path.parent / document.results
    return LabHosts(
        path,
        str(results),
        tuple(path.parent / suite for suite in document.suites),
        tuple(document.pytest),
        document.scheduler,
        None if document.keys is None else path.parent / document.keys,
        document.attempts,
        int(document.wait),
        tuple(
            LabHost(name, tuple(host.testbeds), host.start, host.parallel, host.address)
            for name, host in document.hosts.items()
        ),
    )


def problem_with_address(address: str) -> str | None:
    """Return what is wrong with an address of a night's scheduler or worker, None if nothing is."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port  # a port that is none raises
    except ValueError as error:
        return f"found {address!r}: {error}"
    if not host or address != f"tls://{parts.netloc}" or "@" in address:
        return f"found {address!r}, expected tls://HOST[:PORT]: every night speaks TLS"
    if _is_unspecified(host):
        return f"found {address!r}, all of the host's addresses; expected one of them"
    return None


def beyond_loopback(address: str) -> bool:
    """Whether other machines may reach `SCHEME://HOST[:PORT]`: any but localhost and 127.0.0.0/8.

    A name may be anything, and is taken for another machine's.
    """
    host = urlsplit(address).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _check_addresses(
    findings: Findings, document: HostsDocument, listening: dict[tuple[str, ...], str]
) -> None:
    wrong = {keys: problem_with_address(address) for keys, address in listening.items()}
    for keys, problem in wrong.items():
        if problem is not None:
            findings.add(keys, problem)
    if any(wrong.values()):
        return
    reached = {keys: address for keys, address in listening.items() if beyond_loopback(address)}
    if document.keys is None:
        for keys, address in reached.items():
            findings.add(
                keys,
                f"found {address} in a file without keys, expected loopback; or add keys: FOLDER, "
                "and fill it by lightrig night FILE --make-keys",
            )
    elif ("scheduler",) in reached:
        for name, host in document.hosts.items():
            if "address" not in host.model_fields_set:
                findings.add(
                    ("hosts", name),
                    f"expected address, where {name}'s worker listens, since the scheduler listens "
                    "beyond loopback; e.g. tls://10.0.0.6",
                    of_key=True,
                )
