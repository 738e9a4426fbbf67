"""Start a job on the ring that an orchestrator gives it, and anew whenever that changes.

    python examples/launch_on_ring.py FILE JOB --socket PATH [--carriers] [--seconds 60]

The job runs on the servers of the testbed FILE: one rank each, joined by TCP to a ring in the given
order, whose all-reduces are checked. Ranks, their order and the links between their NIC ports come
from the service (`lightrig orchestrate SYSTEM FILE --socket PATH`) alone. With `--carriers`, for
switches that do not see light, a server is reported as failed whose light reaches none of its
neighbours. It needs root on servers that may forward packets, such as namespaces.
"""

import argparse
import json
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from lightrig.harness.bench import Bench, bind_only
from lightrig.harness.jobs.bench.overlay import Overlay
from lightrig.harness.measure.links import await_carriers
from lightrig.instruments.clock import wall_time
from lightrig.instruments.jobs.traffic.checked_job import CheckedJob
from lightrig.instruments.jobs.traffic.ring import RingRunner
from lightrig.testbeds import Link, Port, load

VALUES = 4096
WAIT_S = 5.0
LOOK_S = 0.2
"""Time between two looks at the carriers; a server has failed that two in a row find dark."""

Report = Callable[[str, Mapping[str, Any]], object]
"""Receives each step of a start when it is done, with the job as the service gave it."""


def client(socket: Path) -> httpx.Client:
    """Return a client of the service at a Unix socket."""
    transport = httpx.HTTPTransport(uds=str(socket))
    return httpx.Client(base_url="http://lightrig", transport=transport, timeout=2 * WAIT_S)


class Launcher:
    """The ranks of one job; `close` ends them and removes addresses and routes.

    Args:
        bench: with the servers.
        carriers: whether to report servers that no neighbour sees light of.

    Attributes:
        running: the job as it was started last; None before.
    """

    def __init__(
        self, bench: Bench, report: Report = lambda step, job: None, *, carriers: bool = False
    ) -> None:
        self._bench, self._report, self._carriers = bench, report, carriers
        self._links: set[Link] = set()
        self._unseen: set[str] = set()
        self._netdevs = {spec.port: spec.netdev for spec in bench.testbed.nic_ports}
        self._overlay = Overlay(bench)
        self._runner = RingRunner(self._overlay.servers, self._overlay.addresses, bench.clock)
        self.running: CheckedJob | None = None

    def follow(self, service: httpx.Client, job: str, over: threading.Event) -> None:
        """Start a job each time that the service has set other circuits for it."""
        epoch, wait = -1, LOOK_S if self._carriers else WAIT_S
        while not over.is_set():
            answer = service.get(f"/v1/jobs/{job}", params={"after": epoch, "wait": wait})
            found = answer.raise_for_status().json()
            if found["ready"] and found["epoch"] > epoch:
                epoch = found["epoch"]
                self.start(found)
            elif self._carriers and (lost := self._lost()):
                request = {"do": "failed", "nodes": sorted(lost)}
                service.post("/v1/requests", json=request).raise_for_status()

    def start(self, job: Mapping[str, Any]) -> None:
        """End the ranks that run, and start those of a job in their order."""
        self._report("told", job)
        self._runner.close()  # they may wait for a rank that has failed, without end
        self._report("ended", job)
        ranks = job["rings"][0]["ranks"]
        self._links = links = {
            Link(_port(f"{rank['node']}.{link['port']}"), _port(link["to"]))
            for rank in ranks
            for link in rank["links"]
        }
        await_carriers(self._bench, self._dark, {p for link in links for p in (link.a, link.b)})
        self._report("carriers", job)
        self._overlay.route(links)
        self._report("routes", job)
        nodes = tuple(rank["node"] for rank in ranks)
        self._runner.form(nodes)
        self.running = CheckedJob(self._runner, nodes, "all_reduce", VALUES)
        self._report("started", job)

    def close(self) -> None:
        """End the ranks; remove addresses and routes."""
        try:
            self._runner.close()
        finally:
            self._overlay.close()

    def _lost(self) -> set[str]:
        """Return the servers that no neighbour has seen light of, this time and the time before."""
        ports = {port for link in self._links for port in (link.a, link.b)}
        before, self._unseen = self._unseen, unseen(self._links, self._dark(ports))
        return before & self._unseen

    def _dark(self, ports: Collection[Port]) -> set[Port]:
        netdevs = {
            name: [self._netdevs[port] for port in ports if port.owner == name]
            for name in sorted({port.owner for port in ports})
        }
        looks = (partial(self._overlay.servers[name].lit, each) for name, each in netdevs.items())
        lit = dict(zip(netdevs, self._bench.clock.parallel(*looks), strict=True))
        return {port for port in ports if self._netdevs[port] not in lit[port.owner]}


def unseen(links: Collection[Link], dark: Collection[Port]) -> set[str]:
    """Return the servers whose light arrives at none of the ports that it is led to."""
    senders = {link.a: link.b.owner for link in links} | {link.b: link.a.owner for link in links}
    return {senders[port] for port in dark} - {
        sender for port, sender in senders.items() if port not in dark
    }


def _port(text: str) -> Port:
    return Port(*text.split(".", 1))


def main() -> None:
    """Run a job for some time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("job")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--carriers", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    over = threading.Event()
    threading.Timer(given.seconds, over.set).start()
    testbed = load(given.file)
    bench = bind_only(testbed, set(testbed.servers), "launch on ring")

    def report(step: str, job: Mapping[str, Any]) -> None:
        nodes = [rank["node"] for rank in job["rings"][0]["ranks"]]
        at = wall_time().isoformat(timespec="milliseconds")
        print(json.dumps({"at": at, "step": step, "nodes": nodes}), flush=True)

    try:
        launcher = Launcher(bench, report, carriers=given.carriers)
        try:
            launcher.follow(client(given.socket), given.job, over)
        finally:
            launcher.close()
    finally:
        bench.close()


if __name__ == "__main__":
    main()
