"""Base classes of switches with a few positions: the circuits follow from the position."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, Self

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity, Operation
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import GarbledError
from lightrig.instruments.core.instrument import Option, from_milliseconds
from lightrig.instruments.core.query_instrument import QueryInstrument
from lightrig.testbeds import Circuit

SIZE_ADVICE = "does `size:` in the testbed file say what it is?"


class PendingMove:
    """A change of circuits under way.

    Args:
        sent: between which stamps the command was written.
        finish: waits for the acknowledgement and returns between which stamps it came.
    """

    def __init__(self, sent: Span, finish: Callable[[], Span]) -> None:
        self.sent = sent
        self._finish = finish

    @classmethod
    def nothing(cls, clock: Clock) -> Self:
        """Return a change for which nothing had to be sent."""
        now = clock.now()
        return cls(Span(now, now), lambda: Span(now, now))

    def done(self) -> Span:
        """Wait until the switch has acknowledged, or until it must have settled."""
        return self._finish()


class PositionSwitch(QueryInstrument, ABC):
    """A 1xN switch: ingress 1 leads to egress 1 + p in position p.

    Turned round, with one output, ingress p leads to the only egress, N + 1, in position p.

    Attributes:
        dark_position: the position in which no light passes; None where there is none.
        positions: the circuits of each position.
    """

    sizes = "1xN, Nx1"
    dark_position: ClassVar[int | None] = 0
    inputs = Option(int, 1, "number of inputs", attribute="ingress_count")
    outputs = Option(int, 2, "number of outputs", attribute="egress_count")

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self.positions: Mapping[int, frozenset[Circuit]] = self._list_positions()

    def _list_positions(self) -> Mapping[int, frozenset[Circuit]]:
        dark = {} if self.dark_position is None else {self.dark_position: frozenset[Circuit]()}
        if self.outputs == 1:
            out = self.inputs + 1
            return dark | {n: frozenset({Circuit(n, out)}) for n in range(1, out)}
        return dark | {n: frozenset({Circuit(1, 1 + n)}) for n in range(1, self.outputs + 1)}

    @abstractmethod
    def position(self) -> int:
        """Return the position that the switch reports now."""

    @abstractmethod
    def move(self, position: int) -> Operation:
        """Begin to go to `position`, one of `positions`."""

    def circuits(self) -> frozenset[Circuit]:
        """Return the circuits of the position that the switch reports now."""
        position = self.position()
        if position not in self.positions:
            existing = ", ".join(map(str, self.positions))
            # Not through `garbled`: the reply was the query's, so the session is in step.
            raise GarbledError(
                self.name,
                f"reports position {position}, and it has {existing}",
                details=[("try", SIZE_ADVICE)],
                trace=self.wire()[-6:],
            )
        return self.positions[position]

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to go to the position that has `add` and not `remove`.

        No two positions share a circuit, so `add` alone names the position and the query for the
        present one is saved: a fabric of hundreds of switches begins to move that much sooner.
        Raises `DeniedError` before a move where there is no such position.
        """
        for position, circuits in self.positions.items():
            if add and circuits.issuperset(add):
                return self.move(position)
        now = self.circuits()
        by_circuits = {circuits: position for position, circuits in self.positions.items()}
        wanted = frozenset(now - frozenset(remove)) | frozenset(add)
        if wanted not in by_circuits:
            # The switch has one position at a time: a circuit that shares a port with `add` goes.
            ingress = {circuit.ingress for circuit in add}
            egress = {circuit.egress for circuit in add}
            wanted = frozenset(add) | {
                c for c in wanted if c.ingress not in ingress and c.egress not in egress
            }
        if not wanted and self.dark_position is None:
            routes = sorted({str(c) for circuits in self.positions.values() for c in circuits})
            raise self.refused(
                "it cannot be dark",
                "in each of its positions light leaves at an output",
                f"make another circuit instead, of {', '.join(routes)}, or switch off the light "
                "that enters it",
                command="change to no circuit at all",
            )
        if wanted not in by_circuits:
            listed = ", ".join(map(str, sorted(wanted)))
            raise self.refused(f"it has no position with {listed}", command=f"change to {listed}")
        if wanted == now:
            return PendingMove.nothing(self.clock)
        return self.move(by_circuits[wanted])


class TextPositionSwitch(PositionSwitch):
    """A position switch with a text protocol, declared as a table of commands and replies.

    Replies are regular expressions that the whole reply must match.

    Attributes:
        identity_query, identity_reply: the groups `manufacturer`, `model`, `serial` and
            `firmware`; one that is missing is "unknown".
        position_query, position_reply: the position is group 1.
        move_command: with `{position}`.
        dark_command: goes to the dark position; empty where `move_command` does.
        move_query: is sent in the same write behind a move, which it acknowledges by its reply.
        move_reply: acknowledges a move; None where none does: then the switch is given
            `settling` ns and asked for its position.
        move_timeout: how long a move may take, in ns; None for the usual limit of a reply.
        denial: reply to a move that the switch refuses, with groups `code` and `text`.
        denial_text: its meaning, where the reply has no group `text`.
    """

    identity_query: ClassVar[str]
    identity_reply: ClassVar[str]
    position_query: ClassVar[str]
    position_reply: ClassVar[str]
    move_command: ClassVar[str]
    dark_command: ClassVar[str] = ""
    move_query: ClassVar[str] = ""
    move_reply: ClassVar[str | None] = None
    move_timeout: ClassVar[int | None] = None
    denial: ClassVar[str | None] = None
    denial_text: ClassVar[str] = ""
    settling = Option(
        from_milliseconds,
        0,
        "from a command without acknowledgement until the light has settled, in ns",
        key="settling_ms",
    )

    def identity(self) -> Identity:
        """Return manufacturer, model, serial number and firmware, as far as it reports them."""
        reply = self.query(self.identity_query)
        found = re.fullmatch(self.identity_reply, reply)
        if found is None:
            raise self.garbled(self.identity_query, reply, "identity")
        known = found.groupdict(default="unknown")
        return Identity(
            known["manufacturer"],
            known["model"],
            known.get("serial", "unknown"),
            known.get("firmware", "unknown"),
        )

    def position(self) -> int:
        """Return the position that the switch reports now."""
        reply = self.query(self.position_query)
        found = re.fullmatch(self.position_reply, reply)
        if found is None:
            raise self.garbled(self.position_query, reply, "position")
        return int(found[1])

    def move(self, position: int) -> Operation:
        """Begin to go to `position`, one of `positions`."""
        is_dark = position == self.dark_position and self.dark_command
        command = self.dark_command if is_dark else self.move_command.format(position=position)
        message = command + self.command_end
        if self.move_query:
            message += self.move_query + self.command_end
        if self.move_reply is None:
            sent = self.session.write(message.encode())
            return PendingMove(sent, lambda: self._settled(sent))
        pending = self.session.submit(message.encode(), self.move_timeout, shown=command)

        def finish() -> Span:
            reply = pending.result()
            self._check_move(command, reply.text)
            return Span(pending.sent.earliest, reply.received)

        return PendingMove(pending.sent, finish)

    def _settled(self, sent: Span) -> Span:
        self.clock.sleep(sent.latest + self.settling - self.clock.now())
        self.position()  # the switch replies only after it has carried out what came before
        return Span(sent.earliest, self.clock.now())

    def _check_move(self, command: str, reply: str) -> None:
        denial = re.fullmatch(self.denial, reply) if self.denial is not None else None
        if denial is not None:
            known = denial.groupdict()
            text = known.get("text") or self.denial_text
            raise self.denied(command, known["code"], text, advice=SIZE_ADVICE)
        if re.fullmatch(self.move_reply or "", reply) is None:
            raise self.garbled(command, reply, "acknowledgement")
