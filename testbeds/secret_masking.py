"""Secrets in text that leaves the lab: what looks like one is replaced by asterisks.

A session knows the password that it was given. What a device, a program or a kernel prints may hold
others, which are recognised here by where they stand (`password=`, a login in an address, an SNMP
community, TL1's ACT-USER) or by their form (the prefixes that GitHub, AWS and others give to their
tokens so that they can be found, PEM, crypt(3)).
"""

import functools
import re
from collections.abc import Mapping
from typing import Any

_NAME = (
    r"(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|credentials?|community(?:[-_]?name)?|psk"
    r"|(?:api|access|private|auth|account|encryption|shared|priv|session)[-_ ]?key"
    r"|auth(?:entication)?[-_]?pass(?:word)?)"
)
_NAMES = ("pass", "pwd", "secret", "token", "credential", "community", "psk", "key")
_UNMASKED = r"(?![\"'\\]*\*{3})"
"""What a session has masked already, in quotes or not, is no secret."""

_STATED = r"(?![\"']?(?:env|file|keyring):)"
"""A reference to where a credential is, as in testbed files, is none."""
_BARE = r"""(?!\*{3})(?:[^\s"'`,;<>&{}()\\]|\\(?![rntx0"']))+"""
_VALUE = (
    r"""\\?(?:"(?P<double>(?!\*{3})[^"\r\n\\]+)|'(?P<single>(?!\*{3})[^'\r\n\\]+)'"""
    rf"|(?P<bare>{_BARE}))"
)

_PLACES = (
    # Addresses with a login.
    (("://",), r"://[^\s/:@\"'<>]*:(?P<secret>[^\s/@\"'<>*]+)@"),
    # Names before = or :, in files, environments, JSON, HTTP headers and gRPC metadata.
    (_NAMES, rf"(?<![A-Za-z:]){_NAME}\\?[\"']?\s*(?:=>|:=|[:=])\s*{_STATED}{_VALUE}"),
    (_NAMES, rf"[\w.-]+[-_.]{_NAME}\\?[\"']?\s*(?:=>|:=|[:=])\s*{_STATED}{_VALUE}"),
    (
        ("pass", "secret", "token"),
        rf"\b\w+(?:password|passwd|passphrase|secret|token)={_STATED}{_VALUE}",
    ),
    (
        ("authorization",),
        rf"\bauthorization[\"']?\s*[:=]\s*\\?[\"']?(?:(?:basic|bearer|digest|token)\s+)?+{_VALUE}",
    ),
    (("bearer",), r"\bbearer\s+(?P<secret>[\w.~+/-]{8,}=*)"),
    (("cookie",), r"\b(?:set-)?cookie:\s*[\w.-]+=(?P<secret>[^\s;,\"']+)"),
    (_NAMES, rf"[\"']{_NAME}[\"'],\s*{_VALUE}"),
    # XML, as of NETCONF.
    (_NAMES, rf"<(?:[\w-]+:)?(?:[\w-]+-)?(?:{_NAME}|key)(?:\s[^<>]*)?>(?P<secret>[^<>]+)</"),
    # Command lines of programs.
    (_NAMES, rf"(?<!\S)--?{_NAME}[= ]\s*{_VALUE}"),
    (("sshpass",), rf"\bsshpass\s+-p\s*{_VALUE}"),
    (("snmp",), rf"\bsnmp\w+\s[^\r\n]*?-[cAX]\s*{_VALUE}"),
    (("curl",), rf"\bcurl\s[^\r\n]*?(?:-u|--user)[= ]?\s*[\"']?[^\s:]+:{_VALUE}"),
    (("ipmitool",), rf"\bipmitool\s[^\r\n]*?-P\s*{_VALUE}"),
    # Command lines of switches.
    (
        ("community",),
        rf"\b(?:snmp-server\s+|snmp\s+|set\s+snmp\s+)?(?:ro|rw)?community\s+(?:[0-9]\s+)?+(?=\S*[\d_@!#$%^+-]){_VALUE}",
    ),
    (("community",), rf"\bsnmp(?:-server|d)?\s+(?:ro|rw|trap)?community\s+(?:string\s+)?{_VALUE}"),
    (("community",), rf"\b(?:ro|rw|tr)community6?\s+{_VALUE}"),
    (
        ("username",),
        rf"\busername\s+\S+\s+(?:privilege\s+\d+\s+)?+(?:password|secret)\s+(?:[0-9]\s+)?+{_VALUE}",
    ),
    (("password", "secret"), rf"\b(?:enable\s+)?(?:password|secret)\s+[0-9]\s+{_VALUE}"),
    (("enable",), rf"\benable\s+(?:password|secret)\s+{_VALUE}"),
    (
        ("pass", "secret", "token"),
        rf"\b(?:password|secret|passphrase|token)\s+(?=\S*\d)(?=\S*[A-Za-z]){_VALUE}",
    ),
    (("neighbor",), rf"\bneighbor\s+\S+\s+password\s+(?:[0-9]\s+)?+{_VALUE}"),
    (
        ("radius", "tacacs"),
        rf"\b(?:radius|tacacs)(?:-server)?\s[^\r\n]*?\bkey\s+(?:[0-9]\s+)?+{_VALUE}",
    ),
    (
        ("key", "psk"),
        rf"\b(?:key-string|pre-shared-key|authentication-key|wpa-psk)\s+(?:[0-9]\s+)?+{_VALUE}",
    ),
    # Instruments: TL1's logins and changes of passwords, SCPI's SYSTem:PASSword.
    (("act-user:",), rf"\bACT-USER:[^:;]*:[^:;]*:[^:;]*:[^:;]*:{_UNMASKED}(?P<secret>[^:;\s*]+)"),
    (
        ("-user-secu:",),
        rf"\b(?:ENT|ED)-USER-SECU:[^:;]*:[^:;]*:[^:;]*:[^:;]*:{_UNMASKED}(?P<secret>[^:;\s*]+)",
    ),
    (("ed-pid:",), rf"\bED-PID:[^:;]*:[^:;]*:[^:;]*:[^:;]*:{_UNMASKED}(?P<secret>[^:;\s*]+)"),
    ((":pass",), rf":PASS(?:WORD)?(?::\w+)*\s+{_VALUE}"),
    # A login as one text, user:password.
    (("login",), rf"\blogin[=: ]\s*{_STATED}[\"']?[\w.-]+:{_VALUE}"),
)
"""Places of secrets; a pattern matches only in a text that has one of the words before it."""

_FORMS = (
    r"(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|[rs]k_(?:live|test)_\w{16,}"
    r"|npm_\w{30,}|pypi-[\w-]{30,}|hf_\w{20,}|dckr_pat_[\w-]{20,}|sk-[\w-]{20,}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|AGE-SECRET-KEY-\w{20,}|hvs\.[\w-]{20,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
    r"|hooks\.slack\.com/services/[\w/]+"
    r"|\$(?:1|2[abxy]|5|6|7|y|gy)\$[^\s:\"'<>]{8,})"
)

_OF_FORMS = (
    *(
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "_pat_",
        "glpat-",
        "xox",
        "akia",
        "asia",
        "aiza",
        "ya29.",
    ),
    *("k_live_", "k_test_", "npm_", "pypi-", "hf_", "sk-", "sg.", "secret-key", "hvs.", "eyj"),
    *("hooks.slack", "$"),
)
"""Words as those of `_PLACES`: small letters."""

_PEM = r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)([\s\S]+?)(?=-----END|\Z)"

_PROTOBUF = r"(?:password|passwd|secret|token|authorization)[\x12\x1a]([\x01-\x7f])"
"""A map's entry, or a name and a value, whose value has its length before it."""
_OF_PROTOBUF = ("passw", "secret", "token", "authorization")

_LITERALS = frozenset(("private key", *_OF_FORMS, *_OF_PROTOBUF)).union(
    *(literals for literals, _ in _PLACES)
)
"""All of these words: a text without one has no secret."""


@functools.cache
def _compiled(pattern: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Compile a pattern when it is first needed: most commands mask nothing."""
    return re.compile(pattern, flags)


def mask_secrets(text: str) -> str:
    """Return text in which what looks like a secret is asterisks, as many as it had characters.

    At least three, which `lightrig replay` takes for any text.
    """
    # As by IGNORECASE, for which an i may have no dot, and a great one may have one.
    folded = text.replace("\u0130", "i").casefold().replace("\u0131", "i")
    present = {literal for literal in _LITERALS if literal in folded}
    if not present:
        return text
    has = present.intersection
    if has(("private key",)):
        text = _compiled(_PEM).sub(lambda found: found[1] + re.sub(r"[^\s]", "*", found[2]), text)
    if has(_OF_FORMS):
        text = _compiled(_FORMS, 0).sub(lambda found: asterisks(found[0]), text)
    for literals, place in _PLACES:
        if has(literals):
            text = _compiled(place).sub(_masked, text)
    return _mask_protobuf(text) if has(_OF_PROTOBUF) else text


def mask_document(document: Any) -> Any:
    """Return plain values with each text masked as by `mask_secrets`; keys stay."""
    if isinstance(document, str):
        return mask_secrets(document)
    if isinstance(document, Mapping):
        return {key: mask_document(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [mask_document(value) for value in document]
    return document


def mask_secret_bytes(data: bytes) -> bytes:
    """Return bytes masked as by `mask_secrets`, each byte a character."""
    return mask_secrets(data.decode("latin-1")).encode("latin-1")


def asterisks(secret: str) -> str:
    """Return what stands in the place of a secret."""
    return "*" * max(3, len(secret))


def _masked(found: re.Match[str]) -> str:
    name = next(name for name, value in found.groupdict().items() if value is not None)
    first, last = (place - found.start() for place in found.span(name))
    return found[0][:first] + asterisks(found[name]) + found[0][last:]


def _mask_protobuf(text: str) -> str:
    for found in reversed(list(_compiled(_PROTOBUF).finditer(text))):
        first, length = found.end(), ord(found[1])
        text = text[:first] + "*" * len(text[first : first + length]) + text[first + length :]
    return text
