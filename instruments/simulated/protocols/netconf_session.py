"""A server's end of NETCONF: hello, framing 1.0 and 1.1, rpcs and their errors.

What rpcs do is a model's part. Written from RFC 6241 and RFC 6242.
"""

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from lxml import etree

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.protocols.commands import CommandQueue
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection

PROCESSING = 500_000
"""Time to read an rpc, and to write its reply, in ns."""

BASE = "urn:ietf:params:xml:ns:netconf:base:1.0"
_BASE_10, _BASE_11 = (f"urn:ietf:params:netconf:base:1.{minor}" for minor in (0, 1))
_WRITABLE = "urn:ietf:params:netconf:capability:writable-running:1.0"
_CHUNK = re.compile(rb"\n#(?:([1-9][0-9]*)|#)\n")

Element: TypeAlias = Any
"""An XML element of lxml, which ships no types."""


class RpcError(Exception):
    """An rpc-error."""

    def __init__(self, tag: str, message: str, *, path: str = "", kind: str = "application"):
        super().__init__(message)
        self.tag = tag
        self.message = message
        self.path = path
        self.kind = kind


@dataclass(frozen=True, slots=True)
class RpcReply:
    """Reply to an rpc: its content, its delay in ns, and an action at that moment.

    Without content it is ok.
    """

    content: Sequence[Element] = ()
    after: int = 0
    then: Callable[[], None] = lambda: None
    hangs_up: bool = False


class NetconfServerSession:
    """Device end of one client's session: rpcs are carried out one after the other.

    Args:
        connection: where messages go.
        owner: name of the session on the clock's agenda.
        number: its session-id.
        modules: what the hello says of the server's modules, as capabilities.
        execute: carries out an operation, or raises `RpcError`.
    """

    def __init__(
        self,
        connection: DeviceConnection,
        clock: Clock,
        owner: str,
        number: int,
        modules: Sequence[str],
        execute: Callable[[Element], RpcReply],
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._owner = owner
        self._execute = execute
        self._buffer = b""
        self._chunked: bool | None = None
        self._queue = CommandQueue(clock, owner, PROCESSING, self._carry_out)
        hello = _element("hello")
        listed = etree.SubElement(hello, f"{{{BASE}}}capabilities")
        for capability in (_BASE_10, _BASE_11, _WRITABLE, *modules):
            etree.SubElement(listed, f"{{{BASE}}}capability").text = capability
        etree.SubElement(hello, f"{{{BASE}}}session-id").text = str(number)
        self._write(hello)

    def received(self, data: bytes) -> None:
        """Take bytes; what ends a message depends on what both hellos have in common."""
        self._buffer += data
        while (message := self._cut()) is not None:
            if self._chunked is None:
                self._greeted(message)
                continue
            self._queue.add([message])

    def closed(self) -> None:
        """Discard rpcs that were not begun."""
        self._queue.clear()

    def _cut(self) -> bytes | None:
        """Return the next message, None while it is incomplete."""
        if not self._chunked:
            message, end, rest = self._buffer.partition(b"]]>]]>")
            if not end:
                return None
            self._buffer = rest
            return message.strip()
        message, at = b"", 0
        while (head := _CHUNK.match(self._buffer, at)) is not None:
            if head[1] is None:
                self._buffer = self._buffer[head.end() :]
                return message
            at = head.end() + int(head[1])
            message += self._buffer[head.end() : at]
        if len(self._buffer) - at > 14 and not self._buffer[at:].startswith(b"\n#"):
            self._connection.close()  # a framing error ends the session (RFC 6242, section 4.2)
            self._buffer = b""
        return None

    def _greeted(self, message: bytes) -> None:
        try:
            offered = [each.text for each in etree.fromstring(message).iter("{*}capability")]
        except etree.XMLSyntaxError:
            offered = []
        self._chunked = _BASE_11 in offered
        if not self._chunked and _BASE_10 not in offered:
            self._connection.close()

    def _carry_out(self, message: bytes) -> None:
        reply = _element("rpc-reply")
        answer = RpcReply()
        try:
            answer = self._execute(_operation(message, reply))
            reply.extend(answer.content or [_element("ok")])
        except RpcError as error:
            reply.append(error_element(error))

        def finish() -> None:
            answer.then()
            self._write(reply)
            if answer.hangs_up:
                self._connection.close()
            else:
                self._queue.done()

        self._clock.schedule(self._clock.now() + answer.after + PROCESSING, self._owner, finish)

    def _write(self, element: Element) -> None:
        data = etree.tostring(element, xml_declaration=True, encoding="UTF-8")
        if self._chunked:
            self._connection.send(b"\n#%d\n%s\n##\n" % (len(data), data))
        else:
            self._connection.send(data + b"]]>]]>")


def _operation(message: bytes, reply: Element) -> Element:
    """Return the operation of an rpc, and copy its attributes into `reply`; raise `RpcError`."""
    try:
        rpc = etree.fromstring(message)
    except etree.XMLSyntaxError as error:
        raise RpcError("malformed-message", str(error), kind="rpc") from error
    if rpc.tag != f"{{{BASE}}}rpc":
        raise RpcError("unknown-element", f"{local(rpc)} is no rpc", kind="rpc")
    for name, value in rpc.attrib.items():
        reply.set(name, value)
    # RFC 6241 has it without a namespace; a public client sends it with that of the base.
    if "message-id" not in rpc.attrib and f"{{{BASE}}}message-id" not in rpc.attrib:
        raise RpcError("missing-attribute", "an rpc needs a message-id", kind="rpc")
    operations = [child for child in rpc if isinstance(child.tag, str)]
    if len(operations) != 1:
        raise RpcError("missing-element", "an rpc needs one operation", kind="rpc")
    return operations[0]


def error_element(error: RpcError, severity: str = "error") -> Element:
    """An rpc-error."""
    element = _element("rpc-error")
    fields = {
        "error-type": error.kind,
        "error-tag": error.tag,
        "error-severity": severity,
        "error-path": error.path,
        "error-message": error.message,
    }
    for name, text in fields.items():
        if text:
            etree.SubElement(element, f"{{{BASE}}}{name}").text = text
    return element


def local(element: Element) -> str:
    """An element's name without its namespace."""
    name: str = element.tag.rpartition("}")[2]
    return name


def _element(name: str) -> Element:
    return etree.Element(f"{{{BASE}}}{name}", nsmap={None: BASE})


class SubtreeFilter:
    """One node of a subtree filter (RFC 6241, section 6), with the nodes in it.

    A node without a namespace fits any.
    """

    def __init__(self, criterion: Element) -> None:
        self.name = local(criterion)
        self._anywhere = criterion.tag.rpartition("}")[0][1:] in {"", BASE}
        self._tag = criterion.tag
        inner = list(criterion.iterchildren("*"))
        self._conditions = {
            local(each): each.text.strip()
            for each in inner
            if len(each) == 0 and (each.text or "").strip()
        }
        self._wanted = [
            SubtreeFilter(each) for each in inner if local(each) not in self._conditions
        ]

    def fits(self, element: Element) -> bool:
        """Whether this node is about an element of that name."""
        return bool(element.tag == self._tag or (self._anywhere and local(element) == self.name))

    def selected(self, element: Element) -> Element | None:
        """Return what it selects of a matching element, None for nothing."""
        if self._conditions:
            leaves = {local(leaf): leaf.text or "" for leaf in element}
            if any(leaves.get(name) != text for name, text in self._conditions.items()):
                return None
        if not self._wanted:
            return element
        selected_children = etree.Element(element.tag, nsmap=element.nsmap)
        for child in element:
            if local(child) in self._conditions:
                selected_children.append(deepcopy(child))
                continue
            found = (each.selected(child) for each in self._wanted if each.fits(child))
            chosen = next((one for one in found if one is not None), None)
            if chosen is not None:
                selected_children.append(deepcopy(chosen))
        return selected_children if len(selected_children) else None
