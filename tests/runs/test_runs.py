"""Output, records and exit status of runs from the command line."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from runs.running import ROOT, Ended, started

from lightrig.instruments.namespaces import namespaces as kernel

OPUS = ROOT / "testbeds" / "opus.yaml"
BROKEN = ROOT / "tests" / "testbeds" / "broken" / "no_scheme.yaml"
Start = Callable[..., Any]
BETWEEN = ("suites/test_reconfiguration.py", "-k", "between")


@pytest.mark.parametrize(
    "chosen",
    [BETWEEN, pytest.param(("suites",), marks=pytest.mark.long)],
    ids=["some", "all"],
)
def test_one_seed_one_result_to_the_last_bit(start: Start, chosen: tuple[str, ...]) -> None:
    simulated = ("--testbed", OPUS, "--instruments", "simulated", "--samples", 4)
    # Both have a seed of hashes of their own: a new Python's, and that of all preloaded runs.
    runs = [start(*chosen, *simulated, "--seed", 5, fresh=fresh) for fresh in (True, False)]
    runs.append(start(*BETWEEN, *simulated, "--seed", 6))
    # All suites take 20 s of processor time each: a busy machine needs minutes for three of them.
    first, second, other = (run.end(timeout=600) for run in runs)
    for ended in (first, second, other):
        assert ended.code == 0, ended.output
        assert "295 more needed if all of them keep it" in ended.output
        assert re.search(r"= .*\d+ inconclusive.* in ", ended.output)
    assert len(first.rows) > 1_000
    assert first.rows == second.rows
    assert set(other.rows).isdisjoint(first.rows)
    for ended in (first, other):
        rows = [json.loads(line) for line in ended.rows]
        closures = {row[2]: row[3] for row in rows if row[2].startswith("closure.")}
        assert {f"closure.{s}" for s in ("acknowledged", "los", "signal_recovered")} <= set(
            closures
        )
        assert {row[3] for row in rows if row[2].startswith("closure.")} == {1.0}


def test_a_simulated_run_makes_the_stated_folder_of_states(start: Start) -> None:
    """`lightrig results` refuses a `$LIGHTRIG_STATE` that names no folder."""
    ended = start("suites/test_insertion_loss.py", "--testbed", OPUS, "-k", "absent").end()
    assert ended.code == 5, ended.output
    assert (ended.results.parent / "state").is_dir()


RING = ROOT / "testbeds" / "infinitehbd.yaml"


@pytest.mark.parametrize(
    ("biased", "closure", "testbed", "chosen"),
    [
        ("light", "signal_recovered", OPUS, "between"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("acknowledged", "acknowledged", OPUS, "between"),
                ("carrier", "carrier_up", OPUS, "between"),
                ("datagram", "first_datagram", OPUS, "between"),
                ("losses", "loss.closure", RING, "every_circuit"),
                ("bit errors", "bit_errors", RING, "as_it_is"),
            )
        ),
    ],
)
def test_a_world_that_is_measured_wrong_fails_the_run(
    start: Start, tmp_path: Path, biased: str, closure: str, testbed: Path, chosen: str
) -> None:
    run = start(
        *("suites", "--testbed", testbed, "--instruments", "simulated", "--samples", 2),
        *("--seed", 5, "-k", chosen, "-p", "runs.biased_world"),
        environment={
            **os.environ,
            "BIASED": biased,
            "PYTHONPATH": str(ROOT / "tests"),
            "XDG_STATE_HOME": str(tmp_path),
        },
    )
    ended = run.end()
    assert ended.code == 1, ended.output
    assert "the harness measured a simulated world wrong" in ended.output
    assert re.search(rf"{closure} of \S+.* is not closed", ended.output), ended.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("short")


@pytest.fixture(scope="module")
def short(folder: Path) -> Iterator[dict[str, Ended]]:
    """Runs that end soon, side by side."""
    folder.joinpath("test_five.py").write_text(
        "import pytest\n"
        "@pytest.mark.needs(circuits=5)\n"
        "def test_five(fabric, measure, transition): raise AssertionError\n"
    )
    project = folder / "project"
    project.mkdir()
    (project / "test_theirs.py").write_text(
        "import signal, pytest\n"
        "@pytest.fixture(params=[1, 2])\n"
        "def testbed(request): return request.param\n"
        "@pytest.fixture\n"
        "def transition(testbed): return testbed\n"
        "@pytest.mark.needs(circuits=5)\n"
        "@pytest.mark.parametrize('transition', [3], indirect=False)\n"
        "def test_theirs(testbed, transition): assert transition == 3\n"
        "def test_plain(): assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\n"
    )
    suites = folder / "suites"
    suites.mkdir()
    shutil.copy(ROOT / "suites" / "test_outage.py", suites)
    hardware = ("--instruments", "hardware")
    commands: dict[str, tuple[object, ...]] = {
        "absent": ("suites", "--testbed", OPUS, *hardware),
        "broken": ("suites", "--testbed", BROKEN),
        "twice": ("suites", "--testbed", OPUS, "--testbed", OPUS),
        "no testbed": (suites, "--rootdir", suites, "-rs"),
        "too many": (folder / "test_five.py", "--testbed", OPUS, *hardware),
        "collected": ("suites", "--testbed", OPUS, *hardware, "--collect-only"),
        "theirs": (project, "--rootdir", project),
    }
    with contextlib.ExitStack() as stack:
        runs = {
            name: stack.enter_context(started(arguments, folder / f"results of {name}"))
            for name, arguments in commands.items()
        }
        yield {name: run.end() for name, run in runs.items()}


def test_hardware_that_is_absent_ends_the_run(short: dict[str, Ended]) -> None:
    ended = short["absent"]
    assert ended.code == 3, ended.output
    assert f"5 of 5 instruments of {OPUS} did not answer as described" in ended.output
    ways = {"ocs": "tl1://", **{f"server{number}": "ssh://bench@" for number in range(4)}}
    for name, scheme in ways.items():
        assert f"{name} at {scheme}{name}.invalid, after " in ended.output
    assert ended.rows == []
    # Were they waited for, each of them would be: the machine's own pauses hit only some.
    waited = re.findall(r"\.invalid, after (\d+\.\d+) s", ended.output)
    assert len(waited) == 5
    assert min(map(float, waited)) < 1


def test_a_testbed_that_is_wrong_is_a_usage_error_with_its_place(short: dict[str, Ended]) -> None:
    assert short["broken"].code == 4, short["broken"].output
    assert re.search(rf"{BROKEN}:\d+:\d+: found ", short["broken"].output)
    assert short["twice"].code == 4, short["twice"].output
    assert "two testbeds have the same name: opus, opus" in short["twice"].output
    assert not any(short[name].results.exists() for name in ("broken", "twice"))


def test_without_a_testbed_the_suites_are_skipped_with_a_sentence(short: dict[str, Ended]) -> None:
    ended = short["no testbed"]
    assert ended.code == 0, ended.output
    assert "no testbed: give --testbed FILE" in ended.output
    assert not ended.results.exists()


def test_tests_that_a_testbed_cannot_offer_are_deselected(short: dict[str, Ended]) -> None:
    ended = short["too many"]
    assert ended.code == pytest.ExitCode.NO_TESTS_COLLECTED, ended.output
    assert "opus: 3 tests not applicable: no transition of 5 circuits (3)" in ended.output
    assert "3 deselected" in ended.output


def test_collection_contacts_no_instrument_and_leaves_nothing(short: dict[str, Ended]) -> None:
    ended = short["collected"]
    assert ended.code == 0, ended.output
    assert "test_between_plans[opus/east-west-to-north-south]" in ended.output
    assert not ended.results.exists()


def test_other_projects_are_left_alone(short: dict[str, Ended], folder: Path) -> None:
    ended = short["theirs"]
    assert ended.code == 0, ended.output
    assert "3 passed" in ended.output
    assert not ended.results.exists()
    assert {entry.name for entry in (folder / "project").iterdir()} <= {
        "test_theirs.py",
        "__pycache__",
    }


@pytest.mark.long
def test_namespaces_are_measured_and_taken_down(start: Start) -> None:
    if reason := kernel.available():
        pytest.skip(reason)
    run = start(
        *(
            "suites/test_reconfiguration.py",
            "--testbed",
            ROOT / "testbeds" / "namespaces.yaml",
            "--samples",
            5,
            "--instruments",
            "simulated",
        ),
        *("-k", "between_plans and ring-to-crossed"),
        fresh=True,  # /proc shows what it leaves behind
    )
    ended = run.end()
    assert ended.code == 0, ended.output
    rows = [json.loads(line) for line in ended.rows]
    counted = dict.fromkeys(("carrier_up", "carrier_down", "first_datagram"), 0)
    counted |= {"outage.datagram": 0, "harness.carrier_stamp": 0}
    for row in rows:
        if row[2] in counted:
            counted[row[2]] += 1
    assert all(count >= 5 for count in counted.values()), counted
    assert run.left_behind() == []
