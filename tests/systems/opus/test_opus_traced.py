"""The auditor asks the wire: what a recorded TL1 session says, and whether Opus may stand by it."""

import contextlib
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench, Fabric, bind, binding
from lightrig.harness.systems.opus.planning.operations import OpusError
from lightrig.harness.systems.opus.planning.run_events import Confirmed, GivenUp, Rewiring
from lightrig.harness.systems.opus.planning.shim import Shim
from lightrig.harness.systems.opus.planning.topology import TopologyId
from lightrig.harness.systems.opus.runtime.on_fabric import FabricRails, fitting_job
from lightrig.harness.systems.opus.runtime.rails import Rails
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.transcript import Piece, Transcript, read
from lightrig.instruments.wire.trace import record
from lightrig.suites.claims.opus.auditor import audit
from lightrig.suites.claims.opus.emulation import emulate
from lightrig.suites.claims.opus.steps import phase_tables
from lightrig.suites.claims.opus.traced import traced, with_operations
from lightrig.testbeds import Circuit, load

OPUS = Path(__file__).parents[3] / "testbeds" / "opus.yaml"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """Everything that goes over its wires is recorded."""

    with contextlib.ExitStack() as stack:

        def recorded() -> VirtualClock:
            clock = VirtualClock()
            stack.callback(record(clock, tmp_path).close)
            return clock

        monkeypatch.setattr(binding, "VirtualClock", recorded)
        yield stack.enter_context(contextlib.closing(bind(load(OPUS), "simulated", 1)))


def test_the_wire_bears_out_what_was_promised(bench: Bench, tmp_path: Path) -> None:
    job = fitting_job(bench.testbed, "llama")
    on_fabric = FabricRails(Fabric(bench), job)
    on_fabric.set(TopologyId("00"))
    held, begun = on_fabric.circuits()["ocs"], bench.clock.now()
    tables = phase_tables(job, 1, microbatches=2)
    shims = [Shim(rank, job.stage_of[rank], table) for rank, table in enumerate(tables)]
    rails = Rails(bench.clock, job, shims, on_fabric.wirings, on_fabric.apply, on_fabric.switches)
    emulate(rails, {rank: table.all() for rank, table in enumerate(tables)}, transfer=1_000_000)

    transcript = read(next(tmp_path.glob("*ocs*")))
    late = Transcript({}, tuple(piece for piece in transcript.pieces if piece.at >= begun))
    wire = traced(late, "ocs", held)
    told = [one for one in rails.journal.events if isinstance(one, Rewiring)]
    sent = [one for one in wire if isinstance(one, Rewiring)]
    # Both rails are on one switch and change in one command.
    commands = [
        (
            frozenset().union(*(one.remove for one in some)),
            frozenset().union(*(one.add for one in some)),
        )
        for some in (list(group) for _, group in groupby(told, key=lambda one: one.at))
    ]
    assert [(one.remove, one.add) for one in sent] == commands
    both = with_operations(rails.journal.events, wire)
    assert audit(both, {"ocs": held}, on_fabric.cabled_ports()) == []
    # An operation that began before the wire's last word would be found.
    shifted = [
        Confirmed(one.at + 10**9, one.switch, one.change) if isinstance(one, Confirmed) else one
        for one in wire
    ]
    again = audit(with_operations(rails.journal.events, shifted), {"ocs": held})
    assert any(violation.rule == "under reconfiguration" for violation in again)


def pieces(*lines: str) -> Transcript:
    return Transcript(
        {}, tuple(Piece(at, 1, line[0], line[2:].encode()) for at, line in enumerate(lines))
    )


def test_lists_ranges_denials_and_what_gives_way() -> None:
    found = frozenset({Circuit(1, 11), Circuit(2, 12), Circuit(5, 15)})
    events = traced(
        pieces(
            "> ent-patch::1&2,12&11:7:;",
            "< ocs 00-01-01 00:00:00\r\nM  7 COMPLD\r\n;",
            "> DLT-PATCH::1&&2:8:;",
            '< ocs 00-01-01 00:00:00\r\nM  8 DENY\r\n   IIAC\r\n   /* "no" */\r\n;',
            "> DLT-PATCH::all:9:;",
        ),
        "ocs",
        found,
    )
    crossed = frozenset({Circuit(1, 12), Circuit(2, 11)})
    assert events == [
        Rewiring(0, "ocs", "session 1 ctag 7", found - {Circuit(5, 15)}, crossed),
        Confirmed(1, "ocs", "session 1 ctag 7"),
        Rewiring(2, "ocs", "session 1 ctag 8", crossed, frozenset()),
        GivenUp(3, "ocs", "session 1 ctag 8"),
        Rewiring(4, "ocs", "session 1 ctag 9", crossed | {Circuit(5, 15)}, frozenset()),
    ]


@pytest.mark.parametrize("command", ["ENT-PATCH::1&2:7:;", "ENT-PATCH::a,12:7:;"])
def test_an_invalid_patch_is_refused(command: str) -> None:
    with pytest.raises(OpusError):
        traced(pieces(f"> {command}"), "ocs", frozenset())
