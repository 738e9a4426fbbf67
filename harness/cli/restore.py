"""`lightrig restore`: restore instruments to how they were before a run that was killed."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from lightrig.harness.bench import leftovers as saved
from lightrig.harness.bench.leftovers import Comparison, Leftover
from lightrig.harness.bench.restoring import NOT_AS_FOUND, RESTORE_TIME, NotRestoredError
from lightrig.harness.bench.saved_state import SavedCircuits, SavedState
from lightrig.harness.cli.common import (
    BAD_INPUT,
    AsJson,
    File,
    give_up,
    load_testbed,
    print_json,
)
from lightrig.harness.cli.lab import lab
from lightrig.harness.cli.terminal import err, out

Show = Annotated[
    bool, typer.Option("--show", help="Show what was saved and what is there; change nothing.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Restore also over changes by hand and other cabling.")
]
Forget = Annotated[
    bool, typer.Option("--forget", help="Discard what was saved; leave everything as it is.")
]
KeepTrying = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="How long an instrument is tried.")
]


def restore(
    file: File,
    show: Show = False,
    force: Force = False,
    forget: Forget = False,
    keep_trying: KeepTrying = RESTORE_TIME / 1e9,
    as_json: AsJson = False,
) -> None:
    """Restore circuits and settings from before a run that was killed or could not restore them.

    Stops, and says what differs, where the instrument is another one, was set by hand since, or
    was recabled. Exit 0 if all are restored, 2 for an invalid file, 3 if it stopped, 6 if an
    instrument is not as it was found.
    """
    if show + force + forget > 1:
        give_up("--show, --force and --forget exclude each other", BAD_INPUT)
    testbed = load_testbed(file)
    left = lab(lambda: saved.leftovers(testbed))
    if not left:
        if as_json:
            print_json([])
        else:
            out.print(f"{testbed.name}: nothing to restore", markup=False)
        return
    if forget:
        lab(lambda: saved.forget(testbed, left))
        _tell([_row(each.state) for each in left], "forgotten, and left as it is", as_json=as_json)
        return
    if not show:
        lab(lambda: saved.check_known(testbed, left))
    names = {each.name for each in left if each.name is not None}
    trying = 0 if show else round(keep_trying * 1e9)
    benches, absent = lab(lambda: saved.open_available(testbed, names, trying, _notify))
    try:
        for name, bench in benches.items():
            if not show:
                lab(partial(saved.check_identity, bench, name, left))
        if show:
            found = [
                each
                for name, bench in benches.items()
                for each in lab(partial(saved.compare, bench, _of(left, name)))
            ]
            _show(left, found, as_json=as_json)
            return
        failures = {
            **absent,
            **lab(lambda: saved.restore(benches, force=force, keep_trying=trying, notify=_notify)),
        }
    finally:
        for bench in benches.values():
            bench.close()
    restored = [each.state for each in left if each.name not in failures]
    _tell([_row(state) for state in restored], "restored", as_json=as_json)
    if failures:
        give_up(str(NotRestoredError(testbed, failures)), NOT_AS_FOUND)


def _of(left: Sequence[Leftover], name: str) -> list[Leftover]:
    return [each for each in left if each.name == name]


def _notify(sentence: str) -> None:
    err.print(sentence, markup=False, soft_wrap=True)


def _row(state: SavedState) -> dict[str, Any]:
    if isinstance(state, SavedCircuits):
        circuits = sorted(map(str, sorted(state.found)))
        return {"switch": state.origin.instrument, "circuits": circuits}
    return {"instrument": state.origin.instrument, "settings": dict(state.found)}


def _tell(rows: Sequence[dict[str, Any]], done: str, *, as_json: bool) -> None:
    if as_json:
        print_json(list(rows))
        return
    for row in rows:
        if "circuits" in row:
            out.print(f"{row['switch']}: {len(row['circuits'])} circuits {done}", markup=False)
        else:
            out.print(f"{row['instrument']}: {len(row['settings'])} settings {done}", markup=False)


def _show(left: Sequence[Leftover], found: Sequence[Comparison], *, as_json: bool) -> None:
    compared = {id(each.state): each for each in found}
    rows = []
    for each in left:
        state, comparison = each.state, compared.get(id(each.state))
        last = (
            [str(circuit) for circuit in sorted(state.after)]
            if isinstance(state, SavedCircuits)
            else [f"{name} {values[-1]}" for name, values in state.values.items()]
        )
        rows.append(
            {
                **_row(state),
                "origin": str(state.origin),
                "last_set": last,
                "changed": state.changed or None,
                "now": list(comparison.now) if comparison else None,
                "differences": list(comparison.differences) if comparison else [],
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
            f"  found     {', '.join(was) or 'nothing'}\n"
            f"  last set  {', '.join(row['last_set']) or 'nothing'}"
            f" ({row['changed'] or 'nothing was changed'})\n"
            f"  now       {now}\n"
            f"  differs   {'; '.join(row['differences']) or 'no'}",
            markup=False,
            soft_wrap=True,
        )
