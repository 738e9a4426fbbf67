"""Agent process in the plant's namespace; `namespaces.kernel_links` sends it requests.

One JSON object a line. The first request names the ports and packet switches, and a process in the
network that interfaces come from; each further one the wanted state; every answer is
{"ok": {"changes": [[key, up, sent_ns, done_ns], ...], "ready": [[key, side, not_yet_ns, since_ns],
...], "at": [began_ns, ended_ns]}} or {"error": text}: which carriers changed, which sides of a port
have become ready for packets, and when the links were switched. When stdin ends, the agent takes
its devices away, gives back the interfaces that it was given, and ends.

Devices are made with pyroute2. The requests that move a carrier or a bridge port are
written by hand: 0.03 to 0.1 ms each, where pyroute2 takes 0.2 to 0.4 ms.
"""

import contextlib
import errno
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyroute2 import IPRoute, NetlinkError

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.namespaces.agent import CLONE_NEWNET, network_of, setns

# Far from what a server's namespace counts up from: where a device and its peer have the
# same number, the kernel announces a carrier, and acts on it, up to a second late.
_FIRST_PORT, _FIRST_BRIDGE = 10_000, 20_000

_NEWLINK, _DELLINK, _ERROR = 16, 17, 2
_REQUEST_ACK = 0x5
_IFF_UP, _IFLA_MASTER = 0x1, 10
_TC_ROOT, _TC_HANDLE = 0xFFFFFFFF, 0x10000

_FORWARDING, _OPERATING = b"3", b"u"
_LINK_LOCAL = 253
_LONGEST_WAIT_NS = 2_000_000_000

_MOST_URGENT = -20

_SMALLEST_BURST_BYTES = 32 * 1024
_QUEUE_SECONDS = 0.05

LinkChange = tuple[str, bool, int, int]
Ready = tuple[str, str, int, int]


class _Requests:
    """rtnetlink requests about devices by number; each raises OSError when refused."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self._socket.bind((0, 0))
        self._sequence = 0

    def set_up(self, index: int, up: bool) -> None:
        self._ask(_NEWLINK, struct.pack("=BxHiII", 0, 0, index, _IFF_UP if up else 0, _IFF_UP))

    def enslave(self, index: int, bridge: int) -> None:
        """Make the device a port of `bridge`; 0 releases it."""
        body = struct.pack("=BxHiII", 0, 0, index, 0, 0)
        self._ask(_NEWLINK, body + struct.pack("=HHI", 8, _IFLA_MASTER, bridge))

    def delete(self, index: int) -> None:
        self._ask(_DELLINK, struct.pack("=BxHiII", 0, 0, index, 0, 0))

    def _ask(self, kind: int, body: bytes) -> None:
        self._sequence += 1
        head = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST_ACK, self._sequence, 0)
        self._socket.send(head + body)
        answer = self._socket.recv(65536)
        _, kind, _, sequence, _, code = struct.unpack_from("=IHHIIi", answer)
        assert (kind, sequence) == (_ERROR, self._sequence)
        if code:
            raise OSError(-code, os.strerror(-code))


def _reads(path: str, byte: bytes) -> bool:
    """Whether a sysfs file begins with `byte`; not where its device has just gone."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(1) == byte
    except OSError:
        return False


def _set_sysctl(name: str, value: str) -> None:
    with open(f"/proc/sys/net/{name}", "w", encoding="ascii") as file:
        file.write(value)


def _quiet(device: str) -> None:
    """No IPv6 on `device`, whose own packets would disturb what is measured."""
    if os.path.exists("/proc/sys/net/ipv6"):
        _set_sysctl(f"ipv6/conf/{device}/disable_ipv6", "1")


def _limit(route: IPRoute, index: int, rate_bps: int | None) -> None:
    if rate_bps is None:
        return
    rate = rate_bps // 8
    burst = max(rate // 1000, _SMALLEST_BURST_BYTES)
    route.tc(
        "add",
        "tbf",
        index,
        _TC_HANDLE,
        parent=_TC_ROOT,
        rate=rate,
        burst=burst,
        limit=int(rate * _QUEUE_SECONDS) + burst,
    )


class _Plant:
    """Plant ends of all ports, and the bridges that connect them.

    A bridge is a link of two ports, or a packet switch that stays one.
    """

    def __init__(
        self, ports: Sequence[Mapping[str, Any]], switches: Sequence[str], home_pid: int
    ) -> None:
        self._interfaces = _Interfaces(home_pid)
        self._clock = SystemClock()
        self._requests = _Requests()
        self._index: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._far_end: dict[str, str] = {}
        self._touched: dict[str, int] = {}
        self._bridge_of: dict[str, int] = {}
        self._lit: set[str] = set()
        self._bridges: list[int] = []
        self._switches: dict[str, int] = {}
        _quiet("default")
        try:
            with IPRoute() as route:
                for number in range(len(ports) // 2):
                    self._bridges.append(self._make_bridge(route, number))
                for number, name in enumerate(switches, len(self._bridges)):
                    self._switches[name] = self._make_bridge(route, number)
                for port in ports:
                    if port["interface"] is None:
                        self._make_port(route, port)
                    else:
                        key, name = port["key"], port["interface"]
                        self._index[key] = self._interfaces.take(key, name)
                        self._names[key] = name
            self._interfaces.outlive_the_namespaces()
        except _Refused:
            self.close()
            raise

    def _make_bridge(self, route: IPRoute, number: int) -> int:
        index = _FIRST_BRIDGE + number
        try:
            route.link(
                "add",
                index=index,
                ifname=f"b{number}",
                kind="bridge",
                br_stp_state=0,
                br_mcast_snooping=0,
            )
        except NetlinkError as error:
            raise _Refused(f"a bridge cannot be made: {error}") from error
        self._requests.set_up(index, True)
        return index

    def _make_port(self, route: IPRoute, port: Mapping[str, Any]) -> None:
        key, netdev, pid = port["key"], port["netdev"], port["server_pid"]
        index = _FIRST_PORT + len(self._index)
        self._names[key] = f"p{len(self._index)}"
        try:
            route.link(
                "add",
                index=index,
                ifname=self._names[key],
                kind="veth",
                peer={"ifname": netdev, "net_ns_pid": pid},
            )
            self._far_end[key] = f"/proc/{pid}/root/sys/class/net/{netdev}/operstate"
            self._index[key] = index
            _limit(route, index, port["rate_bps"])
            with network_of(pid), IPRoute() as server:
                (far,) = server.link_lookup(ifname=netdev)
                _quiet(netdev)
                # A server with two ports in one subnet must hear on both.
                for device in ("all", netdev):
                    _set_sysctl(f"ipv4/conf/{device}/rp_filter", "0")
                address, prefix = port["address"].split("/")
                server.addr("add", index=far, address=address, prefixlen=int(prefix))
                server.link("set", index=far, state="up")
                _limit(server, far, port["rate_bps"])
        except (NetlinkError, OSError, ValueError) as error:
            raise _Refused(f"port {key} cannot be made: {error}") from error

    def apply(
        self,
        lit: set[str],
        joined: Iterable[Sequence[str]],
        switched: Mapping[str, Iterable[str]],
    ) -> dict[str, Any]:
        began = self._clock.now()
        self._touched.clear()
        changes = [self._light(key, False) for key in sorted(self._lit - lit)]
        self._join(joined, switched)
        changes += [self._light(key, True) for key in sorted(lit - self._lit)]
        at = began, self._clock.now()
        return {"changes": changes, "ready": self._await_ready(), "at": at}

    def _await_ready(self) -> list[Ready]:
        """Wait until each port that was touched passes packets; return when either side began to.

        The kernel announces a carrier to the bridge, which then forwards, and to the server's
        queue, which then sends, in a work of its own, up to milliseconds after the request. That
        work shows the server's device as operating before its queue sends; where the processor is
        taken from it in between, for as long as that lasts. It holds the lock that each request
        waits for.
        """
        deadline = self._clock.now() + _LONGEST_WAIT_NS
        waiting = {
            (key, side): sent
            for key, sent in self._touched.items()
            if key in self._lit and key in self._bridge_of
            for side in ("bridge", "server")
            if side == "bridge" or key in self._far_end  # not of a server elsewhere
        }
        ready: list[Ready] = []
        while waiting and self._clock.now() < deadline:
            for (key, side), not_yet in list(waiting.items()):
                now = self._clock.now()
                if self._is_ready(key, side):
                    self._requests.set_up(self._index[key], True)  # it is: this only waits
                    ready.append((key, side, not_yet, self._clock.now()))
                    del waiting[key, side]
                else:
                    waiting[key, side] = now
        return ready

    def _is_ready(self, key: str, side: str) -> bool:
        if side == "server":
            return _reads(self._far_end[key], _OPERATING)
        return _reads(f"/sys/class/net/{self._names[key]}/brport/state", _FORWARDING)

    def _light(self, key: str, up: bool) -> LinkChange:
        sent = self._touched[key] = self._clock.now()
        self._requests.set_up(self._index[key], up)
        done = self._clock.now()
        (self._lit.add if up else self._lit.discard)(key)
        return key, up, sent, done

    def _join(self, joined: Iterable[Sequence[str]], switched: Mapping[str, Iterable[str]]) -> None:
        wanted = self._place(joined)
        for switch, keys in switched.items():
            wanted |= dict.fromkeys(keys, self._switches[switch])
        # All are released first: three ports in a bridge would be a light path too many.
        for key, bridge in sorted(self._bridge_of.items()):
            if wanted.get(key) != bridge:
                self._requests.enslave(self._index[key], 0)
                del self._bridge_of[key]
        for key, bridge in sorted(wanted.items()):
            if key not in self._bridge_of:
                self._touched[key] = self._clock.now()
                self._requests.enslave(self._index[key], bridge)
                self._bridge_of[key] = bridge

    def _place(self, joined: Iterable[Sequence[str]]) -> dict[str, int]:
        """Choose a bridge for each link, so that few ports change theirs."""
        place: dict[str, int] = {}
        free = set(self._bridges)
        # Links that stand already choose first, then those with one end in a bridge.
        for least in (2, 1, 0):
            for ends in joined:
                here = [self._bridge_of[key] for key in ends if key in self._bridge_of]
                candidates = {b for b in here if b in free and here.count(b) >= least}
                if ends[0] in place or (least and not candidates):
                    continue
                bridge = min(candidates if least else free)
                free.remove(bridge)
                place |= dict.fromkeys(ends, bridge)
        return place

    def close(self) -> None:
        self._interfaces.give_back()
        made = [index for key, index in self._index.items() if key in self._far_end]
        for index in (*made, *self._bridges, *self._switches.values()):
            try:
                self._requests.delete(index)
            except OSError as error:
                # A port goes with its server's namespace, which may have ended before.
                if error.errno != errno.ENODEV:
                    raise


class _Interfaces:
    """Interfaces of the network of `home_pid` that are lent to this namespace.

    The kernel destroys a tap with the namespace that it is in, so they are given back first.
    """

    def __init__(self, home_pid: int) -> None:
        self._home_pid = home_pid
        self._home: int | None = None
        self._there: IPRoute | None = None
        self._here: IPRoute | None = None
        self._taken: list[tuple[str, int, bool]] = []

    def take(self, key: str, name: str) -> int:
        """Move the interface `name` to here, and return its index; raises `_Refused`."""
        try:
            there, here = self._open()
            index, was_up = self._unused(there, name)
            there.link("set", index=index, net_ns_pid=os.getpid())
            index = int(here.link_lookup(ifname=name)[0])
        except (NetlinkError, OSError) as error:
            raise _Refused(f"port {key}: {name} cannot be taken: {error}") from error
        except _Refused as error:
            raise _Refused(f"port {key}: {error}") from error
        self._taken.append((name, index, was_up))
        return index

    def outlive_the_namespaces(self) -> None:
        """Leave the plant's network, whose processes are killed with it; the sockets stay."""
        if self._home is not None:
            setns(self._home, CLONE_NEWNET)

    def give_back(self) -> None:
        """Move all interfaces back, as they were; one that no longer exists is left out."""
        if self._home is None or self._here is None or self._there is None:
            return
        while self._taken:
            name, index, was_up = self._taken.pop()
            with contextlib.suppress(NetlinkError):
                self._here.link("set", index=index, net_ns_fd=self._home)
                if was_up:
                    (index,) = self._there.link_lookup(ifname=name)
                    self._there.link("set", index=index, state="up")

    def _open(self) -> tuple[IPRoute, IPRoute]:
        if self._here is None or self._there is None:
            self._home = os.open(f"/proc/{self._home_pid}/ns/net", os.O_RDONLY)
            self._here = IPRoute()
            with network_of(self._home_pid):
                self._there = IPRoute()
        return self._there, self._here

    def _unused(self, there: IPRoute, name: str) -> tuple[int, bool]:
        """Return index and state of an interface that nothing uses; raises `_Refused`."""
        found = there.link_lookup(ifname=name)
        if not found:
            raise _Refused(f"this machine has no interface {name}")
        (link,) = there.link("get", index=found[0])
        if link.get_attr("IFLA_MASTER"):
            raise _Refused(f"{name} is in use: it is in a bridge or a bond")
        for address in there.get_addr(index=found[0]):
            if address["scope"] != _LINK_LOCAL:
                text = f"{address.get_attr('IFA_ADDRESS')}/{address['prefixlen']}"
                raise _Refused(f"{name} is in use: it has the address {text}")
        return found[0], bool(link["flags"] & _IFF_UP)


class _Refused(Exception):  # noqa: N818 - becomes the text of an error reply
    """Raised when the kernel refuses a request; the text names it."""


def main() -> int:
    """Obey the requests on stdin until it ends; returns the exit status."""
    # Ctrl-C reaches the whole process group; the links are still needed to put things back.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # On a busy machine the links followed the light up to 20 ms late, and half as late with this.
    # In a user's own namespaces there is no right to it.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _MOST_URGENT)
    plant: _Plant | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            applied: dict[str, Any] = {"changes": [], "ready": [], "at": [0, 0]}
            if plant is None:
                plant = _Plant(request["ports"], request["switches"], request["home_pid"])
            else:
                wanted = set(request["lit"]), request["joined"], request["switched"]
                applied = plant.apply(*wanted)
            answer: dict[str, Any] = {"ok": applied}
        except (_Refused, NetlinkError, OSError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    if plant is not None:
        plant.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
