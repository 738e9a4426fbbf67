"""The settings of bench instruments before a run changed them: saved, and restored at its end.

Lasers, attenuators, outputs of testers and chambers stay as they are when a process is killed. So
their settings are on disk before the first change, like the circuits of switches.
"""

from collections.abc import Mapping
from functools import partial

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.instrument_keys import identity_key
from lightrig.harness.bench.restoring import Notify, NotRestoredError, ignore, persist
from lightrig.harness.bench.saved_state import SavedSettings, StateConflictError, Value, origin
from lightrig.instruments.core.capabilities import HasSettings
from lightrig.testbeds import LightrigError


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
        `StateConflictError`, unless `force`, where a setting is not as that run can have left it.
        """
        store = self._bench.saved_states
        if store is None:
            return
        conflicts = []
        for name, instrument in self._restorable().items():
            spec, identity = self._bench.testbed.instruments[name], self._bench.identities[name]
            state = store.settings(identity_key(identity, spec.address), name)
            present = instrument.read_settings(range(1, spec.channels + 1))
            if state is None:
                key = identity_key(identity, spec.address)
                testbed, purpose = self._bench.testbed, self._bench.purpose
                made = origin(key, name, identity, spec.address, testbed, purpose)
                state = SavedSettings(made, dict(present))
                store.save(state)
            elif not force and (differences := self.differences(instrument, state, present)):
                conflicts.append(self._conflict(name, state, differences))
            self._states[name] = state
        if conflicts:
            self._states.clear()
            raise StateConflictError("\n".join(conflicts))
        for name, instrument in self._restorable().items():
            instrument.on_setting = partial(self._note, name)

    def restore_off(self, *, keep_trying: int | None = None, notify: Notify = ignore) -> None:
        """Switch off what was found off: light that nobody wants is ended first.

        Raises `NotRestoredError`.
        """
        off = {
            name: {key: value for key, value in state.found.items() if value is False}
            for name, state in self._states.items()
        }
        self._persist({name: wanted for name, wanted in off.items() if wanted}, keep_trying, notify)

    def restore(self, *, keep_trying: int | None = None, notify: Notify = ignore) -> None:
        """Restore all settings, tried again as `Fabric.restore` does, and forget them.

        Raises `NotRestoredError`; the saved states of what is not restored stay on disk.
        """
        self._persist(
            {name: dict(state.found) for name, state in self._states.items()},
            keep_trying,
            notify,
            clear=True,
        )

    def _restoring(self, name: str, settings: Mapping[str, Value]) -> None:
        """Restore an instrument; what is set now is not noted, since it is what was found."""
        instrument = self._restorable()[name]
        noted, instrument.on_setting = instrument.on_setting, None
        try:
            instrument.restore_settings(settings)  # type: ignore[arg-type]
        finally:
            instrument.on_setting = noted

    def _persist(
        self,
        wanted: Mapping[str, Mapping[str, Value]],
        keep_trying: int | None,
        notify: Notify,
        *,
        clear: bool = False,
    ) -> None:
        if not wanted:
            return
        self._bench.check_lease()
        instruments = self._restorable()
        actions = {
            name: partial(self._restoring, name, settings) for name, settings in wanted.items()
        }
        failures: dict[str, LightrigError] = persist(actions, self._bench, keep_trying, notify)
        store = self._bench.saved_states
        for name in wanted.keys() - failures.keys() if clear else ():
            instruments[name].on_setting = None
            state = self._states.pop(name)
            if store is not None:
                store.clear(state)
        if failures:
            raise NotRestoredError(self._bench.testbed, failures)

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

    def _conflict(self, name: str, state: SavedSettings, differences: list[str]) -> str:
        return (
            f"{name} is not restored: somebody else has set it since: {'; '.join(differences)}\n"
            f"  {state.origin}\n"
            f"  try       `lightrig restore {self._bench.testbed.path} --show`; then --force "
            "restores what was found, --forget keeps what is set now"
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
