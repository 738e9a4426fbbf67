"""States that one account writes are never applied for another."""

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from bench.accounts import ANN, BEN, EVE, GROUP, acting_as, needs_accounts, reachable_folder, shell
from bench.served_lab import circuits

from lightrig.harness import machine_folder
from lightrig.harness.bench import lab_folder
from lightrig.harness.bench.lab_folder import LabFolderError, opened
from lightrig.harness.bench.saved_state import (
    Origin,
    SavedCircuits,
    SavedStateError,
    SavedStates,
    UntrustedStateError,
)

ORIGIN = Origin(
    *("Polatis serial 7", "ocs", "Polatis, serial 7", "tl1://ocs.invalid", "lab", "/lab.yaml"),
    *("run 1", "ann", "gate", "2026-03-14 02:00:00 UTC"),
)
FOUND = circuits("2>12", "1>9")
STATE = SavedCircuits(ORIGIN, FOUND, {"1": "server0.nic0"}, FOUND, FOUND)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder as first use makes it, in one that every account can reach."""
    with reachable_folder() as base:
        with opened(base / "states"):
            pass
        yield base / "states"


def path_in(folder: Path) -> Path:
    return SavedStates(folder).path_of(STATE)


def forge(folder: Path, account: int) -> str:
    """Let an account write a whole state that says what it likes; returns its text."""
    with reachable_folder() as elsewhere:
        SavedStates(elsewhere).save(replace(STATE, found=circuits("1>12", "2>9")))
        text = SavedStates(elsewhere).path_of(STATE).read_text()
    done = shell(account, f"cat > '{path_in(folder)}' <<'END'\n{text}\nEND\n")
    assert done.returncode == 0, done.stderr
    return path_in(folder).read_text()


def test_a_saved_state_is_for_its_owner_alone(folder: Path) -> None:
    mask = os.umask(0)
    try:
        SavedStates(folder).save(STATE)
    finally:
        os.umask(mask)
    assert path_in(folder).stat().st_mode & 0o7777 == 0o600
    assert folder.stat().st_mode & 0o7777 == 0o1777


@needs_accounts
@pytest.mark.parametrize("reader", [0, BEN])
def test_a_state_of_another_account_is_named_and_neither_applied_nor_removed(
    folder: Path, reader: int
) -> None:
    text = forge(folder, EVE)
    with acting_as(reader):
        states = SavedStates(folder)
        with pytest.raises(UntrustedStateError, match=f"belongs to account {EVE}") as error:
            states.load(STATE)
        found, (refused,) = states.read_all()
    assert str(path_in(folder)) in str(error.value)
    assert f"restore FILE --owner account {EVE}" not in str(error.value)
    assert f"restore FILE --owner {EVE}" in str(error.value)
    assert found == []
    assert str(refused) == str(error.value)
    assert path_in(folder).read_text() == text
    assert SavedStates(folder, [EVE]).load(STATE) is not None
    with pytest.raises(UntrustedStateError):
        SavedStates(folder, [BEN]).load(STATE)


@needs_accounts
def test_no_account_reads_replaces_or_removes_a_state_of_another(folder: Path) -> None:
    with acting_as(ANN):
        SavedStates(folder).save(STATE)
    path, text = path_in(folder), path_in(folder).read_text()
    for attack in (
        f"cat '{path}'",
        f"echo '{{}}' > '{path}'",
        f"rm -f '{path}' && test ! -e '{path}'",
        f"mv '{path}' '{path}.x'",
        f"echo x > '{folder}/x' && mv -f '{folder}/x' '{path}'",
        f"chmod 666 '{path}'",
    ):
        assert shell(EVE, attack).returncode != 0, attack
    assert path.read_text() == text
    with acting_as(ANN):
        assert SavedStates(folder).load(STATE) == STATE
    with acting_as(BEN), pytest.raises(UntrustedStateError, match="cannot be read"):
        SavedStates(folder).load(STATE)
    # Root's states are believed by all, but are root's to read.
    with acting_as(ANN):
        SavedStates(folder).clear(STATE)
    SavedStates(folder).save(STATE)
    with acting_as(ANN), pytest.raises(UntrustedStateError, match="belongs to root"):
        SavedStates(folder).load(STATE)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("link", "is a link"),
        ("dangling link", "is a link"),
        ("hard link", "more than one hard link"),
        ("fifo", "is no regular file"),
        ("folder", "is no regular file"),
        ("socket", "cannot be opened"),
        ("huge", "is too large"),
        ("for all", r"can be written by other accounts \(mode 0666\)"),
        ("for the group", r"can be written by other accounts \(mode 0620\)"),
    ],
)
def test_what_is_no_plain_file_of_its_owner_is_refused_at_once(
    folder: Path, what: str, why: str
) -> None:
    states, path = SavedStates(folder), path_in(folder)
    states.save(STATE)
    text = path.read_text()
    other = folder.parent / "other"
    other.write_text(text)
    if what.endswith("link") or what in {"fifo", "folder", "socket"}:
        path.unlink()
    if what == "link":
        path.symlink_to(other)
    elif what == "dangling link":
        path.symlink_to(folder.parent / "nothing")
    elif what == "hard link":
        path.hardlink_to(other)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif what == "huge":
        os.truncate(path, 1 << 40)
    else:
        path.chmod(0o666 if what == "for all" else 0o620)
    with pytest.raises(UntrustedStateError, match=why) as error:
        states.load(STATE)
    assert "neither applied nor removed" in str(error.value)
    assert len(states.read_all()[1]) == 1
    assert os.path.lexists(path)


def test_a_state_under_another_name_is_none(folder: Path) -> None:
    states = SavedStates(folder)
    states.save(replace(STATE, origin=replace(ORIGIN, key="Polatis serial 8")))
    (there,) = folder.iterdir()
    there.rename(path_in(folder))
    with pytest.raises(SavedStateError, match="the state of 'Polatis serial 8'"):
        states.load(STATE)


def test_a_name_that_somebody_chose_reaches_no_terminal_as_it_is(folder: Path) -> None:
    (folder / "\x1b[2J.found.json").write_text("{")
    (refused,) = SavedStates(folder).read_all()[1]
    assert "\x1b" not in str(refused)
    assert r"\x1b[2J.found.json" in str(refused)


@needs_accounts
def test_members_of_a_group_restore_states_of_each_member(folder: Path) -> None:
    folder.chmod(0o2770)
    os.chown(folder, 0, GROUP)
    with acting_as(ANN, GROUP):
        SavedStates(folder).save(STATE)
    assert path_in(folder).stat().st_gid == GROUP
    assert path_in(folder).stat().st_mode & 0o7777 == 0o660
    with acting_as(EVE), pytest.raises(LabFolderError, match="Permission denied"):
        SavedStates(folder).read_all()
    with acting_as(BEN, GROUP):
        states = SavedStates(folder)
        assert states.load(STATE) == STATE
        states.save(STATE.changing(FOUND, circuits("3>11")))
    assert SavedStates(folder).load(STATE) is not None  # root trusts who it let in
    path_in(folder).chmod(0o666)
    with acting_as(BEN, GROUP), pytest.raises(UntrustedStateError, match="mode 0666"):
        SavedStates(folder).load(STATE)
    path_in(folder).chmod(0o660)
    with acting_as(BEN, GROUP):
        SavedStates(folder).clear(STATE)
    assert list(folder.iterdir()) == []


@needs_accounts
def test_a_folder_of_a_group_without_set_group_id_gives_its_files_to_the_group(
    folder: Path,
) -> None:
    folder.chmod(0o770)
    os.chown(folder, 0, GROUP)
    SavedStates(folder).save(STATE)
    assert path_in(folder).stat().st_gid == GROUP
    with acting_as(BEN, GROUP):
        assert SavedStates(folder).load(STATE) == STATE


# ----------------------------------------------------------------------------- the folder


@needs_accounts
def test_the_folder_that_an_older_version_left_is_not_used_and_its_states_are_not_lost(
    folder: Path,
) -> None:
    states, path = SavedStates(folder), path_in(folder)
    states.save(STATE)
    path.chmod(0o666)
    folder.chmod(0o777)
    for number in (0, ANN):
        with acting_as(number), pytest.raises(LabFolderError, match="mode 0777") as error:
            states.read_all()
        assert "saved states, 1 of root" in str(error.value)
        assert f"`chmod 1777 {folder}` as {'its owner' if number == 0 else 'root'}" in str(
            error.value
        )
    folder.chmod(0o1777)  # as the sentence says
    with pytest.raises(UntrustedStateError, match=r"mode 0666.*neither applied"):
        states.load(STATE)
    path.chmod(0o600)  # as this one says
    assert states.load(STATE) == STATE


@needs_accounts
def test_a_folder_of_another_account_is_not_used(folder: Path) -> None:
    os.chown(folder, ANN, ANN)
    for number in (0, BEN):
        with acting_as(number), pytest.raises(LabFolderError, match=f"account {ANN}") as error:
            SavedStates(folder).save(STATE)
        assert f"`chown root {folder}` as root" in str(error.value)
    with acting_as(ANN):
        SavedStates(folder).save(STATE)
    os.chown(folder, 0, 0)
    with acting_as(BEN):
        SavedStates(folder).save(replace(STATE, origin=replace(ORIGIN, key="another")))


@needs_accounts
def test_only_a_folder_that_was_named_may_be_a_members(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(folder, ANN, GROUP)
    folder.chmod(0o2770)
    with acting_as(BEN, GROUP):
        SavedStates(folder).save(STATE)
    monkeypatch.setattr(lab_folder, "FALLBACK", folder)
    with acting_as(BEN, GROUP), pytest.raises(LabFolderError, match="belongs to account"):
        SavedStates(folder).read_all()


def test_a_link_to_a_folder_is_not_used(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    with pytest.raises(LabFolderError, match="it is a link") as error:
        SavedStates(link).save(STATE)
    assert str(folder) in str(error.value)
    assert list(folder.iterdir()) == []


def test_states_in_the_folder_that_was_used_before_are_not_forgotten(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator makes /var/lib/lightrig while /var/tmp/lightrig has a state."""
    SavedStates(folder).save(STATE)
    prepared = folder.parent / "prepared"
    prepared.mkdir(mode=0o700)
    monkeypatch.setattr(machine_folder, "FALLBACK", folder)
    monkeypatch.setattr(machine_folder, "PREPARED", prepared)
    states = SavedStates(prepared)
    with pytest.raises(SavedStateError, match=f"before {prepared} was made") as error:
        states.load(STATE)
    assert str(path_in(folder)) in str(error.value)
    assert [str(each) for each in states.read_all()[1]] == [str(error.value)]
    path_in(folder).rename(path_in(prepared))
    assert states.load(STATE) == STATE
    assert states.read_all() == ([STATE], [])


@needs_accounts
def test_a_server_of_files_that_shows_this_account_by_another_number(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS maps root to nobody: states of root are still its own."""
    SavedStates(folder).save(STATE)
    os.chown(folder, EVE, EVE)
    os.chown(path_in(folder), EVE, EVE)
    with pytest.raises(LabFolderError, match="belongs to account"):
        SavedStates(folder).read_all()
    facts_of = os.fstat

    def as_shown(file: int) -> os.stat_result:
        facts = list(facts_of(file))
        facts[4] = EVE
        return os.stat_result(facts)

    monkeypatch.setattr(os, "fstat", as_shown)
    assert SavedStates(folder).read_all() == ([STATE], [])
