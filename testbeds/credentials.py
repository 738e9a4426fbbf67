"""Credentials by reference: a testbed file names their place, never their content."""

import importlib
import os
from pathlib import Path

from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.private_files import PrivateFileError, read_private


class CredentialError(LightrigError):
    """A credential is missing, readable by all accounts, or not of the form user:password."""


def look_up(name: str) -> tuple[str, str]:
    """Return user and password at `name`, stored as `user:password`; see `secret`."""
    try:
        found = secret(name, group=True).decode().strip()
    except CredentialError as error:
        raise CredentialError(f"login: {error}") from error
    except UnicodeDecodeError:
        # Without the cause: it would show the content.
        raise CredentialError(f"login: {name}: what stands there is no text") from None
    user, separator, password = found.partition(":")
    if not separator or not user:
        raise CredentialError(f"login: {name}: its value is not of the form user:password")
    return user, password


def secret(name: str, *, group: bool) -> bytes:
    """Return the content of `env:VARIABLE`, `file:PATH`, or `keyring:NAME` of this account.

    A file may be read by its owner, and by its group where `group`; a keyring is asked for the
    password NAME of the service `lightrig`, by the package keyring. Raises `CredentialError`, whose
    message names the place and never shows its content.
    """
    kind, _, place = name.partition(":")
    if kind == "env":
        found = os.environ.get(place)
        if found is None:
            raise CredentialError(f"{name}: the environment variable {place} is not set")
        return found.encode()
    if kind == "file":
        try:
            return read_private(Path(place).expanduser(), group=group)
        except PrivateFileError as error:
            raise CredentialError(f"{name}: {error}") from error
    if kind == "keyring":
        return _from_keyring(name, place).encode()
    raise CredentialError(f"{name}: {kind} is not supported; use env:, file: or keyring:")


def _from_keyring(name: str, place: str) -> str:
    try:
        keyring = importlib.import_module("keyring")
    except ImportError:
        raise CredentialError(f"{name}: the package keyring is not installed") from None
    try:
        found = keyring.get_password("lightrig", place)
    except keyring.errors.KeyringError as error:
        raise CredentialError(f"{name}: {error}") from error
    if not isinstance(found, str):
        raise CredentialError(f"{name}: the keyring has no password {place} of lightrig")
    return found
