"""Capabilities of instruments and servers: protocols, no code.

Measurements and the bench use these and never a driver. Optical power is in dBm, time in
integer nanoseconds of the bench's clock unless a name states another unit.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightrig.instruments.core.capabilities.bit_errors import (
        BitErrorTester,
        ErrorCount,
        ErrorCounter,
        ErrorUnit,
        FecCounter,
        FecSide,
        HasFecHistograms,
        HistogramCounter,
        PendingCount,
        PendingHistogram,
        PortErrorCounters,
        SymbolErrorHistogram,
    )
    from lightrig.instruments.core.capabilities.instruments import (
        ClimateChamber,
        HasErrorQueue,
        HasLightLevel,
        HasSettings,
        Identified,
        Identity,
        Operation,
        Restorable,
        SetsLight,
        TakesCommands,
    )
    from lightrig.instruments.core.capabilities.light import (
        Attenuator,
        CommandsInTurn,
        FactoryCalibrated,
        FactoryLoss,
        FastLog,
        LightSource,
        ModuleTelemetry,
        OpticalSwitch,
        PendingLog,
        PendingLogs,
        PolarizationController,
        PowerLog,
        PowerMeter,
        PowerMonitor,
        PowerReading,
        Preloading,
        SimultaneousLogs,
        Telemetry,
    )
    from lightrig.instruments.core.capabilities.modules import (
        HasLinkUpTimes,
        HasModuleReads,
        LinkUpTimes,
        ModuleLights,
        Shown,
        ShownState,
    )
    from lightrig.instruments.core.capabilities.servers import (
        ClockStatus,
        CountGrowth,
        Datagram,
        Diagnostic,
        Gap,
        HasKernelMessages,
        HasModuleDiagnostics,
        HasNic,
        HasPartners,
        HasPortCounters,
        KernelLine,
        KernelReading,
        LateDatagram,
        LinkEvent,
        PendingSettlement,
        PortCounts,
        PortWatch,
        Reconnectable,
        Server,
        Settled,
        Stage,
    )
    from lightrig.instruments.core.capabilities.switches import (
        BlocksPorts,
        CircuitNotifications,
        HasPortLabels,
        NotifiesCircuits,
        Resettable,
        Restartable,
        SavesConfiguration,
    )

__all__ = [
    "Attenuator",
    "BitErrorTester",
    "BlocksPorts",
    "CircuitNotifications",
    "ClimateChamber",
    "ClockStatus",
    "CommandsInTurn",
    "CountGrowth",
    "Datagram",
    "Diagnostic",
    "ErrorCount",
    "ErrorCounter",
    "ErrorUnit",
    "FactoryCalibrated",
    "FactoryLoss",
    "FastLog",
    "FecCounter",
    "FecSide",
    "Gap",
    "HasErrorQueue",
    "HasFecHistograms",
    "HasKernelMessages",
    "HasLightLevel",
    "HasLinkUpTimes",
    "HasModuleDiagnostics",
    "HasModuleReads",
    "HasNic",
    "HasPartners",
    "HasPortCounters",
    "HasPortLabels",
    "HasSettings",
    "HistogramCounter",
    "Identified",
    "Identity",
    "KernelLine",
    "KernelReading",
    "LateDatagram",
    "LightSource",
    "LinkEvent",
    "LinkUpTimes",
    "ModuleLights",
    "ModuleTelemetry",
    "NotifiesCircuits",
    "Operation",
    "OpticalSwitch",
    "PendingCount",
    "PendingHistogram",
    "PendingLog",
    "PendingLogs",
    "PendingSettlement",
    "PolarizationController",
    "PortCounts",
    "PortErrorCounters",
    "PortWatch",
    "PowerLog",
    "PowerMeter",
    "PowerMonitor",
    "PowerReading",
    "Preloading",
    "Reconnectable",
    "Resettable",
    "Restartable",
    "Restorable",
    "SavesConfiguration",
    "Server",
    "SetsLight",
    "Settled",
    "Shown",
    "ShownState",
    "SimultaneousLogs",
    "Stage",
    "SymbolErrorHistogram",
    "TakesCommands",
    "Telemetry",
]

_MODULES = ("instruments", "switches", "light", "modules", "bit_errors", "servers")
"""The modules of this package, those first that most drivers need."""


def __getattr__(name: str) -> Any:
    """Return a capability, from the first of the modules that has it.

    A driver needs few of them, and each class takes a measurable part of the start of a command.
    """
    if name in __all__:
        for module in _MODULES:
            found = getattr(import_module(f"{__name__}.{module}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
