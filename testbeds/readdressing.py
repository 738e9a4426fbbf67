"""A testbed's file again, with other addresses: for a copy of the lab that is served elsewhere."""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from testbeds.ranges import expand

_SECTIONS = ("switches", "servers", "instruments")


def readdressed(
    path: Path, addresses: Mapping[str, str], *, login: str, known_hosts: Path, target: Path
) -> str:
    """The text of the file at `path`, which must be right, as a file at `target` would say it.

    Everything that `addresses` names is found at its address there, with the credential that
    `login` names ("env:LAB_LOGIN"), and may be another specimen: what identity was expected of
    it is left out. Ranges of names are written out, comments kept but for those within braces.
    """
    yaml = YAML()
    yaml.width = 4096
    yaml.preserve_quotes = True
    document = yaml.load(path.read_text())
    for section in _SECTIONS:
        parts = document.get(section)
        if parts:
            document[section] = _readdressed(parts, addresses, login)
    for plan in (document.get("plans") or {}).values():
        if isinstance(plan, dict) and "file" in plan:
            plan["file"] = os.path.relpath(path.parent / plan["file"], target.parent)
    document["known_hosts"] = os.path.relpath(known_hosts, target.parent)
    written = io.StringIO()
    yaml.dump(document, written)
    return written.getvalue()


def _readdressed(parts: Any, addresses: Mapping[str, str], login: str) -> Any:
    new = type(parts)()
    for key, part in parts.items():
        for name in expand(key):
            # An alias would make all of a range one part again.
            own = copy.deepcopy(part)
            if name in addresses:
                _move(own, addresses[name], login)
            new[name] = own
    return new


def _move(part: Any, address: str, login: str) -> None:
    part["address"] = address
    part.pop("identity", None)
    if "login" in part:
        part["login"] = login
    else:
        part.insert(list(part).index("address") + 1, "login", login)
