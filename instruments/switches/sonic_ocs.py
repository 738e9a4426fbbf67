"""SONiC on an optical circuit switch, through its command line over SSH."""

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity, Operation
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DeniedError, NotDoneError
from lightrig.instruments.core.instrument import Instrument, Option
from lightrig.instruments.core.position_switch import PendingMove
from lightrig.instruments.servers.commands import CommandResult, Commands, Started
from lightrig.testbeds import Circuit

if TYPE_CHECKING:  # paramiko takes long to load; see `_connected`
    from lightrig.instruments.wire.ssh import SshShell

_CONFIG = ("show", "ocs", "cross-connect", "config")
_STATUS = ("show", "ocs", "cross-connect", "status")
_ID = re.compile(r"(\d+)A-(\d+)B")
_POLL = 20_000_000
_TUNING = 10_000_000_000
_COMMANDS = 60_000_000_000


class SonicOcs(Instrument):
    """A switch whose ports have a side A, where light enters, and a side B, where it leaves.

    Ingress i is iA, egress N + j is jB. A circuit exists where the hardware status shows it,
    configured or not. An entry that only the hardware has cannot be deleted: it is added to the
    configuration first. All of a change is one command line for a shell; it is done when every
    new cross-connect is tuned on both sides.

    Source: the commands and tables that SONiC's own test framework uses. The format of an error
    is not documented, so any exit status other than zero is one.
    """

    schemes = ("ssh",)
    shared_options = ("stale",)
    ports = Option(int, 0, "number of ports", attribute="ingress_count")
    become = Option(str, "sudo -n", "prefix of every command that changes something")

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._commands: Commands | None = None
        self._shell: SshShell | None = None

    def identity(self) -> Identity:
        """Return platform, serial number and software version, as `show version` reports them."""
        text = self._show("show", "version")
        found = {
            key: match[1].strip()
            for key, match in (
                (key, re.search(rf"^{key}:[ \t]*(\S.*)$", text, re.MULTILINE))
                for key in ("SONiC Software Version", "Platform", "Serial Number")
            )
            if match is not None
        }
        if len(found) < 3:
            raise self.garbled("show version", text, "version")
        version, platform, serial = found.values()
        return Identity("SONiC", platform, serial, version)

    def circuits(self) -> frozenset[Circuit]:
        """Return every cross-connect that the hardware status shows, configured or not."""
        return frozenset(map(self._circuit, self._status()))

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`, in one command line."""
        added = [self._id(circuit) for circuit in sorted(add)]
        configured = self._table(_CONFIG, 3) if remove else {}
        lines = []
        for one in map(self._id, sorted(remove)):
            if one not in configured:  # stale: only the hardware has it
                lines.append(self._config("add", one, "update"))
            lines.append(self._config("delete", one))
        lines += [self._config("add", one, "update") for one in added]
        if not lines:
            return PendingMove.nothing(self.clock)
        command = " && ".join(lines)
        started = self._connected().start(["sh", "-c", command])
        return PendingMove(started.asked, lambda: self._finish(started, command, added))

    def wire(self) -> list[str]:
        """Return the last commands and their outcomes."""
        return self._commands.trace.tail(40) if self._commands is not None else []

    def close(self) -> None:
        """End the connection."""
        shell, self._shell, self._commands = self._shell, None, None
        if shell is not None:
            shell.close()

    # -------------------------------------------------------------------------- change

    def _finish(self, started: Started, command: str, added: Sequence[str]) -> Span:
        result = started.result(_COMMANDS)
        if result.status:
            raise self._failed_command(command, result)
        before = result.at.latest
        deadline = before + _TUNING
        while waiting := self._untuned(added):
            before = self.clock.now()
            if before > deadline:
                raise self.failed(
                    NotDoneError,
                    f"does not tune {', '.join(waiting)}",
                    command,
                    ("try", "is there light, is a fiber plugged in on both sides?"),
                )
            self.clock.sleep(_POLL)
        return Span(started.asked.latest if not added else before, self.clock.now())

    def _untuned(self, added: Sequence[str]) -> list[str]:
        if not added:
            return []
        status = self._status()
        return [one for one in added if status.get(one, ())[-2:] != ["tuned", "tuned"]]

    def _config(self, verb: str, *rest: str) -> str:
        return f"{self.become} config ocs cross-connect {verb} {' '.join(rest)}".strip()

    # -------------------------------------------------------------------------- tables

    def _status(self) -> dict[str, list[str]]:
        return self._table(_STATUS, 5)

    def _table(self, command: Sequence[str], columns: int) -> dict[str, list[str]]:
        """Return the rows of a table by their first column; raises `GarbledError`."""
        text = self._show(*command)
        rows = [line.split() for line in text.splitlines() if line.strip()]
        if not rows or rows[0][:3] != ["id", "a_side", "b_side"]:
            raise self.garbled(" ".join(command), text, "table of cross-connects")
        table = {}
        for row in rows[1:]:
            if set(row[0]) == {"-"}:
                continue
            if len(row) != columns or _ID.fullmatch(row[0]) is None:
                raise self.garbled(" ".join(command), " ".join(row), "row of this table")
            table[row[0]] = row
        return table

    def _id(self, circuit: Circuit) -> str:
        return f"{circuit.ingress}A-{circuit.egress - self.ports}B"

    def _circuit(self, one: str) -> Circuit:
        match = _ID.fullmatch(one)
        assert match is not None
        return Circuit(int(match[1]), self.ports + int(match[2]))

    def _show(self, *command: str) -> str:
        result = self._connected().run(command)
        if result.status:
            raise self._failed_command(" ".join(command), result)
        return result.stdout

    def _connected(self) -> Commands:
        if self._shell is not None and self._shell.lost:
            self.close()
        if self._commands is None:
            from lightrig.instruments.wire.ssh import SshLogin, SshShell  # noqa: PLC0415

            user, password = self.endpoint.login or (self.endpoint.user, None)
            self._shell = SshShell(
                self.name,
                self.endpoint.host,
                self.clock,
                port=self.endpoint.port or 22,
                login=SshLogin(user, password, self.endpoint.known_hosts),
            )
            self._commands = Commands(self.name, self._shell, self.clock, wire=str(self.endpoint))
        return self._commands

    def _failed_command(self, command: str, result: CommandResult) -> DeniedError:
        output = (result.stderr or result.stdout).strip().splitlines() or ["nothing"]
        advice = "the same by hand; may this user run `sudo -n config`?"
        return self.denied(command, str(result.status), output[-1], advice=advice)
