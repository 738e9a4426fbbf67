"""Nights and sweeps on Dask: workers are processes of this machine, on loopback."""

import json
import re
import shlex
from pathlib import Path

import pytest

from lightrig.harness.jobs.sweeps import Engine, computed_on, sweep
from lightrig.harness.night.measuring import measure, tasks
from lightrig.testbeds.lab_hosts import load_hosts

ROOT = Path(__file__).parents[2]
TESTBED = re.search(
    r"```yaml\n(# yaml-language-server.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
)

pytestmark = pytest.mark.long


@pytest.fixture
def distributed():
    return pytest.importorskip("distributed", reason="the extra dask is not installed")


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Return a function that writes a lab of the testbeds a and b, and loads it."""
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    for name in "ab":
        Path(tmp_path, f"{name}.yaml").write_text(TESTBED[1].replace("name: mine", f"name: {name}"))

    def described(suite, hosts, *, results="results", **options):
        document = {
            "suites": [str(suite)],
            "results": results,
            "pytest": ["--instruments", "simulated", "--seed", "1", *options.pop("pytest", ())],
            "hosts": {
                name: {"testbeds": ["a.yaml", "b.yaml"], **({"start": start} if start else {})}
                for name, start in hosts.items()
            },
            **options,
        }
        (tmp_path / "lab.yaml").write_text(json.dumps(document))
        return load_hosts(tmp_path / "lab.yaml")

    return described


def run_night(lab, night="20260314-021500-n"):
    from lightrig.harness.night import coordinator

    found = coordinator.run_night(lab, night, lambda *_: None, lambda _line: None)
    return {one.testbed: one for one in found}


def rows(results):
    import pyarrow.parquet as pq

    files = sorted(Path(results).glob("rows/*/*/*.parquet"))
    return {file.parts[-3]: pq.ParquetFile(file).read().drop_columns(["run"]) for file in files}


def drawn(point, random):
    return point + float(random.random())


def test_a_sweep_gives_the_answer_of_one_process(distributed):
    here = sweep(drawn, range(40), seed=7)
    with (
        distributed.LocalCluster(
            n_workers=2, processes=False, protocol="tcp", dashboard_address=None
        ) as cluster,
        computed_on(Engine(scheduler=cluster.scheduler_address)),
    ):
        assert sweep(drawn, range(40), seed=7, batch=3) == here


def test_a_night_on_two_workers_has_the_rows_of_one_process(distributed, lab, tmp_path):
    suite, options = (
        ROOT / "suites" / "test_reconfiguration.py",
        ("-k", "between", "--samples", "2"),
    )
    alone = lab(suite, {"here": None}, results="alone", pytest=options)
    for task in tasks(alone, "20260314-021500-n"):
        assert measure(alone, task, "here").state == "measured"
    both = {"one": "{command}", "two": "{command}"}
    found = run_night(lab(suite, both, pytest=options))
    assert {name: (one.state, one.attempts) for name, one in found.items()} == {
        "a": ("measured", 1),
        "b": ("measured", 1),
    }
    here = rows(tmp_path / "alone")
    assert sorted(here) == ["testbed=a", "testbed=b"]
    assert all(len(table) for table in here.values())
    there = rows(tmp_path / "results")
    assert all(there[name].equals(table) for name, table in here.items())
    assert sorted(there) == sorted(here)


def test_a_lost_worker_is_no_attempt_of_what_only_waited_there(distributed, lab, tmp_path):
    lost = tmp_path / "lost"
    suite = tmp_path / "test_suite.py"
    suite.write_text(
        f"""
import os, pathlib, signal, time

def test_of_a_testbed(testbed):
    lost = pathlib.Path({str(lost)!r})
    if not lost.exists():
        lost.write_text(testbed.name)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)  # SIGTERM ends it, as its worker has ended
"""
    )
    waits = f"while [ ! -e {shlex.quote(str(lost))} ]; do sleep 0.1; done; exec {{command}}"
    hosts = {"first": "{command}", "second": f"sh -c {shlex.quote(waits)}"}
    found = run_night(lab(suite, hosts, attempts=1))
    begun = found.pop(lost.read_text())
    (waited,) = found.values()
    assert (waited.state, waited.host, waited.attempts) == ("measured", "second", 1), waited.reason
    assert (begun.state, begun.reason) == ("not run", "each worker that began it was lost: first")


def test_what_a_lost_worker_had_published_is_not_measured_again(distributed, lab, tmp_path):
    counted = tmp_path / "counted"
    suite = tmp_path / "test_suite.py"
    suite.write_text(
        f"""
def test_of_a_testbed(testbed):
    with open({str(counted)!r}, "a") as file:
        file.write(testbed.name)
"""
    )
    described = lab(suite, {"one": "{command}"})
    first, second = run_night(described), run_night(described)
    assert sorted(counted.read_text()) == ["a", "b"]
    assert second["a"].run == first["a"].run
