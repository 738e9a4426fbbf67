"""Servers: their programs, their clocks, their NIC ports."""

import contextlib
import math
from collections.abc import Iterable

from lightrig.harness.doctor.findings import Findings
from lightrig.harness.findings import CLOCK, GPU_SLOWED, INSTRUMENT
from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.servers.host.commands import (
    PACKAGES,
    ToolFailedError,
    ToolMissingError,
)
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.ports.port_settings import PortSettings, read_settings
from lightrig.instruments.servers.tools.module import ModuleReading
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.testbeds import LightrigError, Port, ServerSpec

BETWEEN = 5_000_000_000
"""Time between the two comparisons of all clocks, in ns."""

_MOST_PPM = 200.0
"""Greatest rate error of a synchronised clock, in ppm."""


def examine_server(
    server: LinuxServer, spec: ServerSpec, findings: Findings
) -> dict[Port, PortSettings]:
    """Tools and every NIC port; return the ports' settings as far as they were read."""
    missing = examine_tools(server, spec, findings)
    examine_shell(server, findings)
    if spec.gpus.count:
        examine_gpus(server, findings)
    if "ethtool" not in missing:
        return examine_ports(server, spec, findings)
    findings.note(server.name, "NIC", "its ports cannot be examined without ethtool")
    return {
        port.port: read_settings(server.nic, port.netdev, transceiver=False)
        for nic in spec.nics.values()
        for port in nic.ports
    }


def examine_tools(server: LinuxServer, spec: ServerSpec, findings: Findings) -> set[str]:
    """Note which programs a server lacks, and return them.

    The program rdma is needed by ports with RDMA devices, mlxlink by those of Mellanox alone.
    """
    missing = set()
    devices = [port.netdev for nic in spec.nics.values() for port in nic.ports if port.rdma]
    tools = ["ethtool", "ip", *(["rdma"] if devices else [])]
    for tool in tools:
        try:
            server.commands.run([tool, "--version"])  # any answer shows that it is installed
            if tool == "ethtool" and any(_is_of_mellanox(server, each) for each in devices):
                tools.append("mlxlink")
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


def _is_of_mellanox(server: LinuxServer, netdev: str) -> bool:
    try:
        return server.nic.driver(netdev).value.of_mellanox
    except (ToolFailedError, ToolOutputError):
        return False  # no such device, or a driver that does not tell: said with its port


def examine_ports(
    server: LinuxServer, spec: ServerSpec, findings: Findings
) -> dict[Port, PortSettings]:
    """Check link and transceiver of every NIC port, and return what each is set to.

    A namespace's has no transceiver.
    """
    return {
        port.port: _port(
            server,
            str(port.port),
            port.netdev,
            findings,
            rdma=port.rdma,
            transceiver=not spec.is_namespace,
        )
        for nic in spec.nics.values()
        for port in nic.ports
    }


def examine_shell(server: LinuxServer, findings: Findings) -> None:
    """Note what the login shell prints before each program; the server must have been asked."""
    if greeting := server.commands.greeting:
        findings.note(
            server.name,
            "shell",
            f"its login shell prints {greeting[:100]!r} before the output of each program",
            "let it print only where it is interactive",
        )


def examine_gpus(server: LinuxServer, findings: Findings) -> None:
    """Check that no GPU is slowed down by heat or a lack of power, by its vendor's tool."""
    try:
        clocks = server.gpu_clocks()
    except ToolMissingError:
        return
    except LightrigError as error:
        findings.note(server.name, "GPUs", str(error).splitlines()[0], "the tool by hand")
        return
    known = [gpu for gpu in clocks if gpu.reasons is not None]
    for gpu in known:
        if gpu.slow:
            text = f"GPU {gpu.index} runs at lower clocks: {', '.join(gpu.slow)}"
            fix = (
                "its temperature and power: `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER` or "
                "`amd-smi metric --temperature --power`"
            )
            findings.wrong(server.name, "GPUs", text, fix, GPU_SLOWED)
    if known and not any(gpu.slow for gpu in known):
        findings.ok(server.name, "GPUs", f"none of {len(known)} is slowed by heat or lack of power")
    if len(known) < len(clocks):
        findings.note(server.name, "GPUs", f"{len(clocks) - len(known)} do not tell their clocks")


def examine_clocks(servers: Iterable[LinuxServer], clock: Clock, findings: Findings) -> None:
    """Compare each server's clock with the bench's, twice, five seconds apart.

    One server after another, since a comparison is as exact as its reply is quick, and with one
    wait for all of them.
    """
    compared = {server: _offset(server, findings) for server in servers}
    if any(compared.values()):
        clock.sleep(BETWEEN)
    for server, first in compared.items():
        second = _offset(server, findings) if first is not None else None
        if first is not None and second is not None:
            _rate(server.name, first, second, findings)


def _offset(server: LinuxServer, findings: Findings) -> tuple[Span, int] | None:
    """Return the server's clock minus the bench's, and when; or note why it is not known."""
    try:
        return server.clock_offset()
    except LightrigError as error:
        findings.wrong(server.name, "clock", str(error).splitlines()[0], "see its trace", CLOCK)
        return None


def _rate(
    server: str, before: tuple[Span, int], after: tuple[Span, int], findings: Findings
) -> None:
    (first, began), (second, ended) = before, after
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
            server,
            "clock",
            f"its clock is skewed: {state}",
            "is a time service (chrony, ptp4l) running there? `chronyc tracking`",
        )
    else:
        findings.ok(server, "clock", state)


def _port(
    server: LinuxServer,
    port: str,
    netdev: str,
    findings: Findings,
    *,
    rdma: str | None,
    transceiver: bool,
) -> PortSettings:
    """Check a port: first its device, since what its transceiver answers says nothing of that."""
    nic, driver, module = server.nic, None, None
    try:
        device = nic.device(netdev).value
    except LightrigError as error:
        missing = isinstance(error, ToolFailedError) and not error.forbidden
        fix = f"is `netdev: {netdev}` right for {port}?" if missing else _advice(error)
        findings.wrong(port, "NIC", str(error).splitlines()[0], fix, INSTRUMENT)
        return read_settings(nic, netdev, transceiver=False)
    carrier = "carrier" if device.carrier else "no carrier"
    if not device.carrier:
        with contextlib.suppress(LightrigError):  # said with its settings, which read it again
            driver = nic.driver(netdev).value
        if driver is not None and (reasons := nic.down_reasons(netdev, rdma, driver)):
            carrier = f"no carrier ({'; '.join(reasons)})"
    if not transceiver:
        findings.ok(port, "NIC", f"{netdev}: a kernel device without transceiver, {carrier}")
    else:
        try:
            module = nic.module(netdev).value
        except LightrigError as error:
            _unreadable(server, port, netdev, carrier, error, findings)
        else:
            findings.ok(port, "NIC", f"{netdev}: {_light(module)}, {carrier}")
    settings = read_settings(
        nic, netdev, transceiver=False, device=device, driver=driver, module=module
    )
    findings.ok(port, "settings", str(settings))
    return settings


def _light(module: ModuleReading) -> str:
    lanes = module.lanes_in_use
    sent = [lane.tx_power_dbm for lane in lanes if lane.tx_power_dbm is not None]
    got = [lane.rx_power_dbm for lane in lanes if lane.rx_power_dbm is not None]
    return f"{module.vendor} {module.part}, sends {_dbm(sent)}, receives {_dbm(got)}"


def _unreadable(
    server: LinuxServer,
    port: str,
    netdev: str,
    carrier: str,
    error: LightrigError,
    findings: Findings,
) -> None:
    """Say why the transceiver of a device that is there cannot be read."""
    if isinstance(error, ToolOutputError):
        text = f"{error.where} printed {error.found or 'nothing'!r}, not {error.expected}"
        findings.wrong(port, "NIC", text, "report it, with all that this command prints")
    elif not isinstance(error, ToolFailedError):
        findings.wrong(port, "NIC", str(error).splitlines()[0], _advice(error), INSTRUMENT)
    elif error.unsupported:
        try:
            driver = f" {server.nic.driver(netdev).value.driver}"
        except LightrigError:
            driver = ""
        text = f"{netdev}: no transceiver that its driver{driver} reads ({error.last}), {carrier}"
        findings.note(port, "NIC", text)
    else:
        fix = error.advice or f"is a transceiver plugged in? `ethtool -m {netdev}` by hand"
        findings.wrong(port, "NIC", str(error).splitlines()[0], fix, INSTRUMENT)


def _advice(error: LightrigError) -> str:
    """Return what the error itself advises."""
    return (isinstance(error, ToolFailedError) and error.advice) or "see its trace"


def _dbm(lanes: list[float]) -> str:
    if not lanes:
        return "an unknown power"
    if all(math.isinf(lane) for lane in lanes):
        return "no light"
    return f"{min(lanes):.2f} dBm" + (f" in the weakest of {len(lanes)} lanes" if lanes[1:] else "")
