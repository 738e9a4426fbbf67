"""A scheduler on the API of `lightrig orchestrate` alone: random jobs, first come, first served.

    python examples/scheduler.py SHAPES --socket PATH --jobs 200

SHAPES is a JSON list to draw from. A job is submitted, runs once its circuits are set, and is then
withdrawn; one that cannot be is put aside. The service has a reason for one that waits, and a new
epoch for one whose ring has changed. Prints how often each came, and what became of the jobs.
"""

import argparse
import collections
import json
import random
import time  # noqa: TID251  nothing of Lightrig is imported
from typing import Any

import httpx


class Scheduler:
    """Jobs at one service, of which at most `depth` are there at once."""

    def __init__(self, client: httpx.Client, shapes: list[Any], seed: int, depth: int) -> None:
        self._client, self._shapes, self._depth = client, shapes, depth
        self._dice = random.Random(seed)  # noqa: S311
        self._durations = random.Random(seed)  # noqa: S311  apart: the jobs depend on no time
        self._ends: dict[str, float] = {}  # of the jobs that run
        self._epochs: dict[str, int] = {}  # of each job that is there
        self._waited: set[str] = set()
        self.counts: collections.Counter[str] = collections.Counter()

    def run(self, jobs: int, seconds: float) -> dict[str, int]:
        """Submit jobs as others end; return the counts."""
        number = 0
        while number < jobs or self._epochs:
            while number < jobs and len(self._epochs) < self._depth:
                self._submit(f"job{number}")
                number += 1
            self._look(self._client.get("/v1/jobs").raise_for_status().json()["jobs"], seconds)
            time.sleep(0.05)
        return dict(self.counts)

    def _submit(self, name: str) -> None:
        shape, priority = self._dice.choice(self._shapes), self._dice.choice([0, 0, 0, 5])
        request = {"do": "submit", "job": name, "shape": shape, "priority": priority}
        answered = self._client.post("/v1/requests", json=request)
        if answered.status_code == httpx.codes.UNPROCESSABLE_ENTITY:
            self.counts["refused"] += 1
        else:
            self._epochs[name] = answered.raise_for_status().json()["jobs"][name]["epoch"]

    def _look(self, found: dict[str, Any], seconds: float) -> None:
        """Start jobs whose circuits are set, note why others wait, withdraw those that have run."""
        for name in list(self._epochs):
            job = found[name]
            if name in self._ends and job["epoch"] > self._epochs[name]:
                self.counts["new epochs"] += 1  # its ranks would start anew on `rings`
            self._epochs[name] = job["epoch"]
            if job["missing"]:
                self.counts["reason " + job["reason"]["code"]] += name not in self._waited
                self._waited.add(name)
            elif job["ready"] and name not in self._ends:
                self._ends[name] = time.monotonic() + self._durations.uniform(0, 2 * seconds)
            elif self._ends.get(name, float("inf")) < time.monotonic():
                self._client.delete(f"/v1/jobs/{name}").raise_for_status()
                self.counts["ran"] += 1
                del self._epochs[name], self._ends[name]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", type=json.loads)
    for option, kind, value in (("jobs", int, 200), ("seed", int, 0), ("seconds", float, 1.0)):
        parser.add_argument(f"--{option}", type=kind, default=value)
    parser.add_argument("--socket", required=True)
    given = parser.parse_args()
    transport = httpx.HTTPTransport(uds=given.socket)
    with httpx.Client(base_url="http://lightrig", transport=transport, timeout=120) as at:
        print(
            json.dumps(Scheduler(at, given.shapes, given.seed, 12).run(given.jobs, given.seconds))
        )
