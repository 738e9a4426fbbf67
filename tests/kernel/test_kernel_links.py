"""The kernel's carriers and packets follow what is applied."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.simulated.namespaces.kernel_links import (
    KernelLinks,
    KernelLinksError,
    KernelPort,
)

Carrier = Callable[[str, str], bool]
A0, B0, C0 = "a.fabric0", "b.fabric0", "c.fabric0"
A1, B1 = "a.fabric1", "b.fabric1"


def link(*keys: str) -> frozenset[str]:
    return frozenset(keys)


def bridges(namespaces: kernel.Namespaces, run: Callable[..., str]) -> set[frozenset[str]]:
    """The plant's ports by the bridge they are in."""
    script = "for port in /sys/class/net/p*; do echo $port $(readlink $port/master); done"
    members: dict[str, set[str]] = {}
    for line in run(namespaces.pid("plant"), "sh", "-c", script).splitlines():
        port, *bridge = line.split()
        if bridge:
            members.setdefault(bridge[0], set()).add(port.rsplit("/", 1)[1])
    return {frozenset(ports) for ports in members.values()}


def test_ports_are_dark_at_first(links: KernelLinks, carrier: Carrier) -> None:
    assert not carrier("a", "fabric0")
    assert links.apply(frozenset(), frozenset())[:2] == ([], [])


def test_both_ends_of_a_port_have_different_indices(
    links: KernelLinks, namespaces: kernel.Namespaces, run: Callable[..., str]
) -> None:
    """Else the kernel tells of carriers, and starts to send, up to a second late."""
    for netdev in ("fabric0", "fabric1"):
        base = f"/sys/class/net/{netdev}"
        here, there = run(namespaces.pid("a"), "cat", f"{base}/ifindex", f"{base}/iflink").split()
        assert here != there


def test_carrier_follows_light_joined_or_not(links: KernelLinks, carrier: Carrier) -> None:
    changes = links.apply(frozenset({A0, B0, C0}), frozenset({link(A0, B0)})).changes
    assert [(change.key, change.up) for change in changes] == [(A0, True), (B0, True), (C0, True)]
    assert all(change.sent_ns < change.done_ns for change in changes)
    assert [carrier(server, "fabric0") for server in "abc"] == [True, True, True]
    assert not carrier("a", "fabric1")
    changes = links.apply(frozenset({B0, A1}), frozenset()).changes
    assert [(change.key, change.up) for change in changes] == [
        (A0, False),
        (C0, False),
        (A1, True),
    ]
    assert [carrier(server, "fabric0") for server in "abc"] == [False, True, False]
    assert carrier("a", "fabric1")


def test_ports_of_a_pair_are_ready_after_they_are_switched(links: KernelLinks) -> None:
    changes, ready, at = links.apply(frozenset({A0, B0, C0}), frozenset({link(A0, B0)}))
    lit = {change.key: change for change in changes}
    sides = {(key, side) for key in (A0, B0) for side in ("bridge", "server")}
    assert {(one.key, one.side) for one in ready} == sides
    for one in ready:
        assert at[0] <= lit[one.key].sent_ns <= one.not_yet_ns <= one.since_ns
        assert lit[one.key].done_ns <= at[1]


def test_the_agent_is_urgent_where_the_account_may(links: KernelLinks) -> None:
    """Else a busy machine makes the simulation late."""
    urgent = [sys.executable, "-c", "import os; os.setpriority(os.PRIO_PROCESS, 0, -20)"]
    may = subprocess.run(urgent, capture_output=True, check=False).returncode == 0
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    agents = [
        int(p) for p in children if b"kernel_agent" in Path(f"/proc/{p}/cmdline").read_bytes()
    ]
    assert agents
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    for agent in agents:
        # The kernel asks for the right in the first user namespace; the agent may be in another.
        here = os.readlink(f"/proc/{agent}/ns/user") == os.readlink("/proc/self/ns/user")
        assert os.getpriority(os.PRIO_PROCESS, agent) == (-20 if may and here else usual)


def test_only_differences_are_applied(links: KernelLinks) -> None:
    state = frozenset({A0, B0}), frozenset({link(A0, B0)})
    assert len(links.apply(*state).changes) == 2
    assert links.apply(*state)[:2] == ([], [])


@pytest.mark.parametrize(
    "sequence",
    [
        [{link(A0, B0), link(A1, B1)}, {link(A0, B1), link(A1, B0)}],
        [{link(A0, B0), link(C0, B1)}, {link(A0, C0), link(B0, B1)}, set(), {link(A1, C0)}],
        [{link(A0, B0)}, {link(B0, C0), link(A0, A1)}, {link(A0, B0), link(A1, C0)}],
    ],
)
def test_links_are_the_bridges(
    links: KernelLinks,
    namespaces: kernel.Namespaces,
    run: Callable[..., str],
    sequence: list[set[frozenset[str]]],
) -> None:
    number = {A0: "p0", A1: "p1", B0: "p2", B1: "p3", C0: "p4"}
    for joined in sequence:
        links.apply(frozenset(number), frozenset(joined))
        expected = {frozenset(number[key] for key in ends) for ends in joined}
        assert bridges(namespaces, run) == expected


def test_a_connection_reaches_the_joined_port_only(
    links: KernelLinks, namespaces: kernel.Namespaces, run: Callable[..., str]
) -> None:
    send = (
        "import socket,sys\ns=socket.socket()\ns.settimeout(float(sys.argv[2]))\n"
        "try: s.connect((sys.argv[1],9))\n"
        "except OSError as error: print(type(error).__name__)"
    )
    lit = frozenset({A0, B0, C0})
    for joined, refused in ((B0, "192.0.2.2"), (C0, "192.0.2.3")):
        links.apply(lit, frozenset({link(A0, joined)}))
        for address in ("192.0.2.2", "192.0.2.3"):
            # An address that was asked for in vain is asked for again only a second later.
            seconds = "10" if address == refused else "0.3"
            printed = run(
                namespaces.pid("a"), sys.executable, "-I", "-S", "-c", send, address, seconds
            )
            assert (printed == "ConnectionRefusedError\n") == (address == refused)


def test_a_packet_switch_connects_all_its_ports(
    links: KernelLinks, namespaces: kernel.Namespaces, run: Callable[..., str]
) -> None:
    number = {A0: "p0", A1: "p1", B0: "p2", B1: "p3", C0: "p4"}
    lit = frozenset(number)
    for joined, at in (
        ({link(A0, B0)}, {A1, B1, C0}),
        ({link(A0, C0)}, {A1, B1}),
        (set(), lit),
        ({link(A1, B1)}, {C0}),
    ):
        links.apply(lit, frozenset(joined), {"eps": frozenset(at)})
        expected = {frozenset(number[key] for key in ends) for ends in (*joined, at)}
        assert bridges(namespaces, run) == expected
    links.apply(lit, frozenset())
    assert bridges(namespaces, run) == set()


def test_an_impossible_state_is_refused(links: KernelLinks) -> None:
    for lit, joined, text in (
        ({"d.fabric0"}, set(), "no such port: d.fabric0"),
        (set(), {link(A0)}, "two ports"),
        (set(), {link(A0, B0), link(A0, C0)}, "one link"),
    ):
        with pytest.raises(KernelLinksError, match=text):
            links.apply(frozenset(lit), frozenset(joined))
    for at, text in (({"tor": frozenset()}, "switch: tor"), ({"eps": frozenset({A0})}, "one link")):
        with pytest.raises(KernelLinksError, match=text):
            links.apply(frozenset(), frozenset({link(A0, B0)}), at)
    links.apply(frozenset({A0}), frozenset())


def test_a_refused_port_is_named_and_leaves_nothing(
    possible: None, run: Callable[..., str]
) -> None:
    with kernel.Namespaces(["a", "plant"]) as spaces:
        good = KernelPort("a", spaces.pid("a"), "fabric0", "192.0.2.1/24")
        bad = KernelPort("a", spaces.pid("a"), "fabric1", "192.0.2.300/24")
        with pytest.raises(KernelLinksError, match=r"port a\.fabric1 cannot be made"):
            KernelLinks(spaces.pid("plant"), [good, bad])
        for name in ("a", "plant"):
            assert run(spaces.pid(name), "ls", "/sys/class/net") == "lo\n"


@pytest.mark.long
def test_a_closed_agent_removes_its_links_and_raises(
    brief_links: tuple[kernel.Namespaces, KernelLinks], run: Callable[..., str]
) -> None:
    spaces, links = brief_links
    count = (
        "import pyroute2\nwith pyroute2.IPRoute() as route:\n"
        "    print([dict(q['attrs'])['TCA_KIND'] for q in route.get_qdiscs()].count('tbf'))"
    )
    for name in ("a", "plant"):  # the rate limits both ways
        assert run(spaces.pid(name), sys.executable, "-c", count) == "1\n"
    links.close()
    with pytest.raises(KernelLinksError, match="ended"):
        links.apply(frozenset(), frozenset())
    for name in ("a", "plant"):
        assert run(spaces.pid(name), "ls", "/sys/class/net") == "lo\n"


def test_an_agent_that_cannot_start_is_reported_with_its_reason() -> None:
    """A namespace's holder may have ended, or a container have no root of its own."""
    holder = subprocess.Popen([sys.executable, "-c", ""])
    holder.wait()
    with pytest.raises(KernelLinksError) as caught:
        KernelLinks(holder.pid, [])
    assert "has ended: cannot run" in str(caught.value)
    assert f"in the namespaces of {holder.pid}" in str(caught.value)
