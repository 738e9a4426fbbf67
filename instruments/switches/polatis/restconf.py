"""A Polatis over RESTCONF (HTTP, TCP 8008; on some units 80)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instruments.capabilities import Identity
from instruments.clock import Clock, Span
from instruments.errors import GarbledError, InstrumentError
from instruments.switches.polatis.session import (
    MODULE,
    WINDOWS,
    PatchOperation,
    Readings,
    Step,
    Voa,
    garbled,
    size_of,
)
from instruments.wire.restconf import RestconfReply, RestconfSession
from instruments.wire.trace import Trace
from testbeds import Circuit

PORT = 8008
_CIRCUITS = f"data/{MODULE}:cross-connects"

_MEANINGS = {
    400: (
        "a port or a value in the request does not exist on this switch (unconfirmed)",
        "compare `size:` in the testbed file with the switch: ingress 1..N, egress N+1..N+M",
    ),
    403: ("this user may not do that", "log in as a user of the admin group"),
    404: ("there is no such resource", "is the circuit still there, is this a Polatis?"),
    405: ("the switch does not do that to this resource", "options: {collection: put}"),
    409: ("a port in the request is in use", "take its circuit down"),
    412: ("somebody has changed the circuits since they were read", "read them and run again"),
}
"""What statuses mean at the bench, and what to try."""


class PolatisRestconf:
    """One RESTCONF connection.

    By default a change is one PATCH of the collection with the circuits that are made or moved,
    after one DELETE for each circuit that nothing replaces. It names the testbed's own ingress
    ports and no others, so circuits that somebody else makes meanwhile stay.

    With `put` it is one PUT of the whole collection, as it was read with the change applied: for
    units that drop what they are not told that way, as one lab has seen. Whoever changes the
    circuits between that reading and the PUT would lose them, so it goes with If-Match; whether
    the switch heeds that is unconfirmed.

    Source: five independent clients, and YANG module optical-switch, revision 2018-03-22.
    Unconfirmed: PATCH of circuits, and the statuses of refusals.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int | None,
        clock: Clock,
        login: tuple[str, str] | None,
        *,
        put: bool,
    ) -> None:
        self._name = name
        self._clock = clock
        self._put = put
        self._http = RestconfSession(name, host, port or PORT, clock, login, meanings=_MEANINGS)

    @property
    def trace(self) -> Trace:
        """What went over the wire."""
        return self._http.trace

    def identity(self) -> Identity:
        """Ask for product code, serial number and software version."""
        said = self._held(self._get("product-information"), "product-information")
        names = ("manufacturer", "model-name", "serial-number", "software-version")
        if not all(said.get(name) for name in names):
            raise self._garbled(said, "identity")
        return Identity(*(str(said[name]) for name in names))

    def size(self) -> tuple[int, int]:
        """How many ingress and how many egress ports the product code says there are."""
        model = self.identity().model
        size = size_of(model)
        if size is None:
            raise self._garbled(model, "product code with a size")
        return size

    def circuits(self) -> frozenset[Circuit]:
        """Every circuit that the switch reports now."""
        return self._circuits(self._http.get(_CIRCUITS))

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> PatchOperation:
        """Start taking down `remove` and making `add`; see the class for how."""
        steps: list[Step] = []
        if self._put and (remove or add):
            before = self._http.get(_CIRCUITS)
            made = {c.ingress: c.egress for c in self._circuits(before) - frozenset(remove)}
            pairs = sorted((made | dict(add)).items())
            steps.append(self._http.submit("PUT", _CIRCUITS, _body(pairs), version=before.etag))
            return PatchOperation(steps, self._clock)
        moved = {circuit.ingress for circuit in add}
        gone = sorted(circuit for circuit in remove if circuit.ingress not in moved)
        steps.extend(map(self._delete, gone))
        if add:
            steps.append(self._http.submit("PATCH", _CIRCUITS, _body(sorted(add))))
        return PatchOperation(steps, self._clock)

    def monitored(self) -> frozenset[int]:
        """The ports that the switch lists as having a power monitor."""
        return frozenset(self._by_port("opm-config"))

    def powers(self, ports: Sequence[int]) -> Readings:
        """Power at `ports`."""
        reply = self._get("opm-power")
        found = self._listed(reply, "opm-power")
        try:
            dbm = {port: float(found[port]["power"]) for port in ports if port in found}
        except (KeyError, TypeError, ValueError) as error:
            raise self._garbled(found, "power reading") from error
        return Readings(dbm, reply.received)

    def windows(self, ports: Sequence[int]) -> Mapping[int, int]:
        """Over how many ns each monitor averages."""
        found = self._by_port("opm-config")
        try:
            return {p: WINDOWS[int(found[p]["averaging-time"])] for p in ports if p in found}
        except (KeyError, TypeError, ValueError) as error:
            raise self._garbled(found, "monitor setting") from error

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Whether each shutter is open; one that has failed is not."""
        found = self._by_port("port-config")
        return {port: found[port].get("status") == "ENABLED" for port in ports if port in found}

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Open or close, with the module's own rpc."""
        told = {f"{MODULE}:input": {"port-enab" if is_open else "port-disab": list(ports)}}
        self._http.request("POST", f"operations/{MODULE}:port-set-state", told)

    def voa(self, egress: int) -> Voa:
        """Mode and level."""
        found = self._by_port("voa").get(egress, {})
        try:
            mode = str(found["atten-mode"]).removeprefix("VOA_MODE_")
            return Voa(mode, float(found.get("atten-level", 0)))
        except (KeyError, TypeError, ValueError) as error:
            raise self._garbled(found, "attenuation") from error

    def set_voa(self, egress: int, voa: Voa) -> None:
        """Set mode and level."""
        port: dict[str, object] = {"port-id": egress, "atten-mode": f"VOA_MODE_{voa.mode}"}
        if voa.mode == "RELATIVE":
            port["atten-level"] = round(voa.level, 2)
        self._http.request("PATCH", f"data/{MODULE}:voa", {f"{MODULE}:voa": {"port": [port]}})

    def close(self) -> None:
        """End the connection."""
        self._http.close()

    def _delete(self, circuit: Circuit) -> "_Ended":
        """Take one circuit down and wait for that; what goes wrong is told with the change."""
        now = self._clock.now()
        try:
            reply = self._http.request("DELETE", f"{_CIRCUITS}/pair={circuit.ingress}")
        except InstrumentError as error:
            return _Ended(Span(now, self._clock.now()), error)
        return _Ended(reply.sent, reply)

    def _circuits(self, reply: RestconfReply) -> frozenset[Circuit]:
        said = self._held(reply, "cross-connects")
        try:
            return frozenset(
                Circuit(int(pair["ingress"]), int(pair["egress"])) for pair in said.get("pair", ())
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._garbled(said, "list of circuits") from error

    def _get(self, container: str) -> RestconfReply:
        return self._http.get(f"data/{MODULE}:{container}")

    def _by_port(self, container: str) -> dict[int, Mapping[str, Any]]:
        return self._listed(self._get(container), container)

    def _listed(self, reply: RestconfReply, container: str) -> dict[int, Mapping[str, Any]]:
        """The entries of a container's list, by port."""
        said = self._held(reply, container)
        try:
            return {int(entry["port-id"]): entry for entry in said.get("port", ())}
        except (KeyError, TypeError, ValueError) as error:
            raise self._garbled(said, "list of ports") from error

    def _held(self, reply: RestconfReply, container: str) -> Mapping[str, Any]:
        """What an answer about `container` says it holds."""
        body = reply.body
        held = body.get(f"{MODULE}:{container}") if isinstance(body, Mapping) else None
        if not isinstance(held, Mapping):
            raise self._garbled(body, f"container {container}")
        return held

    def _garbled(self, answered: object, what: str) -> GarbledError:
        return garbled(self._name, self.trace, answered, what)


@dataclass(frozen=True, slots=True)
class _Ended:
    """A step that was waited for already: its reply, or what went wrong."""

    sent: Span
    outcome: RestconfReply | InstrumentError

    def result(self) -> RestconfReply:
        """Return the reply, or raise what went wrong."""
        if isinstance(self.outcome, RestconfReply):
            return self.outcome
        raise self.outcome


def _body(pairs: Sequence[tuple[int, int]]) -> object:
    listed = [{"ingress": ingress, "egress": egress} for ingress, egress in pairs]
    return {f"{MODULE}:cross-connects": {"pair": listed}}
