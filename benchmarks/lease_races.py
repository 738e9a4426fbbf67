"""Races for one instrument: never two holders, and never a lease that nobody can take.

Three kinds, of `RACES` rounds each (default 1,000): two accounts (the second is `nobody`, where
this runs as root), two names of the testbed, two hosts that share a folder, each with a machine
folder of its own. In a round both begin at one moment; a winner stays for up to 2 ms, in which it
writes its number into a file and reads it back: another number there is a second holder. Some of
the winners are killed while they hold (a fifth; between hosts, where others wait for a term of 1 s
then, one in twenty), and another process shows that the lease is free again. "Lost in time" are
holders that were not run by a busy machine for most of a term and stopped by themselves.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lightrig.harness.bench.lease import (
    Claimant,
    Lease,
    LeaseConflictError,
    LeaseLostError,
    MachineLocks,
)
from lightrig.harness.bench.shared_lease import SECOND, SharedFolder

KINDS = ("accounts", "names", "hosts")
SECOND_ACCOUNT = 65534
STAY_S = 0.002
TERM = SECOND
KEY = "Polatis N-VST serial 21877"


def claimants(kind: str, side: int, root: Path) -> list[Claimant]:
    """Return where a side claims the instrument."""
    if kind != "hosts":
        return [MachineLocks(root / "machine")]
    shared = SharedFolder(root / "shared", TERM, machine=f"host {side}")
    return [MachineLocks(root / f"machine{side}"), shared]


def contend(
    kind: str, side: int, root: Path, start: float, dies: bool, say: Callable[[str], object]
) -> None:
    """Try to take the lease at `start`, and say what has happened; a side that dies is killed."""
    if kind == "accounts" and side and os.getuid() == 0:
        os.setuid(SECOND_ACCOUNT)
    lease = Lease(claimants(kind, side, root), f"testbed {'lab' if kind != 'names' else side}")
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


def race(kind: str, root: Path, dice: random.Random) -> tuple[str, ...]:
    """Let two processes race; returns what became of each."""
    start = time.monotonic() + 0.01
    children = []
    for side in (0, 1):
        dies = dice.random() < (0.05 if kind == "hosts" else 0.2)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                say = partial(_say, write)
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


def free_again(kind: str, root: Path) -> bool:
    """Whether a third process can take the lease, within three terms."""
    child = os.fork()
    if not child:
        ends = time.monotonic() + 3 * TERM / SECOND + 1
        while time.monotonic() < ends:
            try:
                Lease(claimants(kind, 0, root), "a third").take("ocs", [KEY])
            except LeaseConflictError:
                time.sleep(0.01)
            else:
                os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def races(kind: str, rounds: int) -> dict[str, int]:
    """Run `rounds` races of a kind; returns how often each thing has happened."""
    dice = random.Random(kind)
    found: Counter[str] = Counter(dict.fromkeys(("two holders", "nobody", "stuck"), 0))
    with tempfile.TemporaryDirectory(prefix="lightrig-races-") as folder:
        root = Path(folder)
        root.chmod(0o777)
        (root / "inside").write_text("")
        (root / "inside").chmod(0o666)
        for _ in range(rounds):
            outcomes = race(kind, root, dice)
            found["races"] += 1
            found["two holders"] += "TWO HOLDERS" in outcomes or "crashed" in outcomes
            winners = sum(each.startswith("held") for each in outcomes)
            found["one after the other"] += winners == 2
            found["lost in time"] += outcomes.count("lost")
            found["killed while holding"] += sum("killed" in each for each in outcomes)
            found["nobody"] += winners == 0
            if any("killed" in each for each in outcomes) or not winners:
                found["stuck"] += not free_again(kind, root)
    return dict(found)


def main(report: Callable[[str], object] = print) -> bool:
    """Run all kinds; returns whether no race had two holders or a stuck lease."""
    rounds = int(os.environ.get("RACES", "1000"))
    good = True
    for kind in os.environ.get("RACE_KINDS", " ".join(KINDS)).split():
        found = races(kind, rounds)
        good &= not found["two holders"] and not found["stuck"]
        report(f"{kind:<9} {json.dumps(found)}")
        sys.stdout.flush()
    return good


if __name__ == "__main__":
    sys.exit(not main())
