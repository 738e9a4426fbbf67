"""One examination of a lab, from the first contact to the light on every port."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.bench.leftovers import state_notes
from lightrig.harness.components import Components
from lightrig.harness.doctor.connect import connect_lab
from lightrig.harness.doctor.contact import contact
from lightrig.harness.doctor.expired import expired_exceptions
from lightrig.harness.doctor.findings import Findings
from lightrig.harness.doctor.light import examine_light, stale_circuits
from lightrig.harness.doctor.servers import examine_clocks, examine_server
from lightrig.harness.findings import INSTRUMENT
from lightrig.harness.host_limits import host_limits
from lightrig.harness.port_differences import kernels, port_differences
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.ports.port_settings import PortSettings
from lightrig.testbeds import LightrigError, Port, ServerSpec, Testbed
from lightrig.testbeds.out_of_service import plan_sentences


def examine(
    testbed: Testbed,
    *,
    simulated: bool,
    seed: int = 0,
    read_only: bool = False,
) -> Findings:
    """Examine everything that `testbed` describes.

    Unless `read_only`, the plan with the most circuits is applied, and every transmitter is
    switched off for a moment; the state of the switches is restored at the end.
    """
    lab = connect_lab(testbed, simulated=simulated, seed=seed)
    bench = lab.bench
    try:
        findings, _ = examine_by_reading(bench, lab.failures)
        for sentence in [] if simulated else state_notes(testbed):
            findings.note(testbed.name, "saved states", sentence)
        servers = [each for each in bench.servers.values() if isinstance(each, LinuxServer)]
        examine_clocks(servers, bench.clock, findings)
        if read_only:
            findings.note(
                testbed.name,
                "light",
                "not traced, since that moves circuits and switches lasers off for a moment",
                "`lightrig doctor` on a terminal, or with --yes",
            )
            return findings
        fabric = Fabric(bench)
        fabric.save_initial_state()
        try:
            examine_light(bench, fabric, findings)
        finally:
            fabric.restore()
    finally:
        bench.close()
    return findings


def examine_by_reading(
    bench: Bench, failures: Mapping[str, LightrigError] = MappingProxyType({})
) -> tuple[Findings, dict[Port, PortSettings]]:
    """Examine what can be read at once and changes nothing but empties error queues.

    failures: the errors of instruments that did not answer, by name. Returns what was found, and
    what the servers' NIC ports are set to, as far as they were read.
    """
    testbed = bench.testbed
    findings = Findings(Components(testbed))
    contact(bench, failures, findings)
    _sizes(bench, findings)
    servers = [each for each in bench.servers.values() if isinstance(each, LinuxServer)]
    ports: dict[Port, PortSettings] = {}
    for found, settings in bench.clock.parallel(*(partial(_server, bench, s) for s in servers)):
        findings.found += found.found
        ports |= settings
    for finding in expired_exceptions(testbed):
        findings.add("out of service", finding)
    for sentence in plan_sentences(testbed):
        findings.note(testbed.name, "out of service", sentence)
    for finding in port_differences(testbed, ports, kernels(bench)):
        findings.add("settings", finding)
    for finding in host_limits(testbed, ports):
        findings.add("PCIe", finding)
    for name in bench.switches:
        stale_circuits(bench, name, findings)
    return findings, ports


def _server(bench: Bench, server: LinuxServer) -> tuple[Findings, dict[Port, PortSettings]]:
    findings = Findings(Components(bench.testbed))
    try:
        return findings, examine_server(server, _working(bench.testbed, server.name), findings)
    except LightrigError as error:
        first = str(error).splitlines()[0]
        findings.wrong(server.name, "server", first, "see its trace", INSTRUMENT)
        return findings, {}


def _working(testbed: Testbed, server: str) -> ServerSpec:
    """Return a server without its ports that are out of service."""
    spec, out = testbed.servers[server], testbed.out.ports
    nics = {
        name: replace(nic, ports=tuple(one for one in nic.ports if one.port not in out))
        for name, nic in spec.nics.items()
    }
    return replace(spec, nics=nics) if out else spec


def _sizes(bench: Bench, findings: Findings) -> None:
    for name, switch in bench.switches.items():
        size = getattr(switch, "size", None)
        if size is None:
            continue
        spec = bench.testbed.switches[name]
        found, stated = size(), (spec.ingress_count, spec.egress_count)
        if tuple(found) != stated:
            findings.wrong(
                name,
                "size",
                f"it has {found[0]}x{found[1]} ports, and the file says {stated[0]}x{stated[1]}",
                f"change `size:` in {bench.testbed.path}:{spec.line}",
            )
        else:
            findings.ok(name, "size", f"{found[0]}x{found[1]}")
