"""Known host keys, read line by line as OpenSSH reads them (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).

A line that cannot be used costs that line, not the file.
"""

import base64
import binascii
import hmac
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lightrig.instruments.core.errors import KnownHostsError
from lightrig.instruments.wire.ssh_config import (
    GLOBAL_KNOWN_HOSTS,
    NO_FILE,
    SSH_PORT,
    USERS_KNOWN_HOSTS,
)
from lightrig.instruments.wire.tcp import is_placeholder

_AUTHORITY, _REVOKED = "@cert-authority", "@revoked"
_FIELDS = {"ssh-ed25519": 2, "ssh-rsa": 3} | {
    f"ecdsa-sha2-nistp{bits}": 3 for bits in (256, 384, 521)
}
"""Kinds of host keys, and the number of fields in their encoding.

RFC 8709, section 4; RFC 4253, section 6.6; RFC 5656, section 3.1.
"""
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa")}
"""Signature algorithms of a kind of key where they have other names than the kind (RFC 8332)."""
_NAMED = 3


class RefusedHostKeyError(Exception):
    """Raised for a host key that is not to be trusted.

    Attributes:
        problem: what the server did.
        details: labels and texts of further lines.
    """

    def __init__(self, problem: str, *details: tuple[str, str]) -> None:
        super().__init__(problem)
        self.problem = problem
        self.details = details


@dataclass(frozen=True, slots=True)
class _Line:
    file: Path
    number: int
    marker: str
    hosts: str
    kind: str
    key: bytes

    def is_for(self, name: str) -> bool:
        """Whether the line is about a host, `[host]:port` at another port than 22."""
        if self.hosts.startswith("|"):
            salt, digest = map(base64.b64decode, self.hosts.split("|")[2:4])
            return hmac.digest(salt, name.encode(), "sha1") == digest
        found = False
        for pattern in self.hosts.lower().split(","):
            parts = ({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern.removeprefix("!"))
            if re.fullmatch("".join(parts), name):
                if pattern.startswith("!"):
                    return False
                found = True
        return found


def _parse(file: Path, number: int, text: str) -> _Line | str:
    """Return a line, or why it cannot be used."""
    fields = text.split()
    marker = fields.pop(0) if fields[0].startswith("@") else ""
    if marker not in {"", _AUTHORITY, _REVOKED}:
        return f"unknown marker {marker}"
    if len(fields) < 3 or fields[0].startswith("@"):
        return "broken: not hosts, kind and key"
    hosts, kind, encoded = fields[:3]
    if kind not in _FIELDS:
        return f"unknown kind {kind}"
    if hosts.startswith("|") and not re.fullmatch(r"\|1\|[\w+/]{27}=\|[\w+/]{27}=", hosts):
        return "broken: no hashed name"
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return "broken: the key is no base64"
    if not _is_whole(kind, key):
        return f"broken: no whole key of kind {kind}"
    return _Line(file, number, marker, hosts, kind, key)


def _is_whole(kind: str, key: bytes) -> bool:
    fields, left = [], key
    while len(left) >= 4:
        (length,) = struct.unpack(">I", left[:4])
        fields.append(left[4 : 4 + length])
        if len(fields[-1]) < length:
            return False
        left = left[4 + length :]
    return not left and fields[:1] == [kind.encode()] and len(fields) == _FIELDS[kind]


class KnownHosts:
    """The lines of several files; raises OSError.

    Args:
        file: must be there; None for none such.
        further: files that may be missing; None for those of the user and the machine, or for
            none beside `file`.

    Attributes:
        note: names the lines that cannot be used; empty without such lines.
        file: the first file, to which the key of a host can be added.
    """

    def __init__(self, file: Path | None, further: Sequence[Path] | None = None) -> None:
        if further is None:
            further = () if file else (*USERS_KNOWN_HOSTS, *GLOBAL_KNOWN_HOSTS)
        files = [file, *further] if file else list(further)
        self.file = files[0] if files else USERS_KNOWN_HOSTS[0]
        self._lines: list[_Line] = []
        self.note = "; ".join(filter(None, (self._read(each, each == file) for each in files)))

    def _read(self, file: Path, required: bool) -> str:
        """Read a file; return the note on its lines."""
        try:
            text = file.expanduser().read_bytes().decode(errors="backslashreplace")
        except FileNotFoundError:
            if required:
                raise
            return ""
        left_out = []
        for number, line in enumerate(map(str.strip, text.split("\n")), 1):
            if not line or line.startswith("#"):
                continue
            parsed = _parse(file, number, line)
            if isinstance(parsed, str):
                left_out.append(f"line {number} ({parsed})")
            else:
                self._lines.append(parsed)
        more = len(left_out) - _NAMED
        named = ", ".join(left_out[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"left out of the known host keys in {file}: {named}" if named else ""

    def of(self, host: str, port: int, alias: str | None = None, by_hand: str = "") -> "HostKeys":
        """Return what is known of a host.

        Lines without a port count where none has the key's port, as in ssh(1). `alias` stands for
        host and port. `by_hand` is the command that logs in there.
        """
        host = host.lower()
        names = [host] if port == SSH_PORT else [f"[{host}]:{port}", host]
        if alias is not None:
            names = [alias.lower()]
        found = [[line for line in self._lines if line.is_for(name)] for name in names]
        trusted = ([line for line in lines if not line.marker] for lines in found)
        return HostKeys(
            self,
            f"{host}:{port}",
            by_hand or f"ssh -p {port} {host}",
            next(filter(None, trusted), []),
            [line for lines in found for line in lines if line.marker],
        )


@dataclass(frozen=True, slots=True)
class HostKeys:
    """Known keys of one host."""

    _known: KnownHosts
    _where: str
    _by_hand: str
    _trusted: Sequence[_Line]
    _marked: Sequence[_Line]

    def preferred(self, algorithms: Iterable[str]) -> list[str]:
        """Return algorithms for host keys, first those by which the host can prove a known key."""
        kinds = {line.kind for line in self._trusted}
        known = {name for kind in kinds for name in _ALGORITHMS.get(kind, (kind,))}
        return sorted(algorithms, key=lambda name: name not in known)

    def check(self, key: bytes) -> None:
        """Check the key that the host has shown; raises `RefusedHostKeyError`."""
        marked = {line.marker: line for line in self._marked if line.marker != _REVOKED}
        marked |= {line.marker: line for line in self._marked if line.key == key}
        if revoked := marked.get(_REVOKED):
            raise self._refused(
                f"showed a revoked host key at {self._where}",
                f"{revoked.file}, line {revoked.number}, revokes it: somebody may have its private "
                "part; make the server a new host key",
            )
        if any(line.key == key for line in self._trusted):
            return
        if self._trusted:
            raise self._refused(
                f"showed another host key at {self._where} than the known one",
                "somebody may be in between; if the machine was reinstalled or replaced, replace "
                f"line {self._trusted[0].number} of {self._trusted[0].file}",
            )
        if authority := marked.get(_AUTHORITY):
            raise self._refused(
                f"showed a host key at {self._where} for which only an authority could vouch",
                f"line {authority.number} of {authority.file} names the authority, and host "
                f"certificates are not checked: add the host's own key to {self._known.file}, "
                "compared with the one on the machine (`ssh-keygen -lf` of its .pub file)",
            )
        raise self._refused(
            f"showed an unknown host key at {self._where}",
            f"`{self._by_hand}` by hand; an unknown host key must be accepted there once",
        )

    def _refused(self, problem: str, advice: str) -> RefusedHostKeyError:
        note = [("note", self._known.note)] if self._known.note else []
        return RefusedHostKeyError(problem, ("try", advice), *note)


def host_keys(
    instrument: str,
    host: str,
    port: int,
    file: Path | None,
    further: Sequence[Path] | None = None,
    *,
    alias: str | None = None,
    by_hand: str = "",
) -> HostKeys:
    """Return what is known of a host; see `KnownHosts`.

    A placeholder is never contacted, so that no file is read for it. Raises `KnownHostsError` for
    a file that cannot be read.
    """
    try:
        known = KnownHosts(NO_FILE) if is_placeholder(host) else KnownHosts(file, further)
    except OSError as error:
        raise KnownHostsError(
            instrument,
            f"was not contacted, since known_hosts cannot be read: {error}",
            details=[("try", "mend the file, or name another by `known_hosts:` of the testbed")],
        ) from error
    return known.of(host, port, alias, by_hand)
