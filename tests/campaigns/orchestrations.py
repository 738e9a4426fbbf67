"""Kill -9 between any two orders of the service that orchestrates rings: it continues.

`ORCHESTRATIONS` times (default 200) a process orchestrates five nodes of a served lab: it makes one
ring, closes it past a failed node, places two jobs instead, takes the node in again, and is killed
before its n-th order, n counting through all of them. It is started again, is asked the same, and
the modules must be on the paths of what it then reports. Starting the second one, a further kill
follows on every third round.
"""

import itertools
import json
import multiprocessing
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightrig.harness.bench import Fabric
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.switch_sessions import SwitchSessions
from lightrig.harness.systems.infinitehbd.generator import render
from lightrig.harness.systems.infinitehbd.runtime.layout import RowLayout
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Circuit, Plan, Testbed, load
from lightrig.testbeds.readdressing import readdressed
from tests.campaigns.switchroom import joined

NODES = 5
ORDERS = 20
"""More than a round has, so that some rounds are not killed at all."""

STEPS = 20
"""Probes of all switches until what is wanted must be set."""

Request = Mapping[str, Any]
RING: Request = {"do": "submit", "job": "ring", "shape": {"size": 0}}
FAILED: Request = {"do": "failed", "nodes": ["node1"]}
NO_RING: Request = {"do": "withdraw", "job": "ring"}
PAIR: Request = {"do": "submit", "job": "pair", "shape": {"size": 2}}
REPAIRED: Request = {"do": "repaired", "nodes": ["node1"]}


class KilledError(Exception):
    """The service was killed before it had done all that it was asked."""


@contextmanager
def served(root: Path, text: str | None = None) -> Iterator[tuple[SimulatedLab, Path]]:
    """Serve the switches of a testbed, by default of five nodes, to other processes.

    Yields their world and the testbed's file with their addresses.
    """
    (root / "five.yaml").write_text(text or render(NODES))
    clock = SystemClock()
    world = SimulatedLab(load(root / "five.yaml"), clock, 1)
    names = load(root / "five.yaml").optical_switches
    addresses = {name: world.services[name].address for name in names}
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        ["tests.campaigns.orchestrations"]
    )
    os.environ["LIGHTRIG_STATE"] = str(root / "state")
    os.environ["LIGHTRIG_SERVED"] = ":".join(world.services[next(iter(names))].login)
    file, known = root / "served.yaml", root / "known_hosts"
    known.touch()
    file.write_text(
        readdressed(
            root / "five.yaml",
            addresses,
            login="env:LIGHTRIG_SERVED",
            known_hosts=known,
            target=file,
        )
    )
    try:
        yield world, file
    finally:
        world.close()
        clock.close()


def serve_until(
    environment: Mapping[str, str],
    file: Path,
    state: Path,
    requests: Sequence[Request],
    limit: int,
    answer: Path,
) -> None:
    """Answer `requests`, unless killed before the `limit`-th order; writes the last status.

    environment: of the lab; the fork server keeps that of the moment of its own start.
    """
    os.environ.update(environment)
    orders, sent = itertools.count(1), Fabric.apply

    def apply(fabric: Fabric, plan: Plan, **options: bool) -> None:
        if next(orders) == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        sent(fabric, plan, **options)

    Fabric.apply = apply  # type: ignore[method-assign]
    testbed = load(file)
    service = Orchestrator(testbed, RowLayout(testbed), SwitchSessions(testbed), state)
    service.start()
    for request in requests:
        service.request(request)
    for _ in range(STEPS):  # a busy machine misses probes
        if service.status()["settled"]:
            break
        service.step()
    status = service.status()
    service.close()
    answer.write_text(json.dumps(status))


def run(file: Path, state: Path, requests: Sequence[Request], limit: int = 0) -> dict[str, Any]:
    """Run a service in a process of its own, and return its status after the last request.

    Raises `KilledError` where it was killed.
    """
    answer = state.with_suffix(".answer")
    answer.unlink(missing_ok=True)
    environment = {name: os.environ[name] for name in ("LIGHTRIG_STATE", "LIGHTRIG_SERVED")}
    process = multiprocessing.get_context("forkserver").Process(
        target=serve_until,
        args=(environment, file, state, requests, limit, answer),
        daemon=True,
    )
    process.start()
    process.join()
    if process.exitcode == -signal.SIGKILL:
        raise KilledError
    status: dict[str, Any] = json.loads(answer.read_text())
    return status


def present(world: SimulatedLab, testbed: Testbed) -> dict[str, frozenset[Circuit]]:
    """Return the circuits that the served switches have."""
    return {
        name: frozenset(Circuit(*pair) for pair in world.matrices[name].egress_of.items())
        for name in testbed.optical_switches
    }


def astray(world: SimulatedLab, file: Path, status: Mapping[str, Any]) -> list[str]:
    """Return what is wrong by the light: what each node of a group sees, and what others see."""
    testbed = load(file)
    light = joined(testbed, present(world, testbed))
    wanted: dict[str, set[str]] = {node: set() for node in testbed.servers}
    for job in status["jobs"].values():
        for group in filter(None, job["groups"]):
            nodes, closed = group["nodes"], job["shape"]["size"] == 0
            for near, far in itertools.pairwise([*nodes, nodes[0]] if closed else nodes):
                wanted[near].add(far)
                wanted[far].add(near)
    faulty = status["faulty"].keys()
    return [
        f"{node} is joined to {light[node]}, wanted {wanted[node]}"
        for node in wanted.keys() - faulty
        if light[node] - faulty != wanted[node]
    ]


def groups(status: Mapping[str, Any], job: str) -> list[Any]:
    """Return the nodes of a job's groups."""
    return [group and group["nodes"] for group in status["jobs"][job]["groups"]]


def kill_and_continue(
    world: SimulatedLab, file: Path, state: Path, requests: Sequence[Request], limits: Sequence[int]
) -> tuple[dict[str, Any], int]:
    """Kill the service before each of those orders, and let it finish; status and kills."""
    kills = 0
    for limit in limits:
        try:
            run(file, state, requests, limit)
        except KilledError:
            kills += 1
    return run(file, state, requests), kills


def main(report: Callable[[str], object] = print) -> bool:
    """Kill and continue; returns whether every ring was as wanted afterwards."""
    rounds = int(os.environ.get("ORCHESTRATIONS", "200"))
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="lightrig-orchestrations-") as name:
        root = Path(name)
        with served(root) as (world, file):
            for number in itertools.count():
                if found["kills"] >= rounds:
                    break
                dice = random.Random(number)
                state = root / f"{number}.json"
                limits = [1 + number % ORDERS, *([dice.randint(1, 5)] if number % 3 == 2 else [])]
                before = [RING, FAILED]
                status, kills = kill_and_continue(world, file, state, before, limits)
                found["kills"] += kills
                ring = groups(status, "ring")
                found["RING NOT RE-FORMED"] += ring != [["node0", "node2", "node3", "node4"]]
                found["ASTRAY"] += bool(astray(world, file, status)) or not status["settled"]
                after = [NO_RING, PAIR, REPAIRED]
                run(file, state, [NO_RING])
                status, kills = kill_and_continue(world, file, state, after[1:], limits)
                found["kills"] += kills
                found["JOB NOT PLACED"] += bool(status["jobs"]["pair"]["missing"])
                found["ASTRAY"] += bool(astray(world, file, status)) or not status["settled"]
                found["rounds"] += 1
                if number % 20 == 19:
                    report(f"{number + 1:>5} {json.dumps(dict(sorted(found.items())))}")
    report(f"all   {json.dumps(dict(sorted(found.items())))}")
    return not any(count for name, count in found.items() if name.isupper())
