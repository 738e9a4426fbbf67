"""What a morning's message has, and how long a card is known."""

import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.components import LabComponent
from lightrig.harness.findings import CHANGED, LINK_DOWN, NO_LIGHT, Finding
from lightrig.harness.report.causes import Cause, Evidence
from lightrig.harness.report.nights.messages import (
    joined_since,
    message_of,
    read_state,
    text_of,
    write_state,
)
from lightrig.testbeds.exception_entry import Entry

PORT = LabComponent("port", "server3.nic0.p1")
FIBER = LabComponent("fiber", "server3.nic0.p1 -> ocs.8")
CONNECTOR = LabComponent("connector", "ocs.8")
SWITCH = LabComponent("switch", "ocs")


def part(
    kind: str, subject: str, since: str, *components: LabComponent, test: str = ""
) -> Evidence:
    finding = Finding(kind, f"{kind} at {subject}", (subject,) if subject else (), components)
    return Evidence(finding, kind, test, since)


DARK = part(NO_LIGHT, "ocs.8", "2026-01-02", PORT, FIBER, CONNECTOR)
DOWN = part(LINK_DOWN, "server3.nic0.p1 - server0.nic0.p0", "2026-01-04", PORT, FIBER)
SLOW = part(CHANGED, "ocs 8>21", "2026-01-05", CONNECTOR, SWITCH)
FAR = part(NO_LIGHT, "ocs.11", "2026-01-06", SWITCH, CONNECTOR)


def known(what: str, at: str = "2026-01-03", until: str = "2026-01-20") -> Entry:
    return Entry(what, "LAB-123", datetime.date.fromisoformat(until), at=f"{at} 08:15:00")


def test_a_name_is_made_of_kind_and_components() -> None:
    """Whatever the night, the size, the sentence and the order of the components."""
    again = part(NO_LIGHT, "ocs.8 and others", "2026-03-09", CONNECTOR, PORT, FIBER)
    assert again.name == DARK.name
    assert DARK.name.startswith("no-light/")
    assert " " not in DARK.name
    assert part(LINK_DOWN, "x", "", PORT).name == "link-down/server3.nic0.p1"
    names = {one.name for one in (DARK, DOWN, SLOW, FAR)}
    assert len(names) == 4
    # Without components the test says which card it is.
    failed = [part("failed", "", "", test=f"suites/x.py::test_{one}[lab]") for one in "ab"]
    assert failed[0].name != failed[1].name
    many = [LabComponent("connector", f"ocs.{number}") for number in range(40)]
    name = part(NO_LIGHT, "x", "", *many).name
    assert len(name) < 80
    assert name != part(NO_LIGHT, "x", "", *many[1:]).name


def test_a_joined_card_has_the_name_of_its_oldest_part() -> None:
    for parts in ((DARK, DOWN), (DOWN, DARK), (SLOW, DOWN, DARK)):
        assert Cause((PORT,), parts).name == DARK.name
    assert Cause((PORT,), (SLOW, DOWN)).name == DOWN.name


@pytest.mark.parametrize(
    ("parts", "at", "joined"),
    [
        ((DARK,), "2026-01-03", []),
        ((DARK, DOWN), "2026-01-04", []),  # it was there when the card was entered
        ((DARK, DOWN), "2026-01-03", [LINK_DOWN, "server3.nic0.p1 - server0.nic0.p0"]),
        ((DARK, part(NO_LIGHT, "ocs 8>19", "2026-01-05", CONNECTOR)), "2026-01-03", []),
        ((DARK, FAR), "2026-01-03", ["ocs.11"]),
        ((DARK, SLOW), "2026-01-03", [CHANGED]),
        # It went and came back later: what has the name is known all the same.
        ((part(NO_LIGHT, "ocs.8", "2026-01-09", PORT, FIBER, CONNECTOR),), "2026-01-03", []),
    ],
)
def test_what_joins_a_known_card(parts: tuple[Evidence, ...], at: str, joined: list[str]) -> None:
    assert joined_since(Cause((PORT,), parts), known(DARK.name, at)) == joined


def nights(night: str, *causes: Cause) -> Any:
    board = SimpleNamespace(lab=SimpleNamespace(testbed="lab", simulated=True))
    return SimpleNamespace(
        ended=[SimpleNamespace(testbed="lab", night=night)], causes=[(board, causes)]
    )


def test_mornings_of_a_card_that_is_joined() -> None:
    """Told when it appears, when another kind joins it, once each, and when it has gone."""
    dark, joined = Cause((PORT,), (DARK,)), Cause((PORT,), (DARK, DOWN))
    entries = {"lab": {DARK.name: known(DARK.name)}}
    state: dict[str, Any] = {}
    told = {}
    for day, causes, entered in [
        (2, (dark,), {}),
        (3, (dark,), entries),
        (4, (joined,), entries),
        (5, (joined,), entries),
        (6, (), entries),
        (7, (), entries),
    ]:
        message, state = message_of(nights(f"2026-01-{day:02}", *causes), state, entered)
        told[day] = (len(message.new), len(message.cleared), len(message.passed))
        if day == 4:
            assert "has joined it: link down" in text_of(message)
    silent = (0, 0, 0)
    assert told == {2: (1, 0, 0), 3: silent, 4: (1, 0, 0), 5: silent, 6: (0, 1, 0), 7: silent}


def test_a_card_that_keeps_one_of_its_parts_is_the_same() -> None:
    state: dict[str, Any] = {}
    first, state = message_of(nights("2026-01-04", Cause((PORT,), (DARK, DOWN))), state, {})
    second, _ = message_of(nights("2026-01-05", Cause((PORT,), (DOWN, SLOW))), state, {})
    assert [len(one.new) for one in (first, second)] == [1, 0]
    assert not second.cleared


def test_a_date_that_has_passed_is_told_once_and_until_it_is_entered_anew() -> None:
    cause = Cause((PORT,), (DARK,))
    state: dict[str, Any] = {}
    told = []
    for day, until in (
        (4, "2026-01-05"),
        (5, "2026-01-05"),
        (6, "2026-01-05"),
        (7, "2026-01-05"),
        (8, "2026-01-08"),
        (9, "2026-01-08"),
    ):
        entries = {"lab": {DARK.name: known(DARK.name, until=until)}}
        message, state = message_of(nights(f"2026-01-{day:02}", cause), state, entries)
        told.append((len(message.new), len(message.passed)))
    # Entered before any message had it, it was never new.
    assert told == [(0, 0), (0, 0), (0, 1), (0, 0), (0, 0), (0, 1)]


def test_hostile_text_is_one_line() -> None:
    evil = Evidence(Finding(NO_LIGHT, "dark\n## Gone: all\x1b[2J", ("ocs.8",), (PORT,)), "x")
    message, _ = message_of(nights("2026-01-04", Cause((PORT,), (evil,))), {}, {})
    text = text_of(message)
    assert text.count("\n## ") == 1
    assert "\x1b" not in text


def test_500_cards_in_one_night() -> None:
    causes = [
        Cause((one,), (part(NO_LIGHT, one.name, "2026-01-04", one),))
        for one in (LabComponent("connector", f"ocs.{number}") for number in range(500))
    ]
    message, state = message_of(nights("2026-01-04", *causes), {}, {})
    assert len(message.new) == 500
    assert "400 more cards are new" in text_of(message)
    assert len(state["testbeds"]["lab"]["cards"]) == 500


def test_the_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_state(tmp_path) == {}
    _, state = message_of(nights("2026-01-04", Cause((PORT,), (DARK,))), {}, {})
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
