"""The light that a tester receives: its path and its power."""

import math
import statistics
from dataclasses import dataclass

from lightrig.harness.bench import Bench
from lightrig.instruments.core.capabilities import Attenuator, PowerMonitor
from lightrig.testbeds import LightrigError, Plan, Port, Testbed

_READINGS = 5


class NoLoopbackPathError(LightrigError):
    """No plan of the testbed leads a tester's light back to it."""


def light_path(testbed: Testbed, plan: Plan | None, source: Port) -> tuple[Port, ...]:
    """Return the ports on the light path from `source` under `plan`, the last one included.

    The path leads through circuits of switches and through attenuators.
    """
    onward = {
        Port(switch, str(circuit.ingress)): Port(switch, str(circuit.egress))
        for switch, circuits in (plan.circuits if plan else {}).items()
        for circuit in circuits
    }
    kinds = {name: spec.kind for name, spec in testbed.instruments.items()}
    passed: list[Port] = []
    here: Port | None = source
    # No port has two fibers or circuits, so the path ends or returns to its source.
    while here is not None and (fiber := testbed.cabling.fiber_from(here)) is not None:
        passed.append(fiber.sink)
        if fiber.sink == source:
            break
        here = fiber.sink if kinds.get(fiber.sink.owner) == "attenuator" else onward.get(fiber.sink)
        if here is not None and here != fiber.sink:
            passed.append(here)
    return tuple(passed)


def plan_of_loop(testbed: Testbed, tester: Port, back: Port | None = None) -> Plan | None:
    """The first plan that leads a tester's light back to it; None where fibers alone do.

    back: the port where it comes back, if that is not the one that sends. Raises
    `NoLoopbackPathError`.
    """
    back = back or tester
    for plan in (None, *testbed.plans.values()):
        if back in light_path(testbed, plan, tester):
            return plan
    raise NoLoopbackPathError(
        f"no plan of {testbed.path} leads the light of {tester} back to "
        f"{'it' if back == tester else back}; "
        "its fibers, and a plan with the circuits between them, would"
    )


@dataclass(frozen=True, slots=True)
class Arrival:
    """The light at a receiver.

    Attributes:
        dbm: average power: the mean of several readings.
        noise_db: standard error of that mean.
        oma_dbm: optical modulation amplitude, None where the extinction ratio is not known.
        by: the port whose power monitor measured it.
    """

    dbm: float
    noise_db: float
    oma_dbm: float | None
    by: str


def oma(dbm: float, extinction_ratio_db: float) -> float:
    """The modulation amplitude, in dBm, of light of an average power and an extinction ratio.

    With the two (outer) levels P1 and P0, the average is (P1 + P0) / 2, the extinction ratio
    P1 / P0 and the amplitude P1 - P0.
    Source: IEEE 802.3, whose clauses on optics (52, 121) define all three.
    """
    ratio = 10 ** (extinction_ratio_db / 10)
    return dbm + 10 * math.log10(2 * (ratio - 1) / (ratio + 1))


class Receiver:
    """A tester's receiver and the last attenuator in front of it.

    Args:
        bench: where it stands.
        port: the tester's channel.
        extinction_ratio_db: of what the tester sends, None where it is not known.
    """

    def __init__(self, bench: Bench, port: Port, extinction_ratio_db: float | None) -> None:
        self._bench = bench
        self._port = port
        self._extinction_ratio_db = extinction_ratio_db
        fiber = bench.testbed.cabling.fiber_to(port)
        before = fiber.source if fiber else None
        spec = bench.testbed.instruments.get(before.owner) if before else None
        behind = before is not None and spec is not None and spec.kind == "attenuator"
        self._fiber_db = fiber.loss_db if fiber else 0.0
        self._attenuator = before if behind else None

    def channel_of(self, attenuator: Attenuator) -> int:
        """The channel of `attenuator` that is in front; raises `NoLoopbackPathError` if none is."""
        before = self._attenuator
        if before is None or before.owner != attenuator.name:
            found = f"{before} is" if before else "no attenuator is"
            raise NoLoopbackPathError(
                f"{attenuator.name} is not in front of {self._port}: {found}; "
                f"a fiber from one of its channels to {self._port} would put it there"
            )
        return int(before.name)

    def arrival(self) -> Arrival | None:
        """Measure the received power; None where no monitor on the bench can.

        Read by the tester's receiver, or else by the attenuator's power monitor, less the
        stated loss of the fiber.
        """
        instrument = self._bench.instruments[self._port.owner]
        if isinstance(instrument, PowerMonitor):
            return self._mean_arrival(instrument, self._port, 0.0)
        if self._attenuator is None:
            return None
        before = self._bench.instruments[self._attenuator.owner]
        if isinstance(before, PowerMonitor):
            return self._mean_arrival(before, self._attenuator, self._fiber_db)
        return None

    def _mean_arrival(self, monitor: PowerMonitor, at: Port, loss_db: float) -> Arrival:
        channel = int(at.name)
        window = monitor.power([channel]).window
        readings = []
        for _ in range(_READINGS):
            self._bench.clock.sleep(window)  # so that no two readings share light
            readings.append(monitor.power([channel]).dbm[channel])
        dbm = statistics.mean(readings) - loss_db
        noise = statistics.stdev(readings) / math.sqrt(_READINGS)
        ratio = self._extinction_ratio_db
        return Arrival(dbm, noise, None if ratio is None else oma(dbm, ratio), str(at))
