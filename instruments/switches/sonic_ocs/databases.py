"""SONiC on an optical circuit switch: what is read of its databases through gNMI."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DeniedError
from lightrig.instruments.switches.sonic_ocs.base import OVERRIDES, SonicSwitch, is_id
from lightrig.instruments.switches.sonic_ocs.tables import (
    INVALID,
    STATUS_TABLES,
    Row,
    Table,
    is_table,
    override_leaf,
    states_in,
)
from lightrig.instruments.wire.gnmi import PORT, GnmiCredentials, GnmiSession, json_value, path_of
from lightrig.testbeds import Circuit

CONFIGURED = ("CONFIG_DB", "localhost", "OCS_CROSS_CONNECT")
PORTS = ("CONFIG_DB", "localhost", "OCS_PORT")
STATE = ("STATE_DB", "localhost")
METADATA = ("CONFIG_DB", "localhost", "DEVICE_METADATA", "localhost")

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


class SonicDatabases(SonicSwitch):
    """Tables of CONFIG_DB and STATE_DB; which of them a switch has: `tables`."""

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
            endpoint.timeouts,
        )
        self.sessions = (self._session,)
        self._status_tables: Sequence[str] = STATUS_TABLES

    def circuits(self) -> frozenset[Circuit]:
        """Return every cross-connect of the hardware but those in conflict, which are not made."""
        return frozenset(c for c, states in self._status().items() if INVALID not in states)

    def wire(self) -> list[str]:
        """Return the last messages."""
        return self._session.trace.tail(40)

    def close(self) -> None:
        """End the connection."""
        self._session.close()

    def _port_entries(self) -> dict[int, Row]:
        found = {}
        for key, leaves in self._get_table(*PORTS).items():
            number = self._port_number(key)
            if number is None:
                raise self.garbled("Get", key, "port")
            found[number] = leaves
        return found

    def _overrides(
        self, entries: Mapping[int, Row], ports: Sequence[int]
    ) -> dict[int, tuple[str, bool]]:
        """Return the leaf with the override of each port, and whether it lets light pass."""
        found = {}
        for port in ports:
            row = entries.get(port, {})
            leaf = override_leaf(row)
            if leaf is None or row[leaf] not in OVERRIDES:
                raise self.garbled("Get", entries.get(port), f"override of port {port}")
            found[port] = (leaf, OVERRIDES[row[leaf]])
        return found

    def _configured(self) -> frozenset[Circuit]:
        return frozenset(map(self._named, self._rows(CONFIGURED)[1]))

    def _status(self) -> dict[Circuit, tuple[str, ...]]:
        """Return the states of each cross-connect that the hardware has: of both sides, or one."""
        path, rows = self._rows(*((*STATE, name) for name in self._status_tables))
        if rows:
            self._status_tables = path[-1:]
        return self._states(rows)

    def _states(self, table: Table) -> dict[Circuit, tuple[str, ...]]:
        found = {}
        for key, leaves in table.items():
            if not leaves:
                continue
            states = states_in(leaves)
            if states is None:
                raise self.garbled("Get", table, "table of states")
            found[self._named(key)] = self.states_of_sides("Get", states)
        return found

    def _named(self, id_: str) -> Circuit:
        if not is_id(id_):
            raise self.garbled("Get", id_, "cross-connect")
        return self._circuit(id_)

    def _first_table(
        self, *paths: Sequence[str], timeout: int | None = None
    ) -> tuple[Sequence[str], Table]:
        """Return path and rows of the first table that has any, else of one that is empty.

        Raises `DeniedError` (NOT_FOUND) where there is none of them.
        """
        empty: Sequence[str] | None = None
        denial: DeniedError | None = None
        for path in paths:
            try:
                if table := self._get_table(*path, timeout=timeout):
                    return path, table
            except DeniedError as error:
                if error.code != "NOT_FOUND":
                    raise
                denial = denial or error
            else:
                empty = empty or path
        if empty is None and denial is not None:
            raise denial
        return empty or (), {}

    def _rows(self, *paths: Sequence[str]) -> tuple[Sequence[str], Table]:
        """Return what `_first_table` does, {} for the rows where no table is found.

        Redis has no empty tables, and the server answers for one as for an unknown one; where
        another table's name begins so, with nothing. So a switch that knows its ports is asked for.
        """
        try:
            return self._first_table(*paths)
        except DeniedError as error:
            if error.code != "NOT_FOUND":
                raise
        if not self._get_table(*PORTS):
            raise self.garbled("Get", {}, "table of ports")
        return (), {}

    def _get_table(self, *names: str, timeout: int | None = None) -> Table:
        update = self._get(path_of(self._session.messages, names), timeout=timeout)
        if update is None:
            return {}
        table = self._object("Get", update)
        if not is_table(table):
            raise self.garbled("Get", update, "table of SONiC")
        return table

    def _leaves(self, *names: str) -> Mapping[str, Any]:
        return self._object("Get", self._get(path_of(self._session.messages, names)))

    def _get(self, path: Any, prefix: Any = None, timeout: int | None = None) -> Any:
        """Return the update that answers a Get of one path; None where there is none."""
        messages = self._session.messages
        request = messages.GetRequest(path=[path], prefix=prefix, encoding=messages.JSON_IETF)
        answer = self._session.call("Get", request, timeout).message
        found = [update for each in answer.notification for update in each.update]
        if not found:
            return None
        if len(found) != 1 or [e.name for e in found[0].path.elem] != [e.name for e in path.elem]:
            raise self.garbled("Get", answer, f"answer to {'/'.join(e.name for e in path.elem)}")
        return found[0]

    def _object(self, command: str, update: Any) -> Mapping[str, Any]:
        if update is None:
            return {}
        try:
            value = json_value(update.val)
        except (ValueError, RecursionError) as error:
            raise self.garbled(command, update, f"value: {error}") from error
        if not isinstance(value, dict):
            raise self.garbled(command, update, "JSON object")
        return value
