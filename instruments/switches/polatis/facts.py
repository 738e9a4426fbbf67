"""Facts about the wires of a Polatis, confirmed by sources or not."""

from lightrig.instruments.core.wire_facts import WireFact

_SUITE = "the vendor's TL1 test suite"
_WRAPPER = "PyPolatis, the vendor's wrapper of TL1"
_ONOS = "opennetworkinglab/onos, bd0779f, models/polatis/src/main/yang"
_AGENT = "NetconfAgent, a program of 2018 for ryu"
_PORTAL = "app.py of Optical Lab Portal"
_PQN = "PublicQuantumNetwork/pqn-stack, 165e6a7, src/pqnstack/pqn/drivers/switch.py"
_PAGE = "quintons/polatis2, e6ec062, the vendor's web interface"

FACTS = (
    WireFact("commands, lists of ports, codes of denials", _SUITE, ("tl1",), _PORTAL),
    WireFact("layout of a DENY block and of headers", _WRAPPER, ("tl1",)),
    WireFact("autonomous messages are on after login", _WRAPPER, ("tl1",)),
    WireFact("averaging of 10, 20, 50, 100, 200, 500, 1000, 2000 ms", _WRAPPER),
    WireFact("settings of monitors and attenuators", _WRAPPER, ("tl1",), "polatis_tl1.sh"),
    WireFact("kinds of attenuation by ATTEN:CONFIG; relative on one variant", _WRAPPER, ("tl1",)),
    WireFact("force flag `:frcd`, programmed shutters, thresholds", _WRAPPER, ("tl1",)),
    WireFact("IICM for an unsupported command", _WRAPPER, ("tl1",)),
    WireFact(
        "a port in use is moved; the first move finds out",
        "examples of PyPolatis, which never remove first",
        ("tl1",),
        "OpticalSwitch of MMU.Ifosic in C#: four ingress ports in turn to one egress port",
    ),
    WireFact(
        "a port in use is moved; the first move finds out",
        "a reconfiguration loop in C that alternates two maps by `conn:add` alone",
        ("scpi",),
    ),
    WireFact("204 without a body for no circuits", _PQN, ("restconf",)),
    WireFact("409 for a port in use", _PQN, ("restconf",), "a service on Vert.x"),
    WireFact(
        "`port-state` and `port-status` of a deprecated container `ports`",
        "opennetworkinglab/onos, 3545370, optical-switch@2017-08-04.yang",
        ("netconf",),
        _AGENT,
    ),
    WireFact(
        "an empty partner of a free port; boot modes",
        "two drivers",
        ("scpi",),
        "Map_Polatis, a program in C#",
    ),
    WireFact(
        "`pairs` and `ports` of an older unit",
        "valarmathip/Terafast, c48aee0, logs",
        ("netconf",),
        _AGENT,
    ),
    WireFact("commands", "six independent drivers", ("scpi",), "the manual, as they quote it"),
    WireFact("tree of 2018-03-22", _ONOS, ("netconf",), "OpticalSwitch.py with xmltodict"),
    WireFact("tree of 2018-03-22", _ONOS, ("restconf",), _PAGE),
    WireFact(
        "38400 8N1, CR LF sent, CR received",
        "ubuntu_serial_control_README.md, 1.0 of 2026-05-29",
        ("serial",),
    ),
    WireFact(
        "paths and answers",
        _PAGE,
        ("restconf",),
        "programs of a laboratory (UFABC)",
    ),
    WireFact("code of a denial for a port in use (SRCN)", wires=("tl1",)),
    WireFact("code of a denial for two ports of one side", wires=("tl1",)),
    WireFact("code of a denial without login (PLNA)", wires=("tl1",)),
    WireFact("error for a port in use, error for a port without monitor", wires=("scpi",)),
    WireFact("which ports have monitors, by the product code", wires=("scpi",)),
    WireFact("averaging of monitors in the factory setting (option)", wires=("scpi",)),
    WireFact("switching time, insertion loss and repeatability of the data sheet"),
    WireFact("error tag of a port in use", wires=("netconf",)),
)
