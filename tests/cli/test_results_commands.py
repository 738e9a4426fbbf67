"""`lightrig results`: what is printed, and the exit status, which says what happened."""

import csv
import io
import json
import re

import pytest
from record.recorded import record
from typer.testing import CliRunner
from uneven import write_results

from lightrig.harness.cli.results import results
from lightrig.harness.record.journal import seal


@pytest.fixture
def lab(tmp_path):
    return write_results(tmp_path / "results")


@pytest.fixture
def run(lab):
    return lambda *args: CliRunner().invoke(results, [*map(str, args), "--results", str(lab)])


def columns_of(text):
    return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]


def test_list_shows_rows_and_outcomes(run):
    result = run("list")
    assert result.exit_code == 0
    head, *lines = columns_of(result.stdout)
    assert head == [
        *("run", "night", "testbeds", "rows", "passed", "failed", "inconclusive", "skipped"),
        *("took", "state"),
    ]
    assert [" | ".join(line) for line in lines] == [
        "r1 | 2026-03-14 | opus (simulated), mixnet | 23 | 1 | 0 | 0 | 1 | 12 s | complete",
        "r2 | 2026-03-14 | opus, mixnet | 5 | 0 | 0 | 0 | 0 | 7 s | complete",
        "r3 | 2026-03-15 | opus (simulated) | 7 | 1 | 1 | 2 | 0 | 3660 s | complete",
        "r4 | 2026-03-15 | opus (simulated) | 1,234 | 0 | 0 | 0 | 0 | killed",
        "r5 | 2026-03-16 | opus | 11 | 0 | 0 | 0 | 0 | 60 s | complete",
        "r6 | 2026-03-16 | opus (simulated) | 2 | 1 | 0 | 0 | 1 | 12 s | complete",
    ]


def test_list_as_json_filtered(run):
    found = json.loads(run("list", "--json", "--testbed", "mix*").stdout)
    assert [(one["run"], one["simulated"], one["rows"]) for one in found] == [
        *(("r1", True, 23), ("r2", False, 5))
    ]
    assert [one["run"] for one in json.loads(run("list", "--json", "--night", "*-15").stdout)] == [
        *("r3", "r4")
    ]


def test_list_of_nothing(tmp_path, monkeypatch):
    """The default folder is made by the first run; one that is named is there."""
    monkeypatch.chdir(tmp_path)
    for place in ([], ["--results", str(tmp_path)]):
        result = CliRunner().invoke(results, ["list", *place])
        assert result.exit_code == 0
        assert "no runs" in result.stdout


@pytest.mark.parametrize(
    "command",
    ["list", "query|SELECT 1", "compare|r1|last", "export|last", "metrics"],
)
def test_a_folder_of_results_that_is_not_there_is_a_mistyped_one(tmp_path, command):
    missing = str(tmp_path / "resluts")
    result = CliRunner().invoke(results, [*command.split("|"), "--results", missing])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{missing}: no such folder of results\n"


def test_a_damaged_run_ends_with_status_3_and_the_rest_are_listed(run, lab):
    (lab / "runs" / "r4" / "journal.jsonl").write_text("{}\n")
    result = run("list")
    assert result.exit_code == 3
    assert "r1" in result.stdout
    assert "r4/journal.jsonl:1: the run header has no schema" in result.stderr


def test_query(run):
    sql = "SELECT night, testbed, count(*) AS n, 1e-20 AS tiny FROM rows GROUP BY ALL ORDER BY n"
    result = run("query", sql)
    assert result.exit_code == 0
    assert columns_of(result.stdout) == [
        ["night", "testbed", "n", "tiny"],
        ["2026-03-15", "opus", "7", "1e-20"],
        ["2026-03-14", "mixnet", "8", "1e-20"],
        ["2026-03-16", "opus", "13", "1e-20"],
        ["2026-03-14", "opus", "20", "1e-20"],
    ]
    assert json.loads(run("query", sql, "--json").stdout)[0] == {
        "night": "2026-03-15",
        "testbed": "opus",
        "n": 7,
        "tiny": 1e-20,
    }
    wrong = run("query", "SELECT x FROM rows")
    assert wrong.exit_code == 2
    assert 'Referenced column "x" not found' in wrong.stderr
    assert run("query", "DROP VIEW rows").exit_code == 2


def test_unreadable_rows_end_with_status_3(run, lab):
    (lab / "rows" / "testbed=opus" / "night=2026-03-14" / "r1.parquet").write_text("none")
    result = run("export", "r1")
    assert result.exit_code == 3
    assert "r1.parquet" in result.stderr


def test_export(run, tmp_path):
    printed = run("export", "r1")
    assert printed.exit_code == 0
    lines = list(csv.DictReader(io.StringIO(printed.stdout)))
    assert len(lines) == 23
    assert [line["value"] for line in lines[:5]] == [
        *("61000000.0", "63000000.0", "69000000.0", "61000000.0", "63000000.0")
    ]
    assert [line["testbed"] for line in lines[2:4]] == ["mixnet", "opus"]
    file = tmp_path / "out.json"
    assert run("export", "r1", "--format", "json", "--output", file).stdout == ""
    assert len(json.loads(file.read_text())) == 23
    unwritable = run("export", "r1", "--output", tmp_path / "no" / "where")
    assert (unwritable.exit_code, "No such file" in unwritable.stderr) == (2, True)
    unknown = run("export", "x")
    assert unknown.exit_code == 2
    assert "'x' is no run; the last are r2, r3, r4, r5, r6" in unknown.stderr


def test_recover_brings_every_killed_run_to_its_end(run, lab):
    empty = lab / "runs" / "r0"
    empty.mkdir()
    (empty / "journal.jsonl").touch()
    result = run("recover")
    assert result.exit_code == 0
    report = str(lab / "runs" / "r4" / "report.html")
    assert columns_of(result.stdout)[1:] == [
        ["r0", "empty", "0", "killed before anything was recorded"],
        ["r4", "recovered", "1234", report],
    ]
    assert "<html" in (lab / "runs" / "r4" / "report.html").read_text()
    assert [one["state"] for one in json.loads(run("list", "--json").stdout)] == [
        *("complete", "complete", "complete", "recovered", "complete", "complete")
    ]
    empty.joinpath("journal.jsonl").unlink()
    assert "nothing to recover" in run("recover").stdout


def test_recover_one_run_by_name(run):
    (shown,) = json.loads(run("recover", "r1", "--json").stdout)
    assert (shown["run"], shown["state"], shown["rows"], shown["problem"]) == (
        "r1",
        "complete",
        23,
        None,
    )
    unknown = run("recover", "r9")
    assert unknown.exit_code == 2
    assert "r9: no such run" in unknown.stderr


@pytest.mark.parametrize(("spoiled", "more"), [(1, ""), (3, ""), (4, "; and 1 more")])
def test_lines_that_are_left_out_are_counted_and_three_are_named(run, lab, spoiled, more):
    journal = lab / "runs" / "r4" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    for number in range(spoiled):
        lines[5 + 2 * number] = "no row\n"
    journal.write_text("".join(lines))
    (shown,) = json.loads(run("recover", "r4", "--json").stdout)
    problem = shown["problem"]
    assert problem.startswith(f"{spoiled} damaged lines are left out: ")
    assert problem.count("line ") == min(spoiled, 3)
    assert problem.endswith(more)
    assert ("more" in problem) is bool(more)


def test_an_unrecoverable_run_ends_with_status_3(run, lab):
    journal = lab / "runs" / "r4" / "journal.jsonl"
    first, rest = journal.read_text().split("\n", 1)
    later = {**json.loads(first), "schema": 99}
    del later["crc"]
    journal.write_text(f"{seal(json.dumps(later, separators=(',', ':')))}\n{rest}")
    result = run("recover", "--json")
    assert result.exit_code == 3
    (shown,) = json.loads(result.stdout)
    assert shown["state"] == "not recovered"
    assert "99" in shown["problem"]
    elsewhere = CliRunner().invoke(results, ["recover", "--results", "memory://x"])
    assert elsewhere.exit_code == 2
    assert "give a folder" in elsewhere.stderr


def test_compare_shows_changes(run, lab):
    for number in range(1, 15):
        middle = 60 + number % 3 / 10 + (25 if number >= 12 else 0)
        record(lab, f"n{number:02}", f"2026-02-{number:02}", rows=40, middle_ms=middle)
    same = run("compare", "n10", "n11")
    assert same.exit_code == 0
    head, line, *rest = columns_of(same.stdout)
    assert head == ["testbed", "test", "quantity", "of", "before", "after", "drift"]
    assert line[:4] == [
        "opus (simulated)",
        "test_between_plans[opus-east-west-north-south]",
        "reconfiguration.signal_recovered",
        "opus",
    ]
    assert line[4].startswith("63.1 ms [57.")
    assert line[4].endswith("] n 40")
    # Each row is known to 5 ms either way, as on every night; nights lie 0.2 ms apart.
    assert (line[6], rest) == ("unchanged", [])
    other = run("compare", "n11", "n12")
    assert other.exit_code == 0
    assert columns_of(other.stdout)[1][6] == "departed, unconfirmed"
    assert (
        "reconfiguration.signal_recovered, opus: Tonight's 40 samples are 1.394 times"
        in other.stdout
    )
    assert run("compare", "n11", "n13").exit_code == 0
    assert run("compare", "n11", "n14").exit_code == 1
    (found,) = json.loads(run("compare", "n11", "n14", "--json").stdout)
    assert (found["drift"]["outcome"], found["drift"]["run"]) == ("changed", 3)
    assert found["after"]["n"] == 40
    assert (found["quantity"], found["simulated"]) == ("reconfiguration.signal_recovered", True)
    few = run("compare", "n01", "n02")
    assert (few.exit_code, "not enough data" in few.stdout) == (0, True)
    nothing = run("compare", "r3", "r2")
    assert nothing.exit_code == 2
    assert "nothing in common" in nothing.stderr


def test_compare_names_the_least_change_that_scattering_nights_would_show(run, lab):
    for number, middle in enumerate((60, 71, 57, 68, 74, 59, 66, 70), start=1):
        record(lab, f"n{number:02}", f"2026-02-{number:02}", rows=40, middle_ms=middle)
    _, line, *rest = columns_of(run("compare", "n07", "n08").stdout)
    assert re.fullmatch(r"cannot tell below x 1\.[3-9]\d*", line[6]), line
    assert rest[-1][0].startswith("cannot tell: 1 of 1 comparisons")


def test_compare_exits_1_if_one_of_several_series_has_changed(run, lab, monkeypatch):
    from lightrig.harness.report import comparison
    from lightrig.harness.report.comparison import Case, Comparison, Drift
    from lightrig.harness.statistics.quantiles import NotEnough

    def compared(outcome, quantity, subject="ocs"):
        case = Case("opus", "test_x", quantity, subject, "x", "median", "ns", "{}", True)
        return Comparison(case, NotEnough(1, 2), NotEnough(1, 2), Drift(outcome, "", 1, 1))

    for outcomes, code in (
        (["unchanged", "changed", "unchanged"], 1),
        (["guard broken", "unchanged"], 1),
        (["unchanged", "not enough data"], 0),
        (["unchanged", "cannot tell"], 0),
        (["departed, unconfirmed", "unchanged"], 0),
    ):
        found = [compared(each, f"outage.q{n}") for n, each in enumerate(outcomes)]
        monkeypatch.setattr(comparison, "compare", lambda *_, found=found: found)
        result = run("compare", "r1", "r2")
        assert result.exit_code == code, outcomes
        assert ("cannot tell: 1 of 2 comparisons" in result.stdout) == ("cannot tell" in outcomes)
    # Of series of one quantity and test the line is the worst one's: never silence for a change.
    words = ("unchanged", "not enough data", "cannot tell", "changed")
    for count in range(1, len(words) + 1):
        found = [compared(word, "outage", f"port{n}") for n, word in enumerate(words[:count])]
        monkeypatch.setattr(comparison, "compare", lambda *_, found=found: found)
        printed = run("compare", "r1", "r2").stdout.splitlines()
        table = [each for each in printed if not each.startswith("differs: ")]
        assert len(table) < len(printed)  # the instruments of the two runs
        line = columns_of("\n".join(table))[1]
        word = ("unchanged", "not enough data", "cannot tell any change", "changed")[count - 1]
        more = f" and {count - 1} more" if count > 1 else ""
        assert (line[3], line[-1]) == (f"port{count - 1}{more}", word)


@pytest.mark.parametrize("command", ["list", "query", "compare", "recover", "export"])
def test_every_command_has_help_with_an_example(command):
    result = CliRunner().invoke(results, [command, "--help"])
    assert result.exit_code == 0
    assert f"Example: lightrig results {command}" in result.stdout
    assert "Exit 0" in result.stdout


def test_a_pull_refuses_another_run_of_the_same_name(run, lab, tmp_path):
    other = tmp_path / "other"
    record(other, "r1", "2026-03-14", rows=21)
    record(other, "r7", "2026-03-16", rows=3)
    before = {p: p.read_bytes() for p in lab.rglob("*") if p.is_file()}
    result = run("pull", other)
    assert result.exit_code == 3
    assert result.stdout.startswith("5 files of 0.0 MB copied")
    assert "r1: " in result.stderr
    assert "--replace" in result.stderr
    assert {p: p.read_bytes() for p in before} == before
    assert run("pull", other, "--replace").exit_code == 0
    count = "SELECT count(*) AS n FROM rows WHERE run = 'r1'"
    assert json.loads(run("query", count, "--json").stdout) == [{"n": 21}]


def test_parquet_goes_through_a_pipe_whole(run):
    import pyarrow.parquet as pq

    exported = run("export", "r2", "--format", "parquet")
    assert exported.exit_code == 0
    table = pq.read_table(io.BytesIO(exported.stdout_bytes))
    assert table.num_rows == 5


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--night", "2026-03-1[4]"), ["r1", "r2"]),
        (("--night", "2026-03-1?", "--testbed", "mix*"), ["r1", "r2"]),
        (("--testbed", "[mo]*", "--night", "*[56]"), ["r3", "r4", "r5", "r6"]),
        (("--testbed", "?pus", "--night", "*5"), ["r3", "r4"]),
    ],
)
def test_runs_are_chosen_by_patterns_of_night_and_testbed(run, options, names):
    found = json.loads(run("list", "--json", *options).stdout)
    assert [one["run"] for one in found] == names


def test_prune_removes_with_yes_alone_and_never_what_was_killed(run, lab):
    folders = [lab / "runs" / name for name in ("r1", "r2", "r3")]
    parts = [file for name in ("r1", "r2", "r3") for file in lab.rglob(f"{name}.parquet")]
    assert len(parts) == 4  # r1 has two testbeds
    files = [*parts, *(file for folder in folders for file in folder.rglob("*") if file.is_file())]
    size = sum(file.stat().st_size for file in files)
    found = json.loads(run("prune", "--before", "2026-03-16", "--json").stdout)
    assert [(one["run"], one["night"]) for one in found] == [
        *(("r1", "2026-03-14"), ("r2", "2026-03-14"), ("r3", "2026-03-15"))
    ]
    assert sum(one["bytes"] for one in found) == size
    shown = run("prune", "--before", "2026-03-16").stdout
    counted = f"3 runs, 2026-03-14 to 2026-03-15, {size / 1e6:.1f} MB"
    assert shown == f"{counted} to be removed with --yes\n"
    assert all(file.exists() for file in files)
    of_opus = run("prune", "--before", "2026-03-16", "--testbed", "opus").stdout
    assert of_opus.startswith("1 runs, 2026-03-15 to 2026-03-15, ")
    assert run("prune", "--before", "2026-03-16", "--yes").stdout == f"{counted} removed\n"
    assert not any(file.exists() for file in files)
    assert [one["run"] for one in json.loads(run("list", "--json").stdout)] == ["r4", "r5", "r6"]


def test_compact_writes_one_file_a_testbed_of_months_that_are_over(run, lab):
    unchanged = "0 files of 0.0 MB are 0 of 0.0 MB now\n"
    assert run("compact").stdout == unchanged
    record(lab, "s1", "2026-04-02", rows=3)
    assert run("compact", "--testbed", "other*").stdout == unchanged
    counts = """
        SELECT run, testbed, count(*) AS n, sum(value) AS ns FROM rows GROUP BY ALL ORDER BY ALL
    """
    before = json.loads(run("query", counts, "--json").stdout)
    # Nights are counted back from 2 April: 17 to 16 March, 18 to the 15th.
    done = json.loads(run("compact", "--keep", "17", "--json").stdout)
    # opus: r1, r3, r5, r6; mixnet: r1, r2.
    assert (done["replaced"], len(done["files"]), done["problems"]) == (6, 2, [])
    assert (done["old_runs"], done["removed"]) == (["r1", "r2", "r3"], False)
    assert json.loads(run("query", counts, "--json").stdout) == before
    old = run("compact", "--keep", "18", "--yes").stdout
    assert old.startswith("2 old runs removed\n")
    assert {one["run"] for one in json.loads(run("query", counts, "--json").stdout)} == {
        *("r3", "r5", "r6", "s1")
    }
