"""SONiC on an optical circuit switch, through gNMI and its databases."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import FactoryLoss, Identity, Operation
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DeniedError, NoReplyError
from lightrig.instruments.core.position_switch import PendingMove
from lightrig.instruments.switches.sonic_ocs.base import (
    BROKEN,
    DONE,
    OVERRIDES,
    POLL,
    TUNING,
    SonicSwitch,
    is_id,
)
from lightrig.instruments.wire.gnmi import (
    PORT,
    GnmiCredentials,
    GnmiReply,
    GnmiSession,
    Subscription,
    json_value,
    path_of,
)
from lightrig.instruments.wire.pipelined import DEFAULT_TIMEOUT, Pending
from lightrig.testbeds import Circuit

_CONFIGURED = ("CONFIG_DB", "localhost", "OCS_CROSS_CONNECT")
_PORTS = ("CONFIG_DB", "localhost", "OCS_PORT")
_STATE = ("STATE_DB", "localhost")
_METADATA = ("CONFIG_DB", "localhost", "DEVICE_METADATA", "localhost")
_STATUS_TABLES = ("OCS_CROSS_CONNECT", "OCS_CROSS_CONNECT_TABLE")
"""Names of the table of states: in the High Level Design, and in the image for KVM."""

_MEANINGS = {
    "NOT_FOUND": ("the switch has no such table or entry", "is it SONiC on an optical switch?"),
    "INVALID_ARGUMENT": (
        "a port does not exist or is in use, or the path is unknown",
        "compare `size:` in the testbed file with the switch; take the other circuit down",
    ),
    "UNKNOWN": (
        "the switch did not apply the change to its configuration, which may lack a port's row",
        "compare `size:` in the testbed file with the ports of `show ocs port config`",
    ),
    "PERMISSION_DENIED": ("this user may not do that", "a user that may write CONFIG_DB"),
    "UNIMPLEMENTED": (
        "this server does not offer it",
        "is it started with native write (`-gnmi_native_write`)?",
    ),
}

_COMMITTING = 60_000_000_000

Table = Mapping[str, Mapping[str, str]]


class SonicGnmi(SonicSwitch):
    """A switch over gNMI: tables of CONFIG_DB are written, those of STATE_DB are read.

    A change is one Set, which the switch commits as one transaction: it deletes cross-connects and
    adds others. The states of the new ones are followed by a subscription that is opened before;
    where the switch refuses it, they are read again and again.

    Source: SONiC OCS High Level Design, revision 0.5 (tables, transaction); the tests of sonic-gnmi
    and sonic-mgmt (paths, values, subscriptions).
    """

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        trusted = Path(self.certificates).expanduser() if self.certificates else None
        self._session = GnmiSession(
            name,
            endpoint.host,
            endpoint.port or PORT,
            clock,
            GnmiCredentials(
                endpoint.login,
                trusted or endpoint.certificates,
                Path(self.client).expanduser() if self.client else None,
            ),
            _MEANINGS,
        )
        self.sessions = (self._session,)
        self._status_tables: Sequence[str] = _STATUS_TABLES

    def identity(self) -> Identity:
        """Return platform, serial number and software version."""
        messages = self._session.messages
        build = messages.Path(elem=[messages.PathElem(name=n) for n in ("osversion", "build")])
        leaves = (
            (self._leaves(*_METADATA), "platform"),
            (self._leaves(*_STATE, "EEPROM_INFO", "0x23"), "Value"),
            (
                self._object("Get", self._get(build, messages.Path(target="OTHERS"))),
                "build_version",
            ),
        )
        platform, serial, version = (str(entry.get(leaf, "")).strip() for entry, leaf in leaves)
        if not all((platform, serial, version)):
            raise self.garbled("Get", [entry for entry, _ in leaves], "identity")
        self._version = version
        return Identity("SONiC", platform, serial, version)

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`, in one transaction.

        What only the hardware has is added to the configuration first, in a transaction of its own.
        """
        if not remove and not add:
            return PendingMove.nothing(self.clock)
        added, removed = sorted(add), sorted(set(remove) - set(add))
        if stale := sorted(set(removed) - self._configured() if removed else ()):
            self._session.submit("Set", self._request((), stale)).result()
        states = self._status() if added else {}
        # A circuit that is there already has no update to come.
        made = [c for c in added if not DONE.issuperset(states.get(c, ("absent",)))]
        updates = self._follow() if made else None
        try:
            pending = self._session.submit("Set", self._request(removed, added))
        except BaseException:
            if updates is not None:
                updates.close()
            raise
        count = len(removed) + len(added)
        return PendingMove(pending.sent, lambda: self._complete(pending, count, updates, made))

    def factory_losses(self) -> Mapping[Circuit, FactoryLoss]:
        """Return the insertion loss of each cross-connect as the maker measured it.

        Of several conditions that are listed for a cross-connect the last counts. Raises
        `DeniedError` where the switch has no such table.
        """
        found = {}
        for key, leaves in self._get_table(*_STATE, "OCS_FACTORY_INSERTION_LOSS").items():
            id_, *conditions = key.split("|")
            try:
                terahertz, celsius = map(float, conditions)
                loss, accuracy = float(leaves["loss_dB"]), float(leaves["accuracy_dB"])
            except (KeyError, ValueError) as error:
                raise self.garbled("Get", {key: leaves}, "factory insertion loss") from error
            found[self._named(id_)] = FactoryLoss(loss, accuracy, terahertz, celsius)
        return found

    def labels(self) -> Mapping[int, str]:
        """Return the label of each port."""
        return {port: leaves.get("label", "") for port, leaves in self._port_entries().items()}

    def set_label(self, port: int, text: str) -> None:
        """Label a port; the empty text removes its label."""
        self._set_ports([port], "label", text)

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Return whether the override of each of `ports` is `normal`, not `force_blocked`."""
        found = self._port_entries()
        for port in ports:
            if found.get(port, {}).get("state") not in OVERRIDES:
                raise self.garbled("Get", found.get(port), f"override of port {port}")
        return {port: OVERRIDES[found[port]["state"]] for port in ports}

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Override `ports` with `normal`, or with `force_blocked`, in one transaction."""
        override = next(each for each, passes in OVERRIDES.items() if passes == is_open)
        self._set_ports(ports, "state", override)

    def follow_circuits(self) -> "_Following":
        """Subscribe to the states of cross-connects; raises `DeniedError` where it is refused."""
        self._status()
        updates = self._follow()
        if updates is None:
            raise self.refused("the switch refuses a subscription to states of cross-connects")
        return _Following(updates, self.circuits(), self._notified)

    def _notified(self, reply: GnmiReply, circuits: frozenset[Circuit]) -> frozenset[Circuit]:
        """Return the circuits after an update of the subscription, from those before."""
        deleted = {self._named(path.elem[-1].name) for path in reply.message.update.delete}
        return (circuits - deleted) | self._states(self._updated(reply)).keys()

    def wire(self) -> list[str]:
        """Return the last messages."""
        return self._session.trace.tail(40)

    def close(self) -> None:
        """End the connection."""
        self._session.close()

    # -------------------------------------------------------------------------- change

    def _request(self, removed: Sequence[Circuit], added: Sequence[Circuit]) -> Any:
        messages = self._session.messages
        request = messages.SetRequest(
            delete=[path_of(messages, (*_CONFIGURED, self._id(circuit))) for circuit in removed]
        )
        for circuit in added:
            a = f"{self._port(circuit.ingress)}A"
            b = f"{self._port(circuit.egress - self.ports)}B"
            value = json.dumps({"a_side": a, "b_side": b}).encode()
            request.update.add(
                path=path_of(messages, (*_CONFIGURED, f"{a}-{b}")),
                val=messages.TypedValue(json_ietf_val=value),
            )
        return request

    def _follow(self) -> Subscription | None:
        """Subscribe to the states, and read until they are all there; None if it is refused.

        `_status` was called before, and knows the table's name.
        """
        messages = self._session.messages
        request = messages.SubscribeRequest(
            subscribe=messages.SubscriptionList(
                subscription=[
                    messages.Subscription(
                        path=path_of(messages, (*_STATE, name)), mode=messages.ON_CHANGE
                    )
                    for name in self._status_tables
                ],
                mode=messages.SubscriptionList.STREAM,
                encoding=messages.JSON_IETF,
            )
        )
        updates = self._session.subscribe(request)
        try:
            while not updates.next(DEFAULT_TIMEOUT).message.sync_response:
                pass
        except DeniedError:
            return None
        except BaseException:
            updates.close()
            raise
        return updates

    def _complete(
        self,
        pending: Pending[GnmiReply],
        operations: int,
        updates: Subscription | None,
        added: Sequence[Circuit],
    ) -> Span:
        try:
            reply = pending.result(_COMMITTING)
            if len(reply.message.response) != operations:
                raise self.garbled("Set", reply.message, f"outcome of {operations} operations")
            tuned = (
                self._await_tuned(updates, added, reply.received + TUNING) if added else Span(0, 0)
            )
        finally:
            if updates is not None:
                updates.close()
        return Span(max(reply.not_before, tuned.earliest), max(reply.received, tuned.latest))

    def _await_tuned(
        self, updates: Subscription | None, added: Sequence[Circuit], deadline: int
    ) -> Span:
        """Wait until the sides of each circuit are tuned; return when the last one was seen so."""
        waiting: dict[Circuit, tuple[str, ...]] = dict.fromkeys(added, ("absent",))
        seen = Span(0, 0)
        asked = self.clock.now()
        command = f"Set {', '.join(map(self._id, added))}"
        while True:
            if updates is None:  # it may have tuned since the reading before
                before, asked = asked, self.clock.now()
                states = self._status()
                seen = Span(before, self.clock.now())
            else:
                reply = self._next_update(updates, deadline, command, waiting)
                states = self._states(self._updated(reply))
                seen = reply.arrived
            waiting = {c: states.get(c, s) for c, s in waiting.items()}
            waiting = {c: s for c, s in waiting.items() if not DONE.issuperset(s)}
            if broken := {c: s for c, s in waiting.items() if BROKEN.intersection(s)}:
                raise self.not_done("cannot make", [command], broken)
            if not waiting:
                return seen
            if self.clock.now() > deadline:
                raise self.not_done("does not tune", [command], waiting)
            if updates is None:
                self.clock.sleep(POLL)

    def _next_update(
        self,
        updates: Subscription,
        deadline: int,
        command: str,
        waiting: Mapping[Circuit, tuple[str, ...]],
    ) -> GnmiReply:
        try:
            return updates.next(max(0, deadline - self.clock.now()))
        except NoReplyError as error:
            raise self.not_done("does not tune", [command], waiting) from error

    def _updated(self, reply: GnmiReply) -> Table:
        """Return the entries that an update of the subscription names; {} for one of none."""
        found: dict[str, Mapping[str, str]] = {}
        for update in reply.message.update.update:
            found |= self._entries("Subscribe", update)
        return found

    # -------------------------------------------------------------------------- tables

    def _port_entries(self) -> dict[int, Mapping[str, str]]:
        found = {}
        for key, leaves in self._get_table(*_PORTS).items():
            number = self._port_number(key)
            if number is None:
                raise self.garbled("Get", key, "port")
            found[number] = leaves
        return found

    def _set_ports(self, ports: Sequence[int], leaf: str, value: str) -> None:
        """Set one leaf of each port; an update of the whole row would delete the others."""
        messages = self._session.messages
        request = messages.SetRequest()
        for port in ports:
            request.update.add(
                path=path_of(messages, (*_PORTS, self._port_id(port), leaf)),
                val=messages.TypedValue(json_ietf_val=json.dumps(value).encode()),
            )
        self._session.call("Set", request, _COMMITTING)

    def _configured(self) -> frozenset[Circuit]:
        return frozenset(map(self._named, self._table_or_none(*_CONFIGURED) or ()))

    def _status(self) -> dict[Circuit, tuple[str, ...]]:
        """Return the states of both sides of each cross-connect that the hardware has."""
        for name in self._status_tables:
            table = self._table_or_none(*_STATE, name)
            if table is not None:
                self._status_tables = (name,)
                return self._states(table)
        return {}

    def _states(self, table: Table) -> dict[Circuit, tuple[str, ...]]:
        try:
            return {
                self._named(key): self.states_of_sides(
                    "Get", [leaves[f"{side}_side_status"] for side in "ab"]
                )
                for key, leaves in table.items()
                if leaves
            }
        except KeyError as error:
            raise self.garbled("Get", table, f"table of states with {error}") from error

    def _named(self, id_: str) -> Circuit:
        if not is_id(id_):
            raise self.garbled("Get", id_, "cross-connect")
        return self._circuit(id_)

    def _table_or_none(self, *names: str) -> Table | None:
        """Return a table, None where nothing is found: it has no entries, or the switch has none.

        Redis does not tell the two apart; so a switch that knows its ports is asked for.
        """
        try:
            return self._get_table(*names)
        except DeniedError as error:
            if error.code != "NOT_FOUND":
                raise
        self._get_table(*_PORTS)
        return None

    def _get_table(self, *names: str) -> Table:
        return self._entries("Get", self._get(path_of(self._session.messages, names)))

    def _leaves(self, *names: str) -> Mapping[str, Any]:
        return self._object("Get", self._get(path_of(self._session.messages, names)))

    def _get(self, path: Any, prefix: Any = None) -> Any:
        """Return the update that answers a Get of one path."""
        messages = self._session.messages
        request = messages.GetRequest(path=[path], prefix=prefix, encoding=messages.JSON_IETF)
        answer = self._session.call("Get", request).message
        found = [update for each in answer.notification for update in each.update]
        if len(found) != 1 or [e.name for e in found[0].path.elem] != [e.name for e in path.elem]:
            raise self.garbled("Get", answer, f"answer to {'/'.join(e.name for e in path.elem)}")
        return found[0]

    def _object(self, command: str, update: Any) -> Mapping[str, Any]:
        try:
            value = json_value(update.val)
        except (ValueError, RecursionError) as error:
            raise self.garbled(command, update, f"value: {error}") from error
        if not isinstance(value, dict):
            raise self.garbled(command, update, "JSON object")
        return value

    def _entries(self, command: str, update: Any) -> Table:
        table = self._object(command, update)
        for leaves in table.values():
            if not isinstance(leaves, dict) or not all(isinstance(v, str) for v in leaves.values()):
                raise self.garbled(command, update, "table of SONiC")
        return table


class _Following:
    """A subscription to the states of cross-connects."""

    def __init__(
        self,
        updates: Subscription,
        circuits: frozenset[Circuit],
        after: Callable[[GnmiReply, frozenset[Circuit]], frozenset[Circuit]],
    ) -> None:
        self._updates = updates
        self._circuits = circuits
        self._after = after

    def next(self, timeout: int) -> tuple[Span, frozenset[Circuit]]:
        """Return when the next notification came, and the circuits by it."""
        reply = self._updates.next(timeout)
        self._circuits = self._after(reply, self._circuits)
        return reply.arrived, self._circuits

    def close(self) -> None:
        """End the subscription."""
        self._updates.close()
