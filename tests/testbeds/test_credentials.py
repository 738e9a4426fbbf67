"""A credential is found by its name, and what stands there is never repeated."""

import os
from pathlib import Path

import pytest

from lightrig.testbeds.credentials import CredentialError, look_up

SECRET = "hunter2-never-shown"


def private_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_LOGIN", f"admin:{SECRET}:with:colons")
    assert look_up("env:LAB_LOGIN") == ("admin", f"{SECRET}:with:colons")


def test_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_file(tmp_path / "login", f"admin:{SECRET}\n".encode())
    assert look_up(f"file:{tmp_path / 'login'}") == ("admin", SECRET)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert look_up("file:~/login") == ("admin", SECRET)


def test_an_empty_password_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_LOGIN", "admin:")
    assert look_up("env:LAB_LOGIN") == ("admin", "")


@pytest.mark.parametrize("name", ["env:LAB_NOWHERE", "file:/nonexistent/login"])
def test_missing_credential_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_NOWHERE", raising=False)
    with pytest.raises(CredentialError, match=name):
        look_up(name)


@pytest.mark.parametrize("name", ["plain", "", "vault:x"])
def test_unsupported_places(name: str) -> None:
    with pytest.raises(CredentialError, match="use env:, file: or keyring:"):
        look_up(name)


@pytest.mark.parametrize("stored", ["", SECRET, f":{SECRET}"])
def test_malformed_credential_is_not_repeated(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_LOGIN", stored)
    with pytest.raises(CredentialError, match="user:password") as malformed:
        look_up("env:LAB_LOGIN")
    assert SECRET not in repr(malformed.value)


def test_a_file_that_is_no_text_is_not_repeated(tmp_path: Path) -> None:
    private_file(tmp_path / "login", b"admin:\xff" + SECRET.encode())
    with pytest.raises(CredentialError, match="login") as malformed:
        look_up(f"file:{tmp_path / 'login'}")
    assert malformed.value.__cause__ is None
    assert SECRET not in repr(malformed.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match="no file"):
        look_up(f"file:{tmp_path}")


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o604, 0o602, 0o601, 0o444])
def test_a_file_of_all_accounts_is_refused_with_the_mode_to_set(tmp_path: Path, mode: int) -> None:
    private_file(tmp_path / "login", f"admin:{SECRET}".encode(), mode)
    with pytest.raises(CredentialError, match=rf"chmod 600 {tmp_path}/login; .*: 0400") as refused:
        look_up(f"file:{tmp_path / 'login'}")
    assert f"(mode {mode:04o})" in str(refused.value)
    assert SECRET not in repr(refused.value)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640, 0o660])
def test_a_file_of_its_owner_or_of_a_group_is_read(tmp_path: Path, mode: int) -> None:
    private_file(tmp_path / "login", f"admin:{SECRET}".encode(), mode)
    assert look_up(f"file:{tmp_path / 'login'}") == ("admin", SECRET)


def test_a_fifo_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "login", 0o600)
    with pytest.raises(CredentialError, match="no file"):
        look_up(f"file:{tmp_path / 'login'}")


def test_a_mounted_secret_is_read_through_its_links(tmp_path: Path) -> None:
    """As kubelet mounts one: a link to a file below a folder that is a link too."""
    (tmp_path / "..2026_11_29").mkdir()
    private_file(tmp_path / "..2026_11_29" / "login", f"admin:{SECRET}".encode(), 0o400)
    (tmp_path / "..data").symlink_to("..2026_11_29")
    (tmp_path / "login").symlink_to("..data/login")
    assert look_up(f"file:{tmp_path / 'login'}") == ("admin", SECRET)


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "login").symlink_to("login")
    with pytest.raises(CredentialError, match="symbolic links"):
        look_up(f"file:{tmp_path / 'login'}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root with setpriv can become another account")
def test_a_link_of_another_account_leads_to_no_file_of_this_one(tmp_path: Path) -> None:
    private_file(tmp_path / "login", f"admin:{SECRET}".encode())
    (tmp_path / "link").symlink_to("login")
    os.lchown(tmp_path / "link", 65534, 65534)
    with pytest.raises(CredentialError, match="is a link of account 65534, neither") as refused:
        look_up(f"file:{tmp_path / 'link'}")
    assert SECRET not in repr(refused.value)
    # A group's file is taken from its owner, but not through a link from any account.
    os.lchown(tmp_path / "link", 0, 0)
    private_file(tmp_path / "login", f"admin:{SECRET}".encode(), 0o640)
    os.chown(tmp_path / "login", 65534, 0)
    with pytest.raises(CredentialError, match="belongs to account 65534"):
        look_up(f"file:{tmp_path / 'link'}")
