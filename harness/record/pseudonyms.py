"""Names of a lab replaced by others of the same length and kind, each always by the same one.

Hosts, serial numbers, addresses and accounts of a recording that leaves the lab. A name and its
replacement have letters, digits and other characters at the same places, so that lengths in frames
hold and drivers read them as before. The replacement is a keyed permutation of all names of that
form (an unbalanced Feistel network; Black and Rogaway, "Ciphers with arbitrary finite domains",
2002), whose cycle is entered one step further on: no name stays what it is, and no two become one.
"""

import hashlib
import hmac
import ipaddress
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_ROUNDS = 6
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"
_HEX = "0123456789abcdef"

GENERIC = re.compile(
    r"(?:ocs|switch|sw|tor|leaf|spine|server|host|node|gpu|worker|rank|laser|source|meter|voa|bert"
    r"|osw|nic|lab|chamber|bench|localhost|probe|replay)?[-_]?\d*"
)
"""Names that tell nothing of a lab; as a part of a longer host name they are replaced."""

_MAC = re.compile(
    r"(?<![\w:.-])(?:[0-9a-f]{2}([:-]))(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}(?![\w:.-]*[:-][0-9a-f]{2})"
    r"(?!\w)|(?<![\w.])[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}(?![\w.])",
    re.IGNORECASE,
)
_GUID = re.compile(r"(?<![\w:])(?:[0-9a-f]{4}:){3}[0-9a-f]{4}(?![\w:])", re.IGNORECASE)
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w])(?!\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9a-f]*:[0-9a-f:]+(?![\w:])", re.IGNORECASE)
_VERSION = re.compile(
    r"(?:firmware|version|release|driver|fw|revision)\w*\W{0,4}v?((?:\d{1,3}\.){3}\d{1,3})\b",
    re.IGNORECASE,
)
_AFTER_AT = r"(?P<account>[A-Za-z_][\w.-]*)(?::[^\s@/:]*)?@(?P<host>[A-Za-z0-9][\w.-]*)"
_LOGIN = re.compile(rf"(?<![\w.@-]){_AFTER_AT}")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^\s/@\"'<>]*@)?(?P<host>[A-Za-z0-9][\w.-]*)")
_FULL_NAME = re.compile(
    r"(?<![\w.@/-])(?P<host>(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+"
    r"(?:lab|local|lan|internal|intranet|corp|invalid|example|test|home|arpa|com|net|org|edu|gov"
    r"|ac\.uk|de|fr|ch|cn|jp))(?![\w-])(?!\.\w)",
    re.IGNORECASE,
)
_ACCOUNT = re.compile(
    r"(?:/home/|/Users/|ACT-USER:[^:;]*:|CANC-USER:[^:;]*:|\b(?:user(?:name)?|account|uid|by user)"
    r"[\"']?\s*[:=]\s*[\"']?|\busername\s+|\b(?:accepted|failed) \w+ for (?:invalid user )?"
    r"|\bfor user )(?P<account>[A-Za-z_][\w.-]*)",
    re.IGNORECASE,
)
_SERIAL = re.compile(
    r"(?:\b(?:serial(?:[\s_-]*(?:number|no|num))?|vendor[\s_]sn|S/N|SN)\b\.?[\"']?"
    r"\s*[:=#]?\s*[\"']?)(?P<serial>(?=[\w-]*\d)[A-Za-z0-9][\w-]{2,})",
    re.IGNORECASE,
)

_IDENTITY = re.compile(r", serial (?P<serial>[^,]+), firmware (?P<firmware>[\w.+-]+)")
_NO_SERIALS = frozenset(("", "0", "none", "unknown", "n/a"))

_UNTOUCHED_ACCOUNTS = frozenset(("root", "nobody", "daemon", "user", "none", "env", "file", "git"))


@dataclass
class Names:
    """What identifies a lab.

    hosts: whole names, such as "ocs.lab.example". versions: that look like addresses, and are none.
    reserved: words of files' syntax, which are replaced only where an account is meant.
    """

    hosts: set[str] = field(default_factory=set)
    serials: set[str] = field(default_factory=set)
    accounts: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)
    reserved: frozenset[str] = frozenset()

    def learn(self, text: str) -> None:
        """Add the names that a text shows by where they stand."""
        for pattern in (_LOGIN, _URL, _FULL_NAME):
            for found in pattern.finditer(text):
                self._add_host(found["host"].rstrip(".-"))
        for pattern in (_LOGIN, _ACCOUNT):
            self.accounts |= {found["account"] for found in pattern.finditer(text)}
        self.serials |= {found["serial"] for found in _SERIAL.finditer(text)}
        self.versions |= {found[1] for found in _VERSION.finditer(text)}
        for found in _IDENTITY.finditer(text):
            self.versions.add(found["firmware"])
            if found["serial"].lower() not in _NO_SERIALS:
                self.serials.add(found["serial"])

    def _add_host(self, host: str) -> None:
        if not _IPV4.fullmatch(host) and not host.isdigit():
            self.hosts.add(host)

    def learn_document(self, document: Any) -> None:
        """Add the names that the texts of plain values show."""
        for text in texts_in(document):
            self.learn(text)


def texts_in(document: Any) -> Iterator[str]:
    """Yield each text of plain values."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, Mapping):
        for key, value in document.items():
            yield from texts_in(key)
            if isinstance(key, str) and isinstance(value, str):
                yield f"{key}: {value}"  # as "serial" says what the value is
            yield from texts_in(value)
    elif isinstance(document, list | tuple):
        for value in document:
            yield from texts_in(value)


class Pseudonyms:
    """Replaces the names of a lab in texts.

    Args:
        key: of at least 16 bytes; the same key replaces a name by the same one.
        names: what is replaced, beside addresses, which are recognised by their form.
    """

    def __init__(self, key: bytes, names: Names) -> None:
        self._key = key
        self._versions = {one for one in names.versions if one not in names.hosts}
        plain = {host.lower() for host in names.hosts if host.lower() != "localhost"}
        hosts = {host for host in plain if not _is_generic(host)}
        suffixes = {host.partition(".")[2] for host in hosts} - {""}
        accounts = {
            one for one in names.accounts if one.lower() not in _UNTOUCHED_ACCOUNTS and len(one) > 1
        }
        serials = {one for one in names.serials if _has_form(one)}
        labels = {host.partition(".")[0] for host in hosts}
        alone = {one for one in labels if len(one) > 2 and not _is_generic(one)} - names.reserved
        alone |= {one for one in accounts if one.lower() not in names.reserved}
        self._contexts = {one for one in accounts if one.lower() in names.reserved}
        self._names = [
            (pattern, replacement)
            for pattern, replacement in (
                (_any_of(serials, r"(?<![A-Za-z0-9])", r"(?![A-Za-z0-9])"), self._serial),
                (_any_of(hosts, r"(?<![\w-])", r"(?![\w-])"), self._host),
                (_any_of(suffixes, r"(?<=[}\]]\.)", r"(?![\w-])"), self._host),
                (_any_of(alone, r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"), self._label),
                (_stems_of(alone), self._label),
                (_in_context(self._contexts), self._account_in_context),
            )
            if pattern is not None
        ]

    def replaced(self, text: str) -> str:
        """Return text with every name replaced; as long as it was."""
        for pattern, replacement in self._names:
            text = pattern.sub(lambda found, by=replacement: by(found[0]), text)  # type: ignore[misc]
        text = _MAC.sub(lambda found: self._mac(found[0]), text)
        text = _GUID.sub(lambda found: self._hexadecimal("guid", found[0]), text)
        text = _IPV6.sub(lambda found: self._ipv6(found[0]), text)
        return _IPV4.sub(lambda found: self._ipv4(found[0]), text)

    def replaced_bytes(self, data: bytes) -> bytes:
        """Return bytes as by `replaced`, each byte a character."""
        return self.replaced(data.decode("latin-1")).encode("latin-1")

    def replaced_document(self, document: Any) -> Any:
        """Return plain values with each text replaced, keys too."""
        if isinstance(document, str):
            return self.replaced(document)
        if isinstance(document, Mapping):
            return {
                self.replaced(key) if isinstance(key, str) else key: self.replaced_document(value)
                for key, value in document.items()
            }
        if isinstance(document, list | tuple):
            return [self.replaced_document(value) for value in document]
        return document

    def _serial(self, text: str) -> str:
        prefix = 3 if text[:3].upper() == "SIM" else 0  # a simulated device stays one
        return text[:prefix] + self._word("serial", text[prefix:])

    def _host(self, text: str) -> str:
        return ".".join(map(self._label, text.split(".")))

    def _label(self, text: str) -> str:
        """Digits at the end stay: a testbed file has names as `rack7-[0-3]`."""
        stem = text.rstrip(_DIGITS)
        return self._word("name", stem) + text[len(stem) :] if stem else self._word("name", text)

    def _account_in_context(self, text: str) -> str:
        place = max(text.rfind(mark) for mark in (":", "/", "=", " ", '"', "'")) + 1
        if text.endswith("@"):
            return self._label(text[:-1]) + "@"
        return text[:place] + self._label(text[place:])

    def _word(self, kind: str, text: str) -> str:
        lower = text.lower()
        alphabets = [
            _LETTERS if character in _LETTERS else _DIGITS if character in _DIGITS else character
            for character in lower
        ]
        for place, character in enumerate(lower):
            begins = place == 0 or lower[place - 1] not in _DIGITS
            if character in _DIGITS and begins and lower[place + 1 : place + 2].isdigit():
                alphabets[place] = "0" if character == "0" else "123456789"
        return _with_case(text, self._permuted(kind, lower, alphabets))

    def _hexadecimal(self, kind: str, text: str) -> str:
        lower = text.lower()
        alphabets = [_HEX if character in _HEX else character for character in lower]
        return _with_case(text, self._permuted(kind, lower, alphabets))

    def _mac(self, text: str) -> str:
        lower = text.lower()
        if not set(lower) - set("0:-.") or not set(lower) - set("f:-."):
            return text
        alphabets = [_HEX if character in _HEX else character for character in lower]
        # One address or a group of them, by the lowest bit of the first byte.
        alphabets[1] = "02468ace" if lower[1] in "02468ace" else "13579bdf"
        return _with_case(text, self._permuted("mac", lower, alphabets))

    def _ipv4(self, text: str) -> str:
        octets = text.split(".")
        first = int(octets[0])
        if (
            max(map(int, octets)) > 255
            or text in self._versions
            or any(len(octet) > 1 and octet[0] == "0" for octet in octets)
        ):
            return text
        if first in (0, 127) or first >= 224:  # this host, loopback, groups, masks
            return text
        ranges = [_as_long(octet, 255) for octet in octets]
        ranges[0] = [one for one in _as_long(octets[0], 223) if one not in ("0", "127")]
        return ".".join(self._chosen("ipv4", octets, ranges))

    def _ipv6(self, text: str) -> str:
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            return text
        groups = [group for group in text.split(":") if group]
        if address.is_loopback or address.is_multicast or sum(map(len, groups)) < 4:
            return text
        lower = text.lower()
        alphabets = [_HEX if character in _HEX else character for character in lower]
        for place, character in enumerate(lower):
            if character != ":" and (place == 0 or lower[place - 1] == ":"):
                alphabets[place] = character if place == 0 else "123456789abcdef"
                if character == "0" and place:
                    alphabets[place] = "0"
        return _with_case(text, self._permuted("ipv6", lower, alphabets))

    def _permuted(self, kind: str, text: str, alphabets: Sequence[str]) -> str:
        return "".join(self._chosen(kind, text, alphabets))

    def _chosen(
        self, kind: str, given: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[str]:
        """Return another choice at each place: that of the number that follows in the cycle."""
        sizes = [len(each) for each in choices]
        total = math.prod(sizes)
        if total < 2:
            return list(given)
        number = 0
        for size, each, one in zip(sizes, choices, given, strict=True):
            number = number * size + each.index(one)
        form = f"{kind} {sizes}".encode()
        split = math.prod(sizes[: len(sizes) // 2])
        cipher = _Feistel(self._key + form, split, total // split)
        step = 1 + cipher.value(b"step", total - 1) if total > 2 else 1
        number = cipher.inverse((cipher.forward(number) + step) % total)
        found: list[str] = []
        for size, each in zip(reversed(sizes), reversed(choices), strict=True):
            number, place = divmod(number, size)
            found.append(each[place])
        return found[::-1]


@dataclass(frozen=True)
class _Feistel:
    """A keyed permutation of the numbers below `high` x `low`."""

    key: bytes
    high: int
    low: int

    def value(self, of: bytes, below: int) -> int:
        """Return a number below `below` that depends on the key."""
        return int.from_bytes(hmac.digest(self.key, of, hashlib.sha256), "big") % below

    def forward(self, number: int) -> int:
        """Return the number that `number` becomes."""
        high, low = divmod(number, self.low)
        for turn in range(_ROUNDS):
            high = (high + self.value(b"h%d %d" % (turn, low), self.high)) % self.high
            low = (low + self.value(b"l%d %d" % (turn, high), self.low)) % self.low
        return high * self.low + low

    def inverse(self, number: int) -> int:
        """Return the number that becomes `number`."""
        high, low = divmod(number, self.low)
        for turn in reversed(range(_ROUNDS)):
            low = (low - self.value(b"l%d %d" % (turn, high), self.low)) % self.low
            high = (high - self.value(b"h%d %d" % (turn, low), self.high)) % self.high
        return high * self.low + low


def _is_generic(name: str) -> bool:
    return GENERIC.fullmatch(name.removesuffix(".invalid")) is not None


def _has_form(serial: str) -> bool:
    """Whether a serial number is told from the numbers and words of a text."""
    return len(serial) > 4 or (len(serial) > 2 and not serial.isdigit() and not serial.isalpha())


def _as_long(octet: str, most: int) -> list[str]:
    return [str(one) for one in range(most + 1) if len(str(one)) == len(octet)]


def _with_case(of: str, text: str) -> str:
    return "".join(new.upper() if old.isupper() else new for old, new in zip(of, text, strict=True))


def _any_of(names: Iterable[str], before: str, after: str) -> re.Pattern[str] | None:
    ordered = sorted(names, key=lambda name: (-len(name), name))
    if not ordered:
        return None
    return re.compile(f"{before}(?:{'|'.join(map(re.escape, ordered))}){after}", re.IGNORECASE)


def _stems_of(names: Iterable[str]) -> re.Pattern[str] | None:
    """Names without their number, before a range such as `[0-3]` or a placeholder."""
    stems = {name.rstrip(_DIGITS) for name in names} - {""}
    return _any_of((stem for stem in stems if len(stem) > 2), r"(?<![A-Za-z0-9_])", r"(?=[\[{])")


def _in_context(accounts: Iterable[str]) -> re.Pattern[str] | None:
    names = "|".join(map(re.escape, sorted(accounts, key=len, reverse=True)))
    if not names:
        return None
    return re.compile(
        rf"(?<![\w.-])(?:{names})@|(?:/home/|/Users/|(?:ACT|CANC)-USER:[^:;]*:"
        rf"|\b(?:user(?:name)?|account|uid)[\"']?\s*[:=]\s*[\"']?)(?:{names})(?![\w.-])",
        re.IGNORECASE,
    )
