"""Commands that use the lab: the ending where something goes wrong."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Literal, TypeVar

import typer

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.bench.restoring import NOT_AS_FOUND, NotRestoredError
from lightrig.harness.cli.common import LAB_ERROR, give_up
from lightrig.harness.signals import uninterrupted
from lightrig.testbeds import LightrigError

INTERRUPTED = 130

T = TypeVar("T")

Instruments = Annotated[
    Literal["auto", "hardware", "simulated"], typer.Option(help="As for pytest.")
]
Seed = Annotated[int, typer.Option(help="Seed of simulated instruments.")]


def lab(action: Callable[[], T]) -> T:
    """Do something with the lab; what goes wrong there ends the command with its sentence."""
    try:
        return action()
    except NotRestoredError as error:
        give_up(str(error), NOT_AS_FOUND)
    except LightrigError as error:
        give_up(str(error), LAB_ERROR)


@contextmanager
def restored(bench: Bench) -> Iterator[Fabric]:
    """Give a fabric whose switches are restored, whatever ends the block."""
    try:
        fabric = Fabric(bench)
        try:
            yield fabric
        finally:
            with uninterrupted():
                lab(fabric.restore)
    finally:
        with uninterrupted():
            bench.close()


@contextmanager
def interruptible(state: str) -> Iterator[None]:
    """End the command orderly on SIGTERM as on Ctrl-C; `state` tells how all is left."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except KeyboardInterrupt:
        give_up(f"ended by a signal; {state}", INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)
