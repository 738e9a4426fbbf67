"""Commands that use the lab: its lease, and the ending where something goes wrong."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from lightrig.harness.bench.lease import Lease
from lightrig.harness.bench.saved_state import state_folder
from lightrig.harness.cli.common import LAB_ERROR, give_up
from lightrig.testbeds import LightrigError, Testbed

T = TypeVar("T")


@contextmanager
def leased(testbed: Testbed) -> Iterator[None]:
    """Lease the testbed for a block; the command ends where another process uses it."""
    lease = lab(lambda: Lease(testbed.name, state_folder()))
    try:
        yield
    finally:
        lease.release()


def lab(action: Callable[[], T]) -> T:
    """Do something with the lab; what goes wrong there ends the command with its sentence."""
    try:
        return action()
    except LightrigError as error:
        give_up(str(error), LAB_ERROR)
