"""The driver of a Linux server that is a network namespace of this machine."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_time import LONG

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.capabilities import PortWatch
from lightrig.instruments.core.errors import DisconnectedError
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks, KernelPort
from lightrig.instruments.wire.namespace import NamespaceShell

PORT = "fabric0"
PAIR = frozenset({f"a.{PORT}", f"b.{PORT}"})


@pytest.fixture(scope="module")
def spaces() -> Iterator[kernel.Namespaces]:
    if reason := kernel.available():
        pytest.skip(reason)
    with kernel.Namespaces(["a", "b", "plant"]) as made:
        yield made


@pytest.fixture(scope="module")
def links(spaces: kernel.Namespaces) -> Iterator[KernelLinks]:
    ports = [
        KernelPort(name, spaces.pid(name), PORT, f"192.0.2.{number}/24")
        for number, name in enumerate("ab", 1)
    ]
    with KernelLinks(spaces.pid("plant"), ports) as made:
        yield made


@pytest.fixture
def pair(spaces: kernel.Namespaces, links: KernelLinks) -> Iterator[list[LinuxServer]]:
    links.apply(frozenset(), frozenset())
    servers = [
        LinuxServer(name, NamespaceShell(spaces.pid(name)), SystemClock(), {}) for name in "ab"
    ]
    yield servers
    for server in servers:
        server.close()


def probe(spaces: kernel.Namespaces, name: str) -> int | None:
    """Return the process of the probe that runs in a server's namespace; None without one."""
    space = os.readlink(f"/proc/{spaces.pid(name)}/ns/net")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if (
                words[1:3] == [b"-u", b"-c"]  # not what supervises it
                and b"lightrig-probe" in words
                and os.readlink(process / "ns/net") == space
            ):
                return int(process.name)
    return None


def test_carrier_and_datagrams_are_seen_on_this_machines_clock(
    pair: list[LinuxServer], links: KernelLinks
) -> None:
    for server in pair:
        assert server.identity().manufacturer == "Linux"
        server.watch([PortWatch(PORT)], period=100_000, datagram_period=1_000_000)
    waiting = [server.settle({PORT: ["carrier", "datagram"]}, timeout=LONG) for server in pair]
    changes = {change.key: change for change in links.apply(PAIR, frozenset({PAIR})).changes}
    for name, settlement in zip("ab", waiting, strict=True):
        settled = settlement.result()
        assert settled.missing == ()
        (carrier,) = [event for event in settled.events if event.stage == "carrier"]
        change = changes[f"{name}.{PORT}"]
        assert carrier.up
        assert carrier.source == "sysfs"
        assert carrier.at.earliest <= change.done_ns
        assert change.sent_ns <= carrier.at.latest
        datagram = next(event for event in settled.events if event.stage == "datagram")
        assert datagram.up
        assert datagram.source == "udp"
        assert {event.source for event in settled.cross_checks} <= {"netlink"}
        assert settled.datagrams[PORT][1] > 0


def test_a_stopped_namespace_program_ends_every_wait(
    pair: list[LinuxServer], spaces: kernel.Namespaces
) -> None:
    server = pair[0]
    server.watch([PortWatch(PORT)], period=1_000_000, datagram_period=None)
    waiting = server.settle({PORT: ["carrier"]}, timeout=LONG)
    running = probe(spaces, "a")
    assert running is not None
    os.kill(running, signal.SIGKILL)
    with pytest.raises(DisconnectedError, match="the program ended"):
        waiting.result()
    assert server.identity().manufacturer == "Linux"


def test_ended_namespace_is_reported() -> None:
    if reason := kernel.available():
        pytest.skip(reason)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    server = LinuxServer("ended", NamespaceShell(ended.pid), SystemClock(), {})
    with contextlib.closing(server), pytest.raises(DisconnectedError, match="ended") as lost:
        server.identity()
    assert "because" in str(lost.value)


def test_closing_leaves_no_program_behind(
    pair: list[LinuxServer], spaces: kernel.Namespaces
) -> None:
    for server in pair:
        server.watch([PortWatch(PORT)], period=1_000_000, datagram_period=1_000_000)
    assert None not in [probe(spaces, name) for name in "ab"]
    for server in pair:
        server.close()
        server.close()
    assert [probe(spaces, name) for name in "ab"] == [None, None]
