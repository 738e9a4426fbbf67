"""NETCONF (RFC 6241) through ncclient: replies, errors, timeouts on the bench's clock.

Every reply repeats the message-id of its rpc. An rpc that is not answered in time ends the session:
half a message may have come, and would be in the way of all that follow.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from lxml import etree
from ncclient.operations import RPC, Dispatch, EditConfig, Get, GetConfig

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.errors import DisconnectedError, GarbledError
from lightrig.instruments.wire.netconf_ssh import NcSession, open_session
from lightrig.instruments.wire.pipelined import Pending, TaggedSession
from lightrig.instruments.wire.ssh import SshLogin
from lightrig.testbeds.parts import WireTimeouts

_NO_NETCONF = "answered something that is not NETCONF"


@dataclass(frozen=True, slots=True)
class NetconfReply:
    """A reply without errors.

    Attributes:
        root: the `rpc-reply` element.
        received: stamp of its arrival, after it was read.
        not_before: when it had not come yet.
    """

    root: Any
    received: int
    not_before: int

    def entries(self, container: str, entry: str) -> list[dict[str, str]]:
        """Return the leaves of each `entry` in `container`, by name without namespace."""
        found = self.root.iterfind(f"{{*}}data/{{*}}{container}/{{*}}{entry}")
        return [_leaves(element) for element in found]

    def children(self, container: str) -> set[str]:
        """Return the names of the elements in `container`, without namespace."""
        found = self.root.iterfind(f"{{*}}data/{{*}}{container}/{{*}}*")
        return {_name(element) for element in found}

    def leaves(self, container: str) -> dict[str, str]:
        """Return the leaves of `container`; empty if the reply has no such container."""
        found = self.root.find(f"{{*}}data/{{*}}{container}")
        return {} if found is None else _leaves(found)


def _leaves(element: Any) -> dict[str, str]:
    """Return the leaves below `element`, those of containers in it too."""
    leaves = (each for each in element.iterdescendants("{*}*") if not len(each))
    return {_name(leaf): (leaf.text or "").strip() for leaf in leaves}


def _name(element: Any) -> str:
    name: str = etree.QName(element).localname
    return name


class _PendingRpc(Pending[NetconfReply]):
    """An rpc in flight.

    Attributes:
        content: see `_Rpc`.
    """

    content: str | None


class NetconfSession(TaggedSession[NetconfReply, NcSession]):
    """One NETCONF session with a switch; several rpcs may be in flight.

    It connects with the first rpc, and again with the first one after the session was lost.
    `reports` holds the newest notifications.

    Args:
        instrument: the switch's name in error messages.
        host: name or address.
        port: TCP port, usually 830.
        clock: the bench's clock.
        login: user and password, or None for the user's keys.
        user: name of the user without a login; None for the one that SSH would use.
        known_hosts: file of host keys, None for the user's.
        meanings: meaning and remedy of error tags, by tag.
        spurious: substrings, in lower case, of errors that are no refusal: in a reply that is
            complete without them they are noted and ignored.
        timeouts: time limits that the testbed file states.
    """

    _scheme = "netconf"
    usual_connect = 5.0
    _ends_on_timeout = True
    _advice = "is the switch busy, is its session limit reached?"

    def __init__(
        self,
        instrument: str,
        host: str,
        port: int,
        clock: Clock,
        login: tuple[str, str] | None = None,
        *,
        user: str | None = None,
        known_hosts: Path | None = None,
        meanings: Mapping[str, tuple[str, str]] | None = None,
        spurious: Collection[str] = (),
        timeouts: WireTimeouts = WireTimeouts(),  # noqa: B008 -- frozen
    ) -> None:
        secrets = (login[1],) if login else ()
        super().__init__(instrument, (host, port), clock, meanings, secrets, timeouts)
        name, password = login or (user, None)
        self._login = SshLogin(name, password, known_hosts)
        self._spurious = tuple(spurious)
        self._last_id = 0

    # ---------------------------------------------------------------------------- rpcs

    def get(self, criteria: str, timeout: int | None = None) -> NetconfReply:
        """Return state and configuration below a subtree filter, within `timeout` ns.

        Raises what `edit` and `Pending.result` raise.
        """
        return self._submit(_Get, filter=("subtree", criteria)).result(timeout)

    def get_config(self, criteria: str, timeout: int | None = None) -> NetconfReply:
        """Return the running configuration below a subtree filter; see `get`."""
        running = {"source": "running", "filter": ("subtree", criteria)}
        return self._submit(_GetConfig, **running).result(timeout)

    def edit(self, config: str) -> Pending[NetconfReply]:
        """Start merging `config`, a whole `config` element, into the running configuration.

        Raises:
            UnreachableError: the session was down and could not be opened.
            DisconnectedError: it ended while the rpc was written.
        """
        return self._submit(_EditConfig, config, target="running", default_operation="merge")

    def call(self, operation: str, timeout: int | None = None) -> NetconfReply:
        """Call a vendor-specific rpc, given as an XML element; see `get`."""
        return self._submit(_Dispatch, etree.fromstring(operation)).result(timeout)

    def _submit(
        self, kind: "type[_Rpc]", *arguments: object, **options: object
    ) -> Pending[NetconfReply]:
        with self._opening:
            session = self._opened()
        with self._lock:
            self._last_id += 1
            pending = _PendingRpc(self, "", str(self._last_id), self._clock)
            pending.content = kind.content
            self._pending[pending.tag] = pending
        rpc = kind(session, pending)
        before = pending.since = self._clock.now()
        self._clock.delay_write()
        try:
            rpc.request(*arguments, **options)
        except Exception as error:
            self._pop(pending.tag)
            self._drop(session)
            problem = "closed the session while an rpc was written"
            because = ("because", str(error) or type(error).__name__)
            raise self.failed(DisconnectedError, problem, pending.command, because) from error
        self._clock.delay_write(written=True)
        pending.sent = Span(before, self._clock.now())
        return pending

    def _open(self) -> NcSession:
        host, port = self._address
        session = open_session(
            self.instrument, host, port, self._clock, self._login, self, self.connect_timeout
        )
        self._note_opening(f", session {session.id}")
        with self._lock:
            self._connection = session
        return session

    def revision(self, module: str) -> str:
        """Return the revision of a YANG module that the server's hello states, else ""."""
        session = self._connection
        stated = session.server_capabilities if session else ()
        found = (re.search(rf"\bmodule={module}&revision=([\d-]+)", each) for each in stated)
        return next((each[1] for each in found if each), "")

    def _what_came(self) -> str:
        return "nothing came that answers it"

    # ------------------------------------------------------------- on the session's thread

    def wrote(self, message: str) -> None:
        """Note a message before it is written; on the querying thread."""
        self.trace.sent(message)

    def read(self, message: str, not_before: int) -> bool:
        """Note a received message; False if no rpc waits for it."""
        self.trace.received(message)
        try:
            root = etree.fromstring(message.strip().encode())
            name = _name(root)
        except (etree.XMLSyntaxError, ValueError) as error:
            self._garbled(message, f"it is no XML: {error}")
            return False
        if name == "notification":
            self.reports.append(self.trace.masked(message))
            return False
        if name == "hello":
            return True
        if name != "rpc-reply" or "message-id" not in root.attrib:
            self._garbled(message, "it answers nothing")
            return False
        pending = self._pop(root.attrib["message-id"])
        if pending is None:
            self.trace.remarked("set aside: no rpc waits for this message-id")
            return False
        self._answer(pending, root, not_before)
        return True

    def ended(self, session: NcSession, error: Exception) -> None:
        """Take the end of `session` and its reason."""
        self.trace.ended(str(error))
        because = ("because", str(error))
        if isinstance(error, EOFError | OSError):
            problem = "closed the session before it had answered"
            self._lose(session, DisconnectedError, problem, because)
        else:
            self._lose(session, GarbledError, _NO_NETCONF, because)

    def _answer(self, pending: Pending[NetconfReply], root: Any, not_before: int) -> None:
        errors = root.findall(".//{*}rpc-error")
        warned = [e for e in errors if e.findtext("{*}error-severity", "").strip() == "warning"]
        assert isinstance(pending, _PendingRpc)
        needed = pending.content
        content = {_name(each) for each in root.iterchildren("{*}*")} - {"rpc-error"}
        whole = needed in content if needed else bool(content)
        for error in errors:
            leaves = _leaves(error)
            text = " ".join(map(str.strip, error.itertext())).lower()
            if error in warned or (whole and any(each in text for each in self._spurious)):
                self.trace.remarked(f"set aside: {leaves.get('error-message', text)}")
                continue
            code = leaves.get("error-tag", "rpc-error")
            text = " ".join(filter(None, (leaves.get("error-message"), leaves.get("error-path"))))
            pending.resolve(self.denied(code, self.trace.masked(text), pending.command))
            return
        # An operation without data that caused a warning is confirmed without `ok` (RFC 6241, 4.4).
        if not whole and not (warned and needed != "data"):
            answered = ("answered", repr(self.trace.masked(etree.tostring(root).decode())[:200]))
            advice = ("try", "read the switch's state; is its NETCONF agent healthy?")
            problem = f"answered without {needed or 'ok or output'}"
            self._fail([pending], GarbledError, problem, answered, advice)
            return
        not_before = max(not_before, pending.since)
        pending.resolve(NetconfReply(root, self._clock.now(), not_before))

    def _garbled(self, message: str, why: str) -> None:
        """Fail all rpcs in flight: it is unknown which of them the message was meant for."""
        with self._lock:
            lost = self._pop_all()
        answered = ("answered", repr(self.trace.masked(message).strip()[:200]))
        self._fail(lost, GarbledError, _NO_NETCONF, ("because", self.trace.masked(why)), answered)


class _Rpc(RPC):
    """An rpc that stores its operation, as text, in its `Pending`.

    Its message-id is the number of its `Pending`, where ncclient would draw a UUID: so the traces
    of one seed are equal.

    Attributes:
        content: element without which a positive reply is not complete (RFC 6241, 7.1, 7.2, 7.7);
            None where it is the rpc's output, or `ok` if it has none (RFC 7950, 7.14.4).
    """

    content: ClassVar[str | None] = None
    _id: str

    def __init__(self, session: NcSession, pending: Pending[NetconfReply]) -> None:
        super().__init__(session, session.handler, async_mode=True)
        self._pending = pending
        self._listener._id2rpc.pop(self._id, None)  # noqa: SLF001
        self._id = pending.tag
        self._listener.register(self._id, self)

    def _wrap(self, subele: Any) -> str:
        self._pending.command = etree.tostring(subele).decode()
        message: str = super()._wrap(subele)
        return message


class _Get(_Rpc, Get):
    content = "data"


class _GetConfig(_Rpc, GetConfig):
    content = "data"


class _EditConfig(_Rpc, EditConfig):
    content = "ok"


class _Dispatch(_Rpc, Dispatch):
    pass
