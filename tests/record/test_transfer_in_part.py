"""Transfers that are cut off, that find something else at the target, or bring a part of a file.

Numbers of rows are those of `NIGHTS`; what a place has is compared file by file.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from record.recorded import record
from record.transfers import NIGHTS, RUN, content, recorded, rows

from lightrig.harness.record import RecordError, Results
from lightrig.harness.record.compaction import compact
from lightrig.harness.record.places import Place
from lightrig.harness.record.rows_files import MANIFEST, Manifest, stored_rows
from lightrig.harness.record.run_folder import FACTS, note_files
from lightrig.harness.record.transfer import Transfer, transfer

pytestmark = pytest.mark.usefixtures("shared_inspector")

FIRST, SECOND, OTHER = "20260103-021500-a", "20260104-021500-a", "20260201-021500-a"


def damage(results: Path, run: str) -> None:
    path = results / "runs" / run / FACTS
    path.write_bytes(path.read_bytes().replace(b'"seed": 7', b'"seed": 6'))


def rows_file(results: str | Path, run: str) -> str:
    """Return the name of the single file with the rows of a run."""
    (name,) = (name for name in content(results) if name.endswith(f"/{run}.parquet"))
    return name


def test_the_outcome_counts_files_and_bytes(ours: Path, target: str) -> None:
    """One page has another length than the others; a second transfer brings one run more."""
    (ours / "runs" / SECOND / "report.html").write_text("a longer page of the second run")
    note_files(ours / "runs" / SECOND)
    sizes = {name: len(data) for name, data in content(ours).items()}
    assert transfer(str(ours), target) == Transfer(len(sizes), 0, sum(sizes.values()), ())
    record(ours, "20260110-021500-c", "2026-01-10", rows=3)
    new = {name: len(data) for name, data in content(ours).items() if name not in sizes}
    done = transfer(str(ours), target)
    assert done == Transfer(len(new), len(sizes), sum(new.values()), ())


def test_a_run_that_is_removed_in_part_is_none(
    ours: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off after each file that `--replace` removes: never a run without its rows."""
    transfer(str(ours), target)
    theirs = tmp_path / "theirs"
    record(theirs, RUN, "2026-01-05", rows=4, seed=8)
    remove = Place.remove
    for limit in range(1, 4):
        removed: list[str] = []

        def cut_off(place: Place, name: str, removed: list[str] = removed, n: int = limit) -> None:
            if len(removed) == n:
                raise RecordError("cut off")
            removed.append(name)
            remove(place, name)

        with monkeypatch.context() as patch:
            patch.setattr(Place, "remove", cut_off)
            with pytest.raises(RecordError, match="cut off"):
                transfer(str(theirs), target, replace=True)
        complete = {one.run for one in Results(target).runs() if one.state == "complete"}
        assert complete == NIGHTS.keys() - {RUN}
        transfer(str(ours), target)
        assert rows(target) == NIGHTS
    assert transfer(str(theirs), target, replace=True).refused == ()
    assert rows(target) == {**NIGHTS, RUN: 4}


def test_a_refused_run_stays_behind_where_a_compacted_file_comes(ours: Path, target: str) -> None:
    """The target has none of the file's three runs; the one with a damaged header is refused."""
    compact(str(ours))
    damage(ours, SECOND)
    done = transfer(str(ours), target)
    assert len(done.refused) == 1
    assert f"runs/{SECOND}/{FACTS} is damaged" in done.refused[0]
    assert rows(target) == {run: n for run, n in NIGHTS.items() if run != SECOND}


def test_the_run_of_another_name_is_refused(ours: Path, target: str) -> None:
    shutil.copy(ours / "runs" / FIRST / FACTS, ours / "runs" / RUN / FACTS)
    done = transfer(str(ours), target)
    assert done.refused[0].endswith(f"runs/{RUN}/{FACTS} is of run '{FIRST}'")
    assert rows(target) == {run: n for run, n in NIGHTS.items() if run != RUN}


def test_a_part_of_a_run_makes_room_for_the_compacted_rows(ours: Path, target: str) -> None:
    """A copy that was cut off left rows of `RUN`, half of them, and no `run.json`."""
    place = Place(target)
    name = rows_file(ours, RUN)
    place.write(name, content(ours)[name][:-50])
    compact(str(ours))
    assert transfer(str(ours), target).refused == ()
    assert name not in content(target)
    assert rows(target) == NIGHTS


def test_a_whole_rows_file_of_a_part_stays_beside_the_compacted_rows(
    ours: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    name, data = rows_file(ours, RUN), content(ours)[rows_file(ours, RUN)]
    Place(target).write(name, data)
    compact(str(ours))
    assert transfer(str(ours), str(target)).refused == ()
    assert content(target)[name] == data
    assert rows(target) == NIGHTS


def test_a_compacted_file_of_a_store_is_not_written_anew(ours: Path, store: str) -> None:
    compact(str(ours))
    transfer(str(ours), store)
    theirs = ours.with_name("theirs")
    record(theirs, RUN, "2026-01-05", rows=4, seed=8)
    before = content(store)
    (compacted,) = (f.name for f in stored_rows(Place(store)) if f.runs is not None)
    done = transfer(str(theirs), store, replace=True)
    assert done.refused == (
        f"{RUN}: {store} has it in {compacted}, which cannot be written anew there; pull the "
        "results into a folder, and replace it there",
    )
    assert content(store) == before


def test_a_compacted_file_of_a_folder_is_written_anew(ours: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    compact(str(ours))
    transfer(str(ours), str(target))
    record(tmp_path / "theirs", RUN, "2026-01-05", rows=4, seed=8)
    assert transfer(str(tmp_path / "theirs"), str(target), replace=True).refused == ()
    assert rows(target) == {**NIGHTS, RUN: 4}


def test_a_run_is_replaced_beside_compacted_ones(ours: Path, tmp_path: Path) -> None:
    """Both places have the same compacted file of two runs; the third differs."""
    target, theirs = tmp_path / "target", tmp_path / "theirs"
    for results, count in ((ours, 0), (theirs, 4)):
        shutil.rmtree(results, ignore_errors=True)
        recorded(results, FIRST, SECOND)
        compact(str(results))
        if count:
            record(results, RUN, "2026-01-05", rows=count, seed=8)
        else:
            recorded(results, RUN)
    transfer(str(ours), str(target))
    done = transfer(str(theirs), str(target), replace=True)
    assert done.refused == ()
    assert rows(target) == {FIRST: 31, SECOND: 7, RUN: 4}


def test_runs_that_were_compacted_meanwhile_are_not_listed_twice(
    ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process compacts the same runs at the target while ours writes its file."""
    target = tmp_path / "target"
    compact(str(ours))
    (file,) = (f.runs for f in stored_rows(Place(ours)) if f.runs is not None)
    other = replace(file, name=file.name.replace("2026-01", "2026-01.other"))
    write = Place.write

    def meanwhile(place: Place, written: str, data: bytes) -> None:
        write(place, written, data)
        if written == file.name:
            write(place, other.name, data)
            write(place, MANIFEST, Manifest((other,)).text().encode())

    monkeypatch.setattr(Place, "write", meanwhile)
    done = transfer(str(ours), str(target))
    assert len(done.refused) == 1
    assert done.refused[0].endswith("its runs were compacted meanwhile; do it again")


@pytest.mark.parametrize("kind", ["absent", "same", "other"])
def test_rows_without_a_run_come_once(ours: Path, target: str, kind: str) -> None:
    """As the first version left them: without run.json."""
    name = rows_file(ours, RUN)
    shutil.rmtree(ours / "runs" / RUN)
    if kind != "absent":
        other = content(ours)[rows_file(ours, FIRST)] if kind == "other" else content(ours)[name]
        Place(target).write(name, other)
    expected = content(target).get(name, content(ours)[name])
    done = transfer(str(ours), target)
    assert content(target)[name] == expected
    if kind == "other":
        assert len(done.refused) == 1
        assert (
            f"{RUN}: {target} has other rows of it in {name}, and the run has no run.json"
            in (done.refused[0])
        )
    else:
        assert done.refused == ()
        assert done.present == (1 if kind == "same" else 0)
        assert rows(target) == NIGHTS


def test_a_run_that_has_ended_here_alone_completes_what_it_began_with(
    ours: Path, target: str
) -> None:
    """The target has the beginning of our journal, and of another run's a different one."""
    journal = f"runs/{RUN}/journal.jsonl"
    place, whole = Place(target), content(ours)
    place.write(journal, whole[journal][: len(whole[journal]) // 3])
    other = f"runs/{FIRST}/journal.jsonl"
    place.write(other, b"{}" + whole[other][:200])
    done = transfer(str(ours), target)
    assert len(done.refused) == 1
    assert done.refused[0].startswith(f"{FIRST}: {target} has another run of this name, which has")
    assert content(target)[journal] == content(ours)[journal]
    assert rows(target) == {run: n for run, n in NIGHTS.items() if run != FIRST}


def test_where_a_run_was_published_is_noted_in_folders_alone(store: str, tmp_path: Path) -> None:
    """Our own note is not copied: it is written with the location that the run's header states."""
    ours = tmp_path / "ours"
    record(ours, RUN, "2026-01-05", rows=3, publish="s3://lab/results")
    (ours / "runs" / RUN / "published").write_text("elsewhere\n")
    record(ours, FIRST, "2026-01-03", rows=2)
    for place in (store, str(tmp_path / "target")):
        assert transfer(str(ours), place).refused == ()
    assert not [name for name in content(store) if name.endswith("published")]
    notes = {n: data for n, data in content(tmp_path / "target").items() if "published" in n}
    assert notes == {f"runs/{RUN}/published": b"s3://lab/results\n"}


def test_what_killed_writers_left_is_removed(ours: Path, tmp_path: Path) -> None:
    """Of the same file, and of no other."""
    folder = tmp_path / "target" / "runs" / RUN
    folder.mkdir(parents=True)
    (folder / ".report.html.0123.tmp").write_text("half")
    (folder / ".notes.txt.0123.tmp").write_text("of another file")
    transfer(str(ours), str(tmp_path / "target"))
    assert [path.name for path in folder.glob(".*")] == [".notes.txt.0123.tmp"]


@pytest.mark.parametrize("kind", ["longer", "shorter", "other", "absent"])
def test_a_page_of_a_run_that_has_ended_stays_unless_it_is_cut_off(
    ours: Path, target: str, kind: str
) -> None:
    transfer(str(ours), target)
    page = f"runs/{RUN}/report.html"
    ours_now = content(ours)[page]
    pages = {"longer": ours_now + b", made anew", "shorter": ours_now[:-2], "other": b"anew"}
    theirs = pages.get(kind)
    if theirs is None:
        Place(target).remove(page)
    else:
        Place(target).write(page, theirs)
    brought = kind in ("shorter", "absent")
    done = transfer(str(ours), target)
    assert content(target)[page] == (ours_now if brought else theirs)
    assert done.files == brought


def test_runs_without_digests_differ_by_their_numbers_of_rows(ours: Path, target: str) -> None:
    """Headers of an earlier version, whose runs have the same header and other numbers."""

    for path in ours.glob(f"runs/*/{FACTS}"):
        document = json.loads(path.read_text())
        del document["digests"], document["sha256"]
        path.write_text(json.dumps(document))
    transfer(str(ours), target)
    theirs = ours / "runs" / RUN / FACTS
    document = json.loads(theirs.read_text())
    document["testbeds"]["opus"]["rows"] += 1
    theirs.write_text(json.dumps(document))
    done = transfer(str(ours), target)
    assert len(done.refused) == 1
    assert done.refused[0].startswith(
        f"{RUN}: {target} has a run of this name with other numbers of rows"
    )
