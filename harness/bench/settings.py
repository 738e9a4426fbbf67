"""The settings of bench instruments before a run changed them: saved, and restored at its end.

Lasers, attenuators, outputs of testers and chambers stay as they are when a process is killed. So
their settings are on disk before the first change, like the circuits of switches. The shutters of
a switch are saved by what sets them, and restored by whatever finds them saved.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.restoring import (
    InitialStates,
    Notify,
    NotRestoredError,
    Obstacles,
    ignore,
)
from lightrig.harness.bench.saved_state import (
    SavedCircuits,
    SavedSettings,
    SavedStateError,
    Value,
)
from lightrig.instruments.core.capabilities import HasSettings
from lightrig.testbeds import Circuit, LightrigError


class LightNotRaisedError(LightrigError):
    """Raised for light that is not switched on or raised, since its path is not as found."""


class SavedInstruments(InitialStates[SavedSettings]):
    """The settings of a bench's external instruments.

    Args:
        bench: the open instruments; those that end with this process are not saved.
        shutters: whether this process may set shutters of switches: then theirs are saved, else
            only what was saved of them before is restored.
    """

    _set_by_somebody = "somebody else has set it since: "

    def __init__(self, bench: Bench, *, shutters: bool = False) -> None:
        super().__init__(bench, bench.saved_states, bench.external)
        self._shutters = shutters

    def save_initial_state(self, *, force: bool = False) -> None:
        """Save the settings as `InitialStates` does; note on disk from now on what is set."""
        super().save_initial_state(force=force)
        for name in self.states:
            self.bench.setting_notes[name] = partial(self._note, name)

    def restore_off(self, *, keep_trying: int | None = None, notify: Notify = ignore) -> None:
        """Switch off what was found off: light that nobody wants is ended first.

        Raises `NotRestoredError`.
        """
        self._try(self._set_off, keep_trying, notify)

    def restore_without_light(
        self, *, keep_trying: int | None = None, notify: Notify = ignore
    ) -> None:
        """Restore all settings but those that would switch light on or raise it.

        Raises `NotRestoredError`.
        """
        self._try(self._set_without_light, keep_trying, notify)

    def _try(self, step: Callable[[str], None], keep_trying: int | None, notify: Notify) -> None:
        if failures := self._carry_out([step], keep_trying, notify):
            raise NotRestoredError(self.bench.testbed, failures)

    def _names(self) -> list[str]:
        return sorted(self._restorable)

    def _present(self, names: Sequence[str]) -> list[SavedSettings]:
        return [SavedSettings(self._origin(name), self._settings(name)) for name in names]

    def _differing(self, state: SavedSettings, now: SavedSettings) -> list[str]:
        instrument = self._restorable[now.origin.instrument]
        present: Mapping[str, float] = now.found  # type: ignore[assignment]
        found = []
        for name, value in present.items():
            known = (state.found.get(name), state.end.get(name), *state.values.get(name, ()))
            numbers = [float(each) for each in known if isinstance(each, int | float)]
            if not any(instrument.same_setting(name, value, each) for each in numbers):
                last = known[-1] if known[-1] is not None else "not known"
                found.append(f"{name} is {value}, and was {last}")
        return found

    def _same(self, wanted: Mapping[str, float], now: SavedSettings) -> bool:
        instrument = self._restorable[now.origin.instrument]
        present: Mapping[str, float] = now.found  # type: ignore[assignment]
        return wanted.keys() == present.keys() and all(
            instrument.same_setting(name, value, wanted[name]) for name, value in present.items()
        )

    def _beyond(self, state: SavedSettings, now: SavedSettings) -> str:
        unknown = dict.fromkeys(
            name
            for name, value in (*state.found.items(), *state.end.items())
            if name not in now.found
            or isinstance(value, str)
            or isinstance(value, bool) != isinstance(now.found[name], bool)
        )
        if not unknown:
            return ""
        return f"its saved state has settings that are not this testbed's: {', '.join(unknown)}"

    def _beside(self, now: SavedSettings) -> Sequence[SavedCircuits]:
        if now.origin.instrument not in self.bench.switches:
            return ()
        none: frozenset[Circuit] = frozenset()
        return (SavedCircuits(now.origin, none, {}, none, none),)

    def _end_light(self) -> None:
        self.restore_off()

    def _steps(self, obstacles: Obstacles, *, force: bool) -> Sequence[Callable[[str], None]]:
        # Not compared again, as circuits are: an instrument that has restarted has its default
        # settings, which look like a person's.
        return [self._set_without_light, lambda name: self._set_light(name, obstacles)]

    def _set(self, name: str, settings: Mapping[str, Value]) -> None:
        """Restore settings; what is set now is not noted, since it is what was found."""
        noted = self.bench.setting_notes.pop(name, None)
        try:
            self._restorable[name].restore_settings(settings)  # type: ignore[arg-type]
        finally:
            if noted is not None:
                self.bench.setting_notes[name] = noted

    def _set_off(self, name: str) -> None:
        found = self.states[name].end
        if off := {setting: value for setting, value in found.items() if value is False}:
            self._set(name, off)

    def _set_without_light(self, name: str) -> None:
        raised = self._raised(name)
        found = self.states[name].end
        self._set(name, {key: value for key, value in found.items() if key not in raised})

    def _set_light(self, name: str, obstacles: Obstacles) -> None:
        """Switch on and raise light, where nothing on its path is in the way.

        Raises `LightNotRaisedError`.
        """
        if not (changed := obstacles(name)):
            self._set(name, self.states[name].end)
        elif raised := self._raised(name):
            raise LightNotRaisedError(
                f"{name}: {', '.join(sorted(raised))} would raise light, and stays as it is: on "
                f"its path {', '.join(changed)} is not as it was found\n"
                f"  {self.states[name].origin}"
            )

    def _raised(self, name: str) -> frozenset[str]:
        """Return the settings that would switch light on or raise it if they were restored."""
        found: Mapping[str, float] = self.states[name].end  # type: ignore[assignment]
        if name in self.bench.switches:
            return self.bench.shutters[name].raises_light(self._settings(name), found)
        return self.bench.interlocks.raised(name, self._settings(name), found)

    def _note(self, name: str, setting: str, value: float) -> None:
        """Note on disk that a setting is about to be set."""
        if (state := self.states.get(name)) is not None:
            self.states.put(name, state.setting(setting, value), durable=False)

    def _settings(self, name: str) -> dict[str, float]:
        return dict(self._restorable[name].read_settings(self.bench.channels(name)))

    @cached_property
    def _restorable(self) -> Mapping[str, HasSettings]:
        bench = self.bench
        return {
            name: each
            for name, each in bench.settable.items()
            if name in bench.external and (name in bench.instruments or self._has_shutters(name))
        }

    def _has_shutters(self, name: str) -> bool:
        """Whether the shutters of a switch are saved, or were."""
        if self._shutters:
            shutters = self.bench.shutters[name]
            return bool(shutters.ports) and not shutters.refusal
        if (store := self.states.store_of(name)) is None:
            return False
        try:
            return store.load(SavedSettings(self._origin(name), {}), self._known) is not None
        except SavedStateError:
            return True  # which `save_initial_state` says
