"""Results in a folder of a group: whatever their umask, its members add to each other's nights."""

import contextlib
import ctypes
import os
import stat
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.accounts import ANN, BEN, GROUP, needs_accounts, reachable_folder
from record.recorded import description, record

from lightrig.harness.record import Results
from lightrig.harness.record.compaction import compact
from lightrig.harness.record.places import UnreadableFolderWarning
from lightrig.harness.record.recovery import recover
from lightrig.harness.record.rows_check import StrayRowsWarning
from lightrig.testbeds.regular_files import make_folder, open_to_append

pytestmark = needs_accounts

NIGHT = "2026-01-03"
ANNS, BENS, LATER = "20260103-021500-ann", "20260103-041500-ben", "20260104-021500-ann"
ROWS = {ANNS: 31, BENS: 17, LATER: 5}
_PR_SET_DUMPABLE = 4
_LEFT_OUT = (UnreadableFolderWarning, StrayRowsWarning)


def acts(account: int, umask: int, work: Callable[[], object], group: int = GROUP) -> str:
    """Do `work` in a process of an account that is in a group besides its own; return its error."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([group])
            os.setgid(account)
            os.setuid(account)
            os.umask(umask)
            # A program that this account had started could open its own descriptors' paths.
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
            work()
        except BaseException:
            os.write(writes, traceback.format_exc().encode()[-4000:])
        os._exit(0)
    os.close(writes)
    with open(reads, "rb") as file:
        text = file.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.fixture
def results(monkeypatch):
    with reachable_folder() as folder:
        # Other accounts may not reach this checkout.
        monkeypatch.setattr("record.recorded.OPUS", description(folder))
        # Modules that are loaded late: other accounts may not reach this Python.
        record(folder / "first", ANNS, NIGHT, rows=3)
        assert len(Results(folder / "first").frame()) == 3
        compact(folder / "first")
        place = folder / "results"
        place.mkdir()
        os.chown(place, ANN, GROUP)
        place.chmod(0o2775)
        yield place


def recorded(results: Path, run: str) -> Callable[[], object]:
    night = f"{run[:4]}-{run[4:6]}-{run[6:8]}"
    return lambda: record(results, run, night, rows=ROWS[run])


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077], ids="{:03o}".format)
def test_members_publish_in_the_nights_of_each_other(results, umask):
    assert acts(ANN, umask, recorded(results, ANNS)) == ""
    assert acts(BEN, umask, recorded(results, BENS)) == ""
    seen = acts(BEN, umask, lambda: counted(results, 48))
    assert seen == ""
    assert acts(BEN, umask, lambda: recover(results / "runs" / ANNS)) == ""
    assert acts(ANN, umask, lambda: compact(results)) == ""
    assert acts(BEN, umask, lambda: counted(results, 48)) == ""
    owners = {path.stat().st_uid for path in results.rglob("*")}
    assert owners == {ANN, BEN}


def counted(results: Path, rows: int) -> None:
    found = len(Results(results).frame())
    assert found == rows, found


def test_the_mode_of_other_folders_is_that_of_the_umask(results):
    results.chmod(0o0775)
    assert acts(ANN, 0o077, recorded(results, ANNS)) == ""
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in results.rglob("*")}
    assert modes == {0}


def test_no_rights_are_given_to_a_group_beyond_those_of_the_owner(results):
    def work():
        make_folder(results / "a" / "b")
        with open_to_append(results, "a/b/c"):
            pass

    assert acts(ANN, 0o077, work) == ""
    assert stat.S_IMODE((results / "a" / "b").stat().st_mode) == 0o2770
    assert stat.S_IMODE((results / "a" / "b" / "c").stat().st_mode) == 0o660


def test_what_another_account_has_made_is_not_changed(results):
    assert acts(BEN, 0o077, (results / "a").mkdir) == ""

    def work():
        with contextlib.suppress(PermissionError):
            make_folder(results / "a" / "b")

    assert acts(ANN, 0o022, work) == ""
    assert stat.S_IMODE((results / "a").stat().st_mode) & 0o777 == 0o700


@pytest.mark.parametrize("hidden", ["run.json", "the run", "rows file", "night"])
def test_what_one_member_hides_is_named_and_hides_nothing_else(results, hidden):
    for run in ROWS:
        assert acts(ANN, 0o022, recorded(results, run)) == ""
    rows = results / "rows" / "testbed=opus" / "night=2026-01-04"
    path = {
        "run.json": results / "runs" / LATER / "run.json",
        "the run": results / "runs" / LATER,
        "rows file": rows / f"{LATER}.parquet",
        "night": rows,
    }[hidden]
    path.chmod(0)

    def work():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = Results(results)
            runs = {each.run for each in found.runs()}
            named = " ".join(map(str, found.damaged()))
            # Without `run.json` rows are read by another process, of a Python that may be root's.
            rows = len(found.frame()) if "rows" in path.parts else None
        kinds = [each for each in caught if issubclass(each.category, _LEFT_OUT)]
        named += " ".join(str(each.message) for each in kinds)
        assert str(path.relative_to(results)) in named, (named, caught)
        assert runs >= {ANNS, BENS}
        assert rows in (None, 48), rows

    assert acts(BEN, 0o022, work) == ""
