"""Parser of the section `simulation` of a testbed file, with defaults for missing values."""

from __future__ import annotations

from typing import Any

from lightrig.testbeds.base import Part
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
    ConnectorsPart,
    DelayPart,
    EdgePart,
    MonitorPart,
    OffsetPart,
    SimulatedClocksPart,
    SimulatedNetworkPart,
    SimulatedNicPart,
    SimulatedSwitchPart,
    SimulationPart,
    SlowPart,
    SpreadLossPart,
)
from lightrig.testbeds.stated_values import spec_of
from lightrig.testbeds.yaml_positions import Keys

_SPECS: dict[type[Part], type] = {
    ConnectorsPart: Distribution,
    DelayPart: Distribution,
    MonitorPart: SimulatedMonitor,
    OffsetPart: Distribution,
    SimulatedClocksPart: SimulatedClocks,
    SimulatedNetworkPart: SimulatedNetwork,
    SimulatedNicPart: SimulatedNic,
    SlowPart: Slow,
    SpreadLossPart: Distribution,
}


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
    more: dict[str, Any] = {}
    if stated.references is not None:
        more["reference_db"] = stated.references.uncertainty
    if (receiver := stated.receiver) is not None:
        pam4 = receiver.modulation == "PAM4"
        more["receiver"] = spec_of(SimulatedReceiver, receiver, pam4=pam4)
    return spec_of(
        Simulation,
        stated,
        _SPECS,
        switches={name: _switch(switches.get(name)) for name in optical},
        faults=tuple(
            spec_of(SimulatedFault, fault, kind=fault.fault, at=tuple(fault.at))
            for fault in stated.faults
        ),
        **more,
    )


def _switch(stated: SimulatedSwitchPart | None) -> SimulatedSwitch:
    if stated is None:
        return SimulatedSwitch()
    ports = spec_of(SimulatedPorts, stated.loss)
    return spec_of(SimulatedSwitch, stated, _SPECS, ports=ports, edge=_edge(stated.edge))


def _edge(stated: EdgePart | None) -> SimulatedEdge:
    if stated is None or stated.ringing is None:
        return spec_of(SimulatedEdge, stated, ringing_db=0.0)
    ringing = stated.ringing
    return spec_of(
        SimulatedEdge,
        stated,
        ringing_db=ringing.depth,
        period_ns=ringing.period,
        decay_ns=ringing.decay,
    )
