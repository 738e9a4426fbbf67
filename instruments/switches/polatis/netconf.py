"""A Polatis over NETCONF (SSH, TCP 830)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import Identity, Operation
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import GarbledError
from lightrig.instruments.switches.polatis.session import (
    MODULE,
    NAMESPACE,
    SHUTTER_STATES,
    WINDOWS,
    PatchOperation,
    Readings,
    TriedOperation,
    Voa,
    garbled,
    level,
    size_of,
)
from lightrig.instruments.wire.netconf import NetconfReply, NetconfSession
from lightrig.instruments.wire.trace import Trace
from lightrig.testbeds import Circuit

PORT = 830
_CONFIGURED = "port-state"
"""Leaf by which a public program of 2018 opens and closes the shutters of an older unit."""
_SHUTTER_LEAVES = ("status", "port-status", _CONFIGURED)
"""Leaves that state whether a shutter is open, by revision."""
_PAIR_LISTS = ("pair", "pairs")
"""List of circuits by revision: 2017-08-04 and later, and a unit of 2016."""
_UNKNOWN_ELEMENT = frozenset({"unknown-element", "bad-element"})
_NC = "urn:ietf:params:xml:ns:netconf:base:1.0"

_MEANINGS = {
    "invalid-value": (
        "a port or a value in the command does not exist on this switch",
        "compare `size:` in the testbed file with the switch: ingress 1..N, egress N+1..N+M",
    ),
    "in-use": ("a port in the command is in use", "take its circuit down"),
    "data-missing": ("a circuit to be taken down is not there any more", "read it and run again"),
    "unknown-element": (
        "its YANG module is another revision than the driver knows",
        "compare `pair`, `port-config` with the tree that the switch advertises in its hello",
    ),
    "access-denied": ("this user may not do that", "log in as a user of the admin group"),
}
"""Meaning of the error tags at the bench and what to try."""


class PolatisNetconf:
    """One NETCONF session.

    A change is one edit-config that merges and deletes entries of /cross-connects/pair. It names
    the testbed's ingress ports and no others, so circuits that another program makes meanwhile
    stay; replacing the whole list would take them down.

    Errors about OpenFlow are ignored beside the data or the `ok` that was asked for: one lab has
    seen them so. Alone such an error is a refusal; a unit may be under the control of OpenFlow.

    Units with an older revision list circuits as `pairs`, and ports with labels, shutters and
    powers in one container; both are read. An element that neither has is an error: a circuit
    that is not understood must not look like none.

    Source: YANG module optical-switch, revisions 2017-08-04 and 2018-03-22; logs of a unit of 2016
    in valarmathip/Terafast; a NETCONF agent in Python that set `port-state` on a unit of 2018.
    """

    keyed_by_ingress: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        clock: Clock,
        *,
        averaging: int,
    ) -> None:
        self._name = name
        self._window = WINDOWS[averaging]
        self._clock = clock
        self._pair: str | None = None
        self._netconf = NetconfSession(
            name,
            endpoint.host,
            endpoint.port or PORT,
            clock,
            endpoint.login,
            user=endpoint.user,
            known_hosts=endpoint.known_hosts,
            meanings=_MEANINGS,
            spurious=("openflow",),
            timeouts=endpoint.timeouts,
        )

    @property
    def trace(self) -> Trace:
        """Trace of what went over the wire."""
        return self._netconf.trace

    def identity(self) -> Identity:
        """Return manufacturer, product code, serial number and software version."""
        reply = self._netconf.get(f'<product-information xmlns="{NAMESPACE}"/>')
        found = reply.leaves("product-information")
        names = ("manufacturer", "model-name", "serial-number", "software-version")
        if not all(found.get(name) for name in names):
            raise self._garbled(found, "identity")
        return Identity(*(found[name] for name in names))

    def size(self) -> tuple[int, int]:
        """Return the numbers of ingress and of egress ports that the product code names."""
        model = self.identity().model
        size = size_of(model)
        if size is None:
            raise self._garbled(model, "product code with a size")
        return size

    def circuits(self) -> frozenset[Circuit]:
        """Return every circuit that the switch reports now."""
        reply = self._netconf.get_config(f'<cross-connects xmlns="{NAMESPACE}"/>')
        kinds = reply.children("cross-connects")
        if not kinds <= {"pair"} and kinds != {"pairs"}:
            raise self._garbled(", ".join(sorted(kinds)), "list of circuits")
        self._pair = next(iter(kinds), self._pair)
        pairs = reply.entries("cross-connects", self._pair or "pair")
        try:
            return frozenset(Circuit(int(p["ingress"]), int(p["egress"])) for p in pairs)
        except (KeyError, ValueError) as error:
            raise self._garbled(pairs, "list of circuits") from error

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`, in one edit-config.

        As long as no circuit was read the name of their list is unknown, and both are tried.
        """
        if self._pair or not (remove or add):
            return self._change(remove, add, self._pair or "")

        def learned(usual: bool) -> None:
            self._pair = _PAIR_LISTS[not usual]

        return TriedOperation(
            lambda usual: self._change(remove, add, _PAIR_LISTS[not usual]),
            learned,
            lambda code: code in _UNKNOWN_ELEMENT,
        )

    def commands(self, remove: Collection[Circuit], add: Collection[Circuit]) -> int:
        """Return 1: one edit-config, unless there is nothing to change."""
        return int(bool(remove or add))

    def _change(
        self, remove: Collection[Circuit], add: Collection[Circuit], tag: str
    ) -> PatchOperation:
        moved = {circuit.ingress for circuit in add}
        removed = sorted(circuit.ingress for circuit in remove if circuit.ingress not in moved)
        pairs = [f'<{tag} nc:operation="delete"><ingress>{i}</ingress></{tag}>' for i in removed]
        pairs += [
            f"<{tag}><ingress>{ingress}</ingress><egress>{egress}</egress></{tag}>"
            for ingress, egress in sorted(add)
        ]
        if not pairs:
            return PatchOperation([], self._clock)
        return PatchOperation([self._netconf.edit(_config("cross-connects", pairs))], self._clock)

    def monitored(self) -> frozenset[int]:
        """Return the ports that the switch lists as having a power monitor.

        An older unit, which has no settings of monitors, lists a power for each of these ports.
        """
        criteria = f'<opm-config xmlns="{NAMESPACE}"><port><port-id/></port></opm-config>'
        found = self._by_port(self._netconf.get_config(criteria), "opm-config")
        if not found and self._is_older():
            ports = self._by_port(self._netconf.get(_of_ports("ports", ())), "ports")
            found = {port: leaves for port, leaves in ports.items() if "power" in leaves}
        return frozenset(found)

    def powers(self, ports: Sequence[int]) -> Readings:
        """Return the power at `ports`."""
        reply = self._netconf.get(_of_ports("opm-power", ports))
        found = self._by_port(reply, "opm-power")
        if not found:
            reply = self._netconf.get(_of_ports("ports", ports))
            found = self._by_port(reply, "ports")
        try:
            dbm = {port: level(leaves["power"]) for port, leaves in found.items()}
        except (KeyError, ValueError) as error:
            raise self._garbled(found, "power reading") from error
        return Readings(dbm, reply.received)

    def windows(self, ports: Sequence[int]) -> Mapping[int, int]:
        """Return the averaging window of each monitor in ns, as stated for an older unit."""
        found = self._by_port(
            self._netconf.get_config(_of_ports("opm-config", ports)), "opm-config"
        )
        if not found and self._is_older():
            return dict.fromkeys(ports, self._window)  # its tree has no setting for it
        try:
            return {p: WINDOWS[int(leaves["averaging-time"])] for p, leaves in found.items()}
        except (KeyError, ValueError) as error:
            raise self._garbled(found, "monitor setting") from error

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Return whether each shutter is open; one that has failed is not.

        Raises `GarbledError` for a port without a state, or with one that is not known.
        """
        found = self._by_port(self._netconf.get(_of_ports("port-config", ports)), "port-config")
        if not found:
            found = self._by_port(self._netconf.get(_of_ports("ports", ports)), "ports")
        states = {}
        for port in ports:
            leaves = found.get(port, {})
            state = next((leaves[leaf] for leaf in _SHUTTER_LEAVES if leaf in leaves), None)
            if state is None or _bare(state) not in SHUTTER_STATES:
                raise self._garbled(leaves, f"state of the shutter of port {port}")
            states[port] = _bare(state) == "ENABLED"
        return states

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Open or close shutters: by the leaf of older units, which have no `port-config`."""
        found = {}
        if not self._by_port(self._netconf.get(_of_ports("port-config", ports)), "port-config"):
            found = self._by_port(self._netconf.get_config(_of_ports("ports", ports)), "ports")
        if all(_CONFIGURED in found.get(port, {}) for port in ports):
            state = "PC_ENABLED" if is_open else "PC_DISABLED"
            entries = (
                f"<port><port-id>{port}</port-id><{_CONFIGURED}>{state}</{_CONFIGURED}></port>"
                for port in ports
            )
            self._netconf.edit(_config("ports", entries)).result()
            return
        leaf = "port-enab" if is_open else "port-disab"
        listed = "".join(f"<{leaf}>{port}</{leaf}>" for port in ports)
        self._netconf.call(f'<port-set-state xmlns="{NAMESPACE}">{listed}</port-set-state>')

    def attenuation_kind(self) -> str | None:
        """Return None: this wire has no query for it."""
        return None

    def voa(self, egress: int) -> Voa:
        """Return mode and level of `egress`."""
        found = self._by_port(self._netconf.get_config(_of_ports("voa", [egress])), "voa")
        leaves = found.get(egress, {})
        try:
            return Voa(
                leaves["atten-mode"].removeprefix("VOA_MODE_"),
                float(leaves.get("atten-level", "0")),
            )
        except (KeyError, ValueError) as error:
            raise self._garbled(found, "attenuation") from error

    def set_voa(self, egress: int, voa: Voa) -> None:
        """Set mode and level of `egress`."""
        level = f"<atten-level>{voa.level:.2f}</atten-level>" if voa.mode == "RELATIVE" else ""
        mode = f"<atten-mode>VOA_MODE_{voa.mode}</atten-mode>"
        port = f"<port><port-id>{egress}</port-id>{mode}{level}</port>"
        self._netconf.edit(_config("voa", [port])).result()

    def close(self) -> None:
        """End the session."""
        self._netconf.close()

    def _is_older(self) -> bool:
        """Return whether the hello states a revision without settings of monitors."""
        return (self._netconf.revision(MODULE) or "2017") < "2017"

    def _by_port(self, reply: NetconfReply, container: str) -> dict[int, dict[str, str]]:
        entries = reply.entries(container, "port")
        try:
            return {int(entry["port-id"]): entry for entry in entries}
        except (KeyError, ValueError) as error:
            raise self._garbled(entries, "list of ports") from error

    def _garbled(self, answered: object, what: str) -> GarbledError:
        revision = self._netconf.revision(MODULE) or "not stated in its hello"
        met = ("revision", f"of {MODULE}: {revision}")
        return garbled(self._name, self.trace, answered, what, met)


def _bare(state: str) -> str:
    """Return the state of a shutter without the prefix of its type."""
    return state.removeprefix("PO_").removeprefix("PC_")


def _config(container: str, entries: Iterable[str]) -> str:
    """Return a config element with entries of one container."""
    inner = f'<{container} xmlns="{NAMESPACE}">{"".join(entries)}</{container}>'
    return f'<nc:config xmlns:nc="{_NC}">{inner}</nc:config>'


def _of_ports(container: str, ports: Iterable[int]) -> str:
    """Return a filter that selects the entries of `ports`."""
    entries = "".join(f"<port><port-id>{port}</port-id></port>" for port in ports)
    return f'<{container} xmlns="{NAMESPACE}">{entries}</{container}>'
