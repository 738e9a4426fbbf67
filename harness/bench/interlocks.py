"""Interlocks: a change of circuits that can destroy a receiver, or harm the switch, is refused.

`lightrig check` has judged every transmitter whose greatest power the testbed file states, whatever
circuit is made. What is left is judged here, before anything is sent: light of instruments whose
power is not stated, as the switch's monitors measure it, and light at a switch that must not move
a circuit under more than its `switching_power`. An interlock that the testbed file overrides is not
judged. None of this is a safety device.
"""

from collections.abc import Collection, Iterator, Mapping

from lightrig.harness.bench.bench import Bench
from lightrig.instruments.core.capabilities import LightSource, PowerMonitor
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import (
    Circuit,
    LightrigError,
    Port,
    SwitchSpec,
    TransceiverSpec,
    format_dbm,
)


class InterlockError(LightrigError):
    """A change of circuits would meet too much light."""


class Interlocks:
    """The interlocks of a bench's optical switches."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._testbed = bench.testbed
        self._unstated = self._find_unstated()

    def _find_unstated(self) -> frozenset[Port]:
        """Return the ingress ports whose light comes from an instrument of unstated power."""
        if "receiver_damage" in self._testbed.overrides:
            return frozenset()
        instruments = self._testbed.instruments
        return frozenset(
            fiber.sink
            for fiber in self._testbed.fibers
            if fiber.source.owner in instruments
            and instruments[fiber.source.owner].launch_max_dbm is None
        )

    def check(self, switch: str, made: frozenset[Circuit], removed: frozenset[Circuit]) -> None:
        """Raise `InterlockError`, with all ports, if a change would meet too much light.

        Contacts a switch only where the testbed file states a limit that is not judged without.
        """
        spec = self._testbed.switches[switch]
        destroying = dict(self._destroying(switch, made)) if self._unstated else {}
        switching: frozenset[int] = frozenset()
        if spec.switching_max_dbm is not None and "switching_power" not in self._testbed.overrides:
            switching = frozenset(circuit.ingress for circuit in made | removed)
        ingress = sorted({*destroying, *switching})
        if not ingress:
            return
        measured = self._measured(switch, ingress)
        problems: list[str] = []
        for port in ingress:
            if port in destroying:
                problems += self._too_destructive(spec, port, *destroying[port], measured.get(port))
            if port in switching:
                problems += self._too_bright(spec, port, measured.get(port))
        if problems:
            raise InterlockError(
                f"{switch} is not changed: "
                + "; ".join(problems)
                + "\n  try       switch the light off, close its shutter, or attenuate it; "
                f"`overrides:` in {self._testbed.path} switches an interlock off, with a reason"
            )

    def _destroying(
        self, switch: str, made: Collection[Circuit]
    ) -> Iterator[tuple[int, tuple[Port, float]]]:
        """Yield ingress ports of light of unstated power, the receiver, and what destroys it."""
        for circuit in made:
            onward = self._testbed.cabling.fiber_from(Port(switch, str(circuit.egress)))
            if onward is None or Port(switch, str(circuit.ingress)) not in self._unstated:
                continue
            if (damage := self._damage(onward.sink)) is not None:
                yield circuit.ingress, (onward.sink, damage + onward.loss_db)

    def _damage(self, sink: Port) -> float | None:
        if (instrument := self._testbed.instruments.get(sink.owner)) is not None:
            return instrument.damage_dbm
        transceiver = self._transceiver(sink)
        return transceiver.damage_dbm if transceiver is not None else None

    def _too_destructive(
        self, spec: SwitchSpec, ingress: int, sink: Port, most: float, measured: float | None
    ) -> Iterator[str]:
        """Yield why light at `ingress` must not reach `sink`, if so.

        Without a monitor only a light source that is on is refused: nothing else that the bench
        knows can be asked whether it sends light.
        """
        destroyed = (
            f"{sink}, whose receiver is destroyed by more than {format_dbm(most)} from there"
        )
        fiber = self._testbed.cabling.fiber_to(Port(spec.name, str(ingress)))
        if measured is not None:
            if measured > most:
                yield f"{format_dbm(measured)} at ingress {ingress} would reach {destroyed}"
        elif fiber is not None and self._emission(fiber.source):
            yield (
                f"light of {fiber.source}, which is not measured and whose `launch:` is not "
                f"stated, would reach {destroyed}"
            )

    def _too_bright(self, spec: SwitchSpec, ingress: int, measured: float | None) -> Iterator[str]:
        """Yield why a circuit of `ingress` must not be changed now, if so."""
        most = spec.switching_max_dbm
        assert most is not None
        allowed = f"more than the {format_dbm(most)} under which it may be switched"
        if measured is not None:
            if measured > most:
                yield f"ingress {ingress} has {format_dbm(measured)}, {allowed}"
            return
        fiber = self._testbed.cabling.fiber_to(Port(spec.name, str(ingress)))
        if fiber is None or self._emission(fiber.source) is False:
            return
        launched = self._launched(fiber.source)
        if launched is None:
            yield f"ingress {ingress} is not measured, and the power of {fiber.source} not stated"
        elif launched - fiber.loss_db > most:
            yield (
                f"ingress {ingress} is not measured, and {fiber.source} launches up to "
                f"{format_dbm(launched)}{self._assumed(fiber.source)}, {allowed}"
            )

    def _emission(self, source: Port) -> bool | None:
        """Return whether a light source of the bench is on, None for anything else."""
        instrument = self._bench.instruments.get(source.owner)
        spec = self._testbed.instruments.get(source.owner)
        if spec is None or spec.kind != "light_source" or instrument is None:
            return None
        light: LightSource = instrument  # type: ignore[assignment]
        return light.emission(int(source.name))

    def _launched(self, source: Port) -> float | None:
        """Return the greatest power that `source` launches into its fiber, None if not stated."""
        if (instrument := self._testbed.instruments.get(source.owner)) is not None:
            return instrument.launch_max_dbm
        transceiver = self._transceiver(source)
        return transceiver.fiber_launch_max_dbm if transceiver is not None else None

    def _assumed(self, source: Port) -> str:
        transceiver = self._transceiver(source)
        return transceiver.assumed_wavelengths if transceiver is not None else ""

    def _transceiver(self, port: Port) -> TransceiverSpec | None:
        if port.owner in self._testbed.instruments or port.owner in self._testbed.optical_switches:
            return None
        return self._testbed.transceiver_of(port)

    def _measured(self, switch: str, ports: list[int]) -> Mapping[int, float]:
        """Return the power at `ports`, empty where the switch has no monitors there.

        A source that was switched just before is seen in full: the reading that counts averages
        over time after the first one alone.
        """
        monitor = self._bench.switches[switch]
        if not isinstance(monitor, PowerMonitor):
            return {}
        try:
            window = monitor.power(ports).window
            self._bench.clock.sleep(window)
            return monitor.power(ports).dbm
        except DeniedError:
            return {}
