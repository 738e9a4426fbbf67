"""Commands that use the lab: the ending where something goes wrong."""

import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from lightrig.harness.bench import Bench, Fabric, Transition
from lightrig.harness.bench.fabric import ForeignPortError, OutOfServiceError
from lightrig.harness.bench.interlocks import BudgetError, InterlockError
from lightrig.harness.bench.named_values import SubjectError
from lightrig.harness.bench.opened_bench import OpenBench
from lightrig.harness.bench.restoring import NOT_AS_FOUND, NotRestoredError, RestoreCutError
from lightrig.harness.cli.common import BAD_INPUT, LAB_ERROR, give_up
from lightrig.harness.cli.terminal import err
from lightrig.harness.modes import Mode
from lightrig.instruments.core.errors import CANNOT, DeniedError
from lightrig.testbeds import LightrigError, QuantityError, Testbed
from lightrig.testbeds.quantities import parse_duration

INTERRUPTED = 130

T = TypeVar("T")

Instruments = Annotated[
    Literal["auto", "hardware", "simulated"], typer.Option(help="As for pytest.")
]
Queue = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="As for pytest: wait so long for instruments that others have."
    ),
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


def in_turn(
    testbed: Testbed,
    queue: str,
    attempt: Callable[[], T],
    *,
    mode: Mode = "hardware",
    names: Collection[str] = (),
) -> T:
    """Return what `attempt` returns, by `lab`; with `--queue` once the instruments are free.

    mode: how `attempt` opens the testbed; `simulated` waits for nothing. names: of the instruments
    and servers that it opens; empty for all of the testbed.
    """
    try:
        wait = parse_duration(queue) if queue else 0
    except QuantityError as error:
        give_up(f"--queue: {error}", BAD_INPUT)
    if queue and wait <= 0:
        give_up(f"--queue: found {queue!r}, expected a time above 0, e.g. '2h'", BAD_INPUT)
    if not queue or mode == "simulated":
        return lab(attempt)
    from lightrig.harness.bench import lease_queue  # noqa: PLC0415 - few commands wait

    return lab(lambda: lease_queue.in_turn(testbed, wait, attempt, _tell, names))


def lab_or_limit(action: Callable[[], T]) -> T:
    """Do something as `lab` does; what is refused before anything is sent is bad input."""

    def limited() -> T:
        try:
            return action()
        except (
            BudgetError,
            InterlockError,
            ForeignPortError,
            OutOfServiceError,
            SubjectError,
        ) as error:
            give_up(str(error), BAD_INPUT)
        except DeniedError as error:
            give_up(str(error), BAD_INPUT if error.code == CANNOT else LAB_ERROR)

    return lab(limited)


def say_unmade(transition: Transition) -> None:
    """Say before a change of plan how many circuits it unmakes."""
    for name, change in transition.changes.items():
        if change.remove:
            sentence = f"{name}: unmakes {len(change.remove)} circuits and makes {len(change.add)}"
            err.print(sentence, soft_wrap=True, markup=False)


def say_state_saved(file: Path) -> None:
    """Say that what was set stays, and what undoes it."""
    err.print(
        f"it stays until it is undone by hand: runs start from it and end with it; "
        f"`lightrig restore {file}` restores what was found",
        soft_wrap=True,
        markup=False,
    )


def _tell(sentence: str) -> None:
    err.print(sentence, soft_wrap=True)


@contextmanager
def restored(bench: Bench) -> Iterator[Fabric]:
    """Give a fabric whose switches are restored, whatever ends the block."""
    opened = OpenBench(bench)
    try:
        yield opened.fabric
    finally:
        problems = opened.restore()
        opened.close()
        for problem in problems:
            cut = isinstance(problem, NotRestoredError | RestoreCutError)
            give_up(str(problem), NOT_AS_FOUND if cut else LAB_ERROR)


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
