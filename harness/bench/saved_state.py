"""The states of instruments before a run changed them, on disk: they survive a kill.

There are two kinds, the circuits of a switch and the settings of an instrument, in files of one
format. What is done with them is in `harness.bench.restoring`.

A state knows what it was read from (model, serial number, address), when, by which run, and what
has been set since. So it is restored to no other instrument, and not over what a person has set
by hand after the kill. States lie where all accounts of the machine find them
(`harness.bench.lab_folder`), or in the testbed's `lab_folder`, where other hosts do too.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import os
import stat
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from lightrig.harness.bench.lab_folder import (
    SUFFIX,
    LabFolderError,
    UntrustedFileError,
    account,
    file_name,
    opened,
)
from lightrig.harness.bench.lease import this_owner
from lightrig.harness.machine_folder import former_folder
from lightrig.instruments.clock import wall_time
from lightrig.testbeds import Circuit, LightrigError
from lightrig.testbeds.escaping import escape_line
from lightrig.testbeds.json_text import from_json

VERSION = 1
TIME = "%Y-%m-%d %H:%M:%S UTC"
"""Format of the times in a state."""

Value: TypeAlias = float | int | bool | str


class SavedStateError(LightrigError):
    """A saved state cannot be read or written."""


class UntrustedStateError(SavedStateError):
    """A saved state that another account may have written: neither applied nor removed."""

    def __init__(self, path: Path, error: UntrustedFileError) -> None:
        owner = account(error.owner)
        mend = (
            f"ask {owner} to run `lightrig restore` with the testbed file; root may run "
            f"`lightrig restore FILE --owner {owner.removeprefix('account ')}`"
            if error.foreign
            else f"look at it (it belongs to {owner}); remove it, or, where it is what a run "
            "of yours has left, make it a file that only its owner may write (`chmod 600`)"
        )
        super().__init__(
            f"the saved state {escape_line(str(path))} {error}: it is neither applied nor "
            "removed\n  meaning   the instrument may not be as it was found, and what the file "
            f"says may be forged\n  try       {mend}"
        )


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


Values = TypeVar("Values", frozenset[Circuit], Mapping[str, Value])


@dataclass(frozen=True, slots=True)
class ByHand(Generic[Values]):
    """What a person has set on an instrument, with which runs end until it is undone.

    Attributes:
        wanted: circuits of the testbed's ports, or values by setting.
        command: what set the last of them.
        since: when, UTC.
    """

    wanted: Values
    command: str
    since: str

    def __str__(self) -> str:
        return f"{self.command}, {self.since}"


@dataclass(frozen=True, slots=True)
class SavedCircuits:
    """The circuits of a switch on a testbed's ports.

    Attributes:
        origin: what they were read from.
        found: those before the first change.
        cabling: what each port of the testbed was cabled to.
        before, after: those before and after the last change that was begun.
        changed: when that was begun; empty if nothing was changed.
        by_hand: what a person has set since and wants to stay; None where nothing was set so.
    """

    origin: Origin
    found: frozenset[Circuit]
    cabling: Mapping[str, str]
    before: frozenset[Circuit]
    after: frozenset[Circuit]
    changed: str = ""
    by_hand: ByHand[frozenset[Circuit]] | None = None

    @property
    def end(self) -> frozenset[Circuit]:
        """The circuits with which a run leaves the switch."""
        return self.found if self.by_hand is None else self.by_hand.wanted

    @property
    def stays(self) -> bool:
        """Whether the last change has ended with what a person wants to stay."""
        return self.by_hand is not None and self.before == self.after == self.by_hand.wanted

    @property
    def last_set(self) -> list[str]:
        """The circuits after the last change that was begun."""
        return as_texts(self.after)

    def changing(self, before: frozenset[Circuit], after: frozenset[Circuit]) -> SavedCircuits:
        """Return the state for when a change is about to be sent."""
        return replace(self, before=before, after=after, changed=_now())

    def left_by_hand(self, now: SavedCircuits, command: str) -> SavedCircuits:
        """Return the state for when what is there `now` is to stay."""
        stays = ByHand(now.found, command, _now())
        return replace(self, before=now.found, after=now.found, by_hand=stays)

    def ended(self) -> SavedCircuits:
        """Return the state for when a run has left what a person wants to stay."""
        return replace(self, before=self.end, after=self.end)

    def foreign(self, present: frozenset[Circuit]) -> list[Circuit]:
        """Return circuits in `present` that no change of ours has made or left."""
        # Of a change that a kill has cut, any circuit may be removed or made, and any not.
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
        by_hand: what a person has set since and wants to stay; None where nothing was set so.
    """

    origin: Origin
    found: Mapping[str, Value]
    values: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    changed: str = ""
    by_hand: ByHand[Mapping[str, Value]] | None = None

    @property
    def end(self) -> Mapping[str, Value]:
        """The values with which a run leaves the instrument."""
        return self.found if self.by_hand is None else self.by_hand.wanted

    @property
    def stays(self) -> bool:
        """Whether the last change has ended with what a person wants to stay."""
        return self.by_hand is not None and not self.values

    def left_by_hand(self, now: SavedSettings, command: str) -> SavedSettings:
        """Return the state for when what is there `now` is to stay."""
        return replace(self, values={}, by_hand=ByHand(now.found, command, _now()))

    def ended(self) -> SavedSettings:
        """Return the state for when a run has left what a person wants to stay."""
        return replace(self, values={})

    @property
    def last_set(self) -> list[str]:
        """The last value of each setting that was set."""
        return as_texts({name: values[-1] for name, values in self.values.items() if values})

    def setting(self, name: str, value: Value) -> SavedSettings:
        """Return the state for when a setting is about to be set."""
        # Two: after a kill the instrument has the last one, or not yet.
        values = (*self.values.get(name, ()), value)[-2:]
        return replace(self, values={**self.values, name: values}, changed=_now())


SavedState: TypeAlias = SavedCircuits | SavedSettings
State = TypeVar("State", SavedCircuits, SavedSettings)


def as_texts(values: Iterable[Circuit] | Mapping[str, Value]) -> list[str]:
    """Return circuits or settings as a person reads them."""
    if isinstance(values, Mapping):
        return [f"{name} {value}" for name, value in values.items()]
    return [str(circuit) for circuit in sorted(values)]


def _now() -> str:
    return f"{wall_time():{TIME}}"


class SavedStates:
    """All saved states in a folder, one file for each.

    A state is written before the first change, removed after everything was restored, and its
    `found` is never overwritten: what a run finds after a kill is not what the laboratory left.
    One that another account may have written is neither applied nor removed.

    Args:
        folder: of this machine, or the testbed's `lab_folder`.
        owners: numbers of accounts whose states are applied too.
    """

    def __init__(self, folder: Path, owners: Collection[int] = ()) -> None:
        self.folder = folder
        self._owners = owners

    def load(self, like: State, known: Collection[str] = ()) -> State | None:
        """Return the saved state of the instrument and kind of `like`.

        known: names of the testbed's instruments. Settings that were saved under none of them are
        those of an instrument that was renamed since. Raises `SavedStateError` for a state that is
        damaged, or that another account may have written.
        """
        name = _name_of(like)
        state = self._read(name)
        if state is None and isinstance(like, SavedSettings) and self.folder.is_dir():
            begin = name.removesuffix(f"{like.origin.instrument}{SUFFIX}")
            with opened(self.folder, make=False) as folder:
                names = [each for each in folder.names(SUFFIX) if each.startswith(begin)]
            taken = {f"{begin}{each}{SUFFIX}" for each in known}
            renamed = [each for each in names if each not in taken]
            if len(renamed) > 1:
                raise SavedStateError(
                    f"{escape_line(' and '.join(renamed))} are its, under other names\n"
                    "  try       `lightrig restore` with the testbed file of that run"
                )
            state = self._read(renamed[0]) if renamed else None
        return state if isinstance(state, type(like)) else None

    def check_owner(self, like: SavedState) -> None:
        """Raise `UntrustedStateError` for a state like `like` that another account has written."""
        try:
            self._read(_name_of(like))
        except UntrustedStateError:
            raise
        except SavedStateError:
            return  # its own commands say so

    def read_all(self) -> tuple[list[SavedState], list[SavedStateError]]:
        """Return every state in the folder, oldest first, and why others are not used.

        Raises `LabFolderError` for a folder that is not there or cannot be used.
        """
        states, errors = [], []
        with opened(self.folder, make=False) as folder:
            names = folder.names(SUFFIX)
        for name in names:
            try:
                state = self._read(name)
            except SavedStateError as error:
                errors.append(error)
            else:
                states += [] if state is None else [state]
        if (former := former_folder(self.folder)) is not None:
            with contextlib.suppress(PermissionError):
                left = sorted(path for path in former.iterdir() if path.name.endswith(SUFFIX))
                errors += [_left_behind(path, self.folder) for path in left]
        return sorted(states, key=lambda state: state.origin.saved), errors

    def save(self, state: SavedState, *, durable: bool = True) -> None:
        """Write a state; `durable`, it also survives a crash of the machine.

        Raises `LabFolderError` if it cannot be written: then nothing may be changed.
        """
        document = {"lightrig state": VERSION, **asdict(state)}
        text = json.dumps(document, indent=1, default=lambda found: list(map(str, sorted(found))))
        with opened(self.folder) as folder:
            folder.write_whole(_name_of(state), text, durable=durable)

    def clear(self, state: SavedState) -> None:
        """Remove a state, after everything of it was restored."""
        with opened(self.folder) as folder:
            folder.remove(_name_of(state))

    def path_of(self, state: SavedState) -> Path:
        """Return the file of a state."""
        return self.folder / _name_of(state)

    def _read(self, name: str) -> SavedState | None:
        path = self.folder / name
        try:
            with opened(self.folder, make=False) as folder:
                text = folder.read(name, self._owners)
            state = _parsed(from_json(text))
            if _name_of(state) != name:
                raise ValueError(f"it is the state of {state.origin.key!r}")
        except UntrustedFileError as error:
            raise UntrustedStateError(path, error) from error
        except LabFolderError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                former = former_folder(self.folder)
                if former is not None and _is_left(former / name):
                    raise _left_behind(former / name, self.folder) from error
                return None
            raise SavedStateError(str(error)) from error
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise SavedStateError(
                f"{escape_line(str(path))} is damaged: {error}\n"
                "  meaning   what the instrument read before a killed run is not known here\n"
                "  try       set the instrument by hand as it should be, then remove the file"
            ) from error
        return state


class BenchStates(dict[str, State]):
    """The states of one kind that this process has found, by name of the instrument.

    Args:
        store: where they are on disk too.
        on_disk: names of the instruments that outlive this process: others are in memory alone.
    """

    def __init__(self, store: SavedStates | None, on_disk: Collection[str]) -> None:
        super().__init__()
        self._store, self._on_disk = store, on_disk

    def store_of(self, name: str) -> SavedStates | None:
        """Return where the state of an instrument is on disk."""
        return self._store if name in self._on_disk else None

    def put(self, name: str, state: State, *, durable: bool = True) -> None:
        """Hold a state, in memory also where it cannot be written; raises `LabFolderError`."""
        self[name] = state
        if (store := self.store_of(name)) is not None:
            store.save(state, durable=durable)

    def drop(self, names: Iterable[str]) -> None:
        """Discard states, in memory and on disk."""
        for name in names:
            if (store := self.store_of(name)) is not None:
                store.clear(self[name])
            del self[name]

    def release(self, names: Iterable[str]) -> None:
        """Discard the states of instruments that were restored.

        On disk those stay from which what a person has set by hand can be undone.
        """
        for name in tuple(names):
            state = self[name]
            if state.by_hand is not None:
                if (store := self.store_of(name)) is not None:
                    store.save(state.ended())
                del self[name]
            else:
                self.drop([name])


def _name_of(state: SavedState) -> str:
    # Two instruments of a testbed may be parts of one box, with settings of their own.
    circuits = isinstance(state, SavedCircuits)
    kind = "circuits" if circuits else f"settings.{state.origin.instrument}"
    return f"{file_name(state.origin.key)}.{kind}{SUFFIX}"


def _is_left(path: Path) -> bool:
    """Whether `path` is a file of this account or of root."""
    with contextlib.suppress(OSError):
        facts = path.lstat()
        return stat.S_ISREG(facts.st_mode) and facts.st_uid in {0, os.geteuid()}
    return False


def _left_behind(path: Path, folder: Path) -> SavedStateError:
    return SavedStateError(
        f"{escape_line(str(path))} lies in the folder that was used before {folder} was made\n"
        "  meaning   an instrument may not be as it was found\n"
        f"  try       look at the file; if it is yours, move it to {folder} and make it writable "
        "for nobody else"
    )


def _parsed(document: Any) -> SavedState:
    if not isinstance(document, dict) or document["lightrig state"] != VERSION:
        raise ValueError("no saved state of this version")
    fields = {str(name): str(value) for name, value in document["origin"].items()}
    origin, changed = Origin(**fields), str(document["changed"])
    if changed:
        datetime.datetime.strptime(changed, TIME)
    if "cabling" not in document:
        values = {str(k): tuple(map(_value, v)) for k, v in document["values"].items()}
        found = _values(document["found"])
        return SavedSettings(origin, found, values, changed, _by_hand(document, _values))
    cabling = {str(port): str(end) for port, end in document["cabling"].items()}
    circuits = (_circuits(document[name]) for name in ("found", "before", "after"))
    found_circuits, before, after = circuits
    by_hand = _by_hand(document, _circuits)
    return SavedCircuits(origin, found_circuits, cabling, before, after, changed, by_hand)


def _by_hand(document: Any, read: Callable[[Any], Values]) -> ByHand[Values] | None:
    if (stated := document.get("by_hand")) is None:  # states of older versions have none
        return None
    since = str(stated["since"])
    datetime.datetime.strptime(since, TIME)
    return ByHand(read(stated["wanted"]), str(stated["command"]), since)


def _values(stated: Any) -> Mapping[str, Value]:
    return {str(name): _value(value) for name, value in stated.items()}


def _value(value: Any) -> Value:
    if not isinstance(value, Value) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{value!r} is no value of a setting")
    return value


def _circuits(texts: Any) -> frozenset[Circuit]:
    if not isinstance(texts, list):
        raise ValueError(f"{texts!r} is no list of circuits")
    return frozenset(map(Circuit.parse, texts))
