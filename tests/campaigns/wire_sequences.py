"""Random sequences for the orchestrators over wires: killed services continue and touch nothing.

`WIRE_SEQUENCES` times (default 60) for each system the ten events of a seed of `sequences` come to
`lightrig orchestrate` in a process of its own, over its Unix socket; its switches are served by
another process, which records the commands that it receives. In all but `WIRE_UNHURT` (default 10)
sequences the service is killed and started anew when the k-th command was acknowledged that
changed circuits, k drawn from 1 to n, the number of commands that the seed takes in memory; ones
that end before their k-th command are done in addition. After each event the state is judged by
the light, as in `sequences`, and so are the commands for circuits of jobs that did not change.
"""

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import socket
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from lightrig.harness.orchestration.switch_sessions import Outcomes
from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Circuit, LightrigError, Testbed, load
from lightrig.testbeds.readdressing import readdressed
from tests.campaigns import sequences
from tests.campaigns.preloaded import run_lanes
from tests.campaigns.records import folder, log, read, reported
from tests.campaigns.sequences import CASES, STEPS, Case, changed_groups
from tests.campaigns.switchroom import Switchroom

PERIOD_S = 0.5
ANSWER_TIMEOUT_S = 1.5
"""Of a probe in the services tried, shorter than by default: some switch is often silent."""

CONVERGES_S = 300.0
BEGINS_S = 300.0
LOOK_S = 0.2
STEADY = 3
"""Looks in a row at which all must be as wanted."""

KILL_DELAY_S = 0.003
"""The most between an acknowledgement and the kill."""

LOGIN = "LIGHTRIG_SERVED"


class ServedRoom(Switchroom):
    """The switches of a simulated lab: what they received, which are silent, and a kill.

    Attributes:
        acknowledged: commands that changed circuits, and whose replies were sent.
        on_acknowledged: called with their number after each.
    """

    def __init__(self, testbed: Testbed, clock: Clock, login: tuple[str, str] | None = None):
        super().__init__(testbed)
        logins = dict.fromkeys(testbed.optical_switches, login) if login else {}
        self.world = SimulatedLab(testbed, clock, 1, logins=logins)
        self.acknowledged = 0
        self.on_acknowledged: Callable[[int], object] = lambda number: None
        self._unanswered: Counter[str] = Counter()
        self._back: dict[str, Callable[[], None]] = {}
        for name in testbed.optical_switches:
            self._record(name)
        self.circuits = {name: self._present(name) for name in testbed.optical_switches}

    def _record(self, name: str) -> None:
        matrix, injector = self.world.matrices[name], self.world.injectors[name]
        connect, disconnect, send = matrix.connect, matrix.disconnect, injector.send

        def changed(change: Callable[[], int], named: Collection[Circuit]) -> int:
            before = self._present(name)
            took = change()
            self.circuits[name] = self._present(name)
            circuits = (before ^ self.circuits[name]).union(named)
            self.commands += ((name, circuit) for circuit in sorted(circuits))
            self._unanswered[name] = 1
            return took

        def sent(connection: Any, data: bytes) -> None:
            send(connection, data)
            if injector.fault == "none" and self._unanswered.pop(name, 0):
                self.acknowledged += 1
                self.on_acknowledged(self.acknowledged)

        matrix.connect = lambda each: changed(partial(connect, each), each)  # type: ignore[method-assign]
        matrix.disconnect = lambda ports: changed(partial(disconnect, ports), ())  # type: ignore[method-assign]
        injector.send = sent  # type: ignore[method-assign]

    def _present(self, name: str) -> frozenset[Circuit]:
        return frozenset(itertools.starmap(Circuit, self.world.matrices[name].egress_of.items()))

    def fail(self) -> None:
        """Let switches be silent, and nodes without light, as stated; all others are well."""
        for name in self.circuits:
            injector = self.world.injectors[name]
            injector.fault = "silent" if name in self.silent else "none"
        for node in self.unlit - self._back.keys():
            self._back[node] = self.world.power_off(node)
        for node in self._back.keys() - self.unlit:
            self._back.pop(node)()

    def close(self) -> None:
        self.world.close()


def serve(
    environment: Mapping[str, str], arguments: Sequence[str], output: Path, answer_s: float
) -> None:
    """Run `lightrig orchestrate` with arguments; the environment is that of the lab."""
    from lightrig.harness.cli import main
    from lightrig.harness.orchestration import switch_sessions

    switch_sessions.ANSWER_TIMEOUT_S = answer_s
    os.environ.update(environment)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    main(["orchestrate", *arguments])


def preload_services() -> None:
    """Let processes of services begin with what they import."""
    modules = [
        "lightrig.harness.orchestration.commands.orchestrate",
        "lightrig.harness.orchestration.http_api",
    ]
    multiprocessing.get_context("forkserver").set_forkserver_preload([*modules, __name__])


class Process:
    """A service in a process of its own, and its API."""

    def __init__(
        self,
        system: str,
        file: Path,
        place: Path,
        period_s: float = PERIOD_S,
        answer_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        at = place / "api.socket"
        self.output = place / "output.txt"
        arguments = [system, str(file), "--socket", str(at), "--state", str(place / "state.json")]
        arguments += ["--period", str(period_s)]
        environment = {name: os.environ[name] for name in ("LIGHTRIG_STATE", LOGIN)}
        self._process = multiprocessing.get_context("forkserver").Process(
            target=serve, args=(environment, arguments, self.output, answer_s), daemon=True
        )
        self.output.touch()
        self._process.start()
        self._client = httpx.Client(
            base_url="http://lightrig", transport=httpx.HTTPTransport(uds=str(at)), timeout=BEGINS_S
        )
        ends = time.monotonic() + BEGINS_S
        while self.is_alive:
            # A refused connection of httpx would leave its socket open.
            with socket.socket(socket.AF_UNIX) as tried, contextlib.suppress(OSError):
                tried.connect(str(at))
                return
            if time.monotonic() > ends:
                break
            time.sleep(LOOK_S)
        if not self.was_killed:
            raise LightrigError(f"no service: {self.output.read_text()[-2000:]}")

    @property
    def is_alive(self) -> bool:
        """Whether it was neither killed nor has ended."""
        return self._process.is_alive()

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL has ended it."""
        return self._process.exitcode == -signal.SIGKILL

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process.pid is not None
        return self._process.pid

    def has_ended(self) -> bool:
        """Whether it ends within one look; one that was killed refuses connections before."""
        self._process.join(LOOK_S)
        return not self.is_alive

    def request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out a request; raises `httpx.TransportError` where the service was killed."""
        if request["do"] == "withdraw":
            answered = self._client.delete(f"/v1/jobs/{request['job']}")
        else:
            answered = self._client.post("/v1/requests", json=request)
        if answered.is_error:
            raise LightrigError(answered.text)
        status: Mapping[str, Any] = answered.json()
        return status

    def status(self) -> Mapping[str, Any]:
        """Return the status; raises `httpx.TransportError` where the service was killed."""
        status: Mapping[str, Any] = self._client.get("/v1/status").raise_for_status().json()
        return status

    def history(self, after: int) -> list[Mapping[str, Any]]:
        """Return the events behind an epoch."""
        found = self._client.get("/v1/history", params={"after": after}).raise_for_status().json()
        events: list[Mapping[str, Any]] = found
        return events

    def step(self) -> None:
        """Do nothing: it probes by itself."""
        time.sleep(LOOK_S)

    def kill(self) -> None:
        """Send SIGKILL, at once."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """End it as Ctrl-C does."""
        self._client.close()
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()


class WireSequence(sequences.Sequence):
    """One sequence of events for a service in a process of its own.

    Attributes:
        longest_s: the longest that it took to converge after an event.
    """

    room: ServedRoom
    service: Process

    def __init__(self, case: Case, seed: int, room: ServedRoom, file: Path, place: Path) -> None:
        self._file, self._place = file, place
        self.longest_s = 0.0
        self._jobs_taken: set[str] = set()
        super().__init__(case, seed, room, place)

    def started(self) -> Process:
        return Process(self.case.name, self._file, self._place)

    def asked(self, request: Mapping[str, Any]) -> str:
        """Send a request, again where the service is killed before its answer."""
        while True:
            try:
                self.service.request(request)
            except httpx.TransportError:
                if self.service.has_ended():
                    self.restart()
            except LightrigError:
                # Carried out before the kill: there is no such job any more.
                if request["do"] == "withdraw" and self.kills:
                    break
                raise
            else:
                break
        taken = {request["job"]}
        self._jobs_taken = (
            self._jobs_taken | taken if request["do"] == "submit" else self._jobs_taken - taken
        )
        return json.dumps(request)

    def restart(self) -> None:
        """Start the service anew after a kill; raises `LightrigError` where it ended by itself."""
        self.service.close()
        if not self.service.was_killed:
            raise LightrigError(f"the service ended: {self.service.output.read_text()[-2000:]}")
        self.kills += 1
        self.log.append("killed")
        self.service = self.started()

    def _status(self) -> Mapping[str, Any]:
        """Return the status, again where a busy service has closed the connection meanwhile."""
        while True:
            try:
                return self.service.status()
            except httpx.TransportError:
                if self.service.has_ended():
                    self.restart()

    def step(self, *, last: bool = False) -> list[str]:
        self.room.commands.clear()
        epoch = self._status()["epoch"]
        if not last:
            self.log.append(self.event())
        self.room.fail()
        began, steady = time.monotonic(), 0
        problems: list[str] = []
        while steady < STEADY and time.monotonic() < began + CONVERGES_S:
            self.service.step()
            status = self._status()
            problems = self.case.problems(self.room, status)
            if status["silent"].keys() != self.room.silent:
                problems.append(f"silent are {self.room.silent}, not {status['silent']}")
            if status["jobs"].keys() != self._jobs_taken:
                problems.append(f"jobs are {self._jobs_taken}, not {sorted(status['jobs'])}")
            steady = 0 if problems else steady + 1
            if steady == 1:
                self.longest_s = max(self.longest_s, time.monotonic() - began)
        changed = changed_groups(self.service.history(epoch))
        return problems + [f"TOUCHED {each}" for each in self.touched(status, changed)]


class CountingRoom(Switchroom):
    """Switches in memory that count the commands which change something."""

    count = 0

    def order(self, wanted: Mapping[str, frozenset[Circuit]]) -> Outcomes:
        """Count one command for what is added, one for what is removed and not replaced."""
        for name in wanted.keys() - self.silent:
            added = wanted[name] - self.circuits[name]
            removed = self.circuits[name] - wanted[name]
            used = {port for circuit in added for port in circuit}
            self.count += bool(added) + any(used.isdisjoint(circuit) for circuit in removed)
        return super().order(wanted)


def commands_in_memory(case: Case, seed: int, place: Path, present: Switchroom) -> int:
    """Return how many commands the events of a seed take without a kill, from what is `present`.

    Over wires a few more or fewer are sent, as a probe may come later.
    """
    room = CountingRoom(present.testbed, "none" if case.monitors == "none" else "ingress")
    room.circuits = dict(present.circuits)
    sequence = sequences.Sequence(case, seed, room, place / "rehearsal.json")
    for number in range(STEPS + 1):
        if number == STEPS:
            room.silent, room.unlit = set(), set()
        else:
            sequence.event()
        for _ in range(sequences.ROUNDS_TO_SETTLE):
            sequence.service.step()
    return room.count


def one_sequence(
    case: Case, seed: int, room: ServedRoom, file: Path, place: Path, *, kills: bool
) -> dict[str, Any]:
    """Run a sequence, with a kill or without, and return what was found."""
    place.mkdir()
    dice = random.Random(f"kill {case.name} {seed}")
    room.silent, room.unlit, room.acknowledged = set(), set(), 0
    room.fail()
    n = commands_in_memory(case, seed, place, room)
    k = dice.randint(1, n) if kills and n else None
    delay = dice.choice([0.0, dice.uniform(0, KILL_DELAY_S)])
    found: dict[str, Any] = {"system": case.name, "number": seed, "n": n, "k": k}
    sequence = WireSequence(case, seed, room, file, place)

    def acknowledged(number: int) -> None:
        if number == k:
            kill = sequence.service.kill
            threading.Timer(delay, kill).start() if delay else kill()

    room.on_acknowledged = acknowledged
    problems: list[str] = []
    try:
        for number in range(STEPS + 1):
            if number == STEPS:
                room.silent, room.unlit = set(), set()
            if problems := sequence.step(last=number == STEPS):
                break
    except LightrigError as error:
        problems = [str(error)]
    finally:
        room.on_acknowledged = lambda number: None
        sequence.service.close()
    found |= {"kills": sequence.kills, "commands": room.acknowledged}
    found |= {"longest": round(sequence.longest_s, 1)}
    touched = [each for each in problems if each.startswith("TOUCHED")]
    found |= {"touched": len(touched), "astray": len(problems) > len(touched)}
    if problems:
        found["problems"] = [*sequence.log, *problems]
    return found


@contextlib.contextmanager
def served(case: Case, root: Path) -> Iterator[tuple[ServedRoom, Path]]:
    """Serve the switches of a case; yields them, and the testbed's file with their addresses."""
    clock = SystemClock()
    room = ServedRoom(case.testbed(root), clock)
    services = {name: room.world.services[name] for name in room.circuits}
    os.environ["LIGHTRIG_STATE"] = str(root / "state")
    os.environ[LOGIN] = ":".join(room.world.login)
    file, known = root / "served.yaml", root / "known_hosts"
    known.touch()
    addresses = {name: service.address for name, service in services.items()}
    file.write_text(
        readdressed(
            room.testbed.path, addresses, login=f"env:{LOGIN}", known_hosts=known, target=file
        )
    )
    load(file)
    try:
        yield room, file
    finally:
        room.close()
        clock.close()


def counted(system: str) -> Counter[str]:
    """Return how many sequences of a system were done as wanted, killed and not."""
    done = [each for each in read("wire_sequences") if each["system"] == system]
    return Counter(
        "killed" if each["kills"] else "ended before its kill" if each["k"] else "unhurt"
        for each in done
    )


def lane(case: Case, root: Path, seeds: Iterator[int], count: int, unhurt: int) -> int:
    """Run sequences of one system until all lanes together have done enough."""
    root.mkdir()
    preload_services()
    with served(case, root) as (room, file), log("wire_sequences") as lines:
        for seed in seeds:
            so_far = counted(case.name)
            kills = so_far["unhurt"] >= unhurt
            if kills and so_far["killed"] >= count - unhurt:
                return 0
            place = root / str(seed)
            lines.add(one_sequence(case, seed, room, file, place, kills=kills))
    return 1


def table(done: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the table by system, and whether all is as it should be."""
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in done:
        row = rows[each["system"]]
        row["sequences"] += 1
        row["killed"] += bool(each["kills"])
        row["commands"] += each["commands"]
        row["of other jobs"] += each["touched"]
        row["astray"] += each["astray"]
        row["longest, s"] = max(row["longest, s"], round(each["longest"]))
    columns = ("sequences", "killed", "commands", "of other jobs", "astray", "longest, s")
    printed = [f"{'system':<14}" + "".join(f"{name:>15}" for name in columns)]
    printed += [
        f"{system:<14}" + "".join(f"{row[name]:>15,}" for name in columns)
        for system, row in sorted(rows.items())
    ]
    return printed, not any(row["of other jobs"] or row["astray"] for row in rows.values())


def main(report: Callable[[str], object] = print) -> bool:
    """Run the sequences of all systems side by side; returns whether each kept the promises."""
    count = int(os.environ.get("WIRE_SEQUENCES", "60"))
    unhurt = min(count, int(os.environ.get("WIRE_UNHURT", "10")))
    wanted = os.environ.get("WIRE_SYSTEMS", ",".join(case.name for case in CASES)).split(",")
    os.environ["CAMPAIGNS"] = str(folder())
    lanes = int(os.environ.get("WIRE_LANES", "2"))
    cases = [case for case in CASES if case.name in wanted]
    first = max((each["number"] for each in read("wire_sequences")), default=-1) + 1
    with tempfile.TemporaryDirectory(prefix="lightrig-wires-") as name:
        run_lanes(
            [
                partial(
                    lane,
                    case,
                    Path(name, f"{case.name}-{number}"),
                    itertools.count(first + number, lanes),
                    count,
                    unhurt,
                )
                for case in cases
                for number in range(lanes)
            ]
        )
    return reported(*table(read("wire_sequences")), report) and all(
        counted(case.name).total() >= count for case in cases
    )
