"""Steps on regions whose circuits `CircuitControl` changes, beside what arithmetic gives."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.systems.mixnet.planning.simulated_fabric import (
    Regions,
    exchange_time,
    expert_load,
)
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.description import Described
from lightrig.harness.workloads.fabrics import Rates

ROOT = Path(__file__).parents[3]
MOE = """\
name: experts
model: {layers: 2, width: 1024, hidden: 4096, vocabulary: 8, heads: 16, experts: 4, active: 2}
parallelism: {data: 4, tensor: 2, expert: 4}
batch: {sequences: 8, length: 128}
device: {tera_operations: 1000000, memory_gb_per_s: 100000000}
"""
EXACT = "latency=0ns,endpoint=0ns,scale_up=1000000G,memory=1000000G,splits=1,holding=0"


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(MOE, "utf-8")
    return path


def document(*arguments):
    done = CliRunner().invoke(application(), ["simulate", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_each_pair_takes_its_circuits_and_the_rest_the_packet_nics():
    """Pair 0-1 has two links: 6 / 2. Server 2 sends 8 + 3 by packets, at half a link: 22."""
    traffic = np.array([[0, 6, 2], [4, 0, 1], [8, 3, 0]], dtype=float)
    links = np.array([[0, 2, 0], [2, 0, 0], [0, 0, 0]])
    assert exchange_time(traffic, links, 0.5) == 22
    assert exchange_time(traffic, links, 11) == 3
    lit = np.array([[0, 1, 4], [1, 0, 1], [4, 1, 0]])
    assert exchange_time(traffic, lit, 1) == 6
    assert exchange_time(traffic, lit, 0) == 6
    assert exchange_time(traffic, links, 0) == float("inf")


def test_servers_without_circuits_and_packet_nics_are_refused(job):
    done = CliRunner().invoke(
        application(), ["simulate", str(job), "mixnet:optical=1,packet=0", "--mode", "static"]
    )
    assert done.exit_code == 2
    assert "no circuit, and they have no packet NIC" in done.output


def test_loads_sum_to_one_and_spread_with_skew():
    even, skewed = expert_load(8, 0, 3), expert_load(8, 1.5, 3)
    assert even == pytest.approx(np.full(8, 1 / 8))
    assert skewed.sum() == pytest.approx(1)
    assert skewed.max() > 2 * even.max()
    assert (expert_load(8, 1.5, 4) != skewed).any()


def test_even_loads_on_a_full_mesh(job):
    """Each server sends a quarter of 256 tokens x 2 experts x 1,024 bytes to each other server,
    in 4 exchanges of 2 layers, over a circuit of 10 Gbit/s = 1.25 bytes a ns. Nothing changes."""
    found = document(job, f"mixnet:scale_out=10G,optical=3,packet=1,skew=0,{EXACT}")
    assert found["changes"] == 0
    part = 256 * 1024 * 2 / 4
    assert found["waits_s"]["ep"] * 1e9 == pytest.approx(8 * part / 1.25, rel=1e-4)


def test_what_has_no_circuit_shares_the_packet_nics(job):
    """One circuit a server, to one of three: the other two parts go through one packet NIC."""
    found = document(job, f"mixnet:scale_out=10G,optical=1,packet=1,skew=0,{EXACT}")
    part = 256 * 1024 * 2 / 4
    assert found["waits_s"]["ep"] * 1e9 == pytest.approx(8 * 2 * part / 1.25, rel=1e-4)


def test_blocked_changes_are_on_the_critical_path(job):
    """Of two layers: before each dispatch, and before the first layer's backward exchanges. Layers
    have other loads, so that with one circuit a server each change is one."""
    arguments = (job, f"mixnet:scale_out=10G,optical=1,skew=3,{EXACT}", "--mode", "block")
    found = document(*arguments, "--switching-time", "0..10s")
    slope = (found["curve"][-1]["step_s"] - found["curve"][-2]["step_s"]) / 9
    assert 1 <= found["changes"] <= 3
    assert slope == pytest.approx(found["changes"], rel=1e-6)
    assert found["waits_s"].get("circuits", 0) == 0
    # The backward change begins while gradients are still reduced, which hides a little of it.
    later = document(*arguments, "--switching-time", "1s")
    assert later["waits_s"]["circuits"] == pytest.approx(found["changes"], rel=5e-3)


def test_circuits_are_as_good_as_their_number(job):
    """With as many circuits as pairs and skew, the static plan of the mean is never better than
    circuits that follow each layer for nothing."""
    fabric = f"mixnet:scale_out=10G,optical=9,skew=3,{EXACT}"
    followed = document(job, fabric, "--mode", "block", "--switching-time", "0..1us")
    static = document(job, fabric, "--mode", "static")
    assert followed["step_s"] < static["step_s"]
    assert "drawn, as exp(3 x)" in " ".join(static["assumptions"])


def test_packets_go_straight_to_their_target(job):
    """Three quarters of what a server's rank puts in, at its own rate: no rank passes it on."""
    found = document(job, f"mixnet:scale_out=10G,skew=0,{EXACT}", "--mode", "packet")
    sent = 256 * 1024 * 2 / 2 * 3 / 4
    assert found["waits_s"]["ep"] * 1e9 == pytest.approx(8 * sent / 1.25, rel=1e-4)


def test_all_modes_carry_the_same_loads(job):
    """Servers' experts take 4, 2, 1 and 1 of 8 parts of 2 x 256 tokens of 1,024 bytes from each.

    The first server receives 4 / 8 from each of three others: on packets 3 / 2 of what one sends,
    by both ranks at 1.25 bytes a ns each. A full mesh of circuits of 1.25: its 4 / 8 on one.
    """
    workload = Described(job).workload(fold_data=False)
    stated = Regions(Rates(1.25, 1e6, Timing()), 1.25, 3, 1, 0.0, loads=(4, 2, 1, 1))
    even = replace(stated, loads=())

    def waited(fabric, mode):
        of = Described(job).workload(fold_data=fabric.folds(mode))
        return fabric.simulate(of, mode, 0).waits[0]["ep"]

    sent = 2 * 256 * 1024
    assert waited(stated, "packet") == pytest.approx(8 * 3 * sent / 2 / (2 * 1.25), rel=1e-2)
    assert waited(even, "packet") == pytest.approx(8 * 3 * sent / 4 / (2 * 1.25), rel=1e-2)
    assert waited(stated, "static") == pytest.approx(8 * sent / 2 / 1.25, rel=1e-2)
    assert "stated: 4, 2, 1, 1" in " ".join(stated.assumptions("packet"))
    # Without circuits and with as many packet NICs as ranks a server is one on packet switches.
    drawn = replace(stated, loads=(), skew=1.5)
    steps = [
        replace(drawn, optical=0, packet=2).simulate(workload, "static", 0).step,
        drawn.simulate(workload, "packet", 0).step,
    ]
    assert steps[0] == steps[1] > even.simulate(workload, "packet", 0).step


def test_micro_batches_mix_the_calendars_exchanges(tmp_path):
    path = tmp_path / "micro.yaml"
    path.write_text(MOE.replace("expert: 4}", "expert: 4, micro_batches: 2}"), "utf-8")
    done = CliRunner().invoke(application(), ["simulate", str(path), "mixnet"])
    assert done.exit_code == 2
    assert "circuits and drawn loads are of steps of one micro-batch" in done.output
    packet = ("simulate", str(path), "mixnet:skew=0", "--mode", "packet")
    assert CliRunner().invoke(application(), [*packet]).exit_code == 0


def test_the_testbed_file_is_its_region(job):
    """Three NICs of each server on the Polatis and one on Ethernet (MixNet, section 6)."""
    found = document(job, ROOT / "testbeds/mixnet.yaml")
    assert found["mode"] == "block"
    named = document(job, "mixnet:optical=3,packet=1,link=100G,scale_out=50G")
    assert found["step_s"] == named["step_s"]
    assert found["step_s"] != document(job, "mixnet:link=100G,scale_out=50G")["step_s"]
    assert "links of 100 Gbit/s and 8 ranks a server" in found["assumptions"][0]


def test_servers_have_nics_of_their_own_and_loads_of_their_own(job):
    """Without circuits all goes over packets: what a server sends to three, a quarter each, over
    1.25 bytes a ns. Draws differ, and so do servers whose loads scatter."""
    workload = Described(job).workload(fold_data=False)
    rates = Rates(1.25, 1e6, Timing())

    def waited(optical, packet=1.0, skew=0.0, **more):
        fabric = Regions(rates, 1.25, optical, packet, skew, **more)
        return fabric.simulate(workload, "static", 0).waits[0]["ep"]

    part = 256 * 1024 * 2 / 4
    assert waited(0) == pytest.approx(8 * 3 * part / 1.25, rel=1e-2)
    assert waited(0, packet=1.5) == pytest.approx(8 * 2 * part / 1.25, rel=1e-2)
    assert waited((0, 2, 2, 2)) == pytest.approx(8 * 3 * part / 1.25, rel=1e-2)
    assert waited((3, 3, 3, 3)) == pytest.approx(8 * part / 1.25, rel=1e-2)
    assert waited(3, skew=0.5) != waited(3, skew=0.5, draw=1)
    assert waited(3) < waited(3, scatter=0.3)
    assert Regions(rates, 1.25, (0, 3), 1, 0).bill(workload, "block") is None
    assert Regions(rates, 12.5, 3, 1.5, 0).bill(workload, "block") is None
    assert Regions(rates, 12.5, 3, 1, 0).bill(workload, "block") is not None
