"""`lightrig train`: a training script on circuits, and what they cost it."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from lightrig.harness.bench import Fabric
from lightrig.harness.cli.app import application
from lightrig.harness.cli.lab import INTERRUPTED
from lightrig.harness.jobs.training import Printed, TrainingReport, TrainingRequest
from lightrig.harness.system_registry import System
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import LightrigError

RAILS = "testbeds/rails4.yaml"
LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
SCRIPT = "examples/train_llama.py"


class Report:
    """Answer of a trainer."""

    def __init__(self, *, as_printed_before: bool) -> None:
        self.as_printed_before = as_printed_before

    def document(self) -> Mapping[str, Any]:
        return {"step": {"value": 17, "n": 5}}

    def lines(self) -> list[str]:
        return ["step 17 ns (n = 5)", "rank\x1b[2J"]


class Trainer:
    """Stands in for a system's: keeps what it is given, prints a line and ends as told."""

    def __init__(self) -> None:
        self.ends: Callable[[], TrainingReport] = lambda: Report(as_printed_before=True)
        self.given: list[TrainingRequest] = []
        self.restored = 0

    def __call__(
        self, fabric: Fabric, request: TrainingRequest, printed: Printed
    ) -> TrainingReport:
        self.given.append(request)
        printed("on circuits", 3, "loss 2.5")
        return self.ends()


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """The trainer of every testbed of Opus, which counts also how often a fabric is restored."""
    made = Trainer()

    def restore(self: Fabric, **trying: Any) -> None:
        made.restored += 1

    load = System.load
    monkeypatch.setattr(
        System, "load", lambda self, part: made if part == "trainer" else load(self, part)
    )
    monkeypatch.setattr(Fabric, "restore", restore)
    return made


def run(*arguments: str, testbed: str = "testbeds/opus.yaml") -> Result:
    given = ["train", testbed, "--instruments", "simulated", *arguments]
    return CliRunner().invoke(application("train"), given)


def test_a_script_is_run_with_its_arguments(trainer: Trainer) -> None:
    done = run("--parallel", "pp=2,dp=4", "--mode", "default", "--", SCRIPT, "--steps", "5")
    assert done.exit_code == 0, done.output
    (request,) = trainer.given
    assert (request.name, request.arguments) == ("train_llama.py", ["--steps", "5"])
    assert request.source == Path(SCRIPT).read_text("utf-8")
    assert (request.parallel, request.mode) == ({"pp": 2, "dp": 4}, "default")
    assert "[on circuits, rank 3] loss 2.5\nstep 17 ns (n = 5)\n" in done.stdout
    assert "\x1b" not in done.stdout
    assert trainer.restored == 1


def test_a_script_is_run_in_further_sizes(trainer: Trainer) -> None:
    sizes = ("--also", "pp=3,dp=2", "--also", "pp=5,dp=2")
    assert run("--parallel", "pp=2,dp=2", *sizes, "--", SCRIPT).exit_code == 0
    (request,) = trainer.given
    assert request.also == [{"pp": 3, "dp": 2}, {"pp": 5, "dp": 2}]
    refused = run("--also", "pp=3,pp=2", "--", SCRIPT)
    assert refused.exit_code == 2
    assert "--also pp=3,pp=2: 'pp=2' is not NAME=N" in refused.stderr


def test_other_numbers_are_a_no(trainer: Trainer) -> None:
    trainer.ends = lambda: Report(as_printed_before=False)
    assert run("--", SCRIPT).exit_code == 1


def test_json_stands_alone_on_stdout(trainer: Trainer) -> None:
    done = run("--json", "--", SCRIPT)
    assert json.loads(done.stdout) == {"step": {"value": 17, "n": 5}}
    assert "rank 3] loss 2.5" in done.stderr


def _fail() -> TrainingReport:
    raise LightrigError("server2 failed as rank 2")


def _interrupt() -> TrainingReport:
    signal.raise_signal(signal.SIGTERM)
    raise AssertionError("the signal was not handled")


@pytest.mark.parametrize(
    ("ends", "status", "says"),
    [(_fail, 3, "server2 failed as rank 2"), (_interrupt, 130, "the switches are restored")],
)
def test_the_switches_are_restored_whatever_ends_the_script(trainer, ends, status, says) -> None:
    trainer.ends, before = ends, signal.getsignal(signal.SIGTERM)
    done = run("--", SCRIPT)
    assert (done.exit_code, trainer.restored) == (status, 1)
    assert says in done.stderr
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--parallel", "pp", "--", SCRIPT), "--parallel pp: 'pp' is not NAME=N; write pp=2,dp=2"),
        (("--parallel", "pp=2,pp=3", "--", SCRIPT), "'pp=3' is not NAME=N"),
        (("--parallel", "dp=0", "--", SCRIPT), "'dp=0' is not NAME=N"),
        (("--results", "loss (", "--", SCRIPT), "--results loss (: missing )"),
        (("--", "no/such.py"), "no/such.py: No such file or directory"),
        (("--", "README.md"), "(README.md, line "),
    ],
)
def test_what_cannot_be_run_is_refused_before_the_lab_is_touched(trainer, arguments, says) -> None:
    done = run(*arguments)
    assert (done.exit_code, trainer.given, trainer.restored) == (2, [], 0)
    assert says in done.stderr


def test_a_second_signal_does_not_end_the_restoring(trainer, monkeypatch) -> None:
    restore = Fabric.restore

    def interrupted(self: Fabric, **trying: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        restore(self, **trying)

    monkeypatch.setattr(Fabric, "restore", interrupted)
    trainer.ends = _interrupt
    done = run("--", SCRIPT)
    assert (done.exit_code, trainer.restored) == (130, 1)


def test_a_job_that_does_not_fit_the_testbed_is_refused() -> None:
    done = run("--parallel", "pp=3", "--", SCRIPT)
    assert done.exit_code == 2, done.output
    assert "4 servers, expected a multiple of 3" in done.stderr


def test_ranks_are_those_of_the_first_servers(trainer: Trainer) -> None:
    done = run("--ranks", "2", "--", SCRIPT)
    assert (done.exit_code, [request.ranks for request in trainer.given]) == (0, [2])


@pytest.mark.parametrize("ranks", ["3", "10"])
def test_ranks_that_fill_no_servers_are_refused(ranks: str) -> None:
    """Four servers with two NICs each."""
    done = run("--ranks", ranks, "--", SCRIPT)
    assert done.exit_code == 2, done.output
    assert f"a rank on each of 2 NICs; {ranks} ranks do not fit" in done.stderr


@pytest.mark.parametrize(
    ("size", "says"),
    [
        ("pp=2,dp=3", "12 ranks do not fit"),  # six servers with two NICs each
        ("pp=4,dp=1", "2 stages of 4 ranks, 4 stages of 2 ranks: expected sizes that differ in"),
        ("pp=2,dp=2", "differ in stages alone"),
    ],
)
def test_further_sizes_that_show_no_growth_are_refused(size: str, says: str) -> None:
    done = run("--parallel", "pp=2,dp=2", "--also", size, "--", SCRIPT)
    assert done.exit_code == 2, done.output
    assert says in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--spare", "server3"), "--spare is for a restart: allow one by --max-restarts 1"),
        (("--spare", "server0", "--max-restarts", "1"), "server0 is in the job, with rank 0"),
        (("--spare", "server7", "--max-restarts", "1"), "has no server 'server7'; not in the job"),
        (("--spare", "server3", "--spare", "server3", "--max-restarts", "1"), "server twice"),
    ],
)
def test_spares_that_no_restart_could_use_are_refused(options: tuple[str, ...], says: str) -> None:
    done = run(*options, "--parallel", "pp=2,dp=1", "--", SCRIPT)
    assert done.exit_code == 2, done.output
    assert says in done.stderr


def test_a_testbed_of_another_system_is_refused() -> None:
    done = run("--", SCRIPT, testbed="testbeds/railx.yaml")
    assert done.exit_code == 2
    assert "its system, railx, runs no training scripts" in done.stderr
    assert "these do: mixnet, opus" in done.stderr


# ---------------------------------------------------------------------- with real PyTorch


@pytest.fixture
def pytorch() -> None:
    """PyTorch, on a machine that makes namespaces."""
    if reason := kernel.available():
        pytest.skip(reason)
    pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.timeout(1200)
def test_what_circuits_cost_a_script(pytorch: None) -> None:
    """Its losses are equal, its shares add up to its steps, and slower switches cost more."""
    command = [*LIGHTRIG, "train", RAILS, "--instruments", "simulated", "--json"]
    command += ["--", SCRIPT, "--steps", "5"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["ranks"], found["stages"], found["phases"]) == (4, 2, 4)
    # Both replicas of the last stage print a loss a step.
    assert (found["comparison"]["count"], found["comparison"]["different"]) == (2 * 5, [])
    shares = sum(share["value"] for share in found["shares"].values())
    assert shares == pytest.approx(found["step"]["value"], abs=4)
    assert found["step"]["n"] == 5 - 1
    waits = [each["value"] for each in found["exposed"]]
    assert waits == sorted(waits)
    # Windows cannot hide more than they are long: three changes of a second wait most of it.
    assert waits[-1] == pytest.approx(4e9, rel=0.2)
    assert found["simulated"] == ["ocs"]
    # Four changes a step of a switch that takes 20 ms; behind ranks that are late, as on a machine
    # that does much else, a part of each hides.
    assert found["shares"]["switch"]["value"] > 2e7
    waits = [*found["shares"].values(), found["circuits"], *found["exposed"]]
    assert min(wait["lower"] for wait in waits) >= 0
    # Each of four servers has two ports of 200 Mbit/s in use.
    ports = [link for link in found["links"] if link["sent"] and link["received"]]
    assert {link["rate"] for link in ports} == {200e6}
    assert len(ports) >= 8
    host, harness = found["hosts"]
    assert (host["here"], host["servers"]) == (True, [f"server{n}" for n in range(4)])
    assert (harness["here"], harness["servers"]) == (True, [])


PIPELINE = "examples/train_pipeline.py"


@pytest.mark.timeout(1200)
def test_a_job_whose_circuits_never_change_waits_for_none(pytorch: None) -> None:
    """Four stages on the ring of all ranks: whatever a change takes, the waits are zero."""
    command = [*LIGHTRIG, "train", RAILS, "--instruments", "simulated", "--json"]
    command += ["--parallel", "pp=4", "--", PIPELINE, "--schedule", "Interleaved1F1B"]
    command += ["--replicas", "1", "--steps", "5"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["changes"], found["phases"]) == ([], 0)
    parts = {name: share["value"] for name, share in found["shares"].items()}
    assert [parts[name] for name in ("queue", "switch", "light", "link")] == [0] * 4
    assert sum(parts.values()) == pytest.approx(found["step"]["value"], rel=0.01)
    waits = [found["circuits"], *found["exposed"]]
    assert {(wait["value"], wait["lower"], wait["upper"]) for wait in waits} == {(0, 0, 0)}
    assert len(found["exposed"]) >= 7


HOOKED = """
import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

dist.init_process_group("gloo")
torch.manual_seed(7)
model = torch.nn.Linear(3, 2)
register_optimizer_step_post_hook(lambda *_: print("loss", model.weight.sum().item()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(5, 3)).pow(2).sum().backward()
    dist.all_reduce(model.weight.grad)
    optimizer.step()
"""


@pytest.mark.timeout(1200)
def test_both_runs_of_a_script_begin_in_new_processes(pytorch: None, tmp_path: Path) -> None:
    """A hook that the script adds to all optimizers stays in its process."""
    script = tmp_path / "hooked.py"
    script.write_text(HOOKED)
    command = [*LIGHTRIG, "train", RAILS, "--instruments", "simulated", "--json"]
    command += ["--parallel", "dp=4", "--", str(script)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["comparison"]
    assert (found["count"], found["different"]) == (4 * 4, [])
    printed = re.findall(r"on circuits, rank 2. loss (.*)", done.stderr)
    assert len(printed) == len(set(printed)) == 4


PREDICTED = """
import os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
again = os.environ["TORCHELASTIC_RUN_ID"].startswith("circuits")
factor = float(sys.argv[1]) if again else 1
for step in range(6):
    time.sleep((0.4 + 0.1 * dist.get_rank()) * factor)
    dist.all_reduce(torch.ones(2))
    print("loss", step, flush=True)
"""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("slower", "kept"), [(1, True), (3, False)])
def test_a_step_is_predicted_before_it_is_measured(
    pytorch: None, tmp_path: Path, slower: int, kept: bool
) -> None:
    """Four ranks compute 400 to 700 ms a step: the slowest makes it 0.7 s, or what comes of it.

    The prediction is made and stored before the ranks are on circuits, where they may be slower.
    """
    script, file = tmp_path / "sleeps.py", tmp_path / "stored.jsonl"
    script.write_text(PREDICTED)
    command = [*LIGHTRIG, "train", RAILS, "--instruments", "simulated", "--parallel", "dp=4"]
    command += ["--store-prediction", str(file), "--", str(script), str(slower)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stderr
    step = json.loads(file.read_text())["step"]
    assert step["lower"] < step["value"] < step["upper"]
    assert step["value"] == pytest.approx(0.7e9, rel=0.5)
    before, _, after = done.stdout.partition("computed from the run on the ring of all ranks")
    assert "[on circuits" not in before
    assert "[on circuits" in after
    verdict = "holds the measured step" if kept else "does NOT hold the measured step"
    assert re.search(
        rf"^predicted .* computed before that run: its interval {verdict}", after, re.M
    )
    assert re.search(r"^step .*, measured, of which", after, re.M)


FOR_EVER = """
import subprocess, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
subprocess.Popen(["sleep", sys.argv[1]])
group = [dist.new_group([0, 1]), dist.new_group([2, 3])][dist.get_rank() // 2]
while True:
    dist.all_reduce(torch.ones(2), group=group)
    print("loss 1.0", flush=True)
    time.sleep(0.01)
"""


def test_a_signal_ends_ranks_and_what_they_started(pytorch: None, tmp_path: Path) -> None:
    script, unique = tmp_path / "ever.py", f"7777.{time.monotonic_ns() % 10**9:09}"
    script.write_text(FOR_EVER)
    command = [*LIGHTRIG, "train", RAILS, "--instruments", "simulated", "--", str(script), unique]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        seen: set[bytes] = set()
        for line in process.stdout:
            seen |= set(re.findall(rb"rank (\d)\]", line))
            if len(seen) == 4:
                break
        process.terminate()
        said = process.stderr.read()
        assert process.wait(60) == INTERRUPTED
    assert b"the switches are restored" in said
    assert not [
        path
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if unique.encode() in path.read_bytes()
    ]


def test_a_closed_pipe_ends_the_command(pytorch: None, tmp_path: Path) -> None:
    script = tmp_path / "ever.py"
    script.write_text(FOR_EVER)
    command = [*LIGHTRIG, "train", RAILS, "--instruments", "simulated", "--", str(script), "7778"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline().endswith(b"loss 1.0\n")
        process.stdout.close()
        assert process.wait(120) == INTERRUPTED
