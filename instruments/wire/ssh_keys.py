"""Keys that are offered at a login, in the order of OpenSSH's client."""

import base64
import binascii
import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import paramiko
from paramiko.agent import Agent, AgentSSH

from lightrig.instruments.wire.ssh_config import SshSettings


class OfferedKeys(NamedTuple):
    """Keys to offer.

    Attributes:
        keys: each is loaded when it is asked for.
        left_out: why keys cannot be offered; complete when `keys` are.
        in_agent: number of keys in the agent.
    """

    keys: Iterator[paramiko.PKey]
    left_out: list[str]
    in_agent: int


@contextlib.contextmanager
def offered_keys(settings: SshSettings) -> Iterator[OfferedKeys]:
    """Connect to the agent of this account, if there is one; yield the keys.

    First the agent's keys that the identity files name, then its others unless these are left out,
    then the keys in the files (sshconnect2.c, pubkey_prepare).
    """
    left_out: list[str] = []
    agent: Agent | None = None
    in_agent: dict[bytes, paramiko.AgentKey] = {}
    try:
        agent = _Agent(settings.identity_agent)
        in_agent = {key.asbytes(): key for key in agent.get_keys()}
    except (paramiko.SSHException, OSError) as error:
        left_out.append(f"the key agent cannot be asked: {error}")
    try:
        yield OfferedKeys(_keys(settings, in_agent, left_out), left_out, len(in_agent))
    finally:
        if agent is not None:
            agent.close()


class _Agent(Agent):  # type: ignore[misc] # paramiko states no type of it
    """The agent at a socket: "" for none, None for the one of the environment."""

    def __init__(self, path: str | None) -> None:
        if path is None:
            super().__init__()
            return
        AgentSSH.__init__(self)
        if path:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(path)
                self._connect(connection)
            except BaseException:
                connection.close()
                raise


def _keys(
    settings: SshSettings, in_agent: dict[bytes, paramiko.AgentKey], left_out: list[str]
) -> Iterator[paramiko.PKey]:
    files = [path for path in settings.identity_files if _is_there(path)]
    named = {public: path for path in files if (public := _public(path)) in in_agent}
    for public in named:
        assert public is not None
        yield in_agent[public]
    if not settings.identities_only:
        yield from (key for public, key in in_agent.items() if public not in named)
    for path in files:
        if path in named.values():
            continue
        key = _load(path, left_out)
        if key is None:
            continue
        yield key
        if key.public_blob is not None:  # its certificate was refused
            key.public_blob = None
            yield key


def _is_there(path: Path) -> bool:
    return path.exists() or _public_file(path).exists()


def _public_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.pub")


def _public(path: Path) -> bytes | None:
    """Return the public part of a key; None where it cannot be read."""
    for file in (_public_file(path), path):
        with contextlib.suppress(OSError, ValueError, binascii.Error, IndexError):
            return base64.b64decode(file.read_text(encoding="utf-8").split()[1], validate=True)
    key = _load(path, [])
    return None if key is None else key.asbytes()


def _load(path: Path, left_out: list[str]) -> paramiko.PKey | None:
    """Return the private key in a file; None, and why, where it cannot be used."""
    try:
        mode = path.stat()
        if mode.st_uid == os.geteuid() and stat.S_IMODE(mode.st_mode) & 0o077:
            left_out.append(f"{path} is readable by others")
            return None
        return paramiko.PKey.from_path(path)
    except FileNotFoundError:
        left_out.append(f"{path} holds a public key alone, which no agent has")
    except TypeError:  # of cryptography, for a missing passphrase
        left_out.append(f"{path} is encrypted: `ssh-add {path}` gives it to the agent")
    except (OSError, ValueError, paramiko.SSHException) as error:
        left_out.append(f"{path} cannot be read: {error}")
    except Exception as error:  # paramiko.pkey.UnknownKeyType has no closer base
        left_out.append(f"{path}: {error or type(error).__name__}")
    return None
