"""A file appears whole or not at all, and is on the disk before it has its name."""

import os
from pathlib import Path

import pytest

from lightrig.harness.record.places import appearing


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced, real = [], os.fsync

    def fsync(file):
        name = Path(os.readlink(f"/proc/self/fd/{file}")).name
        synced.append((name.startswith(".x."), name == "new", (tmp_path / "new" / "x").exists()))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with appearing(tmp_path / "new" / "x") as hidden:
        hidden.write_text("whole")
        assert not (tmp_path / "new" / "x").exists()
    assert synced == [(True, False, False), (False, True, True)]
    assert (tmp_path / "new" / "x").read_text() == "whole"


def test_the_previous_file_stays_after_an_exception(tmp_path):
    def interrupted():
        with appearing(tmp_path / "x") as hidden:
            hidden.write_text("ne")
            raise ZeroDivisionError

    (tmp_path / "x").write_text("old")
    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    with appearing(tmp_path / "x") as one, appearing(tmp_path / "x") as other:
        one.write_text("one")
        other.write_text("other")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["one"]
