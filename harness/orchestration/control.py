"""Which one of several processes leads, of those that keep one file of what is wanted.

The lead is a lease of `bench.shared_lease` beside that file, with a short term: a leader that no
longer renews it, because it was killed, was stopped or lost the folder, is followed by another one.
Its number grows with each change of the lead, and is checked before each change of a switch and
before what is wanted is written. A leader of this machine that was stopped still holds the
machine's locks on switches, so it is ended (SIGKILL); one of another host finds that it no longer
leads, and ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from lightrig.harness.bench.lease import Claim, LeaseConflictError, LeaseLostError, this_owner
from lightrig.harness.bench.shared_lease import SECOND, SharedClaim, SharedFolder

TERM = 3 * SECOND // 2
"""A lead that is not renewed for this long may be taken, after it was watched for as long again."""

_LOOK_AGAIN_S = 0.2


class Control:
    """The lead, once `take` or `wait` has got it; a `Claimant` for sessions with switches.

    Args:
        state: the file of what is wanted, the same one for all that may lead.
        term: in ns; the same for all.
    """

    def __init__(self, state: Path, term: int = TERM) -> None:
        self.service = state.name
        self._folder = SharedFolder(state.parent, term, ends_stopped=True)
        self._lead: SharedClaim | None = None
        self._lock = threading.Lock()

    @property
    def epoch(self) -> int:
        """Number of the lead, greater than that of every earlier leader."""
        lead = self._lead
        return lead.number if lead else 0

    def take(self) -> None:
        """Lead; raises `LeaseConflictError` with the process that does."""
        self._lead = self._claimed()

    def wait(self, over: threading.Event, report: Callable[[str], None]) -> bool:
        """Lead once no other process does; return False where `over` was set before.

        report: receives the process that leads, once for each.
        """
        leader = ""
        while not over.is_set():
            try:
                self.take()
            except LeaseConflictError as error:
                if str(error) != leader:
                    leader = str(error)
                    report(leader)
                over.wait(_LOOK_AGAIN_S)
            else:
                return True
        return False

    def check(self) -> None:
        """Raise `LeaseLostError` unless this process leads.

        One that could not renew its lead in time goes on where no other process has led since.
        """
        with self._lock:
            if self._lead is None:
                raise LeaseLostError("this process does not lead")
            try:
                self._lead.check()
            except LeaseLostError:
                self._lead = self._regained(self._lead)

    def _regained(self, lost: SharedClaim) -> SharedClaim:
        """Return the next lead after `lost`; raises `LeaseLostError` where others had it."""
        try:
            following = self._claimed()
        except LeaseConflictError:
            lost.check()
            raise
        if following.number != lost.number + 1:
            following.release()
            lost.check()
        lost.release()
        return following

    def _claimed(self) -> SharedClaim:
        owner = this_owner("lightrig orchestrate")
        return self._folder.claim(f"control of {self.service}", owner)

    def claim(self, key: str, owner: Mapping[str, str]) -> Claim:
        """See `Claimant`: a switch is claimed as long as this process leads."""
        self.check()
        return _Led(self)

    def release(self) -> None:
        """Let another process lead at once."""
        with self._lock:
            if self._lead is not None:
                self._lead.release()
                self._lead = None


class _Led:
    """The part of the lead that belongs to one switch."""

    def __init__(self, control: Control) -> None:
        self.check = control.check

    def release(self) -> None:
        """Keep the lead: it ends with the service."""
