"""A simulated Polatis over NETCONF; knows nothing of any driver.

Reads and edits the running configuration by the paths of the published YANG module; a container
without entries is left out, as captured of a unit in 2016, unless `empty_container` is `present`.
The option `openflow_errors` makes it do what one lab has seen: it adds an rpc-error about OpenFlow
to answers that are otherwise complete. With `revision` 2015-09-14 it has the tree of that unit
(valarmathip/Terafast): circuits are `pairs`, and labels, shutters and powers are below
`ports/port`, where a public program of 2018 opens shutters by the leaf `port-state`. The published
later revisions have that container beside the newer ones, as deprecated.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import cast, get_args

from lxml import etree

from lightrig.instruments.simulated.devices.polatis_yang import (
    CONTAINERS,
    MODULE,
    NAMESPACE,
    Container,
    Edit,
    Operation,
    PolatisYang,
    YangError,
    add_leaves,
)
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection
from lightrig.instruments.simulated.protocols.netconf_session import (
    BASE,
    Element,
    NetconfServerSession,
    RpcError,
    RpcReply,
    SubtreeFilter,
    error_element,
    local,
)

_OLDER = "2015-09-14"
_CONFIGURED = {"port-id", "port-label", "port-state", "peer-port"}
_OPENFLOW = RpcError(
    "operation-not-supported", "OpenFlow is not supported", path="/system-config/openflow"
)


class PolatisNetconf:
    """The NETCONF operations of one switch, for any number of sessions."""

    def __init__(
        self, tree: PolatisYang, forms: Mapping[str, str], *, openflow_errors: bool = False
    ) -> None:
        self._tree = tree
        self._forms = forms
        older = forms["revision"] == _OLDER
        names = ("product-information", "cross-connects") if older else CONTAINERS
        self._containers = {name: CONTAINERS[name] for name in names}
        if older:
            circuits = replace(CONTAINERS["cross-connects"], entry="pairs")
            self._containers["cross-connects"] = circuits
        self._openflow_errors = openflow_errors

    def session(self, connection: DeviceConnection, index: int) -> NetconfServerSession:
        """Open the session of a new client."""
        box = self._tree.box
        return NetconfServerSession(
            connection,
            box.clock,
            f"{box.name}%{index:04d}",
            index + 1,
            (f"{NAMESPACE}?module={MODULE}&revision={self._forms['revision']}",),
            self.execute,
        )

    def execute(self, operation: Element) -> RpcReply:
        """Carry out one operation; raise `RpcError`."""
        try:
            match local(operation):
                case "get":
                    return self._read(operation, state=True)
                case "get-config":
                    self._running(operation, "source")
                    return self._read(operation, state=False)
                case "edit-config":
                    return self._edit(operation)
                case "port-set-state":
                    enabled, disabled = (
                        [_port(each) for each in operation.iterchildren(f"{{*}}{name}")]
                        for name in ("port-enab", "port-disab")
                    )
                    done = self._tree.set_port_states(enabled, disabled)
                    return RpcReply((), done.after, done.then)
                case "lock" | "unlock":
                    return RpcReply()
                case "close-session":
                    return RpcReply(hangs_up=True)
        except YangError as error:
            raise RpcError(error.tag, error.message, path=error.path) from error
        raise RpcError("operation-not-supported", f"no operation {local(operation)}")

    def _running(self, operation: Element, side: str) -> None:
        """Raise `RpcError` unless the operation is on the running datastore, the only one."""
        store = operation.find(f"{{*}}{side}/{{*}}*")
        if store is None or local(store) != "running":
            name = "none" if store is None else local(store)
            raise RpcError("invalid-value", f"there is only the running datastore, not {name}")

    # --------------------------------------------------------------------------- reading

    def _read(self, operation: Element, *, state: bool) -> RpcReply:
        data = etree.Element(f"{{{BASE}}}data")
        criteria = operation.find("{*}filter")
        if criteria is None:
            for name, container in self._containers.items():
                if state or container.writable:
                    data.append(self._container(name, None))
            data.append(self._ports(state=state))
        elif criteria.get("type", "subtree") != "subtree":
            raise RpcError("operation-not-supported", "only subtree filters")
        else:
            for wanted in criteria.iterchildren("*"):
                data.extend(self._selected(wanted, state=state))
        content = [data]
        if self._openflow_errors:
            content.append(error_element(_OPENFLOW))
        return RpcReply(content)

    def _selected(self, wanted: Element, *, state: bool) -> Iterator[Element]:
        name, namespace = local(wanted), etree.QName(wanted).namespace
        if namespace not in {None, BASE, NAMESPACE}:
            return
        if name == "ports":
            container = self._ports(state=state)
        elif name not in self._containers or not (state or self._containers[name].writable):
            return
        else:
            container = self._container(name, wanted)
        found = SubtreeFilter(wanted).selected(container)
        if found is not None and len(found):
            yield found
        elif self._forms["empty_container"] == "present":
            yield etree.Element(container.tag, nsmap={None: NAMESPACE})

    def _ports(self, *, state: bool) -> Element:
        """Return the container of ports, which later revisions deprecate."""
        shown = self._forms["port_leaves"]
        ports = etree.Element(f"{{{NAMESPACE}}}ports", nsmap={None: NAMESPACE})
        for leaves in self._tree.deprecated_ports():
            if shown == "port-status":
                del leaves["port-state"]
            if shown == "port-state" or not state:
                del leaves["port-status"]
            opm = leaves.pop("opm", None)
            entry = etree.SubElement(ports, f"{{{NAMESPACE}}}port")
            add_leaves(entry, leaves)
            if opm and state:
                add_leaves(etree.SubElement(entry, f"{{{NAMESPACE}}}opm"), opm)
        return ports

    def _container(self, name: str, criteria: Element | None) -> Element:
        """Return a container with its leaves, or with the entries that `criteria` may select."""
        container = self._containers[name]
        element = etree.Element(f"{{{NAMESPACE}}}{name}", nsmap={None: NAMESPACE})
        if not container.entry:
            add_leaves(element, self._tree.leaves(name))
            return element
        for leaves in self._tree.entries(name, _keys(criteria, container.key)):
            add_leaves(etree.SubElement(element, f"{{{NAMESPACE}}}{container.entry}"), leaves)
        return element

    # --------------------------------------------------------------------------- editing

    def _edit(self, operation: Element) -> RpcReply:
        self._running(operation, "target")
        config = operation.find("{*}config")
        if config is None:
            raise RpcError("missing-element", "edit-config needs a config", kind="protocol")
        default = operation.findtext("{*}default-operation", "merge").strip()
        edits: list[Edit] = []
        for element in config.iterchildren("*"):
            name = local(element)
            if name == "ports" and self._forms["port_leaves"] != "port-status":
                return self._set_port_states(element)
            container = self._containers.get(name)
            if container is None or etree.QName(element).namespace not in {None, NAMESPACE}:
                raise RpcError("unknown-element", f"no container {name}")
            edits += _edits_of(element, container, _operation(element, default)) or [
                Edit(name, "merge")
            ]
        done = self._tree.edit(edits)
        return RpcReply((), done.after, done.then)

    def _set_port_states(self, ports: Element) -> RpcReply:
        """Set shutters, labels and peers by the container of ports, and nothing else."""
        states: dict[str, list[int]] = {"PC_ENABLED": [], "PC_DISABLED": []}
        named = []
        for entry in ports.iterchildren("*"):
            leaves = {local(leaf): leaf for leaf in entry.iterchildren("*")}
            if not {"port-id", "port-state"} <= leaves.keys() <= _CONFIGURED:
                raise RpcError(
                    "unknown-element", "only state, label and peer of a port are changed"
                )
            state = (leaves["port-state"].text or "").strip()
            if state not in states:
                raise RpcError("invalid-value", f"{state!r} is no state of a port")
            port = _port(leaves["port-id"])
            states[state].append(port)
            names = {
                known: (leaves[leaf].text or "").strip()
                for leaf, known in (("port-label", "label"), ("peer-port", "peer-port"))
                if leaf in leaves
            }
            named.append(Edit("port-config", "merge", port, names))
        self._tree.edit(named)
        done = self._tree.set_port_states(states["PC_ENABLED"], states["PC_DISABLED"])
        return RpcReply((), done.after, done.then)


def _edits_of(element: Element, container: Container, inherited: str) -> list[Edit]:
    """Return the edits of one container's element."""
    name = local(element)
    edits = []
    if inherited in {"replace", "delete", "remove"}:
        edits.append(Edit(name, cast(Operation, inherited)))
        inherited = "merge"
    for entry in element.iterchildren("*"):
        if local(entry) != container.entry:
            raise RpcError("unknown-element", f"no {local(entry)} in {name}")
        operation = _operation(entry, inherited)
        if operation == "none":
            continue
        leaves = {local(leaf): (leaf.text or "").strip() for leaf in entry.iterchildren("*")}
        key = leaves.pop(container.key, "")
        if not key.isdigit():
            raise RpcError("missing-element", f"{container.entry} needs a {container.key}")
        edits.append(Edit(name, cast(Operation, operation), int(key), leaves))
    return edits


def _operation(element: Element, inherited: str) -> str:
    """Return the operation attribute; one lab's switch accepts it without its namespace, too."""
    operation: str = element.get(f"{{{BASE}}}operation") or element.get("operation") or inherited
    if operation not in (*get_args(Operation), "none"):
        raise RpcError("bad-attribute", f"no operation {operation}", kind="protocol")
    return operation


def _keys(criteria: Element | None, key: str) -> set[int] | None:
    """Return the keys of the entries that a filter can select, None for all."""
    if criteria is None or len(criteria) == 0:
        return None
    keys = set()
    for entry in criteria.iterchildren("*"):
        named = (entry.findtext(f"{{*}}{key}") or "").strip()
        if not named.isdigit():
            return None
        keys.add(int(named))
    return keys


def _port(element: Element) -> int:
    text = (element.text or "").strip()
    if not text.isdigit():
        raise RpcError("invalid-value", f"{text!r} is no port")
    return int(text)
