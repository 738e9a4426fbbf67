"""DiCon GP600 matrix switches on TCP."""

import re
from collections.abc import Collection

from instruments.capabilities import Identity, Operation
from instruments.clock import Clock, Span
from instruments.errors import DeniedError, GarbledError
from instruments.registry import Spec
from instruments.switches.selector import Moved
from instruments.way import Way
from instruments.wire.exchange import Exchange
from instruments.wire.framing import Lines
from instruments.wire.stream import tcp_stream
from testbeds import Circuit

_ERROR = re.compile(r"([+-]?\d+)\s*,\s*(.*)")
_ERRORS = "SYST:ERR?"
_LONGEST_QUEUE = 30
_CHANGE = 30_000_000_000


class DiconGp600:
    """A matrix whose ingress i leads to output o with `X1 CH i o`: egress N + o.

    It has no power monitors. Its answers to settings are silence, so the error queue is read
    behind all the settings of a change, in the same write.

    Source: a public driver that cites the manual's table 4-11. That a port in use is moved is
    a guess, so what stands in the way is parted first.

    Args:
        name: the switch's name in the testbed.
        way: how it is reached, scpi:// on TCP (10001).
        clock: the bench's clock.
    """

    schemes = ("scpi",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "DiconGp600":
        """The driver of the switch that `spec` describes."""
        return cls(spec.name, way, clock)

    def __init__(self, name: str, way: Way, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._exchange = Exchange(
            name, lambda: tcp_stream(name, way.host, way.port or 10001, clock), clock, Lines()
        )
        self._dimensions: tuple[int, int] | None = None

    def identity(self) -> Identity:
        """Maker, model, serial number and firmware."""
        fields = [field.strip() for field in self._ask("*IDN?").split(",")]
        if len(fields) != 4:
            raise self._garbled("*IDN?", ",".join(fields))
        return Identity(*fields)

    def size(self) -> tuple[int, int]:
        """How many ingress ports and how many outputs the matrix has."""
        if self._dimensions is None:
            self._dimensions = self._pair("X1 DIM?", self._ask("X1 DIM?"))
        return self._dimensions

    def circuits(self) -> frozenset[Circuit]:
        """Ask every ingress where it leads."""
        ingresses, _ = self.size()
        made = set()
        for ingress in range(1, ingresses + 1):
            command = f"X1 CH {ingress}?"
            found, output = self._pair(command, self._ask(command))
            if found != ingress:
                raise self._garbled(command, f"{found},{output}")
            if output:
                made.add(Circuit(ingress, ingresses + output))
        return frozenset(made)

    def change(self, remove: Collection[Circuit], add: Collection[Circuit]) -> Operation:
        """Begin to part `remove` and to make `add`, in one write."""
        ingresses, _ = self.size()
        self._empty_queue()
        lines = [f"X1 CH {circuit.ingress} 0" for circuit in sorted(remove)]
        lines += [f"X1 CH {c.ingress} {c.egress - ingresses}" for c in sorted(add)]
        command = "; ".join(lines)
        message = "".join(f"{line}\r\n" for line in (*lines, _ERRORS)).encode()
        begun = self._exchange.begin(message, _CHANGE, shown=command)

        def finish() -> Span:
            answer = begun.result()
            text = answer.data.decode("ascii", "backslashreplace")
            code, words = self._error(command, text)
            if code:
                raise DeniedError(
                    self.name,
                    code=str(code),
                    text=words,
                    command=command,
                    details=[("try", "does `size:` in the testbed file say what it is?")],
                    trace=self.wire()[-6:],
                )
            return Span(begun.sent.latest, answer.received)

        return Moved(begun.sent, finish)

    def wire(self) -> list[str]:
        """The last lines of the session."""
        return self._exchange.trace.tail(40)

    def close(self) -> None:
        """End the session."""
        self._exchange.close()

    def _empty_queue(self) -> None:
        for _ in range(_LONGEST_QUEUE):
            code, _words = self._error(_ERRORS, self._ask(_ERRORS))
            if not code:
                return

    def _ask(self, command: str) -> str:
        answer = self._exchange.ask(f"{command}\r\n".encode())
        return answer.data.decode("ascii", "backslashreplace")

    def _pair(self, command: str, text: str) -> tuple[int, int]:
        match = re.fullmatch(r"(\d+)\s*,\s*(\d+)", text)
        if match is None:
            raise self._garbled(command, text)
        return int(match[1]), int(match[2])

    def _error(self, command: str, text: str) -> tuple[int, str]:
        match = _ERROR.fullmatch(text)
        if match is None:
            raise self._garbled(command, text)
        return int(match[1]), match[2]

    def _garbled(self, command: str, answered: str) -> Exception:
        return self._exchange.failed(
            GarbledError,
            "answered something that makes no sense",
            command,
            ("answered", repr(answered)),
        )
