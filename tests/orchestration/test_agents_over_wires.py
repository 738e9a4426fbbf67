"""Agents and their controller as processes, on served switches and servers: no part is told."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightrig.harness.systems.acos.generator import render_rings
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Port, load
from lightrig.testbeds.readdressing import readdressed
from tests.campaigns.orchestrations import present
from tests.campaigns.switchroom import joined

pytestmark = [
    pytest.mark.long,
    # httpcore 1.0 does not close the socket of a connection that is refused.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket.socket fd=.*, family=1,"
        ":pytest.PytestUnraisableExceptionWarning"
    ),
]

LOGIN = "LIGHTRIG_SERVED"
LIMIT_S = 180.0
PROGRAM = "from lightrig.harness.cli import main; main()"


class Hall:
    """Five servers and their switches, served; processes that are ended with it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        text = render_rings().replace("netns://{name}", "ssh://bench@{name}.invalid")
        text = text.replace("model: veth, ip: '192.0.2.{k}/24', rate: 200M", "rate: 100G")
        (root / "rings.yaml").write_text(f"{text}  nic: {{bring_up: {{mean: 0.2 s, sd: 9 ms}}}}\n")
        self.testbed = load(root / "rings.yaml")
        self.clock = SystemClock()
        self.world = SimulatedLab(self.testbed, self.clock, 1)
        services = self.world.services
        known, self.file = root / "known_hosts", root / "served.yaml"
        known.write_text("".join(f"{each.known_hosts}\n" for each in services.values()))
        addresses = {name: each.address for name, each in services.items()}
        self.file.write_text(
            readdressed(
                self.testbed.path,
                addresses,
                login=f"env:{LOGIN}",
                known_hosts=known,
                target=self.file,
            )
        )
        self._environment = {
            **os.environ,
            LOGIN: ":".join(self.world.login),
            "LIGHTRIG_STATE": str(root / "state"),
        }
        self.agents: dict[str, subprocess.Popen[str]] = {}
        self._processes: list[subprocess.Popen[str]] = []
        transport = httpx.HTTPTransport(uds=str(root / "api.socket"), verify=False)
        self.api = httpx.Client(base_url="http://api", transport=transport, timeout=60)

    def run(self, *words: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, words)],
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._processes.append(process)
        return process

    def agent(self, host: str, path: Path | None = None) -> subprocess.Popen[str]:
        at = path or self.root / f"{host}.socket"
        return self.run("agent", "acos", self.file, "--host", host, "--socket", at)

    def begin(self) -> None:
        self.agents = {host: self.agent(host) for host in self.testbed.servers}
        for process in self.agents.values():
            assert process.stdout is not None
            assert "4 switches: socket" in process.stdout.readline()
        controller = self.run(
            *("orchestrate", "acos", self.file, "--socket", self.root / "api.socket"),
            *("--state", self.root / "s.json", "--period", 0.5),
            *("--agents", self.root / "{host}.socket"),
        )
        assert controller.stdout is not None
        first = controller.stdout.readline()
        assert "Ctrl-C" in first, first + controller.stdout.read()

    def until(self, condition: Callable[[Mapping[str, Any]], object]) -> Mapping[str, Any]:
        ends = time.monotonic() + LIMIT_S
        while True:
            status: Mapping[str, Any] = self.api.get("/v1/status").json()
            if condition(status):
                return status
            assert time.monotonic() < ends, status
            time.sleep(0.1)

    def recoveries(self) -> list[Mapping[str, Any]]:
        return [each for each in self.api.get("/v1/history").json() if "seconds" in each]

    def recovered(self, cut: int, *ports: str) -> float:
        """Return the true time from the first of these carriers that is lost to the last back."""
        lost = [self.world.truth.first(port, "carrier", up=False, since=cut) for port in ports]
        back = [
            self.world.truth.first(port, "carrier", up=True, since=at.latest)
            for port, at in zip(ports, lost, strict=True)
        ]
        return float(max(at.latest for at in back) - min(at.latest for at in lost)) / 1e9

    def neighbours(self) -> dict[str, set[str]]:
        return joined(self.testbed, present(self.world, self.testbed))

    def close(self) -> None:
        self.api.close()
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        self.world.close()
        self.clock.close()


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Hall]:
    with contextlib.closing(Hall(tmp_path)) as made:
        yield made


def test_a_killed_agent_is_named_and_a_lost_server_is_found_by_its_light(hall: Hall) -> None:
    hall.begin()
    hall.until(lambda status: status["settled"])
    submit = {"do": "submit", "job": "ring", "shape": {"ring": "inner"}}
    assert hall.api.post("/v1/requests", json=submit).status_code == 200
    hall.until(lambda status: status["jobs"]["ring"]["ready"])
    time.sleep(3)  # links come up, and are seen

    hall.agents["gpu3"].send_signal(signal.SIGKILL)
    status = hall.until(lambda status: status["agents"])
    assert status["agents"]["gpu3"]["jobs"] == ["ring"]
    time.sleep(2)
    status = hall.api.get("/v1/status").json()
    assert (status["faulty"], status["jobs"]["ring"]["ready"]) == ({}, True)
    assert hall.neighbours()["gpu3"] == {"gpu2", "gpu4"}

    cut = hall.clock.now()
    hall.world.power_off("gpu1")
    status = hall.until(lambda status: status["faulty"] and status["jobs"]["ring"]["ready"])
    assert status["faulty"].keys() == {"gpu1"}
    assert hall.neighbours()["gpu0"] == {"gpu4", "gpu2"}
    hall.until(lambda status: hall.recoveries())
    (event,) = hall.recoveries()
    least, most = event["seconds"]
    assert event["node"] == "gpu1"
    assert least < hall.recovered(cut, "gpu0.nic0.p0", "gpu2.nic0.p1") < most

    hall.agents["gpu3"] = hall.agent("gpu3")
    hall.until(lambda status: not status["agents"] and status["settled"])
    assert hall.api.get("/v1/status").json()["jobs"]["ring"]["ready"]


def test_two_lit_fibers_that_are_crossed_are_named_before_ranks_may_use_them(hall: Hall) -> None:
    hall.begin()
    hall.until(lambda status: status["settled"])
    one, two = Port("gpu1", "nic0.p1"), Port("gpu3", "nic0.p1")
    cross = [
        (one, two),
        tuple(each.source for each in hall.testbed.fibers if each.sink in (one, two)),
    ]
    undo = [hall.world.light.swap(*ends, hall.clock) for ends in cross]
    submit = {"do": "submit", "job": "ring", "shape": {"ring": "inner"}}
    assert hall.api.post("/v1/requests", json=submit).status_code == 200
    used = []

    def crossed(status: Mapping[str, Any]) -> object:
        used.append(status["jobs"]["ring"]["ready"])
        return len(status["crossed"]) == 4

    status = hall.until(crossed)
    assert not any(used)
    for what in status["crossed"].values():
        assert str(one) in what
        assert str(two) in what
    assert (status["faulty"], status["dark_ports"]) == ({}, {})

    for each in undo:
        each()
    status = hall.until(lambda status: status["jobs"]["ring"]["ready"])
    assert status["crossed"] == {}


def test_an_agent_opens_no_line_that_another_process_has(hall: Hall) -> None:
    first, second = (
        hall.agent("gpu2", hall.root / f"{name}.socket") for name in ("first", "second")
    )
    answers = []
    for process, name in ((first, "first"), (second, "second")):
        assert process.stdout is not None
        assert "gpu2, 4 switches" in process.stdout.readline()
        transport = httpx.HTTPTransport(uds=str(hall.root / f"{name}.socket"), verify=False)
        with httpx.Client(base_url="http://agent", transport=transport, timeout=60) as client:
            answers.append(client.post("/v1/probe").json())
    assert {each["error"] for each in answers[0]["switches"].values()} == {None}
    for name, each in answers[1]["switches"].items():
        assert f"{name} (" in each["error"]
        assert str(first.pid) in each["error"]
    assert answers[1]["holds"] == sorted(answers[0]["switches"])


def test_an_agent_of_a_host_that_there_is_not_ends(hall: Hall) -> None:
    process = hall.agent("gpu9")
    assert process.stdout is not None
    text = process.stdout.read()
    assert process.wait() == 2
    assert "found --host gpu9; hosts with switches are gpu0, gpu1, gpu2, gpu3, gpu4" in text
