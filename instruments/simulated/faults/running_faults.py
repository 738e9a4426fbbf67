"""Faults that begin and end while a simulated world runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.faults.wire_faults import SLOW, FaultInjector
from lightrig.instruments.simulated.world.world import World
from lightrig.testbeds import Port
from lightrig.testbeds.fault_plan import FaultPlanError, RunningFault

End = Callable[[], None]


@dataclass(eq=False)
class RunningFaults:
    """Injects faults into a world, by kind.

    Args:
        world: whose light and servers change.
        clock: the world's.
        injectors: wire faults of the switches, instruments and servers, by name.
        restart: makes a switch forget its circuits.
    """

    _world: World
    _clock: Clock
    _injectors: Mapping[str, FaultInjector]
    _restart: Callable[[str], None]

    def begin(self, fault: RunningFault) -> End:
        """Begin a fault; calling the result ends it, once or several times."""
        places = [Port(*at.partition(".")[::2]) for at in fault.at]
        ends: list[End] = []
        match fault.kind:
            case "instrument slow":
                self._delay_acknowledgements(fault.at[0])
                ends.append(self._wire(fault, "slow"))
            case "instrument silent":
                ends.append(self._wire(fault, "silent"))
            case "instrument restarts":
                ends.append(self._wire(fault, "resets"))
                self._restart(fault.at[0])
            case "fiber cut":
                ends.append(self._fade(places[0], 0.0))
            case "fiber attenuated":
                ends.append(self._fade(places[0], 10 ** (-fault.loss_db / 10)))
            case "fibers swapped":
                ends.append(self._world.light.swap(places[0], places[1], self._clock))
            case "NIC flap":
                ends.append(self._world.darken(places))
            case "server lost":
                if fault.at[0] in self._injectors:  # a namespace has no wire to it
                    ends.append(self._wire(fault, "closes"))
                ends.append(self._world.power_off(fault.at[0]))
            case "clock step" | "disk full":
                raise FaultPlanError(f"{fault}: not a fault of a simulated world")
        return partial(_end_once, ends)

    def _delay_acknowledgements(self, name: str) -> None:
        """Let the truth follow the wire: another fault of this instrument may replace this one."""
        injector = self._injectors[name]
        self._world.truth.note_delay(name, lambda: SLOW if injector.fault == "slow" else 0)

    def _fade(self, source: Port, share: float) -> End:
        light, clock = self._world.light, self._clock
        light.fade(source, share, clock.now())
        return lambda: light.fade(source, 1.0, clock.now())

    def _wire(self, fault: RunningFault, kind: str) -> End:
        injector = self._injectors[fault.at[0]]
        injector.fault = kind  # type: ignore[assignment]
        return injector.stop


def _end_once(ends: list[End]) -> None:
    while ends:
        ends.pop()()
