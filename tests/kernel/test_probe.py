"""The probe sees what the kernel does, and answers what it is asked."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from real_time import LONG, until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.servers.host.linux import PROBE
from lightrig.instruments.simulated.namespaces.kernel_links import CarrierChange, KernelLinks

Start = Callable[..., Any]
A0, B0, C0 = "a.fabric0", "b.fabric0", "c.fabric0"
LIT = frozenset({A0, B0, C0})
JOINED = frozenset({frozenset({A0, B0})})
APART: frozenset[frozenset[str]] = frozenset()
GENEROUS_NS = 2_000_000_000


def by(source: str, stage: str, up: bool | None = None) -> Callable[[list[Any]], bool]:
    def wanted(event: list[Any]) -> bool:
        return event[5] == source and event[1] == stage and up in (None, event[2])

    return wanted


def test_hello_names_the_machine(lone_probe: Any) -> None:
    answer = lone_probe.ask("hello")
    assert answer["probe"] == 1
    assert len(answer["boot"]) == 36
    assert answer["netlink"] is True
    assert set(answer) == {"probe", "host", "python", "kernel", "boot", "netlink"}


def test_ports_are_described(links: KernelLinks, start_probe: Start) -> None:
    links.apply(frozenset({A0}), APART)
    ports = start_probe("a").ask("ports")
    assert set(ports) == {"fabric0", "fabric1"}
    assert [ports[port]["carrier"] for port in sorted(ports)] == [True, False]
    assert ports["fabric0"]["carrier_changes"] > ports["fabric1"]["carrier_changes"]
    assert ports["fabric0"]["driver"] is None
    assert len(ports["fabric0"]["mac"]) == 17


def test_every_flap_is_seen(links: KernelLinks, start_probe: Start) -> None:
    probe = start_probe("a")
    state = probe.watch("fabric0", "fabric1")["state"]
    assert state["fabric0"] == {"carrier": False, "firmware": None}
    changes: list[CarrierChange] = []
    events: list[Any] = []
    for number in range(50):
        changes += links.apply(frozenset({A0} if number % 2 == 0 else ()), APART).changes
        events += probe.await_event(by("sysfs", "carrier"))[1]
    polled = [event for event in events if event[5] == "sysfs"]
    assert [event[2] for event in polled] == [change.up for change in changes]
    assert len(polled) == 50
    for event, change in zip(polled, changes, strict=True):
        assert event[3] <= change.done_ns
        assert change.sent_ns <= event[4] <= change.done_ns + GENEROUS_NS
    announced = [event for event in events if event[5] == "netlink"]
    announced = announced or [probe.await_event(by("netlink", "carrier"))[0]]
    assert all(event[3] is None for event in announced)


def test_a_flap_while_the_probe_is_stopped_is_seen(links: KernelLinks, start_probe: Start) -> None:
    links.apply(frozenset({A0}), APART)
    probe = start_probe("a")
    probe.watch("fabric0", "fabric1")
    probe.drain()
    probe.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, probe.process.pid, os.WSTOPPED | os.WNOWAIT)
    down, up = links.apply(frozenset(), APART).changes + links.apply(frozenset({A0}), APART).changes
    probe.process.send_signal(signal.SIGCONT)
    answer = probe.ask("settle", ports={"fabric0": ["carrier"]}, timeout_ns=GENEROUS_NS)
    assert answer["settled"] is True
    found = [event for event in answer["events"] if by("sysfs", "carrier")(event)]
    assert [event[:3] for event in found] == [
        ["fabric0", "carrier", False],
        ["fabric0", "carrier", True],
    ]
    for event, change in zip(found, (down, up), strict=True):
        assert event[3] <= change.sent_ns < change.done_ns <= event[4]


@pytest.fixture
def pair(links: KernelLinks, start_probe: Start) -> Iterator[tuple[Any, Any, Any]]:
    """Probes of three servers with light, of which the first two are joined."""
    links.apply(LIT, JOINED)
    probes = start_probe("a"), start_probe("b"), start_probe("c")
    for probe in probes:
        probe.watch("fabric0", datagrams=True)
    for probe in probes[:2]:
        answer = probe.ask("settle", ports={"fabric0": ["datagram"]}, timeout_ns=GENEROUS_NS)
        assert answer["settled"] is True
        assert answer["missing"] == []
    yield probes
    for probe in probes:
        probe.ask("unwatch")


def test_the_end_of_requests_is_no_reply_to_those_that_wait(lone_probe: Any) -> None:
    """Its reader would take a lost supervisor for what it had asked for itself."""
    lone_probe.watch("lo")
    lone_probe.send("settle", ports={"lo": ["carrier"]}, timeout_ns=LONG)
    lone_probe.send("hello")
    assert lone_probe.read()["ok"]["probe"] == 1
    assert lone_probe.process.communicate(timeout=60)[0] == b""


def test_datagrams_flow_while_joined(links: KernelLinks, pair: tuple[Any, Any, Any]) -> None:
    a, b, c = pair
    links.apply(LIT, APART)
    sent = b.drain()["datagrams"]["fabric0"]["sent"]
    events: list[Any] = []

    def lost() -> bool:
        # A busy machine pauses the sender too: what counts is that the last event is a loss,
        # and that the sender has gone on since.
        events.extend(event for event in a.drain()["events"] if event[1] == "datagram")
        gone_on = b.drain()["datagrams"]["fabric0"]["sent"] > sent + 20
        return bool(gone_on and events and not events[-1][2])

    until(lost, SystemClock())
    down = events[-1]
    assert down[3] < down[4]
    assert down[5] == "udp"
    silent = a.drain()["datagrams"]["fabric0"]
    links.apply(LIT, JOINED)
    up, _ = a.await_event(by("udp", "datagram", up=True))
    assert down[3] < up[3] <= up[4]

    def more(what: str) -> bool:
        return bool(a.drain()["datagrams"]["fabric0"][what] > silent[what])

    until(lambda: more("received") and more("sent"), SystemClock())
    alone = c.drain()
    assert alone["datagrams"]["fabric0"]["received"] == 0
    assert [event for event in alone["events"] if event[1] == "datagram"] == []


def test_a_port_tells_whose_datagram_came_last(links: KernelLinks, start_probe: Start) -> None:
    links.apply(LIT, JOINED)
    a, b, c = (start_probe(name) for name in "abc")
    of_a, of_b, of_c = (p.watch("fabric0", datagrams=True)["tokens"]["fabric0"] for p in (a, b, c))

    def partners() -> list[int | None]:
        found = [probe.ask("partners")["fabric0"] for probe in (a, b, c)]
        return [None if each is None else each[0] for each in found]

    until(lambda: partners() == [of_b, of_a, None], SystemClock())
    began = a.ask("partners")["fabric0"][1]
    links.apply(LIT, frozenset({frozenset({A0, C0})}))
    # b was left by a, and has heard nobody since.
    until(lambda: partners() == [of_c, of_a, of_a], SystemClock())
    assert a.ask("partners")["fabric0"][1] > began


def test_a_sender_that_pauses_is_not_a_link_that_was_down(pair: tuple[Any, Any, Any]) -> None:
    a, b, _ = pair
    idle = a.drain()["datagrams"]["fabric0"]["idle"]
    b.process.send_signal(signal.SIGSTOP)
    _, paused = a.await_event(by("udp", "datagram", up=False))
    b.process.send_signal(signal.SIGCONT)
    up, resumed = a.await_event(by("idle", "datagram", up=True))
    # A busy machine pauses a sender too: each recovery is of the loss before it.
    losses = [event for event in paused + resumed if event[1:3] == ["datagram", False]]
    assert up[3] == max(event[3] for event in losses if event[5] == "udp" and event[4] <= up[4])
    assert a.drain()["datagrams"]["fabric0"]["idle"] > idle


def test_settle_waits_for_light_and_carrier(links: KernelLinks, start_probe: Start) -> None:
    probe = start_probe("a")
    probe.watch("fabric0", "fabric1")
    number = probe.send("settle", ports={"fabric0": ["carrier"]}, timeout_ns=GENEROUS_NS)
    links.apply(frozenset({A0}), APART)
    reply = probe.read()
    assert reply["id"] == number
    assert reply["ok"]["settled"] is True
    assert reply["ok"]["events"][0][:3] == ["fabric0", "carrier", True]
    assert reply["ok"]["datagrams"] == {}
    if not any(map(by("netlink", "carrier"), reply["ok"]["events"])):
        probe.await_event(by("netlink", "carrier"))
    nothing = {"settled": True, "missing": [], "events": [], "gaps": [], "steps": []}
    drained = probe.drain()
    drained.pop("clock")  # the kernel's own state, at each answer
    assert drained.pop("read") >= reply["ok"]["read"]
    assert drained == {**nothing, "late": [], "datagrams": {}, "departures": {}}


def test_settle_names_what_is_missing_and_serves_requests_meanwhile(
    links: KernelLinks, start_probe: Start
) -> None:
    probe = start_probe("a")
    probe.watch("fabric0", datagrams=True)
    stages = {"fabric0": ["carrier", "datagram"]}
    waiting = probe.send("settle", ports=stages, timeout_ns=300_000_000)
    asked = probe.send("hello")
    assert probe.read()["id"] == asked
    links.apply(frozenset({A0}), APART)
    reply = probe.read()
    assert reply["id"] == waiting
    assert reply["ok"]["settled"] is False
    assert reply["ok"]["missing"] == [["fabric0", "datagram"]]


def test_unwatch_ends_pending_requests(links: KernelLinks, start_probe: Start) -> None:
    probe = start_probe("a")
    probe.watch("fabric0")
    waiting = probe.send("settle", ports={"fabric0": ["carrier"]}, timeout_ns=GENEROUS_NS)
    ended = probe.send("unwatch")
    replies = {reply["id"]: reply for reply in (probe.read(), probe.read())}
    assert replies[waiting]["error"]["kind"] == "not_watching"
    assert replies[ended]["ok"] == {}
    probe.watch("fabric0")


def test_a_port_taken_away_is_down(
    brief_links: tuple[kernel.Namespaces, KernelLinks], start_probe: Start
) -> None:
    spaces, links = brief_links
    links.apply(frozenset({A0}), APART)
    probe = start_probe("a", spaces)
    probe.watch("fabric0")
    links.close()
    event, _ = probe.await_event(by("sysfs", "carrier"))
    assert event[2] is False


def test_bad_requests_are_refused_by_kind(links: KernelLinks, start_probe: Start) -> None:
    probe = start_probe("a")
    probe.write(b"{not json\n")
    reply = probe.read()
    assert reply["id"] is None
    assert reply["error"]["kind"] == "bad_json"
    probe.write(b"[]\n")
    assert probe.read()["error"]["kind"] == "bad_request"
    assert probe.refusal("dance") == "unknown_request"
    assert probe.refusal("settle", ports={}, timeout_ns=0) == "not_watching"
    assert probe.refusal("unwatch") == "not_watching"
    assert probe.refusal("partners") == "not_watching"
    assert probe.refusal("watch", ports=[], period_ns=1) == "bad_request"
    fabric0 = {"fabric0": {"rdma": None}}
    for period in (0, -1, True, "1", None, 10**12):
        assert probe.refusal("watch", ports=fabric0, period_ns=period) == "bad_request"
    for port in ("fabric9", "", "../net"):
        assert probe.refusal("watch", ports={port: {}}, period_ns=10**5) == "unknown_port"
    wrong = {"udp_port": 70_000, "period_ns": 10**6}
    assert probe.refusal("watch", ports=fabric0, period_ns=10**5, datagrams=wrong) == "bad_request"
    probe.watch("fabric0")
    assert probe.refusal("watch", ports=fabric0, period_ns=10**5) == "already_watching"
    for stages in (["datagram"], ["firmware"], [[]], "carrier "):
        assert probe.refusal("settle", ports={"fabric0": stages}, timeout_ns=0) == "unknown_stage"
    assert probe.refusal("settle", ports={}, timeout_ns=-1) == "bad_request"
    assert probe.ask("hello")["probe"] == 1


def test_the_end_of_stdin_ends_it(links: KernelLinks, start_probe: Start) -> None:
    probe = start_probe("a")
    probe.watch("fabric0", datagrams=True)
    probe.send("settle", ports={"fabric0": ["carrier"]}, timeout_ns=GENEROUS_NS)
    assert probe.close() == 0


def test_another_version_is_refused() -> None:
    tried = subprocess.run(
        [sys.executable, "-c", PROBE.bootstrap, "lightrig-probe", "2"],
        input=PROBE.packed(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert tried.returncode == 2
    assert "lightrig-probe 1" in tried.stderr
