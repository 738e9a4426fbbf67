"""Benchmarks say how sure their ratios are, and a baseline is another commit's own code."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks import figures
from benchmarks.__main__ import NEEDS
from benchmarks.baseline import COUNTED, count, processor_s, unpack

ROOT = Path(__file__).parents[2]
UNIT, SPREAD = 3, 4
"""Places of these arguments of `benchmarks.figures.beside_limit`."""


def judged_ratios() -> list[tuple[str, ast.Call]]:
    """Return file and call of each figure beside a limit that is no time."""
    found = []
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "beside_limit":
                stated = {each.arg for each in node.keywords}
                if len(node.args) <= UNIT and "unit" not in stated:
                    found.append((f"{path.name}:{node.lineno}", node))
    return found


def test_every_judged_ratio_states_its_spread() -> None:
    found = judged_ratios()
    assert len(found) > 9
    without = [
        place
        for place, call in found
        if len(call.args) <= SPREAD and "spread" not in {each.arg for each in call.keywords}
    ]
    assert not without


def test_every_run_notes_its_ratios_and_the_noise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made_up = ModuleType("benchmarks.alarms")

    def work() -> None:
        for _ in range(20):
            sum(number for number in range(figures.ADDITIONS))

    made_up.main = work  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchmarks.alarms", made_up)
    monkeypatch.setattr(figures, "ADDITIONS", 200_000)
    monkeypatch.setattr(figures, "measured_now", [])
    monkeypatch.delenv("LIGHTRIG_FIGURES", raising=False)
    figures.run("alarms")
    (noted,) = figures.measured_now
    ratio, of = noted.processor.split(" ", 1)
    assert of == "of the loop's"
    assert 5 < float(ratio) < 80  # twenty of the loop's additions, in a generator
    assert noted.peer.endswith(" of the loop's time")
    assert noted.spread.endswith(" of its median, n 10")

    page = tmp_path / "benchmarks.md"
    bare = figures.Figure("plans", "a plan", "1 s", "", "", "", "2026-03-02", "2 processors")
    figures.write(page, [noted, bare])
    text = page.read_text()
    assert "| a plan | 1 s | not measured |  |  | not measured | 2026-03-02, 2 processors |" in text
    rest = text.partition("## Whole runs not measured")[2]
    assert {line.split()[1] for line in rest.splitlines() if line.startswith("| ")} - {
        "benchmark"
    } == set(NEEDS) - {"alarms"}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two commits, whose program prints another word in each."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.setattr("benchmarks.baseline.ROOT", folder)

    def git(*arguments: str) -> None:
        who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)

    git("init")
    for word in ("then", "today"):
        (folder / "word.py").write_text(f"WORD = {word!r}\n")
        git("add", ".")
        git("commit", "-m", word)
        git("tag", word)
    return folder


def test_a_baseline_runs_its_own_files(repository: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "baseline"
    baseline.mkdir()
    unpack("then", baseline)
    for tree, word in ((repository, "today"), (baseline, "then")):
        check = f"import word; raise SystemExit(word.WORD != {word!r})"
        assert processor_s(tree, ("-c", check)) > 0
    with pytest.raises(subprocess.CalledProcessError):
        processor_s(baseline, ("-c", "import word; raise SystemExit(word.WORD != 'today')"))


def test_a_command_that_checks_more_is_compared_by_its_checks() -> None:
    what, pattern = COUNTED["doctor testbeds/opus.yaml"]
    output = b"note  opus  43 checks\nno problems in the simulated lab, 69 checks\n"
    assert (what, count(output, pattern)) == ("check", 69)
    with pytest.raises(ValueError, match="found b'no lab'"):
        count(b"no lab", pattern)


def test_a_commit_that_is_not_there_is_one_sentence(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="the baseline 1234567 is not in this checkout; fetch"):
        unpack("1234567", tmp_path)


def test_the_nightly_workflow_has_the_history_that_a_baseline_needs() -> None:
    target = (ROOT / "Makefile").read_text().partition("\nbench-judged:")[2].partition("\n\n")[0]
    assert "--judge" in target
    assert "baseline" in target.split()
    workflow = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()
    assert "fetch-depth: ${{ matrix.target == 'bench-judged' && '0' || '1' }}" in workflow
