"""Modules by PMD, by the lanes that they print, and by the power of one lane, as they are judged.

Powers are by hand: a monitor reads the sum of the lanes that share a fiber (IEEE 802.3 table 88-7:
4.5 dBm a lane, 10.5 dBm in total), less what the fiber loses.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.components import Components
from lightrig.harness.doctor import Findings
from lightrig.harness.doctor.light import examine_light
from lightrig.harness.measure.fiber_light import UNKNOWN, fiber_light
from lightrig.harness.measure.insertion_loss.observers import Modules
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.tools import ethtool_module
from lightrig.instruments.servers.tools.module import ModuleReading
from lightrig.testbeds import Port, Testbed, load

LAB = """
name: forms
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: 8x8, options: {{monitors: both}}}}
servers:
  server[0-1]:
    address: ssh://bench@{{name}}.invalid
    nics:
      nic0: {{netdev: 'e{{p}}', ports: {ports}, rate: {rate}, transceiver: kind}}
transceivers:
  kind: {{{stated}}}
fibers:
  - server[0-1].nic0.p[0-1] <-> ocs
plans:
  cross: [server0.nic0.p0 <-> server1.nic0.p0]
"""
PMDS = {
    "100GBASE-LR4": ("100G", 4, 4),
    "100G-CWDM4": ("100G", 4, 4),
    "100G-PSM4": ("100G", 4, 1),
    "200GBASE-FR4": ("200G", 4, 4),
    "400GBASE-DR4": ("400G", 4, 1),
    "400GBASE-FR4": ("400G", 4, 4),
    "400GBASE-LR8": ("400G", 8, 8),
    "400ZR": ("400G", 1, 1),
}
"""Rate, lanes and wavelengths in a fiber, by IEEE 802.3 clauses 88, 122, 124, 151, MSAs and OIF."""

SENT_DBM = {"400ZR": -8.0}
"""Power of a lane, within the limits of its PMD; 0 dBm for the others."""

POWERS = {"alike": 0.0, "weaker": -1.0, "dark": -math.inf}
"""Of the last lane, against the others."""


def lab(folder: Path, stated: str, rate: str = "100G", ports: int = 2) -> Testbed:
    path = folder / "forms.yaml"
    text = LAB.format(stated=stated, rate=rate, ports=ports)
    path.write_text(text if ports == 2 else text.replace(".p[0-1]", "").replace(".p0", ""))
    return load(path)


def printed(
    sent: list[float], received: list[float], bias: list[float] | None = None, head: str = ""
) -> ModuleReading:
    """Return what ethtool prints of lanes in dBm, as it is read."""

    def power(dbm: float) -> str:
        milliwatt = 10 ** (dbm / 10)
        return f"{milliwatt:.4f} mW / {dbm:.2f} dBm" if milliwatt else "0.0000 mW / -inf dBm"

    currents = bias or [0.0 if math.isinf(dbm) else 40.0 for dbm in sent]
    lines = ["Identifier : 0x18 (QSFP-DD Double Density 8X Pluggable Transceiver (INF-8628))", head]
    lines += [
        f"Laser tx bias current (Channel {n}) : {x:.3f} mA" for n, x in enumerate(currents, 1)
    ]
    lines += [
        f"Transmit avg optical power (Channel {n}) : {power(x)}" for n, x in enumerate(sent, 1)
    ]
    lines += [
        f"Rcvr signal avg optical power (Channel {n}) : {power(x)}"
        for n, x in enumerate(received, 1)
    ]
    return ethtool_module.parse("\n".join(lines) + "\n")


def in_fiber(levels: list[float], wavelengths: int) -> float:
    """Return the power that a monitor reads of lanes in dBm; of parallel ones, a lit one's mean."""
    lit = [10 ** (level / 10) for level in levels if not math.isinf(level)]
    return 10 * math.log10(sum(lit) / (len(lit) if wavelengths == 1 else 1))


class Server(LinuxServer):
    """A server whose every port has one transceiver, and whose devices can be switched off."""

    def __init__(self, module: ModuleReading) -> None:
        self.module = module
        self.off: set[str] = set()

    @property
    def nic(self) -> Any:
        def switch(netdev: str, *, up: bool) -> None:
            (self.off.discard if up else self.off.add)(netdev)

        return SimpleNamespace(
            module=lambda _: SimpleNamespace(value=self.module),
            device=lambda _: SimpleNamespace(value=SimpleNamespace(carrier=True)),
            set_device=switch,
        )


class Switch:
    """An optical switch that reads `arrives` dBm of each transmitter that is on, and loses none.

    Circuits join the ports of the two servers crosswise.
    """

    def __init__(self, testbed: Testbed, arrives: Mapping[Port, float]) -> None:
        self.testbed = testbed
        self.arrives = arrives
        self.servers: Mapping[str, Server] = {}

    def power(self, ports: Sequence[int]) -> Any:
        plan = self.testbed.plans["cross"].circuits["ocs"]
        entered = {each.egress: each.ingress for each in plan}
        return SimpleNamespace(dbm={n: self._at(entered.get(n, n)) for n in ports}, window=0)

    def _at(self, ingress: int) -> float:
        fiber = self.testbed.cabling.fiber_to(Port("ocs", str(ingress)))
        if fiber is None:
            return -60.0
        netdev = self.testbed.nic_port(fiber.source).netdev
        off = netdev in self.servers[fiber.source.owner].off
        return -60.0 if off else self.arrives[fiber.source]


def in_turn(*asked: Callable[[], Any]) -> list[Any]:
    return [each() for each in asked]


def examined(testbed: Testbed, module: ModuleReading, arrives: Mapping[Port, float]) -> Findings:
    """Return what doctor finds by two servers with `module` in each port."""
    servers = {name: Server(module) for name in testbed.servers}
    switch = Switch(testbed, arrives)
    switch.servers = servers
    bench: Any = SimpleNamespace(
        testbed=testbed,
        switches={"ocs": switch},
        servers=servers,
        clock=SimpleNamespace(sleep=lambda _: None, now=lambda: 0, parallel=in_turn),
    )
    findings = Findings(Components(testbed))
    fabric: Any = SimpleNamespace(apply=lambda _: None)
    examine_light(bench, fabric, findings)
    return findings


def losses(testbed: Testbed, module: ModuleReading, port: Port) -> float:
    """Return the loss in dB between two transceivers that print the same, by what they print."""
    bench: Any = SimpleNamespace(
        testbed=testbed,
        servers=dict.fromkeys(testbed.servers, Server(module)),
        clock=SimpleNamespace(parallel=in_turn),
    )
    seen = Modules(bench, {1: port}, {9: port}).read().dbm
    return seen[1] - seen[9]


FORMS = [
    (name, lanes, power)
    for name, (_, used, _) in PMDS.items()
    for lanes in sorted({max(used, 4), 8, 16})[-2:]
    for power in POWERS
]


def test_there_are_48_forms() -> None:
    assert len(set(FORMS)) == 48


@pytest.mark.parametrize(("lost", "dirty"), [(0.5, False), (4.0, True)])
@pytest.mark.parametrize(("name", "lanes", "power"), FORMS)
def test_a_module_of_any_form_is_judged_by_what_its_fiber_carries(
    tmp_path: Path, name: str, lanes: int, power: str, lost: float, dirty: bool
) -> None:
    """A clean fiber of 0.5 dB has no complaint; 4 dB are more than clean connectors lose.

    Each end's transmit fiber and receive fiber loses `lost`, and the switch none.
    """
    rate, used, wavelengths = PMDS[name]
    testbed = lab(tmp_path, f"pmd: {name}", rate, ports=1)
    level = SENT_DBM.get(name, 0.0)
    sent = [level] * (used - 1) + [level + POWERS[power]]
    unused = [-math.inf] * (lanes - used)
    if used == 1 and power == "dark":
        module = printed(sent + unused, sent + unused)
        arrives = dict.fromkeys([spec.port for spec in testbed.nic_ports], -60.0)
        said = [check.text for check in examined(testbed, module, arrives).problems]
        assert len(said) == 2
        assert all("its laser is dark" in text for text in said)
        return
    at_switch = in_fiber(sent, wavelengths) - lost
    received = [dbm - 2 * lost for dbm in sent]
    module = printed(sent + unused, received + unused)
    ports = [spec.port for spec in testbed.nic_ports]
    findings = examined(testbed, module, dict.fromkeys(ports, at_switch))
    said = [check.text for check in findings.problems]
    dark = [text for text in said if "is dark" in text]
    assert len(dark) == (2 if power == "dark" else 0)
    assert all(f"lane {used} is dark, and {used} lanes should send" in text for text in dark)
    other = [text for text in said if text not in dark]
    if dirty:  # two transmit fibers, two receive fibers
        assert len(other) == 4, other
        assert sum("4.0 dB less than it sends" in text for text in other) == 2
        assert sum("4.0 dB less arrives" in text for text in other) == 2
    else:
        assert other == []
        shown = [check.text for check in findings.found if "less than it sends" in check.text]
        assert len(shown) == 2
        assert all("0.5 dB less than it sends" in text for text in shown)
    assert losses(testbed, module, ports[0]) == pytest.approx(2 * lost, abs=0.02)


def test_lr4_beside_a_monitor_loses_nothing_where_nothing_is_lost(tmp_path: Path) -> None:
    """IEEE 802.3 table 88-7: 4.5 dBm a lane are 10.5 dBm in total."""
    testbed = lab(tmp_path, "pmd: 100GBASE-LR4", ports=1)
    module = printed([4.5] * 4, [4.5] * 4)
    ports = [spec.port for spec in testbed.nic_ports]
    findings = examined(testbed, module, dict.fromkeys(ports, 10.52))
    assert findings.problems == []
    shown = [check.text for check in findings.found if "less than it sends" in check.text]
    assert shown == [f"10.52 dBm at ocs.{n}, 0.0 dB less than it sends" for n in (1, 2)]


@pytest.mark.parametrize(
    ("head", "known"),
    [
        ("Connector : 0x07 (LC)", True),
        ("Connector : 0x0c (MPO Parallel Optic)", False),
        ("Connector : 0x23 (No separable connector)", None),
        ("Transceiver type : 100G Ethernet: 100G CWDM4 MSA with FEC", True),
        ("Transceiver type : Extended: 100G Base-LR4 or 25GBase-LR", True),
        ("Transceiver type : 100G Ethernet: 100G PSM4 Parallel SMF", False),
        ("Transceiver type : 40G Ethernet: 40G Base-LR4", True),
    ],
)
def test_without_a_pmd_the_module_tells(tmp_path: Path, head: str, known: bool | None) -> None:
    stated = "wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, "
    stated += "receive: {min: -10 dBm, max: 4 dBm}"
    testbed = lab(tmp_path, stated, ports=1)
    module = printed([0.0] * 4, [0.0] * 4, head=head)
    found = fiber_light(testbed, Port("server0", "nic0"), module)
    if known is None:
        assert (found.sent, found.unsent) == (None, UNKNOWN)
    else:
        assert found.sent == pytest.approx(6.02 if known else 0.0, abs=0.01)
        assert found.sent == found.received


def test_eight_lanes_behind_one_lc_connector_may_be_two_fibers(tmp_path: Path) -> None:
    stated = "wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, "
    stated += "receive: {min: -10 dBm, max: 4 dBm}"
    testbed = lab(tmp_path, stated, "400G", ports=1)
    module = printed([0.0] * 8, [0.0] * 8, head="Connector : 0x07 (LC)")
    assert fiber_light(testbed, Port("server0", "nic0"), module).unsent == UNKNOWN


@pytest.mark.parametrize("stated", ["pmd: 400GBASE-FR4", "pmd: 400G-FR4"])
def test_two_ports_of_one_module_have_four_lanes_each(tmp_path: Path, stated: str) -> None:
    """2xFR4 prints all eight lanes on both ports; the second port's come last."""
    testbed = lab(tmp_path, stated, "400G")
    sent = [1.0] * 4 + [-1.0] * 4
    module = printed(sent, [dbm - 1 for dbm in sent])
    for name, level in (("nic0.p0", 1.0), ("nic0.p1", -1.0)):
        found = fiber_light(testbed, Port("server0", name), module)
        assert found.sent == pytest.approx(level + 6.02, abs=0.01)
        assert found.received == pytest.approx(level - 1 + 6.02, abs=0.01)


def test_eight_lanes_at_a_port_of_four_are_not_guessed(tmp_path: Path) -> None:
    testbed = lab(tmp_path, "pmd: 400GBASE-FR4", "400G", ports=1)
    found = fiber_light(testbed, Port("server0", "nic0"), printed([0.0] * 8, [0.0] * 8))
    assert found.sent is None
    assert "uses 8 lanes, and which 4 of them are this port's is not known" in found.unsent


def test_light_at_receivers_that_are_not_used_takes_no_part(tmp_path: Path) -> None:
    testbed = lab(tmp_path, "pmd: 400GBASE-DR4", "400G", ports=1)
    module = printed([0.0] * 4 + [-math.inf] * 4, [0.0] * 4 + [-30.0] * 4)
    found = fiber_light(testbed, Port("server0", "nic0"), module)
    assert [lane.number for lane in found.lanes] == [1, 2, 3, 4]
    assert found.received == pytest.approx(0.0, abs=0.01)


def test_oma_is_compared_with_no_monitor(tmp_path: Path) -> None:
    testbed = lab(tmp_path, "pmd: 100GBASE-LR4", ports=1)
    text = "Identifier : 0x11 (QSFP28)\n" + "".join(
        f"Rcvr signal OMA(Channel {n}) : 1.0000 mW / 0.00 dBm\n" for n in range(1, 5)
    )
    found = fiber_light(testbed, Port("server0", "nic0"), ethtool_module.parse(text))
    assert found.received is None
    assert "OMA" in found.unreceived


@pytest.mark.parametrize(
    ("dbm", "said"),
    [(-4.3 - 2.9, None), (-4.3 - 3.1, "at least -4.3"), (4.5 + 3.1, "at most 4.5")],
)
def test_a_lane_outside_of_its_launch_limits_is_named(
    tmp_path: Path, dbm: float, said: str | None
) -> None:
    """Power readings of modules are good to 3 dB (SFF-8636)."""
    testbed = lab(tmp_path, "pmd: 100GBASE-LR4", ports=1)
    sent = [0.0, 0.0, dbm, 0.0]
    ports = [spec.port for spec in testbed.nic_ports]
    findings = examined(testbed, printed(sent, sent), dict.fromkeys(ports, in_fiber(sent, 4)))
    texts = [check.text for check in findings.problems]
    if said is None:
        assert texts == []
    else:
        assert len(texts) == 2
        assert all("lane 3 sends" in text and said in text for text in texts)


def test_one_lane_of_a_breakout_is_no_dark_laser(tmp_path: Path) -> None:
    """40GBASE-SR4 at a port of 10G: K. Olędzki's module lights one lane (netdev, 22 May 2024)."""
    stated = "wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, "
    stated += "receive: {min: -10 dBm, max: 4 dBm}"
    testbed = lab(tmp_path, stated, "10G", ports=1)
    dark = [-math.inf] * 3
    head = "Transceiver type : 40G Ethernet: 40G Base-SR4"
    module = printed([-1.48, *dark], [-1.15, *dark], head=head)
    ports = [spec.port for spec in testbed.nic_ports]
    assert examined(testbed, module, dict.fromkeys(ports, -1.48)).problems == []
