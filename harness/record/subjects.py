"""Subjects of rows: the text of what was measured, and the names that stand in it.

Text of a form is written here and read here; a port, a fiber and a link are written by themselves.
In a report the conditions that are texts follow a subject, each behind ", ".
"""

from lightrig.testbeds import Circuit, Port

_BETWEEN = frozenset((">", "<", "->", "<->"))


def circuit_subject(switch: str, circuit: Circuit) -> str:
    """Return the subject of a circuit of `switch`: "ocs 3>19"."""
    return f"{switch} {circuit}"


def direction_subject(before: Port, receiver: Port, after: Port) -> str:
    """Return the subject of a direction: sender and receiver; where the sender changes, both."""
    return f"{before} > {receiver}" if before == after else f"{before} > {receiver} < {after}"


def pair_in(subject: str) -> tuple[str, str, str] | None:
    """Return the switch, or "", and both ends of a circuit or direction; None of other subjects."""
    start, arrow, sink = subject.partition(">")
    switch, _, source = start.rstrip().rpartition(" ")
    sink = sink.removeprefix(" ")
    return (switch, source, sink) if arrow and source and sink and " " not in sink else None


def circuit_in(subject: str) -> tuple[str, Circuit] | None:
    """Return the switch, or "", and the circuit of its subject; None of other subjects."""
    switch, source, sink = pair_in(subject.partition(", ")[0]) or ("", "", "")
    if not (source.isdecimal() and sink.isdecimal()) or " " in switch:
        return None
    return switch, Circuit(int(source), int(sink))


def names_in(subject: str) -> list[str]:
    """Return the names of ports and instruments on which an observation of `subject` depends.

    A receiver whose sender has changed waits for the link to the new one.
    """
    names = subject.partition(", ")[0].split()
    if names[1::2] == [">", "<"]:
        names = names[2:]
    return [name for name in names if name not in _BETWEEN]
