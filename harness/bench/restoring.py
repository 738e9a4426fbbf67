"""Persistent restoring: retries for a stated time, then an error with what to do."""

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from lightrig.harness.bench.bench import Bench
from lightrig.instruments.core.errors import DeniedError, InstrumentError
from lightrig.testbeds import LightrigError, Testbed

RESTORE_TIME = 120_000_000_000
"""Time for which restoring is tried, in ns: longer than an optical switch takes to restart."""

IN_PROCESS_TIME = 10_000_000_000
"""Time for which it is tried, in ns, on instruments that end with this process."""

_FIRST_PAUSE = 500_000_000
_LONGEST_PAUSE = 10_000_000_000
_MOST_DENIALS = 3

NOT_AS_FOUND = 6
"""Exit status of runs and commands that could not leave an instrument as it was found."""

Notify: TypeAlias = Callable[[str], None]
"""Called with a sentence for the person at the terminal."""


class NotRestoredError(LightrigError):
    """Raised when instruments are not as they were found.

    Attributes:
        failures: the last error of each, by name.
    """

    def __init__(self, testbed: Testbed, failures: Mapping[str, LightrigError]) -> None:
        self.failures = dict(failures)
        lines = [f"NOT as found: {', '.join(failures)}; run `lightrig restore {testbed.path}`"]
        for error in failures.values():
            lines += [f"  {line}" for line in str(error).splitlines()]
        super().__init__("\n".join(lines), subjects=failures)


class RestoreCutError(LightrigError):
    """Raised when restoring ended amid its work; instruments may not be as they were found."""

    def __init__(self, path: Path, error: BaseException) -> None:
        *_, place = traceback.extract_tb(error.__traceback__)
        super().__init__(
            f"NOT as found: restoring was cut; run `lightrig restore {path}`\n"
            f"  {type(error).__name__}: {error} ({place.filename}:{place.lineno})"
        )


def ignore(_sentence: str) -> None:
    """Drop the sentence."""


def persist(
    actions: Mapping[str, Callable[[], None]],
    bench: Bench,
    keep_trying: int | None = None,
    notify: Notify = ignore,
) -> dict[str, LightrigError]:
    """Run each action until it succeeds, for `keep_trying` ns in all; return the last errors.

    Errors of instruments are tried again, since the sessions connect anew: a switch that restarts
    comes back. A denial is tried three times, any other error is final.
    """
    clock = bench.clock
    if keep_trying is None:
        keep_trying = IN_PROCESS_TIME if bench.in_process else RESTORE_TIME
    ends, pause = clock.now() + keep_trying, _FIRST_PAUSE
    failures: dict[str, LightrigError] = {}
    denials: dict[str, int] = {}
    pending = list(actions)
    while pending:
        for name in tuple(pending):
            try:
                actions[name]()
            except InstrumentError as error:
                failures[name] = error
                denials[name] = denials.get(name, 0) + isinstance(error, DeniedError)
                if denials[name] >= _MOST_DENIALS:
                    pending.remove(name)
            except LightrigError as error:
                failures[name] = error
                pending.remove(name)
            else:
                failures.pop(name, None)
                pending.remove(name)
        left = ends - clock.now()
        if not pending or left <= 0:
            break
        for name in pending:
            first = str(failures[name]).partition("\n")[0]
            notify(f"not restored yet, tried for {left / 1e9:.0f} s more: {first}")
        clock.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
    return failures
