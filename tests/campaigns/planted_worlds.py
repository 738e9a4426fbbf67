"""Simulated laboratories with faults that no testbed file can state, behind an unchanged file."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from lightrig import testbeds
from lightrig.instruments.simulated import lab as simulated_lab
from lightrig.instruments.simulated.hosts.host_tools import HostTools
from lightrig.instruments.simulated.hosts.simulated_probe import SimulatedProbe
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Circuit, Delay, Port


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What a server's program prints otherwise, where its arguments have `device`."""

    server: str
    program: str
    pattern: str
    replacement: str
    device: str = ""


@dataclass(frozen=True, slots=True)
class Plant:
    """A fault of a world.

    rewrites: of what programs print. kernels: versions by server. change: of the finished world.
    """

    rewrites: Sequence[Rewrite] = ()
    kernels: Sequence[tuple[str, str]] = ()
    change: Callable[[SimulatedLab], None] = lambda lab: None


UNPLANTED = Plant()


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """Let simulated servers have the programs and kernels of `plant` meanwhile."""
    kernels = dict(plant.kernels)

    class Tools(HostTools):
        def __init__(self, name: str, *arguments: Any, **options: Any) -> None:
            super().__init__(name, *arguments, **options)
            for one in plant.rewrites:
                if one.server == name:
                    self.programs[one.program] = _rewritten(self.programs[one.program], one)

    class Probe(SimulatedProbe):
        def __init__(self, server: str, *arguments: Any) -> None:
            listed, version = list(arguments), kernels.get(server)
            write = listed[4]  # after ports, links, clock and draws
            if version is not None:
                listed[4] = lambda text: write(text.replace('"6.8.0"', f'"{version}"'))
            super().__init__(server, *listed)

    with (
        mock.patch.object(simulated_lab, "HostTools", Tools),
        mock.patch.object(simulated_lab, "SimulatedProbe", Probe),
    ):
        yield


def _rewritten(program: Callable[[Sequence[str]], Any], one: Rewrite) -> Callable[..., Any]:
    def run(arguments: Sequence[str]) -> Any:
        outcome = program(arguments)
        if one.device and one.device not in arguments:
            return outcome
        return outcome._replace(stdout=re.sub(one.pattern, one.replacement, outcome.stdout))

    return run


def slow_mirror(egress: int, factor: float) -> Callable[[SimulatedLab], None]:
    """The light of one egress port comes later than that of the others."""

    def change(lab: SimulatedLab) -> None:
        matrix = lab.matrices["ocs"]
        connect, draws = matrix.connect, matrix.delays

        class Slow:
            def duration(self, delay: Delay, count: int = 1) -> int:
                return draws.duration(delay.times(factor), count)

        def connected(circuits: Collection[Circuit]) -> int:
            took = connect([one for one in circuits if one.egress != egress])
            late = [one for one in circuits if one.egress == egress]
            if late:
                matrix.delays = Slow()  # type: ignore[assignment]
                connect(late)
                matrix.delays = draws
            return took

        matrix.connect = connected

    return change


def misread_egress(decibel: float) -> Callable[[SimulatedLab], None]:
    """All monitors at egress ports show less."""

    def change(lab: SimulatedLab) -> None:
        matrix = lab.matrices["ocs"]
        readings = matrix.readings

        def shown(egresses: Collection[int], ingresses: Collection[int] = ()) -> list[float]:
            egresses = tuple(egresses)
            found = readings(egresses, ingresses)
            less = [dbm - decibel for dbm in found[: len(egresses)]]
            return [*less, *found[len(egresses) :]]

        matrix.readings = shown

    return change


def lossy_circuit(circuit: Circuit, decibel: float) -> Callable[[SimulatedLab], None]:
    """One circuit loses more, as where its two mirrors do not meet."""

    def change(lab: SimulatedLab) -> None:
        matrix = lab.matrices["ocs"]
        loss = matrix.loss
        matrix.loss = lambda one: loss(one) + decibel * (one == circuit)

    return change


def slow_links(
    ports: Sequence[str], *, factor: float = 1.0, more_ns: int = 0
) -> Callable[[SimulatedLab], None]:
    """The firmware of NIC ports takes longer to bring a link up."""

    def change(lab: SimulatedLab) -> None:
        bring_up = lab.testbed.simulation.nic.bring_up
        for name in ports:
            owner, _, rest = name.partition(".")
            timeline = lab.links.timeline(Port(owner, rest))
            timeline.draws = _Slow(timeline.draws, bring_up, factor, more_ns)  # type: ignore[assignment]

    return change


@dataclass(frozen=True, slots=True)
class _Slow:
    draws: Any
    slow: Delay
    factor: float
    more_ns: int

    def duration(self, delay: Delay, count: int = 1) -> int:
        drawn: int = self.draws.duration(delay, count)
        return round(self.factor * drawn) + self.more_ns if delay == self.slow else drawn


def noisy_receiver(port: str, ratio: float) -> Callable[[SimulatedLab], None]:
    """A NIC port has this bit error ratio before FEC."""

    def change(lab: SimulatedLab) -> None:
        owner, _, rest = port.partition(".")
        nic = lab.roster[Port(owner, rest)]
        nic.spec = replace(nic.spec, ber=ratio)

    return change


def renamed_device(port: str, name: str) -> Callable[[SimulatedLab], None]:
    """A NIC port's network device has another name than the file says."""

    def change(lab: SimulatedLab) -> None:
        owner, _, rest = port.partition(".")
        nic = lab.roster[Port(owner, rest)]
        nic.spec = replace(nic.spec, netdev=name)

    return change


def world(
    described: testbeds.Testbed, plant: Plant, arguments: Sequence[Any], options: Any
) -> SimulatedLab:
    """Return the laboratory of a description, with the changes of a plant in it."""
    lab = SimulatedLab(described, *arguments, **options)
    plant.change(lab)
    return lab
