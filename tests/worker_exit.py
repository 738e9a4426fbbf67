"""The end of a worker of pytest-xdist: at once, after all functions that `atexit` knows.

To take thirteen thousand collected tests apart takes a third of the processor time of collecting
them, in each worker. Imported before modules that register such functions: the first one runs last.
"""

import atexit
import os
import sys

_workers: set[int] = set()


def end_at_once() -> None:
    """End this process, a worker, so; nobody reads its exit status."""
    _workers.add(os.getpid())


@atexit.register
def _end() -> None:
    if os.getpid() in _workers:  # not in a fork of one
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
