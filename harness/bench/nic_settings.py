"""Settings of NIC ports that `ethtool` sets: auto-negotiation, speed, and FEC.

The port is down while one is set, and up behind it: drivers take over most of them only then.
Nothing is written to a module, and no port is reset. Source of the commands: ethtool(8).
"""

import re
from collections.abc import Mapping

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.named_values import SubjectError
from lightrig.instruments.core.errors import NotDoneError
from lightrig.instruments.servers.host.commands import ToolFailedError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import Port

NIC_SETTINGS = ("autoneg", "speed", "fec")
"""What can be set of a port, as the end of its name."""

SETTING = re.compile(r"(fec|link) ([A-Za-z0-9_][\w.:@-]{0,14})", re.ASCII)
"""A saved setting: `fec IF` or `link IF`."""

_FEC = frozenset(("auto", "off", "rs", "baser", "llrs"))
_MODE = r"[0-9]+base[\w/]+"
_LINK = re.compile(
    rf"autoneg on(?: advertise(?: {_MODE} (?:on|off))+)?|speed \d+ duplex full autoneg off",
    re.ASCII,
)
_RATE = re.compile(r"(\d+) ?G", re.ASCII)
_MODES = re.compile(r"(Supported|Advertised) link modes:(.*?)(?=\n\s*[^\n:]+:)", re.DOTALL)


def is_valid(key: str, value: str) -> bool:
    """Whether `value` is one that a port of `key` may be set to."""
    kind = key.partition(" ")[0]
    parts = value.split()
    return bool(parts) and _FEC.issuperset(parts) if kind == "fec" else bool(_LINK.fullmatch(value))


def present(server: LinuxServer, key: str) -> str:
    """Return what a port is set to now, as `set_port` takes it.

    Empty where the driver does not tell, as the speed of a link that is down. Raises
    `InstrumentError`.
    """
    kind, _, netdev = key.partition(" ")
    if kind == "fec":
        configured = server.nic.fec(netdev).value.configured
        parts = sorted(each.lower() for each in configured)
        return " ".join(parts) if _FEC.issuperset(parts) else ""
    link = server.nic.link(netdev).value
    if link.auto_negotiation:
        text = server.commands.run(["ethtool", netdev]).stdout
        modes = {name: re.findall(_MODE, found) for name, found in _MODES.findall(text)}
        advertised = set(modes.get("Advertised", ()))
        stated = [f"{m} {'on' if m in advertised else 'off'}" for m in modes.get("Supported", ())]
        # Without a list all modes are advertised.
        restricted = any(each.endswith("off") for each in stated)
        return " ".join(("autoneg on", *(("advertise", *stated) if restricted else ())))
    if link.auto_negotiation is None or link.speed_bps is None:
        return ""
    return f"speed {link.speed_bps // 1_000_000} duplex full autoneg off"


def set_port(server: LinuxServer, key: str, value: str) -> None:
    """Take a port down, set it, and bring it up; raises `ToolFailedError`.

    It is brought up also where setting has failed.
    """
    kind, _, netdev = key.partition(" ")
    option = ["--set-fec", netdev, "encoding"] if kind == "fec" else ["-s", netdev]
    choices = [value.split()]
    if kind == "fec" and "auto" in choices[0]:
        # Drivers that list what a port could choose take one encoding at a time: Linux, mlx5
        # since commit 4bd9d5070b92.
        choices.append(["auto"])
    server.nic.set_device(netdev, up=False)
    try:
        for chosen in choices:
            command = ["ethtool", *option, *chosen]
            result = server.commands.run(command)
            if result.status == 0:
                return
        raise ToolFailedError(server.name, result, " ".join(command))
    finally:
        server.nic.set_device(netdev, up=True)


def check_restorable(server: LinuxServer, key: str) -> str:
    """Return what a port is set to; raises `SubjectError` where it could not be put back."""
    netdev = key.partition(" ")[2]
    why = ""
    if "UP" not in server.nic.device(netdev).value.flags:
        why = "is down by the administrator's setting"
    elif not (found := present(server, key)):
        why = "does not tell what it is set to"
    if why:
        raise SubjectError(f"{netdev} of {server.name} {why}: it could not be put back as it is")
    return found


def wanted_value(server: LinuxServer, key: str, kind: str, text: str, found: str) -> str:
    """Return a value as `set_port` takes it.

    found: what the port is set to now. Raises `SubjectError`, and `InstrumentError`.
    """
    parts = text.lower().split()
    if kind == "fec" and parts and _FEC.issuperset(parts):
        return " ".join(sorted(parts))
    if kind == "speed" and (rate := _RATE.fullmatch(text.strip())):
        return f"speed {rate[1]}000 duplex full autoneg off"
    if kind == "autoneg" and parts == ["on"]:
        return found if found.startswith("autoneg on") else "autoneg on"
    if kind == "autoneg" and parts == ["off"]:
        netdev = key.partition(" ")[2]
        if (speed := server.nic.link(netdev).value.speed_bps) is None:
            raise SubjectError(
                f"{netdev} of {server.name} is down and tells no speed, which it must be set to "
                "without auto-negotiation: bring its link up first, or vary its speed"
            )
        return f"speed {speed // 1_000_000} duplex full autoneg off"
    expected = {"autoneg": "on or off", "speed": "a rate such as 100G", "fec": "rs, baser or off"}
    raise SubjectError(f"found {text!r} for {kind}, expected {expected[kind]}")


def ports_of(bench: Bench, name: str) -> Mapping[Port, str]:
    """Return the network devices of the ports that a setting's name is of: one, or `*` for all.

    Raises `SubjectError`.
    """
    owner = name.rpartition(".")[0]
    ports = {
        spec.port: spec.netdev
        for spec in bench.testbed.working_ports
        if owner in ("*", str(spec.port))
        and isinstance(bench.servers.get(spec.port.owner), LinuxServer)
    }
    if not ports:
        raise SubjectError(
            f"{bench.testbed.path} has no NIC port {owner!r}; expected one such as "
            "server0.nic0.p0, or * for all"
        )
    return ports


def check_as_set(server: LinuxServer, key: str, value: str) -> None:
    """Raise `NotDoneError` where a port is not as it was set."""
    now = present(server, key)
    if now and now != value:
        raise NotDoneError(
            server.name,
            f"was set to {key} {value}, and reads {now}: its driver took it over in part",
        )
