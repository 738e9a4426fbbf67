"""SONiC on an optical circuit switch, through its command line over SSH."""

import re
from collections.abc import Collection, Sequence

from instruments.capabilities import Identity, Operation
from instruments.clock import Clock, Span
from instruments.errors import DeniedError, GarbledError, NotDoneError
from instruments.registry import Spec
from instruments.servers.commands import CommandResult, Commands, Started
from instruments.switches.selector import Moved
from instruments.way import Way
from instruments.wire.ssh import SshLogin, SshShell
from testbeds import Circuit

_CONFIG = ("show", "ocs", "cross-connect", "config")
_STATUS = ("show", "ocs", "cross-connect", "status")
_ID = re.compile(r"(\d+)A-(\d+)B")
_POLL = 20_000_000
_TUNING = 10_000_000_000
_COMMANDS = 60_000_000_000


class SonicOcs:
    """A switch whose ports have a side A, where light enters, and a side B, where it leaves.

    Ingress i is iA, egress N + j is jB. What counts as made is what the hardware's status
    shows, configured or not. An entry that only the hardware has cannot be deleted: it is added
    first. All of a change is one command line for a shell; it is done when every new
    cross-connect is tuned on both sides.

    Source: the commands and tables that SONiC's own test framework uses. How an error is worded
    is not documented, so any status other than zero is one.

    Args:
        name: the switch's name in the testbed.
        way: how it is reached.
        clock: the bench's clock.
        ports: how many ports it has.
        become: put before every command that changes something (option `become`, `sudo -n`).
    """

    schemes = ("ssh",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "SonicOcs":
        """The driver of the switch that `spec` describes."""
        ports = getattr(spec, "ingress_count", 0)
        become = str(spec.options.get("become", "sudo -n"))
        return cls(spec.name, way, clock, ports=ports, become=become)

    def __init__(
        self, name: str, way: Way, clock: Clock, *, ports: int, become: str = "sudo -n"
    ) -> None:
        self.name = name
        self._way = way
        self._clock = clock
        self._ports = ports
        self._become = become
        self._commands: Commands | None = None
        self._shell: SshShell | None = None

    def identity(self) -> Identity:
        """Platform, serial number and software version, as `show version` names them."""
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
            raise self._garbled("show version", text)
        version, platform, serial = found.values()
        return Identity("SONiC", platform, serial, version)

    def circuits(self) -> frozenset[Circuit]:
        """Every cross-connect that the hardware shows, whether it is configured or not."""
        return frozenset(map(self._circuit, self._status()))

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`, all in one command line."""
        added = [self._id(circuit) for circuit in sorted(add)]
        configured = self._table(_CONFIG, 3) if remove else {}
        lines = []
        for one in map(self._id, sorted(remove)):
            if one not in configured:  # stale: the hardware alone has it
                lines.append(self._config("add", one, "update"))
            lines.append(self._config("delete", one))
        lines += [self._config("add", one, "update") for one in added]
        if not lines:
            now = self._clock.now()
            return Moved(Span(now, now), lambda: Span(now, now))
        command = " && ".join(lines)
        started = self._connected().start(["sh", "-c", command])
        return Moved(started.asked, lambda: self._finish(started, command, added))

    def wire(self) -> list[str]:
        """The last commands and what became of them."""
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
            raise self._denied(command, result)
        before = result.at.latest
        deadline = before + _TUNING
        while waiting := self._untuned(added):
            before = self._clock.now()
            if before > deadline:
                raise NotDoneError(
                    self.name,
                    f"does not tune {', '.join(waiting)}",
                    command=command,
                    details=[("try", "is there light, is a fiber plugged in on both sides?")],
                    trace=self.wire()[-6:],
                )
            self._clock.sleep(_POLL)
        return Span(started.asked.latest if not added else before, self._clock.now())

    def _untuned(self, added: Sequence[str]) -> list[str]:
        if not added:
            return []
        status = self._status()
        return [one for one in added if status.get(one, ())[-2:] != ["tuned", "tuned"]]

    def _config(self, verb: str, *rest: str) -> str:
        return f"{self._become} config ocs cross-connect {verb} {' '.join(rest)}".strip()

    # -------------------------------------------------------------------------- tables

    def _status(self) -> dict[str, list[str]]:
        return self._table(_STATUS, 5)

    def _table(self, command: Sequence[str], columns: int) -> dict[str, list[str]]:
        """The rows of a table by their first column; raises `GarbledError`."""
        text = self._show(*command)
        rows = [line.split() for line in text.splitlines() if line.strip()]
        if not rows or rows[0][:3] != ["id", "a_side", "b_side"]:
            raise self._garbled(" ".join(command), text)
        table = {}
        for row in rows[1:]:
            if set(row[0]) == {"-"}:
                continue
            if len(row) != columns or _ID.fullmatch(row[0]) is None:
                raise self._garbled(" ".join(command), " ".join(row))
            table[row[0]] = row
        return table

    def _id(self, circuit: Circuit) -> str:
        return f"{circuit.ingress}A-{circuit.egress - self._ports}B"

    def _circuit(self, one: str) -> Circuit:
        match = _ID.fullmatch(one)
        assert match is not None
        return Circuit(int(match[1]), self._ports + int(match[2]))

    def _show(self, *command: str) -> str:
        result = self._connected().run(command)
        if result.status:
            raise self._denied(" ".join(command), result)
        return result.stdout

    def _connected(self) -> Commands:
        if self._shell is not None and self._shell.lost:
            self.close()
        if self._commands is None:
            user, password = self._way.login or (self._way.user, None)
            self._shell = SshShell(
                self.name,
                self._way.host,
                self._clock,
                port=self._way.port or 22,
                login=SshLogin(user, password, self._way.known_hosts),
            )
            self._commands = Commands(self.name, self._shell, self._clock, wire=str(self._way))
        return self._commands

    def _denied(self, command: str, result: CommandResult) -> DeniedError:
        said = (result.stderr or result.stdout).strip().splitlines() or ["nothing"]
        return DeniedError(
            self.name,
            code=str(result.status),
            text=said[-1],
            command=command,
            details=[("try", "the same by hand; may this user run `sudo -n config`?")],
            trace=self.wire()[-6:],
        )

    def _garbled(self, command: str, answered: str) -> GarbledError:
        return GarbledError(
            self.name,
            "answered something that is no such table",
            command=command,
            details=[("answered", repr(answered[:200]))],
            trace=self.wire()[-6:],
        )
