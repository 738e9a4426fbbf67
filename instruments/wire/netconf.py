"""NETCONF (RFC 6241) through ncclient: replies, errors, timeouts on the bench's clock.

Every reply repeats its question's message-id, so none is ever taken for another's. What was not
answered in time ends its session, since half a message would stand in the way of all that follow.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lxml import etree
from ncclient.operations import RPC, Dispatch, EditConfig, Get, GetConfig

from instruments.clock import Clock, Span
from instruments.errors import (
    DisconnectedError,
    GarbledError,
)
from instruments.wire.netconf_ssh import NcSession, open_session
from instruments.wire.ssh import SshLogin
from instruments.wire.tagged import DEFAULT_TIMEOUT, Pending, TaggedSession
from instruments.wire.turns import Turns

_NO_NETCONF = "answered something that is not NETCONF"


@dataclass(frozen=True, slots=True)
class NetconfReply:
    """An answer without errors.

    Attributes:
        root: the `rpc-reply` element.
        received: when it was read.
    """

    root: Any
    received: int

    def entries(self, container: str, entry: str) -> list[dict[str, str]]:
        """The leaves of each `entry` in `container`, by name; namespaces are left out."""
        found = self.root.iterfind(f"{{*}}data/{{*}}{container}/{{*}}{entry}")
        return [_leaves(element) for element in found]

    def leaves(self, container: str) -> dict[str, str]:
        """The leaves of `container` itself; empty if the answer has no such container."""
        found = self.root.find(f"{{*}}data/{{*}}{container}")
        return {} if found is None else _leaves(found)


def _leaves(element: Any) -> dict[str, str]:
    return {_name(leaf): (leaf.text or "").strip() for leaf in element.iterchildren("{*}*")}


def _name(element: Any) -> str:
    name: str = etree.QName(element).localname
    return name


class NetconfSession(TaggedSession[NetconfReply]):
    """One NETCONF session with a switch; several rpcs may be under way at once.

    It connects with the first rpc, and again with the first one after the session was lost.
    `reports` holds the newest notifications.

    Args:
        instrument: the switch's name in error messages.
        host: name or address.
        port: TCP port, usually 830.
        clock: the bench's clock.
        login: user and password, or None for the user's own keys.
        user: whose keys, without a login; None for the name that SSH itself would use.
        known_hosts: file of host keys, None for the user's own.
        meanings: what error tags mean, and what to try, by tag.
        spurious: words in errors that are no refusal, in small letters: such errors are noted
            and set aside.
    """

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
    ) -> None:
        super().__init__(instrument, clock, meanings)
        self._address = (host, port)
        name, password = login or (user, None)
        self._login = SshLogin(name, password, known_hosts)
        self._spurious = tuple(spurious)
        self._opening = Turns(clock)
        self._session: NcSession | None = None
        self._last_id = 0
        if login:
            self.trace.mask(login[1])

    # ---------------------------------------------------------------------------- rpcs

    def get(self, criteria: str, timeout: int = DEFAULT_TIMEOUT) -> NetconfReply:
        """State and configuration below a subtree filter, within `timeout` ns.

        Raises what `edit` and `Pending.result` do.
        """
        return self._submit(_Get, filter=("subtree", criteria)).result(timeout)

    def get_config(self, criteria: str, timeout: int = DEFAULT_TIMEOUT) -> NetconfReply:
        """The running configuration below a subtree filter; see `get`."""
        running = {"source": "running", "filter": ("subtree", criteria)}
        return self._submit(_GetConfig, **running).result(timeout)

    def edit(self, config: str) -> Pending[NetconfReply]:
        """Begin to merge `config`, a whole `config` element, into the running configuration.

        Raises:
            UnreachableError: the session was down and could not be opened.
            DisconnectedError: it broke while the rpc was written.
        """
        return self._submit(_EditConfig, config, target="running", default_operation="merge")

    def call(self, operation: str, timeout: int = DEFAULT_TIMEOUT) -> NetconfReply:
        """Carry out an rpc of the switch's own, given as an XML element; see `get`."""
        return self._submit(_Dispatch, etree.fromstring(operation)).result(timeout)

    def close(self) -> None:
        """End the session; the next rpc would open it again."""
        self._drop(self._session)

    def _drop(self, session: NcSession | None) -> None:
        """End `session` and what waits for its answers, but none that was opened meanwhile."""
        if session is None:
            return
        lost: list[Pending[NetconfReply]] = []
        with self._lock:
            if self._session is session:
                self._session = None
                lost = self._all_taken()
        session.end()
        self._fail(lost, DisconnectedError, "had its session closed before it answered")

    def _submit(
        self, kind: "type[_Rpc]", *arguments: object, **options: object
    ) -> Pending[NetconfReply]:
        with self._opening:
            session = self._session
            if session is None or session.over:
                session = self._open()
        with self._lock:
            self._last_id += 1
            pending = Pending(self, "", str(self._last_id), self._clock)
            self._pending[pending.tag] = pending
        rpc = kind(session, pending)
        before = self._clock.now()
        try:
            rpc.request(*arguments, **options)
        except Exception as error:
            self._taken(pending.tag)
            self._drop(session)
            problem = "closed the session while an rpc was written"
            because = ("because", str(error) or type(error).__name__)
            raise self._error(DisconnectedError, problem, pending, because) from error
        pending.sent = Span(before, self._clock.now())
        return pending

    def _open(self) -> NcSession:
        host, port = self._address
        session = open_session(self.instrument, host, port, self._clock, self._login, self)
        about = f"connected to {host}:{port}, session {session.id}"
        self.trace.opened(about, f"netconf://{host}:{port}")
        with self._lock:
            self._session = session
        return session

    def forget(self, pending: Pending[NetconfReply], waited: int) -> bool:
        """Give up on `pending`, and on the session, unless its answer came just now."""
        given_up = super().forget(pending, waited)
        if given_up:
            self.close()
        return given_up

    def _what_came(self) -> str:
        return "nothing came that answers it"

    # ------------------------------------------------------------- on the session's thread

    def wrote(self, message: str) -> None:
        """Note what is about to be written; on the asker's thread."""
        self.trace.sent(message)

    def read(self, message: str) -> bool:
        """Note what came; False where nobody waits for it."""
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
        pending = self._taken(root.attrib["message-id"])
        if pending is None:
            self.trace.remarked("set aside: nobody waits for this message-id")
            return False
        self._answer(pending, root)
        return True

    def ended(self, session: NcSession, error: Exception) -> None:
        """Hear that `session` ended, and why."""
        self.trace.ended(str(error))
        lost: list[Pending[NetconfReply]] = []
        with self._lock:  # from here on an rpc opens another session
            if self._session is session:
                self._session = None
                lost = self._all_taken()
        because = ("because", str(error))
        if isinstance(error, EOFError | OSError):
            problem = "closed the session before it had answered"
            self._fail(lost, DisconnectedError, problem, because)
        else:
            self._fail(lost, GarbledError, _NO_NETCONF, because)

    def _answer(self, pending: Pending[NetconfReply], root: Any) -> None:
        for error in root.iterfind(".//{*}rpc-error"):
            said = _leaves(error)
            words = " ".join(map(str.strip, error.itertext())).lower()
            warning = said.get("error-severity") == "warning"
            if warning or any(word in words for word in self._spurious):
                self.trace.remarked(f"set aside: {said.get('error-message', words)}")
                continue
            code = said.get("error-tag", "rpc-error")
            text = " ".join(filter(None, (said.get("error-message"), said.get("error-path"))))
            pending.resolve(self._denied(pending, code, self.trace.masked(text)))
            return
        pending.resolve(NetconfReply(root, self._clock.now()))

    def _garbled(self, message: str, why: str) -> None:
        """Nobody knows whose answer that was, so nobody who waits can trust in one to come."""
        with self._lock:
            lost = self._all_taken()
        answered = ("answered", repr(self.trace.masked(message).strip()[:200]))
        self._fail(lost, GarbledError, _NO_NETCONF, ("because", self.trace.masked(why)), answered)


class _Rpc(RPC):
    """An rpc that leaves its operation, as text, with whoever waits.

    It has the number of its pending answer, where ncclient would draw a UUID: the traces of one
    seed are alike then.
    """

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
    pass


class _GetConfig(_Rpc, GetConfig):
    pass


class _EditConfig(_Rpc, EditConfig):
    pass


class _Dispatch(_Rpc, Dispatch):
    pass
