"""Simulated SONiC on an optical circuit switch, over SSH.

A cross-connect aA-bB connects side A of port a to side B of port b. Configuration and hardware
have a table each: an entry that only the hardware has cannot be deleted before it is added
again. Guessed: the time of a command, and the texts of errors.
"""

import re
from collections.abc import Mapping, Sequence

from lightrig.instruments.simulated.protocols.device_server import SessionFactory
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome, no_such_program
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.testbeds import Circuit, SwitchSpec

PROCESSING = 300_000_000
"""Time of one command of the CLI, in ns."""

_ID = re.compile(r"(\d+)A-(\d+)B")


class SimulatedSonicOcs:
    """One switch; its option `stale` lists cross-connects that only the hardware has."""

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.spec, SwitchSpec)
        assert context.matrix is not None
        self._around = context
        self._spec = context.spec
        self._matrix = context.matrix
        self._configured: list[str] = []
        self._tuned_at: dict[str, int] = {}
        for one in filter(None, str(self._spec.options.get("stale", "")).split(",")):
            self._make(one.strip())

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return no factories: commands are run over SSH."""
        return {}

    def run_command(self, argv: Sequence[str]) -> ProgramOutcome:
        """Run one command line, or several joined by `&&` for a shell."""
        if argv[:2] == ["sh", "-c"] and len(argv) == 3:
            lines = [line.split() for line in argv[2].split("&&")]
        else:
            lines = [list(argv)]
        printed, took = "", 0
        for tokens in lines:
            outcome = self._run(tokens)
            printed, took = printed + outcome.stdout, took + outcome.took
            if outcome.status:
                return ProgramOutcome(printed, outcome.stderr, outcome.status, took)
        return ProgramOutcome(printed, took=took)

    def _run(self, tokens: Sequence[str]) -> ProgramOutcome:
        if tokens[:1] == ["sudo"]:
            tokens = tokens[2:] if tokens[1:2] == ["-n"] else tokens[1:]
        match list(tokens):
            case ["show", "version"]:
                return self._printed(
                    "SONiC Software Version: SONiC.OCS-202505.1\n"
                    f"Platform: simulated-ocs\nSerial Number: {self._around.serial}\n"
                )
            case ["show", "ocs", "cross-connect", "config"]:
                return self._printed(_table(("id", "a_side", "b_side"), self._config_rows()))
            case ["show", "ocs", "cross-connect", "status"]:
                head = ("id", "a_side", "b_side", "a_side_status", "b_side_status")
                return self._printed(_table(head, self._status_rows()))
            case ["config", "ocs", "cross-connect", "add", one, "update"]:
                return self._add(one)
            case ["config", "ocs", "cross-connect", "delete", one]:
                return self._delete(one)
            case ["show" | "config", *_]:
                return ProgramOutcome("", "Error: No such command\n", 2, PROCESSING)
        return no_such_program(tokens or [""])

    def _printed(self, text: str) -> ProgramOutcome:
        return ProgramOutcome(text, took=PROCESSING)

    def _config_rows(self) -> list[tuple[str, ...]]:
        return [(one, *one.split("-")) for one in self._configured]

    def _status_rows(self) -> list[tuple[str, ...]]:
        now = self._around.clock.now()
        return [
            (one, *one.split("-"), *(("tuned" if at <= now else "tuning",) * 2))
            for one, at in sorted(self._tuned_at.items())
        ]

    def _circuit(self, one: str) -> Circuit | None:
        match = _ID.fullmatch(one)
        if match is None:
            return None
        circuit = Circuit(int(match[1]), self._spec.ingress_count + int(match[2]))
        known = (
            circuit.ingress in self._spec.ingress_ports
            and circuit.egress in self._spec.egress_ports
        )
        return circuit if known else None

    def _add(self, one: str) -> ProgramOutcome:
        circuit = self._circuit(one)
        if circuit is None:
            return ProgramOutcome("", f"Error: invalid cross-connect {one}\n", 1, PROCESSING)
        busy = [
            existing
            for existing in self._tuned_at
            if existing != one and set(existing.split("-")) & set(one.split("-"))
        ]
        if busy:
            return ProgramOutcome("", f"Error: port in use by {', '.join(busy)}\n", 1, PROCESSING)
        if one not in self._configured:
            self._configured.append(one)
        if one not in self._tuned_at:
            self._make(one)
        return ProgramOutcome("", took=PROCESSING)

    def _make(self, one: str) -> None:
        circuit = self._circuit(one)
        if circuit is not None:
            after = self._matrix.connect([circuit])
            self._tuned_at[one] = self._around.clock.now() + after

    def _delete(self, one: str) -> ProgramOutcome:
        if one not in self._configured:
            return ProgramOutcome("", f"Error: cross-connect {one} does not exist\n", 1, PROCESSING)
        self._configured.remove(one)
        del self._tuned_at[one]
        circuit = self._circuit(one)
        assert circuit is not None
        self._matrix.disconnect([circuit.ingress])
        return ProgramOutcome("", took=PROCESSING)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [head, tuple("-" * width for width in widths), *rows]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )
