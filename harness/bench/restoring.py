"""The initial state of instruments: saved before the first change, compared, restored.

Circuits of switches and settings of instruments are two kinds of one thing. Restoring is retried
for a stated time, then it is an error with what to do.
"""

import contextlib
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeAlias

from lightrig.harness.bench.assembly import spec_of
from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.lab_folder import LabFolderError
from lightrig.harness.bench.lease import identity_key
from lightrig.harness.bench.saved_state import (
    BenchStates,
    Origin,
    SavedState,
    SavedStateError,
    SavedStates,
    State,
    StateConflictError,
    as_texts,
    origin,
)
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

Obstacles = Callable[[str], Sequence[str]]
"""Return the instruments on the light paths of an instrument that are not as they were found."""


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


def no_obstacles(_name: str) -> Sequence[str]:
    """Return nothing: all paths are as they were found."""
    return ()


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


class InitialStates(ABC, Generic[State]):
    """What instruments of a bench held before the first change, of one kind of state.

    The order is the same for each kind, so that a kill at any moment can be undone: read, save on
    disk, note on disk before each change, restore, and only then discard what was saved.

    Attributes:
        bench: the open instruments.
        states: what was saved, or what a killed run has left, by name.
        left_before: the names of the instruments whose states an earlier process has left.
    """

    _set_by_somebody = ""
    """Begin of a sentence of differences that do not say so each by itself."""

    def __init__(self, bench: Bench, store: SavedStates | None, on_disk: Collection[str]) -> None:
        self.bench = bench
        self.states: BenchStates[State] = BenchStates(store, on_disk)
        self.left_before: frozenset[str] = frozenset()

    @property
    def _known(self) -> frozenset[str]:
        """The names of all that may have a saved state."""
        testbed: Testbed = self.bench.testbed
        return frozenset((*testbed.optical_switches, *testbed.instruments, *testbed.servers))

    @abstractmethod
    def _names(self) -> list[str]:
        """Return the instruments of this kind."""

    @abstractmethod
    def _present(self, names: Sequence[str]) -> list[State]:
        """Read instruments; return the states that would be saved if they were unchanged."""

    @abstractmethod
    def _differing(self, state: State, now: State) -> list[str]:
        """Return how `now` differs from how the run that saved `state` can have left it."""

    @abstractmethod
    def _beyond(self, state: State, now: State) -> str:
        """Return why `state` would change what is not this testbed's; empty if it would not."""

    def _beside(self, now: State) -> Sequence[SavedState]:
        """Return what an instrument's states of other kinds are like.

        Each is of the same account: neither of two could restore what it has changed of one
        instrument, since the state of the other one keeps it off.
        """
        del now
        return ()

    def _same(self, wanted: Any, now: State) -> bool:
        """Whether an instrument holds `wanted` now, circuits or values by setting."""
        return bool(wanted == now.found)

    @abstractmethod
    def _steps(self, obstacles: Obstacles, *, force: bool) -> Sequence[Callable[[str], None]]:
        """Return what restores an instrument: each step is carried out for all before the next."""

    def _end_light(self) -> None:
        """Switch off what was found off, as a run is refused; raises `NotRestoredError`."""

    def save_initial_state(self, *, force: bool = False) -> None:
        """Save what all instruments of this kind hold, first of all on disk.

        A state that a killed run has left on disk is used instead of the present one: it is the
        last that the laboratory wanted. Raises `StateConflictError`, unless `force`, where the
        instrument is not as that run can have left it, and in any case for a state that another
        account may have written, or that would change what the testbed does not cover; nothing is
        changed then but that what was found off is switched off.
        """
        conflicts: list[str] = []
        new: list[str] = []
        names = self._names()
        present = self._present(names)
        try:
            for name, now in zip(names, present, strict=True):
                store = self.states.store_of(name)
                try:
                    state = None
                    if store is not None:
                        state = store.load(now, self._known)
                        for beside in self._beside(now):
                            store.check_owner(beside)
                except SavedStateError as error:
                    conflicts.append(f"{name} is not used: {error}")
                    continue
                if state is None:
                    new.append(name)
                    self.states.put(name, now)
                elif why := self._beyond(state, now):
                    conflicts.append(str(self._conflict(state, now, why)))
                else:
                    self.states[name] = state
                    if not force and (differences := self._differing(state, now)):
                        conflicts.append(str(self._conflict(state, now, differences)))
            if conflicts:
                try:
                    self._end_light()
                except NotRestoredError as error:
                    conflicts.append(str(error))
                raise StateConflictError("\n".join(conflicts))
        except BaseException:
            # Left there, they would be taken for what a killed run had found.
            for name in new:
                with contextlib.suppress(LabFolderError):
                    self.states.drop([name])
            self.states.clear()
            raise
        self.left_before = frozenset(names) - set(new)

    def differences(self, name: str, state: State) -> tuple[list[str], list[str]]:
        """Return what an instrument holds, and how it is not as `state` says that it was left."""
        if name not in self._names():
            return [], ["it has nothing of this kind that can be restored"]
        (now,) = self._present([name])
        return as_texts(now.found), self._differing(state, now)

    def _origin(self, name: str) -> Origin:
        """Return the origin of what is read from an instrument now."""
        testbed, identity = self.bench.testbed, self.bench.identities[name]
        address = spec_of(testbed, name).address
        key = identity_key(identity, address)
        return origin(key, name, identity, address, testbed, self.bench.purpose)

    def _conflict(self, state: State, now: State, why: str | list[str]) -> StateConflictError:
        """Return the error that leaves an instrument to a person."""
        sentence = why if isinstance(why, str) else self._set_by_somebody + "; ".join(why)
        lines = (
            f"{now.origin.instrument} is not restored: {sentence}",
            f"  {state.origin}",
            f"  found     {', '.join(as_texts(state.found)) or 'nothing'}",
            f"  last set  {', '.join(state.last_set) or 'nothing'} "
            f"({state.changed or 'nothing was changed'})",
            f"  now       {', '.join(as_texts(now.found)) or 'nothing'}",
            f"  try       `lightrig restore {self.bench.testbed.path} --show`; then --force "
            "restores what was found, --forget keeps what is there now",
        )
        return StateConflictError("\n".join(lines))

    def restore(
        self,
        *,
        force: bool = False,
        obstacles: Obstacles = no_obstacles,
        keep_trying: int | None = None,
        notify: Notify = ignore,
    ) -> None:
        """Restore what was saved, and discard it.

        An instrument that fails is tried again, over new connections, for `keep_trying` ns (by
        default `RESTORE_TIME`); `notify` is told of each failure. A switch in which somebody else
        has made circuits since is left alone unless `force`. Light is switched on or raised last,
        and only where `obstacles` returns nothing.

        Raises `NotRestoredError` with all instruments that are not as found, after all others were
        restored; their saved states stay on disk.
        """
        failures = self._carry_out(self._steps(obstacles, force=force), keep_trying, notify)
        self.states.release(sorted(self.states.keys() - failures.keys()))
        if failures:
            raise NotRestoredError(self.bench.testbed, failures)

    def forget(self) -> None:
        """Discard the saved states: what the instruments hold now is not restored later."""
        self.states.drop(list(self.states))

    def leave(self, command: str, *, restorable: bool = True) -> list[str]:
        """Leave all as it is now: runs end with it until a person undoes it.

        restorable: whether `lightrig restore` can undo what this process has changed; what an
        earlier one has saved is kept in any case. Returns the instruments that `lightrig restore`
        would change.
        """
        left = []
        for name, state in tuple(self.states.items()):
            (now,) = self._present([name])
            if self._same(state.found, now) or not (restorable or name in self.left_before):
                self.states.drop([name])
                continue
            if not (state.stays and self._same(state.end, now)):
                self.states.put(name, state.left_by_hand(now, command))
            left.append(name)
        self.states.clear()
        return left

    def end_as_found(self) -> None:
        """Let `restore` undo what a person has set by hand, too."""
        for name, state in tuple(self.states.items()):
            self.states[name] = replace(state, by_hand=None)

    def forget_unchanged(self) -> None:
        """Discard the saved states of instruments that no process has changed since."""
        self.states.drop([name for name, state in self.states.items() if not state.changed])

    def _carry_out(
        self, steps: Sequence[Callable[[str], None]], keep_trying: int | None, notify: Notify
    ) -> dict[str, LightrigError]:
        """Carry out steps on all instruments; return the errors of those that failed at one."""
        failures: dict[str, LightrigError] = {}
        if self.states:
            self.bench.check_lease()

        def attempt(step: Callable[[str], None], name: str) -> None:
            self.bench.check_lease()  # it may be lost while others are tried again
            step(name)

        for step in steps:
            pending = sorted(self.states.keys() - failures.keys())
            actions = {name: partial(attempt, step, name) for name in pending}
            failures |= persist(actions, self.bench, keep_trying, notify)
        return failures
