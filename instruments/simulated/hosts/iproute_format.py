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
