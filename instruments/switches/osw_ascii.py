"""1xN switch modules that speak `<OSW_...>`, as Lfiber and others sell them."""

import re

from instruments.capabilities import Identity, Operation
from instruments.clock import Clock, Span
from instruments.errors import DeniedError, GarbledError
from instruments.registry import Spec
from instruments.switches.selector import Moved, Selector, one_by
from instruments.way import Way
from instruments.wire.exchange import Exchange, Resync
from instruments.wire.framing import Bracketed
from instruments.wire.stream import serial_stream

_TYPE = "<OSW_TYPE_?>"
_WHERE = "<OSW_OUT_?>"
_SETTLING = 2_000_000_000


class OswAscii(Selector[int]):
    """Ingress 1, egress 2..N+1; output 0 is dark.

    Source: as two independent programs speak to it, one of which cites the manual. The type
    names no serial number: its last field is taken for one (a guess).

    Args:
        name: the switch's name in the testbed.
        device: path of its serial line (9600 8N1).
        clock: the bench's clock.
        outputs: how many outputs it has.
    """

    schemes = ("serial",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "OswAscii":
        """The driver of the switch that `spec` describes."""
        return cls(spec.name, way.resource, clock, outputs=getattr(spec, "egress_count", 2))

    def __init__(self, name: str, device: str, clock: Clock, *, outputs: int) -> None:
        exchange = Exchange(
            name,
            lambda: serial_stream(name, device, clock, baud=9600),
            clock,
            Bracketed(),
            resync=Resync(
                question=_TYPE.encode(),
                recognises=lambda message: message.startswith(b"<OSW_TYPE_"),
            ),
        )
        super().__init__(name, clock, {0: frozenset(), **one_by(outputs)}, exchange)

    def identity(self) -> Identity:
        """The type as the module names it."""
        match = re.fullmatch(r"<OSW_TYPE_([A-Z]+)-(.+)>", self._ask(_TYPE))
        if match is None:
            raise self._garbled(_TYPE)
        serial = re.search(r"(SIM-.*|[^-]*)$", match[2])
        return Identity(match[1], match[2], serial[1] if serial else "unknown", "unknown")

    def _position(self) -> int:
        match = re.fullmatch(r"<OSW_OUT_(\d\d)>", self._ask(_WHERE))
        if match is None:
            raise self._garbled(_WHERE)
        return int(match[1])

    def _move(self, position: int) -> Operation:
        command = f"<OSW_OUT_{position:02d}>"
        begun = self._exchange.begin(command.encode(), _SETTLING)

        def finish() -> Span:
            answer = begun.result()
            if answer.data == b"<OSW_OUT_OVERFLOW>":
                raise DeniedError(
                    self.name,
                    code="OVERFLOW",
                    text=f"no output {position}",
                    command=command,
                    details=[("try", "does `size:` in the testbed file say what it is?")],
                    trace=self.wire()[-6:],
                )
            if answer.data != b"<OSW_OUT_OK>":
                raise self._garbled(command)
            return Span(begun.sent.latest, answer.received)

        return Moved(begun.sent, finish)

    def _ask(self, command: str) -> str:
        return self._exchange.ask(command.encode()).data.decode("ascii", "backslashreplace")

    def _garbled(self, command: str) -> Exception:
        return self._exchange.failed(
            GarbledError, "answered something that it never should", command
        )
