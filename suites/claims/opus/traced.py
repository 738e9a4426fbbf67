"""Commands to a Polatis, by its recorded TL1 wire: evidence independent of the program."""

import re
from collections.abc import Iterable, Sequence

from lightrig.harness.systems.opus.planning.operations import OpusError
from lightrig.harness.systems.opus.planning.run_events import (
    Began,
    Confirmed,
    Ended,
    GivenUp,
    Rewiring,
    RunEvent,
)
from lightrig.instruments.core.transcript import Transcript
from lightrig.testbeds import Circuit

_COMMAND = re.compile(r"(ENT|DLT)-PATCH:[^:]*:([^:]*):(\d+):", re.IGNORECASE)
_ANSWERED = re.compile(r"^M\s+(\d+) (COMPLD|DENY)", re.MULTILINE)


def traced(transcript: Transcript, switch: str, found: frozenset[Circuit]) -> list[RunEvent]:
    """The changes that went over the wire to `switch`, which held `found` before.

    A circuit that takes a port of another parts it, as the switch does by itself. Lists (`1&2`)
    and ranges (`1&&4`) of ports are known; raises `OpusError` for anything else.
    """
    connected = set(found)
    pending: dict[tuple[int, str], Rewiring] = {}
    events: list[RunEvent] = []
    for piece in transcript.pieces:
        text = piece.data.decode("ascii", "replace")
        if piece.kind == ">" and (command := _COMMAND.match(text)):
            ports = command[2].split(",")
            name = f"session {piece.session} ctag {command[3]}"
            if command[1].upper() == "ENT":
                if len(ports) != 2:
                    raise OpusError(f"{text!r} joins neither ports nor lists of them")
                pairs = zip(_ports(ports[0]), _ports(ports[1]), strict=True)
                add = frozenset(Circuit(*pair) for pair in pairs) - connected
                remove = frozenset(
                    c for c in connected if any(_share_a_port(c, new) for new in add)
                )
            else:
                parted = set(_ports(command[2])) if command[2].lower() != "all" else None
                add = frozenset()
                remove = frozenset(
                    c for c in connected if parted is None or not parted.isdisjoint(c)
                )
            change = Rewiring(piece.at, switch, name, remove, add)
            pending[piece.session, command[3]] = change
            events.append(change)
        elif piece.kind == "<":
            for answered in _ANSWERED.finditer(text):
                asked = pending.pop((piece.session, answered[1]), None)
                if asked is None:
                    continue
                if answered[2] == "COMPLD":
                    connected = (connected - asked.remove) | asked.add
                    events.append(Confirmed(piece.at, switch, asked.change))
                else:
                    events.append(GivenUp(piece.at, switch, asked.change))
    return events


def with_operations(journal: Iterable[RunEvent], wire: Sequence[RunEvent]) -> list[RunEvent]:
    """Return the operations of the journal and the commands of the wire, in order.

    Of what has one time stamp, ends come first and beginnings last.
    """
    ranks = [event for event in journal if isinstance(event, Began | Ended)]
    return sorted([*ranks, *wire], key=lambda one: (one.at, _ORDER.index(type(one))))


_ORDER: tuple[type[RunEvent], ...] = (Ended, Confirmed, GivenUp, Rewiring, Began)


def _ports(text: str) -> list[int]:
    """The ports of a TL1 list such as `1&2&5&&8`."""
    numbers: list[int] = []
    for part in re.split(r"(?<!&)&(?!&)", text):
        first, ranged, last = part.partition("&&")
        if not first.isdecimal() or (ranged and not last.isdecimal()):
            raise OpusError(f"found {text!r}, expected ports such as 1&2 or 1&&4")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _share_a_port(one: Circuit, another: Circuit) -> bool:
    return one.ingress == another.ingress or one.egress == another.egress
