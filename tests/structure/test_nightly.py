"""The nightly workflow: every command of it exists, and its page shows how each has ended."""

import importlib.util
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from benchmarks.__main__ import NEEDS
from tests.campaigns import records as campaigns
from tests.campaigns.__main__ import CAMPAIGNS
from tests.everything import targets_with_tests

ROOT = Path(__file__).parents[2]
SUMMARIZE = ROOT / ".github" / "summarize"
EXPRESSION = re.compile(r"\$\{\{ *matrix\.(\w+) *\}\}")


def commands(workflow_name: str = "nightly.yml") -> list[str]:
    """Return every command of a workflow, for each value of its matrix."""
    workflow = YAML(typ="safe", pure=True).load(ROOT / ".github" / "workflows" / workflow_name)
    found = []
    for job in workflow["jobs"].values():
        matrix: dict[str, Any] = job.get("strategy", {}).get("matrix", {})
        for step in job["steps"]:
            command = step.get("run", "")
            names = set(EXPRESSION.findall(command))
            assert len(names) <= 1
            values = matrix[names.pop()] if names else [""]
            found += [EXPRESSION.sub(value, command) for value in values]
    return [command for command in found if command]


@pytest.mark.parametrize(("workflow_name", "least"), [("nightly.yml", 13), ("virtual-lab.yml", 3)])
def test_every_command_exists(workflow_name: str, least: int) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    several = commands(workflow_name)
    assert len(several) >= least
    for command in several:
        made = re.findall(r"\bmake ([a-z-]+)", command)
        modules = re.findall(r"-m (benchmarks\.\w+|tests\.campaigns)", command)
        files = re.findall(r"(?:^|\s)((?:tests|\.github)/[\w./]+)", command)
        prepares = command.removeprefix("sudo ").startswith(("apt-get ", "git config "))
        assert made or modules or files or prepares, command
        assert targets >= set(made)
        assert all(importlib.util.find_spec(module) for module in modules), command
        assert all((ROOT / file).exists() for file in files), command


def test_every_target_with_tests_stands_in_a_workflow_with_its_permitted_skips() -> None:
    targets = targets_with_tests((ROOT / "Makefile").read_text())
    assert {"night", "test", "test-torch", "suites-traffic"} < {*targets}
    script = (ROOT / ".ci" / "run").read_text().replace("$ALLOWED", "tests/allowed_skips.txt")
    assert any("bash .ci/run" in each for each in commands("ci.yml"))
    lines = [each for each in script.splitlines() if not each.startswith(("#", "    step", "step"))]
    several = [*commands(), *commands("ci.yml"), *";".join(lines).split(";")]
    for target in targets:
        runs = [each for each in several if re.search(rf"\bmake {target}(?![\w-])", each)]
        assert runs, f"make {target} stands in no workflow"
        permitted = "ALLOWED_SKIPS=tests/allowed_skips.txt"
        assert all(permitted in each for each in runs), f"make {target} may skip any test"
    assert all("--allowed-skips" in each for each in several if "-m pytest" in each)


def test_every_test_that_needs_pytorch_is_run_with_it() -> None:
    skips = re.compile(r"""(skip\(|reason=)["']PyTorch is not installed""")
    need = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("test_*.py")
        if skips.search(path.read_text())
    }
    makefile = (ROOT / "Makefile").read_text()
    (recipe,) = re.findall(r"^test-torch:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert need == {*re.findall(r"tests/\S+\.py", recipe)}


def test_every_testbed_that_a_claim_names_is_run() -> None:
    claims = "\n".join(path.read_text() for path in (ROOT / "suites" / "claims").glob("*.py"))
    marks = re.findall(r"mark\.of_testbed\((.*?)\)", claims)
    named = {name for mark in marks for name in re.findall(r'"(.+?)"', mark)}
    files = re.findall(r"--testbed (testbeds/\S+)", (ROOT / "Makefile").read_text())
    run = {YAML(typ="safe", pure=True).load(ROOT / file)["name"] for file in files}
    assert {"acos-train4", "mixnet6", "mixnet8", "rails4"} <= named <= run


@pytest.mark.parametrize("status", [0, 3])
def test_the_page_shows_how_a_command_has_ended(tmp_path: Path, status: int) -> None:
    page = tmp_path / "page.md"
    ended = subprocess.run(
        [SUMMARIZE, "kills", "2", "sh", "-c", f"seq 5; echo end >&2; exit {status}"],
        env={**os.environ, "GITHUB_STEP_SUMMARY": str(page)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == status
    assert "1\n2\n" in ended.stdout
    word = "passed" if status == 0 else "failed with status 3"
    assert page.read_text() == f"## kills: {word}\n```\n5\nend\n```\n"


def test_the_page_of_campaigns_is_made_of_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAMPAIGNS", str(tmp_path))
    race = {"kind": "names", "number": 0, "outcomes": ["held", "refused"], "stuck": False}
    with campaigns.log("lease_races") as log:
        log.add(race)
    with (tmp_path / "lease_races.jsonl").open("a") as file:
        file.write('{"kind": "names", "number": 1, "outc')
    printed: list[str] = []
    assert campaigns.print_page(printed.append)
    assert "## lease_races: kept\n" in printed
    assert re.search(r"^names +1 +1 +0 ", "\n".join(printed), re.MULTILINE)

    with campaigns.log("lease_races") as log:
        assert [each["number"] for each in log.done] == [0], "a line that was cut off was not done"
        log.add({**race, "outcomes": ["held", "TWO HOLDERS"]})
    printed.clear()
    assert not campaigns.print_page(printed.append)
    assert "## lease_races: BROKEN\n" in printed


def test_the_page_shows_each_campaign_of_the_night() -> None:
    workflow = YAML(typ="safe", pure=True).load(ROOT / ".github" / "workflows" / "nightly.yml")
    jobs = workflow["jobs"]["reliability"]["strategy"]["matrix"]["job"]
    assert {*jobs} == {*campaigns.NAMES}
    assert all(
        hasattr(import_module(f"tests.campaigns.{name}"), "table") for name in campaigns.NAMES
    )


@pytest.mark.parametrize(
    ("package", "names", "libraries"),
    [
        (
            "tests.campaigns",
            CAMPAIGNS,
            {"planted_worlds", "preloaded", "records", "suite_kills_lab"},
        ),
        ("benchmarks", NEEDS, {"figures"}),
    ],
)
def test_every_campaign_and_benchmark_is_listed(
    package: str, names: dict[str, str], libraries: set[str]
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", package], capture_output=True, text=True, check=True, cwd=ROOT
    )
    runnable = {
        path.stem
        for path in (ROOT / package.replace(".", "/")).glob("[a-z]*.py")
        if re.search(r"^def main\(", path.read_text(), re.MULTILINE)
    } - libraries
    assert runnable == {*names}
    assert runnable == {*re.findall(r"^([a-z_]+) +[A-Z]", ended.stdout, re.MULTILINE)}
    wrong = subprocess.run(
        [sys.executable, "-m", package, "unknown"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert wrong.returncode == 2
    assert "Traceback" not in wrong.stderr
