"""SONiC on an optical circuit switch, through its command line over SSH."""

import contextlib
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import FactoryLoss, Identity, Operation
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DeniedError, DisconnectedError
from lightrig.instruments.core.position_switch import PendingMove
from lightrig.instruments.servers.host.commands import (
    DEFAULT_TIMEOUT,
    CommandResult,
    Commands,
    Started,
)
from lightrig.instruments.switches.sonic_ocs.base import (
    BROKEN,
    DONE,
    OVERRIDES,
    POLL,
    TUNING,
    SonicSwitch,
    is_id,
)
from lightrig.instruments.wire.wire_session import LONGER
from lightrig.testbeds import Circuit
from lightrig.testbeds.parts import SshTimeouts

if TYPE_CHECKING:  # paramiko takes long to load; see `_connected`
    from lightrig.instruments.wire.ssh import SshShell

_CONFIG = ("show", "ocs", "cross-connect", "config")
_STATUS = ("show", "ocs", "cross-connect", "status")
_FACTORY_LOSS = ("show", "ocs", "factory-insertion-loss")
_PORTS = ("show", "ocs", "port", "config")
_PORTS_HEAD = ("id", "label", "state")
_CONFIG_HEAD = ("id", "a_side", "b_side")
_STATUS_HEAD = (*_CONFIG_HEAD, "a_side_status", "b_side_status")
_FACTORY_LOSS_HEAD = ("id", "frequency_THz", "temperature_C", "loss_dB", "accuracy_dB")
_SUCCESS = re.compile(
    r"(?:(?:config|ocs|add|delete|cross-connects?|[\d-]+[ab][-.,\dab]*)[\s:]+)*succeeded[.!]?",
    re.IGNORECASE,
)
"""A line of success; one that says more than commands and ids ("1 of 2 not succeeded") is none."""
_COMMANDS = 60_000_000_000


class SonicCommandLine(SonicSwitch):
    """A switch over its command line.

    A change is at most one list to delete and one list to add, in one line for a shell. Where an
    added circuit takes a port of a removed one, the mode `update` moves it, without a command of
    its own; otherwise the mode is `safe`, so that a port which somebody else took meanwhile is
    denied by the switch.

    Source: SONiC OCS High Level Design, revision 0.5 of 2026-04-20, section 9 (command syntax,
    modes, tables); sonic-mgmt, tests of `ocs cross-connect` (every success prints `succeeded`) and
    module ocs_cross_connect (stale entries). Port states: `tuned` in the High Level Design,
    `connected` and `failed` in the SONiC OCS developer guide of 2026-08. The text of a failure is
    documented nowhere: a command that does not print `succeeded`, with at most
    commands and ids before it, has failed.
    """

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
        self._version = version
        return Identity("SONiC", platform, serial, version)

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`, in one command line.

        Raises `DeniedError`, before anything is sent, where `add` would take a port of a
        configured circuit that is not in `remove`.
        """
        added = sorted(add)
        configured = self._configured() if remove else frozenset()
        stale = sorted(set(remove) - configured)  # only the hardware has them
        moved = {circuit for circuit in remove if _shares_a_port(circuit, added)} - set(stale)
        if moved:
            self._check_displaced(configured - set(remove), added)
        deleted = sorted(set(remove) - moved)
        commands = []
        if stale:
            commands.append(self._config("add", self._ids(stale), "update"))
        if deleted:
            commands.append(self._config("delete", self._ids(deleted)))
        if added:
            commands.append(self._config("add", self._ids(added), "update" if moved else "safe"))
        if not commands:
            return PendingMove.nothing(self.clock)
        started = self._connected().start(["sh", "-c", " && ".join(commands)])
        return PendingMove(started.asked, lambda: self._finish(started, commands, added))

    def factory_losses(self) -> Mapping[Circuit, FactoryLoss]:
        """Return the insertion loss of each cross-connect as the maker measured it.

        Of several conditions that are listed for a cross-connect the last counts. Raises
        `DeniedError` where the switch has no such table.
        """
        return {
            self._circuit(row[0]): FactoryLoss(*(self._number(row, i) for i in (3, 4, 1, 2)))
            for row in self._table(_FACTORY_LOSS, _FACTORY_LOSS_HEAD)
        }

    def labels(self) -> Mapping[int, str]:
        """Return the label of each port."""
        return {port: label for port, label, _ in self._port_table()}

    def set_label(self, port: int, text: str) -> None:
        """Label a port; the empty text removes its label."""
        self._run_config("ocs", "port", "label", self._port_id(port), text)

    def shutters(self, ports: Sequence[int]) -> Mapping[int, bool]:
        """Return whether the override of each of `ports` is `normal`, not `force_blocked`."""
        found = {}
        for port, _, state in self._port_table():
            if state not in OVERRIDES:
                raise self.garbled(" ".join(_PORTS), state, "override of a port")
            found[port] = OVERRIDES[state]
        if missing := set(ports) - found.keys():
            absent = self._port_id(min(missing))
            raise self.garbled(" ".join(_PORTS), f"no row of {absent}", f"table with {absent}")
        return {port: found[port] for port in ports}

    def set_shutters(self, ports: Sequence[int], *, is_open: bool) -> None:
        """Override `ports` with `normal`, or with `force_blocked`, one command each."""
        override = next(each for each, passes in OVERRIDES.items() if passes == is_open)
        for port in ports:
            self._run_config("ocs", "port", "state", self._port_id(port), override)

    def ask(self, command: str) -> str:
        """Run one line of the switch's shell; return what it prints, standard output first.

        Where an error or an output contains the password of the login, it is masked. Raises
        `DeniedError` for another exit status than 0, with code `CANNOT` for what is no line.
        """
        _, password = self.endpoint.login or ("", None)
        if not command.strip() or not command.isprintable():
            raise self.refused("expected one line of a shell", command=repr(command))
        if password and password in command:
            text = "it contains the password of the login, which this session uses by itself"
            raise self.refused(text)
        commands = self._connected()
        result = commands.start(["sh", "-c", command]).result(self._time_of_changes)
        masked = commands.trace.masked
        result = replace(result, stdout=masked(result.stdout), stderr=masked(result.stderr))
        if result.status:
            raise self._failed_command(command, result, result.stdout.splitlines())
        return (result.stdout + result.stderr).removesuffix("\n")

    def save_configuration(self) -> None:
        """Save the configuration: `config save -y`."""
        self._run_config("save", "-y")

    def restart(self, *, warm: bool) -> None:
        """Begin `reboot` or `warm-reboot`, which ends the connection."""
        command = [*shlex.split(self.become), "warm-reboot" if warm else "reboot"]
        with contextlib.suppress(DisconnectedError):
            result = self._connected().run(command, self._time_of_changes)
            if result.status:
                errors = result.stderr.splitlines()
                raise self._failed_command(" ".join(command), result, errors)
        self.close()

    def wire(self) -> list[str]:
        """Return the last commands and their outcomes."""
        return self._commands.trace.tail(40) if self._commands is not None else []

    def close(self) -> None:
        """End the connection."""
        shell, self._shell, self._commands = self._shell, None, None
        if shell is not None:
            shell.close()

    # -------------------------------------------------------------------------- change

    @property
    def _time_of_changes(self) -> int:
        return max(_COMMANDS, self.endpoint.timeouts.reply_ns or 0)

    def _finish(self, started: Started, commands: Sequence[str], added: Sequence[Circuit]) -> Span:
        result = started.result(self._time_of_changes)
        self._check_success(commands, result)
        # It may have tuned before its command line said that it succeeded.
        deadline = result.at.latest + TUNING
        before, asked = started.asked.earliest, self.clock.now()
        while waiting := self._not_tuned(added):
            before = asked
            if asked > deadline:
                raise self.not_done("does not tune", commands, waiting)
            if broken := {c: s for c, s in waiting.items() if BROKEN.intersection(s)}:
                raise self.not_done("cannot make", commands, broken)
            self.clock.sleep(POLL)
            asked = self.clock.now()
        return Span(before, self.clock.now())

    def _check_success(self, commands: Sequence[str], result: CommandResult) -> None:
        """Check that each command printed its success; the exit status may be 0 after a failure."""
        lines = [line.strip() for line in result.stdout.splitlines() if line.strip()]
        succeeded = [line for line in lines if _SUCCESS.fullmatch(line)]
        if result.status or len(succeeded) < len(commands):
            failed = [line for line in lines if line not in succeeded]
            raise self._failed_command(
                " && ".join(commands), result, failed, f"{len(succeeded)} of {len(commands)}"
            )

    def _not_tuned(self, added: Sequence[Circuit]) -> dict[Circuit, tuple[str, ...]]:
        """Return those of `added` that are not done yet, with the states of their sides."""
        if not added:
            return {}
        status = self._status()
        states = {circuit: status.get(circuit, ("absent",)) for circuit in added}
        return {c: sides for c, sides in states.items() if not DONE.issuperset(sides)}

    def _check_displaced(self, existing: Iterable[Circuit], added: Sequence[Circuit]) -> None:
        displaced = sorted(circuit for circuit in existing if _shares_a_port(circuit, added))
        if displaced:
            listed = ", ".join(map(self._id, displaced))
            raise self.refused(
                f"a port is in use by {listed}",
                "the mode `update` would take it away from a circuit that was not to be removed",
                "`show ocs cross-connect config` on the switch: who configured it?",
            )

    def _config(self, verb: str, *rest: str) -> str:
        return f"{self.become} config ocs cross-connect {verb} {' '.join(rest)}".strip()

    def _run_config(self, *what: str) -> None:
        command = [*shlex.split(self.become), "config", *what]
        result = self._connected().run(command, self._time_of_changes)
        if result.status or "error" in result.stdout.lower():
            raise self._failed_command(shlex.join(command), result, result.stdout.splitlines())

    # -------------------------------------------------------------------------- tables

    def _port_table(self) -> list[tuple[int, str, str]]:
        """Return number, label and override of each port.

        A label may be empty, or have blanks: the columns are those of the rule below the head.
        """
        text = self._show(*_PORTS)
        head, rule, *rows = [line for line in text.splitlines() if line.strip()] or ["", ""]
        spans = [match.span() for match in re.finditer("-+", rule)]
        if head.split() != list(_PORTS_HEAD) or len(spans) != len(_PORTS_HEAD):
            raise self.garbled(" ".join(_PORTS), text, "table of ports")
        table = []
        for row in rows:
            port, label, state = (row[begin:end].strip() for begin, end in spans)
            number = self._port_number(port)
            if number is None:
                raise self.garbled(" ".join(_PORTS), row, "row of this table")
            table.append((number, label, state))
        return table

    def _configured(self) -> frozenset[Circuit]:
        return frozenset(self._circuit(row[0]) for row in self._table(_CONFIG, _CONFIG_HEAD))

    def _status(self) -> dict[Circuit, tuple[str, ...]]:
        """Return the states of both sides of each cross-connect that the hardware has."""
        rows = self._table(_STATUS, _STATUS_HEAD)
        command = " ".join(_STATUS)
        return {self._circuit(row[0]): self.states_of_sides(command, row[3:]) for row in rows}

    def _table(self, command: Sequence[str], head: Sequence[str]) -> list[list[str]]:
        """Return the rows of a table; raises `GarbledError`."""
        text = self._show(*command)
        rows = [line.split() for line in text.splitlines() if line.strip()]
        if not rows or rows[0] != list(head):
            raise self.garbled(" ".join(command), text, f"table with the columns {', '.join(head)}")
        table = []
        for row in rows[1:]:
            if set(row[0]) == {"-"}:
                continue
            if len(row) != len(head) or not is_id(row[0]):
                raise self.garbled(" ".join(command), " ".join(row), "row of this table")
            table.append(row)
        return table

    def _number(self, row: Sequence[str], column: int) -> float:
        try:
            return float(row[column])
        except ValueError:
            expected = f"row with a number in column {column + 1}"
            raise self.garbled(" ".join(_FACTORY_LOSS), " ".join(row), expected) from None

    # ---------------------------------------------------------------------------- ids

    def _ids(self, circuits: Sequence[Circuit]) -> str:
        """Return a list of circuits, which are in ascending order; see `listed_with_ranges`."""
        if self.slot_ports:
            return ",".join(map(self._id, circuits))
        return listed_with_ranges([(c.ingress, c.egress - self.ports) for c in circuits])

    def _show(self, *command: str) -> str:
        result = self._connected().run(command)
        if result.status:
            raise self._failed_command(" ".join(command), result, result.stdout.splitlines())
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
                port=self.endpoint.port,
                login=SshLogin(user, password, self.endpoint.known_hosts, self.endpoint.ssh_config),
                timeouts=SshTimeouts(connect_ns=self.endpoint.timeouts.connect_ns),
            )
            self._commands = Commands(
                self.name,
                self._shell,
                self.clock,
                wire=str(self.endpoint),
                timeout_ns=self.endpoint.timeouts.reply_ns or DEFAULT_TIMEOUT,
            )
            self._commands.trace.mask(password or "")
            self._commands.advice = f"{self._commands.advice} {LONGER}"
        return self._commands

    def _failed_command(
        self, command: str, result: CommandResult, failed: Sequence[str], succeeded: str = ""
    ) -> DeniedError:
        """Return the error of a command line; `failed` are its lines that report no success.

        Its code is the exit status, or `no-success` where that is 0.
        """
        errors = result.stderr.splitlines()
        reasons = [line.strip() for line in (*errors, *failed) if line.strip()]
        missing = f"{succeeded} commands printed `succeeded`" if succeeded else "it printed nothing"
        printed = "; ".join(
            f"{name}: {text.strip()[-200:]!r}" if text.strip() else f"no {name}"
            for name, text in (("stdout", result.stdout), ("stderr", result.stderr))
        )
        return DeniedError(
            self.name,
            code=str(result.status or "no-success"),
            text=reasons[-1] if reasons else missing,
            command=command,
            answered=f"exit status {result.status}; {printed}",
            details=[
                *([("meaning", missing)] if succeeded else []),
                ("try", "the same by hand; may this user run `sudo -n config`?"),
            ],
            trace=self.wire()[-6:],
        )


def listed_with_ranges(pairs: Sequence[tuple[int, int]]) -> str:
    """Return cross-connects of ports of side A to side B, with ranges where they are neighbours.

    Pairs (1, 4), (2, 5), (9, 9) are `1A..2A-4B..5B,9A-9B`. pairs: in ascending order.
    """
    runs: list[list[tuple[int, int]]] = []
    for a, b in pairs:
        if runs and runs[-1][-1] == (a - 1, b - 1):
            runs[-1].append((a, b))
        else:
            runs.append([(a, b)])
    return ",".join(
        f"{a}A-{b}B" if len(run) == 1 else f"{a}A..{run[-1][0]}A-{b}B..{run[-1][1]}B"
        for run in runs
        for a, b in run[:1]
    )


def _shares_a_port(circuit: Circuit, existing: Iterable[Circuit]) -> bool:
    return any(circuit.ingress == e.ingress or circuit.egress == e.egress for e in existing)
