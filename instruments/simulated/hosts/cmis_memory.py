"""The memory of a simulated CMIS module, as far as `ethtool -m IF page N` is used to read it.

Layout: OIF-CMIS-05.2, 8.2.1, 8.3, 8.4.9 and 8.14. Signal quality follows from the port's bit error
ratio before FEC, which is that of independent errors in four levels: 3/8 erfc(sqrt(SNR / 10)).
"""

import math
import struct
from collections.abc import Iterator
from statistics import NormalDist

from lightrig.instruments.simulated.hosts.host_ports import I2C, SimulatedPort

_PAGE = 128
_IDENTIFIER = 0x18
_VDM_SUPPORTED = 0x40
_HOST_BER = 1e-12
_DARK_BER = 0.5

ESNR, ESNR_HOST = 5, 6
BER_LEAST, BER_GREATEST, BER_AVERAGE, BER_NOW, BER_NOW_HOST = 9, 11, 13, 15, 16


def read(port: SimulatedPort, address: int, number: int, offset: int, length: int) -> bytes | None:
    """Read a part of a module's memory; None where it has none there.

    Flags that are read are cleared. address: on the module's bus, of which SFF-8472 has two.
    """
    memory = port.model.memory
    if port.spec.transceiver is None or (address != I2C and memory != "SFF-8472"):
        return None
    changing = port.module_memory(number, offset, length, address)
    if memory != "CMIS" or (number and offset < _PAGE):
        return None if number else changing
    found = page(port, number)[offset : offset + length]
    if changing is None:
        return found
    both = int.from_bytes(found) | int.from_bytes(changing)
    return both.to_bytes(len(changing))


def page(port: SimulatedPort, number: int) -> bytes:
    """Return 256 bytes: the lower half of page 0 and the upper half of page `number`.

    Without what changes with the light and by the host's controls: `read` has it.
    """
    lower = bytearray(_PAGE)
    lower[:4] = _IDENTIFIER, 0x52, 0x00, 0x07  # CMIS 5.2, paged memory, module ready
    upper = bytearray(_PAGE)
    if number == 0x00:
        now = port.registers()
        lower[14:18] = struct.pack(">hH", now.temperature, now.voltage)
        for place, text, length in (
            (129, "Lightrig", 16),
            (148, port.limits.name.upper(), 16),
            (164, "A0", 2),
            (166, port.serial, 16),
        ):
            at = place - _PAGE
            upper[at : at + length] = text.encode("ascii")[:length].ljust(length)
        upper[0] = _IDENTIFIER
    elif number == 0x01:
        upper[142 - _PAGE] = _VDM_SUPPORTED
    elif number == 0x20:
        upper = bytearray().join(bytes((lane, kind)) for kind, lane in _stated(port))
    elif number == 0x24:
        upper = bytearray().join(_measured(port))
    return bytes(lower) + bytes(upper).ljust(_PAGE, b"\0")


def _stated(port: SimulatedPort) -> Iterator[tuple[int, int]]:
    kinds = (ESNR, BER_LEAST, BER_GREATEST, BER_AVERAGE, BER_NOW, ESNR_HOST, BER_NOW_HOST)
    return ((kind, lane) for kind in kinds for lane in range(port.spec.lanes))


def _measured(port: SimulatedPort) -> Iterator[bytes]:
    dark = port.signal_lost(port.registers())
    factors = [10 ** (0.02 * port.diagnostics_draws.normal()) for _ in dark]
    for kind, lane in _stated(port):
        ber = _HOST_BER if kind in (ESNR_HOST, BER_NOW_HOST) else port.ber
        if dark[lane] and ber != _HOST_BER:
            yield struct.pack(">H", 0 if kind == ESNR else f16(_DARK_BER))
        elif kind in (ESNR, ESNR_HOST):
            yield struct.pack(">H", round(256 * snr_db(ber)))
        else:
            share = {BER_LEAST: 0.8, BER_GREATEST: 1.3, BER_NOW: factors[lane]}.get(kind, 1.0)
            yield struct.pack(">H", f16(ber * share))


def snr_db(ber: float) -> float:
    """Return the ratio of signal to noise of four levels, in dB, of a bit error ratio."""
    return 10 * math.log10(5 * NormalDist().inv_cdf(4 / 3 * min(ber, 0.3)) ** 2)


def f16(value: float) -> int:
    """Return a value as eleven bits of mantissa and five of exponent, offset -24."""
    for exponent in range(32):
        mantissa = round(value / 10.0 ** (exponent - 24))
        if mantissa < 1 << 11:
            return exponent << 11 | mantissa
    return 0xFFFF
