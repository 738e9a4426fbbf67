"""States of modules, paths and links in public captures, against what was read by eye."""

import hashlib
from pathlib import Path

import pytest

from lightrig.harness.measure.relock import entered, path_sentence, returned_states
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import ShownState
from lightrig.instruments.servers.tools import ethtool_module, mlxlink
from lightrig.instruments.servers.tools.module import ModuleReading
from lightrig.instruments.servers.tools.module_lights import MemoryReading, lights, places_of

MS = 1_000_000
CMIS = places_of(bytes.fromhex("18 52 00"))[-1]
BITS = {"output": 132, "rx_los": 147}
"""Bytes of page 11h with a bit for each lane."""
FLAGS = ("rx_los", "tx_los", "rx_lol", "tx_lol")


def captures() -> list[list[str]]:
    lines = Path(__file__).with_name("relock_captures.txt").read_text(encoding="ascii")
    return [line.split(" | ") for line in lines.splitlines() if line[0] != "#"]


def pairs(facts: str) -> list[tuple[str, str]]:
    found = []
    for one in facts.split("; "):
        key, _, value = one.partition(": ")
        found.append((key, value))
    return found


def lanes_with(reading: ModuleReading, flag: str) -> str:
    """Return the lanes that have a flag, as the table writes them."""
    known = [(n, getattr(lane, flag)) for n, lane in enumerate(reading.lanes, 1)]
    lit = [n for n, is_set in known if is_set]
    assert all(is_set is not None for _, is_set in known)
    if len(lit) > 1 and lit == [*range(lit[0], lit[-1] + 1)]:
        return f"{lit[0]}-{lit[-1]}"
    return " ".join(map(str, lit)) or "none"


def of_module(reading: ModuleReading, expected: str) -> list[str]:
    found = [f"state {reading.state}"]
    found += [f"{flag} {lanes_with(reading, flag)}" for flag in FLAGS if f"{flag} " in expected]
    return found


def of_ethtool(facts: str, expected: str) -> list[str]:
    identity = ("Identifier", "0x18 (QSFP-DD Double Density 8X Pluggable Transceiver (INF-8628))")
    text = "".join(f"\t{key:<42}: {value}\n" for key, value in (identity, *pairs(facts)))
    return of_module(ethtool_module.parse(text), expected)


def of_mlxlink(facts: str, expected: str) -> list[str]:
    named = pairs(facts)
    sections = {"Operational Info": named[:2], "Module Info": named[2:]}
    text = "".join(
        f"\n{title}\n{'-' * len(title)}\n" + "".join(f"{k:<35}: {v}\n" for k, v in lines)
        for title, lines in sections.items()
        if lines
    )
    report = mlxlink.parse(text)
    assert report.link is not None
    found = [f"link {report.link.state} {report.link.physical_state}"]
    return found + ([] if report.module is None else of_module(report.module, expected))


def of_memory(facts: str, expected: str) -> list[str]:
    page = bytearray(CMIS.length)
    for one in facts.split("; "):
        what, *values = one.split()
        for lane, value in enumerate(map(int, values)):
            if what == "state":
                page[lane // 2] |= value << 4 * (lane % 2)
            else:
                page[BITS[what] - 128] |= value << lane
    shown = lights([MemoryReading("eth0", CMIS, Span(0, 1), bytes(page), "")])
    found = []
    if "state" in facts:
        found += [f"paths {shown.paths[0].state}", f"sentence {path_sentence(shown) or 'nothing'}"]
    if "rx_los" in facts:
        found.append(f"signal {'lost' if shown.no_signal[0].is_set else 'there'}")
    if "output" in facts:
        found.append(
            "output " + ("valid" if any(each.is_set for each in shown.output) else "never")
        )
    return found


def of_history(facts: str, expected: str) -> list[str]:
    moments = [one.split() for one in facts.split("; ")]
    readings = [ShownState(Span(int(at) * MS, int(at) * MS), state) for at, state in moments]
    name = expected.split()[1]
    span = entered(readings, name)
    assert span is not None
    loop = " > ".join(returned_states(readings)) or "none"
    return [f"entered {name} {span.earliest // MS} {span.latest // MS}", f"loop {loop}"]


READ = {"ethtool": of_ethtool, "mlxlink": of_mlxlink, "cmis": of_memory, "history": of_history}


@pytest.mark.parametrize("capture", captures(), ids=lambda each: each[0])
def test_states_are_those_that_were_read_by_eye(capture: list[str]) -> None:
    _, kind, facts, expected, digest = capture
    assert hashlib.sha256(facts.encode()).hexdigest() == digest
    assert sorted(READ[kind](facts, expected)) == sorted(expected.split("; "))
