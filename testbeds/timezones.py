"""Time zones, by their IANA names, and the date at a moment in one.

The zone is that of a testbed's file, or this machine's.
"""

import datetime as dt
import os
import zoneinfo
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.findings import did_you_mean

_LOCALTIME = Path("/etc/localtime")
_DATABASE = "zoneinfo/"


class ZoneError(LightrigError):
    """Testbeds of one run state different time zones."""


class LocalTime(NamedTuple):
    """A moment by the clocks of a place, and the name of its zone."""

    time: dt.datetime
    zone: str

    @property
    def stamp(self) -> str:
        """Its date and time as names of runs and nights begin, such as "20260314-013000"."""
        return f"{self.time:%Y%m%d-%H%M%S}"

    @property
    def offset(self) -> str:
        """How far its clocks are ahead of UTC, such as "-07:00"."""
        return self.time.isoformat(timespec="seconds")[19:]


def zone_name(name: str) -> str:
    """Return the name of a time zone; raises `ValueError` with what is wrong with another text."""
    try:
        if name != "localtime":
            zoneinfo.ZoneInfo(name)
            return name
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        pass
    known = sorted(zoneinfo.available_timezones() - {"localtime"})
    if not known:
        raise ValueError(
            f"time zone {name!r}: this machine has no database of time zones; install tzdata"
        )
    raise ValueError(
        f"found {name!r}, expected a time zone by its IANA name, such as 'Europe/Berlin'"
        f"{did_you_mean(name, known)}"
    )


def common_zone(stated: Iterable[tuple[str, str | None]]) -> str | None:
    """Return the zone that testbeds state, by name and zone; None where none of them does.

    Raises `ZoneError` for two that differ: a run has one date.
    """
    zones = {zone: name for name, zone in stated if zone is not None}
    if len(zones) > 1:
        (one, first), (differing, second), *_ = zones.items()
        raise ZoneError(
            f"{first} states the time zone {one}, {second} {differing}: a run counts for one "
            "date, so measure them in runs of their own"
        )
    return next(iter(zones), None)


def local(now: dt.datetime, zone: str | None = None) -> LocalTime:
    """Return the moment `now`, which has a zone, by the clocks of `zone`; None for this machine.

    A zone of this machine without an IANA name has its distance from UTC as name.
    """
    name = zone or machine_zone()
    if name is not None:
        return LocalTime(now.astimezone(zoneinfo.ZoneInfo(name)), name)
    found = LocalTime(now.astimezone(), "")
    return found._replace(zone=f"UTC{found.offset}")


def machine_zone() -> str | None:
    """Return the IANA name of this machine's zone: that of TZ, else of /etc/localtime.

    None where it has none, as with TZ=CET-1CEST or a copied /etc/localtime.
    """
    stated = os.environ.get("TZ")
    if stated is not None:
        name = stated.removeprefix(":") or "UTC"
    else:
        name = os.path.realpath(_LOCALTIME).partition(_DATABASE)[2]
    try:
        return zone_name(name)
    except ValueError:
        return None
