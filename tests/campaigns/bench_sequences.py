"""Random sequences of bench commands by two accounts, judged by a model and by a TL1 client.

`BENCH_SEQUENCES` (default 200) sequences of `BENCH_STEPS` (8) of connect, disconnect, set, apply,
ask (queries, one in ten that changes something), restore, and kill -9 during one of them, drawn by
`BENCH_SEED` (1), on a served Polatis and attenuator. After each command a TL1 client and a SCPI
client of this campaign read all circuits, shutters and the attenuation: as the model says, ports
outside the testbed are as they were but for an ask that named them, and an account that another
one's saved state keeps off is refused with that account's name. At the end restore undoes or names
all that was changed. A killed command may have done any part of what it would have done.
"""

import importlib
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.bench.accounts import ANN, BEN
from tests.campaigns.preloaded import forked, preload
from tests.campaigns.records import Log, log, reported

ROOT = Path(__file__).parents[2]
LOGIN = "BENCH_LOGIN"
USER, PASSWORD = "bench", "sequences"
INGRESS, EGRESS = range(1, 5), range(9, 13)
FOREIGN = {(5, 14), (8, 13)}
CLOSED = {2, 7, 12, 15}
"""Ports whose shutters are closed at first; 7 and 15 are not the testbed's."""
PLANS = {
    "straight": {(1, 11), (3, 9), (2, 12), (4, 10)},
    "crossed": {(1, 12), (4, 9), (2, 11), (3, 10)},
}
LAB = f"""
name: rack
switches:
  ocs: {{model: polatis, address: "tl1://ocs.invalid", login: env:{LOGIN}, size: 8x8}}
servers:
  server[0-1]: {{address: "ssh://{{name}}.invalid", login: env:{LOGIN}, nics: {{nic0: {{
    ports: 2, netdev: "ens1f{{p}}", rate: 100G, transceiver: lr4}}}}}}
instruments:
  voa: {{kind: attenuator, model: keysight-n7764a, address: "scpi://voa.invalid",
        login: env:{LOGIN}, channels: 4}}
transceivers:
  lr4: {{wavelength: 1310 nm, launch: {{min: -4 dBm, max: 4 dBm}},
        receive: {{min: -10 dBm, max: 4 dBm}}}}
fibers:
  - server[0-1].nic0.p[0-1] <-> ocs
plans:
  straight: [server0.nic0.p0 <-> server1.nic0.p0, server0.nic0.p1 <-> server1.nic0.p1]
  crossed: [server0.nic0.p0 <-> server1.nic0.p1, server0.nic0.p1 <-> server1.nic0.p0]
simulation:
  switches:
    ocs: {{acknowledge: {{mean: 10 ms}}, dark: {{mean: 2 ms}}, settle: {{mean: 5 ms}}}}
"""

LATE = "did not answer within"
"""Printed where an instrument was not served in time: any part may be done, as after a kill."""

Pairs = frozenset[tuple[int, int]]


class Client:
    """Another TL1 client of the switch, and a SCPI client of the attenuator."""

    def __init__(self, switch: str, attenuator: str) -> None:
        self._tl1, self._scpi = map(_connected, (switch, attenuator))
        self.tl1(f"ACT-USER::{USER}:1::{PASSWORD};")

    def tl1(self, command: str) -> str:
        self._tl1.sendall(command.encode())
        answer = b""
        # Between answers come reports of ports that were opened and closed.
        while not re.search(rb"(COMPLD|DENY)[^;]*;\s*$", answer):
            answer += self._tl1.recv(65536)
        assert b"COMPLD" in answer, (command, answer)
        return answer.decode()

    def circuits(self) -> Pairs:
        found = re.findall(r'"(\d+),(\d+)"', self.tl1("RTRV-PATCH:::2:;"))
        return frozenset((int(i), int(e)) for i, e in found if int(e))

    def closed(self) -> frozenset[int]:
        """Return the ports whose shutters are closed, of all."""
        ports = "&".join(map(str, range(1, 17)))
        found = re.findall(r'"(\d+):(OPEN|CLOSED)"', self.tl1(f"RTRV-PORT-SHUTTER::{ports}:5:;"))
        assert len(found) == 16, found
        return frozenset(int(port) for port, state in found if state == "CLOSED")

    def attenuation(self) -> float:
        self._scpi.sendall(b":INP1:ATT?\n")
        return float(self._scpi.makefile().readline())

    def clear(self) -> None:
        """Bring both instruments to where each sequence begins."""
        for ingress, _ in self.circuits():
            self.tl1(f"DLT-PATCH::{ingress}:3:;")
        for ingress, egress in FOREIGN:
            self.tl1(f"ENT-PATCH::{ingress},{egress}:4:;")
        for port in self.closed() - CLOSED:
            self.tl1(f"RLS-PORT-SHUTTER::{port}:6:;")
        for port in CLOSED - self.closed():
            self.tl1(f"OPR-PORT-SHUTTER::{port}:7:;")
        self._scpi.sendall(b":INP1:ATT 0\n")

    def close(self) -> None:
        self._tl1.close()
        self._scpi.close()


def _connected(address: str) -> socket.socket:
    host, _, port = address.partition("://")[2].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


@dataclass(frozen=True)
class Model:
    """The lab: circuits, attenuation, closed shutters, as found, and whose saved states there are.

    doubt: whether a kill may have left something that a restore does not undo by itself.
    """

    circuits: Pairs
    db: float = 0.0
    found: Pairs = frozenset()
    found_db: float = 0.0
    owner: int | None = None
    owner_db: int | None = None
    closed: frozenset[int] = frozenset(CLOSED)
    found_closed: frozenset[int] = frozenset()
    owner_closed: int | None = None
    doubt: bool = False

    def other(self, who: int) -> int | None:
        """Return the account that keeps `who` off the switch, if one does."""
        return next((o for o in (self.owner, self.owner_closed) if o not in (None, who)), None)

    @property
    def owners(self) -> tuple[int | None, int | None, int | None]:
        return self.owner, self.owner_db, self.owner_closed


def ours(pairs: Iterable[tuple[int, int]]) -> Pairs:
    return frozenset((i, e) for i, e in pairs if i in INGRESS and e in EGRESS)


def after_circuits(now: Model, who: int, circuits: Pairs) -> Model:
    found = now.found if now.owner else now.circuits
    owner = None if ours(circuits) == ours(found) else who
    return replace(now, circuits=circuits, found=found, owner=owner)


def after_setting(now: Model, who: int, db: float) -> Model:
    found = now.found_db if now.owner_db else now.db
    return replace(now, db=db, found_db=found, owner_db=None if db == found else who)


def after_shutters(now: Model, who: int, closed: frozenset[int]) -> Model:
    found = now.found_closed if now.owner_closed else now.closed
    owner = None if closed == found else who
    return replace(now, closed=closed, found_closed=found, owner_closed=owner)


def after_restore(now: Model, who: int) -> Model:
    if now.owner_closed == who:
        now = replace(now, closed=now.found_closed, owner_closed=None)
    mine, mine_db = now.owner == who, now.owner_db == who
    circuits = ours(now.found) | (now.circuits - ours(now.circuits)) if mine else now.circuits
    now = replace(now, db=now.found_db if mine_db else now.db, circuits=circuits)
    now = replace(now, owner=None if mine else now.owner)
    return replace(now, owner_db=None if mine_db else now.owner_db)


@dataclass(frozen=True)
class Step:
    """A command of an account: its words, the status that it ends with, and the lab after it.

    refused: the account that the command must name. asks: it is an ask that changes something.
    """

    who: int
    words: tuple[str, ...]
    status: int
    after: Model
    refused: int | None = None
    asks: bool = False


def drawn(dice: random.Random, now: Model, who: int) -> Step:
    """Draw a command, and say by the model how it ends."""
    kind = dice.choice(("connect", "connect", "disconnect", "set", "apply", "ask", "restore"))
    if kind == "restore":
        other = next((o for o in now.owners if o not in (None, who)), None)
        return Step(who, ("restore",), 3 if other else 0, after_restore(now, who), other)
    if kind == "set" and dice.random() < 0.5:
        return _shuttered(dice, now, who)
    if kind == "set":
        db = float(dice.randint(0, 6))
        words = ("set", f"voa.1.attenuation={db:g}dB")
        if now.owner_db not in (None, who):
            return Step(who, words, 3, now, now.owner_db)
        return Step(who, words, 0, after_setting(now, who, db))
    words, status, circuits = _of_switch(dice, now, kind)
    there = kind == "connect" and circuits == now.circuits  # nothing is to be done
    if now.other(who) and status == 0 and not there:
        return Step(who, words, 3, now, now.other(who))
    if kind == "ask" and words[-1].startswith(("OPR", "RLS")):
        port = int(words[-1].split(":")[2])
        after = after_shutters(now, who, _with(now.closed, port, closes=words[-1][0] == "O"))
        return Step(who, words, 0, after, asks=True)
    after = after_circuits(now, who, circuits) if status == 0 and not there else now
    return Step(who, words, status, after, asks=kind == "ask" and circuits != now.circuits)


def _shuttered(dice: random.Random, now: Model, who: int) -> Step:
    """Draw a shutter to close or open; one in eight is of a port that is not the testbed's."""
    port = dice.choice([*INGRESS, *EGRESS] if dice.random() < 7 / 8 else [6, 7, 15, 16])
    closes = dice.random() < 0.5
    words = ("set", f"ocs.{port}.shutter={'closed' if closes else 'open'}")
    if port not in (*INGRESS, *EGRESS):
        return Step(who, words, 2, now)
    if now.other(who):
        return Step(who, words, 3, now, now.other(who))
    return Step(who, words, 0, after_shutters(now, who, _with(now.closed, port, closes=closes)))


def _with(closed: frozenset[int], port: int, *, closes: bool) -> frozenset[int]:
    return closed | {port} if closes else closed - {port}


def _of_switch(dice: random.Random, now: Model, kind: str) -> tuple[tuple[str, ...], int, Pairs]:
    """Return the words of a command for the switch, its status, and the circuits after it."""
    circuits = now.circuits
    if kind == "apply":
        plan = dice.choice(sorted(PLANS))
        return ("apply", plan), 0, (circuits - ours(circuits)) | PLANS[plan]
    if kind == "ask":
        return _asked(dice, circuits)
    ingress = dice.choice([*INGRESS, *INGRESS, 5, 6])
    egress = dice.choice([*EGRESS, *EGRESS, 14, 15])
    if kind == "disconnect" and ours(circuits) and dice.random() < 0.7:
        ingress, egress = dice.choice(sorted(ours(circuits)))
    pair, words = (ingress, egress), (kind, f"ocs.{ingress}", f"ocs.{egress}")
    if not ours([pair]):
        return words, 2, circuits
    if kind == "disconnect":
        return words, 0 if pair in circuits else 2, circuits - {pair}
    way = {each for each in circuits if (each[0] == ingress) != (each[1] == egress)}
    if way and dice.random() < 0.5:
        return words, 2, circuits
    return (*words, "--replace"), 0, (circuits - way) | {pair}


def _asked(dice: random.Random, circuits: Pairs) -> tuple[tuple[str, ...], int, Pairs]:
    """Draw a query, or one command in ten that changes a circuit or a shutter of the testbed's."""
    words = ("ask", "--yes", "ocs")
    if dice.random() >= 0.1:
        query = dice.choice(("RTRV-PATCH:::1:;", "RTRV-NETYPE:::1:;"))
        return (*words, query), 0, circuits
    if dice.random() < 1 / 3:
        verb, port = dice.choice(("OPR", "RLS")), dice.choice([*INGRESS, *EGRESS])
        return (*words, f"{verb}-PORT-SHUTTER::{port}:1:;"), 0, circuits
    foreign = dice.random() < 0.5
    sides = (range(5, 9), range(13, 17)) if foreign else (INGRESS, EGRESS)
    used = {port for pair in circuits for port in pair}
    free = [[port for port in side if port not in used] for side in sides]
    there = sorted(pair for pair in circuits if pair[0] in sides[0])
    if there and (not all(free) or dice.random() < 0.5):
        pair = dice.choice(there)
        return (*words, f"DLT-PATCH::{pair[0]}:1:;"), 0, circuits - {pair}
    pair = dice.choice(free[0]), dice.choice(free[1])
    return (*words, f"ENT-PATCH::{pair[0]},{pair[1]}:1:;"), 0, circuits | {pair}


@dataclass
class Bench:
    """The served lab, and commands as processes of accounts."""

    folder: Path
    client: Client
    accounts: tuple[int, int]
    printed: str = ""
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    usual_s: float = 0.5

    def run(self, step: Step, killed_after: float | None = None) -> int | None:
        """Run a command; return its status, or None where it was killed before it ended."""
        output = self.folder / "printed.txt"
        output.unlink(missing_ok=True)
        output.touch()
        began = time.monotonic()
        child = forked(lambda: self._command(step), output)
        status = None
        if killed_after is not None:
            time.sleep(killed_after)
            os.killpg(child, 9)
        _, ended = os.waitpid(child, 0)
        if not os.WIFSIGNALED(ended):
            status = os.waitstatus_to_exitcode(ended)
        self.printed = output.read_text()
        if killed_after is None:
            self.usual_s += (time.monotonic() - began - self.usual_s) / 8
        return status

    def _command(self, step: Step) -> int:
        from lightrig.harness.cli import main as command

        if os.getuid() == 0 and step.who:
            os.setgroups([])
            os.setgid(step.who)
            os.setuid(step.who)
        verb, *rest = step.words
        options = [word for word in rest if word.startswith("--")]
        try:
            command([verb, *options, str(self.folder / "served.yaml"), *(set_of(rest, options))])
        except Exception:
            traceback.print_exc()
            raise
        return 0

    def load(self) -> None:
        """Load all that commands load: another account may not read where Python is."""
        preload(simulation=False)
        importlib.import_module("encodings.utf_8_sig")
        for words in (
            ("connect", "ocs.1", "ocs.9"),
            ("connect", "ocs.1", "ocs.10"),
            ("disconnect", "ocs.5", "ocs.14"),
            ("set", "voa.1.attenuation=3dB"),
            ("set", "ocs.1.shutter=closed"),
            ("apply", "straight"),
            ("ask", "--yes", "ocs", "RTRV-PATCH:::1:;"),
            ("restore",),
        ):
            text = io.StringIO()
            with redirect_stdout(text), redirect_stderr(text), suppress(SystemExit):
                self._command(Step(0, words, 0, Model(frozenset())))

    def owners(self) -> tuple[int | None, int | None, int | None]:
        """Return whose saved states there are: of circuits, the attenuator and shutters."""
        found: dict[str, int] = {}
        for path in (self.folder / "state").rglob("*.found.json"):
            state = json.loads(path.read_text())
            name = "circuits" if "cabling" in state else str(state["origin"]["instrument"])
            found[name] = path.stat().st_uid
        return found.get("circuits"), found.get("voa"), found.get("ocs")

    def judge(self, step: Step, before: Model, status: int | None) -> Model:
        """Compare what is there with the model; return the model of what is there."""
        circuits, db = self.client.circuits(), self.client.attenuation()
        closed = self.client.closed()
        if LATE in self.printed:  # the lab is on this machine, which may be busy
            self.counts["answered too late"] += 1
            status = None
        after, killed = step.after, status is None
        owners = self.owners()
        if not killed:
            wrong = []
            if before.doubt and status == 3 and step.status != 3:
                after = replace(before, doubt=True)  # a person has to decide; nothing was changed
            elif status != step.status:
                wrong.append(f"status {status}, not {step.status}")
            if step.refused and str(step.refused) not in self.printed:
                wrong.append(f"{step.refused} is not named")
            if (circuits, db) != (after.circuits, after.db):
                wrong.append(f"found {sorted(circuits)} {db}, not {sorted(after.circuits)}")
            if closed != after.closed:
                wrong.append(f"closed {sorted(closed)}, not {sorted(after.closed)}")
            if owners != after.owners and not before.doubt:
                wrong.append(f"states of {owners}, not {after.owners}")
            self.problems += [f"{step.who} {' '.join(step.words)}: {one}" for one in wrong]
            if wrong:
                self.problems.append(self.printed[-600:])
        elif not before.circuits & step.after.circuits <= circuits <= (
            before.circuits | step.after.circuits
        ) or (db, closed) not in [(a.db, a.closed) for a in (before, step.after)]:
            self.problems.append(f"killed {step.words}: {sorted(circuits)} {db} {sorted(closed)}")
        owner, owner_db, owner_closed = owners
        found = before.found if before.owner else before.circuits
        found_db = before.found_db if before.owner_db else before.db
        doubt = after.doubt or before.doubt or killed
        found_closed = before.found_closed if before.owner_closed else before.closed
        return Model(
            *(circuits, db, found, found_db, owner, owner_db),
            *(closed, found_closed, owner_closed, doubt and any(owners)),
        )


def set_of(rest: list[str], options: list[str]) -> Iterator[str]:
    return (word for word in rest if word not in options)


def sequence(bench: Bench, number: int, steps: int, seed: int) -> list[str]:
    """Run one sequence; return what went as the model does not allow."""
    dice = random.Random(f"{seed} {number}")
    shutil.rmtree(bench.folder / "state", ignore_errors=True)
    (bench.folder / "state").mkdir(mode=0o777)
    (bench.folder / "state").chmod(0o1777)
    bench.client.clear()
    bench.problems, bench.counts = [], Counter()
    lab = Model(bench.client.circuits())
    begin, named = lab, set[tuple[int, int]]()
    for _ in range(steps):
        step = drawn(dice, lab, dice.choice(bench.accounts))
        killed = dice.random() * bench.usual_s if dice.random() < 0.2 else None
        status = bench.run(step, killed)
        if step.asks and step.words[-1].startswith(("ENT", "DLT")):
            named |= step.after.circuits ^ lab.circuits
        before, lab = lab, bench.judge(step, lab, status)
        bench.counts[step.words[0]] += 1
        bench.counts["refused for the other account"] += step.refused is not None
        bench.counts["asks that change"] += step.asks
        if status is None:
            was, now = ((each.circuits, each.db, each.closed) for each in (before, lab))
            bench.counts[f"killed, {'changed' if was != now else 'did not'}"] += 1
    for who in bench.accounts:
        finish(bench, lab, who)
    circuits = bench.client.circuits()
    if changed := (circuits ^ begin.circuits) - {pair for pair in named if not ours([pair])}:
        bench.problems.append(f"left changed at the end: {sorted(changed)}")
    if bench.client.attenuation() != begin.db:
        bench.problems.append(f"left at {bench.client.attenuation()} dB")
    if bench.client.closed() != CLOSED:
        bench.problems.append(f"left with {sorted(bench.client.closed())} closed")
    if any(bench.owners()):
        bench.problems.append(f"states are left of {bench.owners()}")
    return bench.problems


def finish(bench: Bench, lab: Model, who: int) -> None:
    """Restore as an account; what it does not undo it must name, and --force undoes."""
    status = bench.run(Step(who, ("restore",), 0, lab))
    if status == 3 and who in bench.owners():
        differing = ours(bench.client.circuits()) ^ ours(lab.found)
        printed = bench.printed
        shut = bench.client.closed() ^ lab.found_closed if lab.owner_closed else ()
        names = [*(f"{i}>{e}" for i, e in differing), *(f"shutter {port} " for port in shut)]
        if not any(name in printed for name in names):
            bench.problems.append(f"restore names none of {sorted(names)}: {printed[-600:]}")
        bench.run(Step(who, ("restore", "--force"), 0, lab))


@contextmanager
def served(folder: Path) -> Iterator[Client]:
    """Serve the lab by a fork of this process; yields the clients."""
    (folder / "lab.yaml").write_text(LAB)
    target = folder / "served.yaml"
    printed = folder / "served"
    os.mkfifo(printed)
    arguments = ["serve", str(folder / "lab.yaml"), "--port", "0", "--write", str(target), "--json"]
    child = forked(lambda: _serve(arguments), printed)
    try:
        with printed.open() as lines:
            places = {each["name"]: each["address"] for each in json.loads(lines.readline())}
        target.chmod(0o644)
        with closing(Client(places["ocs"], places["voa"])) as client:
            yield client
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)


def _serve(arguments: list[str]) -> int:
    from lightrig.harness.cli import main as command

    command(arguments)
    return 0


def run_all(several: int, steps: int, seed: int, lines: Log, done: Callable[[int], bool]) -> None:
    """Run sequences; the result of each is a line of the campaign's file."""
    with tempfile.TemporaryDirectory(prefix="lightrig-bench-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        os.environ[LOGIN] = f"{USER}:{PASSWORD}"
        os.environ["LIGHTRIG_STATE"] = str(folder / "state")
        os.environ["HOME"] = made
        me = os.getuid()
        (folder / "state").mkdir()
        with served(folder) as client:
            bench = Bench(folder, client, (ANN, BEN) if me == 0 else (me, me))
            bench.load()
            for number in range(several):
                if not done(number):
                    problems = sequence(bench, number, steps, seed)
                    counts = dict(bench.counts)
                    lines.add({"number": number, "counts": counts, "problems": problems})


def table(done: list[dict[str, object]]) -> tuple[list[str], bool]:
    """Return the campaign's lines for people, and whether all is well."""
    wrong = [each for each in done if each["problems"]]
    counted = Counter(bool(each["problems"]) for each in done)
    lines = [f"{counted[False]} of {len(done)} sequences as the model says"]
    steps: Counter[str] = Counter()
    for each in done:
        steps.update(each["counts"])  # type: ignore[call-overload]
    lines.append(", ".join(f"{name} {count}" for name, count in sorted(steps.items())))
    for each in wrong[:20]:
        lines += [f"sequence {each['number']}:", *map(str, each["problems"])]  # type: ignore[call-overload]
    return lines, not wrong


def main() -> bool:
    """Run the sequences that were not run yet; print the table, and return whether all is well."""
    setting = os.environ.get
    several, steps = int(setting("BENCH_SEQUENCES", "200")), int(setting("BENCH_STEPS", "8"))
    with log("bench_sequences") as lines:
        before = {each["number"] for each in lines.done}
        run_all(several, steps, int(setting("BENCH_SEED", "1")), lines, before.__contains__)
        return reported(*table(lines.done), print)
