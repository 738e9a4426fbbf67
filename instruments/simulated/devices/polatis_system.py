"""Parts of a simulated Polatis's tree that programs read and drivers do not: ports, groups, system.

They are served over RESTCONF. Paths, keys, leaves and defaults are those of the modules
optical-switch 2018-03-22 and polatis-switch 2017-09-11 (opennetworkinglab/onos, bd0779f); the
entry of a user is that of an answer recorded in quintons/polatis2 (e6ec062). Not confirmed, and
therefore chosen: numbers and names of protocols, that a boot mode of DARK is MODE_VOLATILE, that
an edit replaces the lists of a group that it names, and the order in which groups are connected.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lightrig.instruments.simulated.devices.polatis_box import BoxError
from lightrig.instruments.simulated.devices.polatis_settings import SETTINGS, PolatisSettings
from lightrig.instruments.simulated.devices.polatis_yang import (
    MODULE,
    Done,
    Edit,
    PolatisYang,
    YangError,
)
from lightrig.instruments.simulated.protocols.tl1_device import time_of_day
from lightrig.testbeds import Circuit

VENDOR_MODULE = "polatis-switch"

_KEYS = {
    "alarm": "alarm-time",
    "group": "group-name",
    "interface": "name",
    "interface-status": "name",
    "log": "notif-id",
    "ntp-server": "ip-address",
    "port": "port-id",
    "protection-service": "sname",
    "protocol": "protocol-id",
    "radius-server": "ip-address,port",
    "session": "session-id",
    "subswitch": "sname",
    "user": "name",
}
"""The key of each list; several leaves are separated by commas, as their values in a path."""
_INTERFACE = {
    "name": "eth0",
    "ip-address": "127.0.0.1",
    "gateway": "0.0.0.0",  # noqa: S104 -- an answer; nothing is bound to it
    "subnet": "255.0.0.0",
    "broadcast": "127.255.255.255",
}
_PROTOCOLS = (("TL1", 3082), ("SCPI", 5025), ("NETCONF", 830), ("RESTCONF", 8008))


@dataclass(slots=True)
class _Group:
    """Ports that are connected together, in order."""

    ingress: list[int] = field(default_factory=list)
    egress: list[int] = field(default_factory=list)


class PolatisSystem:
    """The parts of one switch's tree that have names of their own in the path.

    Args:
        tree: the other parts.
        login: user and password that may log in at first.
    """

    def __init__(self, tree: PolatisYang, login: tuple[str, str]) -> None:
        self._tree = tree
        self._box = box = tree.box
        self._user, password = login
        self._settings = PolatisSettings(_settings_at_first(self._user, password))
        self._groups: dict[str, _Group] = {}
        self._roots: Mapping[str, Callable[[], Any]] = {
            f"{MODULE}:ports": lambda: {"port": tree.deprecated_ports()},
            f"{MODULE}:system-config": self._system,
            f"{MODULE}:groups": lambda: {"group": [*map(self._group, self._groups)]},
            f"{MODULE}:aps": lambda: {"protection-service": self._value("aps/protection-service")},
            f"{MODULE}:subswitches": lambda: {"subswitch": self._value("subswitches/subswitch")},
            f"{VENDOR_MODULE}:notification-log": lambda: {"log": []},
            f"{VENDOR_MODULE}:system-alarms": lambda: {"alarm": []},
            f"{VENDOR_MODULE}:shutter-status": lambda: {"port": [*map(self._shutter, box.ports)]},
            f"{VENDOR_MODULE}:sessions": lambda: {"session": self._sessions()},
            f"{VENDOR_MODULE}:mask-notification": lambda: self._value("mask-notification"),
        }

    def may_log_in(self, login: tuple[str, str] | None) -> bool:
        """Whether a local user has this name and password."""
        users = self._value("system-config/user")
        known = {e["name"]: e["password"] for e in users if e["type"] == "LOCAL_USER"}
        return login is not None and bool(login[1]) and known.get(login[0]) == login[1]

    def has(self, name: str) -> bool:
        """Whether the container or leaf `name` is here; with or without its module's name."""
        return any(name in {root, root.partition(":")[2]} for root in self._roots)

    def read(self, path: Sequence[str]) -> tuple[str, Any]:
        """Return the qualified name and the value at `path`; an entry is a list of one.

        Raises `YangError` for a path that is not in the tree, or an entry that does not exist.
        """
        value: Any = self._roots
        module = MODULE
        for step in path:
            qualified, equals, key = step.partition("=")
            given, _, name = qualified.rpartition(":")
            if isinstance(value, list) and len(value) == 1:
                (value,) = value  # the entry that the step before has named
            members = value if isinstance(value, Mapping) else {}
            full = next((each for each in members if each.rpartition(":")[2] == name), None)
            if full is None:
                raise YangError("data-missing", f"no resource {'/'.join(path)}")
            module = full.rpartition(":")[0] or module
            value = members[full]() if callable(members[full]) else members[full]
            if given not in {"", module} or (equals and name not in _KEYS):
                raise YangError("data-missing", f"no resource {'/'.join(path)}")
            if equals:
                leaves = _KEYS[name].split(",")
                value = [e for e in value if [str(e[leaf]) for leaf in leaves] == key.split(",")]
                if not value:
                    raise YangError("data-missing", f"no {name} {key}")
        return f"{module}:{name}", value

    def edit(self, method: str, path: Sequence[str], content: Any) -> Done:
        """Set or remove what `path` names; raise `YangError`."""
        names = [step.partition("=")[0].rpartition(":")[2] for step in path]
        where, key = "/".join(names), path[-1].partition("=")[2]
        if names[0] == "groups" and names[1:] in ([], ["group"]):
            self._edit_groups(method, key, content)
            return Done()
        bare = _bare(content)
        if isinstance(bare, Mapping):
            bare = bare.get(names[-1], bare)
        if where == "ports/port" and method == "PATCH":
            return self._edit_ports(key, bare if isinstance(bare, list) else [bare])
        if where not in SETTINGS:
            raise YangError("operation-not-supported", f"/{where} cannot be configured")
        self._settings.edit(method, where, key, bare)
        if where == "system-config/startup-mode":
            self._box.boot = "RESTORE" if bare == "MODE_PRESERVE" else "DARK"
        return Done()

    def _edit_ports(self, key: str, entries: Sequence[Any]) -> Done:
        """Set labels and shutters of the container that later revisions deprecate."""
        edits, states = [], {"PC_ENABLED": list[int](), "PC_DISABLED": list[int]()}
        for entry in entries:
            port = entry.get("port-id", key) if isinstance(entry, Mapping) else ""
            if not str(port).isdigit() or key not in {"", str(port)}:
                raise YangError("missing-element", "port needs its port-id")
            leaves = {leaf: str(value) for leaf, value in entry.items() if leaf != "port-id"}
            if (state := leaves.pop("port-state", None)) is not None:
                if state not in states:
                    raise YangError("invalid-value", f"no state {state} of a port")
                states[state].append(int(port))
            if wrong := leaves.keys() - {"port-label", "peer-port"}:
                raise YangError("unknown-element", f"no leaf {min(wrong)} can be set there")
            named = {leaf.removeprefix("port-"): text for leaf, text in leaves.items()}
            edits.append(Edit("port-config", "merge", int(port), named))
        self._tree.edit(edits)
        return self._tree.set_port_states(*states.values())

    def _edit_groups(self, method: str, key: str, content: Any) -> None:
        if method == "DELETE":
            if key and key not in self._groups:
                raise YangError("data-missing", f"no group {key}")
            for name in [key] if key else list(self._groups):
                del self._groups[name]
            return
        for wrapper in ("groups", "group"):
            if isinstance(content, Mapping):
                content = content.get(f"{MODULE}:{wrapper}", content.get(wrapper, content))
        made = dict(self._parsed_group(each, key) for each in _listed(content))
        if method == "POST" and (known := made.keys() & self._groups):
            raise YangError("data-exists", f"there is a group {min(known)}")
        self._groups = made if method == "PUT" and not key else {**self._groups, **made}

    def connect_groups(self, given: Mapping[str, Any]) -> Done:
        """Carry out the operation add-group-cross-connect."""
        circuits = self._circuits(
            *(self._named(given, f"group-name-{end}") for end in ("from", "to"))
        )
        if not circuits:
            raise YangError("operation-failed", "the groups have no ports to connect")
        try:
            return Done(self._box.connect(circuits), self._box.acknowledge)
        except BoxError as error:
            raise YangError("operation-failed", error.text) from error

    def disconnect_group(self, given: Mapping[str, Any]) -> Done:
        """Carry out the operation delete-group-cross-connect."""
        group = self._groups[self._named(given, "group-name")]
        ports = [*group.ingress, *group.egress]
        return Done(self._box.disconnect(ports), self._box.acknowledge)

    def _named(self, given: Mapping[str, Any], leaf: str) -> str:
        name = given.get(leaf)
        if name not in self._groups:
            raise YangError("invalid-value", f"{leaf}: there is no group {name}")
        return str(name)

    def _circuits(self, first: str, second: str) -> list[Circuit]:
        """Return the circuits that connect two groups; raise `YangError` for unequal ones."""
        found = []
        for start, end in ((first, second), (second, first)):
            pairs = self._groups[start].ingress, self._groups[end].egress
            if len(pairs[0]) != len(pairs[1]):
                raise YangError("operation-failed", f"{start} and {end} have unequal lists")
            found += [Circuit(*pair) for pair in zip(*pairs, strict=True)]
        return found

    def _group(self, name: str) -> Mapping[str, Any]:
        group, connected = self._groups[name], ""
        for partner in self._groups.keys() - {name}:
            try:
                circuits = self._circuits(name, partner)
            except YangError:
                continue  # groups of unequal size cannot be connected
            egress_of = self._box.matrix.egress_of
            if circuits and all(egress_of.get(each.ingress) == each.egress for each in circuits):
                connected = partner
        lists = {"ingress": group.ingress, "egress": group.egress}
        return {"group-name": name, **lists, "connected-group": connected}

    def _parsed_group(self, entry: Mapping[str, Any], key: str) -> tuple[str, _Group]:
        name = entry.get("group-name", key)
        if not name or (key and name != key):
            raise YangError("missing-element", "group needs its group-name")
        before = self._groups.get(name, _Group())
        lists = []
        for leaf, ports in (
            ("ingress", self._box.ingress_ports),
            ("egress", self._box.egress_ports),
        ):
            given = entry.get(leaf, getattr(before, leaf))
            if not isinstance(given, list) or any(port not in ports for port in given):
                raise YangError("invalid-value", f"{given} is no list of {leaf} ports")
            lists.append(given)
        return str(name), _Group(*lists)

    def _shutter(self, port: int) -> Mapping[str, Any]:
        flap = self._box.flaps.get(port)
        if flap is None:
            return {"port-id": port, "status": "SHUTTER_IDLE"}
        return {
            "port-id": port,
            "signal-block-time": flap.dark,
            "signal-restore-time": flap.lit,
            "cycles": flap.cycles,
            "status": f"SHUTTER_{'ACTIVE' if self._box.clock.now() < flap.ends else 'SET'}",
        }

    def _sessions(self) -> list[Mapping[str, Any]]:
        """Return the sessions of TL1 with a user, and the one that asks."""
        users = [("TL1", 3082, user()) for user in self._box.users]
        return [
            {
                "session-id": number,
                "protocol-name": protocol,
                "protocol-port": port,
                "client-address": "127.0.0.1",
                "user-name": user,
            }
            for number, (protocol, port, user) in enumerate(
                [*users, ("RESTCONF", 8008, self._user)], 1
            )
            if user is not None
        ]

    def _system(self) -> Mapping[str, Any]:
        box = self._box
        mode = "PRESERVE" if box.boot == "RESTORE" else "VOLATILE"
        users = self._value("system-config/user")
        return {
            "interface-status": [{**_INTERFACE, "hw-addr": "02:00:00:00:00:01"}],
            "interface": self._value("system-config/interface"),
            "user": [_reported(user) for user in users],
            "activity-log": self._value("system-config/activity-log"),
            "radius-servers": {
                "radius-server": self._value("system-config/radius-servers/radius-server")
            },
            "ntp-servers": {"ntp-server": self._value("system-config/ntp-servers/ntp-server")},
            "remote-syslog": self._value("system-config/remote-syslog"),
            "protocols": {"protocol": self._value("system-config/protocols/protocol")},
            "current-datetime": _datetime(box.clock.now() // 1_000_000_000),
            "boot-datetime": _datetime(0),
            "alarm-clear-hysteresis": self._value("system-config/alarm-clear-hysteresis"),
            f"{VENDOR_MODULE}:startup-mode": f"MODE_{mode}",
        }

    def _value(self, path: str) -> Any:
        return self._settings.values[path]


def _settings_at_first(user: str, password: str) -> Mapping[str, Any]:
    admin = {"name": user, "type": "LOCAL_USER", "password": password, "group": "admin"}
    return {
        "system-config/user": [admin],
        "system-config/interface": [_INTERFACE],
        "system-config/protocols/protocol": [
            {
                "protocol-id": number,
                "protocol-name": name,
                "protocol-type": "Ethernet",
                "protocol-port": port,
                "enabled": True,
            }
            for number, (name, port) in enumerate(_PROTOCOLS, 1)
        ],
        "system-config/activity-log": {
            "log-filter": "",
            "log-access": "NONE",
            "logging-enabled": False,
        },
        "system-config/remote-syslog": {"facility": "USER"},
        "system-config/alarm-clear-hysteresis": 1.0,
        "mask-notification": "",
    }


def _reported(user: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a user as it is read: the password is reported empty (optical-switch)."""
    shown = {leaf: value for leaf, value in user.items() if leaf != "group"}
    return {**shown, "password": "", f"{VENDOR_MODULE}:group": user["group"]}


def _bare(content: Any) -> Any:
    """Return content with the names of its members bare of their modules."""
    if isinstance(content, list):
        return [*map(_bare, content)]
    if isinstance(content, Mapping):
        return {name.rpartition(":")[2]: _bare(value) for name, value in content.items()}
    return content


def _listed(content: Any) -> list[Mapping[str, Any]]:
    found = content if isinstance(content, list) else [content]
    if not all(isinstance(each, Mapping) for each in found):
        raise YangError("invalid-value", "the body holds no group")
    return found


def _datetime(seconds: int) -> str:
    return f"{time_of_day(seconds):%Y-%m-%dT%H:%M:%SZ}"
