"""Names for simulated devices to import; a run on hardware never loads it.

    from lightrig.devices import Number, Query, ScpiDevice

docs/drivers.md tells how to write one, docs/public-modules.md has a complete example.
"""

from lightrig.instruments.simulated.devices.position_switch import (
    SimulatedPositionSwitch,
    SimulatedTextSwitch,
)
from lightrig.instruments.simulated.protocols.commands import Constant, Ignored, Query, command
from lightrig.instruments.simulated.protocols.framed_device import FramedDevice, FrameReply
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, ScpiDevice
from lightrig.instruments.simulated.protocols.scpi_status import StatusSubsystem
from lightrig.instruments.simulated.protocols.scpi_values import (
    DBM,
    DECIBELS,
    METRES,
    PLAIN,
    SECONDS,
    WATTS,
    Choice,
    Flag,
    Number,
    ScpiError,
    ScpiNode,
)
from lightrig.instruments.simulated.protocols.tl1_device import (
    Tl1Denial,
    Tl1Device,
    Tl1Reply,
    Tl1Request,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.detector import Detector, Exposure, Photodiode
from lightrig.instruments.simulated.world.light import Channels

__all__ = [
    "DBM",
    "DECIBELS",
    "METRES",
    "PLAIN",
    "SECONDS",
    "WATTS",
    "Channels",
    "Choice",
    "Constant",
    "DelayedReply",
    "Detector",
    "DeviceContext",
    "Exposure",
    "Flag",
    "FrameReply",
    "FramedDevice",
    "Ignored",
    "Number",
    "Photodiode",
    "Query",
    "ScpiDevice",
    "ScpiError",
    "ScpiNode",
    "SimulatedPositionSwitch",
    "SimulatedTextSwitch",
    "StatusSubsystem",
    "Tl1Denial",
    "Tl1Device",
    "Tl1Reply",
    "Tl1Request",
    "command",
]
