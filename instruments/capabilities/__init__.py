"""What a thing on the bench can do: protocols, no code.

Measurements and the bench know these and never a driver. Power is in dBm, time in
integer nanoseconds of the bench's clock unless a name says otherwise.
"""

from instruments.capabilities.bit_errors import (
    BitErrorTester,
    ErrorCount,
    ErrorCounter,
    FecSide,
    PendingCount,
    PortErrorCounters,
)
from instruments.capabilities.climate import (
    ClimateChamber,
)
from instruments.capabilities.instruments import (
    Identified,
    Identity,
    Operation,
    Restorable,
    Troubled,
)
from instruments.capabilities.light import (
    Attenuator,
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
from instruments.capabilities.servers import (
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
    "FastLog",
    "FecSide",
    "Gap",
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
    "Troubled",
]
