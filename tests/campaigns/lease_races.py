"""Races for one instrument: never two holders, and never a lease that nobody can take.

Four kinds, of `RACES` rounds each (default 1,000): two accounts (the second is `nobody`, where
this runs as root), two names of the testbed, two hosts that share a folder, each with a machine
folder of its own, and the same as two network namespaces, each with a mount of its own at the
machine folder and a boot id of its own, where this machine can make them. In a round both begin
at one moment; a winner stays for up to 2 ms, in which it writes its number into a file and reads it
back: another number there is a second holder. Some of the winners are killed while they hold (a
fifth; between hosts, where others wait for a term of 1 s then, one in twenty), and another process,
on the other host, shows that the lease is free again. "Lost in time" are holders that were not run
by a busy machine for most of a term and stopped by themselves.

Every race is a line of the campaign's file (`tests.campaigns.records`).
"""

import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lightrig.harness.bench.lease import (
    Claimant,
    Lease,
    LeaseConflictError,
    LeaseLostError,
    MachineLocks,
)
from lightrig.harness.bench.shared_lease import SECOND, SharedFolder
from lightrig.instruments.namespaces import agent, namespaces
from tests.campaigns.records import Log, log, reported

KINDS = ("accounts", "names", "hosts", "namespaces")
SECOND_ACCOUNT = 65534
STAY_S = 0.002
SPIN_S = 0.002
"""Both sides are awake this long before a race begins."""
TERM = SECOND
KEY = "Polatis N-VST serial 21877"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Hosts:
    """Two hosts as namespaces: the folder `root` is common, its `machine` and the boot id are not.

    Raises `NamespaceError` where they cannot be made.
    """

    def __init__(self, root: Path) -> None:
        (root / "machine").mkdir()
        self._made = namespaces.Namespaces(["host 0", "host 1"])
        self._spaces: list[list[tuple[int, int]]] = []
        for side in (0, 1):
            pid = self._made.pid(f"host {side}")
            kinds = {"net": agent.CLONE_NEWNET, "mnt": agent.CLONE_NEWNS}
            self._spaces.append(
                [
                    (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY), kind)
                    for name, kind in kinds.items()
                ]
            )
            boot = root / f"boot{side}"
            boot.write_text(f"boot of host {side}\n")
            child = os.fork()
            if not child:
                status = 1
                try:
                    self.enter(side)
                    agent.mount("none", str(root / "machine"), "tmpfs", 0)
                    agent.mount(str(boot), BOOT_ID, None, MS_BIND)
                    status = 0
                finally:
                    os._exit(status)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                raise namespaces.NamespaceError("a host's folders cannot be mounted")

    def enter(self, side: int) -> None:
        """Move this process, which has one thread, onto a host."""
        for descriptor, kind in self._spaces[side]:
            agent.setns(descriptor, kind)

    def close(self) -> None:
        """End both hosts."""
        self._made.close()


MS_BIND = 0x1000


def claimants(kind: str, side: int, root: Path) -> list[Claimant]:
    """Return where a side claims the instrument."""
    if kind in ("accounts", "names"):
        return [MachineLocks(root / "machine")]
    if kind == "namespaces":
        return [MachineLocks(root / "machine"), SharedFolder(root / "shared", TERM)]
    shared = SharedFolder(root / "shared", TERM, machine=f"host {side}")
    return [MachineLocks(root / f"machine{side}"), shared]


def contend(
    kind: str, side: int, root: Path, start: float, dies: bool, say: Callable[[str], object]
) -> None:
    """Try to take the lease at `start`, and say what has happened; a side that dies is killed."""
    if kind == "accounts" and side and os.getuid() == 0:
        os.setuid(SECOND_ACCOUNT)
    lease = Lease(claimants(kind, side, root), f"testbed {'lab' if kind != 'names' else side}")
    time.sleep(max(0.0, start - time.monotonic() - SPIN_S))
    while time.monotonic() < start:
        pass
    try:
        lease.take("ocs", [KEY, "address 192.0.2.1 port 3082"])
    except LeaseConflictError:
        say("refused")
        return
    mark = f"{side} {os.getpid()}"
    inside = root / "inside"
    try:
        lease.check()  # as before each change of a lab
        inside.write_text(mark)
        intact = True
        until = time.monotonic() + random.uniform(0, STAY_S)
        while time.monotonic() < until:
            intact &= inside.read_text() == mark
        lease.check()
        intact &= inside.read_text() == mark
        inside.write_text("")
    except LeaseLostError:
        say("lost")
        return
    say(("held, killed" if dies else "held") if intact else "TWO HOLDERS")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    lease.release()


def _say(pipe: int, text: str) -> None:
    os.write(pipe, text.encode())


def race(kind: str, root: Path, dice: random.Random, hosts: Hosts | None) -> tuple[str, ...]:
    """Let two processes race, on `hosts`; returns what became of each."""
    start = time.monotonic() + 0.01
    children = []
    for side in (0, 1):
        dies = dice.random() < (0.2 if kind in ("accounts", "names") else 0.05)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                say = partial(_say, write)
                if hosts is not None:
                    hosts.enter(side)
                contend(kind, side, root, start, dies, say)
            finally:
                os._exit(0)
        os.close(write)
        children.append((child, read))
    found = []
    for child, read in children:
        os.waitpid(child, 0)
        found.append(os.read(read, 100).decode() or "crashed")
        os.close(read)
    return tuple(found)


def free_again(kind: str, root: Path, hosts: Hosts | None, side: int) -> bool:
    """Whether a third process, on a host, can take the lease within three terms."""
    child = os.fork()
    if not child:
        if hosts is not None:
            hosts.enter(side)
        ends = time.monotonic() + 3 * TERM / SECOND + 1
        while time.monotonic() < ends:
            try:
                Lease(claimants(kind, side, root), "a third").take("ocs", [KEY])
            except LeaseConflictError:
                time.sleep(0.01)
            else:
                os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def races(kind: str, rounds: int, log: Log) -> None:
    """Run races of a kind until the log has `rounds` of them."""
    begun = sum(each["kind"] == kind for each in log.done)
    with tempfile.TemporaryDirectory(prefix="lightrig-races-") as folder:
        root = Path(folder)
        root.chmod(0o777)
        (root / "inside").write_text("")
        (root / "inside").chmod(0o666)
        hosts = Hosts(root) if kind == "namespaces" and begun < rounds else None
        for number in range(begun, rounds):
            dice = random.Random(f"{kind} {number}")
            outcomes = race(kind, root, dice, hosts)
            killed = any("killed" in each for each in outcomes)
            stuck = False
            if killed or not any(each.startswith("held") for each in outcomes):
                # From the other host, which cannot see that the holder's process has ended.
                side = int(hosts is not None and "killed" in outcomes[0])
                stuck = not free_again(kind, root, hosts, side)
            log.add({"kind": kind, "number": number, "outcomes": outcomes, "stuck": stuck})
        if hosts is not None:
            hosts.close()


COLUMNS = (
    "races",
    "one held",
    "one after other",
    "none held",
    "killed holding",
    "lost in time",
    "TWO HOLDERS",
    "CRASHED",
    "STUCK",
)


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of kind by outcome, and whether there were no two holders, nothing stuck."""
    rows: dict[str, Counter[str]] = {}
    for each in done:
        found = rows.setdefault(each["kind"], Counter())
        outcomes = each["outcomes"]
        winners = sum(outcome.startswith("held") for outcome in outcomes)
        found["races"] += 1
        found[("none held", "one held", "one after other")[winners]] += 1
        found["killed holding"] += sum("killed" in outcome for outcome in outcomes)
        found["lost in time"] += outcomes.count("lost")
        found["TWO HOLDERS"] += "TWO HOLDERS" in outcomes
        found["CRASHED"] += "crashed" in outcomes
        found["STUCK"] += each["stuck"]
    printed = [f"{'kind':<12}" + "".join(f"{name:>16}" for name in COLUMNS)]
    for kind, found in rows.items():
        printed.append(f"{kind:<12}" + "".join(f"{found[name]:>16,}" for name in COLUMNS))
    good = not any(found[name] for found in rows.values() for name in COLUMNS if name.isupper())
    return printed, good


def main(report: Callable[[str], object] = print) -> bool:
    """Run all kinds; returns whether no race had two holders or a stuck lease."""
    rounds = int(os.environ.get("RACES", "1000"))
    missing = namespaces.available()
    with log("lease_races") as races_log:
        for kind in os.environ.get("RACE_KINDS", " ".join(KINDS)).split():
            if kind == "namespaces" and missing:
                report(f"{kind:<10} left out: {missing}")
                continue
            races(kind, rounds, races_log)
        return reported(*table(races_log.done), report)
