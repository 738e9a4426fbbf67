"""What a recorded TL1 wire says a Polatis was told: a witness that knows nothing of the program."""

import re
from collections.abc import Iterable, Sequence

from harness.fabrics.opus.auditor import Began, Confirmed, Ended, GivenUp, Happening, Rewiring
from harness.fabrics.opus.operations import OpusError
from instruments.transcript import Transcript
from testbeds import Circuit

_TOLD = re.compile(r"(ENT|DLT)-PATCH:[^:]*:([^:]*):(\d+):", re.IGNORECASE)
_ANSWERED = re.compile(r"^M\s+(\d+) (COMPLD|DENY)", re.MULTILINE)


def traced(transcript: Transcript, switch: str, found: frozenset[Circuit]) -> list[Happening]:
    """The changes that went over the wire to `switch`, which held `found` before.

    A circuit that takes a port of another parts it, as the switch does by itself. Lists (`1&2`)
    and ranges (`1&&4`) of ports are known; raises `OpusError` for anything else.
    """
    held = set(found)
    pending: dict[tuple[int, str], Rewiring] = {}
    happenings: list[Happening] = []
    for piece in transcript.pieces:
        text = piece.data.decode("ascii", "replace")
        if piece.kind == ">" and (told := _TOLD.match(text)):
            ports = told[2].split(",")
            name = f"session {piece.session} ctag {told[3]}"
            if told[1].upper() == "ENT":
                if len(ports) != 2:
                    raise OpusError(f"{text!r} joins neither ports nor lists of them")
                pairs = zip(_ports(ports[0]), _ports(ports[1]), strict=True)
                add = frozenset(Circuit(*pair) for pair in pairs) - held
                remove = frozenset(c for c in held if any(_share_a_port(c, new) for new in add))
            else:
                gone = set(_ports(told[2])) if told[2].lower() != "all" else None
                add = frozenset()
                remove = frozenset(c for c in held if gone is None or not gone.isdisjoint(c))
            change = Rewiring(piece.at, switch, name, remove, add)
            pending[piece.session, told[3]] = change
            happenings.append(change)
        elif piece.kind == "<":
            for answered in _ANSWERED.finditer(text):
                asked = pending.pop((piece.session, answered[1]), None)
                if asked is None:
                    continue
                if answered[2] == "COMPLD":
                    held = (held - asked.remove) | asked.add
                    happenings.append(Confirmed(piece.at, switch, asked.change))
                else:
                    happenings.append(GivenUp(piece.at, switch, asked.change))
    return happenings


def with_operations(journal: Iterable[Happening], wire: Sequence[Happening]) -> list[Happening]:
    """What ranks did, by the journal, and what the switches were told, by the wire, in order.

    Of what has one time stamp, ends come first and beginnings last.
    """
    ranks = [happening for happening in journal if isinstance(happening, Began | Ended)]
    return sorted([*ranks, *wire], key=lambda one: (one.at, _ORDER.index(type(one))))


_ORDER: tuple[type[Happening], ...] = (Ended, Confirmed, GivenUp, Rewiring, Began)


def _ports(text: str) -> list[int]:
    """The ports of a TL1 list such as `1&2&5&&8`."""
    numbers: list[int] = []
    for part in re.split(r"(?<!&)&(?!&)", text):
        first, ranged, last = part.partition("&&")
        if not first.isdecimal() or (ranged and not last.isdecimal()):
            raise OpusError(f"found {text!r}, expected ports such as 1&2 or 1&&4")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _share_a_port(one: Circuit, other: Circuit) -> bool:
    return one.ingress == other.ingress or one.egress == other.egress
