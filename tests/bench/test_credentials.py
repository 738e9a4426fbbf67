"""A credential is found by its name, and what stands there is never repeated."""

from pathlib import Path

import pytest

from lightrig.harness.bench.credentials import CredentialError, look_up

SECRET = "hunter2-never-shown"


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_LOGIN", f"admin:{SECRET}:with:colons")
    assert look_up("env:LAB_LOGIN") == ("admin", f"{SECRET}:with:colons")


def test_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "login").write_text(f"admin:{SECRET}\n")
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


@pytest.mark.parametrize("name", ["keyring:lab", "plain", "", "vault:x"])
def test_unsupported_places(name: str) -> None:
    with pytest.raises(CredentialError, match="use env: or file:"):
        look_up(name)


@pytest.mark.parametrize("stored", ["", SECRET, f":{SECRET}"])
def test_malformed_credential_is_not_repeated(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_LOGIN", stored)
    with pytest.raises(CredentialError, match="user:password") as malformed:
        look_up("env:LAB_LOGIN")
    assert SECRET not in repr(malformed.value)


def test_a_file_that_is_no_text_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "login").write_bytes(b"admin:\xff" + SECRET.encode())
    with pytest.raises(CredentialError, match="login") as malformed:
        look_up(f"file:{tmp_path / 'login'}")
    assert malformed.value.__cause__ is None
    assert SECRET not in repr(malformed.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(CredentialError, match="no file"):
        look_up(f"file:{tmp_path}")
