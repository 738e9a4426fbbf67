"""Testbeds: description of a laboratory and its file format; plain values, the lowest floor."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightrig.testbeds.errors import LightrigError, Problem, SizesOnlyError, TestbedError

__all__ = [
    "Cabling",
    "CablingError",
    "Change",
    "Circuit",
    "ClockOffset",
    "Connectors",
    "CoordinatorSpec",
    "Db",
    "Dbm",
    "Delay",
    "FatTreeSpec",
    "Fiber",
    "GpuSpec",
    "Identity",
    "InstrumentKind",
    "InstrumentSpec",
    "LaboratorySpec",
    "LightrigError",
    "Limit",
    "LimitError",
    "Link",
    "NicPortSpec",
    "NicSpec",
    "NoLightPathError",
    "PartialMoveError",
    "Plan",
    "PlanError",
    "PlanPair",
    "Port",
    "PowerRange",
    "Problem",
    "QuantityError",
    "RangeError",
    "Ringing",
    "ServerSpec",
    "SimulatedClocks",
    "SimulatedEdge",
    "SimulatedFault",
    "SimulatedLoss",
    "SimulatedMonitor",
    "SimulatedNetwork",
    "SimulatedNic",
    "SimulatedReceiver",
    "SimulatedSwitch",
    "Simulation",
    "SizesOnlyError",
    "Slow",
    "SoakTurn",
    "SwitchSpec",
    "Testbed",
    "TestbedError",
    "TransceiverSpec",
    "UnknownNameError",
    "Vocabulary",
    "difference",
    "expand",
    "format_db",
    "format_dbm",
    "format_duration",
    "format_rate",
    "format_share",
    "format_watt",
    "independent_moves",
    "json_schema",
    "load",
    "parse_db",
    "parse_dbm",
    "parse_duration",
    "parse_limit",
    "parse_rate",
    "parse_share",
    "parse_watt",
    "parse_wavelength",
    "partial_move",
    "plan_pairs",
]

if TYPE_CHECKING:
    from lightrig.testbeds.cabling import Cabling, CablingError, Fiber, NoLightPathError
    from lightrig.testbeds.limits import Limit, LimitError, parse_limit
    from lightrig.testbeds.loading import load
    from lightrig.testbeds.model import (
        InstrumentSpec,
        NicPortSpec,
        NicSpec,
        ServerSpec,
        SwitchSpec,
        Testbed,
        TransceiverSpec,
        UnknownNameError,
    )
    from lightrig.testbeds.pairs import PlanPair, plan_pairs
    from lightrig.testbeds.parts import (
        CoordinatorSpec,
        FatTreeSpec,
        GpuSpec,
        Identity,
        InstrumentKind,
        LaboratorySpec,
        PowerRange,
        SoakTurn,
    )
    from lightrig.testbeds.plans import (
        Change,
        Circuit,
        Link,
        PartialMoveError,
        Plan,
        PlanError,
        Port,
        difference,
        independent_moves,
        partial_move,
    )
    from lightrig.testbeds.quantities import (
        Db,
        Dbm,
        QuantityError,
        format_db,
        format_dbm,
        format_duration,
        format_rate,
        format_share,
        format_watt,
        parse_db,
        parse_dbm,
        parse_duration,
        parse_rate,
        parse_share,
        parse_watt,
        parse_wavelength,
    )
    from lightrig.testbeds.ranges import RangeError, expand
    from lightrig.testbeds.schema import json_schema
    from lightrig.testbeds.simulation import (
        ClockOffset,
        Connectors,
        Delay,
        Ringing,
        SimulatedClocks,
        SimulatedEdge,
        SimulatedFault,
        SimulatedLoss,
        SimulatedMonitor,
        SimulatedNetwork,
        SimulatedNic,
        SimulatedReceiver,
        SimulatedSwitch,
        Simulation,
        Slow,
    )
    from lightrig.testbeds.vocabulary import Vocabulary

_LOADED_AT_FIRST_USE = {
    name: module
    for module, names in {
        "cabling": (
            "Cabling",
            "CablingError",
            "Fiber",
            "NoLightPathError",
        ),
        "limits": (
            "Limit",
            "LimitError",
            "parse_limit",
        ),
        "loading": ("load",),
        "model": (
            "InstrumentSpec",
            "NicPortSpec",
            "NicSpec",
            "ServerSpec",
            "SwitchSpec",
            "Testbed",
            "TransceiverSpec",
            "UnknownNameError",
        ),
        "parts": (
            "CoordinatorSpec",
            "FatTreeSpec",
            "GpuSpec",
            "Identity",
            "InstrumentKind",
            "LaboratorySpec",
            "PowerRange",
            "SoakTurn",
        ),
        "pairs": (
            "PlanPair",
            "plan_pairs",
        ),
        "plans": (
            "Change",
            "Circuit",
            "Link",
            "PartialMoveError",
            "Plan",
            "PlanError",
            "Port",
            "difference",
            "independent_moves",
            "partial_move",
        ),
        "quantities": (
            "Db",
            "Dbm",
            "QuantityError",
            "format_db",
            "format_dbm",
            "format_duration",
            "format_rate",
            "format_share",
            "format_watt",
            "parse_db",
            "parse_dbm",
            "parse_duration",
            "parse_rate",
            "parse_share",
            "parse_watt",
            "parse_wavelength",
        ),
        "ranges": (
            "RangeError",
            "expand",
        ),
        "schema": ("json_schema",),
        "simulation": (
            "ClockOffset",
            "Connectors",
            "Delay",
            "Ringing",
            "SimulatedClocks",
            "SimulatedEdge",
            "SimulatedFault",
            "SimulatedLoss",
            "SimulatedMonitor",
            "SimulatedNetwork",
            "SimulatedNic",
            "SimulatedReceiver",
            "SimulatedSwitch",
            "Simulation",
            "Slow",
        ),
        "vocabulary": ("Vocabulary",),
    }.items()
    for name in names
}
"""The module of each name: all of them load pydantic and YAML, which the errors do not need."""


def __getattr__(name: str) -> Any:
    if name in _LOADED_AT_FIRST_USE:
        module = import_module(f"lightrig.testbeds.{_LOADED_AT_FIRST_USE[name]}")
        found = globals()[name] = getattr(module, name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
