"""Output of `rdma link` and `ip -j link` for simulated ports."""

import json
from collections.abc import Iterable

from lightrig.instruments.simulated.hosts.host_ports import SimulatedPort


def rdma(ports: Iterable[SimulatedPort], *, as_json: bool) -> str:
    """`rdma [-j] link`."""
    links = [
        {
            "ifindex": index,
            "ifname": port.spec.rdma,
            "port": 1,
            "state": "ACTIVE" if port.is_up("carrier") else "DOWN",
            "physical_state": "LINK_UP" if port.is_up("firmware") else "POLLING",
            "netdev": port.spec.netdev,
            "netdev_index": index + 2,
        }
        for index, port in enumerate(ports)
        if port.spec.rdma is not None
    ]
    if as_json:
        return json.dumps(links, separators=(",", ":")) + "\n"
    return "".join(
        f"link {link['ifname']}/1 state {link['state']} "
        f"physical_state {link['physical_state']} netdev {link['netdev']} \n"
        for link in links
    )


def ip(ports: Iterable[SimulatedPort], wanted: str | None, *, detailed: bool) -> str | None:
    """`ip -j -s [-s] link [show dev IF]`; None where there is no such device."""
    links = [
        _device(index, port, detailed=detailed)
        for index, port in enumerate(ports, 2)
        if wanted in (None, port.spec.netdev)
    ]
    return json.dumps(links, separators=(",", ":")) + "\n" if links or wanted is None else None


_LOOPBACK_FLAGS = "<LOOPBACK,UP,LOWER_UP>"


def text(
    ports: Iterable[SimulatedPort], wanted: str | None, kind: str, *, brief: bool
) -> str | None:
    """`ip [-br] link|address [show dev IF]`; None where there is no such device.

    Source: ip/ipaddress.c of iproute2 (print_linkinfo, print_addrinfo, the brief forms).
    """
    form = _brief if brief else _lines
    found = []
    if wanted in (None, "lo"):
        lo = "00:00:00:00:00:00", _LOOPBACK_FLAGS, "UNKNOWN", "127.0.0.1/8"
        found.append(form(kind, 1, "lo", *lo))
    for index, port in enumerate(ports, 2):
        if wanted not in (None, port.spec.netdev):
            continue
        up = port.is_up("carrier")
        flags = f"<{'' if up else 'NO-CARRIER,'}BROADCAST,MULTICAST,UP{',LOWER_UP' * up}>"
        state = "UP" if up else "DOWN"
        link = f"02:00:00:00:00:{index:02x}", flags, state, port.spec.ip or ""
        found.append(form(kind, index, port.spec.netdev, *link))
    return "".join(found) if found else None


def _brief(kind: str, index: int, name: str, mac: str, flags: str, state: str, address: str) -> str:
    rest = f"{mac} {flags} " if kind == "link" else f"{address} " if address else ""
    return f"{name:<16} {state:<14} {rest}\n"


def _lines(kind: str, index: int, name: str, mac: str, flags: str, state: str, address: str) -> str:
    loopback = name == "lo"
    mtu, queue = (65536, "noqueue") if loopback else (1500, "mq")
    ether, broadcast = ("loopback", "00:" * 5 + "00") if loopback else ("ether", "ff:" * 5 + "ff")
    mode = "mode DEFAULT " if kind == "link" else ""
    lines = [
        f"{index}: {name}: {flags} mtu {mtu} qdisc {queue} state {state} {mode}group default "
        "qlen 1000",
        f"    link/{ether} {mac} brd {broadcast}",
    ]
    if kind == "address" and address:
        lines.append(f"    inet {address} scope {'host' if loopback else 'global'} {name}")
        lines.append("       valid_lft forever preferred_lft forever")
    return "\n".join(lines) + "\n"


def addresses_json(ports: Iterable[SimulatedPort], wanted: str | None) -> str | None:
    """`ip -j address [show dev IF]`; None where there is no such device."""
    found = []
    for index, port in enumerate(ports, 2):
        if wanted not in (None, port.spec.netdev):
            continue
        device = _device(index, port, detailed=False)
        del device["stats64"]
        address, _, prefix = (port.spec.ip or "").partition("/")
        device["addr_info"] = (
            [{"family": "inet", "local": address, "prefixlen": int(prefix), "scope": "global"}]
            if address
            else []
        )
        found.append(device)
    return json.dumps(found, separators=(",", ":")) + "\n" if found or wanted is None else None


def _device(index: int, port: SimulatedPort, *, detailed: bool) -> dict[str, object]:
    port.accrue()
    up = port.is_up("carrier")
    sent = {"bytes": 0, "packets": 0, "errors": 0, "dropped": 0, "carrier_errors": 0}
    if detailed:
        sent["carrier_changes"] = port.carrier_changes
    return {
        "ifindex": index,
        "ifname": port.spec.netdev,
        "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP" if up else "NO-CARRIER"],
        "mtu": 1500,
        "qdisc": "mq",
        "operstate": "UP" if up else "DOWN",
        "link_type": "ether",
        "address": f"02:00:00:00:00:{index:02x}",
        "stats64": {"rx": {"bytes": 0, "packets": 0, "errors": 0, "dropped": 0}, "tx": sent},
    }
