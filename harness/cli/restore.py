"""`lightrig restore`: restore instruments to how they were before a run that was killed."""

import os
import pwd
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from lightrig.harness.bench import leftovers as saved
from lightrig.harness.bench.leftovers import Found, Leftover, Restoration, StateComparison
from lightrig.harness.bench.restoring import NOT_AS_FOUND, RESTORE_TIME, NotRestoredError
from lightrig.harness.bench.saved_state import SavedCircuits, SavedState, as_texts
from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    AsJson,
    File,
    give_up,
    load_stated,
    print_json,
)
from lightrig.harness.cli.lab import lab
from lightrig.harness.cli.terminal import err, out
from lightrig.testbeds import Testbed

Show = Annotated[
    bool, typer.Option("--show", help="Show what was saved and what is there; change nothing.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Restore although settings or cabling were changed since.")
]
Forget = Annotated[
    bool, typer.Option("--forget", help="Discard what was saved; leave everything as it is.")
]
Owner = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Also restore what this account has saved (root only)."),
]
KeepTrying = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        help="Time for which an instrument that does not answer is tried again.",
    ),
]


def restore(
    file: File,
    show: Show = False,
    force: Force = False,
    forget: Forget = False,
    owner: Owner = None,
    keep_trying: KeepTrying = RESTORE_TIME / 1e9,
    as_json: AsJson = False,
) -> None:
    """Restore circuits and settings from before a run that was killed or could not restore them.

    Light that was found off is switched off first. An instrument that was replaced, set by hand or
    recabled since is not changed: what differs is printed, and a person has to decide. Exit 0
    if all are restored, 2 for an invalid file, 3 if a person has to decide, 6 if an instrument is
    not as it was found.
    """
    if show + force + forget > 1:
        give_up("--show, --force and --forget exclude each other", BAD_INPUT)
    owners = [] if owner is None else [_account(owner)]
    testbed = load_stated(file)
    found = lab(lambda: saved.leftovers(testbed, owners))
    if show:
        _show(found.left, lab(lambda: _compared(testbed, found)), as_json=as_json)
        for error in found.unused:
            _notify(str(error))
        return
    if forget and found.left:
        lab(lambda: saved.forget(testbed, found))
        rows = [_row(each.state) for each in found.left]
        _tell(rows, "forgotten, and left as it is", as_json=as_json)
        done = Restoration()
    elif found.left:
        trying = round(keep_trying * 1e9)
        done = lab(
            lambda: saved.restore_left(
                testbed, found, force=force, keep_trying=trying, notify=_notify
            )
        )
        _tell(
            [{**_row(each), **_removed(each)} for each in done.restored],
            "restored",
            as_json=as_json,
        )
    else:
        done = Restoration()
        if as_json:
            print_json([])
        elif not found.unused:
            out.print(f"{testbed.name}: nothing to restore", markup=False)
    problems = [*done.conflicts, *map(str, found.unused)]
    if done.failures:
        problems.append(str(NotRestoredError(testbed, done.failures)))
    if problems:
        give_up("\n".join(problems), NOT_AS_FOUND if done.failures else LAB_ERROR)


def _account(name: str) -> int:
    """Return the number of an account; ends the command for one that is not known."""
    if os.geteuid() != 0:
        give_up("--owner is for root: it applies what another account has written", BAD_INPUT)
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        give_up(f"--owner: there is no account {name!r} on this machine", BAD_INPUT)


def _compared(testbed: Testbed, found: Found) -> list[StateComparison]:
    names = {each.name for each in found.left if each.name is not None}
    benches, _ = saved.open_available(testbed, names, found.states, 0)
    try:
        return [
            each
            for name, bench in benches.items()
            for each in saved.compare(bench, [each for each in found.left if each.name == name])
        ]
    finally:
        for bench in benches.values():
            bench.close()


def _notify(sentence: str) -> None:
    err.print(sentence, markup=False, soft_wrap=True)


def _row(state: SavedState) -> dict[str, Any]:
    if isinstance(state, SavedCircuits):
        circuits = sorted(map(str, state.found))
        return {"switch": state.origin.instrument, "circuits": circuits}
    return {"instrument": state.origin.instrument, "settings": dict(state.found)}


def _by_hand(state: SavedState) -> dict[str, Any]:
    """Return what a person has set since and wants to stay, as one field."""
    if (by_hand := state.by_hand) is None:
        return {}
    wanted = as_texts(by_hand.wanted)
    return {"by_hand": {"wanted": wanted, "command": by_hand.command, "since": by_hand.since}}


def _by_hand_line(row: dict[str, Any]) -> str:
    if (stated := row.get("by_hand")) is None:
        return ""
    wanted = ", ".join(stated["wanted"]) or "nothing"
    return f"  by hand   {wanted} ({stated['command']}, {stated['since']})\n"


def _removed(state: SavedState) -> dict[str, Any]:
    """Return the circuits that the last change has set and that were not found, as one field."""
    if not isinstance(state, SavedCircuits):
        return {}
    return {"removed": sorted(map(str, state.after - state.found))}


def _tell(rows: Sequence[dict[str, Any]], done: str, *, as_json: bool) -> None:
    if as_json:
        print_json(list(rows))
        return
    for row in rows:
        name, what, *_ = row  # its first two keys
        removed = f", {len(row['removed'])} removed" if row.get("removed") else ""
        out.print(f"{row[name]}: {len(row[what])} {what} {done}{removed}", markup=False)


def _show(left: Sequence[Leftover], found: Sequence[StateComparison], *, as_json: bool) -> None:
    compared = {id(each.state): each for each in found}
    rows = []
    for each in left:
        state, comparison = each.state, compared.get(id(each.state))
        rows.append(
            {
                **_row(state),
                "origin": str(state.origin),
                "last_set": state.last_set,
                "changed": state.changed or None,
                "now": list(comparison.now) if comparison else None,
                "differences": list(comparison.differences) if comparison else [],
                **_by_hand(state),
            }
        )
    if as_json:
        print_json(rows)
        return
    for row in rows:
        was = row.get("circuits") or [f"{n} {v}" for n, v in row.get("settings", {}).items()]
        now = "it does not answer" if row["now"] is None else ", ".join(row["now"]) or "nothing"
        out.print(
            f"{row.get('switch') or row.get('instrument')}: {row['origin']}\n"
            f"  found     {', '.join(was) or 'nothing'}\n{_by_hand_line(row)}"
            f"  last set  {', '.join(row['last_set']) or 'nothing'}"
            f" ({row['changed'] or 'nothing was changed'})\n"
            f"  now       {now}\n"
            f"  differs   {'; '.join(row['differences']) or 'no'}",
            markup=False,
            soft_wrap=True,
        )
