"""Servers: their programs, their clocks, their NIC ports."""

import math

from lightrig.harness.doctor.findings import Findings
from lightrig.harness.findings import INSTRUMENT
from lightrig.instruments.clock import Clock
from lightrig.instruments.servers.host.commands import PACKAGES, ToolMissingError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError, ServerSpec

_BETWEEN = 5_000_000_000
_MOST_PPM = 200.0
"""Greatest rate error of a synchronised clock, in ppm."""


def examine_server(server: LinuxServer, spec: ServerSpec, clock: Clock, findings: Findings) -> None:
    """Tools, clock, and the link and transceiver of every NIC port."""
    ports = [port for nic in spec.nics.values() for port in nic.ports]
    missing = examine_tools(server, spec, any(port.rdma for port in ports), findings)
    examine_shell(server, findings)
    _clock(server, clock, findings)
    if "ethtool" in missing:
        findings.note(server.name, "NIC", "its ports cannot be examined without ethtool")
        return
    for port in ports:
        if spec.is_namespace:
            _kernel_port(server, str(port.port), port.netdev, findings)
        else:
            _port(server, str(port.port), port.netdev, findings)


def examine_tools(
    server: LinuxServer, spec: ServerSpec, rdma: bool, findings: Findings
) -> set[str]:
    """Note which programs a server lacks, and return them; rdma: whether it has RDMA devices."""
    missing = set()
    for tool in ("ethtool", "ip", *(("rdma", "mlxlink") if rdma else ())):
        try:
            server.commands.run([tool, "--version"])  # any answer shows that it is installed
        except ToolMissingError:
            missing.add(tool)
            package = PACKAGES.get(tool, tool)
            # The programs of a namespace are those of the machine that it is on: none of its own.
            grade = findings.note if spec.is_namespace else findings.wrong
            grade(server.name, "tools", f"has no program {tool}", f"install {package}")
        except LightrigError as error:
            findings.note(server.name, "tools", str(error).splitlines()[0])
    if not missing:
        findings.ok(server.name, "tools", "all installed")
    return missing


def examine_shell(server: LinuxServer, findings: Findings) -> None:
    """Note what the login shell prints before each program; the server must have been asked."""
    if greeting := server.commands.greeting:
        findings.note(
            server.name,
            "shell",
            f"its login shell prints {greeting[:100]!r} before the output of each program",
            "let it print only where it is interactive",
        )


def _clock(server: LinuxServer, clock: Clock, findings: Findings) -> None:
    first, began = server.clock_offset()
    clock.sleep(_BETWEEN)
    second, ended = server.clock_offset()
    width = (first.latest - first.earliest + second.latest - second.earliest) / 2
    moved = (second.earliest + second.latest - first.earliest - first.latest) / 2
    ppm, unsure = 1e6 * moved / (ended - began), 1e6 * width / (ended - began)
    offset = (second.earliest + second.latest) / 2e6
    state = (
        f"{abs(offset):.3f} ms {'behind' if offset < 0 else 'ahead'}, known within "
        f"±{(second.latest - second.earliest) / 2e6:.3f} ms; "
        f"its rate is off by {round(ppm):+} ± {unsure:.0f} ppm"
    )
    if abs(ppm) - unsure > _MOST_PPM:
        findings.wrong(
            server.name,
            "clock",
            f"its clock is skewed: {state}",
            "is a time service (chrony, ptp4l) running there? `chronyc tracking`",
        )
    else:
        findings.ok(server.name, "clock", state)


def _port(server: LinuxServer, port: str, netdev: str, findings: Findings) -> None:
    try:
        module = server.nic.module(netdev).value
        device = server.nic.device(netdev).value
    except LightrigError as error:
        _unreadable(port, netdev, error, findings)
        return
    lanes = module.lanes_in_use
    sent = [lane.tx_power_dbm for lane in lanes if lane.tx_power_dbm is not None]
    got = [lane.rx_power_dbm for lane in lanes if lane.rx_power_dbm is not None]
    carrier = "carrier" if device.carrier else "no carrier"
    findings.ok(
        port,
        "NIC",
        f"{netdev}: {module.vendor} {module.part}, sends {_dbm(sent)}, receives {_dbm(got)}, "
        f"{carrier}",
    )


def _kernel_port(server: LinuxServer, port: str, netdev: str, findings: Findings) -> None:
    """Check a port of a namespace, which has no transceiver."""
    try:
        device = server.nic.device(netdev).value
    except LightrigError as error:
        _unreadable(port, netdev, error, findings)
        return
    carrier = "carrier" if device.carrier else "no carrier"
    findings.ok(port, "NIC", f"{netdev}: a kernel device without transceiver, {carrier}")


def _unreadable(port: str, netdev: str, error: LightrigError, findings: Findings) -> None:
    findings.wrong(
        *(port, "NIC", str(error).splitlines()[0], f"is `netdev: {netdev}` right for {port}?"),
        INSTRUMENT,
    )


def _dbm(lanes: list[float]) -> str:
    if not lanes:
        return "an unknown power"
    if all(math.isinf(lane) for lane in lanes):
        return "no light"
    return f"{min(lanes):.2f} dBm" + (f" in the weakest of {len(lanes)} lanes" if lanes[1:] else "")
