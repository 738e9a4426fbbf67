"""Kill -9 of `lightrig agent` amid orders: no process stays, and the next one sets what is wanted.

A hall of five served servers with their switches has an agent each, and a service. A job is
submitted and withdrawn in turn, `AGENT_KILLS` times (default 30), and up to `WITHIN_S` after the
request the agent of a drawn server is killed, and started again. Within three minutes the
circuits of all switches must be those that the same request led to without a kill. Each kill is a
line of the campaign's file (`tests.campaigns.records`).
"""

import contextlib
import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.campaigns.command_kills import descendants, links
from tests.campaigns.process_kills import is_alive
from tests.campaigns.records import log, reported
from tests.orchestration.test_agents_over_wires import Hall

WITHIN_S = 2.0
SHAPE = {"ring": "inner"}


def circuits(hall: Hall) -> dict[str, list[tuple[int, int]]]:
    """Return the circuits of all switches, from the ground truth."""
    return {
        name: sorted((int(i), int(e)) for i, e in matrix.egress_of.items())
        for name, matrix in hall.world.matrices.items()
    }


def settled(status: Mapping[str, Any]) -> bool:
    """Whether all agents answer, and nothing is to be done."""
    return not status["agents"] and status["settled"]


def ask(hall: Hall, submitted: bool) -> None:
    """Submit the job, or withdraw it."""
    if submitted:
        request = {"do": "submit", "job": "ring", "shape": SHAPE}
        answer = hall.api.post("/v1/requests", json=request)
    else:
        answer = hall.api.delete("/v1/jobs/ring")
    if not answer.is_success:
        raise RuntimeError(answer.text)


def one_kill(hall: Hall, number: int, wanted: Mapping[bool, Any]) -> dict[str, Any]:
    """Ask for a change, kill an agent, start it again, and look what is there."""
    dice = random.Random(number)
    host, before = dice.choice(sorted(hall.agents)), links()
    submitted = number % 2 == 0
    ask(hall, submitted)
    time.sleep(dice.random() * WITHIN_S)
    agent = hall.agents[host]
    family, alive = set(descendants(agent.pid)), agent.poll() is None
    agent.kill()
    agent.wait()
    hall.agents[host] = hall.agent(host)
    status: object = None
    try:
        # The service learns of the kill by its next probe: until then it is settled.
        hall.until(lambda status: settled(status) and circuits(hall) == wanted[submitted])
    except AssertionError as error:  # its first line is the status
        status = str(error)
    return {
        "number": number,
        "host": host,
        "outcome": "killed" if alive else "ended by itself",
        "left": [one for one in family if is_alive(one)],
        "links": sorted(links() - before),
        "circuits differ": status is not None,
        "status": status,
    }


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return what was counted, and whether nothing was left."""
    broken = {
        "PROCESSES": sum(len(each["left"]) for each in done),
        "LINKS": sum(len(each["links"]) for each in done),
        "CIRCUITS": sum(each["circuits differ"] for each in done),
        "FOLDERS": sum(each["folders left"] for each in done),
    }
    killed = sum(each["outcome"] == "killed" for each in done)
    counts = "".join(f"{name} {count:>4}   " for name, count in broken.items())
    return [f"killed {killed:>4}   {counts}"], not any(broken.values())


def main(report: Callable[[str], object] = print) -> bool:
    """Kill agents; return whether nothing was left."""
    kills = int(os.environ.get("AGENT_KILLS", "30"))
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, log("agent_kills") as lines:
        temporary = Path(folder, "tmp")
        temporary.mkdir()
        os.environ["TMPDIR"] = str(temporary)
        with contextlib.closing(Hall(Path(folder))) as hall:
            hall.begin()
            hall.until(settled)
            wanted = {}
            for submitted in (True, False):
                ask(hall, submitted)
                hall.until(settled)
                wanted[submitted] = circuits(hall)
            while len(lines.done) < kills:
                found = one_kill(hall, len(lines.done), wanted)
                # The folders of agents that go on are theirs.
                extra = len([*temporary.iterdir()]) - len(hall.agents) - 1
                lines.add({**found, "folders left": max(extra, 0)})
        return reported(*table(lines.done), report)
