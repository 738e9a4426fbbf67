"""Forms of switches' protocols that public sources show, as options of simulated switches."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lightrig.testbeds import LightrigError

_AGENT = "NetconfAgent, a program of 2018 for ryu"
_PQN = "Switch of pqnstack"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One respect in which units differ.

    Attributes:
        option: its name under `options:` in a testbed file.
        wire: the wire on which units differ.
        about: the respect, as a phrase.
        forms: source of each form; the first form is the default.
        needs: forms of other dialects without which nothing differs.
    """

    option: str
    wire: str
    about: str
    forms: Mapping[str, str]
    needs: Mapping[str, str] = field(default_factory=dict)

    def stated(self, options: Mapping[str, object]) -> str:
        """Return the form that `options` state; raises `LightrigError` for an unknown one."""
        default = next(iter(self.forms))
        form = options.get(self.option, default)
        if form not in self.forms:
            known = ", ".join(self.forms)
            raise LightrigError(f"{self.option}: found {form!r}, expected one of {known}")
        return str(form)


_POLATIS = (
    Dialect(
        "terminal",
        "tl1",
        "prompt and echo",
        {
            "raw": "the vendor's TL1 test suite, port 3082",
            "prompt": "`>` after each answer: the vendor's TL1 test suite, port 6252",
            "echo": "TL1-TELNET of port 3083, as the manual of Lawo VSM tells it from TL1-RAW",
        },
    ),
    Dialect(
        "reports",
        "tl1",
        "autonomous message (REPT) about a command",
        {
            "before": "before its answer: the vendor's TL1 test suite",
            "after": "at any time: Telcordia GR-831",
        },
    ),
    Dialect(
        "monitors",
        "tl1",
        "ports with a power monitor",
        {
            "egress": "a driver that reads egress ports unless the product code says more",
            "both": "product code -801",
            "none": "product code I-OST",
        },
    ),
    Dialect(
        "compound",
        "scpi",
        "replies to several queries in one message",
        {
            "joined": "IEEE 488.2, section 8.4: joined by `;`",
            "first": "Map_Polatis, a program in C#: one reply to `PORT? 1;*OPC?`",
            "lines": "Map_Polatis, which would read the first line only",
        },
    ),
    Dialect(
        "line_end",
        "serial",
        "end of a reply on the serial line",
        {
            "cr": "serial_optical_control.sh of 2026: 38400 8N1, CR LF sent, CR received",
            "crlf": "serial_optical_control.sh, as an option",
        },
    ),
    Dialect(
        "no_entries",
        "restconf",
        "answer for a container without entries, and for an absent entry",
        {
            "empty": "RFC 7951: an empty list; 404 for an entry",
            "no-content": f"204 without a body: {_PQN}",
            "not-found": "RFC 8040, section 3.5: 404",
        },
    ),
    Dialect(
        "entry",
        "restconf",
        "one entry of a list",
        {"list": "RFC 7951, section 5.4", "object": _PQN},
    ),
    Dialect(
        "post",
        "restconf",
        "circuits that POST makes",
        {"kept": _PQN, "dropped": "programs of a laboratory (UFABC): gone after about 5 s"},
    ),
    Dialect(
        "revision",
        "netconf",
        "revision of the YANG module",
        {
            "2018-03-22": "module in ONOS",
            "2017-08-04": "module in ONOS",
            "2015-09-14": "`pairs`, and no `port-config`: valarmathip/Terafast, logs of 2016",
        },
    ),
    Dialect(
        "port_leaves",
        "netconf",
        "leaves of `ports/port` with the shutter",
        {
            "both": "module in ONOS, revision 2017-08-04, as deprecated",
            "port-status": "valarmathip/Terafast; shutters are set by the rpc",
            "port-state": f"{_AGENT}; shutters are set by edit-config",
        },
        {"revision": "2015-09-14"},
    ),
    Dialect(
        "empty_container",
        "netconf",
        "a container without entries",
        {"absent": "`<data/>`: valarmathip/Terafast, logs", "present": "RFC 6241, section 6.4.2"},
    ),
)


_CALIENT = (
    Dialect(
        "terminal",
        "tl1",
        "prompt",
        {
            "raw": "port 3082: manual of Lawo VSM",
            "agent": "`agent>` on port 3083: QualiSystems/cloudshell-L1-calient",
        },
    ),
)

_SONIC = (
    Dialect(
        "port_states",
        "ssh",
        "words for the states of a port",
        {
            "hld": "SONiC OCS High Level Design, revision 0.5",
            "guide": "SONiC OCS developer guide of 2026-08",
        },
    ),
    Dialect(
        "persists",
        "ssh",
        "what keeps a circuit over a restart",
        {
            "save": "SONiC's own rule: `config save`",
            "always": "sonic-mgmt, module ocs_cross_connect: each command",
        },
    ),
    Dialect(
        "state_tables",
        "gnmi",
        "tables and leaves",
        {
            "hld": "SONiC OCS High Level Design, revision 0.5; sonic-ocs-states.yang of "
            "sonic-ocs/sonic-buildimage 5d2f132f",
            "kvm": "OCS_CROSS_CONNECT_TABLE, `status`, `config_status`: image ocs-kvm, "
            "sonic-ocs/sonic-buildimage 335777f6; sonic-molex/sonic-buildimage 38d6ff05, "
            "sonic-ocs.yang",
        },
    ),
    Dialect(
        "deletions",
        "gnmi",
        "notification of a row that is gone",
        {
            "table": "the path of its table: sonic-net/sonic-gnmi 5ec1c20b, mixed_db_client.go",
            "empty": "a row without leaves: sonic-net/sonic-gnmi before pull request 139",
            "key": "the path of the row: gNMI specification, section 3.5.2.3",
        },
    ),
    Dialect(
        "empty_tables",
        "gnmi",
        "tables of CONFIG_DB without rows",
        {
            "kept": "a transaction of its own, as the High Level Design, revision 0.5, has it",
            "none": "no first row by its own path, no table without rows: generic_updater.py of "
            "sonic-net/sonic-utilities 691b1bbc",
        },
    ),
)

DIALECTS = {"polatis": _POLATIS, "calient-s": _CALIENT, "sonic-ocs": _SONIC}
"""The dialects of each model."""


def forms(model: str, options: Mapping[str, object]) -> dict[str, str]:
    """Return the form of each dialect of `model` that `options` state; raises `LightrigError`."""
    return {dialect.option: dialect.stated(options) for dialect in DIALECTS[model]}
