"""Simulated SONiC on an optical circuit switch, over SSH; over gNMI where its extra is installed.

A cross-connect aA-bB connects side A of port a to side B of port b. Written from the SONiC OCS High
Level Design, revision 0.5, sections 6.1 and 9 (syntax, modes, tables, databases) and the
expectations of the tests of sonic-mgmt (`cross-connect succeeded`, `does not exist`, ids in lower
case, the help text). Guessed: the time of a command, the texts of all further failures, and their
exit status.
"""

import importlib.util
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from lightrig.instruments.simulated.devices.sonic_switch import (
    OVERRIDES,
    PORT_HEAD,
    STATUS_HEAD,
    ConfigError,
    SonicSwitch,
)
from lightrig.instruments.simulated.protocols.device_server import SessionFactory
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome, no_such_program
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.testbeds import Circuit

PROCESSING = 300_000_000
"""Time of one command of the CLI, in ns."""

_SPAN = re.compile(r"(\d+)A(?:\.\.(\d+)A)?-(\d+)B(?:\.\.(\d+)B)?")
_SAVED = "Running command: /usr/local/bin/sonic-cfggen -d --print-data > /etc/sonic/config_db.json"
_PROGRAMS = ("config", "reboot", "show", "sonic-db-cli", "warm-reboot")
_MODES = ("safe", "update", "overwrite")
_HELP = """\
Usage: config ocs cross-connect add [OPTIONS] <cross_connects> [safe|update|overwrite]

Options:
  --help  Show this message and exit.
"""


class SimulatedSonicOcs(SonicSwitch):
    """One switch.

    Its option `stale` lists cross-connects that only the hardware has; `port_states` is `hld` or
    `guide`, for the words of the High Level Design or of the developer guide; `persists` is `save`
    where only `config save` keeps the configuration over a restart, or `always` where each command
    does, as sonic-mgmt's module ocs_cross_connect says; `state_tables` is `hld` or `kvm`.
    """

    def __init__(self, context: DeviceContext) -> None:
        super().__init__(context)
        stale = str(self._spec.options.get("stale", "")).replace(" ", "")
        if stale:
            self._make(self._parse(stale))

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return the factory of gNMI calls, where its extra is installed; SSH runs commands."""
        if not all(map(importlib.util.find_spec, ("pygnmi", "h2", "jsonpatch"))):
            return {}
        from lightrig.instruments.simulated.devices.sonic_gnmi import SonicGnmi  # noqa: PLC0415

        return {"gnmi": SonicGnmi(self, self._around.clock, self._spec.name).call}

    def run_command(self, argv: Sequence[str]) -> ProgramOutcome:
        """Run one command line, or several joined by `&&` for a shell."""
        total = ProgramOutcome("", took=0)
        for tokens in _lines(argv):
            outcome = self.run(tokens)
            total = outcome._replace(
                stdout=total.stdout + outcome.stdout,
                stderr=total.stderr + outcome.stderr,
                took=total.took + outcome.took,
            )
            if outcome.status or outcome.hangs_up:
                break
        return total

    def run(self, argv: Sequence[str]) -> ProgramOutcome:
        """Run one program, also one that the switch's shell has called; see `ShellTools`."""
        tokens = _bare(argv)
        outcome = self._carry_out(tokens)
        if self._always_saves and tokens[:2] == ["config", "ocs"]:
            self._save()
        if tokens[:1] in (["config"], ["reboot"]):
            self._changed()
        return outcome

    def answers(self, argv: Sequence[str]) -> bool:
        """Whether a command is one of the switch, not of any host's shell."""
        return all(tokens[:1] and tokens[0] in _PROGRAMS for tokens in map(_bare, _lines(argv)))

    def replaced(self) -> Sequence[str]:
        """Return the programs of the switch."""
        return _PROGRAMS

    def class_files(self) -> Mapping[str, str]:
        """Return no files: ports of the switch are no network devices."""
        return {}

    def _carry_out(self, tokens: list[str]) -> ProgramOutcome:
        match tokens:
            case ["show", "version"]:
                return _printed(
                    f"SONiC Software Version: {self.version()}\n"
                    f"Platform: {self.platform()['platform']}\n"
                    f"Serial Number: {self._around.serial}\n"
                )
            case ["show", "ocs", *what]:
                return self._show(what)
            case ["config", "ocs", *what]:
                try:
                    return self._configure(what)
                except ConfigError as error:
                    return _failed(f"Error: {error}")
            case ["config", "save", "-y"]:
                self._save()
                return _printed(f"{_SAVED}\n")
            case ["config", "save"]:
                return _failed("Existing files will be overwritten, continue? [y/N]: Aborted!")
            case ["config", "reload", "-y"]:
                self._restart()
                return _printed("")
            case ["reboot" | "warm-reboot" as program]:
                if program == "reboot":
                    self._restart()
                return ProgramOutcome("", took=PROCESSING, hangs_up=True)
            case ["sonic-db-cli", database, operation, *arguments]:
                return self._database(database, operation.upper(), arguments)
            case ["show" | "config" | "sonic-db-cli", *_]:
                return ProgramOutcome("", "Error: No such command\n", 2, PROCESSING)
        return no_such_program(tokens or [""])

    # -------------------------------------------------------------------------- tables

    def _show(self, what: Sequence[str]) -> ProgramOutcome:
        match list(what):
            case ["cross-connect", "config"]:
                head: tuple[str, ...] = ("id", "a_side", "b_side")
                rows: list[tuple[str, ...]] = [
                    self._sides(circuit) for circuit in sorted(self._configured)
                ]
            case ["cross-connect", "status"]:
                head = STATUS_HEAD
                rows = [
                    (*self._sides(circuit), *((self._state(circuit),) * 2))
                    for circuit in sorted(self._tuned_at)
                ]
            case ["port", "config"]:
                head = ("id", "label", "state")
                rows = [
                    (port, self._labels.get(port, ""), OVERRIDES[port in self._blocked])
                    for port, _ in self._ports()
                ]
            case ["port", "status"]:
                head = PORT_HEAD
                rows = [self._port_status(*each) for each in self._ports()]
            case ["port-mapping"]:
                return _printed(self._port_mapping())
            case ["factory-insertion-loss"]:
                head = ("id", "frequency_THz", "temperature_C", "loss_dB", "accuracy_dB")
                rows = list(self.factory_losses())
            case _:
                return ProgramOutcome("", "Error: No such command\n", 2, PROCESSING)
        return _printed(_table(head, rows))

    def _port_mapping(self) -> str:
        """Return the table of faceplate and engine ports, in four pairs of columns.

        The engine's ports are taken to be those of the faceplate, as in the design's example.
        """
        a, b = self._spec.ingress_count, self._spec.egress_count
        half = (max(a, b) + 1) // 2
        head = ("Faceplate Port #", "Engine Port #") * 4
        size = (f"{a}x{b} Port #",) * 8

        def cells(n: int, side: str, count: int) -> tuple[str, str]:
            return (f"{n}{side}", f"{side}-{n}") if n <= count else ("", "")

        rows = [
            tuple(
                cell
                for side, count in (("A", a), ("B", b))
                for n in (i, i + half)
                for cell in cells(n, side, count)
            )
            for i in range(1, half + 1)
        ]
        widths = [max(map(len, column)) for column in zip(head, size, *rows, strict=True)]
        rule = tuple("-" * width for width in widths)
        return _columns((head, size, rule, *rows), widths)

    # ------------------------------------------------------------------------- databases

    def _database(self, database: str, operation: str, arguments: Sequence[str]) -> ProgramOutcome:
        """Answer `sonic-db-cli`, which prints a hash as Python does, and a list line by line."""
        if not self.tables(database):
            return _failed(f"Invalid database name input : '{database}'")
        entries = {
            f"{table}|{key}": leaves
            for table in self.tables(database)
            for key, leaves in self.table(database, table).items()
        }
        match operation, list(arguments):
            case "PING", []:
                return _printed("PONG\n")
            case "KEYS", [pattern]:
                keys = [key for key in sorted(entries) if fnmatchcase(key, pattern)]
                return _printed("".join(f"{key}\n" for key in keys))
            case "EXISTS", [key]:
                return _printed(f"{int(key in entries)}\n")
            case "HGETALL", [key]:
                return _printed(f"{entries.get(key, {})}\n")
            case "HGET", [key, leaf]:
                return _printed(f"{entries.get(key, {}).get(leaf, '')}\n")
        return _failed(f"Error: {operation} is not simulated; circuits are set by `config ocs`")

    # ------------------------------------------------------------------ cross-connects

    def _configure(self, what: Sequence[str]) -> ProgramOutcome:
        match list(what):
            case ["cross-connect", "add", *rest] if "--help" in rest:
                return _printed(_HELP)
            case ["cross-connect", "add", listed]:
                return self._add(self._parse(listed), "update")
            case ["cross-connect", "add", listed, mode] if mode in _MODES:
                return self._add(self._parse(listed), mode)
            case ["cross-connect", "delete", listed]:
                return self._delete(self._parse(listed))
            case ["port", "label", port, label]:
                self._labels[self._port(port)[0]] = label
                return _printed("")
            case ["port", "state", port, state] if state in OVERRIDES:
                self._block(*self._port(port), blocked=state == OVERRIDES[1])
                return _printed("")
        return ProgramOutcome("", f"Usage: config ocs {' '.join(what[:2])}\n", 2, PROCESSING)

    def _parse(self, listed: str) -> list[Circuit]:
        """Return the circuits of `1A-1B,2A-5B,12A..14A-12B..14B`; raises `ConfigError`."""
        circuits = []
        for part in listed.upper().split(","):
            match = _SPAN.fullmatch(part)
            if match is None or (match[2] is None) != (match[4] is None):
                raise ConfigError(f"invalid cross-connect {part}")
            a, b = int(match[1]), int(match[3])
            count = int(match[2] or a) - a + 1
            if count < 1 or count != int(match[4] or b) - b + 1:
                raise ConfigError(f"the ranges of {part} differ in length")
            circuits += [self._circuit(a + i, b + i) for i in range(count)]
        if any(len({c[side] for c in circuits}) < len(circuits) for side in (0, 1)):
            raise ConfigError(f"a port occurs twice in {listed}")
        return circuits

    def _add(self, circuits: Sequence[Circuit], mode: str) -> ProgramOutcome:
        known = self._configured | set(self._tuned_at)
        remaining = known - set(circuits)
        busy = {
            each
            for each in remaining
            if any(each.ingress == c.ingress or each.egress == c.egress for c in circuits)
        }
        if mode == "safe" and busy:
            listed = ", ".join(self._sides(circuit)[0] for circuit in sorted(busy))
            return _failed(f"Error: port in use by {listed}")
        self._remove(remaining if mode == "overwrite" else busy)
        self._configured |= set(circuits)
        self._make([circuit for circuit in circuits if circuit not in self._tuned_at])
        return _printed("add cross-connect succeeded\n")

    def _delete(self, circuits: Sequence[Circuit]) -> ProgramOutcome:
        missing = [circuit for circuit in circuits if circuit not in self._configured]
        if missing:
            listed = ", ".join(self._sides(circuit)[0] for circuit in missing)
            return _failed(f"Error: cross-connect {listed} does not exist")
        self._remove(circuits)
        self._around.acknowledge()
        return _printed("delete cross-connect succeeded\n")


def _lines(argv: Sequence[str]) -> list[list[str]]:
    """Return the command lines of `sh -c "a && b"`, or the one of another program."""
    if argv[:2] == ["sh", "-c"] and len(argv) == 3:
        return [line.split() for line in argv[2].split("&&")]
    return [list(argv)]


def _bare(tokens: Sequence[str]) -> list[str]:
    """Return a command line without `sudo` or `sudo -n` before it."""
    if tokens[:1] != ["sudo"]:
        return list(tokens)
    return list(tokens[2:] if tokens[1:2] == ["-n"] else tokens[1:])


def _printed(text: str) -> ProgramOutcome:
    return ProgramOutcome(text, took=PROCESSING)


def _failed(text: str) -> ProgramOutcome:
    """Return a failure: its text is on standard output, where sonic-mgmt's tests look for it."""
    return ProgramOutcome(f"{text}\n", "", 1, PROCESSING)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table as `tabulate` prints it."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return _columns([head, tuple("-" * width for width in widths), *rows], widths)


def _columns(lines: Sequence[tuple[str, ...]], widths: Sequence[int]) -> str:
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )
