"""Credentials by reference: a testbed file names their place, never their content."""

import os
from pathlib import Path

from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.private_files import PrivateFileError, read_private


class CredentialError(LightrigError):
    """A credential is missing, readable by all accounts, or not of the form user:password."""


def look_up(name: str) -> tuple[str, str]:
    """Return user and password of `env:VARIABLE` or `file:PATH`, stored as `user:password`.

    A file may be read by its owner and its group. Raises `CredentialError`, whose message names the
    place and never shows its content.
    """
    kind, _, place = name.partition(":")
    if kind == "env":
        secret = os.environ.get(place)
        if secret is None:
            raise CredentialError(f"login: {name}: the environment variable {place} is not set")
    elif kind == "file":
        path = Path(place).expanduser()
        try:
            secret = read_private(path, group=True).decode().strip()
        except PrivateFileError as error:
            raise CredentialError(f"login: {name}: {error}") from error
        except UnicodeDecodeError:
            # Without the cause: it would show the content.
            raise CredentialError(f"login: {name}: {path} is no text") from None
    else:
        raise CredentialError(f"login: {name}: {kind} is not supported here; use env: or file:")
    user, separator, password = secret.partition(":")
    if not separator or not user:
        raise CredentialError(f"login: {name}: its value is not of the form user:password")
    return user, password
