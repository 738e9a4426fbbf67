"""Loss and recovery of datagrams: what a silent sender shows, and what missing numbers show."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import Bench, Fabric, Transition, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.loss_windows import LossWindow, losses
from lightrig.harness.measure.outage import measure_outage
from lightrig.harness.measure.reconfiguration import (
    datagram_stages,
    measure_reconfiguration,
    without_older,
)
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.stages import Seen
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import Datagram, LinkEvent
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Plan, Port, load

MS = 1_000_000
A, B = Port("server0", "nic0"), Port("server1", "nic0")


def ms(earliest: float, latest: float) -> Span:
    return Span(round(earliest * MS), round(latest * MS))


def event(up: bool, earliest: float, latest: float, source: str = "udp") -> tuple[Port, LinkEvent]:
    return A, LinkEvent("fabric0", "datagram", up, ms(earliest, latest), source)


def test_silence_of_a_sender_is_no_outage() -> None:
    """A starved sender's silence, its next datagram on the old link, then the outage."""
    changes = [
        event(False, 0, 6),
        event(True, 0, 7, "idle"),
        event(False, 9, 14),
        event(True, 94, 96),
    ]
    window = LossWindow(A, B, 10, B, 90, ms(9, 10), ms(94, 96))
    assert datagram_stages(changes, [window], {}) == [
        Seen(str(A), "datagrams_lost", ms(9, 10)),
        Seen(str(A), "first_datagram", ms(94, 96)),
    ]


def test_silence_without_an_outage_is_no_stage() -> None:
    changes = [event(False, 0, 6), event(True, 0, 7, "idle")]
    assert datagram_stages(changes, [], {}) == []


def test_a_port_that_was_dark_has_its_first_datagram() -> None:
    assert datagram_stages([event(True, 94, 96)], [], {}) == [
        Seen(str(A), "first_datagram", ms(94, 96))
    ]


@pytest.mark.parametrize("rising", [[], [B], [B, A]])
@pytest.mark.parametrize("earliest", [9, 11])
def test_a_first_datagram_on_a_link_that_stays_may_be_older_than_the_command(
    rising, earliest
) -> None:
    """The command is sent at 10 ms, and the datagram comes until 12 ms."""
    changes = [event(True, earliest, 12)]
    shown = A in rising or earliest == 11
    assert without_older(changes, rising, 10 * MS) == changes * shown


class Silent:
    """An observation in which A has received nothing since datagram 10 of B."""

    def __init__(self, departure: Span | None, last: Datagram | None, late: bool = False) -> None:
        self._departure = departure
        self._silence = LinkEvent("fabric0", "datagram", False, ms(4, 15), "udp", last)
        self._late = late

    def silences(self) -> Mapping[Port, LinkEvent]:
        return {A: self._silence}

    def silences_after(self, moment: int) -> Mapping[Port, LinkEvent]:
        return {} if self._late else self.silences()

    def senders(self) -> dict[int, Port]:
        return {2: B}

    def departures(self, wanted: Mapping[Port, Sequence[int]]) -> dict[tuple[Port, int], Span]:
        return {(B, 11): self._departure} if self._departure and wanted == {B: [11]} else {}


LAST = Datagram(2, 10, ms(9, 9))


@pytest.mark.parametrize(
    ("departure", "last", "lost"),
    [
        (ms(10, 10), LAST, {A: ms(9, 10)}),
        # The sender has not gone on, or only after the silence had been noticed.
        (None, LAST, {}),
        (ms(16, 16), LAST, {}),
        # A sender that is not on this bench.
        (ms(10, 10), Datagram(3, 10, ms(9, 9)), {}),
        (ms(10, 10), None, {}),
    ],
)
def test_link_is_lost_where_its_sender_goes_on(
    departure: Span | None, last: Datagram | None, lost: dict[Port, Span]
) -> None:
    links: Any = Silent(departure, last)
    assert losses(links, 0) == lost
    assert losses(links, 20 * MS) == {}
    links = Silent(departure, last, late=True)
    assert losses(links, 0) == {}


# ---------------------------------------------------------------------------- in namespaces


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    if reason := kernel.available():
        pytest.skip(reason)
    text = Path("testbeds/namespaces.yaml").read_text()
    settle = "settle:      {mean: 90 ms"
    assert settle in text
    path = tmp_path_factory.mktemp("bench") / "namespaces.yaml"
    # Dark for longer than a busy machine may not read its monitors.
    path.write_text(text.replace(settle, "settle:      {mean: 600 ms"))
    bench = bind(load(path), "simulated", 1)
    yield bench
    bench.close()


def probe_of(bench: Bench, server: str) -> int:
    """Return the process of a server's probe: the Python program in the server's namespace."""
    shown = bench.servers[server].commands.run(["readlink", "/proc/self/ns/net"], 10**10)
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another process may end meanwhile
            words = (folder / "cmdline").read_bytes().split(b"\0")
            python = b"python" in words[0] and b"lightrig-probe" in words
            if python and os.readlink(folder / "ns/net") == shown.stdout.strip():
                found.append(int(folder.name))
    (pid,) = found
    return pid


def starve(pid: int, duration: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(duration)
    os.kill(pid, signal.SIGCONT)


def judged(rows: Sequence[Row], quantity: str) -> dict[int, float]:
    return {int(row.conditions["event"]): row.value for row in rows if row.quantity == quantity}


@pytest.mark.long
@pytest.mark.parametrize("starved", ["server0", "server2"])
def test_starved_probes_leave_every_interval_true(
    bench: Bench, starved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes stop for 25 ms while circuits change: silences, late stamps, and the real outage."""
    links, rows, threads = LinkObservation(bench), list[Row](), list[threading.Thread]()
    fabric = Fabric(bench)
    recording = Recording(rows.extend)
    plans = list(fabric.plans.values())[:2]
    bring_up(fabric, links, plans[0])
    begin: Callable[..., Any] = fabric.prepare
    probe = probe_of(bench, starved)

    def prepare(plan: Any) -> Any:
        transition = begin(plan)
        send = transition.begin

        def starved_meanwhile() -> Span:
            sent: Span = send()
            # On a thread: the harness goes on reading light.
            threads.append(threading.Thread(target=starve, args=(probe, 0.025)))
            threads[-1].start()
            return sent

        monkeypatch.setattr(transition, "begin", starved_meanwhile)
        return transition

    monkeypatch.setattr(fabric, "prepare", prepare)
    for number in range(4):
        measure_outage(fabric, links, recording, plans[(number + 1) % 2])
    for thread in threads:
        thread.join()
    links.pause()
    for stage in ("datagrams_lost", "first_datagram", "outage_packets", "carrier_up"):
        assert judged(rows, f"closure.{stage}") == dict.fromkeys(range(4), 1.0), stage
    moved = {row.subject for row in rows if row.quantity == "carrier_up"}
    assert {row.subject for row in rows if row.quantity == "outage.datagram"} <= moved


@pytest.mark.long
def test_a_probe_that_is_stopped_while_all_links_are_parted_misses_no_carrier(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is waited for then; its last answer may come before it has read anything again."""
    links, rows = LinkObservation(bench), list[Row]()
    fabric, recording = Fabric(bench), Recording(rows.extend)
    straight = next(iter(fabric.plans.values()))
    probe, resumed = probe_of(bench, "server1"), list[threading.Timer]()
    begin = Transition.begin

    def stopped(transition: Transition) -> Span:
        os.kill(probe, signal.SIGSTOP)
        resumed.append(threading.Timer(1, os.kill, (probe, signal.SIGCONT)))
        resumed[-1].start()
        return begin(transition)

    for _ in range(3):
        bring_up(fabric, links, straight)
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(Transition, "begin", stopped)
            event = measure_reconfiguration(
                fabric, links, recording, Plan("dark", {"ocs": frozenset()})
            )
        down = {one.subject for one in event.seen if one.stage == "carrier_down"}
        parted = {str(port) for link in fabric.links(straight) for port in (link.a, link.b)}
        assert down == parted
        assert event.watched["server1"].latest > event.sent.latest + 500 * MS
        assert resumed[-1].finished.wait(20)  # else it resumes the probe of the next event
    links.pause()
    assert judged(rows, "closure.carrier_down") == dict.fromkeys(range(3), 1.0)
