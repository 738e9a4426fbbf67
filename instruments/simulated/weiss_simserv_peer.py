"""Answers like a Weiss or Vötsch climate chamber over SIMSERV; knows nothing of any driver.

Command numbers and error codes are those that several independent drivers use. How fast it
heats and cools, and how well it regulates, is chosen.
"""

from collections.abc import Callable, Mapping
from functools import partial

from instruments.simulated.ambient import ROOM_C
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings

LEAST, GREATEST = -40.0, 180.0
KELVIN_PER_MINUTE = 3.0
"""How fast it heats and cools; switched off, it drifts to the room a sixth as fast."""
NOISE_K = 0.05
TAKES = 5_000_000
"""How long an answer takes, in ns."""

_SEPARATOR = "¶"
_UNKNOWN, _WRONG_PARAMETERS, _NO_SUCH_VARIABLE, _NO_SUCH_CHAMBER = "-5", "-6", "-8", "-3"


class _RefusedError(Exception):
    """An answer that begins with an error code."""


class WeissSimservPeer:
    """One chamber with one control variable, its temperature."""

    def __init__(self, around: Surroundings) -> None:
        self._name = around.spec.name
        self._clock = around.clock
        self._serial = around.serial
        self._noise = around.chance.stream(f"{self._name}/regulation")
        self._set_point = ROOM_C
        self._running = False
        self._from, self._since = ROOM_C, self._clock.now()
        around.ambient.follow(self.temperature)
        self._commands: dict[str, Callable[[list[str]], str]] = {
            "99997": self._info,
            "10012": lambda _: "3" if self._running else "1",
            "11001": self._set,
            "11002": lambda arguments: f"{self._variable(arguments, self._set_point):.1f}",
            "11004": self._actual,
            "11007": lambda arguments: f"{self._variable(arguments, LEAST):.1f}",
            "11009": lambda arguments: f"{self._variable(arguments, GREATEST):.1f}",
            "11018": lambda _: "1",
            "11023": lambda arguments: self._word(arguments, "°C"),
            "11026": lambda arguments: self._word(arguments, "Temperature"),
            "14001": self._switch,
            "14003": lambda _: str(int(self._running)),
        }

    def wires(self) -> Mapping[str, SessionFactory]:
        """SIMSERV on a TCP port."""
        return {"simserv": self.session}

    def session(self, connection: PeerConnection, index: int) -> "SimservSession":
        """A new client's session."""
        return SimservSession(connection, self.answer, self._after, f"{self._name}#{index:04d}")

    def answer(self, line: str) -> str:
        """What it says to one command."""
        number, *rest = line.split(_SEPARATOR)
        try:
            if number not in self._commands:
                raise _RefusedError(_UNKNOWN)
            if not rest or not rest[0].isdigit():
                raise _RefusedError(_NO_SUCH_CHAMBER)
            data = self._commands[number](rest[1:])
        except _RefusedError as refusal:
            return str(refusal)
        return f"1{_SEPARATOR}{data}" if data else "1"

    def _after(self, owner: str, action: Callable[[], None]) -> None:
        self._clock.schedule(self._clock.now() + TAKES, owner, action)

    # -------------------------------------------------------------------------- climate

    def temperature(self) -> float:
        """The true temperature now."""
        target, rate = (self._set_point, 1.0) if self._running else (ROOM_C, 1 / 6)
        minutes = (self._clock.now() - self._since) / 60e9
        way = rate * KELVIN_PER_MINUTE * minutes
        if abs(target - self._from) <= way:
            return target
        return self._from + (way if target > self._from else -way)

    def _go(self, *, set_point: float, running: bool) -> None:
        self._from, self._since = self.temperature(), self._clock.now()
        self._set_point, self._running = set_point, running

    def _info(self, arguments: list[str]) -> str:
        fields = {"1": "LabEvent T/210/70/5", "2": "26", "3": self._serial}
        if len(arguments) != 1 or arguments[0] not in fields:
            raise _RefusedError(_WRONG_PARAMETERS)
        return fields[arguments[0]]

    def _set(self, arguments: list[str]) -> str:
        if len(arguments) != 2:
            raise _RefusedError(_WRONG_PARAMETERS)
        self._variable(arguments[:1], 0.0)
        try:
            wanted = float(arguments[1])
        except ValueError:
            raise _RefusedError(_WRONG_PARAMETERS) from None
        if not LEAST <= wanted <= GREATEST:
            raise _RefusedError(_WRONG_PARAMETERS)
        self._go(set_point=wanted, running=self._running)
        return ""

    def _actual(self, arguments: list[str]) -> str:
        shown = self.temperature() + NOISE_K * self._noise.normal()
        return f"{self._variable(arguments, shown):.2f}"

    def _switch(self, arguments: list[str]) -> str:
        if len(arguments) != 2 or arguments[0] != "1" or arguments[1] not in {"0", "1"}:
            raise _RefusedError(_WRONG_PARAMETERS)
        self._go(set_point=self._set_point, running=arguments[1] == "1")
        return ""

    def _variable(self, arguments: list[str], value: float) -> float:
        """`value`, if the first control variable was asked for."""
        if arguments[:1] != ["1"]:
            raise _RefusedError(_NO_SUCH_VARIABLE if arguments else _WRONG_PARAMETERS)
        return value

    def _word(self, arguments: list[str], word: str) -> str:
        self._variable(arguments, 0.0)
        return word


class SimservSession:
    """One client's session: a carriage return ends a command, CR and LF an answer."""

    def __init__(
        self,
        connection: PeerConnection,
        answer: Callable[[str], str],
        after: Callable[[str, Callable[[], None]], None],
        owner: str,
    ) -> None:
        self._connection = connection
        self._answer = answer
        self._after = after
        self._owner = owner
        self._buffer = b""

    def received(self, data: bytes) -> None:
        """Take bytes, and answer every command that is complete."""
        *lines, self._buffer = (self._buffer + data).split(b"\r")
        for line in lines:
            command = line.decode("latin-1").strip()
            self._after(self._owner, partial(self._reply, command))

    def closed(self) -> None:
        """The client is gone."""

    def _reply(self, command: str) -> None:
        self._connection.send(f"{self._answer(command)}\r\n".encode("latin-1"))
