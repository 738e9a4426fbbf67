"""Phases found in what real runs have left: phase tables, a log of collectives."""

import ast
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.harness.systems.opus.planning.operations import OpusError
from lightrig.suites.claims.opus.phases import (
    Issued,
    Phase,
    detect,
    parse_phase_table,
    steady,
)

RECORDINGS = Path(__file__).parents[3] / "testbeds" / "opus" / "recordings"
TABLES = sorted(RECORDINGS.glob("comm_pattern_*.txt"))


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_every_rank_shifts_six_times_a_step(table: Path) -> None:
    phases = parse_phase_table(table.read_text(encoding="utf-8"))
    found = steady(phases)
    assert found.shifts == 6
    assert found.steps >= 9
    assert [dimension for dimension, _ in found.phases] == ["PP", "DP"] * 3
    assert {length for dimension, length in found.phases if dimension == "PP"} == {1, 3}


def test_there_are_two_ranks() -> None:
    assert len(TABLES) == 2


def test_phases_begin_where_the_recorded_run_waited_for_the_switch() -> None:
    """Switching took 5 s there: every first operation of a phase was that slow, and no other."""
    lines = (RECORDINGS / "llama_debug_5s.txt").read_text(encoding="utf-8").splitlines()
    log = [ast.literal_eval(line) for line in lines if line.startswith("{")]
    names = {1: "PP", 2: "DP"}
    carried = [entry for entry in log if entry["backend"] in names]
    phases = detect([Issued(names[e["backend"]], e["backend"], e["index"]) for e in carried])
    slow = [(e["backend"], e["index"]) for e in carried if e["duration_ms"] > 5000]
    assert [phase.start for phase in phases] == slow
    assert len(slow) == 28


@given(st.lists(st.tuples(st.sampled_from(["PP", "DP", "CP"]), st.integers(1, 3)), max_size=30))
def test_phases_are_the_longest_runs(issued: list[tuple[str, int]]) -> None:
    operations = [Issued(name, group, index) for index, (name, group) in enumerate(issued)]
    phases = detect(operations)
    assert [p.dimension for p in phases for _ in range(p.length)] == [
        o.dimension for o in operations
    ]
    assert all(a.dimension != b.dimension for a, b in itertools.pairwise(phases))
    firsts = [sum(p.length for p in phases[:place]) for place in range(len(phases))]
    assert [p.start for p in phases] == [(operations[i].group, i) for i in firsts]


def test_a_run_that_is_too_short_has_no_cycle() -> None:
    phases = [Phase("PP", (1, 0), (1, 0), 1), Phase("DP", (2, 0), (2, 3), 4)] * 2
    with pytest.raises(OpusError, match="no cycle in 4 phases"):
        steady(phases)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("PP start_backend: 1", "expected a phase"),
        ("PP start_backend: 1 start_idx: 5 end_backend: 1 end_idx: 4 len: 1", "no 1 operations"),
        ("DP start_backend: 1 start_idx: 5 end_backend: 1 end_idx: 5 len: 0", "no 0 operations"),
    ],
)
def test_an_invalid_phase_table_is_refused(line: str, complaint: str) -> None:
    with pytest.raises(OpusError, match=f"line 2: .*{complaint}"):
        parse_phase_table(f"Node: one, Rank: 0\n{line}\n")
