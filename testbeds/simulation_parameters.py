"""Parser of the section `simulation` of a testbed file, with defaults for missing values."""

from __future__ import annotations

from lightrig.testbeds.expansion import Parts
from lightrig.testbeds.findings import Findings, did_you_mean
from lightrig.testbeds.model import (
    Distribution,
    SimulatedClocks,
    SimulatedEdge,
    SimulatedFault,
    SimulatedMonitor,
    SimulatedNetwork,
    SimulatedNic,
    SimulatedPorts,
    SimulatedReceiver,
    SimulatedSwitch,
    Simulation,
    Slow,
)
from lightrig.testbeds.ranges import RangeError, expand
from lightrig.testbeds.schema import Document
from lightrig.testbeds.simulation_schema import (
    DelayPart,
    EdgePart,
    OffsetPart,
    SimulatedClocksPart,
    SimulatedNetworkPart,
    SimulatedNicPart,
    SimulatedSwitchPart,
    SimulationPart,
    SpreadLossPart,
)
from lightrig.testbeds.yaml_positions import Keys


def read_simulation(document: Document, parts: Parts, findings: Findings) -> Simulation:
    """Return the ground truth of a simulated world, with a part for every optical switch."""
    stated = document.simulation or SimulationPart()
    optical = [name for name, spec in parts.switches.items() if spec.kind == "optical"]
    switches: dict[str, SimulatedSwitchPart] = {}
    for stated_name, part in stated.switches.items():
        at: Keys = ("simulation", "switches", stated_name)
        try:
            names = expand(stated_name)
        except RangeError as error:
            findings.add(at, str(error), of_key=True)
            continue
        unknown = next((name for name in names if name not in optical), None)
        if unknown is not None:
            hint = did_you_mean(unknown, optical)
            findings.add(at, f"found the unknown optical switch {unknown!r}{hint}", of_key=True)
        if twice := switches.keys() & set(names):
            findings.add(at, f"{min(twice)} has parameters twice", of_key=True)
        switches |= dict.fromkeys(names, part)
    return Simulation(
        {name: _switch(switches.get(name) or SimulatedSwitchPart()) for name in optical},
        _nic(stated.nic or SimulatedNicPart()),
        _network(stated.network or SimulatedNetworkPart()),
        _clocks(stated.clocks or SimulatedClocksPart()),
        tuple(
            SimulatedFault(
                f.fault,
                tuple(f.at),
                f.loss or 0.0,
                f.ppm or 0.0,
                f.tool or "",
                f.drift or 0.0,
                f.after or 0,
                f.answers,
                f.lasting,
                f.step or 0,
            )
            for f in stated.faults
        ),
        stated.references.uncertainty if stated.references else Simulation().reference_db,
        (
            Distribution(float(stated.connectors.mean), float(stated.connectors.sd))
            if stated.connectors
            else Simulation().connectors
        ),
        (
            SimulatedReceiver(stated.receiver.modulation == "PAM4", stated.receiver.propagation)
            if stated.receiver
            else SimulatedReceiver()
        ),
    )


def _delay(stated: DelayPart | None, default: Distribution[int]) -> Distribution[int]:
    if stated is None:
        return default
    rare = stated.slow
    slow = Slow(rare.share, rare.mean, rare.sd or 0) if rare else None
    return Distribution(stated.mean, stated.sd or 0, stated.per_pair or 0, slow)


def _loss(stated: SpreadLossPart | None, default: Distribution[float]) -> Distribution[float]:
    return Distribution(float(stated.mean), stated.sd or 0.0) if stated else default


def _ports(stated: SpreadLossPart | None) -> SimulatedPorts:
    if stated is None:
        return SimulatedPorts()
    return SimulatedPorts(
        stated.ingress or 0.0,
        stated.egress or 0.0,
        stated.repeatability or 0.0,
        stated.polarization or 0.0,
        stated.per_kelvin or 0.0,
        stated.per_nm or 0.0,
        stated.crosstalk,
    )


def _edge(stated: EdgePart | None) -> SimulatedEdge:
    if stated is None:
        return SimulatedEdge()
    if stated.ringing is None:
        return SimulatedEdge(stated.rise, stated.fall)
    ringing = stated.ringing
    return SimulatedEdge(
        stated.rise, stated.fall, float(ringing.depth), ringing.period, ringing.decay
    )


def _switch(stated: SimulatedSwitchPart) -> SimulatedSwitch:
    default = SimulatedSwitch()
    monitor = default.monitor
    if stated.monitor:
        averaging, noise = stated.monitor.averaging, stated.monitor.noise
        monitor = SimulatedMonitor(
            monitor.averaging_ns if averaging is None else averaging,
            monitor.noise_db if noise is None else noise,
            stated.monitor.offset or 0.0,
            stated.monitor.drift or 0.0,
        )
    return SimulatedSwitch(
        _delay(stated.acknowledge, default.acknowledge),
        _delay(stated.dark, default.dark),
        _delay(stated.settle, default.settle),
        _loss(stated.loss, default.loss),
        monitor,
        _ports(stated.loss),
        _edge(stated.edge),
    )


def _nic(stated: SimulatedNicPart) -> SimulatedNic:
    default = SimulatedNic()
    return SimulatedNic(
        _delay(stated.loss_detection, default.loss_detection),
        _delay(stated.bring_up, default.bring_up),
        _delay(stated.carrier, default.carrier),
        _delay(stated.resume, default.resume),
        stated.driver or default.driver,
        bool(stated.fec_histogram),
    )


def _network(stated: SimulatedNetworkPart) -> SimulatedNetwork:
    default = SimulatedNetwork()
    return SimulatedNetwork(
        _delay(stated.delay, default.delay), _delay(stated.write, default.write)
    )


def _clocks(stated: SimulatedClocksPart) -> SimulatedClocks:
    offset: OffsetPart | None = stated.offset
    return SimulatedClocks(
        SimulatedClocks().offset
        if offset is None
        else Distribution(offset.mean or 0, offset.sd or 0),
        stated.drift_ppm or 0.0,
        stated.wander_ppm or 0.0,
    )
