"""Processes that take leases, forked from one that has loaded what they need."""

import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

from lightrig.harness.bench import shared_lease
from lightrig.harness.bench.lease import Lease, LeaseConflictError, MachineLocks, this_owner

NOBODY = 65534

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["lightrig.harness.bench.shared_lease"])


def _on_this_machine(said: Connection, folder: str, keys: list[str], account: int) -> None:
    if account:
        os.setuid(account)
    lease = Lease([MachineLocks(Path(folder))], "a test")
    try:
        lease.take("ocs", keys)
        said.send("leased")
    except LeaseConflictError as error:
        said.send(str(error))
    said.recv()


def _on_host(said: Connection, folder: str, host: str, term: int) -> None:
    shared = shared_lease.SharedFolder(Path(folder), term, machine=host)
    claim = shared.claim("ocs", this_owner(host))
    said.send(claim.number)  # type: ignore[attr-defined]
    said.recv()


class Holder:
    """A process that has taken leases; ends with `end`, or by a signal."""

    def __init__(self, target: object, *arguments: object) -> None:
        self._said, theirs = _context.Pipe()
        self.process = _context.Process(target=target, args=(theirs, *arguments), daemon=True)  # type: ignore[arg-type]
        self.process.start()
        theirs.close()
        self.answer = self._said.recv()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def end(self) -> None:
        """Let it end by itself."""
        self._said.send("end")
        self.process.join()

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.kill()
        self.process.join()


def machine_holder(folder: Path, keys: str = "k", account: int = 0) -> Holder:
    return Holder(_on_this_machine, str(folder), keys.split(","), account)


def host_holder(folder: Path, host: str, term: int) -> Holder:
    return Holder(_on_host, str(folder), host, term)
