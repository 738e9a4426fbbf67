"""Runs are brought to other places by content: added, completed, or refused by their names."""

import json
import os
import shutil
from pathlib import Path

import pytest
from record.recorded import begin, context, record, times
from record.transfers import NIGHTS, RUN, content, recorded, rows

from lightrig.harness.record import RecordError, Results
from lightrig.harness.record.compaction import compact
from lightrig.harness.record.digests import with_digest
from lightrig.harness.record.places import Place
from lightrig.harness.record.rows_files import MANIFEST, Compacted, Manifest, stored_rows
from lightrig.harness.record.transfer import Transfer, transfer

pytestmark = pytest.mark.usefixtures("shared_inspector")


@pytest.mark.parametrize("runs", [{"a": 3, "b": -1}, {"a": 3, "b": 2.0}, {"a": -1}])
def test_a_compacted_file_has_whole_numbers_of_rows(runs) -> None:
    with pytest.raises(ValueError, match="numbers of rows are none"):
        Compacted("rows/testbed=opus/2026.parquet", {"2026-03-14": runs})


def test_runs_come_whole_and_once(ours: Path, target: str) -> None:
    done = transfer(str(ours), target)
    assert content(target) == content(ours)
    assert (done.present, done.refused) == (0, ())
    assert Results(target).frame().equals(Results(ours).frame())
    again = transfer(str(ours), target)
    assert again == Transfer(0, done.files, 0, ())


@pytest.mark.parametrize("other", ["seed", "rows"])
def test_another_run_of_the_same_name_is_refused_by_its_name(
    ours: Path, target: str, tmp_path: Path, other: str
) -> None:
    theirs = tmp_path / "theirs"
    changed = {"seed": 8} if other == "seed" else {}
    record(theirs, RUN, "2026-01-05", rows=17 if other == "seed" else 18, **changed)
    record(theirs, "20260106-021500-b", "2026-01-06", rows=3)
    transfer(str(ours), target)
    before = content(target)

    done = transfer(str(theirs), target)

    assert len(done.refused) == 1
    assert done.refused[0].startswith(f"{RUN}: {target} has a run of this name with other {other}")
    assert {name: content(target)[name] for name in before} == before
    assert rows(target) == {**NIGHTS, "20260106-021500-b": 3}

    done = transfer(str(theirs), target, replace=True)

    assert done.refused == ()
    assert rows(target)[RUN] == (17 if other == "seed" else 18)
    found = content(target)
    assert all(found[name] == data for name, data in content(theirs).items())
    assert f"runs/{RUN}/report.html" not in found, "a page of the run that was removed"


def test_changed_files_of_the_source_replace_nothing(ours: Path, tmp_path: Path) -> None:
    """The store that somebody else can write: same `run.json`, other journal, page and rows."""
    evil = Path(shutil.copytree(ours, tmp_path / "evil"))
    folder = evil / "runs" / RUN
    with (folder / "journal.jsonl").open("ab") as file:
        file.write(b"x\n")
    (folder / "report.html").write_text("<script>evil</script> and longer than what it replaces")
    (path,) = evil.glob(f"rows/*/*/{RUN}.parquet")
    path.write_bytes(path.read_bytes() + b"more")
    before = content(ours)
    done = transfer(str(evil), str(ours))
    assert content(ours) == before
    assert len(done.refused) == 1
    assert f"{path.relative_to(evil)} is damaged: its SHA-256 digest differs" in done.refused[0]
    shutil.copy(ours / path.relative_to(evil), path)
    done = transfer(str(evil), str(ours))
    assert content(ours) == before
    names = [f"runs/{RUN}/{name}" for name in ("journal.jsonl", "report.html")]
    assert sorted(done.refused) == [
        f"{evil}: {name} was not copied: its SHA-256 digest is another than in run.json of {ours}"
        for name in names
    ]


@pytest.mark.parametrize("name", ["journal.jsonl", "report.html"])
def test_no_file_of_a_run_that_has_ended_is_lengthened(
    ours: Path, target: str, tmp_path: Path, name: str
) -> None:
    """A script behind the whole page, and one behind the part of it that has come."""
    transfer(str(ours), target)
    evil = Path(shutil.copytree(ours, tmp_path / "evil"))
    with (evil / "runs" / RUN / name).open("ab") as file:
        file.write(b"<script>evil</script>")
    (evil / "runs" / RUN / "extra.html").write_text("a file that no run.json states")
    whole = content(target)
    for place, part in ((Place(target), whole[f"runs/{RUN}/{name}"][:-5]), (None, None)):
        if place is not None and part is not None:
            place.write(f"runs/{RUN}/{name}", part)
        before = content(target)
        done = transfer(str(evil), target)
        assert len(done.refused) == 2
        assert all("was not copied" in each for each in done.refused)
        assert content(target) == before
        assert transfer(str(ours), target).refused == ()
        assert content(target) == whole
    # Where the run has not come yet, it is damaged at its source.
    done = transfer(str(evil), str(tmp_path / "new"))
    assert [f"runs/{RUN}/{name} is damaged" in each for each in done.refused].count(True) == 1
    assert not [each for each in content(tmp_path / "new") if each.endswith("extra.html")]
    assert rows(tmp_path / "new") == {run: n for run, n in NIGHTS.items() if run != RUN}


def forged(evil: Path, ours: Path, names: list[str]) -> str:
    """Write a compacted file of one row that names runs of ours; return its name."""
    recorded(evil, *names, "20260201-021500-a")
    name = "rows/testbed=opus/2026-01.forged.parquet"
    nights = {f"{run[:4]}-{run[4:6]}-{run[6:8]}": {run: 1} for run in names}
    (path,) = evil.glob(f"rows/*/*/{names[0]}.parquet")
    (evil / name).write_bytes(path.read_bytes())
    (evil / MANIFEST).write_text(Manifest((Compacted(name, nights),)).text())
    return name


def test_a_manifest_of_the_source_removes_nothing(ours: Path, target: str, tmp_path: Path) -> None:
    transfer(str(ours), target)
    before = content(target)
    forged(tmp_path / "evil", ours, [RUN, "20260103-021500-a"])
    transfer(str(tmp_path / "evil"), target)
    assert content(target) == before
    assert rows(target) == NIGHTS


def test_what_was_copied_in_part_is_completed(ours: Path, target: str) -> None:
    """A copy that was cut off: no `run.json`, one file short, one of another attempt."""
    place, whole = Place(target), content(ours)
    (name,) = (name for name in whole if name.endswith(f"{RUN}.parquet"))
    place.write(name, whole[name][:-9])
    place.write(f"runs/{RUN}/journal.jsonl", whole[f"runs/{RUN}/journal.jsonl"][:100])
    page = f"runs/{RUN}/report.html"
    place.write(page, whole[page][::-1])
    assert transfer(str(ours), target).refused == ()
    assert content(target) == whole


def test_rows_that_another_program_copied_in_part_are_completed(ours: Path, target: str) -> None:
    """rsync brings `run.json` whenever it comes by; a page made again is another file."""
    transfer(str(ours), target)
    place, whole = Place(target), content(ours)
    (name,) = (name for name in whole if name.endswith(f"{RUN}.parquet"))
    journal, page = f"runs/{RUN}/journal.jsonl", f"runs/{RUN}/report.html"
    place.write(name, whole[name][:-9])
    place.write(journal, whole[journal][:-100])
    place.write(page, b"newer")
    done = transfer(str(ours), target)
    assert (done.files, done.refused) == (2, ())
    assert content(target) == {**whole, page: b"newer"}


def test_a_run_is_listed_when_all_of_it_is_there(
    ours: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written, listed = Place.write, [], []

    def noted(place: Place, name: str, data: bytes) -> None:
        listed.append([one.run for one in Results(target).runs() if one.state == "complete"])
        write(place, name, data)
        written.append(name)

    monkeypatch.setattr(Place, "write", noted)
    transfer(str(ours), target)
    for run in NIGHTS:
        of_run = [name for name in written if run in name]
        assert len(of_run) == len(set(of_run))
        assert of_run[-1] == f"runs/{run}/run.json"
        assert of_run[0].endswith(f"{run}.parquet")
    assert listed[written.index(f"runs/{RUN}/run.json")] == sorted(NIGHTS)[:2]


def test_a_run_that_has_not_ended_at_the_target_stays(ours: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    with begin(target, RUN, "2026-01-05", seed=9) as journal:
        journal.append_many(context(), times(3))
        before = content(target)
        for replace in (False, True):
            done = transfer(str(ours), str(target), replace=replace)
            assert done.refused == (f"{RUN}: {target} records a run of this name now",)
    after = content(target)
    assert {name: after[name] for name in before if "journal" not in name}.keys() <= before.keys()
    done = transfer(str(ours), str(target))
    assert len(done.refused) == 1
    assert "has not ended; `lightrig results recover`" in done.refused[0]
    assert content(target) == after
    assert transfer(str(ours), str(target), replace=True).refused == ()
    assert content(target) == content(ours)


def test_a_folder_keeps_its_files_when_compacted_ones_come(ours: Path, tmp_path: Path) -> None:
    target = recorded(tmp_path / "target", RUN)
    before = content(target)
    compact(str(ours))
    assert transfer(str(ours), str(target)).refused == ()
    after = content(target)
    assert {name: after[name] for name in before} == before
    assert rows(target) == NIGHTS
    assert Results(target).frame().equals(Results(ours).frame())
    (new,) = (file for file in stored_rows(Place(target)) if file.runs is not None)
    assert new.runs is not None
    assert new.runs.names == {"20260103-021500-a", "20260104-021500-a"}
    assert transfer(str(ours), str(target)).files == 0


def test_a_compacted_file_takes_the_place_of_the_same_rows_in_a_store(
    ours: Path, store: str
) -> None:
    transfer(str(ours), store)
    compact(str(ours))
    assert transfer(str(ours), store).refused == ()
    assert content(store) == content(ours)
    assert rows(store) == NIGHTS
    assert transfer(str(ours), store).files == 0


def test_a_compacted_file_without_all_rows_takes_no_place(ours: Path, store: str) -> None:
    transfer(str(ours), store)
    compact(str(ours))
    document = json.loads((ours / MANIFEST).read_text())
    (runs,) = document["files"].values()
    runs["2026-01-05"][RUN] -= 1
    document.pop("sha256")
    (ours / MANIFEST).write_text(with_digest(document))
    before = content(store)
    transfer(str(ours), store)
    assert content(store) == before


def test_a_refused_run_does_not_come_in_a_compacted_file(ours: Path, target: str) -> None:
    transfer(str(ours), target)
    shutil.rmtree(ours)
    recorded(ours, "20260104-021500-a", "20260201-021500-a")
    record(ours, RUN, "2026-01-05", rows=2, seed=8)
    record(ours, "20260110-021500-c", "2026-01-10", rows=3)
    compact(str(ours))
    done = transfer(str(ours), target)
    assert len(done.refused) == 1
    assert rows(target) == {**NIGHTS, "20260110-021500-c": 3}


@pytest.mark.parametrize("kind", ["link", "named pipe"])
def test_what_is_no_regular_file_is_not_read(ours: Path, target: str, kind: str) -> None:
    path = ours / "runs" / RUN / "extra.txt"
    if kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        os.mkfifo(path)
    done = transfer(str(ours), target)
    assert len(done.refused) == 1
    assert f"'runs/{RUN}/extra.txt' is no regular file" in done.refused[0]
    assert rows(target) == {run: n for run, n in NIGHTS.items() if run != RUN}


@pytest.mark.parametrize("linked", ["extra.txt", "more/extra.txt", "more"])
def test_what_becomes_a_link_after_the_look_is_not_read(
    ours: Path, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: str
) -> None:
    """The owner of a source can exchange a file while it is copied."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "extra.txt").write_text("secret-4711")
    name = f"runs/{RUN}/more/extra.txt" if "more" in linked else f"runs/{RUN}/extra.txt"
    (ours / name).parent.mkdir(exist_ok=True)
    (ours / name).write_text("a page that is as long")
    sizes = Place(ours).sizes()
    path = ours / "runs" / RUN / linked
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(tmp_path / "secret" / ("extra.txt" if linked.endswith("txt") else ""))
    looked = Place.sizes
    monkeypatch.setattr(
        Place, "sizes", lambda place: sizes if place.name == str(ours) else looked(place)
    )
    with pytest.raises(
        RecordError, match=rf"{RUN}/{linked}.*is no regular file but a link|link.*{linked}"
    ):
        transfer(str(ours), target)
    assert not any(b"secret-4711" in data for data in content(target).values())


@pytest.mark.parametrize("name", ["runs/r/../../../x", "runs//x", "runs/r\\..\\x", "rows/./x"])
def test_a_store_names_no_file_outside_of_the_results(
    ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sizes = Place.sizes
    monkeypatch.setattr(Place, "sizes", lambda place: {**sizes(place), name: 3})
    done = transfer(str(ours), str(tmp_path / "target"))
    assert [repr(name) in one for one in done.refused] == [True]


def test_a_damaged_run_of_the_source_does_not_come(ours: Path, target: str) -> None:
    path = ours / "runs" / RUN / "run.json"
    path.write_bytes(path.read_bytes().replace(b'"seed": 7', b'"seed": 6'))
    done = transfer(str(ours), target)
    assert len(done.refused) == 1
    assert f"runs/{RUN}/run.json is damaged" in done.refused[0]
    assert RUN not in rows(target)


def test_a_damaged_manifest_ends_the_transfer(ours: Path, target: str) -> None:
    compact(str(ours))
    (ours / MANIFEST).write_text("[" * 200_000)
    with pytest.raises(RecordError, match=r"compacted\.json is damaged"):
        transfer(str(ours), target)
    assert content(target) == {}


def test_runs_of_earlier_versions_are_compared_by_their_headers(ours: Path, target: str) -> None:
    for path in ours.glob("runs/*/run.json"):
        document = json.loads(path.read_text())
        del document["digests"], document["sha256"]
        path.write_text(json.dumps(document))
    transfer(str(ours), target)
    assert transfer(str(ours), target).files == 0
    (path,) = ours.glob(f"rows/*/*/{RUN}.parquet")
    path.write_bytes(path.read_bytes()[:-1])
    before = content(target)
    done = transfer(str(ours), target)
    assert "no digest tells which are right" in done.refused[0]
    assert content(target) == before
