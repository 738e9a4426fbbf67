"""Commands that use the lab: the ending where something goes wrong."""

from collections.abc import Callable
from typing import TypeVar

from lightrig.harness.bench.restoring import NOT_AS_FOUND, NotRestoredError
from lightrig.harness.cli.common import LAB_ERROR, give_up
from lightrig.testbeds import LightrigError

T = TypeVar("T")


def lab(action: Callable[[], T]) -> T:
    """Do something with the lab; what goes wrong there ends the command with its sentence."""
    try:
        return action()
    except NotRestoredError as error:
        give_up(str(error), NOT_AS_FOUND)
    except LightrigError as error:
        give_up(str(error), LAB_ERROR)
