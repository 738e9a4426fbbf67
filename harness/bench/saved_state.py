"""The states of instruments before a run changed them, on disk: they survive a kill.

A state knows what it was read from (model, serial number, address), when, by which run, and what
has been set since. So it is restored to no other instrument, and not over what a person has set
by hand after the kill. States lie where all accounts of the machine find them
(`harness.bench.lab_folder`), or in the testbed's `lab_folder`, where other hosts do too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from lightrig.harness.bench.lab_folder import explained, file_name, open_folder, write_whole
from lightrig.harness.bench.lease import this_owner
from lightrig.instruments.clock import wall_time
from lightrig.testbeds import Circuit, LightrigError
from lightrig.testbeds.json_text import from_json

VERSION = 1
SUFFIX = ".found.json"

Value: TypeAlias = float | int | bool | str


class SavedStateError(LightrigError):
    """A saved state cannot be read or written."""


class StateConflictError(LightrigError):
    """Raised when an instrument is not the one, or not as, that a saved state was left for."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a saved state: the instrument, the testbed and the run.

    Attributes:
        key: the instrument, as leases know it.
        instrument: its name in the testbed.
        identity: what it reported about itself.
        address: where it was.
        testbed, file: name and path of the testbed.
        purpose: the run or the command.
        user, host: whose it was.
        saved: when, UTC.
    """

    key: str
    instrument: str
    identity: str
    address: str
    testbed: str
    file: str
    purpose: str
    user: str
    host: str
    saved: str

    def __str__(self) -> str:
        return (
            f"saved {self.saved} by {self.user} on {self.host}, {self.purpose}, from "
            f"{self.identity} at {self.address}"
        )


def origin(
    key: str, instrument: str, identity: object, address: str | None, testbed: Any, purpose: str
) -> Origin:
    """Return the origin of a state that is read now by this process."""
    owner = this_owner(purpose)
    return Origin(
        key,
        instrument,
        str(identity),
        address or "no address",
        testbed.name,
        str(Path(testbed.path).absolute()),
        purpose,
        owner["user"],
        owner["host"],
        owner["since"],
    )


@dataclass(frozen=True, slots=True)
class SavedCircuits:
    """The circuits of a switch on a testbed's ports.

    Attributes:
        origin: what they were read from.
        found: those before the first change.
        cabling: what each port of the testbed was cabled to.
        before, after: those before and after the last change that was begun.
        changed: when that was begun; empty if nothing was changed.
    """

    origin: Origin
    found: frozenset[Circuit]
    cabling: Mapping[str, str]
    before: frozenset[Circuit]
    after: frozenset[Circuit]
    changed: str = ""

    def changing(self, before: frozenset[Circuit], after: frozenset[Circuit]) -> SavedCircuits:
        """Return the state for when a change is about to be sent."""
        return replace(self, before=before, after=after, changed=f"{wall_time():%F %T} UTC")

    def foreign(self, present: frozenset[Circuit]) -> list[Circuit]:
        """Return circuits in `present` that no change of ours has made or left."""
        return sorted(present - self.before - self.after)

    def missing(self, present: frozenset[Circuit]) -> list[Circuit]:
        """Return circuits that are missing, and that no change of ours has removed."""
        return sorted((self.before & self.after) - present)

    def recabled(self, cabling: Mapping[str, str]) -> list[str]:
        """Return the ports that are cabled to something else than when the state was saved."""
        ports = sorted(self.cabling.keys() | cabling.keys(), key=lambda port: (len(port), port))
        return [port for port in ports if self.cabling.get(port) != cabling.get(port)]


@dataclass(frozen=True, slots=True)
class SavedSettings:
    """The settings of an instrument.

    Attributes:
        origin: what they were read from.
        found: the values before the first change, by setting.
        values: of each setting that was set since, its last two values, newest last.
        changed: when that was begun; empty if nothing was set.
    """

    origin: Origin
    found: Mapping[str, Value]
    values: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    changed: str = ""

    def setting(self, name: str, value: Value) -> SavedSettings:
        """Return the state for when a setting is about to be set."""
        values = (*self.values.get(name, ()), value)[-2:]
        changed = f"{wall_time():%F %T} UTC"
        return replace(self, values={**self.values, name: values}, changed=changed)


SavedState: TypeAlias = SavedCircuits | SavedSettings


class SavedStates:
    """All saved states in a folder, one file for each.

    A state is written before the first change, removed after everything was restored, and its
    `found` is never overwritten: what a run finds after a kill is not what the laboratory left.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def circuits(self, key: str) -> SavedCircuits | None:
        """Return the saved circuits of the switch `key`; raises `SavedStateError`."""
        state = self._read(self._path(key, "circuits"))
        return state if isinstance(state, SavedCircuits) else None

    def settings(self, key: str, instrument: str) -> SavedSettings | None:
        """Return the saved settings of the instrument `key`; raises `SavedStateError`.

        `instrument` is its name: two instruments of a testbed may be parts of one box.
        """
        state = self._read(self._path(key, f"settings.{instrument}"))
        return state if isinstance(state, SavedSettings) else None

    def all(self) -> Iterator[SavedState]:
        """Yield every state in the folder, oldest first; raises `SavedStateError`."""
        found = (self._read(path) for path in sorted(self.folder.glob(f"*{SUFFIX}")))
        states = [state for state in found if state is not None]
        yield from sorted(states, key=lambda state: state.origin.saved)

    def save(self, state: SavedState, *, durable: bool = True) -> None:
        """Write a state; `durable`, it also survives a crash of the machine.

        Raises `SavedStateError` if it cannot be written: then nothing may be changed.
        """
        document = {"lightrig state": VERSION, **asdict(state)}
        if isinstance(state, SavedCircuits):
            for name in ("found", "before", "after"):
                document[name] = [str(circuit) for circuit in sorted(getattr(state, name))]
        path = self.path_of(state)
        with explained(open_folder(self.folder)):
            write_whole(path, json.dumps(document, indent=1), durable=durable)

    def clear(self, state: SavedState) -> None:
        """Remove a state, after everything of it was restored."""
        with explained(self.folder):
            self.path_of(state).unlink(missing_ok=True)

    def path_of(self, state: SavedState) -> Path:
        """Return the file of a state."""
        if isinstance(state, SavedCircuits):
            return self._path(state.origin.key, "circuits")
        return self._path(state.origin.key, f"settings.{state.origin.instrument}")

    def _path(self, key: str, kind: str) -> Path:
        return self.folder / f"{file_name(key)}.{kind}{SUFFIX}"

    def _read(self, path: Path) -> SavedState | None:
        try:
            return _parsed(from_json(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SavedStateError(f"{path}: {error.strerror}") from error
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise SavedStateError(
                f"{path} is damaged: {error}\n"
                "  meaning   what the instrument held before a killed run is not known here\n"
                "  try       set the instrument by hand as it should be, then remove the file"
            ) from error


def _parsed(document: Any) -> SavedState:
    if not isinstance(document, dict) or document["lightrig state"] != VERSION:
        raise ValueError("no saved state of this version")
    fields = {str(name): str(value) for name, value in document["origin"].items()}
    origin, changed = Origin(**fields), str(document["changed"])
    if "cabling" not in document:
        values = {str(k): tuple(map(_value, v)) for k, v in document["values"].items()}
        found = {str(name): _value(value) for name, value in document["found"].items()}
        return SavedSettings(origin, found, values, changed)
    cabling = {str(port): str(end) for port, end in document["cabling"].items()}
    circuits = (_circuits(document[name]) for name in ("found", "before", "after"))
    found_circuits, before, after = circuits
    return SavedCircuits(origin, found_circuits, cabling, before, after, changed)


def _value(value: Any) -> Value:
    if not isinstance(value, Value):
        raise ValueError(f"{value!r} is no value of a setting")
    return value


def _circuits(texts: Any) -> frozenset[Circuit]:
    if not isinstance(texts, list):
        raise ValueError(f"{texts!r} is no list of circuits")
    return frozenset(map(Circuit.parse, texts))
