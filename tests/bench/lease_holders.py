"""Processes that take leases, forked from one that has loaded what they need."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import preloaded

from lightrig.harness.bench import shared_lease
from lightrig.harness.bench.lease import Lease, LeaseConflictError, MachineLocks, this_owner

NOBODY = 65534
TESTS = Path(__file__).parents[1]


class Holder:
    """A process that has taken leases; ends with `end`, or by a signal."""

    def __init__(self, *arguments: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        command = ("python", "-m", "bench.lease_holders", *arguments)
        self.process = preloaded.Process(command, env=environment, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.answer = self.process.stdout.readline().rstrip("\n")

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> None:
        """Let it end by itself."""
        self.process.send_signal(signal.SIGTERM)
        self._ended()

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.process.kill()
        self._ended()

    def _ended(self) -> None:
        with self.process:
            self.process.wait(60)


def machine_holder(folder: Path, keys: str = "k", account: int = 0) -> Holder:
    return Holder("machine", str(folder), keys, str(account))


def host_holder(folder: Path, host: str, term: int) -> Holder:
    return Holder("host", str(folder), host, str(term))


# ------------------------------------------------------------------------ in the process


def _on_this_machine(folder: str, keys: str, account: str) -> str:
    if int(account):
        os.setuid(int(account))
    try:
        LEASES.append(Lease([MachineLocks(Path(folder))], "a test"))
        LEASES[0].take("ocs", keys.split(","))
    except LeaseConflictError as error:
        return str(error)
    return "leased"


def _on_host(folder: str, host: str, term: str) -> str:
    shared = shared_lease.SharedFolder(Path(folder), int(term), machine=host)
    LEASES.append(shared.claim("ocs", this_owner(host)))
    return str(LEASES[0].number)


LEASES: list[object] = []
"""Keeps what has been taken until the process ends."""

if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print({"machine": _on_this_machine, "host": _on_host}[sys.argv[1]](*sys.argv[2:]), flush=True)
    signal.sigwait({signal.SIGTERM})
