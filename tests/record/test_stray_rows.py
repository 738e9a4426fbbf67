"""A rows file that is not where its run's rows belong is left out and named; others are read."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import preloaded
import pytest
from record.recorded import record

from lightrig.harness.record import Results
from lightrig.harness.record.compaction import compact
from lightrig.harness.record.rows_check import StrayRowsWarning
from lightrig.harness.record.transfer import transfer
from lightrig.harness.report.nights.source import Source

pytestmark = pytest.mark.usefixtures("shared_inspector")

FIRST, LAST = "20260103-021500-a", "20260105-021500-a"
ROWS = {FIRST: 31, LAST: 17}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("planted")
    for run, rows in ROWS.items():
        record(place, run, f"{run[:4]}-{run[4:6]}-{run[6:8]}", rows=rows)
    return place


@pytest.fixture
def results(planted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(planted, tmp_path / "results"))


def rows_file(results: Path, run: str = FIRST) -> Path:
    return next(results.glob(f"rows/testbed=opus/*/{run}.parquet"))


STRAYS = {
    "of another run": "testbed=opus/night=2026-01-03/b.parquet",
    "of another testbed": f"testbed=new/night=2026-01-03/{FIRST}.parquet",
    "of another night": f"testbed=opus/night=2026-01-02/{FIRST}.parquet",
    "of a night to come": f"testbed=opus/night=2099-01-02/{FIRST}.parquet",
    "link": "testbed=opus/night=2026-01-03/c.parquet",
}


@pytest.fixture(params=STRAYS)
def stray(request: pytest.FixtureRequest, results: Path) -> str:
    """The name, from the results on, of a file of `FIRST` at a place where none belongs."""
    name = f"rows/{STRAYS[request.param]}"
    (results / name).parent.mkdir(parents=True, exist_ok=True)
    if request.param == "link":
        (results / name).symlink_to(rows_file(results))
    else:
        shutil.copy(rows_file(results), results / name)
    return name


def of_frame(results: Path) -> int:
    return len(Results(results).frame())


def of_query(results: Path) -> int:
    return int(Results(results).query("SELECT count(*) FROM rows").iloc[0, 0])


def of_nights(results: Path) -> int:
    with Source(results, last=5).connected() as connection:
        ((count,),) = connection.sql("SELECT count(*) FROM recent").fetchall()
    return int(count)


def of_parts(results: Path) -> int:
    source = Source(results, last=5)
    assert source.testbeds == ["opus"]
    return sum(map(len, source.parts("opus", ["value"], [], 1)))


@pytest.mark.parametrize("read", [of_frame, of_query, of_nights, of_parts])
def test_a_stray_file_is_left_out_and_named(
    results: Path, stray: str, read: Callable[[Path], int]
) -> None:
    with pytest.warns(StrayRowsWarning, match="is left out") as warned:
        assert read(results) == sum(ROWS.values())
    assert {str(one.message).split(" is left out: ")[0] for one in warned} == {
        f"{results}: {stray}"
    }
    (results / stray).unlink()
    assert read(results) == sum(ROWS.values())


def test_a_file_says_itself_whose_rows_it_has(results: Path, stray: str) -> None:
    """Rows of a run without `run.json` stay; a copy of them elsewhere is left out."""
    for path in results.glob("runs/*/run.json"):
        path.unlink()
    with pytest.warns(StrayRowsWarning, match=f"{stray} is left out"):
        assert of_frame(results) == sum(ROWS.values())


def test_the_last_run_is_not_that_of_a_stray_night(results: Path, stray: str) -> None:
    assert Results(results).find("last").run == LAST


@pytest.mark.filterwarnings("ignore::lightrig.harness.record.rows_check.StrayRowsWarning")
def test_a_stray_file_is_not_compacted(results: Path, stray: str) -> None:
    record(results, "20260201-021500-a", "2026-02-01", rows=5)
    assert compact(str(results)).problems == ()
    (results / stray).unlink()
    assert of_frame(results) == sum(ROWS.values()) + 5


def test_a_query_prints_what_it_left_out_and_succeeds(results: Path) -> None:
    name = f"rows/{STRAYS['of another testbed']}"
    (results / name).parent.mkdir(parents=True)
    shutil.copy(rows_file(results), results / name)
    asked = ["results", "query", "SELECT count(*) n FROM rows", "--results", str(results), "--json"]
    ended = preloaded.run(["lightrig", *asked])
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [{"n": 31 + 17}]
    (said,) = ended.stderr.splitlines()
    assert said.startswith(f"{results}: {name} is left out: its run {FIRST} has rows on opus, not")


def pulled(source: Path, target: Path, stray: str) -> None:
    """Pull, and find that all came but the stray file, which is named."""
    done = transfer(str(source), str(target))
    (said,) = done.refused
    assert stray in said
    assert not (target / stray).exists()
    assert of_frame(target) == sum(ROWS.values())


def test_no_stray_file_is_pulled(results: Path, tmp_path: Path, stray: str) -> None:
    target = tmp_path / "target"
    record(target, LAST, "2026-01-05", rows=17)
    pulled(results, target, stray)


@pytest.mark.parametrize("left", ["run.json without digests", "rows alone"])
@pytest.mark.parametrize("stray", ["of another run", "of another night"], indirect=True)
def test_no_stray_file_of_an_earlier_version_is_pulled(
    results: Path, tmp_path: Path, stray: str, left: str
) -> None:
    for path in results.glob("runs/*/run.json"):
        if left == "rows alone":
            shutil.rmtree(path.parent)
        else:
            text = path.read_text()
            path.write_text(text[: text.index(',\n "digests"')] + "}")
    pulled(results, tmp_path / "target", stray)


@pytest.mark.parametrize("at", ["rows/testbed=opus", "rows/testbed=opus/night=2026-01-03", "file"])
def test_no_link_is_followed_to_rows(results: Path, tmp_path: Path, at: str) -> None:
    """A run whose rows lie behind a link does not come, and no other is hindered."""
    source, target = tmp_path / "source", tmp_path / "target"
    results.rename(source)
    linked = rows_file(source) if at == "file" else source / at
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    record(source, "20260106-021500-a", "2026-01-06", rows=3, testbed="mine")
    done = transfer(str(source), str(target))
    (said,) = done.refused
    assert f"{linked.relative_to(source).as_posix()!r} is no regular file" in said
    left = {"20260106-021500-a"} | ({LAST} if at != "rows/testbed=opus" else set())
    assert {path.name for path in target.glob("runs/*")} == left
    assert {path.stem for path in target.glob("rows/*/*/*.parquet")} == left
