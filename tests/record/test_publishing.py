"""Runs are recorded locally and published, as a whole, to where a lab reads them."""

import uuid
from pathlib import Path

import fsspec
import pytest
from record.recorded import begin, context, record, times

from lightrig.harness.record import (
    QuestionError,
    RecordError,
    Results,
    publish,
    recover,
    to_recover,
)
from lightrig.harness.record.places import Place
from lightrig.harness.run import Run


@pytest.fixture
def store():
    """An object store of one's own, in memory."""
    return f"memory://{uuid.uuid4().hex}/lab"


@pytest.fixture(params=["object store", "folder", "URL of a folder"])
def location(request, store, tmp_path):
    shared = tmp_path / "shared" / "results"
    return {"folder": str(shared), "URL of a folder": f"file://{shared}"}.get(request.param, store)


def test_a_published_run_is_the_run(location, tmp_path):
    folder = record(tmp_path / "local", "r1")
    (folder / "report.html").write_text("<html>")
    publish(folder, location)
    there, here = Results(location), Results(tmp_path / "local")
    assert there.runs() == here.runs()
    assert there.frame().equals(here.frame())
    assert there.query("SELECT count(*) AS n FROM rows")["n"].tolist() == [20]
    assert there.export("last", "csv") == here.export("last", "csv")
    place = Place(location)
    assert place.files("runs") == [
        "runs/r1/journal.jsonl",
        "runs/r1/report.html",
        "runs/r1/run.json",
        "runs/r1/testbeds/opus/opus.yaml",
        "runs/r1/testbeds/opus/opus/crossconnect.yaml",
    ]
    journal = place.read(["runs/r1/journal.jsonl"])["runs/r1/journal.jsonl"]
    assert journal == (folder / "journal.jsonl").read_bytes()


def test_many_publish_to_one_place(location, tmp_path):
    for host in ("a", "b"):
        publish(record(tmp_path / host, f"r-{host}"), location)
    publish(tmp_path / "a" / "runs" / "r-a", location)
    assert [one.run for one in Results(location).runs()] == ["r-a", "r-b"]
    assert Results(location).frame()["run"].value_counts().to_dict() == {"r-a": 20, "r-b": 20}


def test_a_run_is_listed_only_when_all_of_it_is_there(store, tmp_path, monkeypatch):
    folder = record(tmp_path, "r1")
    put, names = Place.put, []

    def counted(place, file, name):
        names.append(name)
        assert Results(store).runs() == []
        if len(names) == 3:
            raise RecordError("the network is gone")
        put(place, file, name)

    monkeypatch.setattr(Place, "put", counted)
    with pytest.raises(RecordError, match="network"):
        publish(folder, store)
    names = [""] * 9
    publish(folder, store)
    assert names[-1] == "runs/r1/run.json"
    assert [one.run for one in Results(store).runs()] == ["r1"]


def test_a_run_that_could_not_be_published_is_published_by_recovery(tmp_path):
    shared = tmp_path / "shared"
    shared.touch()
    run = Run(tmp_path / "local", {}, str(shared))
    run.close({})
    with pytest.raises(RecordError, match="shared"):
        run.publish()
    assert list(to_recover(tmp_path / "local")) == [run.folder]
    shared.unlink()
    recover(run.folder)
    assert [one.run for one in Results(shared).runs()] == [run.name]
    assert list(to_recover(tmp_path / "local")) == []


def test_a_killed_run_is_published_when_it_is_recovered(store, tmp_path):
    journal = begin(tmp_path, "r1", publish=store)
    journal.append_many(context(), times(4))
    with pytest.raises(ZeroDivisionError), journal:
        raise ZeroDivisionError
    recover(journal.path.parent)
    (found,) = Results(store).runs()
    assert (found.state, found.rows) == ("recovered", 4)
    assert list(to_recover(tmp_path)) == []


def test_a_run_without_a_location_stays_where_it_is(tmp_path):
    run = Run(tmp_path, {})
    run.close({})
    run.publish()
    assert not (run.folder / "published").exists()


def test_a_location_is_tried_before_a_night_is_measured(tmp_path):
    with pytest.raises(QuestionError, match="Protocol not known"):
        Run(tmp_path, {}, "nosuch://lab")
    assert list(tmp_path.iterdir()) == []


def test_no_partial_file_appears_where_files_can_be_renamed(tmp_path, monkeypatch):
    """An SFTP server shows what is written; there a file gets its name when it is whole."""
    filesystem = fsspec.filesystem("memory")
    monkeypatch.setattr(type(filesystem), "protocol", ("sftp",))
    written = []
    put_file = type(filesystem).put_file

    def put(self, source, target, **options):
        written.append(target)
        put_file(self, source, target, **options)

    monkeypatch.setattr(type(filesystem), "put_file", put)
    file = tmp_path / "x"
    file.write_text("whole")
    name = uuid.uuid4().hex
    place = Place(f"memory://{name}")
    place.put(file, "a/b")
    (draft,) = written
    assert Path(draft).name.startswith(".b.")
    assert place.files("") == ["a/b"]
    assert place.read(["a/b"]) == {"a/b": b"whole"}
