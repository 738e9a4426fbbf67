"""Credentials by name: a testbed file says where they are, never what they are."""

import os
from pathlib import Path

from testbeds import LightrigError


class CredentialError(LightrigError):
    """A named credential is not there, or not of the form user:password."""


def look_up(name: str) -> tuple[str, str]:
    """User and password behind `env:VARIABLE` or `file:PATH`, stored there as `user:password`.

    Raises `CredentialError`; its message names the place and never repeats what stands there.
    """
    kind, _, place = name.partition(":")
    if kind == "env":
        secret = os.environ.get(place)
        if secret is None:
            raise CredentialError(f"login: {name}: the environment variable {place} is not set")
    elif kind == "file":
        path = Path(place).expanduser()
        if not path.is_file():
            raise CredentialError(f"login: {name}: there is no file {path}")
        try:
            secret = path.read_text().strip()
        except OSError as error:
            raise CredentialError(f"login: {name}: {path}: {error.strerror}") from error
        except UnicodeDecodeError:
            # Without its cause, which holds what stands there.
            raise CredentialError(f"login: {name}: {path} is no text") from None
    else:
        raise CredentialError(f"login: {name}: {kind} is not supported here; use env: or file:")
    user, separator, password = secret.partition(":")
    if not separator or not user:
        raise CredentialError(f"login: {name}: what stands there is not of the form user:password")
    return user, password
