"""Settings of a simulated Polatis that concern no port: users, servers, logs, interfaces.

Paths are those of the vendor's web page (quintons/polatis2, e6ec062, restlib.js); keys, leaves,
ranges and defaults those of the modules optical-switch 2018-03-22 and polatis-switch 2017-09-11
(opennetworkinglab/onos, bd0779f). They are kept and read back. Simulated of their effects: users
may log in over RESTCONF, and the startup mode is the boot mode of the other wires. No server is
asked, no interface changes its address, no path is protected and no subswitch bounds its users.
"""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lightrig.instruments.simulated.devices.polatis_yang import YangError

Check: TypeAlias = Callable[[Any], bool]


def _one_of(*names: str) -> Check:
    return lambda value: value in names


def _bits(*names: str) -> Check:
    return lambda value: isinstance(value, str) and set(value.split()) <= {*names}


def _whole(least: int, most: int) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def _text(least: int, most: int) -> Check:
    def fits(value: Any) -> bool:
        return isinstance(value, str) and least <= len(value) <= most and value.isprintable()

    return fits


def _listed(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_address(value: Any) -> bool:
    try:
        return bool(ipaddress.ip_address(value))
    except ValueError:
        return False


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_working_port(value: Any) -> bool:
    leaves = _WORKING_PORT
    return (
        isinstance(value, Mapping)
        and {"port-id", "client"} <= value.keys() <= leaves.keys()
        and all(leaves[leaf](each) for leaf, each in value.items())
    )


_PORT, _NUMBER = _whole(1, 65_535), _whole(0, (1 << 32) - 1)
_WORKING_PORT: Mapping[str, Check] = {
    "port-id": _PORT,
    "client": _NUMBER,
    "priority": _NUMBER,
    "wtr-timeout": _NUMBER,
    "ovs": _is_flag,
}
_NOTIFICATIONS = ("PORT_POWER", "PORT_POWER_WARN", "SYSTEM", "APS", "ACTIVITY")


@dataclass(frozen=True, slots=True)
class _Setting:
    """A container, a leaf or a list that can be configured.

    Attributes:
        leaves: check of each leaf; that of the empty name is of a leaf alone.
        key: leaves that tell the entries of a list apart; none for what is no list.
        mandatory: leaves that a new entry needs beside its key.
        defaults: of a new entry.
        fixed: whether its entries can be neither made nor removed.
    """

    leaves: Mapping[str, Check]
    key: tuple[str, ...] = ()
    mandatory: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: bool = False


SETTINGS: Mapping[str, _Setting] = {
    "system-config/user": _Setting(
        {
            "name": _text(1, 32),
            "type": _one_of("LOCAL_USER", "RADIUS_USER"),
            "password": _text(1, 128),
            "group": _one_of("admin", "user", "view"),
        },
        ("name",),
        ("type",),
        {"password": "", "group": "user"},
    ),
    "system-config/interface": _Setting(
        dict.fromkeys(("ip-address", "gateway", "subnet", "broadcast"), _is_address),
        ("name",),
        fixed=True,
    ),
    "system-config/radius-servers/radius-server": _Setting(
        {
            "ip-address": _is_address,
            "port": _PORT,
            "secret": lambda value: _text(1, 128)(value) and value.isalnum(),
            "timeout": _whole(1, 30),
        },
        ("ip-address", "port"),
        ("secret",),
        {"timeout": 3},
    ),
    "system-config/ntp-servers/ntp-server": _Setting(
        {
            "ip-address": _is_address,
            "minpoll": _whole(4, 6),
            "maxpoll": _whole(10, 17),
            "version": _whole(1, 4),
        },
        ("ip-address",),
        defaults={"minpoll": 6, "maxpoll": 10, "version": 4},
    ),
    "system-config/protocols/protocol": _Setting(
        {"enabled": _is_flag}, ("protocol-id",), fixed=True
    ),
    "system-config/activity-log": _Setting(
        {
            "log-filter": _bits("SYSTEM", "USER", "OXC", "OPM"),
            "log-access": _one_of("NONE", "SELF", "ALL"),
            "logging-enabled": _is_flag,
        }
    ),
    "system-config/remote-syslog": _Setting(
        {
            "rname": _is_address,
            "rport": _PORT,
            "facility": _one_of("USER", *(f"LOCAL{n}" for n in range(8))),
        }
    ),
    "system-config/startup-mode": _Setting({"": _one_of("MODE_PRESERVE", "MODE_VOLATILE")}),
    "system-config/alarm-clear-hysteresis": _Setting(
        {"": lambda value: type(value) in {int, float} and 1 <= value <= 5}
    ),
    "mask-notification": _Setting({"": _bits(*(f"NOTIF_{each}" for each in _NOTIFICATIONS))}),
    "aps/protection-service": _Setting(
        {
            "sname": _text(1, 128),
            "working-port": _listed(_is_working_port),
            "protection-port": _listed(_NUMBER),
        },
        ("sname",),
        defaults={"active": False, "working-port": [], "protection-port": []},
    ),
    "subswitches/subswitch": _Setting(
        {
            "sname": _text(1, 128),
            "username": _listed(_text(1, 128)),
            "port-id": _listed(_NUMBER),
        },
        ("sname",),
        defaults={"username": [], "port-id": []},
    ),
}
"""Configurable containers, leaves and lists, by path without modules."""


class PolatisSettings:
    """The values of what can be configured.

    Args:
        values: those at the start, by path; a list's as entries.

    Attributes:
        values: those of now.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        lists: dict[str, Any] = {path: [] for path, setting in SETTINGS.items() if setting.key}
        self.values: dict[str, Any] = {**lists, **values}

    def edit(self, method: str, path: str, key: str, content: Any) -> None:
        """Merge `content` into what is at `path` (PATCH), or remove the entry `key` (DELETE).

        Names in `content` have no module. Raises `YangError`, and then changes nothing.
        """
        setting = SETTINGS[path]
        if method == "DELETE" and setting.key and key and not setting.fixed:
            remaining = [each for each in self.values[path] if self._key(setting, each) != key]
            if remaining == self.values[path]:
                raise YangError("data-missing", f"no {path} {key}")
            self.values[path] = remaining
        elif method != "PATCH":
            raise YangError("operation-not-supported", f"no {method} of /{path}")
        elif "" in setting.leaves:
            self._check(path, setting, {"": content})
            self.values[path] = content
        elif not setting.key:
            self._check(path, setting, content)
            self.values[path] = {**self.values[path], **content}
        else:
            entries = content if isinstance(content, list) else [content]
            self.values[path] = self._merged(path, setting, key, entries)

    def _merged(self, path: str, setting: _Setting, key: str, entries: list[Any]) -> list[Any]:
        """Return the entries of a list with those given; `key` is the one that the path names."""
        found = {self._key(setting, each): each for each in self.values[path]}
        for entry in entries:
            if not isinstance(entry, Mapping) or not {*setting.key} <= entry.keys():
                raise YangError("missing-element", f"{path} needs {' and '.join(setting.key)}")
            name = self._key(setting, entry)
            if key not in {"", name}:
                raise YangError("invalid-value", "the key is not the one that the path names")
            if name not in found and setting.fixed:
                raise YangError("data-missing", f"no {path} {name}")
            if name not in found and (missing := {*setting.mandatory} - entry.keys()):
                raise YangError("missing-element", f"{path} needs {min(missing)}")
            fixed = setting.key if setting.fixed else ()
            self._check(path, setting, {k: v for k, v in entry.items() if k not in fixed})
            found[name] = {**found.get(name, setting.defaults), **entry}
        return [*found.values()]

    def _check(self, path: str, setting: _Setting, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise YangError("invalid-value", f"the body holds no leaves of {path}")
        for leaf, value in given.items():
            if leaf not in setting.leaves:
                raise YangError("unknown-element", f"no leaf {leaf} can be set in {path}")
            if not setting.leaves[leaf](value):
                raise YangError("invalid-value", f"{path}: {leaf or 'it'} cannot be {value!r}")

    @staticmethod
    def _key(setting: _Setting, entry: Mapping[str, Any]) -> str:
        return ",".join(str(entry[leaf]) for leaf in setting.key)
