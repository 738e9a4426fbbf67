"""Forms of a Polatis' protocols that public sources show, as options of the simulated switch."""

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


DIALECTS = (
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


def forms(options: Mapping[str, object]) -> dict[str, str]:
    """Return the form of each dialect that `options` state; raises `LightrigError`."""
    return {dialect.option: dialect.stated(options) for dialect in DIALECTS}
