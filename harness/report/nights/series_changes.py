"""Changes between nights: level changes and drifts of series, and events at the lab beside them.

All series of a page are tested, so each has its share of the error (Bonferroni): `ERROR` is the
probability that a page without any change marks a change anywhere, and the same again for a
drift. `harness.statistics.changes` states the assumptions. An event (another firmware, another
cabling) explains nothing by itself; it is shown beside a change so that a person can judge.
"""

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from lightrig.harness.report.nights.series import Lab, NightSeries
from lightrig.harness.report.nights.source import Descriptions
from lightrig.harness.statistics.changes import (
    FEWEST_NIGHTS,
    LevelChange,
    Trend,
    find_changes,
    trend,
    unprecedented,
)
from lightrig.testbeds import Testbed

if TYPE_CHECKING:
    import duckdb

# ------------------------------------------------------------------------------- changes

ERROR = 0.01
"""Probability of a mark where nothing changed: once for changes, once for drifts."""


_SETTINGS = {
    "mtu": "MTU",
    "fec": "FEC",
    "receives_pause": "flow control rx",
    "sends_pause": "flow control tx",
    "pfc": "PFC of priority",
    "arp_ignore": "arp_ignore",
    "arp_announce": "arp_announce",
    "rp_filter": "rp_filter",
    "driver": "driver",
    "driver_version": "driver",
    "nic_firmware": "NIC firmware",
    "transceiver": "transceiver",
    "module_firmware": "module firmware",
}
"""What is compared of the settings of a NIC port (`PortSettings`)."""

Kind: TypeAlias = Literal["identity", "settings", "cabling", "description", "note"]


@dataclass(frozen=True, slots=True)
class LabChange:
    """A difference of the lab from this night on; `text` describes it.

    names: the instruments, servers or ports that it is about; none if it is about the whole lab.
    """

    night: int
    kind: Kind
    text: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """One series with level changes, with a drift, or with both."""

    series: NightSeries
    changes: tuple[LevelChange, ...]
    drift: Trend | None


@dataclass(frozen=True, slots=True)
class ChangeGroup:
    """Changes of one lab at the same time, and the events of those nights.

    night: the first at the new level, of most of the changes.
    """

    lab: Lab
    night: int
    changes: tuple[tuple[NightSeries, LevelChange], ...]
    events: tuple[LabChange, ...]


def find_series_changes(labs: Sequence[Lab]) -> list[list[SeriesChange]]:
    """Return the series of each lab that changed or drift, in the lab's order."""
    error = ERROR / max(tried(labs), 1)
    return [list(_changes_of(lab.series, error)) for lab in labs]


def tried(labs: Iterable[Lab]) -> int:
    """Return the number of series that have nights enough to be tested."""
    enough = [np.isfinite(one.level).sum() >= FEWEST_NIGHTS for lab in labs for one in lab.series]
    return sum(map(int, enough))


def _changes_of(series: Sequence[NightSeries], error: float) -> Iterable[SeriesChange]:
    families: dict[Hashable, list[NightSeries]] = {}
    for one in series:
        families.setdefault(one.family, []).append(one)
    for one in series:
        # Each night is one sample, or none where it has no data.
        present = np.isfinite(one.level).tolist()
        nights = [one.level[at : at + size] for at, size in enumerate(present)]
        changes = tuple(find_changes(nights, error))
        if changes and one.is_of_tails:
            rest = [each.level for each in families[one.family] if each is not one]
            changes = tuple(unprecedented(changes, one.level, rest, error))
        drift = trend(nights, error, changes)
        if changes or drift:
            yield SeriesChange(one, changes, drift)


def group_changes(
    lab: Lab, found: Iterable[SeriesChange], events: Sequence[LabChange]
) -> list[ChangeGroup]:
    """Group changes of one night, or of neighbouring ones."""
    changes = [(one.series, change) for one in found for change in one.changes]
    nights = sorted({change.index for _, change in changes})
    # Consecutive nights have the same difference to their place in the list.
    together = [
        [night for _, night in each]
        for _, each in groupby(enumerate(nights), lambda placed: placed[1] - placed[0])
    ]
    result = []
    for each in together:
        those = [(series, change) for series, change in changes if change.index in each]
        night = Counter(change.index for _, change in those).most_common(1)[0][0]
        near = tuple(event for event in events if each[0] <= event.night <= each[-1])
        result.append(ChangeGroup(lab, night, tuple(those), near))
    return result


# -------------------------------------------------------------------------------- events

_ANSWERS = """
SELECT testbed, simulated, night, run, instruments FROM recent WHERE file_row_number = 0
ORDER BY testbed, simulated, night, run
"""
"""The participants of each run: those of its first row, as all rows of a run share them."""
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True)
class _Visit:
    """One run at one lab."""

    night: int
    run: str
    answers: Mapping[str, str]
    ports: Mapping[str, Any]


def events(
    connection: "duckdb.DuckDBPyConnection",
    descriptions: Descriptions,
    night_of: Callable[[str, str, str], int],
    ports_of: Callable[[str, str], Mapping[str, Any]],
) -> dict[tuple[str, bool], tuple[LabChange, ...]]:
    """Return the events of each lab, by testbed and whether it was simulated, the oldest first.

    The view `recent` has the rows to look at. night_of: returns the place of the night of a
    testbed, a date and a run. ports_of: returns what a run and a testbed have stored of ports.
    """
    visits: dict[tuple[str, bool], list[_Visit]] = {}
    for testbed, simulated, night, run, instruments in connection.sql(_ANSWERS).fetchall():
        place = night_of(testbed, night.isoformat(), run)
        visits.setdefault((testbed, simulated), []).append(
            _Visit(place, run, _answers(instruments), ports_of(run, testbed))
        )
    return {
        lab: tuple(
            event
            for before, after in pairwise(sorted(found, key=lambda visit: visit.night))
            for event in _between(descriptions, lab[0], before, after)
        )
        for lab, found in visits.items()
    }


def _between(
    descriptions: Descriptions, testbed: str, before: _Visit, after: _Visit
) -> Iterator[LabChange]:
    yield from _identities(before, after)
    yield from _settings(before, after)
    yield from _descriptions(descriptions, testbed, before, after)


def _answers(instruments: Sequence[str]) -> dict[str, str]:
    """Return the identity of each instrument by its name."""
    found = {}
    for instrument in instruments:
        if instrument.startswith("{"):
            fields = json.loads(instrument)
            name = str(fields.pop("name", fields.get("serial", fields.get("model", "?"))))
            found[name] = ", ".join(f"{key} {value}" for key, value in fields.items())
        else:
            name, separated, identity = instrument.partition(": ")
            found[name] = identity if separated else name
    return found


def identity_changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return what differs between the instruments of two runs, as rows name them."""
    changes = _changed_identities(_answers(before), _answers(after))
    return [f"{_listed(names)}: {change}" for change, names in changes.items()]


def setting_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return what NIC ports were set to otherwise in two runs, by what those have stored."""
    changes = _changed_settings(before, after)
    return [f"{_listed(ports)}: {change}" for change, ports in changes.items()]


def _identities(before: _Visit, after: _Visit) -> Iterator[LabChange]:
    """Yield changed identities, instruments that joined or left; equal changes in one event."""
    for change, names in _changed_identities(before.answers, after.answers).items():
        yield LabChange(after.night, "identity", f"{_listed(names)}: {change}", tuple(names))


def _changed_identities(
    before: Mapping[str, str], after: Mapping[str, str]
) -> dict[str, list[str]]:
    changes: dict[str, list[str]] = {}
    for name, identity in after.items():
        old = before.get(name)
        if old is None:
            changes.setdefault("joined", []).append(name)
        elif old != identity:
            changes.setdefault(_difference(old, identity), []).append(name)
    left = [name for name in before if name not in after]
    if left:
        changes["left"] = left
    return changes


def _settings(before: _Visit, after: _Visit) -> Iterator[LabChange]:
    """Yield what NIC ports are set to otherwise than before; equal changes in one event."""
    for change, ports in _changed_settings(before.ports, after.ports).items():
        yield LabChange(after.night, "settings", f"{_listed(ports)}: {change}", tuple(ports))


def _changed_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[str]]:
    earlier, now = before.get("ports", {}), after.get("ports", {})
    changes: dict[str, list[str]] = {}
    for port in sorted(earlier.keys() & now.keys()):
        for setting, name in _SETTINGS.items():
            old, new = earlier[port].get(setting), now[port].get(setting)
            if old is not None and new is not None and old != new:
                change = f"{name} {_word(old)} → {_word(new)}"
                changes.setdefault(change, []).append(port)
    return changes


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value)


def _difference(old: str, new: str) -> str:
    """Return the parts of an identity that are new, such as "firmware 6.7 → 6.8"."""
    before, after = old.split(", "), new.split(", ")
    if len(before) != len(after):
        return f"{old} → {new}"
    changed = []
    for part, now in zip(before, after, strict=True):
        if part != now:
            name, _, value = part.rpartition(" ")
            name_now, _, value_now = now.rpartition(" ")
            same = name and name == name_now
            changed.append(f"{name} {value} → {value_now}" if same else f"{part} → {now}")
    return ", ".join(changed)


def _listed(names: Sequence[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_NAMES - 1])} and {len(names) - _MOST_NAMES + 1} more"


def _descriptions(
    descriptions: Descriptions, testbed: str, before: _Visit, after: _Visit
) -> Iterator[LabChange]:
    """Yield the change of the testbed's description, if both runs stored one."""
    if not descriptions.differ(testbed, before.run, after.run):
        return
    old, new = descriptions.load(testbed, before.run), descriptions.load(testbed, after.run)
    if old is None or new is None:
        yield LabChange(after.night, "description", "the testbed's description has changed")
    elif cabling := _cabling(old, new):
        yield LabChange(after.night, "cabling", cabling)
    else:
        changed = "the testbed's description has changed, not its cabling"
        yield LabChange(after.night, "description", changed)


def _cabling(old: Testbed, new: Testbed) -> str:
    """Return the fibers that were removed and added as text; empty where there are none."""
    removed = [str(fiber) for fiber in old.fibers if fiber not in set(new.fibers)]
    added = [str(fiber) for fiber in new.fibers if fiber not in set(old.fibers)]
    changes = [f"{len(removed)} fibers removed ({_listed(removed)})"] if removed else []
    changes += [f"{len(added)} fibers added ({_listed(added)})"] if added else []
    return "cabling: " + ", ".join(changes) if changes else ""
