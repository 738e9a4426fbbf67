"""Settings of ARP that RDMA needs where NIC ports of a server lie in one subnet, for a time."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Interface

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.server_settings import SavedServers
from lightrig.instruments.servers.host.commands import ToolFailedError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError

_CONF = "/proc/sys/net/ipv4/conf"
_NEEDED = {"arp_ignore": 1, "arp_announce": 2}
"""Least value of each setting: a port replies for its own address alone, and asks with it."""
_STRICT, _LOOSE = 1, 2
"""rp_filter: strictly, packets are dropped whose replies would leave by another port."""


class ArpRefusedError(LightrigError):
    """Settings of ARP that RDMA needs could not be set."""


@contextmanager
def ports_reply_for_themselves(bench: Bench) -> Iterator[None]:
    """Let each NIC port reply to ARP for its own address alone, as long as the block goes on.

    Any port of a server replies for all of its addresses, as Linux is set at first. Where two of
    them lie in one subnet, packets for one port so reach the other, whose circuit leads elsewhere.
    Servers where that cannot be are left alone, and so are simulated ones. Settings are saved on
    disk first, and restored at the end, after a kill by `lightrig restore`.

    Raises:
        ArpRefusedError: a server lets nobody of this account set it.
        NotRestoredError: a server is not as it was found.
    """
    wanted = {
        name: settings
        for name, server in bench.servers.items()
        if name in bench.external and isinstance(server, LinuxServer)
        if (settings := _wanted(server, _netdevs(bench, name)))
    }
    if not wanted:
        yield
        return
    saved = SavedServers(bench, wanted)
    # What a collective of this run has set there, or what a killed run has left, stays saved.
    foreign = {name: saved.present(name) for name in wanted if saved.is_saved(name)}
    saved.save_initial_state()
    for name in saved.states.keys() - wanted.keys():  # of the same, on servers left alone here
        del saved.states[name]
    try:
        for name, settings in wanted.items():
            saved.before_change(name)
            try:
                saved.set(name, settings)
            except ToolFailedError as error:
                present, found = saved.present(name), saved.states[name].found
                if all(present.get(path) == found[path] for path in settings):
                    # Nothing is to be restored, which would be refused for minutes.
                    if foreign.pop(name, None) is None:
                        saved.states.drop([name])
                    else:
                        del saved.states[name]
                raise _refused(name, settings, error) from error
        for name in bench.servers.keys() & bench.external:
            _forget_neighbours(bench, name)
        yield
    finally:
        for name, found in foreign.items():
            saved.set(name, {path: found[path] for path in wanted[name]})
            del saved.states[name]
        saved.restore()


def _netdevs(bench: Bench, server: str) -> list[str]:
    return [spec.netdev for spec in bench.testbed.nic_ports if spec.port.owner == server]


def _wanted(server: LinuxServer, netdevs: Sequence[str]) -> dict[str, str]:
    """Return what is to be set on a server, by path; nothing where no two ports are in a subnet."""
    shared = _in_one_subnet(server, netdevs)
    if not shared:
        return {}
    names = (*_NEEDED, "rp_filter")
    paths = [f"{_CONF}/{netdev}/{name}" for netdev in ("all", *shared) for name in names]
    read = server.commands.run(["cat", *paths])
    if read.status != 0:
        raise ToolFailedError(server.name, read, "cat")
    values = dict(zip(paths, map(int, read.stdout.split()), strict=True))

    def holds(netdev: str, name: str) -> int:
        """Return the value that the kernel uses (Documentation/networking/ip-sysctl.rst)."""
        return max(values[f"{_CONF}/{each}/{name}"] for each in ("all", netdev))

    found = {
        f"{_CONF}/{netdev}/{name}": str(least)
        for netdev in shared
        for name, least in _NEEDED.items()
        if holds(netdev, name) < least
    }
    strict = [netdev for netdev in shared if holds(netdev, "rp_filter") == _STRICT]
    return found | {f"{_CONF}/{netdev}/rp_filter": str(_LOOSE) for netdev in strict}


def _in_one_subnet(server: LinuxServer, netdevs: Sequence[str]) -> list[str]:
    """Return those of a server's ports that share a subnet of IPv4 with another one of them."""
    read = server.commands.run(["sh", "-c", "PATH=$PATH:/usr/sbin:/sbin; ip -o -4 addr show"])
    if read.status != 0:
        raise ToolFailedError(server.name, read, "ip")
    by_subnet: defaultdict[object, set[str]] = defaultdict(set)
    for line in read.stdout.splitlines():
        # 2: ens1f0np0    inet 192.0.2.1/24 brd 192.0.2.255 scope global ens1f0np0\ ...
        _, netdev, _, address, *_ = line.split()
        if netdev in netdevs:
            by_subnet[IPv4Interface(address).network].add(netdev)
    shared = {netdev for each in by_subnet.values() if len(each) > 1 for netdev in each}
    return [netdev for netdev in netdevs if netdev in shared]


def _forget_neighbours(bench: Bench, name: str) -> None:
    """Remove what a server has learnt by ARP: it may be of another port, and stays for minutes."""
    server = bench.servers[name]
    if isinstance(server, LinuxServer):
        flush = "; ".join(f"ip -4 neigh flush dev {each}" for each in _netdevs(bench, name))
        server.commands.run(["sh", "-c", f"PATH=$PATH:/usr/sbin:/sbin; {flush}"])


def _refused(name: str, settings: Mapping[str, str], error: ToolFailedError) -> ArpRefusedError:
    values = ", ".join(f"{path} = {value}" for path, value in settings.items())
    return ArpRefusedError(
        f"{name} has NIC ports in one subnet, of which each replies to ARP for all, and it could "
        f"not be set otherwise: {str(error).splitlines()[0]}\n"
        f"  try       `become: true` of the server in the testbed file, or set it once: {values}",
        subjects=[name],
    )
