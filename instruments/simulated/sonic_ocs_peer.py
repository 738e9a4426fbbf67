"""Answers like SONiC on an optical circuit switch, over SSH; knows nothing of any driver.

A cross-connect aA-bB leads what enters at side A of port a out of side B of port b. What is
configured and what the hardware does are two tables: an entry that the hardware alone has
cannot be deleted before it is added again. Guessed: how long a command takes, and the words of
what is refused.
"""

import re
from collections.abc import Mapping, Sequence

from instruments.simulated.peer_server import SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.ssh_peer import Outcome, no_such_program
from testbeds import Circuit, SwitchSpec

TAKES = 300_000_000
"""How long one command of the CLI takes, in ns."""

_ID = re.compile(r"(\d+)A-(\d+)B")


class SonicOcsPeer:
    """One switch; its option `stale` lists cross-connects that only the hardware has."""

    def __init__(self, around: Surroundings) -> None:
        assert isinstance(around.spec, SwitchSpec)
        assert around.matrix is not None
        self._around = around
        self._spec = around.spec
        self._matrix = around.matrix
        self._configured: list[str] = []
        self._tuned_at: dict[str, int] = {}
        for one in filter(None, str(self._spec.options.get("stale", "")).split(",")):
            self._make(one.strip())

    def wires(self) -> Mapping[str, SessionFactory]:
        """None of its own: it runs commands over SSH."""
        return {}

    def run_command(self, argv: Sequence[str]) -> Outcome:
        """One command line, or several joined by `&&` for a shell."""
        if argv[:2] == ["sh", "-c"] and len(argv) == 3:
            lines = [line.split() for line in argv[2].split("&&")]
        else:
            lines = [list(argv)]
        printed, took = "", 0
        for words in lines:
            outcome = self._run(words)
            printed, took = printed + outcome.stdout, took + outcome.took
            if outcome.status:
                return Outcome(printed, outcome.stderr, outcome.status, took)
        return Outcome(printed, took=took)

    def _run(self, words: Sequence[str]) -> Outcome:
        if words[:1] == ["sudo"]:
            words = words[2:] if words[1:2] == ["-n"] else words[1:]
        match list(words):
            case ["show", "version"]:
                return self._said(
                    "SONiC Software Version: SONiC.OCS-202505.1\n"
                    f"Platform: simulated-ocs\nSerial Number: {self._around.serial}\n"
                )
            case ["show", "ocs", "cross-connect", "config"]:
                return self._said(_table(("id", "a_side", "b_side"), self._config_rows()))
            case ["show", "ocs", "cross-connect", "status"]:
                head = ("id", "a_side", "b_side", "a_side_status", "b_side_status")
                return self._said(_table(head, self._status_rows()))
            case ["config", "ocs", "cross-connect", "add", one, "update"]:
                return self._add(one)
            case ["config", "ocs", "cross-connect", "delete", one]:
                return self._delete(one)
            case ["show" | "config", *_]:
                return Outcome("", "Error: No such command\n", 2, TAKES)
        return no_such_program(words or [""])

    def _said(self, text: str) -> Outcome:
        return Outcome(text, took=TAKES)

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

    def _add(self, one: str) -> Outcome:
        circuit = self._circuit(one)
        if circuit is None:
            return Outcome("", f"Error: invalid cross-connect {one}\n", 1, TAKES)
        busy = [
            other
            for other in self._tuned_at
            if other != one and set(other.split("-")) & set(one.split("-"))
        ]
        if busy:
            return Outcome("", f"Error: port in use by {', '.join(busy)}\n", 1, TAKES)
        if one not in self._configured:
            self._configured.append(one)
        if one not in self._tuned_at:
            self._make(one)
        return Outcome("", took=TAKES)

    def _make(self, one: str) -> None:
        circuit = self._circuit(one)
        if circuit is not None:
            after = self._matrix.connect([circuit])
            self._tuned_at[one] = self._around.clock.now() + after

    def _delete(self, one: str) -> Outcome:
        if one not in self._configured:
            return Outcome("", f"Error: cross-connect {one} does not exist\n", 1, TAKES)
        self._configured.remove(one)
        del self._tuned_at[one]
        circuit = self._circuit(one)
        assert circuit is not None
        self._matrix.disconnect([circuit.ingress])
        return Outcome("", took=TAKES)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [head, tuple("-" * width for width in widths), *rows]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )
