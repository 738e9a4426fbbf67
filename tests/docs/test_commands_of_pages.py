"""Every command in the pages of the documentation exists, with each of its options.

What a person types in the tutorial is run, in order, by the test marked `long`; the commands of
the README are run by `test_readme_commands`, those of all pages by `test_pages_are_executed`.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import generated
import preloaded
import pytest
import typer
import yaml
from pages import ROOT, named_files, shell_commands  # a module beside this file

from lightrig import testbeds
from lightrig.harness.cli import commands, help_text
from lightrig.harness.cli.app import application

PAGES = sorted((ROOT / "docs").rglob("*.md"))
TUTORIAL = ROOT / "docs" / "tutorial.md"
NIGHTLY = ROOT / "docs" / "how-to" / "nightly.md"
PROGRAM = r"(?:lightrig|pytest|make|pip|python -m \w+)"
LINE = re.compile(
    rf"^(?:ExecStart\w*=/srv/lightrig/\.venv/bin/|.*run: (?:\.venv/bin/)?)({PROGRAM} .*)$"
)
FIRST = re.compile(r"""(?:'[^']*'|"[^"]*"|(?!\s(?:\#|\||&&|>)\s?|;).)*""")
"""The first command of a line: up to a comment, a pipe or the next command, outside quotes."""
INDENTED = re.compile(rf"^(?: {{4,12}}|\$ ){PROGRAM} ")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def commands_of(page):
    """Return each command of a page, without its comment."""
    text = page.read_text(encoding="utf-8")
    lines = [one[1] for one in map(LINE.match, text.splitlines()) if one]
    commands = [FIRST.match(each)[0].strip() for each in [*shell_commands(page), *lines]]
    known = [each for each in commands if re.match(rf"{PROGRAM} ", each)]
    return [*known, *re.findall(r"`(pip install [^`]+)`", text)]


COMMANDS_OF_PAGES = [
    pytest.param(command, id=f"{page.stem}-{command[:60]}")
    for page in PAGES
    for command in dict.fromkeys(commands_of(page))
]


@pytest.fixture(scope="module")
def pytest_options():
    printed = preloaded.run(["pytest", "--help"], cwd=ROOT).stdout
    return set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", printed))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_stand_in_shell_blocks(page):
    """Folder where they are found, and run."""
    outside = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert [line for line in outside.splitlines() if INDENTED.match(line)] == []


def test_there_are_commands_of_each_kind():
    programs = {shlex.split(one.values[0])[0] for one in COMMANDS_OF_PAGES}
    assert {"lightrig", "pytest", "make", "pip"} <= programs
    assert len(COMMANDS_OF_PAGES) >= 40


@pytest.mark.parametrize("command", COMMANDS_OF_PAGES)
def test_a_command_exists_with_its_options(command, pytest_options):
    program, *words = shlex.split(command)
    if "--" in words:  # what follows is a script's
        words = words[: words.index("--")]
    if program == "python":
        module, words = words[1], words[2:]
        program = module if module == "pytest" else program
        assert importlib.util.find_spec(module) is not None
    options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    if program == "lightrig" and words[0] in {"--show-completion", "--install-completion"}:
        assert words[0] in help_text()
    elif program == "lightrig":
        assert words[0] in commands()
        if "carousel" in words:
            return  # of the page's own package: tests/systems_by_others installs and runs it
        found = typer.main.get_command(application(words[0])).commands[words[0]]
        for word in words[1:]:
            found = getattr(found, "commands", {}).get(word, found)
        known = {name for parameter in found.params for name in parameter.opts}
        known |= {name for parameter in found.params for name in parameter.secondary_opts}
        assert set(options) <= known | {"--help"}
    elif program == "pytest":
        assert {each for each in options if each not in {"-m"}} <= pytest_options | {
            "-k",
            "-q",
            "-s",
        }
    elif program == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for word in (word for word in words if word.isidentifier() or "-" in word):
            assert re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE), word
    elif program == "pip":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras = [each for word in words for each in re.findall(r"^lightrig\[(.*)\]", word)]
        assert set(",".join(extras).split(",")) - {""} <= set(project["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_link_is_dead(page):
    links = LINK.findall(page.read_text(encoding="utf-8"))
    names = {"commands", "testbed-files", "pmds", "pytest", "python", *generated.REFERENCE}
    made = {f"{name}.md" for name in names}
    dead = [
        link
        for link in links
        if not (page.parent / link).exists()
        and not (Path(link).parent.name == "reference" and Path(link).name in made)
    ]
    assert dead == []


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    appendix = ROOT / "docs" / "appendix"
    pages = [page.name for page in PAGES if page.parent != appendix]
    assert [name for name in pages if name not in navigation] == []


def test_the_pages_of_users_have_at_most_50_000_words():
    """As `wc -w` counts them: reports and specifications belong in docs/appendix."""
    appendix = ROOT / "docs" / "appendix"
    words = {page: len(page.read_text().split()) for page in PAGES if page.parent != appendix}
    assert sum(words.values()) <= 50_000, sorted(words.items(), key=lambda each: -each[1])[:10]


@pytest.mark.long
def test_the_workflow_without_a_lab_runs_where_there_is_no_clone(tmp_path):
    """But for the lines that make an environment and install: this one has Lightrig."""
    workflow = yaml.safe_load(named_files(NIGHTLY)[".github/workflows/check.yml"])
    environment = {**os.environ, "LIGHTRIG_STATE": str(tmp_path), "PYTEST_ADDOPTS": "--samples 2"}
    programs = Path(sys.executable).parent
    described = [programs / "lightrig", "init", "mine.yaml", "--defaults"]
    subprocess.run(described, cwd=tmp_path, env=environment, capture_output=True, check=True)
    commands = [step["run"] for step in workflow["jobs"]["simulated"]["steps"] if "run" in step]
    ours = [each for each in commands if not re.search("-m venv|pip install", each)]
    assert len(ours) == 2
    for command in ours:
        ended = subprocess.run(
            command.replace(".venv/bin", str(programs)),
            cwd=tmp_path, env=environment, shell=True, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
    assert list(tmp_path.glob("results/runs/*/report.html"))


@pytest.mark.long
def test_the_tutorial_is_run_in_its_order(tmp_path):
    environment = {**os.environ, "LIGHTRIG_STATE": str(tmp_path / "state"), "COLUMNS": "200"}
    for command in commands_of(TUTORIAL):
        program, *words = shlex.split(command)
        if program not in {"lightrig", "pytest"}:
            continue
        few = ["--samples", "2"] if program == "pytest" else []
        ended = subprocess.run(
            [Path(sys.executable).with_name(program), *words, *few],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"
    assert testbeds.load(tmp_path / "mine.yaml").plans
    assert (tmp_path / "results" / "nights.html").is_file()
