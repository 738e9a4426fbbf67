"""Which of several processes leads: one is killed, stopped or cut off, and another follows."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from real_time import ProcessorQueue

from lightrig.harness.bench import shared_lease
from lightrig.harness.bench.lease import LeaseConflictError, LeaseLostError, this_owner
from lightrig.harness.bench.shared_lease import SECOND, SharedFolder
from lightrig.harness.orchestration.control import Control
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.instruments.clock import boot_time
from lightrig.testbeds import load
from tests.campaigns.orchestrations import present, served
from tests.campaigns.switchroom import Switchroom

TERM = SECOND // 2
LONG = 3600 * SECOND
"""A term in which no lead is renewed by itself while a test lasts."""
OWNER = this_owner("a test")
ALL = {"do": "submit", "job": "all", "shape": {"columns": 0, "rows": 0}}
NONE = {"do": "withdraw", "job": "all"}


def fork_leader(folder: Path) -> int:
    """Return a process that holds the lease, once it does."""
    taken, told = os.pipe()
    if child := os.fork():
        os.close(told)
        assert os.read(taken, 1) == b"t"
        os.close(taken)
        return child
    try:
        SharedFolder(folder, TERM).claim("ocs", OWNER | {"process": str(os.getpid())})
        os.write(told, b"t")
        signal.pause()
    finally:
        os._exit(1)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_stopped_process_of_this_machine_is_ended_and_followed(tmp_path: Path) -> None:
    leader = fork_leader(tmp_path)
    try:
        follower = SharedFolder(tmp_path, TERM, ends_stopped=True)
        os.kill(leader, signal.SIGSTOP)
        began = time.monotonic()
        while True:
            try:
                claim = follower.claim("ocs", OWNER)
                break
            except LeaseConflictError:
                assert time.monotonic() - began < 30
                time.sleep(0.05)
        assert claim.number == 2
        claim.release()
    finally:
        os.kill(leader, signal.SIGKILL)
        _, status = os.waitpid(leader, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.fixture
def suspended(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let ns pass on this machine in which its processes do nothing."""
    passed = [0]
    monkeypatch.setattr(shared_lease, "boot_time", lambda: boot_time() + passed[0])
    return lambda duration: passed.__setitem__(0, passed[0] + duration)


def test_a_leader_that_was_not_followed_goes_on(
    tmp_path: Path, suspended: Callable[[int], None]
) -> None:
    control = Control(tmp_path / "s.json", LONG)
    control.take()
    assert control.epoch == 1
    suspended(LONG)
    control.check()
    assert control.epoch == 2
    control.release()
    with pytest.raises(LeaseLostError):
        control.check()


def test_a_process_that_no_longer_leads_sends_and_writes_nothing(
    tmp_path: Path, suspended: Callable[[int], None]
) -> None:
    (tmp_path / "grid.yaml").write_text(render(3, 1, mesh=1, ports=2))
    testbed, state = load(tmp_path / "grid.yaml"), tmp_path / "s.json"
    room, control = Switchroom(testbed, "ingress"), Control(state, LONG)
    control.take()
    running = Orchestrator(testbed, GridLayout(testbed), room, state, control)
    running.start()
    assert running.request(ALL)["lead"] == control.epoch > 0
    suspended(LONG)
    (record,) = tmp_path.glob("*.lease")
    os.utime(record, (0, 0))  # as the clock of the file server has it
    other = SharedFolder(tmp_path, TERM, "another host").claim("control of s.json", OWNER)
    assert other.number == control.epoch + 1
    before, written = dict(room.circuits), state.read_bytes()
    room.circuits["xocs0-0"] = frozenset()  # what a leader would set again
    room.commands.clear()
    with pytest.raises(LeaseLostError, match="newer"):
        running.request(NONE)
    with pytest.raises(LeaseLostError):
        running.step()
    running.run(threading.Event(), 0.01)
    assert "newer" in running.ended
    assert (room.commands, state.read_bytes()) == ([], written)
    assert before["xocs0-0"]
    other.release()


class Service:
    """`lightrig orchestrate` in a process, with a folder of its machine."""

    def __init__(
        self, file: Path, machine: Path, *options: str, before: Sequence[str] = ()
    ) -> None:
        environment = {**os.environ, "LIGHTRIG_STATE": str(machine)}
        program = str(Path(sys.executable).with_name("lightrig"))
        command = [*before, program, "orchestrate", "railx", str(file), "--json"]
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--period", "0.2", *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def waits(self) -> None:
        """Wait until it has read the file, and another process leads."""
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        assert line.startswith("standby: "), line

    def leads(self) -> Mapping[str, Any]:
        """Wait until it leads, and return how it is reached."""
        assert self.process.stdout is not None
        found: Mapping[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def ask(service: Mapping[str, Any], request: Mapping[str, Any]) -> Mapping[str, Any]:
    headers = {"Authorization": f"Bearer {Path(service['token']).read_text().strip()}"}
    root, client = f"http://{service['address']}/v1", httpx.Client(trust_env=False, timeout=30)
    with client:
        answer = (
            client.delete(f"{root}/jobs/{request['job']}", headers=headers)
            if request["do"] == "withdraw"
            else client.post(f"{root}/requests", json=request, headers=headers)
        )
    assert answer.status_code == 200, answer.text
    found: Mapping[str, Any] = answer.json()
    return found


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Path]]:
    for name in ("LIGHTRIG_STATE", "LIGHTRIG_SERVED"):
        monkeypatch.setenv(name, "")  # restored afterwards
    with served(tmp_path, render(3, 1, mesh=1, ports=2)) as found:
        yield found


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_another_process_of_the_machine_leads_within_five_seconds(lab, tmp_path, how) -> None:
    world, file = lab
    leader = Service(file, tmp_path / "one")
    standby = None
    try:
        first = leader.leads()
        status = ask(first, ALL)
        standby = Service(file, tmp_path / "one", "--standby")
        standby.waits()
        leader.process.send_signal(how)
        began, queue = time.monotonic(), ProcessorQueue(standby.process.pid)
        second = standby.leads()
        took = time.monotonic() - began - queue.waited() / 1e9
        again = ask(second, {"do": "status"})
        assert again["lead"] == status["lead"] + 1
        assert again["jobs"]["all"]["groups"] == status["jobs"]["all"]["groups"]
        assert leader.process.wait(30) == -signal.SIGKILL
        ask(second, NONE)
        assert not any(present(world, load(file)).values())
        assert took < 5, took
    finally:
        leader.end()
        if standby:
            standby.end()


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a namespace of process numbers")
def test_a_leader_of_another_host_that_was_stopped_sends_no_command(lab, tmp_path) -> None:
    world, file = lab
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)
    file.write_text(f"lab_folder: {shared}\n{file.read_text()}")
    testbed = load(file)
    leader, standby = Service(file, tmp_path / "one"), None
    try:
        ask(leader.leads(), ALL)
        assert all(present(world, testbed).values())
        # From another namespace of process numbers, records are as those of another host.
        unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        standby = Service(file, tmp_path / "two", "--standby", before=unshare)
        standby.waits()
        leader.process.send_signal(signal.SIGSTOP)
        began, queue = time.monotonic(), ProcessorQueue(standby.process.pid)
        second = standby.leads()
        took = time.monotonic() - began - queue.waited() / 1e9
        ask(second, NONE)
        assert not any(present(world, testbed).values())
        time.sleep(max(0, 10 - (time.monotonic() - began)))
        leader.process.send_signal(signal.SIGCONT)
        # It wants the job, and would set what it finds missing.
        assert leader.process.wait(30) == 3
        assert not any(present(world, testbed).values())
        assert took < 5, took
    finally:
        leader.end()
        if standby:
            standby.end()
