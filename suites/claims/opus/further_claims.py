"""Further figures of Opus: of its wiring, and of what its authors recorded beside it."""

import ast
from datetime import datetime, timedelta
from functools import cache
from itertools import combinations, product
from math import log2
from pathlib import Path

from lightrig.harness.claims.computed import Computed, Registry, exactly
from lightrig.harness.systems.opus.planning.costs import H200, packet_switch_ports
from lightrig.harness.systems.opus.planning.operations import (
    RailJob,
)
from lightrig.harness.systems.opus.planning.topology import TopologyId
from lightrig.harness.systems.opus.planning.wiring import Attachment, Attachments, RailWiring
from lightrig.suites.claims.closed_forms import all_to_all_on_ring
from lightrig.suites.claims.opus.steps import phase_tables
from lightrig.suites.claims.opus.window_count import window_count
from lightrig.testbeds import Circuit

OPERATIONS = Path(__file__).parents[3] / "testbeds/opus/recordings/llama_debug_5s.txt"
STAGES = (2, 4, 8, 16)
EXAMPLE = RailJob.grid("example", 3, [2, 2])
"""The job of Fig. 8: PP 3, DP 2, CP 2."""


def _attached(job: RailJob, first: int = 1) -> Attachments:
    """Two ports of a rail's switch for each rank, from `first` on."""
    return {
        rank: (Attachment(port, 1000 + port), Attachment(port + 1, 1001 + port))
        for rank, port in zip(job.ranks(0), range(first, 1000, 2), strict=False)
    }


def _algorithm_degree() -> Computed:
    note = "Partners of a rank in recursive doubling over 8 ranks, with which a tree has fewer."
    return exactly(log2(8), note)


def _ring_steps() -> Computed:
    note = "Steps of a ring all-reduce over those of recursive doubling, 8 ranks: 14 to 3."
    return exactly(2 * (8 - 1) / log2(8), note)


@cache
def logged_operations() -> tuple[tuple[bool, datetime, datetime], ...]:
    """The archived operations of a rank: whether of the pipeline, first and last moment.

    Backend 1 is the pipeline, 2 data parallelism. An operation of 5 s or more waited for its
    circuits; it begins to send 5 s after it was called.
    """
    found = []
    for line in OPERATIONS.read_text("utf-8").splitlines():
        operation = ast.literal_eval(line)
        if operation["backend"] in (1, 2) and operation["finish_time"] != "n/a":
            begun, ended = (
                datetime.strptime(operation[key], "%H:%M:%S.%f") for key in ("time", "finish_time")
            )
            waited = timedelta(seconds=5 if operation["duration_ms"] >= 5000 else 0)
            found.append((operation["backend"] == 1, begun + waited, ended))
    return tuple(found)


def _overlaps() -> Computed:
    """Pairs of operations of the pipeline and of data parallelism that overlap."""
    operations = logged_operations()
    count = sum(
        a[0] != b[0] and a[1] < b[2] and b[1] < a[2] for a, b in combinations(operations, 2)
    )
    note = (
        f"Of {len(operations)} archived operations of one rank, without the 5 s that circuits "
        "take there; three are called 4 to 8 ms before one of the other parallelism has ended."
    )
    return exactly(count, note)


def _most_windows(microbatches: int | None = None) -> dict[int, float]:
    """The most phases of a rank over the bound, by stages; as many microbatches, or as given."""
    found = {}
    for stages in STAGES:
        count = microbatches or stages
        tables = phase_tables(RailJob.grid("windows", stages, [2]), 1, microbatches=count)
        bound = window_count(
            stages,
            stages,
            count,
            mixed_with_fsdp=False,
            mixed_with_pipeline=False,
            two_symmetric=False,
        )
        found[stages] = max(table.shifts for table in tables) / bound
    return found


def _window_bound() -> Computed:
    more = _most_windows(32)
    note = (
        "Phases of a rank in 1F1B with FSDP over 4 (PP - 1) + 4, as many microbatches as stages; "
        f"with 32, each gathering parameters anew, {max(more.values()):.3g} at PP {STAGES[0]}."
    )
    return exactly(max(_most_windows().values()), note)


def _stored() -> Computed:
    """Circuits stored for each rank and dimension: the most of many jobs."""
    most = 0.0
    for stages, widths in product((2, 3, 4, 8), ([2], [2, 2], [4, 2], [2, 2, 2])):
        job = RailJob.grid("stored", stages, widths)
        wiring = RailWiring.of(job, 0, _attached(job))
        count = sum(map(len, wiring.of_group.values()))
        most = max(most, count / (len(job.stage_of) * (len(widths) + 1)))
    example = RailWiring.of(EXAMPLE, 0, _attached(EXAMPLE))
    circuits = sum(map(len, example.of_group.values()))
    note = (
        f"Circuits a rank and dimension, the most of 16 jobs; {circuits} for PP 3, DP 2 and CP 2, "
        f"where all {3**3} topologies with 2 circuits a rank would be {3**3 * 2 * 12}."
    )
    return exactly(most, note)


def _programmed() -> Computed:
    """Circuits that an event moves, over N_rank / P_asym: at PP 16 against PP 4."""
    most = {}
    for stages in (4, 16):
        job = RailJob.grid("event", stages, [4])
        wiring = RailWiring.of(job, 0, _attached(job))
        data, pipeline = (TopologyId.uniform(stages, digit) for digit in (1, 0))
        moved = []
        for stage in range(stages - 1):
            ends = data.with_stages({stage: 0, stage + 1: 0})
            for old, new in ((data, ends), (pipeline, pipeline.with_stages({stage: 1}))):
                before, after = wiring.circuits(old), wiring.circuits(new)
                moved.append(max(len(before - after), len(after - before)))
        most[stages] = max(moved) * stages / len(job.stage_of)
    note = f"With DP 4; at most {most[4]:g} circuits for each N_rank / P_asym."
    return exactly(most[16] / most[4], note)


def _ring_rate() -> Computed:
    """Rate of a group on the giant ring over that on circuits of its own, four ranks."""
    job = RailJob.grid("four", 2, [2])
    wiring = RailWiring.of(job, 0, _attached(job))
    owner = {port.ingress: rank for rank, ports in _attached(job).items() for port in ports}
    reach = {port.egress: rank for rank, ports in _attached(job).items() for port in ports}
    shares = []
    for name, circuits in wiring.of_group.items():
        ranks = set(job.groups[name].ranks)
        on_ring = [c for c in wiring.giant_ring if {owner[c.ingress], reach[c.egress]} == ranks]
        shares.append(len(on_ring) / len(circuits))
    return exactly(min(shares), "Circuits between the ranks of a group of PP 2 x DP 2.")


def _always_on() -> Computed:
    """Circuits that any topology forms, over the most that one of them has."""
    wiring = RailWiring.of(EXAMPLE, 0, _attached(EXAMPLE))
    every = frozenset[Circuit]().union(*wiring.of_group.values())
    topologies = (TopologyId("".join(digits)) for digits in product("012", repeat=3))
    most = max(len(wiring.circuits(topology)) for topology in topologies)
    return exactly(len(every) / most, f"PP 3, DP 2 and CP 2: {len(every)} circuits to {most}.")


def _ring_exponent() -> Computed:
    """Exponent of N in the duration of an all-to-all on a ring, for a fixed size a rank."""
    few, many = (all_to_all_on_ring(ranks, 1e9, 400e9) for ranks in (32, 64))
    return exactly(log2(many / few), "By the closed form for 32 and 64 ranks, a fixed size a rank.")


def _transceivers() -> Computed:
    """Transceivers of photonic rails over those of the packet network, 128 H200."""
    packet = 128 + packet_switch_ports(H200, 128)
    return exactly(128 / packet, f"128 to {packet} by the bill of Fig. 14; those of GPUs remain.")


FURTHER: Registry = {
    "static-split": lambda: exactly(2 * 100 / 400, "Two of four ports of 100 Gbit/s."),
    "algorithm-degree": _algorithm_degree,
    "ring-steps": _ring_steps,
    "overlaps": _overlaps,
    "window-bound": _window_bound,
    "stored": _stored,
    "programmed": _programmed,
    "giant-ring-rate": _ring_rate,
    "always-on": _always_on,
    "ring-exponent": _ring_exponent,
    "transceivers": _transceivers,
    "torus-dimensions": lambda: exactly(6 / 2, "Six links a chip, two neighbours in a ring."),
}
"""The quantities of this file by the names that claims refer to."""
