"""Simulated Agilent 8169A polarization controller.

Syntax and the subsystem INPut are those of its User's Guide; limits, times and losses are chosen,
not taken from a data sheet. Left out: circles and stored positions; a scan of the sphere moves
the light only when it is stopped.
"""

import numpy as np
import numpy.typing as npt

from lightrig.instruments.simulated.protocols.commands import Ignored, command
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, ScpiDevice
from lightrig.instruments.simulated.protocols.scpi_values import Flag, Range
from lightrig.instruments.simulated.registry import DeviceContext

LOSS_DB = 1.5
LOSS_CHANGE_DB = 0.01
"""Greatest change of its loss with the angle of a plate, in dB: the plates wobble."""
TURN_PER_DEGREE = 3_000_000
"""Time in which a plate turns by a degree, in ns."""

_ANGLE = Range(-360.0, 360.0, 0.0, {"": 1.0, "DEG": 1.0})


def retarder(angle_deg: float, retardance_deg: float) -> npt.NDArray[np.float64]:
    """Return the rotation of (s1, s2, s3) by a waveplate, shape (3, 3).

    A turn by the retardance around the plate's fast axis on Poincaré's sphere (Rodrigues).
    """
    double, turn = np.radians(2 * angle_deg), np.radians(retardance_deg)
    axis = np.array([np.cos(double), np.sin(double), 0.0])
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + np.sin(turn) * cross + (1 - np.cos(turn)) * cross @ cross  # type: ignore[no-any-return]


class SimulatedAgilent8169a(ScpiDevice):
    """A polarizer, a quarter-wave and a half-wave plate."""

    fast = Flag("[:INPut]:PSPHere:RATE", default=False)

    def __init__(self, context: DeviceContext) -> None:
        identity = f"HEWLETT-PACKARD,8169A,{context.serial},2.03"
        super().__init__(context.spec.name, context.clock, identity)
        self._light = context.light
        draws = context.chance.stream(f"{self.name}/plates")
        self._wobble = [(LOSS_CHANGE_DB / 2, 360 * draws.normal()) for _ in range(2)]
        self._angles = {"polarizer": 0.0, "quarter": 0.0, "half": 0.0}
        self._light.on_arrival(1, self._pass_on)

    def reset(self) -> None:
        """Turn everything to 0 degrees."""
        self.reset_parameters()
        self._angles = dict.fromkeys(self._angles, 0.0)
        self._pass_on(self.clock.now())

    @command("[:INPut]:POSition:POLarizer")
    def _turn_polarizer(self, text: str) -> DelayedReply:
        return self._turn("polarizer", text)

    @command("[:INPut]:POSition:POLarizer?")
    def _query_polarizer(self, *limit: str) -> str:
        return _ANGLE.query(self, self._angles["polarizer"], limit)

    @command("[:INPut]:POSition:QUARter")
    def _turn_quarter(self, text: str) -> DelayedReply:
        return self._turn("quarter", text)

    @command("[:INPut]:POSition:QUARter?")
    def _query_quarter(self, *limit: str) -> str:
        return _ANGLE.query(self, self._angles["quarter"], limit)

    @command("[:INPut]:POSition:HALF")
    def _turn_half(self, text: str) -> DelayedReply:
        return self._turn("half", text)

    @command("[:INPut]:POSition:HALF?")
    def _query_half(self, *limit: str) -> str:
        return _ANGLE.query(self, self._angles["half"], limit)

    _scan = Ignored("INITiate[:IMMediate]")
    """Begin a scan of the sphere."""

    _stop = Ignored("ABORt")
    """End a scan."""

    def _turn(self, plate: str, text: str) -> DelayedReply:
        target = _ANGLE.parse(self, text)
        distance = abs(target - self._angles[plate])

        def finish() -> None:
            self._angles[plate] = target
            self._pass_on(self.clock.now())

        return DelayedReply(round(distance * TURN_PER_DEGREE), finish)

    def _pass_on(self, at: int) -> None:
        polarizer = np.radians(2 * self._angles["polarizer"])
        state = np.array([np.cos(polarizer), np.sin(polarizer), 0.0])
        state = retarder(self._angles["quarter"], 90.0) @ state
        state = retarder(self._angles["half"], 180.0) @ state
        loss = LOSS_DB
        for (depth, phase), plate in zip(self._wobble, ("quarter", "half"), strict=True):
            loss += depth * np.sin(np.radians(self._angles[plate] + phase))
        self._light.polarize(1, (float(state[0]), float(state[1]), float(state[2])))
        self._light.pass_on(1, self._light.level(1) * 10 ** (-loss / 10), at)
