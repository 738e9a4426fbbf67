"""Light on each port: the transmitter that it comes from, and the loss on its path.

Every transmitter is switched off for a moment; its fiber ends at the port that loses its signal.
The power that transceivers report to send, less the power that arrives, is the loss of the path.
A monitor reads all wavelengths in a fiber together, a transceiver each lane: sums are compared.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.components import LabComponent
from lightrig.harness.doctor.findings import Findings
from lightrig.harness.findings import LINK_DOWN, NO_LIGHT, SWAPPED_FIBERS
from lightrig.harness.measure.fiber_light import UNKNOWN, FiberLight, fiber_light
from lightrig.instruments.core.capabilities import PowerMonitor
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import LightrigError, Plan, Port

T = TypeVar("T")

FIBER_DB = 1.5
"""Greatest loss of a clean pair of connectors, in dB."""

_MODULE_DB = 3.0
"""Accuracy of a module's power readings (SFF-8636 and CMIS)."""

_DARK_DBM = -40.0
_FELL_DB = 10.0
_CIRCUIT_DB = 3.5
_SETTLING = 100_000_000
_LINKS = 15_000_000_000
_LINK_POLL = 500_000_000


@dataclass(frozen=True, slots=True)
class _Monitors:
    """The optical power that enters a switch, by ingress port.

    Attributes:
        direct: whether its ingress ports have power monitors; without, the power at the egress
            of each circuit is read, which includes the loss of the switch.
    """

    bench: Bench
    switch: str
    direct: bool

    def read(self) -> dict[int, float]:
        """Return power in dBm by ingress port."""
        monitor = self.bench.switches[self.switch]
        assert isinstance(monitor, PowerMonitor)
        if self.direct:
            ports = list(self.bench.testbed.switches[self.switch].ingress_ports)
            return dict(monitor.power(ports).dbm)
        made = {c.egress: c.ingress for c in monitor.circuits()}
        dbm = monitor.power(sorted(made)).dbm if made else {}
        return {made[egress]: power for egress, power in dbm.items()}


def examine_light(bench: Bench, fabric: Fabric, findings: Findings) -> None:
    """Check the light of every port in the plan with most circuits."""
    plans = [
        plan for plan in bench.testbed.plans.values() if set(plan.circuits) <= {*bench.switches}
    ]
    if not plans:
        findings.note(bench.testbed.name, "light", "no plan can be made of what answers")
        return
    plan = max(plans, key=len)
    try:
        fabric.apply(plan)
    except LightrigError as error:
        findings.wrong(bench.testbed.name, "plan", str(error).splitlines()[0], "see its trace")
        return
    bench.clock.sleep(_SETTLING)
    for name in plan.circuits:
        _Side(bench, name, findings).transmitters()
    for name in plan.circuits:
        _receivers(bench, name, plan, findings)
    _links(bench, plan, findings)


def _judged(
    bench: Bench, port: Port, power: float | None, why: str, findings: Findings
) -> float | None:
    """Return the power in the fiber of `port`; note, once a transceiver, why it is unknown."""
    kind = bench.testbed.transceiver_of(port)
    subject = f"transceiver {kind.name}" if kind else str(port)
    known = {finding.subject for finding in findings.found if finding.check == "light"}
    if power is None and subject not in known:
        findings.note(
            subject,
            "light",
            f"no loss of its fibers is judged: {why}",
            "state `pmd:` of it, such as 100GBASE-LR4, or `wavelengths:`, how many lanes share a "
            "fiber, whose sum the switch's monitors read"
            if why == UNKNOWN
            else "",
        )
    return power


def stale_circuits(bench: Bench, name: str, findings: Findings) -> None:
    """Find circuits on ports of the testbed that are in no plan of it."""
    testbed = bench.testbed
    ingress, egress = testbed.cabling.cabled_ports(name)
    plans = (testbed.out.stated or testbed).plans.values()
    known = {c for plan in plans for c in plan.circuits.get(name, ())}
    for circuit in sorted(bench.switches[name].circuits() - known):
        if circuit.ingress in ingress or circuit.egress in egress:
            findings.wrong(
                name,
                "circuits",
                f"a stale cross-connect: {circuit} uses ports of the testbed and is in no plan of "
                "it",
                "remove it by hand, or find its owner",
            )


class _Side:
    """The transmitters that are cabled to one switch."""

    def __init__(self, bench: Bench, switch: str, findings: Findings) -> None:
        self._bench = bench
        self._switch = switch
        self._findings = findings
        self._cabled = {
            int(fiber.sink.name): fiber
            for fiber in bench.testbed.fibers
            if fiber.sink.owner == switch
            and fiber.source.owner in bench.testbed.servers
            and fiber.source not in bench.testbed.out.ports
        }

    def transmitters(self) -> None:
        """Check where the light of every transmitter arrives, and its power."""
        monitor = self._bench.switches[self._switch]
        if not isinstance(monitor, PowerMonitor):
            self._findings.note(self._switch, "light", "it has no power monitors")
            return
        monitors = _Monitors(self._bench, self._switch, self._has_monitors(monitor))
        arrives: dict[Port, int | None] = {}
        before = monitors.read()
        for ingress, fiber in sorted(self._cabled.items()):
            port = fiber.source
            server = self._bench.servers.get(port.owner)
            if not monitors.direct and ingress not in before:
                self._findings.note(str(port), "light", "no circuit of the plan leads it anywhere")
                continue
            dbm = before.get(ingress, _DARK_DBM)
            if not isinstance(server, LinuxServer):
                self._without_server(port, ingress, dbm)
                continue
            if self._bench.testbed.servers[port.owner].is_namespace:
                self._without_transceiver(port, ingress, dbm)
                continue
            try:
                arrives[port] = self._try(server, port, ingress, fiber.loss_db, monitors, before)
            except LightrigError as error:
                self._findings.note(str(port), "light", str(error).splitlines()[0])
        self._misplaced(arrives)

    def _has_monitors(self, monitor: PowerMonitor) -> bool:
        try:
            monitor.power([self._bench.testbed.switches[self._switch].ingress_ports[0]])
        except InstrumentError:
            return False
        return True

    def _without_server(self, port: Port, ingress: int, dbm: float) -> None:
        problem = "and its server does not answer", "fix its server first"
        self._without_transceiver(port, ingress, dbm, *problem)

    def _without_transceiver(
        self,
        port: Port,
        ingress: int,
        dbm: float,
        because: str = "where its light should arrive",
        advice: str = "is its transmit fiber in the port that the testbed file says?",
    ) -> None:
        where = f"{self._switch}.{ingress}"
        if dbm <= _DARK_DBM:
            text = f"no light at {where}, {because}"
            self._findings.wrong(str(port), "light", text, advice, NO_LIGHT, also=where)
        else:
            self._findings.ok(str(port), "light", f"{dbm:.2f} dBm at {where}")

    def _try(
        self,
        server: LinuxServer,
        port: Port,
        ingress: int,
        fiber_db: float,
        monitors: _Monitors,
        before: Mapping[int, float],
    ) -> int | None:
        """Check one transmitter; return the ingress where its light arrives, if any."""
        netdev = self._bench.testbed.nic_port(port).netdev
        light = fiber_light(self._bench.testbed, port, server.nic.module(netdev).value)
        sent = [lane.tx_power_dbm for lane in light.lanes if lane.tx_power_dbm is not None]
        if sent and all(math.isinf(lane) for lane in sent):
            self._findings.wrong(
                str(port),
                "light",
                f"its laser is dark: {netdev} reports no transmitted power",
                f"`ip link set dev {netdev} up`, `ethtool -m {netdev}`; else replace it",
                "dark laser",
                components=(LabComponent("port", str(port)),),
            )
            return None
        self._launch(port, light)
        darkened = self._darkened(server, netdev, monitors, before)
        if ingress in darkened:
            self._loss(port, ingress, before[ingress], light, fiber_db, direct=monitors.direct)
            return ingress
        return min(darkened, default=0)

    def _launch(self, port: Port, light: FiberLight) -> None:
        """Check that each lane sends what its transceiver is stated to launch."""
        kind = self._bench.testbed.transceiver_of(port)
        if kind is None:
            return
        for lane in light.lanes:
            dbm = lane.tx_power_dbm
            if dbm is None or (math.isinf(dbm) and light.expected is None):
                continue  # where the number of lanes is not known, one may be dark for good
            which = f"lane {lane.number}" if light.lanes[1:] else "its laser"
            least, most = kind.launch.min, kind.launch.max
            if math.isinf(dbm):
                problem = f"{which} is dark, and {light.expected} lanes should send"
            elif dbm < least - _MODULE_DB or dbm > most + _MODULE_DB:
                edge = f"at least {least:g}" if dbm < least else f"at most {most:g}"
                problem = f"{which} sends {dbm:.2f} dBm, and its kind sends {edge} dBm"
            else:
                continue
            self._findings.wrong(
                str(port),
                "light",
                problem,
                "replace it; is its `pmd:` or `launch:` right?",
                "dark laser" if math.isinf(dbm) else "weak laser",
                components=(LabComponent("port", str(port)),),
            )

    def _darkened(
        self, server: LinuxServer, netdev: str, monitors: _Monitors, before: Mapping[int, float]
    ) -> set[int]:
        """Return the ingress ports that lose their signal when a transmitter is switched off."""
        server.nic.set_device(netdev, up=False)
        try:
            self._bench.clock.sleep(_SETTLING)
            after = monitors.read()
        finally:
            server.nic.set_device(netdev, up=True)
            self._bench.clock.sleep(_SETTLING)
        return {
            ingress
            for ingress, dbm in before.items()
            if dbm > _DARK_DBM and dbm - after.get(ingress, _DARK_DBM) > _FELL_DB
        }

    def _loss(
        self,
        port: Port,
        ingress: int,
        dbm: float,
        light: FiberLight,
        fiber_db: float,
        *,
        direct: bool,
    ) -> None:
        where = f"{self._switch}.{ingress}"
        launched = _judged(self._bench, port, light.sent, light.unsent, self._findings)
        if launched is None:
            self._findings.ok(str(port), "light", f"{dbm:.2f} dBm at {where}")
            return
        lost = launched - dbm - fiber_db
        most = FIBER_DB
        if not direct:
            stated = self._bench.testbed.switches[self._switch].loss_max_db
            most += _CIRCUIT_DB if stated is None else stated
        arrival = f"{dbm:.2f} dBm at {where}, {lost:.1f} dB less than it sends"
        if lost > most:
            self._findings.wrong(
                str(port),
                "light",
                f"{arrival}, and {most:.1f} dB is the most that clean connectors lose: "
                "a dirty connector or a bent fiber",
                f"clean both ends of its transmit fiber ({port} -> {where}), then look again",
                "dirty connector or bent fiber",
                components=self._fiber_at(ingress),
            )
        else:
            self._findings.ok(str(port), "light", arrival)

    def _fiber_at(self, ingress: int) -> tuple[LabComponent, ...]:
        return (LabComponent("fiber", str(self._cabled[ingress])),)

    def _misplaced(self, arrives: Mapping[Port, int | None]) -> None:
        expected = {fiber.source: ingress for ingress, fiber in self._cabled.items()}
        seen = {port: ingress for port, ingress in arrives.items() if ingress is not None}
        reported: set[Port] = set()
        for port, ingress in seen.items():
            if ingress == expected[port] or port in reported:
                continue
            where = f"{self._switch}.{expected[port]}"
            swapped = self._cabled[ingress].source if ingress in self._cabled else None
            if swapped is not None and seen.get(swapped) == expected[port]:
                reported |= {port, swapped}
                self._findings.wrong(
                    str(port),
                    "light",
                    f"its transmit fiber and that of {swapped} are swapped: they end at "
                    f"{self._switch}.{ingress} and {where}",
                    "swap them at the switch, or in the testbed file",
                    SWAPPED_FIBERS,
                    also=str(swapped),
                    components=(*self._fiber_at(expected[port]), *self._fiber_at(ingress)),
                )
            elif ingress:
                self._findings.wrong(
                    str(port),
                    "light",
                    f"its transmit fiber is in the wrong port: {self._switch}.{ingress}, and the "
                    f"file says {where}",
                    f"move it to {where}, or change the testbed file",
                    "fiber in a wrong port",
                    components=self._fiber_at(expected[port]),
                )
            else:
                self._findings.wrong(
                    str(port),
                    "light",
                    f"no light of it arrives at {where}, and it says that it sends some",
                    "is its transmit fiber plugged in, and in that port?",
                    NO_LIGHT,
                    components=self._fiber_at(expected[port]),
                )


def _receivers(bench: Bench, name: str, plan: Plan, findings: Findings) -> None:
    """Compare the power that leaves the switch with the power that arrives at the NICs."""
    monitor = bench.switches[name]
    if not isinstance(monitor, PowerMonitor):
        return
    cabling = bench.testbed.cabling
    leaves = monitor.power(sorted(c.egress for c in plan.circuits[name])).dbm
    lit = {  # what is wrong with others was said of their transmitters
        egress: fiber
        for egress, dbm in sorted(leaves.items())
        if dbm > _DARK_DBM and (fiber := cabling.fiber_from(Port(name, str(egress)))) is not None
    }
    lights = _by_server(bench, [fiber.sink for fiber in lit.values()], _module_light)
    for egress, fiber in lit.items():
        dbm, light = leaves[egress], lights.get(fiber.sink)
        if light is None:
            continue  # said before
        received = _judged(bench, fiber.sink, light.received, light.unreceived, findings)
        if received is None:
            continue
        lost = dbm - received - fiber.loss_db
        if lost > FIBER_DB:
            arriving = "no light" if math.isinf(lost) else f"{lost:.1f} dB less"
            findings.wrong(
                str(fiber.sink),
                "light",
                f"{name}.{egress} sends {dbm:.2f} dBm and {arriving} arrives: its receive fiber is "
                "dirty, bent, or in another port",
                f"clean and check {name}.{egress} -> {fiber.sink}",
                "dirty connector or bent fiber",
                components=(LabComponent("fiber", str(fiber)),),
            )


def _links(bench: Bench, plan: Plan, findings: Findings) -> None:
    """Check that the plan's links come up, where no other problem is known."""
    suspect = {
        subject
        for check in findings.problems
        if check.finding
        for subject in check.finding.subjects
    }
    waiting = {
        port
        for link in bench.testbed.links(plan)
        if not any(str(end) in suspect or end.owner in suspect for end in (link.a, link.b))
        for port in (link.a, link.b)
        if isinstance(bench.servers.get(port.owner), LinuxServer)
    }
    deadline = bench.clock.now() + _LINKS
    is_last = False
    while waiting and not is_last:
        is_last = bench.clock.now() >= deadline  # however long it takes to ask all of them
        carriers = _by_server(bench, waiting, _has_carrier)
        waiting = {port for port in waiting if not carriers[port]}
        if waiting and not is_last:
            bench.clock.sleep(_LINK_POLL)
    for port in sorted(waiting):
        server, spec = bench.servers[port.owner], bench.testbed.nic_port(port)
        assert isinstance(server, LinuxServer)
        reasons = server.nic.down_reasons(spec.netdev, spec.rdma)
        sentence = f"no carrier {_LINKS / 1e9:g} s after plan {plan.name} was made"
        findings.wrong(
            str(port),
            "link",
            "; ".join((sentence, *reasons)),
            "light arrives: is its receive fiber swapped with another's, is autonegotiation off?",
            LINK_DOWN,
        )


def _by_server(
    bench: Bench, ports: Iterable[Port], ask: Callable[[Bench, LinuxServer, Port], T]
) -> dict[Port, T]:
    """Ask the servers of ports side by side, each for one port after the other."""
    of: defaultdict[LinuxServer, list[Port]] = defaultdict(list)
    for port in sorted(ports):
        server = bench.servers.get(port.owner)
        if isinstance(server, LinuxServer):
            of[server].append(port)
    tasks = [
        lambda server=server, asked=asked: {port: ask(bench, server, port) for port in asked}
        for server, asked in of.items()
    ]
    return {port: found for each in bench.clock.parallel(*tasks) for port, found in each.items()}


def _module_light(bench: Bench, server: LinuxServer, port: Port) -> FiberLight | None:
    netdev = bench.testbed.nic_port(port).netdev
    try:
        return fiber_light(bench.testbed, port, server.nic.module(netdev).value)
    except LightrigError:
        return None


def _has_carrier(bench: Bench, server: LinuxServer, port: Port) -> bool:
    try:
        return server.nic.device(bench.testbed.nic_port(port).netdev).value.carrier
    except LightrigError:
        return False
