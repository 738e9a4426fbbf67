"""RailX 16 x 16 over wires: one service in a process, 2,016 served switches divided over others.

The file is what `lightrig generate railx --by-sizes` writes; in a mount namespace the names of its
switches lead to loopback addresses of their own, where `WIDE_PROCESSES` (default 4) processes serve
them over TL1. Jobs are submitted and withdrawn, a node loses its light, a switch falls silent, both
return, and the service is killed when half of a job's commands were acknowledged. After each event
the state is judged as in `wire_sequences`, by the light and by the commands that switches received;
the time until that was so is printed, with the service's processor time and memory.

`WIDE_SIZE` states another grid: nodes a side, and the mesh and ports of a node ("4,2,4" has 64
switches). After the script the service is left alone for `WIDE_MINUTES` (default 0), and its
threads and memory are noted each minute: from the tenth on it must not grow by more than
`GROWTH_MIB` a minute.
"""

import itertools
import multiprocessing
import os
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

from lightrig.harness.orchestration.switch_sessions import ANSWER_TIMEOUT_S
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.runtime.structure import GridStructure
from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import Testbed, load
from tests.campaigns.records import folder, log, read
from tests.campaigns.sequences import Grid
from tests.campaigns.switchroom import Switchroom
from tests.campaigns.wire_sequences import (
    LOGIN,
    Process,
    ServedRoom,
    WireSequence,
    preload_services,
)

SIDE, MESH, PORTS = map(int, os.environ.get("WIDE_SIZE", "16,7,9").split(","))
TL1 = 3082
INSIDE = "WIDE_FABRIC_INSIDE"
ACCOUNT = ("bench", "served alone on this machine")
OPEN_FILES = 16384
PERIOD_S = 5.0
"""Of probes: one of all switches takes one to two seconds of a core here, and theirs as much."""

GROWTH_MIB = 0.05
MOST_THREADS = 64
SETTLES_MINUTES = 10


class Wide(Grid):
    """The grid of this campaign, its jobs named by the script."""

    COLUMNS, ROWS, RAILS = SIDE, SIDE, MESH * PORTS

    def testbed(self, root: Path) -> Testbed:
        """Return it whole, for the checker alone."""
        (root / "whole.yaml").write_text(render(SIDE, SIDE, mesh=MESH, ports=PORTS))
        return load(root / "whole.yaml")

    def problems(self, room: Switchroom, status: Mapping[str, Any]) -> list[str]:
        assert isinstance(room, DividedRoom)
        room.look()
        return super().problems(room, status)


def address(index: int) -> str:
    """Return the loopback address of the switch of an index."""
    return f"127.8.{index // 250}.{index % 250 + 1}"


class Counter:
    """Commands that were acknowledged by all processes, and at which of them whom to kill."""

    def __init__(self) -> None:
        self.number = multiprocessing.Value("l", 0)
        self.kill_at = multiprocessing.Value("l", -1, lock=False)
        self.victim = multiprocessing.Value("l", 0, lock=False)

    def acknowledged(self, _: int) -> None:
        """Count one more; kill at the one that was stated."""
        with self.number.get_lock():
            self.number.value += 1
            if self.number.value == self.kill_at.value:
                os.kill(self.victim.value, signal.SIGKILL)


def serve(file: Path, part: Mapping[str, int], counter: Counter, asked: Connection) -> None:
    """Serve the switches of `part`, by name the index of each; answer what is asked of them."""
    structure, clock, listen = GridStructure(file), SystemClock(), socket.create_server
    rooms: dict[str, ServedRoom] = {}
    for name, index in part.items():
        testbed = structure.testbed_of(name)
        # Light comes from the nodes, which need no shell here.
        servers = {each.name: replace(each, address="") for each in testbed.servers.values()}
        like = f"{name[0]}ocs0-{name.partition('-')[2]}"  # the line that is expanded
        simulation = replace(testbed.simulation, switches={name: testbed.simulation.switches[like]})
        testbed = replace(testbed, servers=servers, simulation=simulation)
        at = (address(index), TL1)
        with mock.patch.object(socket, "create_server", lambda _, at=at: listen(at, backlog=8)):
            rooms[name] = ServedRoom(testbed, clock, ACCOUNT)
        rooms[name].on_acknowledged = counter.acknowledged
    asked.send("ready")
    while True:
        try:
            silent, unlit = asked.recv()
        except EOFError:
            break
        for name, room in rooms.items():
            room.silent, room.unlit = silent & {name}, unlit & room.testbed.servers.keys()
            room.fail()
        commands = [each for room in rooms.values() for each in room.commands]
        for room in rooms.values():
            room.commands.clear()
        asked.send((commands, {name: room.circuits[name] for name, room in rooms.items()}))


class DividedRoom(Switchroom):
    """The switches of all processes, as they were when they were last looked at."""

    def __init__(self, testbed: Testbed, file: Path, count: int) -> None:
        super().__init__(testbed)
        self.counter = Counter()
        self._parts: list[tuple[multiprocessing.Process, Connection]] = []
        names = list(GridStructure(file).switches)
        for first in range(count):
            ours, theirs = multiprocessing.Pipe()
            part = {names[index]: index for index in range(first, len(names), count)}
            process = multiprocessing.Process(
                target=serve, args=(file, part, self.counter, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._parts.append((process, ours))
        for _, ours in self._parts:
            ours.recv()

    @property
    def acknowledged(self) -> int:
        """Commands that changed circuits, and whose replies were sent."""
        return int(self.counter.number.value)

    def fail(self) -> None:
        """Let switches be silent, and nodes without light, as stated; all others are well."""
        self.look()

    def look(self) -> None:
        """Take over what the switches have received, and their circuits."""
        for _, ours in self._parts:
            ours.send((self.silent, self.unlit))
        for _, ours in self._parts:
            commands, circuits = ours.recv()
            self.commands += commands
            self.circuits |= circuits

    def close(self) -> None:
        """End all processes."""
        for process, ours in self._parts:
            ours.close()
            process.terminate()
            process.join()


class WideSequence(WireSequence):
    """The script of this campaign; each step is one event."""

    room: DividedRoom  # type: ignore[assignment]

    def __init__(self, room: DividedRoom, file: Path, place: Path) -> None:
        super().__init__(Wide(), 1, room, file, place)  # type: ignore[arg-type]
        self._script = self._events()

    def started(self) -> Process:
        made = Process(self.case.name, self._file, self._place, PERIOD_S, ANSWER_TIMEOUT_S)
        self.room.counter.victim.value = made.pid
        return made

    def event(self) -> str:
        return next(self._script)

    def _submit(self, job: str, columns: int, rows: int) -> str:
        shape = {"columns": columns, "rows": rows, "topology": "auto"}
        return self.asked({"do": "submit", "job": job, "shape": shape})

    def _events(self) -> Iterator[str]:
        room, dice = self.room, random.Random("wide fabric")
        half, part = SIDE // 2, SIDE * 3 // 8
        yield self._submit("wide", SIDE, half)
        before = room.acknowledged
        yield self._submit("square", half, part)
        of_square = room.acknowledged - before
        (group,) = self.service.status()["jobs"]["square"]["groups"]
        room.unlit = {dice.choice(group["nodes"])}
        yield f"no light of {room.unlit}"
        room.silent = {f"xocs{dice.randrange(half)}-{dice.randrange(MESH * PORTS)}"}
        yield f"silent {room.silent}"
        room.unlit = set()
        yield "light returns"
        room.silent = set()
        yield "the switch answers"
        yield self.asked({"do": "withdraw", "job": "square"})
        room.counter.kill_at.value = room.acknowledged + of_square // 2
        yield self._submit("square", half, part)


@contextmanager
def room_of(file: Path, root: Path, count: int) -> Iterator[DividedRoom]:
    """Serve all switches of a file."""
    room = DividedRoom(Wide().testbed(root), file, count)
    try:
        yield room
    finally:
        room.close()


def watched(service: Process, minutes: int, report: Callable[[str], object]) -> bool:
    """Leave a service alone; returns whether its memory is flat, and its threads are few."""
    sizes, most = [], 0
    for minute in range(minutes + 1):
        if minute:
            time.sleep(60)
        status = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{service.pid}/status").read_text().splitlines()
        )
        threads = int(status["Threads"])
        sizes.append(int(status["VmRSS"].split()[0]) / 1024)
        most = max(most, threads)
        report(f"minute {minute:>3}  {sizes[-1]:>8.2f} MiB  {threads} threads")
    settled = sizes[SETTLES_MINUTES:]
    growth = (
        statistics.linear_regression(range(len(settled)), settled).slope if settled[1:] else 0.0
    )
    report(
        f"{growth:+.4f} MiB a minute from minute {SETTLES_MINUTES} (limit {GROWTH_MIB}), "
        f"{most} threads (limit {MOST_THREADS})"
    )
    return growth <= GROWTH_MIB and most <= MOST_THREADS


def used(pid: int) -> dict[str, float]:
    """Return the processor time, in s, and the most memory, in MiB, of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return {
        "processor_s": round(ticks / os.sysconf("SC_CLK_TCK"), 1),
        "memory_mib": round(int(peak.split()[1]) / 1024, 1),
    }


def follow(count: int, report: Callable[[str], object]) -> bool:
    """Run the script once; returns whether each step was as wanted."""
    with tempfile.TemporaryDirectory(prefix="lightrig-wide-") as name, log("wide_fabric") as lines:
        root, file = Path(name), Path(name, "wide.yaml")
        text = render(SIDE, SIDE, mesh=MESH, ports=PORTS, by_sizes=True)
        # Names under .invalid are looked up nowhere, not in a file either.
        text = text.replace("env:OCS_LOGIN", f"env:{LOGIN}").replace(".invalid", ".test")
        file.write_text(text)
        names = GridStructure(file).switches.values()
        (root / "hosts").write_text(
            "127.0.0.1 localhost\n"
            + "".join(f"{address(index)} {host}\n" for index, host in enumerate(names))
        )
        subprocess.run(["mount", "--bind", root / "hosts", "/etc/hosts"], check=True)
        os.environ |= {"LIGHTRIG_STATE": str(root / "state"), LOGIN: ":".join(ACCOUNT)}
        with room_of(file, root, count) as room:
            preload_services()
            sequence = WideSequence(room, file, root)
            try:
                good = True
                for _ in itertools.repeat(None):
                    sequence.longest_s = 0.0
                    begun = room.acknowledged
                    try:
                        problems = sequence.step()
                    except StopIteration:
                        break
                    found = {"event": sequence.log[-1], "kills": sequence.kills}
                    found |= {"converged_s": round(sequence.longest_s, 1)}
                    found |= {"commands": room.acknowledged - begun, "problems": problems[:5]}
                    lines.add(found | used(sequence.service.pid))
                    good &= not problems
                minutes = int(os.environ.get("WIDE_MINUTES", "0"))
                good &= not minutes or watched(sequence.service, minutes, report)
            finally:
                sequence.service.close()
    for line in table(read("wide_fabric")):
        report(line)
    return good and sequence.kills == 1


def table(done: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each event."""
    return [
        f"{each['converged_s']:>7.1f} s  {each['commands']:>6,} commands  "
        f"{each['processor_s']:>7.1f} s  {each['memory_mib']:>7.1f} MiB  "
        f"{each['kills']} kills  {each['event']}  {'; '.join(each['problems']) or 'as wanted'}"
        for each in done
    ]


def main(report: Callable[[str], object] = print) -> bool:
    """Run it in a mount namespace of its own; returns whether each step was as wanted."""
    if os.geteuid() or shutil.which("unshare") is None:
        report("not run: a mount namespace needs root and unshare")
        return True
    if INSIDE not in os.environ:
        command = ["unshare", "--mount", "--propagation", "private", sys.executable]
        command += ["-m", "tests.campaigns", "wide_fabric"]
        environment = {**os.environ, INSIDE: "1", "CAMPAIGNS": str(folder())}
        return subprocess.run(command, env=environment, check=False).returncode == 0
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(OPEN_FILES, hard), hard))
    threading.stack_size(1 << 20)
    return follow(int(os.environ.get("WIDE_PROCESSES", "4")), report)
