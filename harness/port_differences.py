"""NIC ports as they are set: of all servers, and where ends of a link or versions differ."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from lightrig.harness.bench import Bench
from lightrig.harness.components import ComponentKind, LabComponent
from lightrig.harness.findings import SETTINGS, VERSIONS, Finding
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.ports.port_settings import (
    PortSettings,
    fec_in_use,
    pfc_text,
    read_settings,
)
from lightrig.testbeds import LightrigError, Link, Port, Testbed

_FEC_FIX = "`ethtool --set-fec IF encoding NAME`: set both ends alike"
_PAUSE = {True: "on", False: "off"}


def kernels(bench: Bench) -> dict[str, str]:
    """Return the release of each server's kernel, as its identity has it."""
    return {name: bench.identities[name].model.removeprefix("kernel ") for name in bench.servers}


def read_ports(bench: Bench) -> dict[Port, PortSettings]:
    """Read all NIC ports of the servers that outlive this process, simulated ones left out.

    So are those that are out of service.
    """
    real = bench.external - bench.simulated
    servers = {name: each for name, each in bench.servers.items() if name in real}

    def read(server: LinuxServer) -> dict[Port, PortSettings]:
        spec = bench.testbed.servers[server.name]
        return {
            port.port: read_settings(server.nic, port.netdev, transceiver=not spec.is_namespace)
            for nic in spec.nics.values()
            for port in nic.ports
            if port.port not in bench.testbed.out.ports
        }

    found = bench.clock.parallel(
        *(partial(read, each) for each in servers.values() if isinstance(each, LinuxServer))
    )
    return {port: settings for of_server in found for port, settings in of_server.items()}


def simulated_nics(bench: Bench) -> dict[str, dict[str, str]]:
    """Return what tools of simulated servers tell of their NICs, by port: PCI numbers, firmware.

    Each is marked as simulated, and named as in the document of `PortSettings`; what no tool tells
    is left out.
    """
    found: dict[str, dict[str, str]] = {}
    for spec in bench.testbed.working_ports:
        server = bench.servers[spec.port.owner]
        if server.name not in bench.simulated or not isinstance(server, LinuxServer):
            continue
        nic = found[str(spec.port)] = {}
        with suppress(LightrigError):
            nic["nic_firmware"] = server.nic.driver(spec.netdev).value.firmware or ""
        with suppress(LightrigError):
            nic["pci_id"] = server.nic.files(spec.netdev).value.pci_id or ""
        nic |= {name: f"{value} (simulated)" for name, value in nic.items() if value}
    return found


def read_encodings(bench: Bench, ports: Collection[Port]) -> dict[Port, str]:
    """Return the FEC of those of `ports` whose links are up and have one."""

    def read(server: LinuxServer) -> dict[Port, str]:
        found: dict[Port, str] = {}
        for spec in bench.testbed.nic_ports:
            if spec.port.owner == server.name and spec.port in ports:
                try:
                    fec = fec_in_use(server.nic, spec.netdev)
                except LightrigError:
                    break  # its tests have failed, and named it
                if fec is not None:
                    found[spec.port] = fec
        return found

    servers = [each for each in bench.servers.values() if isinstance(each, LinuxServer)]
    read_of = bench.clock.parallel(*(partial(read, each) for each in servers))
    return {port: fec for of_server in read_of for port, fec in of_server.items()}


def fec_differences(testbed: Testbed, encodings: Mapping[Port, str]) -> list[Finding]:
    """Return the links whose ends use another FEC, as `port_differences` does."""
    links = {link for plan in testbed.plans.values() for link in testbed.links(plan)}
    return [
        _differing(link, "FEC", encodings[link.a], encodings[link.b], _FEC_FIX)
        for link in sorted(links)
        if link.a in encodings and link.b in encodings
        if encodings[link.a] != encodings[link.b]
    ]


def port_differences(
    testbed: Testbed, ports: Mapping[Port, PortSettings], kernels: Mapping[str, str]
) -> list[Finding]:
    """Return what differs between ports that were read; what was not read takes no part.

    MTU, FEC, flow control and PFC are compared between the ends of each link of any plan. The
    version of the kernel is compared with that of most servers, those of a driver, of a NIC's
    firmware and of a module's with those of most of the same driver, board and module; where no
    version has the majority, no port is wrong by itself, and one finding names all.
    """
    links = {link for plan in testbed.plans.values() for link in testbed.links(plan)}
    found = [one for link in sorted(links) for one in _ends(link, ports)]
    boards = {
        spec.port: ports[spec.port].pci_id or nic.model
        for server in testbed.servers.values()
        for nic in server.nics.values()
        for spec in nic.ports
        if spec.port in ports
    }
    versions: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    versions["kernel"]["all servers"] = dict(kernels)
    for port, one in ports.items():
        for what, model, version in (
            ("driver", one.driver, one.driver_version),
            ("NIC firmware", boards[port], one.nic_firmware),
            ("module firmware", one.transceiver, one.module_firmware),
        ):
            if model and version:
                versions[what][model][str(port)] = version
    for what, models in versions.items():
        for model, of_model in models.items():
            found += _minorities(what, model, of_model)
    return found


def _ends(link: Link, ports: Mapping[Port, PortSettings]) -> Iterator[Finding]:
    """Yield what differs between the ends of a link."""
    a, b = ports.get(link.a), ports.get(link.b)
    if a is None or b is None:
        return
    compared: list[tuple[str, object, object, bool, str]] = [
        ("MTU", a.mtu, b.mtu, a.mtu != b.mtu, "`ip link set dev IF mtu N`: set both ends alike"),
        (
            "FEC",
            a.fec,
            b.fec,
            a.fec != b.fec,
            _FEC_FIX,
        ),
    ]
    # What one end tells, the other has to obey.
    crossed = (a.receives_pause, a.sends_pause) != (b.sends_pause, b.receives_pause)
    fix = "`ethtool -A IF rx on|off tx on|off`: rx of each end as tx of the other"
    compared.append(("flow control", _pause(a), _pause(b), crossed, fix))
    priorities, fix = (
        (pfc_text(a.pfc), pfc_text(b.pfc)),
        "`dcb pfc set dev IF prio-pfc N:on|off`: set both ends alike",
    )
    compared.append(("PFC of priority", *priorities, a.pfc != b.pfc, fix))
    for what, here, there, differ, fix in compared:
        if differ and here is not None and there is not None:
            yield _differing(link, what, here, there, fix)


def _differing(link: Link, what: str, here: object, there: object, fix: str) -> Finding:
    return Finding(
        SETTINGS,
        f"{link.a} - {link.b}: {what} is {here} at {link.a} and {there} at {link.b}",
        (str(link.a), str(link.b)),
        _components("port", (str(link.a), str(link.b))),
        next_step=fix,
    )


def _pause(port: PortSettings) -> str | None:
    if port.receives_pause is None or port.sends_pause is None:
        return None
    return f"rx {_PAUSE[port.receives_pause]} tx {_PAUSE[port.sends_pause]}"


def _minorities(what: str, model: str, versions: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the components whose version is not that of most of their model."""
    counts = Counter(versions.values())
    if len(counts) < 2:
        return
    (most, count), *_ = counts.most_common()
    kind: ComponentKind = "server" if what == "kernel" else "port"
    if 2 * count <= len(versions):
        listed = "; ".join(
            f"{version} at {_listed(name for name in versions if versions[name] == version)}"
            for version in sorted(counts)
        )
        yield Finding(
            VERSIONS,
            f"{what} of {model} differs, and none has the majority: {listed}",
            tuple(versions),
            _components(kind, versions),
            next_step="install one version everywhere",
        )
        return
    for version in sorted(counts.keys() - {most}):
        names = tuple(name for name in versions if versions[name] == version)
        yield Finding(
            VERSIONS,
            f"{_listed(names)}: {what} of {model} is {version}, and {count} of {len(versions)} "
            f"have {most}",
            names,
            _components(kind, names),
            next_step=f"install {most} there, or the other version everywhere",
        )


def _components(kind: ComponentKind, names: Iterable[str]) -> tuple[LabComponent, ...]:
    return tuple(LabComponent(kind, name) for name in names)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
