"""SONiC on an optical circuit switch, through gNMI and its databases."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import FactoryLoss, Identity, Operation
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    StateUnknownError,
)
from lightrig.instruments.core.position_switch import PendingMove
from lightrig.instruments.switches.sonic_ocs.base import (
    BROKEN,
    DONE,
    OVERRIDES,
    POLL,
    TUNING,
)
from lightrig.instruments.switches.sonic_ocs.databases import (
    CONFIGURED,
    METADATA,
    PORTS,
    STATE,
    SonicDatabases,
)
from lightrig.instruments.switches.sonic_ocs.tables import (
    INVALID,
    LOSS_TABLES,
    STATUS_TABLES,
    Table,
    is_table,
)
from lightrig.instruments.wire.gnmi import (
    GnmiReply,
    Subscription,
    path_of,
)
from lightrig.instruments.wire.pipelined import Pending
from lightrig.testbeds import Circuit

_REFUSALS = {
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "UNAUTHENTICATED",
}
"""Status codes of a Set that was not begun; after any other one the configuration is read back."""

_UNANSWERED = (NoReplyError, DisconnectedError)
"""Errors of a Set whose answer did not arrive: it may be carried out, or still be."""

_STILL_APPLIED = re.compile(r"Timeout \d+")
"""Text of a Set whose service did not answer the server in time, and goes on (dbus_client.go)."""

_SILENCE = 1_000_000_000
"""After so long without a notification the states are read: one may be lost (Redis, pub/sub)."""


class SonicGnmi(SonicDatabases):
    """A switch over gNMI: tables of CONFIG_DB are written, those of STATE_DB are read.

    A change is one Set, which the switch commits as one transaction: it deletes cross-connects and
    adds others. The states of the new ones are followed by a subscription that is opened before;
    where the switch refuses or ends it, they are read again and again.

    The generic config updater accepts no first row by its own path, since the table is not there,
    nor a table without rows. So a Set that is denied for either is repeated with the table's path,
    if nobody else has a row there.

    Source: SONiC OCS High Level Design, revision 0.5 (tables, transaction); the tests of sonic-gnmi
    and sonic-mgmt (paths, values, subscriptions); sonic-gnmi 5ec1c20b, mixed_db_client.go (what a
    Set, a notification and an empty table are); sonic-utilities 691b1bbc, generic_updater.py. Rows:
    `tables`.
    """

    def identity(self) -> Identity:
        """Return platform, serial number and software version."""
        messages = self._session.messages
        build = messages.Path(elem=[messages.PathElem(name=n) for n in ("osversion", "build")])
        leaves = (
            (self._leaves(*METADATA), "platform"),
            (self._leaves(*STATE, "EEPROM_INFO", "0x23"), "Value"),
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
        before = self._configured()
        if stale := sorted(set(removed) - before):
            pending = self._session.submit("Set", self._request((), stale, before))
            self._committed(pending, (), stale, before)
            before |= set(stale)
        states = self._status() if added else {}
        # A circuit that is there already has no update to come.
        made = [c for c in added if not DONE.issuperset(states.get(c, ("absent",)))]
        updates = self._follow() if made else None
        try:
            pending = self._session.submit("Set", self._request(removed, added, before))
        except BaseException:
            if updates is not None:
                updates.close()
            raise

        def finish() -> Span:
            try:
                reply = self._committed(pending, removed, added, before)
                return self._settled(reply, removed, updates, made)
            finally:
                if updates is not None:
                    updates.close()

        return PendingMove(pending.sent, finish)

    def factory_losses(self) -> Mapping[Circuit, FactoryLoss]:
        """Return the insertion loss of each cross-connect as the maker measured it.

        Of several conditions that are listed for a cross-connect the last counts. Raises
        `DeniedError` where the switch has no such table.
        """
        found = {}
        paths = ((*STATE, name) for name in LOSS_TABLES)
        for key, leaves in self._first_table(*paths, timeout=self.table_time)[1].items():
            id_, *conditions = key.split("|")
            try:
                terahertz, celsius = map(float, conditions)
                loss, accuracy = float(leaves["loss_dB"]), float(leaves["accuracy_dB"])
            except (KeyError, TypeError, ValueError) as error:
                raise self.garbled("Get", {key: leaves}, "factory insertion loss") from error
            found[self._named(id_)] = FactoryLoss(loss, accuracy, terahertz, celsius)
        return found

    def labels(self) -> Mapping[int, str]:
        """Return the label of each port."""
        return {port: leaves.get("label", "") for port, leaves in self._port_entries().items()}

    def set_label(self, port: int, text: str) -> None:
        """Label a port; the empty text removes its label."""
        self._set_ports({port: "label"}, text)

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Return whether the override of each of `ports` is `normal`."""
        found = self._overrides(self._port_entries(), ports)
        return {port: is_open for port, (_, is_open) in found.items()}

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Override `ports` with `normal`, or with `force_blocked`, in one transaction.

        A port that is open or closed as wanted stays as it is, `powered_off` too.
        """
        override = next(each for each, passes in OVERRIDES.items() if passes == is_open)
        entries = self._port_entries()
        if absent := ", ".join(self._port_id(port) for port in ports if port not in entries):
            advice = "compare `size:` in the testbed file with the switch"
            raise self.refused(f"it has no port {absent}", "", advice, command=f"set {override}")
        found = self._overrides(entries, ports)
        leaves = {port: leaf for port, (leaf, passes) in found.items() if passes != is_open}
        if leaves:
            self._set_ports(leaves, override)

    def follow_circuits(self) -> "_Following":
        """Subscribe to the states of cross-connects; raises `DeniedError` where it is refused."""
        self._status()
        updates = self._follow()
        if updates is None:
            raise self.refused("the switch refuses a subscription to states of cross-connects")
        return _Following(updates, self.circuits, self._notified)

    def _notified(
        self, reply: GnmiReply, circuits: frozenset[Circuit]
    ) -> frozenset[Circuit] | None:
        """Return the circuits after a notification, from those before; None if it does not say."""
        deleted = set()
        for path in reply.message.update.delete:
            names = [each.name for each in path.elem]
            # The published server names the table, with no key (mixed_db_client.go, sendMsiData).
            if len(names) != len(STATE) + 2 or names[-2] not in STATUS_TABLES:
                return None
            deleted.add(self._named(names[-1]))
        rows = self._updated(reply)
        if rows is None:
            return None
        states = self._states(rows)
        deleted |= {self._named(key) for key, leaves in rows.items() if not leaves}
        deleted |= {circuit for circuit, found in states.items() if INVALID in found}
        return (circuits | states.keys()) - deleted

    # -------------------------------------------------------------------------- change

    def _request(
        self, removed: Sequence[Circuit], added: Sequence[Circuit], configured: Collection[Circuit]
    ) -> Any:
        """Return the Set of a change: new rows whole, since a leaf needs its row, others not."""
        messages = self._session.messages
        request = messages.SetRequest(
            delete=[path_of(messages, (*CONFIGURED, self._id(circuit))) for circuit in removed]
        )
        for circuit in added:
            row = self._row(circuit)
            path = (*CONFIGURED, self._id(circuit))
            if circuit in configured:
                self._update(request, {(*path, leaf): value for leaf, value in row.items()})
            else:
                self._update(request, {path: row})
        return request

    def _whole(self, added: Sequence[Circuit]) -> Any:
        """Return the Set of a table's first rows by its own path, or, without rows, its removal."""
        messages = self._session.messages
        if not added:
            return messages.SetRequest(delete=[path_of(messages, CONFIGURED)])
        request = messages.SetRequest()
        rows = {self._id(circuit): self._row(circuit) for circuit in added}
        self._update(request, {CONFIGURED: rows})
        return request

    def _row(self, circuit: Circuit) -> dict[str, str]:
        return {
            "a_side": self._port_id(circuit.ingress),
            "b_side": self._port_id(circuit.egress),
        }

    def _update(self, request: Any, values: Mapping[tuple[str, ...], Any]) -> None:
        messages = self._session.messages
        for names, value in values.items():
            request.update.add(
                path=path_of(messages, names),
                val=messages.TypedValue(json_ietf_val=json.dumps(value).encode()),
            )

    def _committed(
        self,
        pending: Pending[GnmiReply],
        removed: Sequence[Circuit],
        added: Sequence[Circuit],
        before: Collection[Circuit],
    ) -> GnmiReply:
        """Wait for the reply to a Set; `before` is what was configured then.

        Raises:
            StateUnknownError: it failed, and the configuration has it, or a part of it; or no
                answer came, whatever the configuration has now.
            DeniedError: it failed, and nothing was changed.
        """
        new = set(added) - set(before)
        try:
            return self._outcome(pending, self._request(removed, added, before))
        except DeniedError as error:
            if error.code in _REFUSALS:
                raise
            denial = error
        except _UNANSWERED as error:
            self._read_back(error, removed, new)
            raise
        now = self._read_back(denial, removed, new)
        if now == frozenset(before) and (set(removed) == now if not added else not now):
            # A client that adds a row from here on loses it: JSON Patch has no comparison in gNMI.
            whole = self._whole(added)
            try:
                return self._outcome(self._session.submit("Set", whole), whole)
            except (DeniedError, *_UNANSWERED) as error:
                if not isinstance(error, DeniedError) or error.code not in _REFUSALS:
                    self._read_back(error, removed, new)
                raise
        raise denial

    def _outcome(self, pending: Pending[GnmiReply], request: Any) -> GnmiReply:
        reply = pending.result(self.commit_time)
        operations = len(request.delete) + len(request.update)
        if len(reply.message.response) != operations:
            raise self.garbled("Set", reply.message, f"outcome of {operations} operations")
        return reply

    def _read_back(
        self, failure: InstrumentError, removed: Collection[Circuit], added: Collection[Circuit]
    ) -> frozenset[Circuit]:
        """Return what is configured after a Set that failed, unless that is the change."""
        try:
            now = self._configured()
        except InstrumentError as error:
            if isinstance(failure, _UNANSWERED):
                raise failure from error
            raise self._unknown(failure, f"cannot be read: {error}") from failure
        self._check_undone(
            failure,
            {self._id(circuit) for circuit in set(added) - now},
            {self._id(circuit) for circuit in set(removed) & now},
            len(added) + len(removed),
        )
        return now

    def _check_undone(
        self, failure: InstrumentError, missing: Collection[str], left: Collection[str], count: int
    ) -> None:
        """Raise `StateUnknownError` unless all `count` parts are `missing` or `left` for good."""
        if not count:
            return
        if len(missing) + len(left) == count:
            if not isinstance(failure, DeniedError) or _STILL_APPLIED.search(failure.text):
                raise self._unknown(failure, "has nothing of the change yet") from failure
            return
        parts = [("missing", missing), ("still there", left)]
        listed = [(what, ", ".join(sorted(ids))) for what, ids in parts if ids]
        if not listed:
            raise self._unknown(failure, "has the whole change") from failure
        raise self._unknown(failure, "has a part of the change", *listed) from failure

    def _unknown(
        self, failure: InstrumentError, found: str, *details: tuple[str, str]
    ) -> InstrumentError:
        if isinstance(failure, DeniedError):
            problem = "failed a Set"
            details = (("answered", f"{failure.code} {failure.text}".rstrip()), *details)
        else:
            first = str(failure).partition("\n")[0].removeprefix(f"{self.name} ")
            problem = f"has a Set without an answer ({first})"
        return self.failed(
            StateUnknownError,
            f"{problem}, and its state is unknown: its configuration {found}",
            failure.command,
            *details,
            ("try", "read its circuits and ports before the next change; was the Set saved?"),
        )

    def _follow(self) -> Subscription | None:
        """Subscribe to the states, and read until they are all there; None if it is refused.

        `_status` was called before, and knows the table's name.
        """
        messages = self._session.messages
        request = messages.SubscribeRequest(
            subscribe=messages.SubscriptionList(
                subscription=[
                    messages.Subscription(
                        path=path_of(messages, (*STATE, name)), mode=messages.ON_CHANGE
                    )
                    for name in self._status_tables
                ],
                mode=messages.SubscriptionList.STREAM,
                encoding=messages.JSON_IETF,
            )
        )
        updates = self._session.subscribe(request)
        try:
            while not updates.next().message.sync_response:
                pass
        except DeniedError:
            return None
        except BaseException:
            updates.close()
            raise
        return updates

    def _settled(
        self,
        reply: GnmiReply,
        removed: Sequence[Circuit],
        updates: Subscription | None,
        made: Sequence[Circuit],
    ) -> Span:
        """Return when all of `made` were tuned and none of `removed` was left."""
        deadline = reply.received + TUNING
        tuned = self._await_tuned(updates, made, deadline) if made else Span(0, 0)
        absent = self._await_removed(removed, deadline) if removed else Span(0, 0)
        return Span(
            max(reply.not_before, tuned.earliest, absent.earliest),
            max(reply.received, tuned.latest, absent.latest),
        )

    def _await_removed(self, removed: Sequence[Circuit], deadline: int) -> Span:
        """Wait until the states have none of `removed`, which some images write at intervals.

        Returns when the last one was seen to be gone; (0, 0) if the first look shows none, and if
        one is still there at `deadline`: the Set was acknowledged, and who reads back will find it.
        """
        before = 0
        while (asked := self.clock.now()) <= deadline:
            if self._status().keys().isdisjoint(removed):
                return Span(before, self.clock.now()) if before else Span(0, 0)
            before = asked
            self.clock.sleep(POLL)
        return Span(0, 0)

    def _await_tuned(
        self, updates: Subscription | None, added: Sequence[Circuit], deadline: int
    ) -> Span:
        """Wait until the sides of each circuit are tuned; return when the last one was seen so."""
        waiting: dict[Circuit, tuple[str, ...]] = dict.fromkeys(added, ("absent",))
        asked = self.clock.now()
        command = f"Set {', '.join(map(self._id, added))}"
        while True:
            came = self._next_states(updates, deadline)
            if came is None:  # it may have tuned since the reading before
                before, asked = asked, self.clock.now()
                states = self._status()
                seen = Span(before, self.clock.now())
            else:
                states, seen = came
            waiting = {c: states.get(c, s) for c, s in waiting.items()}
            waiting = {c: s for c, s in waiting.items() if not DONE.issuperset(s)}
            if broken := {c: s for c, s in waiting.items() if BROKEN.intersection(s)}:
                raise self.not_done("cannot make", [command], broken)
            if not waiting:
                return seen
            if self.clock.now() > deadline:
                raise self.not_done("does not tune", [command], waiting)
            if updates is None or updates.over:
                self.clock.sleep(POLL)

    def _next_states(
        self, updates: Subscription | None, deadline: int
    ) -> tuple[dict[Circuit, tuple[str, ...]], Span] | None:
        """Return the states of the next notification; None where they have to be read.

        The Set was acknowledged, so a subscription that ends or cannot be understood ends nothing.
        """
        if updates is None or updates.over:
            return None
        try:
            reply = updates.next(max(0, min(_SILENCE, deadline - self.clock.now())))
        except (NoReplyError, DeniedError, DisconnectedError, GarbledError):
            return None
        rows = self._updated(reply)
        return None if rows is None else (self._states(rows), reply.arrived)

    def _updated(self, reply: GnmiReply) -> Table | None:
        """Return the rows that a notification gives, {} for none; None for another form.

        The published server sends rows by key. Older ones send a row without its key (before pull
        request 138 of sonic-gnmi), and by the specification of gNMI a path may lead to a leaf.
        """
        found: dict[str, Mapping[str, str]] = {}
        for update in reply.message.update.update:
            names = [each.name for each in update.path.elem]
            if len(names) != len(STATE) + 1 or names[-1] not in STATUS_TABLES:
                return None
            value = self._object("Subscribe", update)
            if not is_table(value):
                return None
            found |= value
        return found

    # -------------------------------------------------------------------------- tables

    def _set_ports(self, leaves: Mapping[int, str], value: str) -> None:
        """Set one leaf of each port; an update of the whole row would delete the others."""
        request = self._session.messages.SetRequest()
        for port, leaf in leaves.items():
            self._update(request, {(*PORTS, self._port_id(port), leaf): value})
        try:
            self._session.call("Set", request, self.commit_time)
        except (DeniedError, *_UNANSWERED) as failure:
            if isinstance(failure, DeniedError) and failure.code in _REFUSALS:
                raise
            try:
                rows = self._port_entries()
            except InstrumentError as error:
                if isinstance(failure, _UNANSWERED):
                    raise failure from error
                raise self._unknown(failure, f"cannot be read: {error}") from failure
            missing = [p for p, leaf in leaves.items() if rows.get(p, {}).get(leaf) != value]
            self._check_undone(failure, list(map(self._port_id, missing)), (), len(leaves))
            raise


class _Following:
    """A subscription to the states of cross-connects.

    Args:
        updates: the subscription.
        read: reads the circuits.
        after: returns them after a notification, from those before; None if they must be read.
    """

    def __init__(
        self,
        updates: Subscription,
        read: Callable[[], frozenset[Circuit]],
        after: Callable[[GnmiReply, frozenset[Circuit]], frozenset[Circuit] | None],
    ) -> None:
        self._updates = updates
        self._read = read
        self._after = after
        self._circuits = read()

    def next(self, timeout: int) -> tuple[Span, frozenset[Circuit]]:
        """Return when the next notification came, and the circuits by it.

        They are read where it does not name them, as a deletion of the published server.
        """
        reply = self._updates.next(timeout)
        known = self._after(reply, self._circuits)
        self._circuits = self._read() if known is None else known
        return reply.arrived, self._circuits

    def close(self) -> None:
        """End the subscription."""
        self._updates.close()
