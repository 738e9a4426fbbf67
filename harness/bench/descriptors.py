"""Open files that a bench needs, and the limit that a process has of them."""

import os
import resource

from lightrig.testbeds import LightrigError

SIMULATED = 3
"""Open files of one that is simulated: both ends of its connection, and its port."""
HARDWARE = 2
"""Open files of one that is hardware: its connection and its lease."""
RESERVE = 128
"""For the files of a run, programs that are started, and what tests open."""


class OpenFilesLimitError(LightrigError):
    """A process may not open as many files as the instruments of a testbed need."""


def allow_open_files(instruments: int, about: str, each: int = SIMULATED) -> None:
    """Raise the soft limit of open files of this process (RLIMIT_NOFILE) where it is too low.

    instruments: that will be open. about: what they are of, for the error. each: open files of one.

    Raises `OpenFilesLimitError` where the hard limit is too low as well.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = instruments * each + RESERVE
    if wanted * 2 <= soft:  # what is open already is hardly as many: not counted for each of them
        return
    wanted += len(os.listdir("/proc/self/fd"))
    if wanted <= soft:
        return
    if wanted > hard:
        raise OpenFilesLimitError(
            f"{about}: {instruments} switches, servers and instruments need up to {wanted} open "
            f"files, and this process may have {hard}, {wanted - hard} too few; raise its hard "
            f"limit, by `ulimit -n {wanted}` as root before it starts, or LimitNOFILE={wanted} in "
            "its systemd unit"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
