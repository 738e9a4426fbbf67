"""The settings of bench instruments before a run changed them: saved, and restored at its end.

Lasers, attenuators, outputs of testers and chambers stay as they are when a process is killed. So
their settings are on disk before the first change, like the circuits of switches.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.lease import identity_key
from lightrig.harness.bench.restoring import Notify, NotRestoredError, ignore, persist
from lightrig.harness.bench.saved_state import (
    SavedSettings,
    SavedStateError,
    StateConflictError,
    Value,
    origin,
)
from lightrig.instruments.core.capabilities import HasSettings, SetsLight
from lightrig.testbeds import LightrigError

_LIT = frozenset(("light_source", "attenuator"))
"""Kinds whose settings may all be light, where the driver does not say which are."""

Obstacles = Callable[[str], Sequence[str]]
"""Return the instruments on the light paths of an instrument that are not as they were found."""


class LightNotRaisedError(LightrigError):
    """Raised for light that is not switched on or raised, since its path is not as found."""


def no_obstacles(_name: str) -> Sequence[str]:
    """Return nothing: all paths are as they were found."""
    return ()


class SavedInstruments:
    """The settings of a bench's external instruments.

    Args:
        bench: the open instruments; those that end with this process are not saved.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._states: dict[str, SavedSettings] = {}

    @property
    def found(self) -> Mapping[str, Mapping[str, Value]]:
        """The settings from before the first change, by instrument."""
        return {name: state.found for name, state in self._states.items()}

    def save(self, *, force: bool = False) -> None:
        """Save the settings, on disk; note on disk from now on what is set.

        A state that a killed run has left is used instead of the present one. Raises
        `StateConflictError`, unless `force`, where a setting is not as that run can have left it,
        and in any case for a state with settings that the instrument does not have in this
        testbed: then nothing is changed but that what was found off is switched off.
        """
        store = self._bench.saved_states
        if store is None:
            return
        conflicts: list[str] = []
        new: list[str] = []
        for name, instrument in self._restorable().items():
            spec, identity = self._bench.testbed.instruments[name], self._bench.identities[name]
            try:
                state = store.settings(identity_key(identity, spec.address), name)
            except SavedStateError as error:
                conflicts.append(f"{name} is not used: {error}")
                continue
            present = instrument.read_settings(range(1, spec.channels + 1))
            if state is None:
                key = identity_key(identity, spec.address)
                testbed, purpose = self._bench.testbed, self._bench.purpose
                made = origin(key, name, identity, spec.address, testbed, purpose)
                state = SavedSettings(made, dict(present))
                store.save(state)
                new.append(name)
            elif unknown := _unknown(state, present):
                why = f"its saved state has settings that are not this testbed's: {unknown}"
                conflicts.append(self._conflict(name, state, present, why))
                continue
            elif not force and (differences := self.differences(instrument, state, present)):
                why = f"somebody else has set it since: {'; '.join(differences)}"
                conflicts.append(self._conflict(name, state, present, why))
            self._states[name] = state
        if conflicts:
            try:
                self.restore_off()
            except NotRestoredError as error:
                conflicts.append(str(error))
            for name in new:
                store.clear(self._states[name])
            self._states.clear()
            raise StateConflictError("\n".join(conflicts))
        for name in self._restorable():
            self._bench.setting_notes[name] = partial(self._note, name)

    def restore_off(self, *, keep_trying: int | None = None, notify: Notify = ignore) -> None:
        """Switch off what was found off: light that nobody wants is ended first.

        Raises `NotRestoredError`.
        """
        off = {
            name: {key: value for key, value in state.found.items() if value is False}
            for name, state in self._states.items()
        }
        actions = {name: partial(self._set, name, wanted) for name, wanted in off.items() if wanted}
        if failures := self._persist(actions, keep_trying, notify):
            raise NotRestoredError(self._bench.testbed, failures)

    def restore_without_light(
        self, *, keep_trying: int | None = None, notify: Notify = ignore
    ) -> None:
        """Restore all settings but those that would switch light on or raise it.

        Raises `NotRestoredError`.
        """
        actions = {name: partial(self._set_without_light, name) for name in self._states}
        if failures := self._persist(actions, keep_trying, notify):
            raise NotRestoredError(self._bench.testbed, failures)

    def restore(
        self,
        *,
        obstacles: Obstacles = no_obstacles,
        keep_trying: int | None = None,
        notify: Notify = ignore,
    ) -> None:
        """Restore all settings, tried again as `Fabric.restore` does, and forget them.

        Light is switched on or raised last, and only where `obstacles` returns nothing. Raises
        `NotRestoredError`; the saved states of what is not restored stay on disk.
        """
        failures: dict[str, LightrigError] = {}
        try:
            self.restore_without_light(keep_trying=keep_trying, notify=notify)
        except NotRestoredError as error:
            failures |= error.failures
        actions = {}
        for name in self._states.keys() - failures.keys():
            if changed := obstacles(name):
                actions[name] = partial(self._check_lit, name, changed)
            else:
                actions[name] = partial(self._set, name, self._states[name].found)
        failures |= self._persist(dict(sorted(actions.items())), keep_trying, notify)
        store = self._bench.saved_states
        for name in actions.keys() - failures.keys():
            self._bench.setting_notes.pop(name, None)
            state = self._states.pop(name)
            if store is not None:
                store.clear(state)
        if failures:
            raise NotRestoredError(self._bench.testbed, failures)

    def _set(self, name: str, settings: Mapping[str, Value]) -> None:
        """Restore an instrument; what is set now is not noted, since it is what was found."""
        noted = self._bench.setting_notes.pop(name, None)
        try:
            self._restorable()[name].restore_settings(settings)  # type: ignore[arg-type]
        finally:
            if noted is not None:
                self._bench.setting_notes[name] = noted

    def _set_without_light(self, name: str) -> None:
        raised = self._raised(name)
        wanted = {key: v for key, v in self._states[name].found.items() if key not in raised}
        self._set(name, wanted)

    def _check_lit(self, name: str, changed: Sequence[str]) -> None:
        """Raise `LightNotRaisedError` if settings are left that would raise light."""
        if raised := self._raised(name):
            raise LightNotRaisedError(
                f"{name}: {', '.join(sorted(raised))} would raise light, and stays as it is: on "
                f"its path {', '.join(changed)} is not as it was found\n"
                f"  {self._states[name].origin}"
            )

    def _raised(self, name: str) -> frozenset[str]:
        """Return the settings that would switch light on or raise it if they were restored."""
        instrument, state = self._restorable()[name], self._states[name]
        spec = self._bench.testbed.instruments[name]
        present = instrument.read_settings(range(1, spec.channels + 1))
        found: Mapping[str, float] = state.found  # type: ignore[assignment]
        if isinstance(instrument, SetsLight):
            return instrument.raises_light(present, found)
        if spec.kind not in _LIT:
            return frozenset()
        return frozenset(
            key
            for key, value in found.items()
            if value is not False and not instrument.same_setting(key, present[key], value)
        )

    def _persist(
        self,
        actions: Mapping[str, Callable[[], None]],
        keep_trying: int | None,
        notify: Notify,
    ) -> dict[str, LightrigError]:
        if not actions:
            return {}
        self._bench.check_lease()
        return persist(actions, self._bench, keep_trying, notify)

    @staticmethod
    def differences(
        instrument: HasSettings, state: SavedSettings, present: Mapping[str, float]
    ) -> list[str]:
        """Return the settings that are neither as found nor as the run can have left them."""
        found = []
        for name, value in present.items():
            known = (state.found.get(name), *state.values.get(name, ()))
            numbers = [float(each) for each in known if isinstance(each, int | float)]
            if not any(instrument.same_setting(name, value, each) for each in numbers):
                last = known[-1] if known[-1] is not None else "not known"
                found.append(f"{name} is {value}, and was {last}")
        return found

    def _conflict(
        self, name: str, state: SavedSettings, present: Mapping[str, float], why: str
    ) -> str:
        last = {key: values[-1] for key, values in state.values.items() if values}
        return "\n".join(
            (
                f"{name} is not restored: {why}",
                f"  {state.origin}",
                f"  found     {_listed(state.found)}",
                f"  last set  {_listed(last)} ({state.changed or 'nothing was changed'})",
                f"  now       {_listed(present)}",
                f"  try       `lightrig restore {self._bench.testbed.path} --show`; then --force "
                "restores what was found, --forget keeps what is set now",
            )
        )

    def _note(self, name: str, setting: str, value: float) -> None:
        """Note on disk that a setting is about to be set."""
        self._bench.check_lease()
        state = self._states.get(name)
        store = self._bench.saved_states
        if state is not None and store is not None:
            state = self._states[name] = state.setting(setting, value)
            store.save(state, durable=False)

    def _restorable(self) -> dict[str, HasSettings]:
        bench = self._bench
        return {
            name: each
            for name, each in bench.instruments.items()
            if name in bench.external and isinstance(each, HasSettings)
        }


def _unknown(state: SavedSettings, present: Mapping[str, float]) -> str:
    """Return the saved settings that the instrument does not have, or of another kind of value."""
    return ", ".join(
        name
        for name, value in state.found.items()
        if name not in present
        or isinstance(value, str)
        or isinstance(value, bool) != isinstance(present[name], bool)
    )


def _listed(settings: Mapping[str, Value]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "nothing"
