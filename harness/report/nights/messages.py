"""What a person is told in the morning: cards that are new, that have gone, or that are overdue.

`results/message.json` has the cards of the last message, so that a card is told of once. A card is
the same as an earlier one that shares a part with it, a finding by kind and components.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightrig.harness.record import RecordError
from lightrig.harness.record.places import appearing
from lightrig.harness.report.causes import Cause, Evidence
from lightrig.harness.report.nights import JudgedNights
from lightrig.testbeds.escaping import escape_line
from lightrig.testbeds.exception_entry import Entry
from lightrig.testbeds.json_text import from_json
from lightrig.testbeds.plans import circuit_in, names_in
from lightrig.testbeds.regular_files import read_regular

STATE = "message.json"
VERSION = 1
MOST_CARDS = 100
"""Cards that a message has in full; of more it has the number."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card of a lab on its last night."""

    testbed: str
    simulated: bool
    night: str
    cause: Cause

    @property
    def parts(self) -> frozenset[str]:
        """The names of its parts."""
        return frozenset(one.name for one in self.cause.evidence)


@dataclass(frozen=True, slots=True)
class Message:
    """What is to be told.

    new: cards that no earlier message had, and known ones that something has joined. cleared: names
    and titles of cards that were told of and are there no more, by testbed. passed: entries of
    cards that are there, whose date has passed, by testbed. joined: what has joined known cards, by
    their names.
    """

    new: Sequence[Card] = ()
    cleared: Sequence[tuple[str, str, str]] = ()
    passed: Sequence[tuple[str, Entry]] = ()
    joined: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not (self.new or self.cleared or self.passed)


def cards_of(nights: JudgedNights) -> list[Card]:
    """Return the cards of the last night of each testbed."""
    dates = {one.testbed: one.night for one in nights.ended}
    return [
        Card(board.lab.testbed, board.lab.simulated, dates.get(board.lab.testbed, ""), cause)
        for board, causes in nights.causes
        for cause in causes
    ]


def joined_since(cause: Cause, entry: Entry) -> list[str]:
    """Return the kinds and places that have joined a card since it was entered as known.

    What was there by then, and what has the entry's name, is known. All parts of a card share a
    component, so a place is new where none of the ports that it names was named before.
    """
    day = entry.at.partition(" ")[0]
    known = [
        one for one in cause.evidence if one.name == entry.what or (one.since and one.since <= day)
    ]
    kinds = {one.finding.kind for one in known}
    places = frozenset().union(*map(_places, known))
    found: list[str] = []
    for one in cause.evidence:
        if one in known:
            continue
        if one.finding.kind not in kinds:
            found.append(one.finding.kind)
        if places and places.isdisjoint(_places(one)):
            found.append(one.finding.subject or " or ".join(map(str, one.finding.components)))
    return list(dict.fromkeys(filter(None, found)))


def _places(one: Evidence) -> frozenset[str]:
    """Return the ports and instruments that a finding was observed at, else its components."""
    found: set[str] = set()
    for subject in one.finding.subjects:
        switch, circuit = circuit_in(subject) or ("", None)
        if circuit is not None and switch:
            found |= {f"{switch}.{end}" for end in circuit}
        else:
            found |= set(names_in(subject))
    return frozenset(found or map(str, one.finding.components))


def message_of(
    nights: JudgedNights, state: Mapping[str, Any], known: Mapping[str, Mapping[str, Entry]]
) -> tuple[Message, dict[str, Any]]:
    """Return what is to be told, and the state with it.

    state: of the last message. known: the entries of each testbed, by the names of cards.
    """
    earlier: Mapping[str, Any] = state.get("testbeds", {})
    cards = cards_of(nights)
    new, joined = [], {}
    for card in cards:
        before = earlier.get(card.testbed, {})
        entry = _entry_of(card, known.get(card.testbed, {}))
        if entry is not None and entry.has_passed(_day(card.night)):
            entry = None
        added = [] if entry is None else joined_since(card.cause, entry)
        if added and added != before.get("joined", {}).get(card.cause.name):
            joined[card.cause.name] = added
            new.append(card)
        elif entry is None and not _was_there(card, before):
            new.append(card)
    cleared, passed, document = [], [], {}
    for one in nights.ended:
        before = earlier.get(one.testbed, {})
        present = [card for card in cards if card.testbed == one.testbed]
        parts = frozenset().union(*(card.parts for card in present))
        cleared += [
            (one.testbed, name, str(each["title"]))
            for name, each in before.get("cards", {}).items()
            if parts.isdisjoint(each["parts"])
        ]
        entries = known.get(one.testbed, {})
        over = [
            entry
            for entry in entries.values()
            if entry.what in parts and entry.has_passed(_day(one.night))
        ]
        reported = before.get("passed", [])
        passed += [(one.testbed, each) for each in over if _dated(each) not in reported]
        document[one.testbed] = {
            "night": one.night,
            "cards": {
                card.cause.name: {"title": card.cause.title, "parts": sorted(card.parts)}
                for card in present
            },
            "joined": {
                **{
                    name: added
                    for name, added in before.get("joined", {}).items()
                    if name in {card.cause.name for card in present}
                },
                **joined,
            },
            "passed": [_dated(each) for each in over],
        }
    document = {**earlier, **document}
    return Message(new, cleared, passed, joined), {"version": VERSION, "testbeds": document}


def is_of_last_message(nights: JudgedNights, state: Mapping[str, Any]) -> bool:
    """Whether no night has ended since the last message, which may not have been posted yet."""
    earlier: Mapping[str, Any] = state.get("testbeds", {})
    return all(earlier.get(one.testbed, {}).get("night") == one.night for one in nights.ended)


def _day(night: str) -> datetime.date:
    return datetime.date.fromisoformat(night[:10])


def _dated(entry: Entry) -> str:
    return f"{entry.what} until {entry.until}"


def _entry_of(card: Card, entries: Mapping[str, Entry]) -> Entry | None:
    """Return the entry that knows a card, by any of its parts."""
    return next((entries[name] for name in sorted(card.parts) if name in entries), None)


def _was_there(card: Card, before: Mapping[str, Any]) -> bool:
    return any(not card.parts.isdisjoint(one["parts"]) for one in before.get("cards", {}).values())


def text_of(message: Message, problems: Sequence[str] = ()) -> str:
    """Return a message as Markdown. problems: why known cards may be among it."""
    lines = ["# Lightrig"]
    for card in message.new[:MOST_CARDS]:
        cause, simulated = card.cause, " (simulated)" * card.simulated
        lines += ["", f"## New: {_shown(cause.title)}", ""]
        lines.append(f"- testbed {_shown(card.testbed)}{simulated}, night {card.night}")
        lines.append(f"- card `{cause.name}`, since {cause.since or card.night}")
        if added := message.joined.get(cause.name):
            lines.append(f"- was known; has joined it: {_shown(', '.join(added))}")
        lines += [f"- at {_shown(place)}" for place in cause.where]
        lines += [f"- {_shown(part)}" for part in cause.parts]
        for one in cause.evidence[:5]:
            lines.append(f"- {_shown(f'{one.text} {one.size}'.strip())}")
        if (more := len(cause.evidence) - 5) > 0:
            lines.append(f"- and {more:,} more observations")
        if cause.next_step:
            lines.append(f"- next: {_shown(cause.next_step)}")
        lines += [f"- again: `{command}`" for command in cause.commands[:1]]
    if (more := len(message.new) - MOST_CARDS) > 0:
        lines += ["", f"## {more:,} more cards are new: see the page of the nights"]
    for testbed, name, title in message.cleared:
        lines += [
            "",
            f"## Gone: {_shown(title)}",
            "",
            f"- testbed {_shown(testbed)}, card `{name}`",
        ]
    for testbed, entry in message.passed:
        lines += ["", f"## Date passed: `{entry.what}`", ""]
        lines.append(f"- testbed {_shown(testbed)}, until {entry.until}: {_shown(entry.because)}")
    lines += [line for one in problems for line in ("", _shown(one))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _shown(text: str) -> str:
    return escape_line(text.replace("\n", " "))


def read_state(results: Path) -> Mapping[str, Any]:
    """Return the state of the last message; empty before the first. Raises `RecordError`."""
    path = results / STATE
    try:
        document = from_json(read_regular(path))
        if document["version"] != VERSION or not isinstance(document["testbeds"], dict):
            raise ValueError("is of another version")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path} is damaged: {error}; remove it, and every card is new once more"
        ) from error
    return dict(document)


def write_state(results: Path, state: Mapping[str, Any]) -> None:
    """Keep the state for the next message; raises `OSError`."""
    with appearing(results / STATE) as hidden:
        hidden.write_text(json.dumps(state, indent=1), "utf-8")
