"""However a night ends, it leaves a report that says so."""

import contextlib
import json
import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.served_lab import describe
from report.pages import above, packed
from runs.running import Ended, started

from lightrig.harness.record import read_journal
from lightrig.harness.report import write_page
from lightrig.testbeds import load

pytestmark = pytest.mark.timeout(300)  # eight runs side by side, on a machine that may be busy

TESTS = '''
import os, signal
import pytest

def test_that_fails(fabric, bring_up, transition):
    bring_up(transition.before)
    print("words on the way")
    assert 1 == 2, "a number <b>that is wrong</b>"

@pytest.fixture
def cut(bench):
    raise ValueError("no fiber here")

def test_whose_fixture_fails(testbed, cut): ...

def test_that_has_no_time(testbed, bench):
    pytest.skip("a reason in words")

def test_of_the_switch(fabric, switches, testbed):
    """A circuit that the switch cannot make."""
    from lightrig.testbeds import Circuit
    switches["ocs"].change((), [Circuit(1, 999)]).done()

@pytest.fixture
def mess():
    yield
    raise OSError("cannot clean up")

def test_that_leaves_a_mess(mess): ...

def test_that_passes(testbed, bench): ...
'''
INTERRUPTED = "import os, signal\ndef test_it(bench): os.kill(os.getpid(), signal.SIGINT)\n"
BROKEN_INSIDE = (
    "def pytest_runtest_logfinish(nodeid):\n    raise RuntimeError('the harness is broken')\n"
)
KILLED = """
import os, signal

def test_good(bench): ...
def test_bad(bench): assert False, "so bad"
def test_killed(bench): os.kill(os.getpid(), signal.SIGKILL)
"""
DEAD_SWITCH = """
import os, signal
import pytest

@pytest.fixture(scope="session")
def restored(bench):
    yield
    raise RuntimeError("the switch is dead")

def test_one(restored): assert False
def test_two(restored): os.kill(os.getpid(), signal.SIGINT)
def test_three(restored): ...
"""


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ended]]:
    """Nights that end badly, side by side."""
    folder = tmp_path_factory.mktemp("nights")
    lab = describe(folder)
    files = {
        "failures": {"test_night.py": TESTS},
        "interrupted": {"test_night.py": INTERRUPTED, "test_rest.py": "def test_rest(bench): ..."},
        "inside": {"test_night.py": "def test_it(bench): ...\n", "conftest.py": BROKEN_INSIDE},
        "absent": {"test_night.py": "def test_it(bench): ...\n"},
        "uncollected": {"test_night.py": "import no_such_module\n"},
        "dead": {"test_night.py": DEAD_SWITCH},
        "killed": {"test_night.py": KILLED},
    }
    css = folder / "own.css"
    css.write_text(".lr-page{--own:1}")
    own = ("--html", folder / "own" / "page.html", "--css", css)
    more = {"absent": ("--instruments", "hardware"), "uncollected": own}
    with contextlib.ExitStack() as stack:
        runs = {}
        for name, texts in files.items():
            project = folder / name
            project.mkdir()
            for file, text in texts.items():
                (project / file).write_text(text)
            options = more.get(name, ("--instruments", "simulated", "--seed", 3))
            arguments = (project, "--rootdir", project, "--testbed", lab, *options)
            results = folder / f"results of {name}"
            columns = "60" if name == "failures" else "200"
            terminal = {"COLUMNS": columns, "CI": "", "LIGHTRIG_STATE": str(folder / "state")}
            of_run = {**os.environ, **terminal}
            runs[name] = stack.enter_context(started(arguments, results, of_run, page=True))
        yield {name: run.end(timeout=200) for name, run in runs.items()}


def entries(page: Path) -> dict[str, dict[str, Any]]:
    """Each test of a page with what Lightrig added, by the test's function."""
    data = packed(page)
    return {
        name.rpartition("::")[2].partition("[")[0]: {**found[-1], **data["added"].get(name, {})}
        for name, found in data["html"]["tests"].items()
    }


def test_failures_show_wire_and_command(nights: dict[str, Ended]) -> None:
    ended = nights["failures"]
    assert ended.code == 1, ended.output
    tests = entries(ended.page)
    failed = tests["test_that_fails"]
    assert failed["result"] == "Failed"
    assert failed["why"].startswith("AssertionError: a number <b>that is wrong</b>")
    assert "assert 1" not in failed["why"]
    assert "words on the way" in failed["log"]
    assert "ENT-" in "".join(failed["wire"]["ocs"]) or "RTRV-" in "".join(failed["wire"]["ocs"])
    assert set(failed["wire"]) == {"ocs", "server0", "server1"}
    assert "LAB_OCS" not in json.dumps(failed["wire"])
    denied = tests["test_of_the_switch"]
    assert denied["why"].startswith("ocs ")
    assert "last on the wire" not in denied["why"]
    assert any("999" in line for line in denied["wire"]["ocs"])
    # pytest's summary has the whole reason, without the module of the error's class.
    whole = re.escape(denied["why"].partition("\n")[0])
    assert re.search(rf"^FAILED \S+test_of_the_switch\S* - {whole}$", ended.output, re.MULTILINE)
    words = above(ended.page)
    assert "a number &lt;b&gt;that is wrong&lt;/b&gt;" in words
    assert "no fiber here" in words


def test_the_command_repeats_the_very_test(nights: dict[str, Ended], tmp_path: Path) -> None:
    command = entries(nights["failures"].page)["test_that_fails"]["command"]
    assert command.startswith("pytest '")
    assert command.endswith("--instruments simulated --seed 3")
    arguments = shlex.split(command)[1:]
    project = Path(arguments[0].partition("::")[0]).parent
    with started([*arguments, "--rootdir", project], tmp_path / "again") as run:
        ended = run.end()
    assert ended.code == 1, ended.output
    assert "1 failed" in ended.output
    assert "that is wrong" in ended.output


def test_every_way_to_fail_has_its_word(nights: dict[str, Ended]) -> None:
    tests = entries(nights["failures"].page)
    words = {name: test["result"] for name, test in tests.items()}
    assert words == {
        "test_that_fails": "Failed",
        "test_whose_fixture_fails": "Error",
        "test_that_has_no_time": "Skipped",
        "test_of_the_switch": "Failed",
        "test_that_leaves_a_mess": "Error",
        "test_that_passes": "Passed",
    }
    assert tests["test_that_has_no_time"]["why"] == "a reason in words"
    (journal,) = nights["failures"].results.glob("runs/*/journal.jsonl")
    told = {
        test.nodeid.rpartition("::")[2].partition("[")[0]: test.outcome
        for test in read_journal(journal).tests
    }
    assert told == {name: word.lower() for name, word in words.items()}


def test_interrupted(nights: dict[str, Ended]) -> None:
    ended = nights["interrupted"]
    assert ended.code == 2, ended.output
    words = above(ended.page)
    assert "The run ended before its tests did: interrupted" in words
    assert "test_it" in words
    assert f"report   {ended.page}" in ended.output


def test_error_inside_pytest(nights: dict[str, Ended]) -> None:
    ended = nights["inside"]
    assert ended.code == 3, ended.output
    assert "internal error: RuntimeError: the harness is broken" in above(ended.page)
    assert f"report   {ended.page}" in ended.output


def test_lab_that_does_not_answer(nights: dict[str, Ended]) -> None:
    ended = nights["absent"]
    assert ended.code == 3, ended.output
    words = above(ended.page)
    assert "3 of 3 instruments of" in words
    for name in ("ocs at tl1://ocs.invalid", "server0 at ssh://", "server1 at ssh://"):
        assert name in words
    assert f"report   {ended.page}" in ended.output


def test_a_collection_error_is_reported(nights: dict[str, Ended]) -> None:
    """Beside the page of pytest-html that `--html` names; `--css` is of both."""
    ended = nights["uncollected"]
    assert ended.code == 2, ended.output
    own = ended.results.parent / "own" / "page.html"
    assert f"report   {ended.page}" in ended.output
    assert ".lr-page{--own:1}" in (own.parent / "assets" / "style.css").read_text()
    assert ".lr-page{--own:1}" in ended.page.read_text()
    (test,) = entries(ended.page).values()
    assert test["result"] == "Error"
    assert test["why"] == "ModuleNotFoundError: No module named 'no_such_module'"
    (journal,) = ended.results.glob("runs/*/journal.jsonl")
    assert [one.outcome for one in read_journal(journal).tests] == ["error"]


def test_switch_that_cannot_be_put_back(nights: dict[str, Ended]) -> None:
    """An error while fixtures are taken down costs pytest-html its page, not the report."""
    ended = nights["dead"]
    assert "the switch is dead" in ended.output
    words = above(ended.page)
    assert "made from its journal" in words
    assert entries(ended.page)["test_one"]["result"] == "Failed"
    assert "2 of 3 tests were not run" in words


def test_page_of_a_killed_run_is_made_from_its_journal(
    nights: dict[str, Ended], tmp_path: Path
) -> None:
    ended = nights["killed"]
    assert ended.code == -signal.SIGKILL, ended.output
    (journal,) = ended.results.glob("runs/*/journal.jsonl")
    page = tmp_path / "page.html"
    write_page(read_journal(journal), {"lab": load(describe(tmp_path))}, page)
    assert "The record is incomplete" in above(page)
    tests = entries(page)
    assert [test["result"] for test in tests.values()] == ["Passed", "Failed"]
    assert "so bad" in tests["test_bad"]["log"]
    assert tests["test_bad"]["wire"]["ocs"]
