"""Addresses in a file, and references to credentials."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, WithJsonSchema

CONTROL_SCHEMES = ("tl1", "scpi", "netconf", "restconf", "gnmi", "ssh", "serial", "visa", "simserv")
"""Schemes of addresses of switches and instruments."""
SERVER_SCHEMES = ("ssh", "netns")
"""Schemes of addresses of servers; `netns` is a network namespace on this machine."""

_HOST = re.compile(r"(?:[^@/\s]+@)?(\[[0-9A-Fa-f:.]+\]|[\w.{}-]+)(?::(\d{1,5}))?", re.ASCII)
_SECRET_NAME = re.compile(r"passw|passphrase|secret|token", re.IGNORECASE)
_CREDENTIAL = r"(env:[A-Za-z_]\w*|(file|keyring):\S+)"


def _address(schemes: tuple[str, ...]) -> Any:
    listed = ", ".join(f"{scheme}://" for scheme in schemes)

    def check(text: str) -> str:
        scheme, separator, rest = text.partition("://")
        if not separator:
            raise ValueError(f"found an address without a scheme, expected one of {listed}")
        if scheme not in schemes:
            raise ValueError(f"found the scheme {scheme!r}, expected one of {listed}")
        # The address is never repeated: it may hold what must not reach a terminal.
        if re.match(r"[^/@]*:[^@]*@", rest):
            raise ValueError(
                "found a password in an address, expected only its name, e.g. login: env:LAB_LOGIN"
            )
        if not rest or re.search(r"\s", rest):
            raise ValueError(f"found no host after {scheme}://, e.g. '{scheme}://ocs.lab'")
        if problem := _unreachable(scheme, rest):
            raise ValueError(problem)
        return text

    return AfterValidator(check), f"^({'|'.join(schemes)})://\\S+$"


def _unreachable(scheme: str, rest: str) -> str:
    """Return why `rest` is no place that `scheme` can reach, or ""."""
    if scheme == "visa":
        return ""
    if scheme == "serial":
        is_device = re.match(r"/|COM\d", rest) or rest.endswith(".invalid")
        return "" if is_device else "found no device after serial://, e.g. 'serial:///dev/ttyUSB0'"
    match = _HOST.fullmatch(rest)
    if match is None:
        return f"found more than a host and a port, expected e.g. '{scheme}://ocs.lab:3082'"
    host, port = match.groups()
    if port is not None and not 1 <= int(port) <= 65535:
        return f"found port {port}, expected 1 to 65535, or none for the usual one"
    if re.fullmatch(r"[\d.]+", host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            return f"found {host}, which is no IPv4 address, expected e.g. 192.0.2.10"
    return ""


_control, _control_pattern = _address(CONTROL_SCHEMES)
_reach, _reach_pattern = _address(SERVER_SCHEMES)


def _login(text: str) -> str:
    if not re.fullmatch(_CREDENTIAL, text):
        raise ValueError(
            "found a literal credential, expected where to find it: env:NAME, file:PATH or "
            "keyring:NAME, e.g. env:OCS_LOGIN"
        )
    return text


def _options(options: dict[str, bool | int | float | str]) -> dict[str, bool | int | float | str]:
    for key, value in options.items():
        if _SECRET_NAME.search(key) and not re.fullmatch(_CREDENTIAL, str(value)):
            raise ValueError(
                f"found a literal credential in {key!r}, expected env:NAME, file:PATH or "
                "keyring:NAME"
            )
    return options


Control = Annotated[
    str,
    _control,
    Field(description="How to speak to it", examples=["tl1://ocs.lab:3082", "scpi://meter.lab"]),
    WithJsonSchema({"type": "string", "pattern": _control_pattern}),
]
Reach = Annotated[
    str,
    _reach,
    WithJsonSchema({"type": "string", "pattern": _reach_pattern}),
]
Login = Annotated[
    str,
    AfterValidator(_login),
    WithJsonSchema({"type": "string", "pattern": f"^{_CREDENTIAL}$", "examples": ["env:LOGIN"]}),
]
Options = Annotated[dict[str, bool | int | float | str], AfterValidator(_options)]
