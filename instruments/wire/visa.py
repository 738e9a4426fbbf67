"""GPIB, USB, VXI-11 and HiSLIP through PyVISA, as a stream of whole messages.

A VISA instrument is read only after it was asked, so a read begins with every command that
holds a question mark.
"""

from typing import Any

import pyvisa

from instruments.clock import Clock
from instruments.errors import UnreachableError
from instruments.wire.stream import Stream

BACKEND = "@py"
"""PyVISA's pure-Python backend, which needs no vendor's library."""
_LONGEST_READ = 600_000
"""How long VISA itself waits in ms; the exchange above gives up long before."""


def visa_stream(instrument: str, resource: str, clock: Clock) -> Stream:
    """A stream to a VISA resource; raises `UnreachableError`."""
    start = clock.now()
    try:
        manager = pyvisa.ResourceManager(BACKEND)
        opened = manager.open_resource(resource, open_timeout=3000)
    except (pyvisa.Error, OSError, ValueError, NotImplementedError) as error:
        took = (clock.now() - start) / 1e9
        raise UnreachableError(
            instrument,
            f"did not answer at {resource} after {took:.2f} s: {error}",
            details=[("try", "`pyvisa-info`; is the instrument on, is its interface enabled?")],
        ) from error
    opened.timeout = _LONGEST_READ
    return _VisaStream(opened, clock)


class _VisaStream:
    def __init__(self, resource: Any, clock: Clock) -> None:
        raise NotImplementedError
