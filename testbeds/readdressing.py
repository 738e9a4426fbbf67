"""A copy of a testbed file with new addresses, for simulated instruments that are served."""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from lightrig.testbeds.model import Testbed
from lightrig.testbeds.ranges import expand

_SECTIONS = ("switches", "servers", "instruments")


def addresses_of(testbed: Testbed) -> dict[str, str]:
    """Return the address of each optical switch, server and instrument, by name."""
    switches = {name: spec.address for name, spec in testbed.optical_switches.items()}
    servers = {name: spec.address for name, spec in testbed.servers.items()}
    instruments = {name: spec.address for name, spec in testbed.instruments.items()}
    return {name: one or "" for name, one in {**switches, **servers, **instruments}.items()}


def readdressed(
    path: Path,
    addresses: Mapping[str, str],
    *,
    login: str,
    known_hosts: Path,
    target: Path,
    keep_login: Collection[str] = (),
    certificates: Path | None = None,
    keep_ssh_config: bool = False,
) -> str:
    """Return the text of the valid file at `path`, adapted for a file at `target`.

    `certificates` is a file of trusted certificates for those that are reached over gNMI.
    Instruments in `addresses` get their address there, with the credential `login`
    ("env:LAB_LOGIN") and without an expected identity: they are other specimens, which no other
    host shares. Those in `keep_login` keep the credential that the file names. `keep_ssh_config`
    is for servers that exist, which are reached as the file says. Ranges of names are
    expanded; comments stay, except within braces.
    """
    yaml = YAML()
    yaml.width = 4096
    yaml.preserve_quotes = True
    document = yaml.load(path.read_text())
    for section in _SECTIONS:
        parts = document.get(section)
        if parts:
            document[section] = _readdressed(parts, addresses, login, keep_login)
            for part in document[section].values():
                if certificates is not None and str(part.get("address")).startswith("gnmi://"):
                    part.setdefault("options", {})["certificates"] = str(certificates.resolve())
    for plan in (document.get("plans") or {}).values():
        if isinstance(plan, dict) and "file" in plan:
            plan["file"] = os.path.relpath(path.parent / plan["file"], target.parent)
    document.pop("lab_folder", None)
    document.pop("labgrid", None)
    if not keep_ssh_config:
        document["ssh_config"] = os.devnull  # neither aliases nor jump hosts lead to the simulation
    elif "ssh_config" in document:
        stated = path.parent / document["ssh_config"]
        document["ssh_config"] = os.path.relpath(stated, target.parent)
    document["known_hosts"] = os.path.relpath(known_hosts, target.parent)
    written = io.StringIO()
    yaml.dump(document, written)
    return written.getvalue()


def _readdressed(
    parts: Any, addresses: Mapping[str, str], login: str, keep_login: Collection[str]
) -> Any:
    new = type(parts)()
    for key, part in parts.items():
        for name in expand(key):
            # Without a copy, ruamel would write an alias for all but the first of a range.
            copied = copy.deepcopy(part)
            if name in addresses:
                _move(copied, addresses[name], None if name in keep_login else login)
            new[name] = copied
    return new


def _move(part: Any, address: str, login: str | None) -> None:
    if part["address"].startswith("netns://"):
        part.insert(list(part).index("address") + 1, "kind", "namespace")
    part["address"] = address
    part.pop("identity", None)
    if login is None:
        return
    if "login" in part:
        part["login"] = login
    else:
        part.insert(list(part).index("address") + 1, "login", login)
