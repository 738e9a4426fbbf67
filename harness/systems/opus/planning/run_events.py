"""Events of a run of Opus: operations of ranks, and changes of switches."""

from dataclasses import dataclass
from typing import TypeAlias

from lightrig.testbeds import Circuit


@dataclass(frozen=True, slots=True)
class Began:
    """A rank began to send in `operation`, over `circuits` of `switch`, at `at` ns."""

    at: int
    rank: int
    operation: str
    switch: str
    circuits: frozenset[Circuit]


@dataclass(frozen=True, slots=True)
class Ended:
    """`operation` ended on a rank."""

    at: int
    rank: int
    operation: str


@dataclass(frozen=True, slots=True)
class Rewiring:
    """A switch was told to part `remove` and join `add`, as a whole, under the name `change`.

    again: it was told before and has not confirmed. fallback: something had gone wrong, so that
    it may change nothing, or part what was never used. wanted: when the control plane wanted that,
    which is before `at` where the switch carried out another command; None where nobody knows.
    commands: how many commands that took, with what else was sent then, one after another.
    agreed: when the last rank whose agreement it needs was ready for it, on that rank; heard: when
    the controller had heard of that; due: when no other change touched its ports any more. None
    where nobody knows.
    """

    at: int
    switch: str
    change: str
    remove: frozenset[Circuit]
    add: frozenset[Circuit]
    again: bool = False
    fallback: bool = False
    wanted: int | None = None
    commands: int = 1
    agreed: int | None = None
    heard: int | None = None
    due: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeStamps:
    """Moments of one change of circuits, in ns on the bench's clock.

    Attributes:
        sent: when the switch had its command.
        acknowledged: when the switch's last acknowledgement was read.
        lit: between which moments light was back at all egresses, not before `acknowledged`.
        carriers: when the last NIC port had its carrier again.
    """

    sent: int
    acknowledged: int
    lit: tuple[int, int]
    carriers: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A switch was seen to be as `change` wanted it; `stamps` where they are known."""

    at: int
    switch: str
    change: str
    stamps: ChangeStamps | None = None


@dataclass(frozen=True, slots=True)
class GivenUp:
    """`change` was given up; what it touched is not known until it or another is confirmed."""

    at: int
    switch: str
    change: str


RunEvent: TypeAlias = Began | Ended | Rewiring | Confirmed | GivenUp
