"""Thorlabs OSW12 (1x2) and OSW22 (2x2) MEMS switches on USB."""

from instruments.capabilities import Identity, Operation
from instruments.clock import Clock, Span
from instruments.errors import GarbledError
from instruments.registry import Spec
from instruments.switches.selector import TWO_BY_TWO, Moved, Selector, one_by
from instruments.way import Way
from instruments.wire.exchange import Exchange, Resync
from instruments.wire.framing import Lines
from instruments.wire.stream import serial_stream
from testbeds import Circuit


class ThorlabsOsw(Selector[int]):
    """A switch without a dark position; 1x2: ingress 1, egress 2 and 3.

    It does not acknowledge: done is when it has had `settling` and then says that it is there.

    Source: as two independent programs speak to it; the words of `ID?` are a guess.

    Args:
        name: the switch's name in the testbed.
        device: path of its serial line (115200 8N1, RTS/CTS).
        clock: the bench's clock.
        crossing: whether it is a 2x2; else a 1x2.
        settling: from the command until the light has settled, in ns (option `settling_ms`, 1).
    """

    schemes = ("serial",)

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> "ThorlabsOsw":
        """The driver of the switch that `spec` describes."""
        settling = round(float(spec.options.get("settling_ms", 1)) * 1e6)
        crossing = getattr(spec, "ingress_count", 1) == 2
        return cls(spec.name, way.resource, clock, crossing=crossing, settling=settling)

    def __init__(
        self,
        name: str,
        device: str,
        clock: Clock,
        *,
        crossing: bool = False,
        settling: int = 1_000_000,
    ) -> None:
        positions: dict[int, frozenset[Circuit]] = one_by(2)
        if crossing:
            positions = {1: TWO_BY_TWO["bar"], 2: TWO_BY_TWO["cross"]}
        exchange = Exchange(
            name,
            lambda: serial_stream(name, device, clock, baud=115_200, rtscts=True),
            clock,
            Lines(),
            resync=Resync(question=b"ID?\n", recognises=lambda message: b"OSW" in message),
        )
        super().__init__(name, clock, positions, exchange)
        self._settling = settling

    def identity(self) -> Identity:
        """Model, serial number and firmware."""
        words = self._ask("ID?").split()
        if len(words) < 2:
            raise self._garbled("ID?", " ".join(words), "identity")
        serial, firmware = [*words[2:], "unknown", "unknown"][:2]
        return Identity(words[0], words[1], serial, firmware)

    def _position(self) -> int:
        text = self._ask("S?")
        if text not in {"1", "2"}:
            raise self._garbled("S?", text, "position")
        return int(text)

    def _move(self, position: int) -> Operation:
        sent = self._exchange.tell(f"S {position}\n".encode())

        def finish() -> Span:
            self._clock.sleep(sent.latest + self._settling - self._clock.now())
            self._position()  # it answers only what it has done
            now = self._clock.now()
            return Span(sent.latest, now)

        return Moved(sent, finish)

    def _ask(self, command: str) -> str:
        return self._exchange.ask(f"{command}\n".encode()).data.decode("ascii", "backslashreplace")

    def _garbled(self, command: str, answered: str, what: str) -> Exception:
        return self._exchange.failed(
            GarbledError,
            f"answered something that is no {what}",
            command,
            ("answered", repr(answered)),
        )
