"""Every command of the README, and of pages that began in it, is run without a lab.

Each runs in a folder that looks like a checkout.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pages  # a module beside this file
import preloaded
import pytest

from lightrig.testbeds import load

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PROGRAMS = Path(sys.executable).parent
FEW = ("--samples", "2", "--seed", "1")

DOCS = ROOT / "docs"
SUITE = (DOCS / "how-to" / "write-a-suite.md").read_text()
PAGES = (pages.README, DOCS / "how-to" / "measure.md", DOCS / "published-systems.md")
COMMANDS = list(dict.fromkeys(each for page in PAGES for each in pages.shell_commands(page)))
LONG = {"lightrig claims mixnet"}
"""Computes more than any other of these, and `lightrig claims opus` does the same in a quarter."""

RULES = (
    # Makes the others findable; here they are started by their paths.
    (r"\. \.venv/bin/activate", "activate"),
    # Into an environment of its own: tests/packaging/test_wheel.py.
    (r"python3 -m venv \.venv|pip install \.", "install"),
    # Overwrites nothing, so it has a folder to itself.
    (r"lightrig init mine\.yaml --defaults", "init"),
    # Wants PyTorch and minutes of namespaces: only that it is collected.
    (r"pytest suites/claims/test_opus_training\.py .*", "collect"),
    # Wants instruments that answer: ends by naming those that do not.
    (r"lightrig (doctor|apply|connect|disconnect|get|set|live) .*", "hardware"),
    (r"pytest .* --instruments hardware", "hardware"),
    (r"pytest suites --testbed testbeds/mine\.yaml", "measure"),
    (r"pytest --pyargs lightrig\.suites --testbed mine\.yaml --instruments simulated", "suites"),
    (r"lightrig serve .*", "serve"),
    (r"lightrig (check|plan|restore|who|note) .*", "run"),
    # Read what was measured before.
    (r"lightrig (results list|report)", "read"),
    # Names the runs, of which none is that of a lab of hardware.
    (r"lightrig history .*", "read"),
    # Exit 1 where a claim differs, as one may after so few samples.
    (r"lightrig claims \w+", "compare"),
    # Write files that a shell reads: tried on a terminal by tests/cli/test_completion.py.
    (r"lightrig --(show|install)-completion .*|\. \./completion\.bash", "completion"),
)
"""Rule for a command, by the first pattern that it matches in full."""


def kind_of(command):
    found = next((kind for pattern, kind in RULES if re.fullmatch(pattern, command)), None)
    assert found is not None, f"no rule for the command {command!r}"
    return found


def block(language, page):
    found = re.search(rf"```{language}\n(.*?)```", page, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """The suites and testbeds of this checkout, and the README's testbed beside them."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "suites").symlink_to(ROOT / "suites")
    shutil.copytree(
        ROOT / "testbeds", folder / "testbeds", ignore=shutil.ignore_patterns("*.py", "__pyc*")
    )
    for mine in (folder / "mine.yaml", folder / "testbeds" / "mine.yaml"):
        mine.write_text(block("yaml", README))
    return folder


@pytest.fixture(scope="module")
def run(checkout, tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    environment = {**os.environ, "LIGHTRIG_STATE": str(state), "COLUMNS": "200"}

    def run(command, *more, cwd=checkout):
        return preloaded.run([*command.split(), *more], cwd=cwd, env=environment)

    return run


@pytest.fixture(scope="module")
def measured(run):
    """The end of the README's own run of all suites on its own testbed."""
    return run("pytest suites --testbed testbeds/mine.yaml", *FEW)


@pytest.fixture
def serve(checkout):
    def serve(command):
        with preloaded.Process(
            [*command.split(), "--port", "0"], cwd=checkout, stdout=subprocess.PIPE
        ) as serving:
            assert serving.stdout is not None
            for line in serving.stdout:
                if "served.yaml" in line:
                    break
            serving.send_signal(signal.SIGINT)
            serving.communicate(timeout=60)
        return serving.returncode

    return serve


def test_there_are_commands():
    assert {kind_of(command) for command in COMMANDS} == {kind for _, kind in RULES}
    assert set(COMMANDS) > LONG


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=pytest.mark.long) if command in LONG else command
        for command in COMMANDS
    ],
)
def test_a_command_of_the_readme_does_as_it_says(command, run, serve, checkout, request, tmp_path):
    kind = kind_of(command)
    if kind == "activate":
        printed = (ROOT / "Makefile").read_text().replace("$(BIN)", ".venv/bin")
        assert command in printed
    elif kind == "install":
        assert request.config.rootpath.joinpath("tests", "packaging", "test_wheel.py").is_file()
    elif kind == "init":
        ended = run(command, cwd=tmp_path)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert "pytest --pyargs lightrig.suites --testbed mine.yaml" in ended.stdout
    elif kind == "suites":
        ended = run(command, "--collect-only", "-q")
        assert ended.returncode == 0, ended.stdout
        assert "test_between_plans[mine/straight-to-crossed]" in ended.stdout
    elif kind == "completion":
        assert request.config.rootpath.joinpath("tests", "cli", "test_completion.py").is_file()
    elif kind == "serve":
        assert serve(command) == 0
        assert load(checkout / "served.yaml").switches["ocs"].address.startswith("tl1://127.0.0.1")
    elif kind == "measure":
        ended = request.getfixturevalue("measured")
        assert ended.returncode == 0, ended.stdout
        assert "simulated" in ended.stdout
        assert not re.search(r"\d+ (failed|errors?)\b", ended.stdout), ended.stdout
    elif kind == "collect":
        ended = run(command, "--collect-only", "-q")
        assert ended.returncode == 0, ended.stdout
        assert "test_losses_are_those_of_a_mesh[" in ended.stdout
    elif kind == "hardware":
        ended = run(command)
        assert ended.returncode != 0
        assert "did not answer at ocs.invalid" in ended.stdout + ended.stderr
    else:
        if kind in ("read", "compare"):
            request.getfixturevalue("measured")
        ended = run(command)
        allowed = (0, 1) if kind == "compare" else (0,)
        assert ended.returncode in allowed, ended.stdout + ended.stderr
        assert ended.stdout
        assert not ended.stderr


def test_the_python_block_runs_as_a_suite(run, checkout):
    suite = checkout / "test_readme_block.py"
    suite.write_text(block("python", SUITE).replace("def test_between", "def test_block_between"))
    ended = run(f"pytest {suite.name} --testbed testbeds/mine.yaml --instruments simulated", *FEW)
    assert ended.returncode == 0, ended.stdout
    assert "found no collectors" not in ended.stdout
    assert re.search(r"[1-9]\d* (passed|skipped|inconclusive)", ended.stdout), ended.stdout
