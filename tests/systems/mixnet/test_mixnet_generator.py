"""Generated regions of MixNet: counts of §4.2 and §6, rings on each circuit switch."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.systems.mixnet.generator import RegionsError, render
from lightrig.harness.systems.mixnet.planning.region import Region
from lightrig.instruments.jobs.flows.of_testbed import fabric_links
from lightrig.testbeds import Testbed, load


def made(tmp_path: Path, *sizes: int, **options: Any) -> Testbed:
    (tmp_path / "region.yaml").write_text(render(*sizes, **options))
    return load(tmp_path / "region.yaml")


@pytest.mark.parametrize(
    ("servers", "gpus", "optical", "packet", "regions"),
    [(4, 8, 3, 1, 1), (6, 2, 2, 1, 1), (5, 4, 3, 2, 1), (4, 8, 2, 2, 3), (2, 1, 1, 1, 2)],
)
def test_a_region_s_servers_meet_at_its_switch(
    tmp_path: Path, servers: int, gpus: int, optical: int, packet: int, regions: int
) -> None:
    import networkx as nx

    testbed = made(tmp_path, servers, gpus, optical, packet, regions)
    assert len(testbed.servers) == servers * regions
    assert len(testbed.optical_switches) == regions
    for number, switch in enumerate(testbed.optical_switches):
        there = Region.of(testbed, switch)
        names = {f"server{n}" for n in range(number * servers, (number + 1) * servers)}
        assert {server.name for server in there.servers if server.optical} == names
        for server in there.servers:
            assert len(server.optical) == (optical if server.name in names else 0)
            assert (len(server.packet), server.gpu_count) == (packet, gpus)
        links = [
            (link.a.owner, link.b.owner)
            for link in testbed.links("uniform")
            if link.a.owner in names
        ]
        graph = nx.MultiGraph(links)
        assert set(graph) <= names
        full = optical if servers % 2 == 0 else optical // 2 * 2
        assert min(degree for _, degree in graph.degree()) == full


def test_the_prototype_s_region_has_its_ports(tmp_path: Path) -> None:
    """Four servers with 32 GPUs: 12 NICs on the circuit switch and 4 on Ethernet (§6)."""
    testbed = made(tmp_path, 4, 8, 3, 1)
    assert len(testbed.cabling.fibers) == 2 * (12 + 4)


def test_the_baseline_puts_all_nics_on_ethernet(tmp_path: Path) -> None:
    testbed = made(tmp_path, 6, 2, 2, 1, baseline=True, namespaces=True)
    assert testbed.only_local_namespaces
    ((_, circuits),) = testbed.plans["packet"].circuits.items()
    assert len(circuits) == 2 * 6 * 2
    assert not list(testbed.links("packet"))


def test_the_largest_switch_holds_what_the_paper_states(tmp_path: Path) -> None:
    """96 servers with six optical NICs on 576 ports (Table 2); one more does not fit."""
    testbed = made(tmp_path, 96, 8, 6, 2)
    assert len(testbed.plans["uniform"].circuits["ocs"]) == 576
    with pytest.raises(RegionsError, match=r"582 ports .* at most 576"):
        render(97, 8, 6, 2)


@pytest.mark.parametrize(
    ("sizes", "options", "why"),
    [
        ((1, 8, 3, 1), {}, "one server in a region"),
        ((64, 1, 3, 1), {"namespaces": True}, "256 NIC ports of namespaces"),
        ((96, 8, 6, 2), {"baseline": True}, "1152 ports"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    sizes: tuple[int, ...], options: dict[str, bool], why: str
) -> None:
    with pytest.raises(RegionsError, match=why):
        render(*sizes, **options)


@pytest.mark.parametrize("switch", ["awgr", "circulator"])
def test_switches_that_make_no_circuits_are_refused_by_name(switch: str) -> None:
    """§9 names both; neither has circuits that a controller sets."""
    command = ["generate", "mixnet", "--switch", switch]
    done = CliRunner().invoke(application("generate"), command)
    assert done.exit_code == 2, done.output
    assert f"--switch {switch}: " in done.stderr


def test_rails_have_a_packet_switch_for_the_nics_of_each_number(tmp_path: Path) -> None:
    """Of six servers with three NICs, each rail has a port of every server."""
    testbed = made(tmp_path, 6, 2, 2, 1, baseline=True, namespaces=True, rails=True)
    links = fabric_links(testbed, testbed.plans["packet"])
    ends = sorted(
        (one.a, one.b) if one.b.owner.startswith("eps") else (one.b, one.a) for one in links
    )
    assert [(nic.owner, nic.name, eps.owner) for nic, eps in ends] == [
        (f"server{server}", f"nic{nic}", f"eps{nic}") for server in range(6) for nic in range(3)
    ]


def test_nics_on_packets_may_have_a_rate_of_their_own(tmp_path: Path) -> None:
    testbed = made(tmp_path, 4, 2, 2, 1, namespaces=True, rates=("4000k", "4499k"))
    rates = [nic.rate_bps for _, nic in testbed.nics][:3]
    assert rates == [4_000_000, 4_000_000, 4_499_000]
