"""Nothing is written, removed or read through a link below results, whenever it was put there."""

import shutil
from pathlib import Path

import pytest
from record.recorded import begin, context, record, times

from lightrig.harness.record import (
    RecordError,
    Results,
    recover,
    settle,
    to_recover,
)
from lightrig.harness.record.compaction import compact
from lightrig.harness.record.notes import add, new_note
from lightrig.harness.record.retention import find_prunable, prune
from lightrig.harness.record.transfer import transfer
from lightrig.harness.report import write_page

FIRST, SECOND, LAST = "20260103-021500-a", "20260104-021500-a", "20260201-021500-a"
KILLED = "20260202-021500-a"
NIGHTS = {FIRST: "2026-01-03", SECOND: "2026-01-04", LAST: "2026-02-01"}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("planted")
    for rows, (run, night) in enumerate(NIGHTS.items(), start=5):
        record(results, run, night, rows=rows)
    with begin(results, KILLED, "2026-02-02") as journal:
        journal.append_many(context(), times(4))
    return results


@pytest.fixture
def results(planted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(planted, tmp_path / "results"))


@pytest.fixture
def outside(results: Path, tmp_path: Path) -> Path:
    """A folder that no command is asked to touch, with files of names that commands know."""
    folder = Path(shutil.copytree(results / "runs" / KILLED, tmp_path / "outside"))
    for name in ("run.json", "report.html", f"{FIRST}.parquet", ".x.parquet.1.tmp"):
        (folder / name).write_text("secret-4711")
    (folder / "night=2026-02-02").mkdir()
    return folder


def link(path: Path, target: Path) -> None:
    """Put a link in the place of a file or folder, as its owner can at any moment."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize(
    "folder", ["runs/{}", "rows/testbed=opus", "rows/testbed=opus/night=2026-01-03"]
)
@pytest.mark.parametrize("keep_rows", [True, False])
def test_prune_removes_nothing_through_a_link(
    results: Path, outside: Path, folder: str, keep_rows: bool
) -> None:
    found = find_prunable(str(results), "2026-01-04", keep_rows=keep_rows)
    assert [one.run for one in found] == [FIRST]
    link(results / folder.format(FIRST), outside)
    before = tree(outside)
    if keep_rows and folder.startswith("rows"):
        prune(str(results), found)
    else:
        with pytest.raises(RecordError, match="is no regular file but a link"):
            prune(str(results), found)
    assert tree(outside) == before


@pytest.mark.parametrize(
    "folder",
    ["runs", f"runs/{FIRST}", "rows", "rows/testbed=opus", "rows/testbed=opus/night=2026-01-03"],
)
def test_a_transfer_writes_nothing_through_a_link(
    results: Path, outside: Path, tmp_path: Path, folder: str
) -> None:
    target = tmp_path / "target"
    (target / folder).parent.mkdir(parents=True)
    link(target / folder, outside)
    before = tree(outside)
    with pytest.raises(RecordError, match="a link, and none is followed here"):
        transfer(str(results), str(target))
    assert tree(outside) == before


@pytest.mark.parametrize("name", ["rows/.compacting", "rows/.readers"])
def test_no_lock_makes_a_file_through_a_link(results: Path, tmp_path: Path, name: str) -> None:
    link(results / name, tmp_path / "nologin")
    assert len(Results(results).frame()) == 5 + 6 + 7
    with pytest.raises(RecordError, match=rf"{name}.*is no regular file but a link"):
        compact(str(results))
    assert not (tmp_path / "nologin").exists()


@pytest.mark.parametrize("testbed", ["testbed=a", "testbed=opus"])
def test_compact_changes_nothing_through_a_link(results: Path, outside: Path, testbed: str) -> None:
    link(results / "rows" / testbed, outside)
    before = tree(outside)
    assert compact(str(results)).replaced == (2 if testbed == "testbed=a" else 0)
    assert tree(outside) == before


@pytest.mark.parametrize(
    "name",
    [
        f"runs/{KILLED}",
        f"runs/{KILLED}/journal.jsonl",
        f"runs/{KILLED}/journal.gw0.jsonl",
        f"runs/{KILLED}/testbeds",
        "rows/testbed=opus",
        "rows/testbed=opus/night=2026-02-02",
    ],
)
def test_recover_reads_and_writes_nothing_through_a_link(
    results: Path, outside: Path, name: str
) -> None:
    target = outside / Path(name).name
    link(results / name, target if target.is_file() else outside)
    before = tree(outside)
    assert results / "runs" / KILLED in to_recover(results)
    with pytest.raises(RecordError, match="a link, and none is followed here"):
        recover(results / "runs" / KILLED, write_page)
    assert tree(outside) == before


def test_a_run_is_published_without_what_links_lead_to(
    results: Path, outside: Path, tmp_path: Path
) -> None:
    with begin(results, "20260203-021500-a", publish=str(tmp_path / "store")) as journal:
        journal.append_many(context(), times(3))
    folder = settle(journal.path.parent).record.path.parent
    link(folder / "extra.txt", outside / "run.json")
    with pytest.raises(RecordError, match=r"extra\.txt.*a link, and none is followed here"):
        recover(folder)
    assert not any(b"secret" in (data or b"") for data in tree(tmp_path / "store").values())


@pytest.mark.parametrize("where", ["folder", "file"])
def test_no_note_is_written_through_a_link(results: Path, outside: Path, where: str) -> None:
    note = new_note("opus", "ocs", "seen")
    path = add(results, note)
    link(path if where == "file" else path.parent, outside / "x" if where == "file" else outside)
    before = tree(outside)
    with pytest.raises(RecordError, match="a link, and none is followed here"):
        add(results, note)
    assert tree(outside) == before


def test_a_link_among_the_runs_hides_no_run(results: Path, outside: Path) -> None:
    link(results / "runs" / "20260101-021500-z", outside)
    assert {one.run for one in Results(results).runs()} == {*NIGHTS, KILLED}
