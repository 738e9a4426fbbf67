"""A simulated Polatis over RESTCONF (RFC 8040); knows nothing of any driver.

Below /api/data are the paths of the published YANG module, with or without the module's name.
Answers are wrapped in it for both, as the vendor's own web page (quintons/polatis2, restlib.js)
unwraps them: it takes the first member. Not confirmed, and therefore chosen: the statuses of
refusals, decimals as JSON numbers, and that If-Match is honoured.
"""

import json
import urllib.parse
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lxml import etree

from lightrig.instruments.simulated.devices.polatis_system import VENDOR_MODULE, PolatisSystem
from lightrig.instruments.simulated.devices.polatis_yang import (
    CONTAINERS,
    MODULE,
    NAMESPACE,
    Done,
    Edit,
    Leaves,
    Operation,
    PolatisYang,
    YangError,
    add_leaves,
)
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection
from lightrig.instruments.simulated.protocols.http_server import (
    HttpRequest,
    HttpResponse,
    HttpServerSession,
)

JSON, XML = "application/yang-data+json", "application/yang-data+xml"
_ERRORS = "urn:ietf:params:xml:ns:yang:ietf-restconf"
_DROPPED_AFTER = 5_000_000_000
"""Time after which circuits made by POST are gone on units that drop them, in ns: about 5 s."""
_ALWAYS = {"Server": "", "Cache-Control": "private, no-cache, must-revalidate"}
_STATUS = {
    "in-use": 409,
    "data-exists": 409,
    "data-missing": 404,
    "operation-not-supported": 405,
    "operation-failed": 412,
}
"""The status of an error tag (RFC 8040, section 7); any other is 400."""

_EDITS: Mapping[str, Operation] = {
    "PUT": "replace",
    "POST": "create",
    "PATCH": "merge",
    "DELETE": "delete",
}


@dataclass(frozen=True, slots=True)
class _Resource:
    """Resource of a path below /api/data: a container, the list in it, or an entry of that."""

    container: str
    listed: bool
    key: int | None

    @classmethod
    def parse(cls, path: list[str]) -> "_Resource":
        module, colon, name = path[0].rpartition(":")
        container = CONTAINERS.get(name)
        if container is None or (colon and module != MODULE) or len(path) > 2:
            raise YangError("data-missing", f"no resource {'/'.join(path)}")
        entry, equals, key = path[1].rpartition(":")[2].partition("=") if path[1:] else ("",) * 3
        if entry != (container.entry if path[1:] else "") or (equals and not key.isdigit()):
            raise YangError("invalid-value", f"no resource {'/'.join(path)}")
        return cls(name, bool(entry), int(key) if key else None)


class PolatisRestconf:
    """The resources of one switch, for any number of connections."""

    def __init__(self, tree: PolatisYang, login: tuple[str, str], forms: Mapping[str, str]) -> None:
        self._tree = tree
        self._forms = forms
        self._system = PolatisSystem(tree, login)

    def session(self, connection: DeviceConnection, index: int) -> HttpServerSession:
        """Open the connection of a new client."""
        box = self._tree.box
        return HttpServerSession(connection, box.clock, f"{box.name}/{index:04d}", self.handle)

    def handle(self, request: HttpRequest) -> HttpResponse:
        """Return the response to one request."""
        if not self._system.may_log_in(request.login()):
            stranger = YangError("access-denied", "Authentication required")
            realm = {"WWW-Authenticate": 'Basic realm="api"'}
            return _refusal(request, stranger, 401, realm)
        path = urllib.parse.unquote(request.target.partition("?")[0]).strip("/").split("/")
        try:
            if path == ["api"]:
                return self._api(request)
            if path[:2] == ["api", "data"] and len(path) > 2:
                if self._system.has(path[2]):
                    return self._system_data(request, path[2:])
                return self._data(request, _Resource.parse(path[2:]))
            if path[:2] == ["api", "operations"] and len(path) == 3:
                return self._operation(request, path[2].rpartition(":")[2])
            raise YangError("data-missing", f"no resource {request.target}")
        except YangError as error:
            return _refusal(request, error, _STATUS.get(error.tag, 400))

    def _api(self, request: HttpRequest) -> HttpResponse:
        """Return the API resource (RFC 8040, section 3.3), by which programs try the connection."""
        if request.method not in {"GET", "HEAD"}:
            raise YangError("operation-not-supported", f"no method {request.method}")
        leaves = {"data": {}, "operations": {}, "yang-library-version": "2016-06-21"}
        element = etree.Element(f"{{{_ERRORS}}}restconf", nsmap={None: _ERRORS})
        for name, value in leaves.items():
            etree.SubElement(element, f"{{{_ERRORS}}}{name}").text = str(value or "")
        return _response(request, 200, {"ietf-restconf:restconf": leaves}, element, {})

    def _data(self, request: HttpRequest, resource: _Resource) -> HttpResponse:
        match request.method:
            case "GET" | "HEAD":
                version = {"ETag": self._version(resource)}
                if self._forms["no_entries"] != "empty" and not self._exists(resource):
                    if self._forms["no_entries"] == "no-content":
                        return HttpResponse(204, b"", {**_ALWAYS, **version})
                    raise YangError("data-missing", f"nothing at {request.target}")
                return _response(request, 200, *self._value(resource), version)
            case "OPTIONS":
                allowed = ", ".join(("GET", "HEAD", "OPTIONS", *_EDITS))
                return HttpResponse(200, b"", {**_ALWAYS, "Allow": allowed})
            case method if method in _EDITS:
                return self._edit(request, resource, _EDITS[method])
        raise YangError("operation-not-supported", f"no method {request.method}")

    def _system_data(self, request: HttpRequest, path: list[str]) -> HttpResponse:
        """Answer a request of what has names of its own in the path; see `PolatisSystem`."""
        if request.method in {"GET", "HEAD"}:
            try:
                name, value = self._system.read(path)
            except YangError:
                if self._forms["no_entries"] != "no-content" or "=" not in path[-1]:
                    raise
                return HttpResponse(204, b"", _ALWAYS)
            if value == [] and self._forms["no_entries"] == "no-content":
                return HttpResponse(204, b"", _ALWAYS)
            if value == [] and self._forms["no_entries"] == "not-found":
                raise YangError("data-missing", f"nothing at {request.target}")
            if "=" in path[-1] and self._forms["entry"] == "object":
                (value,) = value
            module, _, leaf = name.rpartition(":")
            root = etree.Element("data")
            _add(root, leaf, value, NAMESPACE.replace(MODULE, module))
            return _response(request, 200, {name: value}, root, {})
        if request.method not in _EDITS:
            raise YangError("operation-not-supported", f"no method {request.method}")
        content = None if request.method == "DELETE" else _parsed(request)
        done = self._system.edit(request.method, path, content)
        created = request.method == "POST"
        return HttpResponse(201 if created else 204, b"", _ALWAYS, done.after, done.then)

    def _exists(self, resource: _Resource) -> bool:
        keys = None if resource.key is None else {resource.key}
        name = resource.container
        return not CONTAINERS[name].entry or bool(self._tree.entries(name, keys))

    def _value(self, resource: _Resource) -> tuple[Any, Any]:
        """Return the content of a resource, for JSON and for XML."""
        name, container = resource.container, CONTAINERS[resource.container]
        root = etree.Element(f"{{{NAMESPACE}}}{name}", nsmap={None: NAMESPACE})
        if not container.entry:
            leaves = self._tree.leaves(name)
            add_leaves(root, leaves)
            return {f"{MODULE}:{name}": leaves}, root
        keys = None if resource.key is None else {resource.key}
        entries = self._tree.entries(name, keys)
        if keys and not entries:
            raise YangError("data-missing", f"no {container.entry} {resource.key} in {name}")
        for entry in entries:
            add_leaves(etree.SubElement(root, f"{{{NAMESPACE}}}{container.entry}"), entry)
        listed = [_rounded(entry) for entry in entries]
        if keys and self._forms["entry"] == "object":
            return {f"{MODULE}:{container.entry}": listed[0]}, root
        if resource.listed:
            return {f"{MODULE}:{container.entry}": listed}, root
        return {f"{MODULE}:{name}": {container.entry: listed}}, root

    def _version(self, resource: _Resource) -> str:
        """An ETag: the same as long as what can be configured there is the same."""
        if not CONTAINERS[resource.container].writable:
            return '"0"'
        state = json.dumps(self._tree.entries(resource.container), sort_keys=True)
        return f'"{zlib.crc32(state.encode()):08x}"'

    def _edit(self, request: HttpRequest, resource: _Resource, how: Operation) -> HttpResponse:
        if request.headers.get("if-match", "*") not in {"*", self._version(resource)}:
            raise YangError("operation-failed", "the resource has changed meanwhile")
        name, container = resource.container, CONTAINERS[resource.container]
        entries = [] if how == "delete" else _entries(request, name)
        edits: list[Edit] = []
        if resource.key is not None:
            for entry in entries:
                if entry.get(container.key, str(resource.key)) != str(resource.key):
                    raise YangError("invalid-value", "the key is not the one that the path names")
                entry[container.key] = str(resource.key)
            edits += [Edit(name, "delete", resource.key)] if how == "delete" else []
        elif how in {"replace", "delete"}:
            edits.append(Edit(name, how))
        of_entry: Operation = "merge" if resource.key is None and how == "replace" else how
        for entry in entries:
            key = entry.pop(container.key, "")
            if not key.isdigit():
                raise YangError("missing-element", f"{container.entry} needs a {container.key}")
            edits.append(Edit(name, of_entry, int(key), entry))
        new = resource.key is not None and not self._tree.entries(name, {resource.key})
        done = self._tree.edit(edits)
        if request.method == "POST" and self._forms["post"] == "dropped":
            made = {edit.key for edit in edits if edit.key is not None}
            acknowledge = done.then
            done = Done(done.after, lambda: self._drop(name, made, then=acknowledge))
        created = how == "create" or (how == "replace" and new)
        return HttpResponse(201 if created else 204, b"", _ALWAYS, done.after, done.then)

    def _drop(self, name: str, made: Collection[int], *, then: Callable[[], None]) -> None:
        """Acknowledge a POST whose entries are gone after `_DROPPED_AFTER`."""
        then()
        clock = self._tree.box.clock
        edits = [Edit(name, "remove", key) for key in made]
        clock.schedule(
            clock.now() + _DROPPED_AFTER,
            f"{self._tree.box.name}!post",
            lambda: self._tree.edit(edits).then(),
        )

    def _operation(self, request: HttpRequest, name: str) -> HttpResponse:
        of_groups = {
            "add-group-cross-connect": self._system.connect_groups,
            "delete-group-cross-connect": self._system.disconnect_group,
        }
        if name != "port-set-state" and name not in of_groups:
            raise YangError("data-missing", f"no operation {name}")
        if request.method != "POST":
            raise YangError("operation-not-supported", f"no method {request.method}")
        content = _parsed(request)
        if name in of_groups:
            if not isinstance(content, Mapping):
                raise YangError("malformed-message", "an operation on groups needs JSON")
            given = content.get(f"{VENDOR_MODULE}:input", content.get("input"))
            done = of_groups[name](given if isinstance(given, Mapping) else {})
            return HttpResponse(204, b"", _ALWAYS, done.after, done.then)
        ports: dict[str, list[str]] = {"port-enab": [], "port-disab": []}
        if isinstance(content, Mapping):
            given = content.get(f"{MODULE}:input", content.get("input"))
            for leaf in ports if isinstance(given, Mapping) else ():
                listed = given.get(leaf, [])
                ports[leaf] = [str(port) for port in listed] if isinstance(listed, list) else [""]
        elif not isinstance(content, list):
            for element in content.iterchildren("*"):
                ports.get(etree.QName(element).localname, []).append(element.text or "")
        if wrong := [port for listed in ports.values() for port in listed if not port.isdigit()]:
            raise YangError("invalid-value", f"{wrong[0]!r} is no port")
        opened, shut = ([int(port) for port in listed] for listed in ports.values())
        done = self._tree.set_port_states(opened, shut)
        return HttpResponse(204, b"", _ALWAYS, done.after, done.then)


def _parsed(request: HttpRequest) -> Any:
    """Return the body, parsed from JSON, or as an XML element; raise `YangError`."""
    try:
        stated = request.headers.get("content-type", "")
        if "xml" in stated or ("json" not in stated and request.body.lstrip().startswith(b"<")):
            return etree.fromstring(request.body)
        return json.loads(request.body)
    except (ValueError, etree.XMLSyntaxError) as error:
        raise YangError("malformed-message", f"the body cannot be read: {error}") from error


def _entries(request: HttpRequest, name: str) -> list[dict[str, str]]:
    """Return the list entries of a body, whatever they are wrapped in."""
    content, entry = _parsed(request), CONTAINERS[name].entry
    if not isinstance(content, Mapping | list):
        elements = (
            [content] if etree.QName(content).localname == entry else content.iterchildren("*")
        )
        return [
            {etree.QName(leaf).localname: (leaf.text or "").strip() for leaf in each}
            for each in elements
        ]
    for wrapper in (name, entry):
        if isinstance(content, Mapping):
            content = content.get(f"{MODULE}:{wrapper}", content.get(wrapper, content))
    found = content if isinstance(content, list) else [content] if content else []
    if not all(isinstance(each, Mapping) for each in found):
        raise YangError("invalid-value", f"the body holds no {entry}")
    return [{leaf: str(value) for leaf, value in each.items()} for each in found]


def _add(parent: Any, name: str, value: Any, namespace: str) -> None:
    """Add a value to an element of XML: a list as an element for each entry."""
    for each in value if isinstance(value, list) else [value]:
        element = etree.SubElement(parent, f"{{{namespace}}}{name.rpartition(':')[2]}")
        if isinstance(each, Mapping):
            for leaf, content in each.items():
                _add(element, leaf, content, namespace)
        else:
            text = f"{each:.2f}" if isinstance(each, float) else str(each)
            element.text = text.lower() if isinstance(each, bool) else text


def _rounded(leaves: Leaves) -> Leaves:
    return {k: round(v, 2) if isinstance(v, float) else v for k, v in leaves.items()}


def _response(
    request: HttpRequest, status: int, value: Any, element: Any, headers: Mapping[str, str]
) -> HttpResponse:
    """`value` in JSON, or `element` in XML where the client prefers that."""
    if "xml" in request.headers.get("accept", ""):
        media, body = XML, etree.tostring(element)
    else:
        media, body = JSON, json.dumps(value).encode()
    return HttpResponse(status, body, {**_ALWAYS, "Content-Type": media, **headers})


def _refusal(
    request: HttpRequest, error: YangError, status: int, headers: Mapping[str, str] | None = None
) -> HttpResponse:
    content = {"error-type": "application", "error-tag": error.tag, "error-message": error.message}
    element = etree.Element(f"{{{_ERRORS}}}errors", nsmap={None: _ERRORS})
    inner = etree.SubElement(element, f"{{{_ERRORS}}}error")
    for name, text in content.items():
        etree.SubElement(inner, f"{{{_ERRORS}}}{name}").text = text
    return _response(
        request, status, {"ietf-restconf:errors": {"error": [content]}}, element, headers or {}
    )
