"""Locks and leases against another account: it can refuse them, and gain nothing."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.accounts import ANN, BEN, EVE, GROUP, acting_as, needs_accounts, reachable_folder, shell
from bench.lease_holders import machine_holder

from lightrig.harness.bench import shared_lease
from lightrig.harness.bench.lab_folder import LabFolderError, opened
from lightrig.harness.bench.lease import (
    Lease,
    LeaseConflictError,
    LeaseLostError,
    MachineLocks,
    this_owner,
)
from lightrig.harness.bench.shared_lease import SECOND, SharedFolder

TERM = 3600 * SECOND


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder as first use makes it, in one that every account can reach."""
    with reachable_folder() as base:
        with opened(base / "shared"):
            pass
        yield base / "shared"


def lease(folder: Path) -> Lease:
    return Lease([MachineLocks(folder)], "a test")


# ----------------------------------------------------------------------------- this machine


@pytest.mark.parametrize("how", ["removed", "replaced", "renamed"])
def test_a_lock_that_was_taken_away_is_noticed_before_the_next_change(
    folder: Path, how: str
) -> None:
    first = lease(folder)
    first.take("ocs", ["k"])
    first.check()
    (lock,) = folder.glob("*.lock")
    if how == "renamed":
        lock.rename(folder / "elsewhere")
    else:
        lock.unlink()
    if how == "replaced":
        lease(folder).take("ocs", ["k"])  # as a second run would
    with pytest.raises(LeaseLostError, match="restores nothing") as error:
        first.check()
    assert str(lock) in str(error.value)


@needs_accounts
def test_no_account_takes_the_lock_of_another_away(folder: Path) -> None:
    first = lease(folder)
    first.take("ocs", ["k"])
    (lock,) = folder.glob("*.lock")
    for attack in (
        f"rm -f '{lock}' && test ! -e '{lock}'",
        f"mv '{lock}' '{lock}.x'",
        f"echo x > '{folder}/x' && mv -f '{folder}/x' '{lock}'",
    ):
        assert shell(EVE, attack).returncode != 0, attack
    first.check()
    with acting_as(ANN), pytest.raises(LeaseConflictError):
        lease(folder).take("ocs", ["k"])
    first.release()
    with acting_as(ANN):
        mine = lease(folder)
        mine.take("ocs", ["k"])
    with acting_as(BEN), pytest.raises(LeaseConflictError):
        lease(folder).take("ocs", ["k"])
    with pytest.raises(LeaseConflictError):
        lease(folder).take("ocs", ["k"])
    mine.release()


@needs_accounts
@pytest.mark.parametrize(
    "attack",
    [
        "mkfifo -m 666 '{lock}'",
        "mkdir '{lock}'",
        "ln -s '{victim}' '{lock}'",
        "umask 77; >'{lock}'",
    ],
)
def test_what_is_no_lock_of_all_accounts_is_named_with_its_owner(folder: Path, attack: str) -> None:
    victim = folder.parent / "victim"
    victim.write_text("of root\n")
    with acting_as(ANN):
        lease(folder).take("ocs", ["k"])
    (lock,) = folder.glob("*.lock")
    lock.unlink()
    done = shell(EVE, attack.format(lock=lock, victim=victim))
    assert done.returncode == 0, done.stderr
    with acting_as(ANN), pytest.raises(LabFolderError, match=f"belongs to account {EVE}") as error:
        lease(folder).take("ocs", ["k"])
    assert str(lock) in str(error.value)
    assert victim.read_text() == "of root\n"


def test_a_lock_that_is_another_file_too_is_not_written(folder: Path) -> None:
    """A kernel without protected_hardlinks lets an account name a file of root as a lock."""
    lease(folder).take("ocs", ["k"])
    (lock,) = folder.glob("*.lock")
    lock.unlink()
    victim = folder.parent / "victim"
    victim.write_text("of root\n")
    lock.hardlink_to(victim)
    lease(folder).take("ocs", ["k"])
    assert victim.read_text() == "of root\n"


@needs_accounts
def test_a_lease_excludes_a_second_account(folder: Path) -> None:
    """The other way round is tried above, within one process."""
    process = machine_holder(folder, "k", BEN)
    assert process.answer == "leased"
    other = machine_holder(folder, "k", 0)
    assert f"process {process.pid}" in other.answer
    other.end()
    process.end()
    other = machine_holder(folder, "k", 0)
    assert other.answer == "leased"
    other.end()


def test_locks_are_for_those_who_may_write_the_folder(folder: Path) -> None:
    for mode, expected in ((0o1777, 0o666), (0o2770, 0o660), (0o755, 0o600)):
        folder.chmod(mode)
        lease(folder).take("ocs", [f"key {mode}"])
        (lock,) = folder.glob(f"key_{mode}-*.lock")
        assert stat.S_IMODE(lock.stat().st_mode) == expected


# ----------------------------------------------------------------------------- among hosts


def written(file: int) -> Path:
    """Return the path of an open file, which was written and is about to be closed."""
    return Path(os.readlink(f"/proc/self/fd/{file}"))


@needs_accounts
def test_a_claim_changes_the_mode_of_no_other_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of the group replaces the draft by a link, between its making and its mode."""
    folder.chmod(0o2770)
    os.chown(folder, 0, GROUP)
    victim = folder.parent / "victim"
    victim.write_text("of root\n")
    victim.chmod(0o600)
    attacks = []

    def raced(file: int) -> None:
        if (path := written(file)).suffix == ".draft":
            command = f"rm -f '{path}' && ln -s '{victim}' '{path}'"
            attacks.append(shell(EVE, command, GROUP).returncode)

    monkeypatch.setattr(os, "fsync", raced)
    with pytest.raises(LabFolderError):  # the record is a link now
        SharedFolder(folder, TERM).claim("ocs", this_owner("a test"))
    assert attacks == [0]
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert victim.read_text() == "of root\n"


@needs_accounts
def test_no_account_touches_the_draft_of_another_in_a_folder_of_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attacks = []

    def raced(file: int) -> None:
        if (path := written(file)).suffix == ".draft":
            attacks.append(shell(EVE, f"rm -f '{path}'; ln -sf /etc/passwd '{path}'").returncode)

    monkeypatch.setattr(os, "fsync", raced)
    claim = SharedFolder(folder, TERM).claim("ocs", this_owner("a test"))
    assert attacks == [1]
    (record,) = folder.glob("*.lease")
    assert record.is_file()
    assert not record.is_symlink()
    claim.release()


def test_a_record_that_is_another_file_too_is_not_written(folder: Path) -> None:
    victim = folder.parent / "victim"
    text = json.dumps({**this_owner("a dead run"), "boot": "another machine"})
    victim.write_text(text)
    os.utime(victim, (0, 0))
    SharedFolder(folder, TERM).claim("ocs", this_owner("a test")).release()
    (first,) = folder.glob("*.lease")
    first.with_name(first.name.replace("1.lease", "2.lease")).hardlink_to(victim)
    claim = SharedFolder(folder, SECOND // 4).claim("ocs", this_owner("a test"))
    assert claim.number == 3  # type: ignore[attr-defined]
    assert victim.read_text() == text
    claim.release()


def test_a_fifo_as_a_record_is_not_waited_for(folder: Path) -> None:
    SharedFolder(folder, TERM).claim("ocs", this_owner("a test")).release()
    (first,) = folder.glob("*.lease")
    os.mkfifo(first.with_name(first.name.replace("1.lease", "2.lease")))
    with pytest.raises(LeaseConflictError, match="unknown process"):
        SharedFolder(folder, TERM).claim("ocs", this_owner("a test"))


@needs_accounts
def test_old_records_of_other_accounts_are_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_lease, "_RECORDS_LEFT", 1)
    SharedFolder(folder, TERM).claim("ocs", this_owner("a test")).release()
    for number in (2, 3):
        with acting_as(ANN):
            claim = SharedFolder(folder, TERM).claim("ocs", this_owner("a test"))
            assert claim.number == number  # type: ignore[attr-defined]
            claim.release()
    left = sorted(path.name.split(".")[-2] for path in folder.glob("*.lease"))
    assert left == ["000000001", "000000003"]
