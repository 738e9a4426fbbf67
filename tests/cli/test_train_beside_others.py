"""`lightrig train --socket`: two jobs on one switch, whose circuits one service moves."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.systems.mixnet.generator import render as region
from lightrig.harness.systems.opus.generator import render
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.namespaces.sshd import SshdError, sshd_program

# httpcore 1.0 does not close the socket of a connection that is refused.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket.socket fd=.*, family=1,"
    ":pytest.PytestUnraisableExceptionWarning"
)

LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
MOE = Path(__file__).parents[2] / "examples" / "train_moe.py"
STAND_IN = Path(__file__).parents[1] / "servers" / "stand_in_training" / "python3"
SCRIPT = """
import os
import sys
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
group = dist.new_group([0, 1]) or dist.new_group([2, 3])
pair = dist.new_group([0, 2]) or dist.new_group([1, 3])
ten = [torch.Tensor([1.0] * 10)]
for step in range(int(sys.argv[1])):
    group.allreduce(ten, None).wait()
    (pair.send if rank < 2 else pair.recv)(ten, 1 if rank < 2 else 0, 0).wait()
    if rank > 1:
        print("step", step, "loss", 1.0 / (step + 1), flush=True)
    time.sleep(0.1)
dist.destroy_process_group()
"""
LIMIT_S = 280.0


class Lab:
    """A served lab, the service, and jobs, each a process of its own."""

    def __init__(self, root: Path, system: str, testbed: str, script: str) -> None:
        self.root, self._system = root, system
        (root / "mine.yaml").write_text(testbed)
        (root / "step.py").write_text(script)
        self._environment = {**os.environ, "LIGHTRIG_STATE": str(root / "state")}
        self._processes: list[subprocess.Popen[str]] = []
        self._files: list[Any] = []
        served = self._run("serve", "mine.yaml", "--write", "served.yaml", "--port", 0, "--json")
        self.until(lambda: self.output(served).endswith("]\n"), served)
        first = json.loads(self.output(served))[0]
        self._environment["LIGHTRIG_SERVED"] = f"{first['user']}:{first['password']}"
        transport = httpx.HTTPTransport(uds=str(root / "api.socket"), verify=False)
        self.api = httpx.Client(base_url="http://api", transport=transport, timeout=60)
        self.service = self.orchestrate()

    def _run(self, *words: object) -> subprocess.Popen[str]:
        number = len(self._processes)
        output = (self.root / f"{number}.out").open("w")
        errors = (self.root / f"{number}.err").open("w")
        self._files += [output, errors]
        process = subprocess.Popen(
            [*LIGHTRIG, *map(str, words)],
            env=self._environment,
            cwd=self.root,
            stdout=output,
            stderr=errors,
            text=True,
        )
        self._processes.append(process)
        return process

    def output(self, process: subprocess.Popen[str]) -> str:
        return (self.root / f"{self._processes.index(process)}.out").read_text()

    def errors(self, process: subprocess.Popen[str]) -> str:
        return (self.root / f"{self._processes.index(process)}.err").read_text()

    def orchestrate(self, *options: str) -> subprocess.Popen[str]:
        """Start the service, anew where one was killed; with `--standby`, one that follows it."""
        state = ("--socket", "api.socket", "--state", "s.json")
        process = self._run("orchestrate", self._system, "served.yaml", *state, *options)
        if options:
            self.until(lambda: "leads" in self.errors(process), process)
        else:
            self.until(lambda: "Ctrl-C" in self.output(process), process)
        return process

    def train(self, parallel: str, *arguments: object) -> subprocess.Popen[str]:
        options = ("--socket", "api.socket", "--parallel", parallel)
        return self._run("train", "served.yaml", *options, "--", "step.py", *arguments)

    def jobs(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get("/v1/jobs").json()["jobs"]
        return found

    def until(self, condition: Callable[[], object], *running: subprocess.Popen[str]) -> None:
        """Wait for a condition, while these processes run."""
        ends = time.monotonic() + LIMIT_S
        while not condition():
            for process in running:
                if process.poll() is not None:
                    number = self._processes.index(process)
                    errors = (self.root / f"{number}.err").read_text()
                    raise AssertionError(f"{process.args} ended: {errors[-2000:]}")
            assert time.monotonic() < ends
            time.sleep(0.1)

    def close(self) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGINT)
        for process in self._processes:
            process.wait()
        for file in self._files:
            file.close()
        self.api.close()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[str, str, str], Lab]]:
    """Serve namespaces behind their own `sshd`, and run the service of a system."""
    if reason := kernel.available():
        pytest.skip(reason)
    try:
        sshd_program()
    except SshdError as error:
        pytest.skip(str(error))
    made: list[Lab] = []

    def open_lab(system: str, testbed: str, script: str) -> Lab:
        made.append(Lab(tmp_path, system, testbed, script))
        return made[0]

    yield open_lab
    for lab in made:
        lab.close()


@pytest.fixture
def lab(opened: Callable[[str, str, str], Lab]) -> Lab:
    """Eight servers on one switch."""
    address = "    address: netns://{name}"
    text = render(2, 4, 1, namespaces=True)
    assert address in text
    return opened("opus", text.replace(address, f"{address}\n    python: {STAND_IN}"), SCRIPT)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_jobs_train_while_their_service_is_killed_and_one_of_them(lab: Lab) -> None:
    first = lab.train("pp=2,dp=2", 200)
    lab.until(lambda: "on circuits, rank 2] step 0" in lab.output(first), first)
    second = lab.train("pp=2,dp=2", 14)
    lab.until(lambda: "on circuits, rank 2] step 3" in lab.output(second), first)
    placed = [set(job["groups"][0]["nodes"]) for job in lab.jobs().values()]
    assert [len(nodes) for nodes in placed] == [4, 4]
    assert placed[0].isdisjoint(placed[1])

    lab.service.kill()
    lab.service.wait()
    lab.orchestrate()
    printed = len(lab.output(first))
    assert second.wait(LIMIT_S) == 0  # the numbers of both of its runs are the same
    lab.until(lambda: len(lab.output(first)) > printed, first)
    (name,) = lab.jobs()

    first.kill()
    first.wait()
    lab.until(lambda: not lab.jobs())
    events = [each["event"] for each in lab.api.get("/v1/history").json()]
    assert events[-1].startswith(f"job {name} is withdrawn: no submit of it in 10 s")

    # Its servers are free at once: a third job gets them.
    third = lab.train("pp=2,dp=2", 4)
    assert third.wait(LIMIT_S) == 0
    assert not lab.jobs()


def refused(tmp_path: Path, *options: str) -> Result:
    (tmp_path / "mine.yaml").write_text(render(2, 2, 1, namespaces=True))
    (tmp_path / "step.py").write_text(SCRIPT)
    words = ["train", str(tmp_path / "mine.yaml"), "--socket", str(tmp_path / "no.socket")]
    return CliRunner().invoke(
        application("train"), [*words, *options, "--", str(tmp_path / "step.py")]
    )


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        ((), 2, "a job states --parallel, and none of --also, --fault, --spare"),
        (
            ("--parallel", "pp=2,dp=2", "--fault", "cut:5s,step=2"),
            2,
            "none of --also, --fault, --spare",
        ),
        (("--parallel", "pp=2,dp=2"), 3, "no service at"),
    ],
)
def test_what_no_service_can_run_is_refused(
    tmp_path: Path, options: tuple[str, ...], status: int, says: str
) -> None:
    found = refused(tmp_path, *options)
    assert (found.exit_code, says in found.stderr) == (status, True), found.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_controller_moves_the_circuits_of_experts_and_is_killed(
    opened: Callable[[str, str, str], Lab],
) -> None:
    """Three servers with a port each: gates choose the pair that has the circuit."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    script = MOE.read_text("utf-8").replace(
        "import torch\n", "import torch\ntorch.set_num_threads(1)\n", 1
    )
    lab = opened("mixnet", region(3, 1, 1, 1, namespaces=True), script)
    sizes = ("--width", 16, "--length", 16, "--batch", 4, "--tokens", 64, "--steps", 30)
    lab.orchestrate("--standby")
    job = lab.train("ep=3", *sizes)
    lab.until(lambda: "on circuits, rank 2] step 2" in lab.output(job), job)
    lab.service.kill()
    assert job.wait(LIMIT_S) == 0, lab.errors(job)
    answered = lab.output(job)
    assert "90 numbers, each equal to that over packets alone" in answered
    (changes,) = re.findall(r"circuits +(\d+) changes made (\d+) circuits", answered)
    assert min(map(int, changes)) > 2
    events = [each["event"] for each in lab.api.get("/v1/history").json()]
    links = [each for each in events if ": links is " in each]
    assert len(set(links)) > 2
