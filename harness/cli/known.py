"""`lightrig known`: cards of the nights that a person knows of."""

# Reading nights takes a second to load: only where a card is named.
# ruff: noqa: PLC0415

import datetime
import getpass
import os
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    RESULTS,
    AsJson,
    File,
    give_up,
    load_testbed,
    print_json,
)
from lightrig.harness.cli.terminal import err, out
from lightrig.harness.quantities.registry import names_in_files
from lightrig.instruments.clock import wall_time
from lightrig.testbeds import LightrigError, load
from lightrig.testbeds.escaping import escape_line
from lightrig.testbeds.exception_entry import Entry
from lightrig.testbeds.exceptions import change_exceptions, exceptions_path, load_exceptions
from lightrig.testbeds.findings import did_you_mean

Card = Annotated[
    str | None,
    typer.Argument(metavar="[CARD]", help="Its name, as the page of the nights prints it."),
]


def known(
    file: File,
    card: Card = None,
    until: Annotated[
        str | None, typer.Option(metavar="DATE", help="Last day, such as 2026-12-12.")
    ] = None,
    because: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The reason, such as a ticket.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the entry of CARD.")] = False,
    results: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="Folder of the results.")
    ] = Path(RESULTS),
    as_json: AsJson = False,
) -> None:
    """Enter a card as known until a date; without CARD, list what is known.

    `lightrig report --message` does not tell of it until the date has passed, it has gone, or a
    finding of another kind or at another component joins it. The list lies beside FILE, in
    `mine.exceptions.yaml`. Exit 0, 2 for an invalid file, date or card, 3 where something cannot be
    read or written.
    """
    testbed = load_testbed(file)
    try:
        entries: Mapping[str, Entry] = load_exceptions(testbed).known
        if card is not None and remove:
            if card not in entries:
                near = did_you_mean(card, list(entries))
                give_up(f"{exceptions_path(file)} has no card {card!r}{near}", BAD_INPUT)
            entries = change_exceptions(testbed, "known", remove=frozenset([card])).known
        elif card is not None:
            if because is None or until is None:
                give_up("a card is known until a date and for a reason: --until, --because", 2)
            last = _date(until)
            _refuse_unknown(results, testbed.name, card, entries)
            who = f"{_account()}@{socket.gethostname()}"
            entry = Entry(card, because, last, who, f"{wall_time():%Y-%m-%d %H:%M:%S}")
            entries = change_exceptions(testbed, "known", add={card: entry}).known
        elif until or because or remove:
            give_up("which card? name it as the page of the nights prints it", BAD_INPUT)
    except LightrigError as error:
        give_up(str(error), LAB_ERROR)
    if as_json:
        print_json([_document(one) for one in entries.values()])
        return
    for one in entries.values():
        out.print(f"{one.what}  until {one.until}  {escape_line(one.because)}", soft_wrap=True)
    if not entries:
        out.print(f"{testbed.name}: no card is known")


def entries_of(
    results: Path, testbeds: Collection[str]
) -> tuple[dict[str, Mapping[str, Entry]], list[str]]:
    """Return the known cards of each of `testbeds`, and what is wrong with their lists.

    They lie beside the testbed's file, where its last run found that; if that file has moved, the
    copies of its last run count. Raises `RecordError`.
    """
    from lightrig.harness.record import Results

    files: dict[str, tuple[Path, Path]] = {}
    for facts in Results(results).runs():
        for name, file in {} if facts.by_hand else facts.header["testbeds"].items():
            copy = facts.header.get("descriptions", {}).get(name, "none")
            files[name] = Path(file), results / "runs" / facts.run / copy
    found: dict[str, Mapping[str, Entry]] = {}
    problems = []
    for name, (path, copy) in files.items():
        if name not in testbeds:
            continue
        if moved := not path.exists():
            problems.append(
                f"{name}: {path} is not there any more, so its cards are known as its last run had "
                "them; the next run from its new place ends this"
            )
        present = copy if moved else path
        if not exceptions_path(present).exists():
            continue
        try:
            found[name] = load_exceptions(load(present, quantities=names_in_files())).known
        except (LightrigError, OSError) as error:
            problems.append(f"{name}: what is known of it cannot be read: {error}")
    return found, problems


def _date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        give_up(f"found the date {text!r}, expected one such as 2026-12-12", BAD_INPUT)


def _refuse_unknown(results: Path, testbed: str, card: str, entries: Mapping[str, Entry]) -> None:
    """End the command for a card that the last night has not: it would never be found."""
    from lightrig.harness.report.nights import judge_nights
    from lightrig.harness.report.nights.messages import cards_of

    if not results.is_dir():
        give_up(f"{results}: no such folder of results", BAD_INPUT)
    with err.status(f"{results}: reading"):
        cards = [one for one in cards_of(judge_nights(results)) if one.testbed == testbed]
    names = {one.cause.name for one in cards} | {part for one in cards for part in one.parts}
    if card in names or card in entries:
        return
    present = ", ".join(one.cause.name for one in cards) or "none"
    near = did_you_mean(card, sorted(names))
    give_up(f"the last night of {testbed} has no card {card!r}{near}; it has {present}", BAD_INPUT)


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name
        return str(os.getuid())


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "card": entry.what,
        "until": str(entry.until),
        "because": entry.because,
        "who": entry.who,
        "at": entry.at,
    }
