"""A measurement on a small lab: links, what is recorded, and how it is judged."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.served_lab import describe
from standing_reads import reading_stands

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.bench.fabric import ForeignChangeError
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation, LinksDownError, await_packets
from lightrig.harness.measure.reconfiguration import IncompleteError, measure_reconfiguration
from lightrig.harness.measure.recording import (
    LimitExceededError,
    NotEnoughDataError,
    Recording,
)
from lightrig.harness.measure.stages import Reconfiguration
from lightrig.harness.record import Row
from lightrig.instruments.core.capabilities import Settled
from lightrig.instruments.simulated.faults.lab_faults import LabFaults
from lightrig.instruments.simulated.hosts.simulated_clock import ClockSlew
from lightrig.testbeds import Circuit, Plan, Port

SECOND = 1_000_000_000
MS = 1_000_000
PORTS = tuple(Port(f"server{s}", f"nic0.p{p}") for s in (0, 1) for p in (0, 1))


class Rig:
    """A lab in virtual time, measured."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.clock = bench.clock
        self.fabric = Fabric(bench)
        self.links = LinkObservation(bench)
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.measure = Recording(
            self.rows.extend,
            bench.testbed.limits,
            note=lambda sentence, **_: self.notes.append(sentence),
        )
        self.straight, self.crossed = (bench.testbed.plans[n] for n in ("straight", "crossed"))

    def bring_up(self, plan: Plan) -> None:
        bring_up(self.fabric, self.links, plan)

    def change_to(self, plan: Plan) -> Reconfiguration:
        return measure_reconfiguration(self.fabric, self.links, self.measure, plan)

    def reconfigure(self, count: int) -> None:
        self.bring_up(self.straight)
        for number in range(count):
            self.change_to(self.straight if number % 2 else self.crossed)

    def quantities(self) -> set[str]:
        return {row.quantity for row in self.rows}


@pytest.fixture
def rig(tmp_path: Path, simulated: Callable[..., Bench]) -> Callable[..., Rig]:
    def build(*changes: tuple[str, str], **described: Any) -> Rig:
        text = describe(tmp_path, **described).read_text()
        for old, new in changes:
            assert text.count(old) == 1
            text = text.replace(old, new)
        return Rig(simulated(text))

    return build


# ------------------------------------------------------------------------------ links


def test_events_before_the_command_are_not_of_this_change(rig: Callable[..., Rig]) -> None:
    lab = rig()
    lab.fabric.apply(lab.straight)
    lab.clock.sleep(SECOND)
    since = lab.clock.now()
    assert lab.links.changes(PORTS, since, 5 * SECOND) == ([], [])
    lab.fabric.apply(lab.crossed)
    lab.clock.sleep(SECOND)
    before = lab.clock.now()
    lab.fabric.apply(lab.straight)
    changes, missing = lab.links.changes(PORTS, before, 5 * SECOND)
    assert missing == []
    assert all(event.at.latest > before for _, event in changes)
    for port in PORTS:
        told = [(event.stage, event.up) for which, event in changes if which == port]
        assert sorted(told) == [
            ("carrier", False),
            ("carrier", True),
            ("datagram", False),
            ("datagram", True),
        ]


def test_a_link_that_stays_down_is_not_among_the_changes(rig: Callable[..., Rig]) -> None:
    lab = rig(("bring_up: {mean: 10 ms, sd: 1 ms}", "bring_up: {mean: 30 s, sd: 1 ms}"))
    since = lab.clock.now()
    lab.fabric.apply(lab.straight)
    stages = [(port, stage) for port in PORTS for stage in ("carrier", "datagram")]
    assert lab.links.changes(PORTS, since, SECOND) == ([], stages)
    assert lab.clock.now() >= since + SECOND
    with pytest.raises(LinksDownError, match="within 2 s: ") as down:
        lab.links.await_up(PORTS, 2 * SECOND)
    for port in PORTS:
        assert f"{port} (carrier)" in str(down.value)
        assert f"{port} (datagram)" in str(down.value)
    lab.links.await_up(PORTS, 60 * SECOND)
    lab.links.await_up(PORTS, 0)


LATE_LIGHT = (("dark: {mean: 2 ms}", "dark: {mean: 900 ms}"), ("mean: 25 ms", "mean: 1 s"))
"""The switch says done long before the old light is gone."""


def test_links_from_before_are_not_taken_for_new_ones(rig: Callable[..., Rig]) -> None:
    lab = rig(*LATE_LIGHT)
    lab.bring_up(lab.straight)
    begun = lab.clock.now()
    lab.bring_up(lab.crossed)
    assert lab.clock.now() - begun > SECOND


def test_a_port_that_is_lost_during_the_wait_is_awaited_too(
    rig: Callable[..., Rig],
) -> None:
    lab = rig(*LATE_LIGHT)
    lab.bring_up(lab.straight)
    lab.fabric.apply(lab.crossed)
    lab.clock.sleep(800 * MS)
    # One port is down already: until it comes up, all the others go down.
    lab.bench.switches["ocs"].change([Circuit(1, 12)], ()).done()
    lab.links.up.discard((PORTS[0], "carrier"))
    with pytest.raises(ForeignChangeError, match="ocs: 1>12 removed"):
        lab.fabric.apply(lab.crossed)
    lab.fabric.apply(lab.crossed)
    begun = lab.clock.now()
    lab.links.await_up(PORTS, 60 * SECOND)
    assert lab.clock.now() - begun > 100 * MS


def test_a_port_without_observed_outage_is_not_awaited(rig: Callable[..., Rig]) -> None:
    lab = rig()
    lab.bring_up(lab.straight)
    since = lab.clock.now()
    assert lab.links.changes(PORTS, since, 60 * SECOND) == ([], [])
    assert lab.clock.now() < since + 20 * SECOND


def test_who_connects_next_waits_until_links_pass_packets(rig: Callable[..., Rig]) -> None:
    """Carriers are there 2 s after the circuits, of which the switch says that they are made."""
    lab = rig(("bring_up: {mean: 10 ms, sd: 1 ms}", "bring_up: {mean: 2 s}"))
    lab.links.pause()
    lab.fabric.apply(lab.straight)
    applied = lab.clock.now()
    await_packets(lab.bench, lab.fabric.links(lab.straight))
    assert 1.9 * SECOND < lab.clock.now() - applied < 3 * SECOND
    LinkObservation(lab.bench).await_up(PORTS, SECOND)
    for server in lab.bench.servers.values():
        server.unwatch()
    lab.fabric.apply(DARK)
    with pytest.raises(LinksDownError, match="within 1 s: "):
        await_packets(lab.bench, lab.fabric.links(lab.straight), SECOND)


def test_links_that_are_up_when_the_watch_begins_are_up(rig: Callable[..., Rig]) -> None:
    lab = rig()
    lab.bring_up(lab.straight)
    for server in lab.bench.servers.values():
        server.unwatch()
    lab.clock.sleep(SECOND)
    LinkObservation(lab.bench).await_up(PORTS, 2 * SECOND)


# ------------------------------------------------------------------- what is recorded


def test_every_stage_of_every_subject_is_a_row(rig: Callable[..., Rig]) -> None:
    lab = rig()
    lab.reconfigure(2)
    stages = {
        "acknowledged",
        "los",
        "signal_recovered",
        "carrier_down",
        "carrier_up",
        "datagrams_lost",
        "first_datagram",
    }
    assert stages | {"outage.carrier", "outage.datagram"} <= lab.quantities()
    assert {f"reconfiguration.{stage}" for stage in stages} <= lab.quantities()
    by_stage = {
        stage: {row.subject for row in lab.rows if row.quantity == stage} for stage in stages
    }
    assert by_stage["acknowledged"] == {"ocs"}
    assert by_stage["signal_recovered"] == {f"ocs.{egress}" for egress in range(9, 13)}
    assert by_stage["carrier_up"] == set(map(str, PORTS))
    assert {row.conditions["event"] for row in lab.rows} == {0, 1}
    assert all(row.unit == ("1" if "closure" in row.quantity else "ns") for row in lab.rows)
    closures = [row.value for row in lab.rows if row.quantity.startswith("closure.")]
    assert closures
    assert set(closures) == {1.0}


def test_missing_light_is_reported_after_the_rest_is_recorded(
    rig: Callable[..., Rig],
) -> None:
    lab = rig()
    lab.bring_up(lab.straight)
    matrix_is_slow = rig(("settle: {mean: 25 ms}", "settle: {mean: 8 s}"))
    with pytest.raises(IncompleteError) as incomplete:
        matrix_is_slow.change_to(matrix_is_slow.straight)
    told = str(incomplete.value)
    assert told.startswith("reconfiguration 0 to straight did not complete; not seen: ")
    assert [f"ocs.{egress} signal_recovered" in told for egress in range(9, 13)] == [True] * 4
    assert "carrier" not in told
    assert {"acknowledged", "carrier_up", "first_datagram"} <= matrix_is_slow.quantities()
    assert "signal_recovered" not in matrix_is_slow.quantities()


def test_light_that_was_read_too_seldom_is_unknown_where_all_links_came_up(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Darkness of 25 ms; a busy machine reads monitors that average over 10 ms 150 ms apart."""
    lab = rig()
    lab.bring_up(lab.straight)
    sleep = lab.clock.sleep
    with monkeypatch.context() as busy:
        busy.setattr(lab.clock, "sleep", lambda ns: sleep(ns + 140 * MS))
        event = lab.change_to(lab.crossed)
    assert event.missing == ()
    whole = {row.quantity for row in lab.rows if row.quantity.startswith("reconfiguration.")}
    assert {"reconfiguration.carrier_up", "reconfiguration.acknowledged"} <= whole
    assert not whole & {"reconfiguration.signal_recovered", "reconfiguration.los"}
    (sentence,) = [note for note in lab.notes if "no darkness was seen" in note]
    assert "reconfiguration 0 to crossed: " in sentence
    # New light that is stronger or weaker than the old by 1.5 dB shows without its darkness.
    assert {subject for subject, _ in event.unseen} == {"ocs.9", "ocs.10"}
    assert "seen at ocs.10, ocs.9, though" in sentence
    # Its window is 10 ms, of which two at most may pass.
    (slow,) = [note for note in lab.notes if "the watch was slow" in note]
    assert "up to 150 ms passed between two readings of monitors (20 ms at most" in slow
    event = lab.change_to(lab.straight)
    assert event.unseen == ()


def test_a_missing_link_is_reported_after_the_rest_is_recorded(
    rig: Callable[..., Rig],
) -> None:
    lab = rig(("bring_up: {mean: 10 ms, sd: 1 ms}", "bring_up: {mean: 100 s}"))
    with pytest.raises(IncompleteError) as incomplete:
        lab.change_to(lab.straight)
    told = str(incomplete.value)
    for port in PORTS:
        assert f"{port} carrier_up" in told
        assert f"{port} first_datagram" in told
    assert "light" not in told
    assert {"acknowledged", "signal_recovered"} <= lab.quantities()
    with pytest.raises(LinksDownError):
        lab.bring_up(lab.crossed)


def test_an_incomplete_event_is_not_judged(rig: Callable[..., Rig]) -> None:
    lab = rig(("bring_up: {mean: 10 ms, sd: 1 ms}", "bring_up: {mean: 100 s}"))
    with pytest.raises(IncompleteError):
        lab.change_to(lab.straight)
    assert {verdict.n for _, verdict in lab.measure.verdicts("reconfiguration")} == {0}


def test_a_plan_that_is_there_already_is_no_failure(rig: Callable[..., Rig]) -> None:
    lab = rig()
    lab.bring_up(lab.straight)
    event = lab.change_to(lab.straight)
    assert event.moved == 0
    assert event.missing == ()


def test_parting_all_links_is_seen(rig: Callable[..., Rig]) -> None:
    lab = rig()
    lab.bring_up(lab.straight)
    event = lab.change_to(Plan("dark", {"ocs": frozenset()}))
    assert event.moved == 0
    assert {seen.subject for seen in event.seen if seen.stage == "los"} == {
        f"ocs.{egress}" for egress in range(9, 13)
    }


@pytest.mark.parametrize("server", ["server0", "server1"])
@pytest.mark.parametrize("ppm", [500, -500])
def test_a_slew_that_begins_while_links_come_up_leaves_every_interval_true(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, server: str, ppm: int
) -> None:
    """The last reply of the other server before shows nothing of it, and its next one does."""
    slews: list[ClockSlew] = []
    monkeypatch.setattr(
        LabFaults, "clock_slews", lambda _, name: slews if name == server else list[ClockSlew]()
    )
    lab = rig(("bring_up: {mean: 10 ms, sd: 1 ms}", "bring_up: {mean: 3 s, sd: 300 ms}"))
    lab.reconfigure(4)
    for number in range(4):
        slews.append(ClockSlew(lab.clock.now() + SECOND, 2 * SECOND, ppm))
        lab.change_to(lab.straight if number % 2 else lab.crossed)
    shares = {row.value for row in lab.rows if row.quantity.startswith("closure.")}
    assert shares == {1.0}


DARK = Plan("dark", {"ocs": frozenset()})


def test_a_server_that_answers_before_it_has_read_its_ports_is_asked_again(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of parted links nothing is waited for, and each port loses its carrier all the same."""
    lab = rig()
    lab.bring_up(lab.straight)
    reading_stands(monkeypatch, lab.clock, "server1", lab.clock.now() + SECOND)
    event = lab.change_to(DARK)
    assert {one.subject for one in event.seen if one.stage == "carrier_down"} == set(
        map(str, PORTS)
    )
    assert (event.unseen, event.slow) == ((), {})


def test_of_an_event_a_carrier_that_its_kernel_did_not_notice_is_unknown(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual machine that does not run until its link is back counts no change of it."""
    lab = rig()
    lab.bring_up(lab.straight)
    server, settle = lab.bench.servers["server1"], lab.bench.servers["server1"].settle

    def without_carrier(*args: Any, **options: Any) -> Any:
        settlement = settle(*args, **options)
        result = settlement.result

        def noticed() -> Settled:
            found = result()
            left = [e for e in found.events if (e.port, e.stage) != ("ens1f0", "carrier")]
            return dataclasses.replace(found, events=tuple(left))

        monkeypatch.setattr(settlement, "result", noticed)
        return settlement

    monkeypatch.setattr(server, "settle", without_carrier)
    event = lab.change_to(lab.crossed)
    port = "server1.nic0.p0"
    assert event.unseen == ((port, "carrier_down"), (port, "carrier_up"))
    of_all = {q for q in lab.quantities() if q.startswith("reconfiguration.")}
    assert not of_all & {"reconfiguration.carrier_down", "reconfiguration.carrier_up"}
    assert "reconfiguration.first_datagram" in of_all
    assert {row.subject for row in lab.rows if row.quantity == "carrier_up"} == {
        str(each) for each in PORTS if str(each) != port
    }
    (note,) = [note for note in lab.notes if port in note]
    assert "nothing shows when the carrier of server1.nic0.p0 changed" in note


def test_ports_that_were_not_read_are_unknown_and_the_watch_was_slow(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = rig()
    lab.bring_up(lab.straight)
    reading_stands(monkeypatch, lab.clock, "server1", lab.clock.now() + 600 * SECOND)
    monkeypatch.setattr("lightrig.harness.measure.links.UNNOTICED", SECOND)
    event = lab.change_to(DARK)
    of_server1 = {str(port) for port in PORTS if port.owner == "server1"}
    assert {one for one, stage in event.unseen if stage == "carrier_down"} == of_server1
    # The first of all ports may be one that was not read.
    assert not {"reconfiguration.carrier_down"} & lab.quantities()
    assert {row.subject for row in lab.rows if row.quantity == "carrier_down"} == {
        str(port) for port in PORTS if port.owner == "server0"
    }
    assert not any(row.value < 1 for row in lab.rows if row.quantity.startswith("closure."))
    (note,) = [note for note in lab.notes if "the watch was slow" in note]
    assert "between two readings of server1's ports (50 ms at most would show all)" in note
    with pytest.raises(
        NotEnoughDataError, match="1 of 1 events are without some stages: the watch"
    ):
        lab.measure.judge("reconfiguration")


# ------------------------------------------------------------------------- judgement


@pytest.mark.parametrize(
    "limit",
    [
        "{p50: 1 s, confidence: 90 %}",
        "{median: 1 s}",
        "{max: 1 s}",
        "{min: 10 ms}",
        "{max: 1 s, confidence: 90 %}",
        "{min: 10 ms, confidence: 90 %}",
    ],
)
def test_samples_within_a_limit_pass(rig: Callable[..., Rig], limit: str) -> None:
    lab = rig(limit=limit)
    lab.reconfigure(5)
    lab.measure.judge("reconfiguration")
    ((_, verdict),) = lab.measure.verdicts("reconfiguration")
    assert verdict.outcome == "pass"


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("{p50: 1 ms, confidence: 90 %}", "median <= 1 ms (90 % confident): 5 of 5 samples exceed"),
        ("{max: 1 ms}", "max <= 1 ms: 5 of 5 samples exceed the limit, and none may"),
        ("{min: 10 s}", "min >= 10 s: 5 of 5 samples"),
    ],
)
def test_an_exceeded_limit_is_reported_with_the_samples(
    rig: Callable[..., Rig], limit: str, words: str
) -> None:
    lab = rig(limit=limit)
    lab.reconfigure(5)
    with pytest.raises(LimitExceededError) as broken:
        lab.measure.judge("reconfiguration")
    assert f"reconfiguration.carrier_up {words}" in str(broken.value)
    assert isinstance(broken.value, AssertionError)


def test_too_few_samples_are_reported_with_the_number_missing(rig: Callable[..., Rig]) -> None:
    lab = rig(limit="{p99: 10 s, confidence: 95 %}")
    lab.reconfigure(3)
    with pytest.raises(NotEnoughDataError, match="296 more needed"):
        lab.measure.judge("reconfiguration")
    lab.measure.judge("insertion_loss")


def test_a_broken_limit_comes_before_one_that_is_not_decided(rig: Callable[..., Rig]) -> None:
    lab = rig(
        ("limits:\n", "limits:\n  reconfiguration.signal_recovered: {max: 1 ms}\n"),
        limit="{p99: 10 s}",
    )
    lab.reconfigure(3)
    with pytest.raises(LimitExceededError) as broken:
        lab.measure.judge("reconfiguration")
    assert "carrier_up" not in str(broken.value)


def test_a_limit_on_what_was_never_measured_is_not_passed(rig: Callable[..., Rig]) -> None:
    lab = rig(
        ("limits:\n", "limits:\n  reconfiguration.firmware_up: {max: 1 s}\n"), limit="{max: 1 s}"
    )
    lab.reconfigure(2)
    with pytest.raises(NotEnoughDataError, match="firmware_up"):
        lab.measure.judge("reconfiguration")
