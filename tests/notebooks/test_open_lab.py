"""`open_lab` on a served lab: names, ends, and what a person must be told."""

import contextlib
import inspect
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import preloaded
import pytest
from bench.served_lab import FOREIGN, LEFT, STRAIGHT, ServedLab, set_circuits
from real_time import over_soon
from typer.testing import CliRunner

from lightrig.api import Lab, LabClosedError, LabOpenError, PowerMonitor, Results, open_lab
from lightrig.harness.bench import Fabric
from lightrig.harness.bench.lease import LeaseConflictError, LeaseLostError
from lightrig.harness.bench.restoring import NotRestoredError
from lightrig.harness.cli.app import application
from lightrig.harness.measure.bound import NAMES, parts_of
from lightrig.harness.notebook.guard import Guard
from lightrig.harness.notebook.lab import FileChangedWarning
from lightrig.harness.plugin import measurements
from lightrig.testbeds import Circuit
from lightrig.testbeds.quantities import QuantityError


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedLab]:
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(ServedLab(tmp_path)) as lab:
        for name, value in lab.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(lab.switch, LEFT | FOREIGN)
        yield lab


def states(served: ServedLab) -> list[Path]:
    return list((served.folder / "state").glob("*.found.json"))


def test_names_are_those_of_the_fixtures_of_tests() -> None:
    fixtures = {
        name: inspect.unwrap(found)
        for name, found in vars(measurements).items()
        if hasattr(found, "_get_wrapped_function") or hasattr(found, "__pytest_wrapped__")
    }
    del fixtures["soak"], fixtures["relock"]  # options of pytest say how long, and what is read
    assert set(fixtures) == {*NAMES}
    for name, fixture in fixtures.items():
        taken = ["bench" if part == "clock" else part for part in parts_of(name)]
        assert [*inspect.signature(fixture).parameters] == taken, name


def test_what_was_set_is_restored_and_free_at_the_end(served: ServedLab) -> None:
    lab = open_lab(served.file, notify=lambda _: None)
    fabric, measure, switches = lab.fabric, lab.measure, lab.switches
    assert isinstance(switches["ocs"], PowerMonitor)
    fabric.apply(fabric.plans["straight"])
    assert served.switch.circuits() == STRAIGHT | FOREIGN
    assert lab.measure_power("ocs.9").n == 10
    assert "3>9" in repr(lab.circuits())
    assert states(served)
    lab.close()
    assert served.switch.circuits() == LEFT | FOREIGN
    assert not states(served)
    lab.close()  # again: nothing
    for call in (
        lambda: fabric.apply(fabric.plans["crossed"]),
        lambda: measure.record([]),
        switches["ocs"].circuits,
        lambda: lab.links,
    ):
        with pytest.raises(LabClosedError, match=r"closed by lab\.close\(\) at .*free for others"):
            call()
    assert served.switch.circuits() == LEFT | FOREIGN
    with open_lab(served.file, notify=lambda _: None) as again:
        assert again is not lab
    (run,) = Results(served.folder / "results").runs()
    assert (run.by_hand, run.rows, run.state, run.simulated) == (True, 1, "complete", True)


def test_an_exception_in_a_block_restores(served: ServedLab) -> None:
    def cell() -> None:
        with open_lab(served.file, notify=lambda _: None) as lab:
            lab.fabric.apply(lab.fabric.plans["crossed"])
            assert served.switch.circuits() != LEFT | FOREIGN
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cell()
    assert served.switch.circuits() == LEFT | FOREIGN


def test_the_same_file_is_one_lab(served: ServedLab) -> None:
    sentences: list[str] = []
    with open_lab(served.file, notify=sentences.append) as lab:
        assert open_lab(str(served.file), notify=sentences.append) is lab
        assert "is open in this process since" in sentences[-1]
        with pytest.raises(LabOpenError, match="with other arguments"):
            open_lab(served.file, seed=3)
        source = f"from lightrig.api import open_lab; open_lab({str(served.file)!r})"
        second = preloaded.run(["python", "-c", source])
        assert second.returncode == 1
        holder = rf"in use by .*process {os.getpid()} on .*, since .*, for a notebook, run \d{{8}}"
        assert LeaseConflictError.__name__ in second.stderr
        assert re.search(holder, second.stderr), second.stderr


def test_a_file_that_changes_is_told_once_and_not_read(served: ServedLab) -> None:
    with open_lab(served.file, notify=lambda _: None) as lab:
        fabric = lab.fabric
        served.describe(limit="{p99: 20 s}")
        with pytest.warns(FileChangedWarning, match="what is open is as it was"):
            fabric.present("ocs")
        fabric.present("ocs")  # warnings are errors here
        with pytest.raises(LabOpenError, match="the file has changed since"):
            open_lab(served.file)


def test_without_a_call_it_is_restored_and_the_next_call_says_so(served: ServedLab) -> None:
    lab = open_lab(served.file, idle="1 s", notify=lambda _: None)
    fabric = lab.fabric
    fabric.apply(fabric.plans["straight"])
    for thread in threading.enumerate():
        if thread.name == "idle lab":
            thread.join()
    assert served.switch.circuits() == LEFT | FOREIGN
    assert not states(served)
    with pytest.raises(LabClosedError, match="closed after 1 s without a call, at"):
        fabric.apply(fabric.plans["straight"])
    with open_lab(served.file, idle=None, notify=lambda _: None) as second:
        assert second is not lab


def test_nothing_looks_after_a_lab_that_is_closed(served: ServedLab) -> None:
    with open_lab(served.file, notify=lambda _: None):
        (looks,) = (each for each in threading.enumerate() if each.name == "idle lab")
    with over_soon():
        looks.join()


def test_what_cannot_be_restored_is_told_at_the_end_and_by_the_next_call(
    served: ServedLab,
) -> None:
    lab = open_lab(served.file, notify=lambda _: None)
    fabric = lab.fabric
    assert isinstance(fabric, Fabric)
    fabric.apply(fabric.plans["straight"])
    set_circuits(served.switch, FOREIGN | {Circuit(1, 10)})  # by somebody else
    with pytest.raises(NotRestoredError, match="NOT as found: ocs"):
        lab.close()
    assert served.switch.circuits() == FOREIGN | {Circuit(1, 10)}
    with pytest.raises(LabClosedError, match=r"closed by lab\.close\(\) at .*: NOT as found: ocs"):
        fabric.apply(fabric.plans["straight"])
    assert states(served)


def test_a_fork_of_the_interpreter_restores_nothing(served: ServedLab) -> None:
    fork = """
import os
if os.fork() == 0:
    sys.exit()  # the fork's end
os.wait()
loaded = [each for each in sys.modules if each.startswith("lightrig.instruments.simulated")]
print(len(fabric.present("ocs")[0]), loaded, flush=True)
sys.stdin.read()
"""
    process = begin(served, fork)
    assert process.stdout is not None
    assert process.stdout.readline() == "4 []\n"  # on hardware no simulation is loaded
    process.communicate("")
    assert served.switch.circuits() == LEFT | FOREIGN


def test_verdicts_are_shown_and_do_not_end_the_cell(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "testbeds" / "mixnet.yaml"
    sentences: list[str] = []
    with open_lab(file, "simulated", results=tmp_path, notify=sentences.append) as lab:
        lab.bring_up(lab.fabric.plans["mesh"])
        lab.measure_reconfiguration("pairs")
        lab.measure.judge("reconfiguration")
    assert any("not enough data" in sentence for sentence in sentences), sentences


def test_a_call_that_runs_is_not_idle() -> None:
    guard = Guard(lambda: None)
    with guard.call():
        assert guard.close_if_idle(1) == 1
    guard.function(lambda: None)()
    assert guard.close_if_idle(10**15) > 0
    while guard.close_if_idle(1):
        pass


def test_a_lost_lease_ends_what_is_changed(served: ServedLab) -> None:
    lab = open_lab(served.file, notify=lambda _: None)
    fabric = lab.fabric
    fabric.apply(fabric.plans["straight"])
    for lock in (served.folder / "state").glob("*.lock"):
        lock.unlink()
    with pytest.raises(LeaseLostError, match="was removed or replaced"):
        fabric.apply(fabric.plans["crossed"])
    assert served.switch.circuits() == STRAIGHT | FOREIGN
    with pytest.raises(LeaseLostError):
        lab.close()
    # Another may use it: nothing is restored, and what does so is on disk.
    assert served.switch.circuits() == STRAIGHT | FOREIGN
    assert states(served)


def test_nothing_measured_leaves_no_run(served: ServedLab) -> None:
    with open_lab(served.file, notify=lambda _: None) as lab:
        assert lab.nic_ports
        assert dir(lab).count("power_meter") == 0
        with pytest.raises(AttributeError, match="testbed lab has no power meter"):
            _ = lab.power_meter
        with pytest.raises(AttributeError, match=r"no 'fabrik'.*'fabric'"):
            _ = lab.fabrik
    assert Results(served.folder / "results").runs() == []


@pytest.mark.parametrize("idle", ["0 s", "-3 s", "soon"])
def test_a_time_that_is_none_is_refused_before_anything_is_opened(
    served: ServedLab, idle: str
) -> None:
    with pytest.raises(QuantityError):
        open_lab(served.file, idle=idle)
    assert Results(served.folder / "results").runs() == []


# ------------------------------------------------------------------ ends of the interpreter

BEGIN = """
import sys
from lightrig.api import open_lab

lab = open_lab(sys.argv[1])
fabric = lab.fabric
fabric.apply(fabric.plans["straight"])
print("changed", flush=True)
"""
ENDS = {
    "the last line": "",
    "an exception": "raise ZeroDivisionError\n",
    "sys.exit": "sys.exit(3)\n",
}


def begin(served: ServedLab, source: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + source, served.file], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if line == "changed\n":
            break
    else:
        raise AssertionError(process.communicate()[1])
    return process


@pytest.mark.parametrize(
    "end", [pytest.param(end, marks=[pytest.mark.long] * (end != "an exception")) for end in ENDS]
)
def test_the_end_of_the_interpreter_restores(served: ServedLab, end: str) -> None:
    begin(served, ENDS[end]).communicate()
    assert served.switch.circuits() == LEFT | FOREIGN
    assert not states(served)


def test_an_interrupt_and_another_while_it_is_restored_leave_it_as_found(
    served: ServedLab,
) -> None:
    waits = "import signal\nsignal.pause()\n"
    process = begin(served, waits)
    process.send_signal(signal.SIGINT)
    # The second one comes as soon as the first circuit is restored.
    while process.poll() is None and served.switch.circuits() == STRAIGHT | FOREIGN:
        pass
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate()
    assert "KeyboardInterrupt" in complaints
    assert served.switch.circuits() == LEFT | FOREIGN
    assert not states(served)


def test_a_killed_kernel_leaves_what_restore_undoes(
    served: ServedLab, all_is_carried_out: None
) -> None:
    killed = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    ended = preloaded.run(["python", "-c", BEGIN + killed, served.file])
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert served.switch.circuits() == STRAIGHT | FOREIGN
    restored = CliRunner().invoke(application("restore"), ["restore", str(served.file)])
    assert restored.exit_code == 0, restored.stderr
    assert served.switch.circuits() == LEFT | FOREIGN


def test_of_a_simulated_lab_the_clock_is_virtual(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "testbeds" / "opus.yaml"
    sentences: list[str] = []
    with open_lab(file, "simulated", results=tmp_path, notify=sentences.append) as lab:
        assert isinstance(lab, Lab)
        assert "its clock is virtual" in repr(lab)
    assert "opus is simulated, and its clock is virtual" in " ".join(sentences)
