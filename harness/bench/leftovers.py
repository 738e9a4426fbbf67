"""States that runs and commands have left on disk: found, compared with the lab, restored."""

import datetime
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lightrig.harness.bench.assembly import spec_of
from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.binding import (
    LabUnavailableError,
    bind_only,
    lease_address,
    open_lease,
    state_folder,
)
from lightrig.harness.bench.fabric import Fabric
from lightrig.harness.bench.lab_folder import LabFolderError
from lightrig.harness.bench.lease import identity_key
from lightrig.harness.bench.light_reach import on_path
from lightrig.harness.bench.restore_order import SavedBench, restore_steps
from lightrig.harness.bench.restoring import (
    RESTORE_TIME,
    InitialStates,
    Notify,
    NotRestoredError,
    ignore,
)
from lightrig.harness.bench.saved_state import (
    TIME,
    SavedCircuits,
    SavedState,
    SavedStateError,
    SavedStates,
    StateConflictError,
)
from lightrig.harness.bench.server_settings import SavedServers
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.harness.machine_folder import FALLBACK, VARIABLE
from lightrig.instruments.clock import SystemClock, wall_time
from lightrig.testbeds import InstrumentSpec, LightrigError, ServerSpec, SwitchSpec, Testbed

SETTLING = 2
"""Seconds after the last command of a killed run in which an instrument may still carry it out."""

_PAUSE = 2_000_000_000
_ADVICE = (
    "\n  try       `lightrig restore` with the file of that run, or --forget where the instrument "
    "is gone; a state is never applied to another one"
)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A saved state, and the name of its instrument in a testbed; None if it is not there."""

    state: SavedState
    name: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """The saved states that concern a testbed.

    Attributes:
        left: those that may be restored, oldest first.
        unused: why others are not, some of which may be of other testbeds.
        states: where they are.
    """

    left: Sequence[Leftover]
    unused: Sequence[SavedStateError]
    states: SavedStates


@dataclass(frozen=True, slots=True)
class StateComparison:
    """A saved state beside the instrument.

    Attributes:
        state: the saved state.
        now: what is there: circuits, or settings by name.
        differences: why it cannot be what the run has left; empty if it can.
    """

    state: SavedState
    now: Sequence[str]
    differences: Sequence[str]


@dataclass
class Restoration:
    """Outcome of a restore.

    Attributes:
        restored: the states that were restored.
        conflicts: the states that a person has to decide about, by sentence.
        failures: the last errors of instruments that are not as they were found, by name.
    """

    restored: list[SavedState] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    failures: dict[str, LightrigError] = field(default_factory=dict)


def leftovers(testbed: Testbed, owners: Collection[int] = ()) -> Found:
    """Return the states that were left on instruments of `testbed`.

    Those of its name, and those at an address of its. owners: numbers of accounts whose states
    count besides this account's and root's. Raises `LabFolderError` for a folder that was named
    and is not there, or that cannot be used.
    """
    folder = state_folder(testbed)
    states = SavedStates(folder, owners)
    if not folder.exists():
        if folder == FALLBACK:
            return Found((), (), states)
        raise LabFolderError(
            f"{folder}, the folder of leases and saved states, does not exist\n"
            f"  try       correct {VARIABLE}, or `lab_folder:` in {testbed.path}; runs make it"
        )
    found = []
    known, unused = states.read_all()
    for state in known:
        origin, of_switch = state.origin, isinstance(state, SavedCircuits)
        # A switch and an attenuator may be parts of one box, at one address.
        specs: Mapping[str, SwitchSpec | InstrumentSpec | ServerSpec]
        settable: dict[str, SwitchSpec | InstrumentSpec | ServerSpec] = {
            **testbed.instruments,
            **testbed.servers,
            **testbed.optical_switches,
        }
        specs = testbed.optical_switches if of_switch else settable
        names = [name for name, spec in specs.items() if spec.address == origin.address]
        if origin.testbed == testbed.name and origin.instrument in specs:
            found.append(Leftover(state, origin.instrument))
        elif names or origin.testbed == testbed.name:
            found.append(Leftover(state, next(iter(names), None)))
    return Found(found, unused, states)


def by_hand_notes(testbed: Testbed) -> list[str]:
    """Return sentences on the instruments that a person has set, and that stay so.

    Raises what `leftovers` raises.
    """
    if not state_folder(testbed).exists():
        return []
    return [
        f"{each.name} was set by hand ({each.state.by_hand}): runs start from that and end with "
        f"it; `lightrig restore {testbed.path}` undoes it"
        for each in leftovers(testbed).left
        if each.state.by_hand and each.name
    ]


def state_notes(testbed: Testbed) -> list[str]:
    """Return sentences on all that is saved of a testbed, states that are of other accounts too.

    Raises what `leftovers` raises.
    """
    if not state_folder(testbed).exists():
        return []
    found = leftovers(testbed)
    left = [
        f"{each.state.origin.instrument} has a saved state, {each.state.origin}: `lightrig restore "
        f"{testbed.path}` restores what was found, and so does the next run"
        for each in found.left
        if each.state.by_hand is None
    ]
    return [*by_hand_notes(testbed), *left, *map(str, found.unused)]


def forget(testbed: Testbed, found: Found) -> None:
    """Discard states; raises `LeaseConflictError` for those of a run that goes on."""
    lease = open_lease(testbed, "lightrig restore --forget")
    try:
        for each in found.left:
            if each.name is not None:
                lease_address(testbed, each.name, lease)
        for each in found.left:
            found.states.clear(each.state)
    finally:
        lease.release()


def _mismatch(testbed: Testbed, left: Leftover, benches: Mapping[str, Bench]) -> str:
    """Return why a state is not of an instrument that is there; empty if it may be."""
    name, origin = left.name, left.state.origin
    if name is None:
        why = f"{origin.instrument} has a saved state, and is not in {testbed.path}"
    elif name not in benches:
        return ""
    else:
        identity = benches[name].identities[name]
        if origin.key == identity_key(identity, spec_of(testbed, name).address):
            return ""
        why = f"{name} is not restored: it is another instrument, {identity}"
    return f"{why}\n  {origin}{_ADVICE}"


def compare(bench: Bench, left: Iterable[Leftover]) -> list[StateComparison]:
    """Compare saved states with what is there now; changes nothing."""
    found = []
    for each in left:
        if each.name is not None:
            kind: InitialStates[Any] = SavedInstruments(bench)
            if isinstance(each.state, SavedCircuits):
                kind = Fabric(bench)
            elif each.name in bench.servers:
                kind = SavedServers(bench)
            now, differences = kind.differences(each.name, each.state)
            found.append(StateComparison(each.state, now, differences))
    return found


def restore_left(
    testbed: Testbed,
    found: Found,
    *,
    force: bool = False,
    by_hand: bool = True,
    keep_trying: int = RESTORE_TIME,
    notify: Notify = ignore,
) -> Restoration:
    """Restore all states that were left on instruments of `testbed`, each by itself.

    by_hand: whether to undo what a person has set by hand, too; else that stays.

    A conflict or an error of one keeps no other from being restored. Raises
    `LeaseConflictError` where an instrument is in use; nothing is changed then.
    """
    names = {each.name for each in found.left if each.name is not None}
    benches, absent = open_available(testbed, names, found.states, keep_trying, notify)
    try:
        mismatches = [(each, _mismatch(testbed, each, benches)) for each in found.left]
        # Also where a state of another specimen has its name: this one may have its own.
        matching = {each.name for each, why in mismatches if not why}
        done = restore(
            {name: bench for name, bench in benches.items() if name in matching},
            not_as_found={*absent, *(each.name for each, why in mismatches if why and each.name)},
            force=force,
            by_hand=by_hand,
            keep_trying=keep_trying,
            notify=notify,
        )
    finally:
        for bench in benches.values():
            bench.close()
    done.conflicts[:0] = [why for _, why in mismatches if why]
    done.failures.update(absent)
    done.restored += [
        each.state for each in found.left if not found.states.path_of(each.state).exists()
    ]
    return done


def open_available(
    testbed: Testbed,
    names: Iterable[str],
    states: SavedStates,
    keep_trying: int = RESTORE_TIME,
    notify: Notify = ignore,
) -> tuple[dict[str, Bench], dict[str, LightrigError]]:
    """Open each instrument by itself, again and again for `keep_trying` ns.

    Returns benches, and errors of those that did not answer, by name: one that is dead keeps no
    other from being restored. Raises `LeaseConflictError`.
    """
    clock = SystemClock()
    ends = clock.now() + keep_trying
    benches: dict[str, Bench] = {}
    absent: dict[str, LightrigError] = {}
    pending = sorted(names)
    try:
        while pending:
            for name in tuple(pending):
                try:
                    benches[name] = bind_only(testbed, {name}, "lightrig restore")
                except LabUnavailableError as error:
                    absent[name] = error
                else:
                    benches[name].saved_states = states
                    absent.pop(name, None)
                    pending.remove(name)
            left = ends - clock.now()
            if not pending or left <= 0:
                break
            for name in pending:
                why = str(absent[name]).splitlines()[-1].strip()
                notify(f"tried for {left / 1e9:.0f} s more: {why}")
            clock.sleep(min(_PAUSE, left))
    except BaseException:
        for bench in benches.values():
            bench.close()
        raise
    finally:
        clock.close()
    return benches, absent


def restore(
    benches: Mapping[str, Bench],
    *,
    not_as_found: Iterable[str] = (),
    force: bool = False,
    by_hand: bool = True,
    keep_trying: int = RESTORE_TIME,
    notify: Notify = ignore,
) -> Restoration:
    """Restore the saved states of `benches`, each of one instrument, which names it.

    In the order of `restore_steps`; what was found off is switched off first, whatever conflicts.
    not_as_found: instruments that are not open, or not to be restored. by_hand: as `restore_left`
    takes it.
    """
    done = Restoration()
    unsafe = set(not_as_found)
    await_last_commands(benches)
    for bench in benches.values():
        bench.neighbours = benches
    saved = {
        name: SavedBench(SavedInstruments(bench), Fabric(bench), SavedServers(bench))
        for name, bench in benches.items()
    }

    def attempt(name: str, step: Callable[[SavedBench], None]) -> None:
        try:
            step(saved[name])
        except StateConflictError as error:
            done.conflicts.append(str(error))
            unsafe.add(name)
        except NotRestoredError as error:
            done.failures.update(error.failures)
            unsafe.add(name)
        except LightrigError as error:
            done.failures[name] = error
            unsafe.add(name)

    switches = {name: each for bench in benches.values() for name, each in bench.switches.items()}

    def obstacles(name: str) -> list[str]:
        return on_path(benches[name].testbed, name, switches, unsafe)

    def begin(kind: str, of_bench: SavedBench) -> None:
        states: InitialStates[Any] = getattr(of_bench, kind)
        states.save_initial_state(force=force)  # which switches off what conflicts
        if by_hand:
            states.end_as_found()

    begun = set[str]()
    for kind, carry_out in restore_steps(
        obstacles, several=True, force=force, keep_trying=keep_trying, notify=notify
    ):
        steps: list[Callable[[SavedBench], None]] = [carry_out]
        if kind not in begun:
            steps.insert(0, partial(begin, kind))
            begun.add(kind)
        for step in steps:
            for name in benches:
                if name not in unsafe:
                    attempt(name, step)
    return done


def await_last_commands(benches: Mapping[str, Bench]) -> None:
    """Wait until what a run sent just before it was killed has been carried out.

    A laser that is read as off, and switched on by that command a moment later, would stay on.
    """
    for bench in benches.values():
        if bench.saved_states is None:
            continue
        states, _ = bench.saved_states.read_all()
        now = wall_time()
        youngest = max((each.changed for each in states if each.changed), default="")
        if youngest:
            changed = datetime.datetime.strptime(youngest, TIME)
            age = (now.replace(tzinfo=None) - changed).total_seconds()
            if 0 <= age < SETTLING + 1:  # the time on disk is cut to whole seconds
                bench.clock.sleep(round((SETTLING + 1 - age) * 1e9))
        return  # all benches of a testbed have one folder of states
