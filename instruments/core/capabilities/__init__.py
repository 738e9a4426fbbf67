"""Capabilities of instruments and servers: protocols, no code.

Measurements and the bench use these and never a driver. Optical power is in dBm, time in
integer nanoseconds of the bench's clock unless a name states another unit.
"""

from lightrig.instruments.core.capabilities.bit_errors import (
    BitErrorTester,
    ErrorCount,
    ErrorCounter,
    ErrorUnit,
    FecCounter,
    FecSide,
    PendingCount,
    PortErrorCounters,
)
from lightrig.instruments.core.capabilities.climate import ClimateChamber
from lightrig.instruments.core.capabilities.instruments import (
    HasErrorQueue,
    HasSettings,
    Identified,
    Identity,
    Operation,
    Restorable,
)
from lightrig.instruments.core.capabilities.light import (
    Attenuator,
    FactoryCalibrated,
    FactoryLoss,
    FastLog,
    LightSource,
    ModuleTelemetry,
    OpticalSwitch,
    PendingLog,
    PendingLogs,
    PowerLog,
    PowerMeter,
    PowerMonitor,
    PowerReading,
    Preloading,
    SimultaneousLogs,
    Telemetry,
)
from lightrig.instruments.core.capabilities.servers import (
    Gap,
    LinkEvent,
    PendingSettlement,
    PortWatch,
    Server,
    Settled,
    Stage,
)

__all__ = [
    "Attenuator",
    "BitErrorTester",
    "ClimateChamber",
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
    "HasSettings",
    "Identified",
    "Identity",
    "LightSource",
    "LinkEvent",
    "ModuleTelemetry",
    "Operation",
    "OpticalSwitch",
    "PendingCount",
    "PendingLog",
    "PendingLogs",
    "PendingSettlement",
    "PortErrorCounters",
    "PortWatch",
    "PowerLog",
    "PowerMeter",
    "PowerMonitor",
    "PowerReading",
    "Preloading",
    "Restorable",
    "Server",
    "Settled",
    "SimultaneousLogs",
    "Stage",
    "Telemetry",
]
