"""`lightrig out` and `lightrig in`: ports that nothing uses for a time, and their return."""

# Measurements take a second to import: only the return of a port pays for them.
# ruff: noqa: PLC0415

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightrig.harness.cli import completion
from lightrig.harness.cli.common import (
    BAD_INPUT,
    NO,
    AsJson,
    File,
    echo,
    give_up,
    load_stated,
    print_json,
)
from lightrig.testbeds import LightrigError, Testbed
from lightrig.testbeds.exception_entry import Entry
from lightrig.testbeds.exceptions import Exceptions, change_exceptions, load_exceptions, ports_named
from lightrig.testbeds.out_of_service import plan_sentences, taken_along, without

if TYPE_CHECKING:
    from lightrig.harness.measure.trial_circuit import Trial

USUAL_DAYS = 14

Named = Annotated[
    list[str],
    typer.Argument(
        metavar="PORT...",
        help="NIC ports, ports of switches, labels of fibers, NICs, servers.",
        autocompletion=completion.ports,
    ),
]
Because = Annotated[str, typer.Option("--because", metavar="TEXT", help="Why, e.g. a ticket.")]
Until = Annotated[
    str, typer.Option("--until", metavar="DATE", help="Last day, as 2026-12-12; 14 days without.")
]
Simulated = Annotated[
    bool, typer.Option("--simulated", help="Try them in the simulated lab; contact nothing.")
]
Queue = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="As for pytest: wait so long for instruments that others have."
    ),
]


def out(
    file: File,
    ports: Named,
    because: Because,
    until: Until = "",
    as_json: AsJson = False,
) -> None:
    """Put ports out of service: runs make no circuit with them, and judge the others.

    They stay on the list beside the testbed's file until `lightrig in`; once the date has passed,
    runs report that. Runs that have begun go on as they are. Exit 0, 2 for an invalid file, date or
    port.
    """
    from lightrig.harness.record.notes import new_note

    testbed = load_stated(file)
    today = _today()
    last = today + datetime.timedelta(days=USUAL_DAYS) if not until else _date(until, today)

    def write() -> Exceptions:
        note = new_note(testbed.name, ports[0], because)
        who = f"{note.account}@{note.host}"
        entries = {what: Entry(what, because, last, who, note.at_utc) for what in ports}
        return change_exceptions(testbed, "out", add=entries)

    found = _or_give_up(write)
    left = without(testbed, found)
    rows = [_row(testbed, found.out[what]) for what in ports]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        echo(f"{row['out']} is out of service until {row['until']}: {', '.join(row['ports'])}")
    for line in plan_sentences(left):
        echo(line)


def in_(
    file: File,
    ports: Named,
    simulated: Simulated = False,
    queue: Queue = "",
    as_json: AsJson = False,
) -> None:
    """Put ports back in service: one circuit with each is made first, and its link awaited.

    What does not come up stays out. The switches are restored. Exit 0 if all are in service, 1 if
    one stays out, 2 for an invalid file and for a port that is not on the list, 3 if an instrument
    did not answer or refused, 6 if a switch is not as it was found.
    """
    testbed = load_stated(file)
    found = _or_give_up(lambda: load_exceptions(testbed))
    for what in ports:
        if what not in found.out:
            listed = ", ".join(found.out) or "nothing"
            give_up(f"{what} is not out of service; {found.path} lists {listed}", BAD_INPUT)
    rest = {what: entry for what, entry in found.out.items() if what not in ports}
    trying = without(testbed, Exceptions(found.path, rest, found.known))
    for what in ports:
        if both := taken_along(testbed, ports_named(testbed, what)) & trying.out.ports:
            give_up(
                f"{what} stays out of service: {', '.join(sorted(map(str, both)))} is out by "
                f"another entry of {found.path} too ({', '.join(rest)})",
                BAD_INPUT,
            )
    trials = _tried(trying, ports, queue, simulated=simulated)
    back = [what for what in ports if all(each.works for each in trials[what])]
    _or_give_up(lambda: change_exceptions(testbed, "out", remove=frozenset(back)))
    rows = [
        {"port": what, "in": what in back, "seen": [_seen(each) for each in trials[what]]}
        for what in ports
    ]
    if as_json:
        print_json(rows)
    else:
        for what in ports:
            echo(f"{what} {'is in service again' if what in back else 'stays out of service'}")
            for each in trials[what]:
                echo(f"  {'saw' if each.works else 'did not work'}  {each.seen}")
            if not trials[what]:
                echo("  no circuit of an optical switch leads to it, so nothing was tried")
    if len(back) < len(ports):
        raise typer.Exit(NO)


def _tried(
    testbed: Testbed, named: Iterable[str], queue: str, *, simulated: bool
) -> Mapping[str, list[Trial]]:
    """Make a circuit with each port that has a NIC behind it, else with each one of a switch."""
    from lightrig.harness.bench import bind, bind_only
    from lightrig.harness.cli.lab import in_turn, lab, restored
    from lightrig.harness.measure.links import LinkObservation
    from lightrig.harness.measure.trial_circuit import trial_plan, try_port

    of_each = {}
    for what in named:
        every = sorted(taken_along(testbed, ports_named(testbed, what)))
        cabling = testbed.cabling
        nics = [p for p in every if p.owner in testbed.servers and cabling.ingress_of(p)]
        of_each[what] = nics or [port for port in every if port.owner in testbed.optical_switches]
    purpose = f"lightrig in {' '.join(named)}"
    names = set(testbed.optical_switches)
    for port in (port for each in of_each.values() for port in each):
        _, link = lab(lambda port=port: trial_plan(testbed, port))  # type: ignore[misc]
        names |= {link.a.owner, link.b.owner} if link is not None else set()
    bench = in_turn(
        testbed,
        queue,
        lambda: (
            bind(testbed, "simulated", purpose=purpose)
            if simulated
            else bind_only(testbed, names, purpose)
        ),
        mode="simulated" if simulated else "hardware",
        names=names,
    )
    with restored(bench) as fabric:
        links = LinkObservation(bench)
        return {
            what: [lab(lambda port=port: try_port(fabric, links, port)) for port in each]  # type: ignore[misc]
            for what, each in of_each.items()
        }


def _row(testbed: Testbed, entry: Entry) -> dict[str, Any]:
    ports = sorted(map(str, taken_along(testbed, ports_named(testbed, entry.what))))
    return {
        "out": entry.what,
        "ports": ports,
        "because": entry.because,
        "until": str(entry.until),
        "who": entry.who,
        "at_utc": entry.at,
    }


def _seen(trial: Trial) -> dict[str, Any]:
    return {"port": str(trial.port), "works": trial.works, "seen": trial.seen}


def _date(text: str, today: datetime.date) -> datetime.date:
    try:
        found = datetime.date.fromisoformat(text)
    except ValueError:
        give_up(f"--until: found {text!r}, expected a date such as 2026-12-12", BAD_INPUT)
    if found < today:
        give_up(f"--until: {found} has passed", BAD_INPUT)
    return found


def _today() -> datetime.date:
    from lightrig.instruments.clock import wall_time

    return wall_time().date()


def _or_give_up(action: Callable[[], Exceptions]) -> Exceptions:
    try:
        return action()
    except LightrigError as error:
        give_up(str(error), BAD_INPUT)
