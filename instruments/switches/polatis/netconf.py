"""A Polatis over NETCONF (SSH, TCP 830)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from instruments.capabilities import Identity
from instruments.clock import Clock
from instruments.errors import GarbledError
from instruments.switches.polatis.session import (
    NAMESPACE,
    WINDOWS,
    PatchOperation,
    Readings,
    Voa,
    garbled,
    size_of,
)
from instruments.wire.netconf import NetconfReply, NetconfSession
from instruments.wire.trace import Trace
from testbeds import Circuit

PORT = 830
_NC = "urn:ietf:params:xml:ns:netconf:base:1.0"

_MEANINGS = {
    "invalid-value": (
        "a port or a value in the command does not exist on this switch",
        "compare `size:` in the testbed file with the switch: ingress 1..N, egress N+1..N+M",
    ),
    "in-use": ("a port in the command is in use (unconfirmed)", "take its circuit down"),
    "data-missing": ("a circuit to be taken down is not there any more", "read it and run again"),
    "access-denied": ("this user may not do that", "log in as a user of the admin group"),
}
"""What error tags mean at the bench, and what to try."""


class PolatisNetconf:
    """One NETCONF session.

    A change is one edit-config that merges and deletes entries of /cross-connects/pair. It names
    the testbed's own ingress ports and no others, so circuits that somebody else makes meanwhile
    stay; to replace the whole list would take them down.

    Errors about OpenFlow are set aside: one lab has seen them in answers that were otherwise
    complete.

    Source: YANG module optical-switch, revision 2018-03-22. Unconfirmed: the error tags.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int | None,
        clock: Clock,
        login: tuple[str, str] | None,
        *,
        user: str | None,
        known_hosts: Path | None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._netconf = NetconfSession(
            name,
            host,
            port or PORT,
            clock,
            login,
            user=user,
            known_hosts=known_hosts,
            meanings=_MEANINGS,
            spurious=("openflow",),
        )

    @property
    def trace(self) -> Trace:
        """What went over the wire."""
        return self._netconf.trace

    def identity(self) -> Identity:
        """Ask for product code, serial number and software version."""
        reply = self._netconf.get(f'<product-information xmlns="{NAMESPACE}"/>')
        said = reply.leaves("product-information")
        names = ("manufacturer", "model-name", "serial-number", "software-version")
        if not all(said.get(name) for name in names):
            raise self._garbled(said, "identity")
        return Identity(*(said[name] for name in names))

    def size(self) -> tuple[int, int]:
        """How many ingress and how many egress ports the product code says there are."""
        model = self.identity().model
        size = size_of(model)
        if size is None:
            raise self._garbled(model, "product code with a size")
        return size

    def circuits(self) -> frozenset[Circuit]:
        """Every circuit that the switch reports now."""
        reply = self._netconf.get_config(f'<cross-connects xmlns="{NAMESPACE}"/>')
        pairs = reply.entries("cross-connects", "pair")
        try:
            return frozenset(Circuit(int(p["ingress"]), int(p["egress"])) for p in pairs)
        except (KeyError, ValueError) as error:
            raise self._garbled(pairs, "list of circuits") from error

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> PatchOperation:
        """Start taking down `remove` and making `add`, in one edit-config."""
        moved = {circuit.ingress for circuit in add}
        gone = sorted(circuit.ingress for circuit in remove if circuit.ingress not in moved)
        pairs = [f'<pair nc:operation="delete"><ingress>{i}</ingress></pair>' for i in gone]
        pairs += [
            f"<pair><ingress>{ingress}</ingress><egress>{egress}</egress></pair>"
            for ingress, egress in sorted(add)
        ]
        if not pairs:
            return PatchOperation([], self._clock)
        return PatchOperation([self._netconf.edit(_config("cross-connects", pairs))], self._clock)

    def monitored(self) -> frozenset[int]:
        """The ports that the switch lists as having a power monitor."""
        criteria = f'<opm-config xmlns="{NAMESPACE}"><port><port-id/></port></opm-config>'
        reply = self._netconf.get_config(criteria)
        return frozenset(self._by_port(reply, "opm-config"))

    def powers(self, ports: Sequence[int]) -> Readings:
        """Power at `ports`."""
        reply = self._netconf.get(_of_ports("opm-power", ports))
        found = self._by_port(reply, "opm-power")
        try:
            dbm = {port: float(leaves["power"]) for port, leaves in found.items()}
        except (KeyError, ValueError) as error:
            raise self._garbled(found, "power reading") from error
        return Readings(dbm, reply.received)

    def windows(self, ports: Sequence[int]) -> Mapping[int, int]:
        """Over how many ns each monitor averages."""
        found = self._by_port(
            self._netconf.get_config(_of_ports("opm-config", ports)), "opm-config"
        )
        try:
            return {p: WINDOWS[int(leaves["averaging-time"])] for p, leaves in found.items()}
        except (KeyError, ValueError) as error:
            raise self._garbled(found, "monitor setting") from error

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Whether each shutter is open; one that has failed is not."""
        found = self._by_port(self._netconf.get(_of_ports("port-config", ports)), "port-config")
        return {port: leaves.get("status") == "ENABLED" for port, leaves in found.items()}

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Open or close, with the module's own rpc."""
        leaf = "port-enab" if is_open else "port-disab"
        listed = "".join(f"<{leaf}>{port}</{leaf}>" for port in ports)
        self._netconf.call(f'<port-set-state xmlns="{NAMESPACE}">{listed}</port-set-state>')

    def voa(self, egress: int) -> Voa:
        """Mode and level."""
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
        """Set mode and level."""
        level = f"<atten-level>{voa.level:.2f}</atten-level>" if voa.mode == "RELATIVE" else ""
        mode = f"<atten-mode>VOA_MODE_{voa.mode}</atten-mode>"
        port = f"<port><port-id>{egress}</port-id>{mode}{level}</port>"
        self._netconf.edit(_config("voa", [port])).result()

    def close(self) -> None:
        """End the session."""
        self._netconf.close()

    def _by_port(self, reply: NetconfReply, container: str) -> dict[int, dict[str, str]]:
        entries = reply.entries(container, "port")
        try:
            return {int(entry["port-id"]): entry for entry in entries}
        except (KeyError, ValueError) as error:
            raise self._garbled(entries, "list of ports") from error

    def _garbled(self, answered: object, what: str) -> GarbledError:
        return garbled(self._name, self.trace, answered, what)


def _config(container: str, entries: Iterable[str]) -> str:
    """A config element with entries of one container."""
    inner = f'<{container} xmlns="{NAMESPACE}">{"".join(entries)}</{container}>'
    return f'<nc:config xmlns:nc="{_NC}">{inner}</nc:config>'


def _of_ports(container: str, ports: Iterable[int]) -> str:
    """A filter that selects the entries of `ports`."""
    entries = "".join(f"<port><port-id>{port}</port-id></port>" for port in ports)
    return f'<{container} xmlns="{NAMESPACE}">{entries}</{container}>'
