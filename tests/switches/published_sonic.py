"""A gNMI server on grpcio that reads and writes databases as the published sonic-gnmi does.

Its rules are those of the server's own source, sonic-net/sonic-gnmi 5ec1c20b (2026-08-19):
sonic_data_client/mixed_db_client.go (`getDbtablePath`, `Get`, `SetIncrementalConfig`,
`dbSingleTableKeySubscribe`, `sendMsiData`), json_client.go (`Remove`) and db_client.go
(`ValToResp`); and those of the generic config updater, sonic-net/sonic-utilities 691b1bbc:
generic_updater.py (`PatchApplier.apply`). A patch is applied by `jsonpatch`, as there. Rows are
those of the High Level Design, revision 0.5, or of the image for KVM (sonic-ocs/sonic-buildimage
335777f6, ocs_cross_connect_attrs.lua and ocs_config.json; enumerations of sonic-ocs.yang in
sonic-molex/sonic-buildimage 38d6ff05).
"""

import contextlib
import json
import queue
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from jsonpatch import JsonPatchException, apply_patch
from jsonpointer import JsonPointerException
from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.simulated.protocols.tls_server import ServerCertificate
from lightrig.instruments.switches.sonic_ocs.gnmi import SonicGnmi

TABLE = "OCS_CROSS_CONNECT"
POLL = 0.02
"""Period, in s, in which the image for KVM writes its rows of states (flex counters)."""

Row = dict[str, Any]
Tables = dict[str, dict[str, Row]]


def sides(key: str) -> Row:
    """Return the row of CONFIG_DB of a cross-connect such as `1A-2B`."""
    a, _, b = key.partition("-")
    return {"a_side": a, "b_side": b}


class PublishedSonic(gnmi_pb2_grpc.gNMIServicer):  # type: ignore[misc]
    """The server and its databases.

    Args:
        ports: ports on each side.
        rows: `hld`, or `kvm`.
        deleted: how a row that is gone is notified: `table` (main), `empty` (before pull request
            139 of sonic-gnmi, and db_client.go), or `key` (gNMI specification, 3.5.2.3).
        updated: how a row that is new is notified: `rows` (main), `keyless` (before pull request
            138), or `leaves` (gNMI specification: a path of each leaf).
        updater: whether the generic config updater applies the patch; else jsonpatch alone does,
            and a table may be empty.
        empty: what a Get has for a table without rows, where it is not NOT_FOUND: `absent` for no
            notification (main), or `object` for `{}` (before).

    Attributes:
        config, state: both databases, by table, key and leaf.
        requests: every SetRequest that came.
        refusals: of the next Sets, whether they are carried out first, and status and text.
        silences: of the next Sets, whether they are carried out; they are not answered.
        refused_subscription: status and text of every Subscribe, if any.
        ended_gets: number of Gets that meet the end of an idle connection, as grpcio answers then.
        streams_end: whether a subscription ends with the first change, as one that redis drops.
        loses: whether notifications of changes are lost, as Redis publishes without a receipt.
        kept: keys whose rows of states nothing removes.
    """

    SILENCE = 60.0
    """How long a Set is not answered, in s; the end of the server ends it."""

    def __init__(
        self,
        ports: int = 4,
        *,
        rows: str = "hld",
        deleted: str = "table",
        updated: str = "rows",
        updater: bool = True,
        empty: str = "absent",
    ) -> None:
        self.empty = empty
        self.rows, self.deleted, self.updated, self.updater = rows, deleted, updated, updater
        leaf = {"hld": "state", "kvm": "config_status"}[rows]
        self.config: Tables = {
            "DEVICE_METADATA": {"localhost": {"platform": "x86_64-ocs"}},
            "OCS_PORT": {
                f"{number}{side}": {"label": "", leaf: "normal"}
                for number in range(1, ports + 1)
                for side in "AB"
            },
        }
        self.state: Tables = {"EEPROM_INFO": {"0x23": {"Value": "SN1"}}}
        self.states = TABLE if rows == "hld" else f"{TABLE}_TABLE"
        self.requests: list[Any] = []
        self.refusals: list[tuple[bool, str | None, str]] = []
        self.silences: list[bool] = []
        self.refused_subscription: tuple[str, str] | None = None
        self.ended_gets = 0
        self.streams_end = False
        self.loses = False
        self.made = ("tuning", "tuned") if rows == "hld" else ("disabled", "enabled")
        self._watchers: list[queue.Queue[tuple[str, str, str]]] = []
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        if rows == "kvm":
            self._poller = threading.Thread(target=self._poll, daemon=True)
            self._poller.start()

    def stop(self) -> None:
        """End the thread that writes rows of states."""
        self._stopped.set()
        if self.rows == "kvm":
            self._poller.join()

    # ------------------------------------------------------------------ what the switch does

    def configure(self, *keys: str) -> None:
        """Have cross-connects from the beginning, tuned."""
        for key in keys:
            self.config.setdefault(TABLE, {})[key] = sides(key)
            self.hset(self.states, key, self.status(key, self.made[-1]))

    def status(self, key: str, word: str) -> Row:
        """Return a row of states in which everything is `word`."""
        if self.rows == "kvm":
            path = ",".join(sides(key).values())
            return {"physical_path": path, "status": word, "insertion_loss_dB": "1.20"}
        return {**sides(key), "a_side_status": word, "b_side_status": word}

    def hset(self, table: str, key: str, row: Row) -> None:
        """Write a row of STATE_DB, which Redis notifies whether it differs or not."""
        with self._lock:
            self.state.setdefault(table, {})[key] = dict(row)
            self._notify("hset", table, key)

    def delete(self, table: str, key: str) -> None:
        """Delete a row of STATE_DB; a table without rows is none (Redis)."""
        with self._lock:
            if self.state.get(table, {}).pop(key, None) is not None:
                self._notify("del", table, key)
            if not self.state.get(table):
                self.state.pop(table, None)

    def _notify(self, event: str, table: str, key: str) -> None:
        for watcher in [] if self.loses else self._watchers:
            watcher.put((event, table, key))

    def _carry_out(self, config: Tables) -> None:
        """Take a configuration, and let the hardware follow (the KVM image: at its next poll)."""
        with self._lock:
            before, after = self.config.get(TABLE, {}), config.get(TABLE, {})
            gone, new = before.keys() - after.keys(), after.keys() - before.keys()
            self.config = config
            if self.rows == "hld":
                for key in sorted(gone):
                    self.delete(self.states, key)
                for word in self.made:
                    for key in sorted(new):
                        self.hset(self.states, key, self.status(key, word))

    def _poll(self) -> None:
        while not self._stopped.wait(POLL):
            with self._lock:
                wanted = self.config.get(TABLE, {})
                for key in set(self.state.get(self.states, {})) - set(wanted):
                    self.delete(self.states, key)
                for key in wanted:
                    here = key in self.state.get(self.states, {})
                    self.hset(self.states, key, self.status(key, self.made[here]))

    # ----------------------------------------------------------------------------------- Get

    def _value(self, path: Any, context: Any) -> Any:
        """Return what a path has: None where a table has no rows, and another one is named so."""
        database, _, table, *rest = (each.name for each in path.elem)
        tables = self.config if database == "CONFIG_DB" else self.state
        # `redisDb.Keys(tableName + "*")`: tables whose names begin so count too.
        if not any(name.startswith(table) and rows for name, rows in tables.items()):
            where = f"{database} {'|'.join((table, *rest))}"
            context.abort(grpc.StatusCode.NOT_FOUND, f"Failed to find {where} <nil> []")
        value: Any = tables.get(table, {})
        for name in rest:
            value = value.get(name) if isinstance(value, dict) else None
        if value is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"No valid entry found for path {path}")
        return value or ({} if self.empty == "object" else None)

    def Get(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol file's name
        """Answer with a notification for each path that has a value."""
        if self.ended_gets:
            self.ended_gets -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "connection idle")
        with self._lock:
            found = []
            for path in request.path:
                if [each.name for each in path.elem] == ["osversion", "build"]:
                    value: Any = {"build_version": "SONiC.x", "error": ""}
                else:
                    value = self._value(path, context)
                if value is not None:
                    found.append(_notification(path, value))
        return gnmi_pb2.GetResponse(notification=found)

    # ----------------------------------------------------------------------------------- Set

    def Set(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Apply a SetRequest as one JSON Patch of CONFIG_DB."""
        self.requests.append(request)
        if self.silences:
            if self.silences.pop(0):
                self._carry_out(self._patched(request))
            self._stopped.wait(self.SILENCE)
            context.abort(grpc.StatusCode.UNKNOWN, "nobody waits for this")
        carried_out, code, text = self.refusals.pop(0) if self.refusals else (True, None, "")
        if carried_out:
            with self._lock:
                try:
                    config = self._patched(request)
                except (JsonPatchException, JsonPointerException, ValueError) as error:
                    scopes = "Error: Failed to apply patch on the following scopes:\n- localhost: "
                    context.abort(grpc.StatusCode.UNKNOWN, f"{scopes}{str(error)[:200]}")
                self._carry_out(config)
        if code is not None:
            context.abort(grpc.StatusCode[code], text)
        done = [(path, gnmi_pb2.UpdateResult.DELETE) for path in request.delete]
        done += [(each.path, gnmi_pb2.UpdateResult.UPDATE) for each in request.update]
        return gnmi_pb2.SetResponse(
            response=[gnmi_pb2.UpdateResult(path=path, op=op) for path, op in done]
        )

    def _patched(self, request: Any) -> Tables:
        patch = []
        left: Any = json.loads(json.dumps(self.config))
        for path in request.delete:
            names = [each.name for each in path.elem][2:]
            if _removed(left, names):  # `Remove failed, ignore`
                patch.append({"op": "remove", "path": "/" + "/".join(names)})
        for update in request.update:
            names = [each.name for each in update.path.elem][2:]
            value = json.loads(update.val.json_ietf_val)
            patch.append({"op": "add", "path": "/" + "/".join(names), "value": value})
        config: Tables = apply_patch(self.config, patch)
        empty = [table for table, rows in config.items() if not rows]
        if self.updater and empty:
            raise ValueError(
                "given patch is not valid because it will result in empty tables which is not "
                f"allowed in ConfigDb. Table: {empty[0]}"
            )
        return config

    # ----------------------------------------------------------------------------- Subscribe

    def Subscribe(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        """Send tables, and their changes as they come (STREAM, ON_CHANGE)."""
        first = next(requests)
        if self.refused_subscription is not None:
            code, text = self.refused_subscription
            context.abort(grpc.StatusCode[code], text)
        paths = [each.path for each in first.subscribe.subscription]
        watcher: queue.Queue[tuple[str, str, str]] = queue.Queue()
        with self._lock:
            self._watchers.append(watcher)
            values = [self._value(path, context) or {} for path in paths]
        yield from (_response(_notification(*each)) for each in zip(paths, values, strict=True))
        yield gnmi_pb2.SubscribeResponse(sync_response=True)
        last: dict[str, Any] = {}
        while context.is_active():
            try:
                event, table, key = watcher.get(timeout=0.1)
            except queue.Empty:
                continue
            path = next((each for each in paths if each.elem[-1].name == table), None)
            if path is None:
                continue
            if self.streams_end:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "queue Gext(1): disposed")
            if event == "del":
                yield self._gone(path, key)
                continue
            row = self.state.get(table, {}).get(key)
            if row is None or last.get(table) == {key: row}:  # `No change from previous data`
                continue
            last[table] = {key: row}
            yield from self._new(path, key, row)

    def _gone(self, path: Any, key: str) -> Any:
        if self.deleted == "empty":
            return _response(_notification(path, {key: {}}))
        named = path if self.deleted == "table" else _below(path, key)
        return _response(gnmi_pb2.Notification(timestamp=1, delete=[named]))

    def _new(self, path: Any, key: str, row: Row) -> Iterator[Any]:
        if self.updated == "leaves":
            for leaf, value in row.items():
                yield _response(_notification(_below(path, key, leaf), value))
        else:
            yield _response(_notification(path, row if self.updated == "keyless" else {key: row}))


def _removed(config: Any, names: list[str]) -> bool:
    """Remove what `names` lead to, and what is empty then (json_client.go); False for nothing."""
    name, *rest = names
    if not isinstance(config, dict) or name not in config:
        return False
    if rest and not _removed(config[name], rest):
        return False
    if not rest or not config[name]:
        del config[name]
    return True


def _notification(path: Any, value: Any) -> Any:
    content = gnmi_pb2.TypedValue(json_ietf_val=json.dumps(value).encode())
    update = gnmi_pb2.Update(path=path, val=content)
    return gnmi_pb2.Notification(timestamp=1, update=[update])


def _response(notification: Any) -> Any:
    return gnmi_pb2.SubscribeResponse(update=notification)


def _below(path: Any, *names: str) -> Any:
    made = gnmi_pb2.Path()
    made.CopyFrom(path)
    for name in names:
        made.elem.add(name=name)
    return made


@contextlib.contextmanager
def driven(
    published: PublishedSonic, folder: Path, ports: int = 4, idle_ms: int = 5_000, **stated: Any
) -> Iterator[SonicGnmi]:
    """Serve `published` on loopback, and yield a driver of it.

    An idle connection is closed after `idle_ms` (telemetry.go, `idle_conn_duration`: 5 s).
    stated: options of the driver.
    """
    certificate = ServerCertificate("grpcio")
    file = folder / "trusted.pem"
    file.write_text(certificate.text)
    pool = futures.ThreadPoolExecutor(8)
    options = [("grpc.max_send_message_length", -1), ("grpc.max_connection_idle_ms", idle_ms)]
    server = grpc.server(pool, options=options)
    gnmi_pb2_grpc.add_gNMIServicer_to_server(published, server)
    pair = (certificate.key().encode(), certificate.text.encode())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    endpoint = Endpoint("gnmi", "127.0.0.1", port, ("admin", "secret"), certificates=file)
    driver = SonicGnmi("ocs", endpoint, SystemClock(), ports=ports, **stated)
    try:
        yield driver
    finally:
        driver.close()
        published.stop()
        server.stop(0).wait()
        pool.shutdown(wait=False)
