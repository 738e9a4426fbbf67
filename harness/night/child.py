"""Start pytest so that it ends, and restores the lab, when the process that started it dies.

    python -m lightrig.harness.night.child PARENT ARGUMENTS...

PARENT is the process id of the starter. Linux sends SIGTERM to pytest when the starter's thread
ends in any manner, SIGKILL included; Lightrig's plugin restores the lab then, as after Ctrl-C.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""`prctl(2)`; kept over `execve` of a program without set-user-ID."""


def main(parent: int, arguments: list[str]) -> None:
    """Replace this process by pytest."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the request
        raise SystemExit(2)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])  # noqa: S606


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
