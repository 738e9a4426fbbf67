"""One examination of a lab, from the first contact to the light on every port."""

from harness.bench import Bench, Fabric
from harness.bench.keeping import FoundState
from harness.doctor.contact import contact
from harness.doctor.findings import Findings
from harness.doctor.light import look_at_light
from harness.doctor.opening import admit
from harness.doctor.servers import look_at_server
from instruments.servers.linux import LinuxServer
from testbeds import LightrigError, Testbed


def examine(
    testbed: Testbed,
    *,
    simulated: bool,
    seed: int = 0,
    only_look: bool = False,
    found: FoundState | None = None,
) -> Findings:
    """Look at everything that `testbed` describes.

    Unless `only_look`, the plan that uses most ports is made, and every transmitter is switched
    off for a moment; what the switches held is put back at the end, `found` keeps it on disk.
    """
    findings = Findings()
    ward = admit(testbed, simulated=simulated, seed=seed)
    bench = ward.bench
    try:
        contact(ward, findings)
        _sizes(bench, findings)
        for name, server in bench.servers.items():
            if isinstance(server, LinuxServer):
                try:
                    look_at_server(server, testbed.servers[name], bench.clock, findings)
                except LightrigError as error:
                    findings.wrong(name, "server", str(error).splitlines()[0], "see its trace")
        if only_look:
            findings.note(testbed.name, "light", "not looked at, since that moves circuits")
            return findings
        fabric = Fabric(bench, found)
        fabric.remember_found()
        try:
            look_at_light(bench, fabric, findings)
        finally:
            fabric.restore()
    finally:
        bench.close()
    return findings


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
