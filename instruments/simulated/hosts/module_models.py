"""Models of simulated modules: what their memory is like, and what their firmware does with light.

Times are assumed where no source is named: modules state the longest durations of their states, and
none how long it takes to lock.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from lightrig.instruments.simulated.hosts.cmis_module import CODES, INIT, ModuleTimes
from lightrig.testbeds import Delay

Memory: TypeAlias = Literal["CMIS", "SFF-8636", "SFF-8472"]

_MS = 1_000_000


class ModuleModel(NamedTuple):
    """A model of modules.

    Attributes:
        name: for people.
        memory: the standard of its memory.
        codes: of the longest durations of its states, see `CmisModule`.
        advertises: whether page 01h states them; without, those bytes are 0.
        rounds: how often its firmware initializes the data paths anew whenever light is back.
        times: of its receiver.
        answer: from the request to the driver's answer, for up to 128 bytes.
    """

    name: str
    memory: Memory
    codes: Mapping[int, int] = CODES
    advertises: bool = True
    rounds: int = 0
    times: ModuleTimes = ModuleTimes()
    answer: Delay = Delay(3 * _MS, 700_000)


_SHORT = MappingProxyType({**CODES, INIT: 5})
_SHORTER = MappingProxyType({**CODES, INIT: 4})

_NRZ_LOCK, _NRZ_OUTPUT = Delay(700_000, 200_000), Delay(60_000, 10_000)
"""Of a receiver of two levels. Lock: 50,000 UI are typical, 3.7e7 UI the most, which at 25.78 GBd
is 2 us and 1.44 ms: AMD DS956 1.15, "GTY and GTYP Transceiver PLL/Lock Time Adaptation". Output:
within 80 us of the signal's return: Avago AFBR-83CDZ, "I/O Timing for Squelch and Disable"."""

CMIS = ModuleModel("CMIS with durations", "CMIS")
CMIS_SILENT = ModuleModel("CMIS without durations", "CMIS", advertises=False)
CMIS_ANEW = ModuleModel("CMIS that begins anew", "CMIS", codes=_SHORT, rounds=1)
CMIS_LOOP = ModuleModel("CMIS in a loop", "CMIS", codes=_SHORTER, rounds=4)
SFF_8636 = ModuleModel(
    "SFF-8636",
    "SFF-8636",
    # SFF-8679, timing of Rx LOS: 100 ms at most until it is shown.
    times=ModuleTimes(
        signal=Delay(20 * _MS, 6 * _MS), lock=_NRZ_LOCK, output=_NRZ_OUTPUT, late=30 * _MS
    ),
)
SFF_8472 = ModuleModel(
    "SFF-8472",
    "SFF-8472",
    # Finisar AN-2030, table 3.10: the pin follows light within 100 us, its bit within 100 ms.
    times=ModuleTimes(
        signal=Delay(60_000, 10_000), lock=_NRZ_LOCK, output=_NRZ_OUTPUT, late=40 * _MS
    ),
)

MODELS = (CMIS, CMIS_SILENT, CMIS_ANEW, CMIS_LOOP, SFF_8636, SFF_8472)


def model_by(lanes: int) -> ModuleModel:
    """Return the usual model of so many lanes: eight have CMIS, a single one SFF-8472."""
    return SFF_8472 if lanes == 1 else SFF_8636 if lanes < 8 else CMIS
