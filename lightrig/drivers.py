"""Names for drivers to import.

    from lightrig.drivers import RestorableScpiInstrument, Setting

docs/drivers.md tells how to write one, docs/public-modules.md has a complete example.
"""

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity, PowerLog, PowerReading
from lightrig.instruments.core.detected_power import dbm, over_range
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import (
    DeniedError,
    DisconnectedError,
    GarbledError,
    InstrumentError,
    NoReplyError,
    NotDoneError,
    UnreachableError,
    WrongIdentityError,
)
from lightrig.instruments.core.instrument import (
    Instrument,
    Option,
    from_milliseconds,
    from_seconds,
    line_speed,
    one_of,
)
from lightrig.instruments.core.position_switch import (
    PendingMove,
    PositionSwitch,
    TextPositionSwitch,
)
from lightrig.instruments.core.query_instrument import QueryInstrument
from lightrig.instruments.core.scpi_instrument import (
    ErrorMeanings,
    RestorableScpiInstrument,
    ScpiInstrument,
    Setting,
)
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.wire.framing import Bracketed, Framing, FramingError, Lines, Sized
from lightrig.instruments.wire.scpi import ScpiSession
from lightrig.instruments.wire.session import Answer, QuerySession, Resync
from lightrig.instruments.wire.tl1 import Tl1Session
from lightrig.instruments.wire.trace import record

__all__ = [
    "Answer",
    "Bracketed",
    "Clock",
    "DeniedError",
    "DisconnectedError",
    "Endpoint",
    "ErrorMeanings",
    "Framing",
    "FramingError",
    "GarbledError",
    "Identity",
    "Instrument",
    "InstrumentError",
    "Lines",
    "NoReplyError",
    "NotDoneError",
    "Option",
    "PendingMove",
    "PositionSwitch",
    "PowerLog",
    "PowerReading",
    "QueryInstrument",
    "QuerySession",
    "RestorableScpiInstrument",
    "Resync",
    "ScpiInstrument",
    "ScpiSession",
    "Setting",
    "Sized",
    "Span",
    "TextPositionSwitch",
    "Tl1Session",
    "UnreachableError",
    "WireFact",
    "WrongIdentityError",
    "dbm",
    "from_milliseconds",
    "from_seconds",
    "line_speed",
    "one_of",
    "over_range",
    "record",
]
