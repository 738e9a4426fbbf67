"""Every server reaches every other over whatever circuits there are, until the overlay closes."""

import sys
from collections.abc import Iterator
from itertools import permutations

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.jobs.bench.overlay import NotRoutedError, Overlay
from lightrig.harness.jobs.planning.routes import shortest_routes
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.testbeds import Testbed, load

# On a busy machine the kernel lets packets pass seconds after the carrier has come up, and a reply
# that takes another way back is lost without an error: so each address is tried again.
CONNECT = """
import socket, sys, time
end = time.monotonic() + 20
for address in sys.argv[1:]:
    reply = None
    while reply != "ConnectionRefusedError" and time.monotonic() < end:
        with socket.socket() as connection:
            connection.settimeout(1)
            try:
                connection.connect((address, 9))
            except OSError as error:
                reply = type(error).__name__
    print(reply)
"""


@pytest.fixture
def rings() -> Iterator[Bench]:
    if reason := kernel.available():
        pytest.skip(reason)
    bench = bind(load("testbeds/rings4.yaml"), "simulated", 1)
    yield bench
    bench.close()


def test_routes_follow_the_plan_and_are_removed(rings: Bench) -> None:
    fabric, plans, links = Fabric(rings), rings.testbed.plans, rings.testbed.links
    overlay = Overlay(rings)
    try:
        for name in ("ring", "matchings"):
            fabric.apply(plans[name])
            ways = overlay.route(links(name))
            assert set(permutations(overlay.servers, 2)) == {
                (source, sink) for source, hops in ways.items() for sink in hops
            }
            for source in ("server0", "server1"):
                server = overlay.servers[source]
                peers = [at for sink, at in overlay.addresses.items() if sink != source]
                printed = server.commands.run([sys.executable, "-c", CONNECT, *peers]).stdout
                assert printed.split() == 3 * ["ConnectionRefusedError"]
    finally:
        overlay.close()
    for server in overlay.servers.values():
        shown = server.commands.run(["ip", "-brief", "address"]).stdout
        assert "198.18" not in shown
        assert "lightrig" not in shown


def test_simulated_servers_forward_nothing(opus: Testbed) -> None:
    bench = bind(opus, "simulated", 1)
    try:
        with pytest.raises(NotRoutedError, match=r"server0, .* are simulated"):
            Overlay(bench)
    finally:
        bench.close()


@pytest.fixture
def opus() -> Testbed:
    return load("testbeds/opus.yaml")


@pytest.mark.long
def test_each_address_is_led_its_own_way(rings: Bench) -> None:
    """As the ranks of two rails have it, whose circuits change apart from each other."""
    fabric, links = Fabric(rings), rings.testbed.links(rings.testbed.plans["ring"])
    fabric.apply(rings.testbed.plans["ring"])
    overlay = Overlay(rings, ["lightrig0", "lightrig1"])
    try:
        ways = shortest_routes(list(overlay.servers), links)
        chain = shortest_routes(list(overlay.servers), sorted(links)[1:])
        overlay.follow(ways, chain)
        shown = overlay.servers["server0"].commands.run(["ip", "route"]).stdout.splitlines()
        leaving = {line.split()[0]: line for line in shown if line.startswith("198.18")}
        for network, hops in (("198.18.0", ways), ("198.18.1", chain)):
            for sink, hop in hops["server0"].items():
                netdev = next(
                    spec.netdev for spec in rings.testbed.nic_ports if spec.port == hop.port
                )
                line = leaving[f"{network}.{int(sink[-1]) + 1}"]
                assert f"dev {netdev}" in line
                assert line.rstrip().split("src ")[1].split()[0] == f"{network}.1"
    finally:
        overlay.close()
