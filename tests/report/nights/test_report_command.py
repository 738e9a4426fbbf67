"""`lightrig report`."""

import json
import shutil

import pytest
import typer
from typer.testing import CliRunner

from lightrig.harness.cli.report import report
from lightrig.harness.record import Context, Journal, Row


@pytest.fixture
def run(tmp_path):
    app = typer.Typer()
    app.command()(report)

    def run(*arguments, results=tmp_path):
        return CliRunner().invoke(app, [*arguments, "--results", str(results)])

    return run


def test_without_a_run_it_makes_the_nights(run, planted, tmp_path):
    shutil.copytree(planted, tmp_path, dirs_exist_ok=True)
    result = run()
    assert result.exit_code == 0
    assert result.stdout.strip().endswith("nights.html")
    assert "What changed" in (tmp_path / "nights.html").read_text()


def test_it_looks_back_as_far_as_asked(run, planted, tmp_path):
    shutil.copytree(planted, tmp_path, dirs_exist_ok=True)
    assert json.loads(run("--nights", "7", "--json").stdout) == [
        {"page": str(tmp_path / "nights.html")}
    ]
    assert "7 nights of 2 testbeds, 2026-02-24 to" in (tmp_path / "nights.html").read_text()


def test_a_run_s_page_is_made_again(run, tmp_path):
    folder = tmp_path / "runs" / "r1"
    folder.mkdir(parents=True)
    with Journal(folder / "journal.jsonl", {"run": "r1", "night": "2026-03-14"}) as journal:
        context = Context("bench", "test_it", ("ocs: x",), True)
        journal.append(context, Row("a", "insertion_loss", 1.2, 1.1, 1.3, "dB", 1))
    result = run("last")
    assert result.exit_code == 0, result.output
    assert "insertion loss" in (folder / "report.html").read_text()


def test_a_run_that_is_not_there(run, tmp_path):
    (tmp_path / "rows").mkdir()
    result = run("nonesuch")
    assert result.exit_code == 2
    assert "nonesuch" in result.stderr


def test_results_that_are_not_there(run, tmp_path):
    result = run(results=tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "no such folder" in result.stderr


def test_results_without_rows(run):
    result = run()
    assert result.exit_code == 3
    assert "no run has left a row" in result.stderr
