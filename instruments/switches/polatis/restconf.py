"""A Polatis over RESTCONF (HTTP, TCP 8008; on some units 80)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DeniedError, GarbledError, InstrumentError
from lightrig.instruments.switches.polatis.session import (
    MODULE,
    SHUTTER_STATES,
    WINDOWS,
    PatchOperation,
    Readings,
    SentCommand,
    Voa,
    garbled,
    level,
    size_of,
)
from lightrig.instruments.wire.restconf import RestconfReply, RestconfSession
from lightrig.instruments.wire.trace import Trace
from lightrig.testbeds import Circuit

PORT = 8008
TLS_PORT = 443
_CIRCUITS = f"data/{MODULE}:cross-connects"

_MEANINGS = {
    400: (
        "a port or a value in the request does not exist on this switch",
        "compare `size:` in the testbed file with the switch: ingress 1..N, egress N+1..N+M",
    ),
    403: ("this user may not do that", "log in as a user of the admin group"),
    404: ("there is no such resource", "is the circuit still there, is this a Polatis?"),
    405: ("the switch does not do that to this resource", "options: {collection: put}"),
    409: ("a port in the request is in use", "take its circuit down"),
    412: ("the circuits have changed since they were read", "read them and run again"),
}
"""Meaning of the HTTP statuses at the bench and what to try."""


class PolatisRestconf:
    """One RESTCONF connection.

    By default a change is one PATCH of the collection with the circuits that are made or moved,
    after one DELETE for each circuit that nothing replaces. It names the testbed's ingress ports
    and no others, so circuits that another program makes meanwhile stay.

    With `put` it is one PUT of the whole collection, as it was read with the change applied: for
    units that drop a change sent otherwise: one lab has seen circuits of POST vanish after about
    5 s, while those of PUT stayed. A circuit that another program
    makes between that reading and the PUT would be lost, so it is sent with If-Match, unless the
    switch's ETag is a weak one; whether the switch observes that is unconfirmed.

    Source: five independent clients, and YANG module optical-switch, revision 2018-03-22.
    Unconfirmed: PATCH of circuits, and the statuses of refusals.
    """

    keyed_by_ingress: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        endpoint: Endpoint,
        clock: Clock,
        *,
        put: bool,
        tls: bool = False,
        certificates: str | None = None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._put = put
        self._http = RestconfSession(
            name,
            endpoint.host,
            endpoint.port or (TLS_PORT if tls else PORT),
            clock,
            endpoint.login,
            meanings=_MEANINGS,
            tls=tls,
            certificates=Path(certificates).expanduser() if certificates else None,
            timeouts=endpoint.timeouts,
        )

    @property
    def trace(self) -> Trace:
        """Trace of what went over the wire."""
        return self._http.trace

    def identity(self) -> Identity:
        """Return manufacturer, product code, serial number and software version."""
        found = self._container(self._get("product-information"), "product-information")
        names = ("manufacturer", "model-name", "serial-number", "software-version")
        if not all(found.get(name) for name in names):
            raise self._garbled(found, "identity")
        return Identity(*(str(found[name]) for name in names))

    def size(self) -> tuple[int, int]:
        """Return the numbers of ingress and of egress ports that the product code names."""
        model = self.identity().model
        size = size_of(model)
        if size is None:
            raise self._garbled(model, "product code with a size")
        return size

    def circuits(self) -> frozenset[Circuit]:
        """Return every circuit that the switch reports now."""
        return self._circuits(self._read_circuits())

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> PatchOperation:
        """Begin to take down `remove` and make `add`, as the class documents."""
        steps: list[SentCommand] = []
        if self._put and (remove or add):
            before = self._read_circuits()
            made = {c.ingress: c.egress for c in self._circuits(before) - frozenset(remove)}
            pairs = sorted((made | dict(add)).items())
            version = before.etag if before else ""
            steps.append(self._http.submit("PUT", _CIRCUITS, _body(pairs), version=version))
            return PatchOperation(steps, self._clock)
        moved = {circuit.ingress for circuit in add}
        removed = sorted(circuit for circuit in remove if circuit.ingress not in moved)
        steps.extend(map(self._delete, removed))
        if add:
            steps.append(self._http.submit("PATCH", _CIRCUITS, _body(sorted(add))))
        return PatchOperation(steps, self._clock)

    def commands(self, remove: Collection[Circuit], add: Collection[Circuit]) -> int:
        """Return how many requests a change is."""
        if self._put:
            return int(bool(remove or add))
        moved = {circuit.ingress for circuit in add}
        return sum(circuit.ingress not in moved for circuit in remove) + bool(add)

    def monitored(self) -> frozenset[int]:
        """Return the ports that the switch lists as having a power monitor."""
        return frozenset(self._by_port("opm-config"))

    def powers(self, ports: Sequence[int]) -> Readings:
        """Return the power at `ports`."""
        reply = self._get("opm-power")
        found = self._listed(reply, "opm-power")
        try:
            dbm = {port: level(found[port]["power"]) for port in ports if port in found}
        except (KeyError, TypeError, ValueError) as error:
            raise self._garbled(found, "power reading") from error
        return Readings(dbm, reply.received)

    def windows(self, ports: Sequence[int]) -> Mapping[int, int]:
        """Return the averaging window of each monitor, in ns."""
        found = self._by_port("opm-config")
        try:
            return {p: WINDOWS[int(found[p]["averaging-time"])] for p in ports if p in found}
        except (KeyError, TypeError, ValueError) as error:
            raise self._garbled(found, "monitor setting") from error

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Return whether each shutter is open; one that has failed is not.

        Raises `GarbledError` for a port without a state, or with one that is not known.
        """
        found = self._by_port("port-config")
        for port in ports:
            if port in found and found[port].get("status") not in SHUTTER_STATES:
                raise self._garbled(found[port], f"state of the shutter of port {port}")
        return {port: found[port]["status"] == "ENABLED" for port in ports if port in found}

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Open or close shutters, with the rpc of the YANG module."""
        body = {f"{MODULE}:input": {"port-enab" if is_open else "port-disab": list(ports)}}
        self._http.request("POST", f"operations/{MODULE}:port-set-state", body)

    def attenuation_kind(self) -> str | None:
        """Return None: this wire has no query for it."""
        return None

    def voa(self, egress: int) -> Voa:
        """Return mode and level of `egress`."""
        found = self._by_port("voa").get(egress, {})
        try:
            mode = str(found["atten-mode"]).removeprefix("VOA_MODE_")
            return Voa(mode, float(found.get("atten-level", 0)))
        except (KeyError, TypeError, ValueError) as error:
            raise self._garbled(found, "attenuation") from error

    def set_voa(self, egress: int, voa: Voa) -> None:
        """Set mode and level of `egress`."""
        port: dict[str, object] = {"port-id": egress, "atten-mode": f"VOA_MODE_{voa.mode}"}
        if voa.mode == "RELATIVE":
            port["atten-level"] = round(voa.level, 2)
        self._http.request("PATCH", f"data/{MODULE}:voa", {f"{MODULE}:voa": {"port": [port]}})

    def close(self) -> None:
        """End the connection."""
        self._http.close()

    def _delete(self, circuit: Circuit) -> "_CompletedStep":
        """Take one circuit down and wait for it; an error is raised by the change's `done`."""
        now = self._clock.now()
        try:
            reply = self._http.request("DELETE", f"{_CIRCUITS}/pair={circuit.ingress}")
        except InstrumentError as error:
            return _CompletedStep(Span(now, self._clock.now()), error)
        return _CompletedStep(reply.sent, reply)

    def _read_circuits(self) -> RestconfReply | None:
        """Return the reply with the circuits, None for a unit that answers 404 without any.

        RFC 8040, section 3.5, has 404 for an instance that does not exist; the identity, which
        every unit has, tells it from an address that is no Polatis.
        """
        try:
            return self._http.get(_CIRCUITS)
        except DeniedError as error:
            if error.code != str(HTTPStatus.NOT_FOUND.value):
                raise
        self.identity()
        return None

    def _circuits(self, reply: RestconfReply | None) -> frozenset[Circuit]:
        if reply is None or reply.status == HTTPStatus.NO_CONTENT:
            return frozenset()  # public clients of these switches expect 204 without circuits
        found = self._container(reply, "cross-connects")
        try:
            pairs = found.get("pair", ())
            listed = [pairs] if isinstance(pairs, Mapping) else pairs
            return frozenset(Circuit(int(pair["ingress"]), int(pair["egress"])) for pair in listed)
        except (KeyError, TypeError, ValueError) as error:
            raise self._garbled(found, "list of circuits") from error

    def _get(self, container: str) -> RestconfReply:
        return self._http.get(f"data/{MODULE}:{container}")

    def _by_port(self, container: str) -> dict[int, Mapping[str, Any]]:
        return self._listed(self._get(container), container)

    def _listed(self, reply: RestconfReply, container: str) -> dict[int, Mapping[str, Any]]:
        """Return the entries of a container's list, by port."""
        found = self._container(reply, container)
        try:
            return {int(entry["port-id"]): entry for entry in found.get("port", ())}
        except (KeyError, TypeError, ValueError) as error:
            raise self._garbled(found, "list of ports") from error

    def _container(self, reply: RestconfReply, container: str) -> Mapping[str, Any]:
        """Return the content of `container` in a reply; raises `GarbledError`."""
        body = reply.body
        content = body.get(f"{MODULE}:{container}") if isinstance(body, Mapping) else None
        if not isinstance(content, Mapping):
            raise self._garbled(body, f"container {container}")
        return content

    def _garbled(self, answered: object, what: str) -> GarbledError:
        return garbled(self._name, self.trace, answered, what)


@dataclass(frozen=True, slots=True)
class _CompletedStep:
    """A completed step: its reply or its error."""

    sent: Span
    outcome: RestconfReply | InstrumentError

    def result(self) -> RestconfReply:
        """Return the reply, or raise the error."""
        if isinstance(self.outcome, RestconfReply):
            return self.outcome
        raise self.outcome


def _body(pairs: Sequence[tuple[int, int]]) -> object:
    listed = [{"ingress": ingress, "egress": egress} for ingress, egress in pairs]
    return {f"{MODULE}:cross-connects": {"pair": listed}}
