"""A soak: all links watched for hours or days, while plans are held or take turns.

`port_watch` reads the servers' observations, `link_flaps` pairs what both ends of a link saw,
`path_light` reads the switches' monitors, `link_time` adds up what was watched, `soaking` is the
loop over them and writes rows, and `earlier_runs` reads a soak that is gone on with.
"""

from lightrig.harness.measure.soak.earlier_runs import EarlierSoak, SoakResumeError, read_earlier
from lightrig.harness.measure.soak.soaking import FlapsError, Soak, SoakPeriods, needed_bytes

__all__ = [
    "EarlierSoak",
    "FlapsError",
    "Soak",
    "SoakPeriods",
    "SoakResumeError",
    "needed_bytes",
    "read_earlier",
]
