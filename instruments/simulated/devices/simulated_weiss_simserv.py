"""Simulated Weiss or Vötsch climate chamber over SIMSERV.

Command numbers and error codes are those that several independent drivers use. The rates of
heating and cooling, and the noise of the regulation, are chosen.
"""

from collections.abc import Mapping

from lightrig.instruments.simulated.protocols.commands import command, declared_commands
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection, SessionFactory
from lightrig.instruments.simulated.protocols.framed_device import FramedServerSession, FrameReply
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.ambient import ROOM_C

LEAST, GREATEST = -40.0, 180.0
KELVIN_PER_MINUTE = 3.0
"""Rate of heating and cooling; switched off, it drifts to room temperature a sixth as fast."""
NOISE_K = 0.05
PROCESSING = 5_000_000
"""Time of a command, in ns."""

_SEPARATOR = "¶"
_UNKNOWN, _WRONG_PARAMETERS, _NO_SUCH_VARIABLE, _NO_SUCH_CHAMBER = "-5", "-6", "-8", "-3"


class _RefusedError(Exception):
    """A reply that is an error code."""


class SimulatedWeissSimserv:
    """One chamber with one control variable, its temperature."""

    def __init__(self, context: DeviceContext) -> None:
        self._name = context.spec.name
        self._clock = context.clock
        self._serial = context.serial
        self._noise = context.chance.stream(f"{self._name}/regulation")
        self._set_point = ROOM_C
        self._running = False
        self._from, self._since = ROOM_C, self._clock.now()
        context.ambient.follow(self.temperature)
        self._handlers = {
            number: getattr(self, name) for number, name in declared_commands(type(self)).items()
        }

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return the session factory of SIMSERV on a TCP port."""
        return {"simserv": self._session}

    def _session(self, connection: DeviceConnection, index: int) -> FramedServerSession:
        owner = f"{self._name}#{index:04d}"
        return FramedServerSession(
            self, connection, self._clock, owner, PROCESSING, overlapping=True
        )

    def split_frame(self, buffer: bytes) -> tuple[bytes, int] | None:
        """Return the first command with its carriage return: an empty one is answered, too."""
        end = buffer.find(b"\r") + 1
        return (buffer[:end], end) if end else None

    def execute(self, frame: bytes) -> FrameReply:
        """Carry out one command: its number, the chamber, then its arguments."""
        number, *rest = frame.decode("latin-1").strip().split(_SEPARATOR)
        try:
            if number not in self._handlers:
                raise _RefusedError(_UNKNOWN)
            if not rest or not rest[0].isdigit():
                raise _RefusedError(_NO_SUCH_CHAMBER)
            data = self._handlers[number](*rest[1:])
        except _RefusedError as refusal:
            reply = str(refusal)
        else:
            reply = f"1{_SEPARATOR}{data}" if data else "1"
        return FrameReply(f"{reply}\r\n".encode("latin-1"))

    # -------------------------------------------------------------------------- climate

    def temperature(self) -> float:
        """Return the true temperature now."""
        target, rate = (self._set_point, 1.0) if self._running else (ROOM_C, 1 / 6)
        minutes = (self._clock.now() - self._since) / 60e9
        change = rate * KELVIN_PER_MINUTE * minutes
        if abs(target - self._from) <= change:
            return target
        return self._from + (change if target > self._from else -change)

    def _go(self, *, set_point: float, running: bool) -> None:
        self._from, self._since = self.temperature(), self._clock.now()
        self._set_point, self._running = set_point, running

    @command("99997")
    def _query_information(self, *field: str) -> str:
        fields = {("1",): "LabEvent T/210/70/5", ("2",): "26", ("3",): self._serial}
        if field not in fields:
            raise _RefusedError(_WRONG_PARAMETERS)
        return fields[field]

    @command("10012")
    def _query_state(self, *_: str) -> str:
        return "3" if self._running else "1"

    @command("11001")
    def _set_temperature(self, *arguments: str) -> str:
        if len(arguments) != 2:
            raise _RefusedError(_WRONG_PARAMETERS)
        _check_variable(arguments[:1])
        try:
            wanted = float(arguments[1])
        except ValueError:
            raise _RefusedError(_WRONG_PARAMETERS) from None
        if not LEAST <= wanted <= GREATEST:
            raise _RefusedError(_WRONG_PARAMETERS)
        self._go(set_point=wanted, running=self._running)
        return ""

    @command("11002")
    def _query_set_point(self, *variable: str) -> str:
        _check_variable(variable)
        return f"{self._set_point:.1f}"

    @command("11004")
    def _query_temperature(self, *variable: str) -> str:
        shown = self.temperature() + NOISE_K * self._noise.normal()
        _check_variable(variable)
        return f"{shown:.2f}"

    @command("11007")
    def _query_least(self, *variable: str) -> str:
        _check_variable(variable)
        return f"{LEAST:.1f}"

    @command("11009")
    def _query_greatest(self, *variable: str) -> str:
        _check_variable(variable)
        return f"{GREATEST:.1f}"

    @command("11018")
    def _query_variable_count(self, *_: str) -> str:
        return "1"

    @command("11023")
    def _query_unit(self, *variable: str) -> str:
        _check_variable(variable)
        return "°C"

    @command("11026")
    def _query_variable_name(self, *variable: str) -> str:
        _check_variable(variable)
        return "Temperature"

    @command("14001")
    def _switch(self, *arguments: str) -> str:
        if len(arguments) != 2 or arguments[0] != "1" or arguments[1] not in {"0", "1"}:
            raise _RefusedError(_WRONG_PARAMETERS)
        self._go(set_point=self._set_point, running=arguments[1] == "1")
        return ""

    @command("14003")
    def _query_switch(self, *_: str) -> str:
        return str(int(self._running))


def _check_variable(arguments: tuple[str, ...]) -> None:
    """Raise the error of a variable other than the first, which is the temperature."""
    if arguments[:1] != ("1",):
        raise _RefusedError(_NO_SUCH_VARIABLE if arguments else _WRONG_PARAMETERS)
