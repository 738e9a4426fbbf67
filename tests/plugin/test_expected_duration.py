"""How long a run will take, stated before its first test."""

import re
from pathlib import Path

import pytest
from bench.served_lab import describe
from runs.running import started

from lightrig.harness.plugin.expected_duration import expectation
from lightrig.harness.record.run_folder import Measured, Outcomes, RunFacts, write_facts

COMMAND = "pytest suites --testbed lab.yaml --samples 7"
HEADER = {"testbeds": {"lab": "lab.yaml"}, "instruments": "hardware", "command": COMMAND}
SLOW, QUICK = "suites/test_a.py::test_slow[lab]", "suites/test_a.py::test_quick[lab/x]"


def write_run(folder: Path, day: int, durations: dict[str, float], took: float, **other: str):
    """Write the facts of a run of that day whose tests took so many seconds."""
    name = f"202601{day:02}-020000-lab"
    header = {"schema": 3, "run": name, "night": f"2026-01-{day:02}", **HEADER, **other}
    tests = Outcomes([name, "passed", seconds] for name, seconds in durations.items())
    measured = {"lab": Measured(3, simulated=False)}
    (folder / name).mkdir(parents=True)
    facts = RunFacts("complete", False, measured, tests, header, {"duration_s": took})
    write_facts(facts, folder / name)


def expected(folder: Path, *tests: str, command: str = COMMAND) -> str:
    own = folder / "20260131-020000-lab"
    own.mkdir(exist_ok=True)
    return expectation(tests, own, HEADER | {"command": command})


def test_the_median_of_earlier_runs_and_what_is_around_tests(tmp_path):
    """Of 300, 700 and 310 s with 60, 20 and 60 s around: 310 + 60 s are 6.2 min."""
    for day, slow, took in ((3, 300, 362), (4, 700, 722), (5, 310, 372)):
        write_run(tmp_path, day, {SLOW: slow, QUICK: 2.0}, took)
    assert expected(tmp_path, SLOW).startswith("expected to take about 6 min, as 3 earlier runs")


def test_only_the_last_five_runs_count(tmp_path):
    """Those took 1000, 46, 47, 48 and 5 s; one that is damaged is passed over."""
    for day, slow in ((1, 1000), (2, 900), (5, 1000), (6, 46), (7, 47), (8, 48), (20, 5)):
        write_run(tmp_path, day, {SLOW: float(slow)}, slow)
    assert "about 47 s, as 5 earlier runs" in expected(tmp_path, SLOW)
    for day in (1, 2, 5, 20):
        (tmp_path / f"202601{day:02}-020000-lab" / "run.json").write_text("{}")
    assert "about 47 s, as 3 earlier runs" in expected(tmp_path, SLOW)


@pytest.mark.parametrize(
    "other",
    [
        {"instruments": "simulated"},
        {"command": "pytest suites --testbed lab.yaml --samples 100"},
        {"command": "pytest suites --testbed lab.yaml --samples=7 -n 4"},
        {"testbeds": {"fab": "fab.yaml"}},
    ],
)
def test_runs_of_another_kind_do_not_count(tmp_path, other):
    write_run(tmp_path, 3, {SLOW: 300}, 300, **other)
    found = expected(tmp_path, SLOW)
    assert found.startswith("how long this takes is not known")
    assert "no earlier run of lab with --instruments hardware" in found


def test_spelling_and_folders_make_no_other_kind(tmp_path):
    """`--samples=7` is `--samples 7`, and a test is the same from a checkout and a wheel."""
    write_run(tmp_path, 3, {SLOW: 300}, 300, command="pytest --samples=7 --testbed lab.yaml")
    assert "about 5 min" in expected(tmp_path, SLOW.removeprefix("suites/"))


def test_new_tests_are_named_and_new_parameters_are_as_the_others(tmp_path):
    write_run(tmp_path, 3, {SLOW: 30, QUICK: 6}, 36)
    found = expected(tmp_path, QUICK.replace("x", "y"), SLOW, *(f"b.py::t{n}" for n in range(5)))
    assert "about 36 s, as 1 earlier run" in found
    assert found.endswith("has them: b.py::t0, b.py::t1, b.py::t2 and 2 more")


def test_tests_side_by_side_take_less_than_their_sum(tmp_path):
    parallel = f"{COMMAND} --numprocesses 3"
    write_run(tmp_path, 3, {SLOW: 60, QUICK: 30}, 45, command=parallel)
    assert "about 30 s" in expected(tmp_path, SLOW, command=parallel)


def test_a_run_says_it_before_its_first_test(tmp_path):
    lab = describe(tmp_path, limit="{max: 10 s}")
    (tmp_path / "test_own.py").write_text("def test_own(testbed, bench): pass")
    simulated = ("--testbed", lab, "--instruments", "simulated")
    arguments = (tmp_path / "test_own.py", "--rootdir", tmp_path, *simulated)
    for stated in (
        "how long this takes is not known",
        "expected to take (less than a|about \\d+) s",
    ):
        with started(arguments, tmp_path / "results") as run:
            ended = run.end()
        assert re.search(f"{stated}.*\n.*1/1  passed", ended.output), ended.output
