"""DiCon GP600 matrix switches on TCP."""

import re
from collections.abc import Collection
from typing import Any

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity, Operation
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.position_switch import SIZE_ADVICE, PendingMove
from lightrig.instruments.core.query_instrument import QueryInstrument
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.testbeds import Circuit

_ERROR_QUERY = "SYST:ERR?"
_LONGEST_QUEUE = 30
_CHANGE_TIMEOUT = 30_000_000_000


class DiconGp600(QueryInstrument):
    """A matrix whose ingress i leads to output o with `X1 CH i o`: egress N + o.

    It has no power monitors. It does not reply to settings, so the error queue is read behind
    all the settings of a change, in the same write.

    Source: a public driver that cites the manual's table 4-11.
    """

    schemes = ("scpi",)
    wire_facts = (
        WireFact(
            "`X1` commands, table 4-11 of the manual",
            "the driver of autosweep, which cites the manual",
        ),
        WireFact(
            "that connecting a port in use moves it; circuits in the way are taken down first"
        ),
    )
    default_port = 10001

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self._size: tuple[int, int] | None = None

    def identity(self) -> Identity:
        """Return maker, model, serial number and firmware."""
        fields = [field.strip() for field in self.query("*IDN?").split(",")]
        if len(fields) != 4:
            raise self.garbled("*IDN?", ",".join(fields), "identity")
        return Identity(*fields)

    def size(self) -> tuple[int, int]:
        """Return the numbers of ingress ports and of outputs."""
        if self._size is None:
            self._size = self._query_pair("X1 DIM?")
        return self._size

    def circuits(self) -> frozenset[Circuit]:
        """Return every circuit; takes one query per ingress."""
        ingresses, _ = self.size()
        circuits = set()
        for ingress in range(1, ingresses + 1):
            command = f"X1 CH {ingress}?"
            found, output = self._query_pair(command)
            if found != ingress:
                raise self.garbled(command, f"{found},{output}", "output of this ingress")
            if output:
                circuits.add(Circuit(ingress, ingresses + output))
        return frozenset(circuits)

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to take down `remove` and make `add`, in one write.

        Raises `DeniedError` before anything is sent for a port in two circuits: each is a command
        of its own, of which the later would move the port.
        """
        if any(len(set(ports)) < len(ports) for ports in zip(*set(add), strict=True)):
            raise self.refused("a port is in two circuits of a change", command="X1 CH")
        ingresses, _ = self.size()
        for _attempt in range(_LONGEST_QUEUE):  # entries of before are not about this change
            if not self._parse_error(_ERROR_QUERY, self.query(_ERROR_QUERY))[0]:
                break
        lines = [f"X1 CH {circuit.ingress} 0" for circuit in sorted(remove)]
        lines += [f"X1 CH {c.ingress} {c.egress - ingresses}" for c in sorted(add)]
        command = "; ".join(lines)
        message = "".join(f"{line}{self.command_end}" for line in (*lines, _ERROR_QUERY))
        pending = self.session.submit(message.encode(), _CHANGE_TIMEOUT, shown=command)

        def finish() -> Span:
            reply = pending.result()
            code, text = self._parse_error(command, reply.text)
            if code:
                raise self.denied(command, str(code), text, advice=SIZE_ADVICE)
            return Span(pending.sent.earliest, reply.received)

        return PendingMove(pending.sent, finish)

    def _query_pair(self, command: str) -> tuple[int, int]:
        text = self.query(command)
        match = re.fullmatch(r"(\d+)\s*,\s*(\d+)", text)
        if match is None:
            raise self.garbled(command, text, "pair of numbers")
        return int(match[1]), int(match[2])

    def _parse_error(self, command: str, text: str) -> tuple[int, str]:
        match = re.fullmatch(r"([+-]?\d+)\s*,\s*(.*)", text)
        if match is None:
            raise self.garbled(command, text, "entry of an error queue")
        return int(match[1]), match[2]
