"""Restoring of a lab whose pytest ended without doing so, as when it was killed."""

from pathlib import Path

from lightrig.harness.bench.binding import state_folder
from lightrig.harness.bench.lease import LeaseConflictError
from lightrig.harness.bench.leftovers import Found, leftovers, restore_left
from lightrig.harness.bench.restoring import RESTORE_TIME, NotRestoredError
from lightrig.instruments.clock import SystemClock
from lightrig.testbeds import LightrigError, Testbed, load

_WORKERS_END = 60_000_000_000
"""Time in which the workers of a killed pytest restore by themselves, in ns."""

_PAUSE = 500_000_000

AS_FOUND = "the lab was restored"


def restore_after(file: Path, began: str, *, keep_trying: int = RESTORE_TIME) -> str:
    """Restore what a run that has ended has left changed; return a sentence about it.

    Empty where it has left nothing: then the lab is as before the run. began: when the run began,
    as saved states write times. keep_trying: in ns.
    """
    try:
        testbed = load(file)
        if not state_folder(testbed).is_dir():
            return ""  # a run makes it before it changes anything
        return _restored(testbed, began, keep_trying)
    except LightrigError as error:
        return f"NOT as found, as far as is known; run `lightrig restore {file}`: {error}"


def _restored(testbed: Testbed, began: str, keep_trying: int) -> str:
    found = leftovers(testbed)
    if not is_of_run(found, began):
        return ""
    clock = SystemClock()
    ends = clock.now() + _WORKERS_END
    try:
        while True:
            try:
                done = restore_left(testbed, found, by_hand=False, keep_trying=keep_trying)
                break
            except LeaseConflictError:
                if clock.now() >= ends:
                    raise
                clock.sleep(_PAUSE)
                found = leftovers(testbed)
                if not is_of_run(found, began):
                    return AS_FOUND
    finally:
        clock.close()
    problems = list(done.conflicts)
    if done.failures:
        problems.append(str(NotRestoredError(testbed, done.failures)))
    if not problems:
        return AS_FOUND
    command = f"lightrig restore {testbed.path}"
    return "\n".join((f"NOT as found; run `{command}`", *problems))


def is_of_run(found: Found, began: str) -> bool:
    """Whether a state was saved or changed since then: texts of times compare as times do.

    One whose instrument is as a person wants it to stay is of no run.
    """
    return any(
        max(each.state.origin.saved, each.state.changed) >= began
        for each in found.left
        if not each.state.stays
    )
