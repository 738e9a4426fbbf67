"""States that runs and commands have left on disk: found, compared with the lab, restored."""

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

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
from lightrig.harness.bench.instrument_keys import identity_key
from lightrig.harness.bench.restoring import RESTORE_TIME, Notify, NotRestoredError, ignore
from lightrig.harness.bench.saved_state import (
    SavedCircuits,
    SavedState,
    SavedStates,
    StateConflictError,
)
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.instruments.clock import SystemClock, wall_time
from lightrig.instruments.core.capabilities import HasSettings
from lightrig.testbeds import InstrumentSpec, LightrigError, SwitchSpec, Testbed

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
class Comparison:
    """A saved state beside the instrument.

    Attributes:
        state: the saved state.
        now: what is there: circuits, or settings by name.
        differences: why it cannot be what the run has left; empty if it can.
    """

    state: SavedState
    now: Sequence[str]
    differences: Sequence[str]


def leftovers(testbed: Testbed) -> list[Leftover]:
    """Return the states that were left on instruments of `testbed`, oldest first.

    Those of its name, and those at an address of its. Raises `SavedStateError`.
    """
    folder = state_folder(testbed)
    if not folder.is_dir():
        return []
    specs: dict[str, SwitchSpec | InstrumentSpec] = {
        **testbed.optical_switches,
        **testbed.instruments,
    }
    found = []
    for state in SavedStates(folder).all():
        origin = state.origin
        names = [name for name, spec in specs.items() if spec.address == origin.address]
        if origin.testbed == testbed.name and origin.instrument in specs:
            found.append(Leftover(state, origin.instrument))
        elif names or origin.testbed == testbed.name:
            found.append(Leftover(state, next(iter(names), None)))
    return found


def forget(testbed: Testbed, left: Iterable[Leftover]) -> None:
    """Discard states; raises `LeaseConflictError` for those of a run that goes on."""
    lease = open_lease(testbed, "lightrig restore --forget")
    try:
        for each in left:
            if each.name is not None:
                lease_address(testbed, each.name, lease)
        for each in left:
            SavedStates(state_folder(testbed)).clear(each.state)
    finally:
        lease.release()


def check_known(testbed: Testbed, left: Iterable[Leftover]) -> None:
    """Raise `StateConflictError` for a state of an instrument that is not in the file."""
    lines = [
        f"{each.state.origin.instrument} has a saved state, and is not in {testbed.path}\n"
        f"  {each.state.origin}"
        for each in left
        if each.name is None
    ]
    if lines:
        raise StateConflictError("\n".join(lines) + _ADVICE)


def check_identity(bench: Bench, name: str, left: Iterable[Leftover]) -> None:
    """Raise `StateConflictError` for a state of another specimen than the one on the bench."""
    identity = bench.identities[name]
    key = identity_key(identity, spec_of(bench.testbed, name).address)
    for each in left:
        if each.name == name and each.state.origin.key != key:
            raise StateConflictError(
                f"{name} is not restored: it is another instrument, {identity}\n"
                f"  {each.state.origin}{_ADVICE}"
            )


def compare(bench: Bench, left: Iterable[Leftover]) -> list[Comparison]:
    """Compare saved states with what is there now; changes nothing."""
    found = []
    for each in left:
        name, state = each.name or "", each.state
        if isinstance(state, SavedCircuits):
            if name in bench.switches:
                present = bench.switches[name].circuits()
                differences = Fabric(bench).differences(name, state, present)
                now = [str(circuit) for circuit in sorted(present)]
                found.append(Comparison(state, now, differences))
        elif name in bench.instruments:
            instrument = bench.instruments[name]
            if isinstance(instrument, HasSettings):
                channels = bench.testbed.instruments[name].channels
                settings = instrument.read_settings(range(1, channels + 1))
                changed = SavedInstruments.differences(instrument, state, settings)
                now = [f"{setting} {value}" for setting, value in settings.items()]
                found.append(Comparison(state, now, changed))
    return found


def open_available(
    testbed: Testbed,
    names: Iterable[str],
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
    force: bool = False,
    keep_trying: int = RESTORE_TIME,
    notify: Notify = ignore,
) -> dict[str, LightrigError]:
    """Restore all saved states of `benches`; return the errors of what is not as found.

    First what was found off is switched off, then circuits are moved, then the rest is set: no
    light that was not there before meets a circuit that is moved.

    Raises `StateConflictError`, before anything is changed, unless `force`.
    """
    failures: dict[str, LightrigError] = {}
    _await_last_commands(benches)
    settings = {name: SavedInstruments(bench) for name, bench in benches.items()}
    fabrics = {name: Fabric(bench) for name, bench in benches.items()}
    conflicts = []
    for name in benches:
        try:
            settings[name].save(force=force)
            fabrics[name].save_initial_state(force=force)
        except StateConflictError as error:
            conflicts.append(str(error))
        except LightrigError as error:
            failures[name] = error
    if conflicts:
        raise StateConflictError("\n".join(conflicts))
    ready = [name for name in benches if name not in failures]
    steps: list[Callable[[str], None]] = [
        lambda name: settings[name].restore_off(keep_trying=keep_trying, notify=notify),
        lambda name: fabrics[name].restore(force=force, keep_trying=keep_trying, notify=notify),
        lambda name: settings[name].restore(keep_trying=keep_trying, notify=notify),
    ]
    for step in steps:
        for name in ready:
            try:
                step(name)
            except NotRestoredError as error:
                failures |= error.failures
            except LightrigError as error:
                failures[name] = error
    return failures


def _await_last_commands(benches: Mapping[str, Bench]) -> None:
    """Wait until what a run sent just before it was killed has been carried out.

    A laser that is read as off, and switched on by that command a moment later, would stay on.
    """
    for bench in benches.values():
        states = bench.saved_states.all() if bench.saved_states is not None else ()
        now = wall_time()
        youngest = max((each.changed for each in states if each.changed), default="")
        if youngest:
            changed = datetime.datetime.strptime(youngest, "%Y-%m-%d %H:%M:%S UTC")
            age = (now.replace(tzinfo=None) - changed).total_seconds()
            if 0 <= age < SETTLING + 1:  # the time on disk is cut to whole seconds
                bench.clock.sleep(round((SETTLING + 1 - age) * 1e9))
        return
