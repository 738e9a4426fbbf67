"""A node's light is cut under a job that a launcher starts anew on the ring that is left.

`INTERRUPTIONS` times (default 20) on each testbed of `INTERRUPTIONS_TESTBEDS` a random node of a
ring of namespaces loses its light under all-reduces whose results are checked. `lightrig
orchestrate`, a process of its own over served wires, forms the ring anew, `examples.launch_on_ring`
starts the job in the order that it gives. Then the light comes back, and the node is taken in. On
`acos_rings`, whose switches see no light, the launcher reports what its carriers tell. The
interruption lasts from the last correct all-reduce before the cut to the first one afterwards. A
ring with other nodes, or a wrong result, breaks the promise.
"""

import contextlib
import datetime as dt
import itertools
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from examples import launch_on_ring
from lightrig.harness.bench import Bench, bind
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import LightrigError, load
from lightrig.testbeds.readdressing import readdressed
from tests.campaigns.records import folder, log, read
from tests.campaigns.wire_sequences import LOGIN, Process, preload_services

S = 1_000_000_000
JOBS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "railx5": ("railx", {"columns": 0, "rows": 0, "topology": "torus"}),
    "acos_rings": ("acos", {"ring": "auto"}),
}
"""The system of each testbed, and the shape of the job."""

PARTS = ("light", "detection", "plan", "circuits", "ended", "carriers", "routes", "start")
"""Consecutive parts of an interruption, from the cut to the first correct all-reduce.

The launcher is told once the circuits are set, and ends the ranks that wait.
"""

ROUNDS = 5
"""All-reduces of a job before the next cut."""
LIMIT_S = 120.0
LOOK_S = 0.02


class Trial:
    """A served lab, the service, and the launcher of a job through all servers."""

    def __init__(self, bench: Bench, service: Process, place: Path, system: str) -> None:
        self.bench, self.service = bench, service
        self._moments: dict[str, int] = {}
        self._ends: list[int] = []
        self.wrong = 0
        self.launcher = launch_on_ring.Launcher(bench, self._note, carriers=system == "acos")
        self._failure: BaseException | None = None
        self._over = threading.Event()
        self._client = launch_on_ring.client(place / "api.socket")
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            self.launcher.follow(self._client, "ring", self._over)
        except BaseException as error:
            self._failure = error
            raise

    def _note(self, step: str, job: Mapping[str, Any]) -> None:
        if step == "told" and self.launcher.running is not None:
            state = self.launcher.running.state()
            self._ends, self.wrong = [at.latest for at in state.ends], self.wrong + state.wrong
        self._moments[step] = self.bench.clock.now()

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait for a condition; raises `LightrigError` with what did not come to be."""
        ends = time.monotonic() + LIMIT_S
        while not condition():
            if self._failure is not None:
                raise LightrigError(f"the launcher ended: {self._failure}")
            if time.monotonic() > ends:
                raise LightrigError(f"not within {LIMIT_S:g} s: {what}; {self.service.status()}")
            time.sleep(LOOK_S)

    def runs_on(self, nodes: set[str], rounds: int) -> bool:
        """Whether the job runs on these nodes and has done that many rounds."""
        running = self.launcher.running
        if running is None or {*running.ranks} != nodes or "started" not in self._moments:
            return False
        return running.state().exchanges >= rounds

    def cut(self, node: str) -> dict[str, Any]:
        """Cut the light of a node; return the interruption and its parts, in s."""
        clock, world = self.bench.clock, self.bench.world
        assert world is not None
        nodes = {*self.bench.servers}
        self.until("the job runs on all nodes", lambda: self.runs_on(nodes, ROUNDS))
        epoch = self.service.status()["epoch"]
        self._moments.clear()
        cut = clock.now()
        back = world.power_off(node)
        try:
            self.until("the job runs without it", lambda: self.runs_on(nodes - {node}, ROUNDS))
            running = self.launcher.running
            assert running is not None
            state = running.state()  # before the light is back, and the ranks are ended
        finally:
            back()
            self.service.request({"do": "repaired", "nodes": [node]})
        self.wrong += state.wrong
        before = max(at for at in self._ends if at <= cut)
        first = min(at.latest for at in state.ends)
        moments = [cut, self._dark(node, cut), *self._history(node, epoch)]
        moments += [self._moments[step] for step in ("told", "ended", "carriers", "routes")]
        moments.append(first)
        order = list(running.ranks)
        steps = zip(PARTS, itertools.pairwise(moments), strict=True)
        parts = {part: (end - start) / S for part, (start, end) in steps}
        return {
            "interruption": (first - before) / S,
            "before": (cut - before) / S,
            "parts": parts,
            "order": order,
        }

    def _dark(self, node: str, cut: int) -> int:
        """Return when the first NIC port of another node lost its carrier."""
        truth = self.bench.truth
        assert truth is not None
        lost = [
            truth.first(str(spec.port), "carrier", up=False, since=cut)
            for spec in self.bench.testbed.nic_ports
            if spec.port.owner != node
        ]
        return min(at.latest for at in lost if at is not None)

    def _history(self, node: str, epoch: int) -> list[int]:
        """Return when the service noticed it, and had a plan."""
        offset = self.bench.clock.now() - time.time_ns()
        events = self.service.history(epoch)
        found = []
        noticed = (f"light of {node} failed", f"node {node} is reported")
        for begin in (noticed, ("job ring: groups",)):
            event = next(each for each in events if each["event"].startswith(begin))
            at = dt.datetime.fromisoformat(event["time"]).timestamp()
            found.append(round(at * 1e9) + offset)
        return found

    def close(self) -> None:
        """End the launcher and the job."""
        self._over.set()
        self._thread.join()
        self._client.close()
        self.launcher.close()


@contextlib.contextmanager
def trial(name: str, place: Path) -> Iterator[Trial]:
    """Serve a testbed, start the service, submit the job and follow it."""
    system, shape = JOBS[name]
    bench = bind(load(f"testbeds/{name}.yaml"), "simulated", 1)
    try:
        world = bench.world
        assert world is not None
        for switch in bench.switches.values():
            switch.close()  # a serial line has one user, which is the service
        addresses = {each: world.services[each].address for each in bench.testbed.optical_switches}
        file, known = place / "served.yaml", place / "known_hosts"
        known.touch()
        os.environ["LIGHTRIG_STATE"] = str(place / "state")
        os.environ[LOGIN] = ":".join(world.login)
        file.write_text(
            readdressed(
                bench.testbed.path, addresses, login=f"env:{LOGIN}", known_hosts=known, target=file
            )
        )
        service = Process(system, file, place, period_s=1.0)
        try:
            service.request({"do": "submit", "job": "ring", "shape": shape})
            made = Trial(bench, service, place, system)
            try:
                yield made
            finally:
                made.close()
        finally:
            service.close()
    finally:
        bench.close()


def table(done: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of parts by testbed, in s, and whether all is as it should be."""
    printed, good = [], True
    for name in JOBS:
        found = [each for each in done if each["testbed"] == name]
        if not found:
            continue
        good &= not any(each["wrong"] for each in found)
        printed.append(f"{name}: {len(found)} cuts; median (least to greatest) in s")
        columns = {"interruption": [each["interruption"] for each in found]}
        columns |= {part: [each["parts"][part] for each in found] for part in PARTS}
        printed += [
            f"  {part:<14}{statistics.median(each):8.3f} ({min(each):.3f} to {max(each):.3f})"
            for part, each in columns.items()
        ]
    return printed, good


def main(report: Callable[[str], object] = print) -> bool:
    """Cut what has not been cut yet; print the table; return whether each ring was as wanted."""
    if (why := kernel.available()) is not None:
        report(f"not run: {why}")
        return True
    count = int(os.environ.get("INTERRUPTIONS", "20"))
    names = os.environ.get("INTERRUPTIONS_TESTBEDS", ",".join(JOBS)).split(",")
    os.environ["CAMPAIGNS"] = str(folder())
    preload_services()
    with log("interruptions") as lines:
        for name in names:
            done = sum(each["testbed"] == name for each in lines.done)
            if done >= count:
                continue
            with (
                tempfile.TemporaryDirectory(prefix="lightrig-ring-") as place,
                trial(name, Path(place)) as made,
            ):
                for number in range(done, count):
                    dice = random.Random(f"{name} {number}")
                    node = dice.choice(sorted(made.bench.servers))
                    found = {"testbed": name, "number": number, "node": node}
                    found |= {"load": round(os.getloadavg()[0], 1)}
                    lines.add(found | made.cut(node) | {"wrong": made.wrong})
    printed, good = table(read("interruptions"))
    for line in printed:
        report(line)
    return good
