"""gNMI on the databases of a simulated SONiC switch.

Paths are those of the origin `sonic-db`, as the tests of sonic-gnmi and sonic-mgmt write them:
`/sonic-db:CONFIG_DB/localhost/TABLE/KEY/LEAF`, values JSON_IETF; a Set is one transaction
(SONiC OCS High Level Design, revision 0.5), which is carried out as a JSON Patch (RFC 6902) of
CONFIG_DB: deletes of what is there by `remove`, then replaces by `replace`, then updates by `add`
(sonic-gnmi, mixed_db_client.go). Also `osversion/build` of the target OTHERS (sonic-gnmi,
non_db_client). How a deleted entry is reported, and whether a table without entries may be patched:
`dialects`. Guessed: the times of calls, and the texts of refusals but for "Invalid elem length" and
"Set RPC does not support".
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jsonpatch import JsonPatchException, apply_patch
from jsonpointer import JsonPointerException, resolve_pointer
from pygnmi.spec.v080 import gnmi_pb2

from lightrig.instruments.clock import Clock, Scheduled
from lightrig.instruments.simulated.devices.sonic_switch import ConfigError, SonicSwitch
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection
from lightrig.instruments.simulated.protocols.grpc_server import reply, trailers

READING = 10_000_000
COMMITTING = 50_000_000
"""Time of a Get, and of a Set, in ns."""

UNKNOWN, INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED = 2, 3, 5, 12
_DATABASES = ("CONFIG_DB", "STATE_DB")
_SHORTEST_SAMPLE = 1_000_000_000

Tree = Mapping[str, Any]


class RefusedCallError(Exception):
    """Raised for a call that the switch refuses, with the status of gRPC."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class SonicGnmi:
    """The service of one switch, for any number of calls."""

    def __init__(self, switch: SonicSwitch, clock: Clock, name: str) -> None:
        self.switch = switch
        self.clock = clock
        self.name = name

    def call(self, connection: DeviceConnection, index: int) -> "GnmiCall":
        """Open the session of a new call."""
        return GnmiCall(self, connection, f"{self.name}/gnmi{index:08d}")

    def stamp(self) -> int:
        """Return the time in ns since 1970, in virtual time since its beginning."""
        offset = self.clock.realtime_offset()
        return self.clock.now() + (offset.earliest if offset is not None else 0)

    def names(self, prefix: Any, path: Any) -> list[str]:
        """Return the database and the further names of a path."""
        origin = path.origin or prefix.origin
        target = path.target or prefix.target
        names = [each.name for each in (*prefix.elem, *path.elem)]
        if names and ":" in names[0]:  # some clients leave the origin in the first name
            origin, _, names[0] = names[0].partition(":")
        names = [each for each in names if each]
        if target in {*_DATABASES, "OTHERS"}:
            return [target, *(names[1:] if names[:1] == ["localhost"] else names)]
        if origin not in {"", "sonic-db"} or not names or names[0] not in _DATABASES:
            raise RefusedCallError(UNIMPLEMENTED, f"no data of {origin or 'no origin'}: {names}")
        if names[1:2] != ["localhost"]:
            raise RefusedCallError(INVALID_ARGUMENT, "Invalid elem length or namespace")
        return [names[0], *names[2:]]

    def read(self, names: list[str]) -> Any:
        """Return the value at a path."""
        database, *rest = names
        if database == "OTHERS":
            if rest != ["osversion", "build"]:
                raise RefusedCallError(NOT_FOUND, f"no {'/'.join(rest)}")
            return {"build_version": self.switch.version(), "error": ""}
        if not rest:
            raise RefusedCallError(INVALID_ARGUMENT, "Invalid elem length 1")
        value: Any = self.switch.table(database, rest[0])
        for name in rest[1:]:
            value = value.get(name) if isinstance(value, Mapping) else None
        if not value and value != "":
            raise RefusedCallError(NOT_FOUND, f"No valid entry found on {'/'.join(names)}")
        return value

    def commit(self, request: Any) -> Any:
        """Carry out a SetRequest in one transaction; return its response."""
        config = {t: self.switch.table("CONFIG_DB", t) for t in self.switch.tables("CONFIG_DB")}
        if not self.switch.keeps_empty_tables:
            config = {table: rows for table, rows in config.items() if rows}
        patch: list[dict[str, Any]] = []
        results = []
        operations = (
            (request.replace, "replace", gnmi_pb2.UpdateResult.REPLACE),
            (request.update, "add", gnmi_pb2.UpdateResult.UPDATE),
        )
        try:
            for path in request.delete:
                pointer = self._pointer(request.prefix, path)
                if resolve_pointer(config, pointer, None) is not None:
                    patch.append({"op": "remove", "path": pointer})
                results.append((path, gnmi_pb2.UpdateResult.DELETE))
            for updates, operation, outcome in operations:
                for update in updates:
                    pointer = self._pointer(request.prefix, update.path)
                    patch.append({"op": operation, "path": pointer, "value": _content(update.val)})
                    results.append((update.path, outcome))
            patched = apply_patch(config, patch)
            if not self.switch.keeps_empty_tables and not all(patched.values()):
                raise JsonPatchException("it will result in empty tables")
            self.switch.configure(patched)
        except (JsonPatchException, JsonPointerException) as error:
            found = str(error).partition(" in {")[0]  # without the whole table
            raise RefusedCallError(UNKNOWN, f"Failed to apply patch: {found}") from error
        except ConfigError as error:
            raise RefusedCallError(INVALID_ARGUMENT, str(error)) from error
        return gnmi_pb2.SetResponse(
            prefix=request.prefix,
            response=[gnmi_pb2.UpdateResult(path=path, op=op) for path, op in results],
            timestamp=self.stamp(),
        )

    def _pointer(self, prefix: Any, path: Any) -> str:
        """Return a path of CONFIG_DB as a JSON pointer."""
        database, *rest = self.names(prefix, path)
        if database != "CONFIG_DB":
            raise RefusedCallError(UNIMPLEMENTED, f"Set RPC does not support {database}")
        if not rest:
            raise RefusedCallError(INVALID_ARGUMENT, "Invalid elem length 1")
        return "/" + "/".join(rest)


class GnmiCall:
    """Device end of one call."""

    def __init__(self, service: SonicGnmi, connection: DeviceConnection, owner: str) -> None:
        self._service = service
        self._connection = connection
        self._clock = service.clock
        self._owner = owner
        self._streams: list[_Stream] = []

    def received(self, data: bytes) -> None:
        """Take one message of the client."""
        method, _, message = data.partition(b"\n")
        name = method.decode().rpartition("/")[2]
        if not message:  # the client sends no more, which ends a subscription (sonic-gnmi)
            if name == "Subscribe" and self._streams:
                self.closed()
                self._connection.send(trailers())
            return
        took = COMMITTING if name == "Set" else READING
        self._clock.schedule(
            self._clock.now() + took, self._owner, lambda: self._carry_out(name, message[5:])
        )

    def closed(self) -> None:
        """End the subscriptions."""
        for stream in self._streams:
            stream.end()
        self._streams.clear()

    def _carry_out(self, method: str, message: bytes) -> None:
        try:
            self._answer(method, message)
        except RefusedCallError as error:
            self._connection.send(trailers(error.status, str(error)))

    def _answer(self, method: str, message: bytes) -> None:
        match method:
            case "Capabilities":
                answer = gnmi_pb2.CapabilityResponse(
                    supported_encodings=[gnmi_pb2.JSON, gnmi_pb2.JSON_IETF], gNMI_version="0.8.0"
                )
            case "Get":
                answer = self._get(_parsed(gnmi_pb2.GetRequest, message))
            case "Set":
                answer = self._service.commit(_parsed(gnmi_pb2.SetRequest, message))
            case "Subscribe":
                self._subscribe(_parsed(gnmi_pb2.SubscribeRequest, message))
                return
            case _:
                raise RefusedCallError(UNIMPLEMENTED, f"unknown method {method}")
        self._connection.send(reply(answer.SerializeToString()) + trailers())

    def _get(self, request: Any) -> Any:
        if request.encoding not in {gnmi_pb2.JSON, gnmi_pb2.JSON_IETF}:
            raise RefusedCallError(UNIMPLEMENTED, "unsupported encoding")
        notifications = []
        for path in request.path:
            value = self._service.read(self._service.names(request.prefix, path))
            notifications.append(
                _notification(self._service.stamp(), request.prefix, [(path, value)])
            )
        return gnmi_pb2.GetResponse(notification=notifications)

    def _subscribe(self, request: Any) -> None:
        if request.WhichOneof("request") == "poll":
            for stream in self._streams:
                stream.send_all()
            self._synchronized()
            return
        wanted = request.subscribe
        for subscription in wanted.subscription:
            names = self._service.names(wanted.prefix, subscription.path)
            stream = _Stream(self._service, wanted.prefix, subscription.path, names, self._update)
            self._streams.append(stream)
            stream.send_all()
        self._synchronized()
        if wanted.mode == gnmi_pb2.SubscriptionList.ONCE:
            self._connection.send(trailers())
        elif wanted.mode == gnmi_pb2.SubscriptionList.STREAM:
            for stream, subscription in zip(self._streams, wanted.subscription, strict=True):
                stream.follow(subscription, self._owner)

    def _update(self, notification: Any) -> None:
        message = gnmi_pb2.SubscribeResponse(update=notification)
        self._connection.send(reply(message.SerializeToString()))

    def _synchronized(self) -> None:
        message = gnmi_pb2.SubscribeResponse(sync_response=True)
        self._connection.send(reply(message.SerializeToString()))


class _Stream:
    """One path of a Subscribe call: the value that was last sent."""

    def __init__(
        self,
        service: SonicGnmi,
        prefix: Any,
        path: Any,
        names: list[str],
        send: Callable[[Any], None],
    ) -> None:
        self._service = service
        self._prefix = prefix
        self._path = path
        self._names = names
        self._send = send
        self._last: Any = None
        self._sampled: Scheduled | None = None

    def send_all(self) -> None:
        """Send the whole value, or that it is there no more."""
        before, self._last = self._last, self._value()
        stamp, prefix = self._service.stamp(), self._prefix
        if self._last is not None:
            self._send(_notification(stamp, prefix, [(self._path, self._last)]))
        elif before is not None:  # sonic-gnmi, PollRun
            self._send(_notification(stamp, prefix, [], [self._path]))

    def follow(self, subscription: Any, owner: str) -> None:
        """Send changes, or samples if the client asks for those."""
        if subscription.mode != gnmi_pb2.SAMPLE:
            self._service.switch.observers.append(self._changed)
            return
        clock = self._service.clock
        period = max(subscription.sample_interval, _SHORTEST_SAMPLE)

        def sample() -> None:
            self.send_all()
            self._sampled = clock.schedule(clock.now() + period, owner, sample)

        self._sampled = clock.schedule(clock.now() + period, owner, sample)

    def end(self) -> None:
        """Send nothing more."""
        if self._changed in self._service.switch.observers:
            self._service.switch.observers.remove(self._changed)
        if self._sampled is not None:
            self._sampled.cancel()

    def _value(self) -> Any:
        try:
            return self._service.read(self._names)
        except RefusedCallError:
            return None

    def _changed(self) -> None:
        """Send what differs: of a table its entries, of an entry or a leaf the value."""
        before, self._last = self._last, self._value()
        now = self._last
        if now == before:
            return
        if len(self._names) > 2:
            if now is None:
                self._send(_notification(self._service.stamp(), self._prefix, [], [self._path]))
            else:
                self._send(_notification(self._service.stamp(), self._prefix, [(self._path, now)]))
            return
        before, now = before or {}, now or {}
        changed = {key: leaves for key, leaves in now.items() if before.get(key) != leaves}
        deleted, removed = list[Any](), sorted(before.keys() - now.keys())
        match self._service.switch.deletions:
            case "table":
                deleted = [self._path] if removed else []
            case "empty":
                changed |= {key: {} for key in removed}
            case _:
                deleted = [_below(self._path, key) for key in removed]
        updates = [(self._path, changed)] if changed else []
        self._send(_notification(self._service.stamp(), self._prefix, updates, deleted))


def _parsed(kind: Any, message: bytes) -> Any:
    try:
        return kind.FromString(message)
    except Exception as error:  # DecodeError of one of protobuf's implementations
        raise RefusedCallError(13, f"no {kind.DESCRIPTOR.name}") from error


def _notification(
    at: int, prefix: Any, updates: Iterable[tuple[Any, Any]], deleted: Iterable[Any] = ()
) -> Any:
    return gnmi_pb2.Notification(
        timestamp=at,
        prefix=prefix,
        update=[
            gnmi_pb2.Update(
                path=path, val=gnmi_pb2.TypedValue(json_ietf_val=json.dumps(value).encode())
            )
            for path, value in updates
        ],
        delete=deleted,
    )


def _below(path: Any, key: str) -> Any:
    made = gnmi_pb2.Path()
    made.CopyFrom(path)
    made.elem.add(name=key)
    return made


def _content(value: Any) -> Any:
    """Return the JSON of a value."""
    kind = value.WhichOneof("value")
    if kind not in {"json_ietf_val", "json_val"}:
        raise RefusedCallError(INVALID_ARGUMENT, "Value encoding is not IETF JSON")
    try:
        return json.loads(getattr(value, kind))
    except ValueError as error:
        raise RefusedCallError(INVALID_ARGUMENT, f"no IETF JSON: {error}") from error
