"""Fabrics that published systems bring to `lightrig simulate`."""

import json

import pytest
from typer.testing import CliRunner

from lightrig.harness.cli.app import application

SMALL = """\
name: small
model: {layers: 4, width: 1024, hidden: 4096, vocabulary: 1, heads: 16}
parallelism: {data: 4, tensor: 2, pipeline: 2}
batch: {sequences: 16, length: 128}
device: {tera_operations: 1000000, memory_gb_per_s: 100000000}
"""
EXACT = "latency=0ns,endpoint=0ns,scale_up=1000000G,memory=10000000G,splits=1,holding=0"


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(SMALL, "utf-8")
    return path


def document(*arguments):
    done = CliRunner().invoke(application(), ["simulate", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_rings_of_infinitehbd_carry_tensor_parallelism(job):
    """6.4 Tbit/s a GPU (InfiniteHBD, section 6.1), and a fat tree for all else."""
    found = document(job, "infinitehbd:leaf=4,oversubscription=2")
    same = document(job, "fat-tree:scale_up=6400G,leaf=4,oversubscription=2")
    assert found["step_s"] == same["step_s"]
    assert found["step_s"] < document(job, "fat-tree:leaf=4,oversubscription=2")["step_s"]


def test_ports_of_railx_are_divided_by_traffic(job):
    """Bytes are 72 to 1, so that V1 / n1 + V2 / n2 is least for 3 and 1 of four ports.

    The first stage receives once the second has reduced its gradients and sent a message.
    """
    found = document(job, f"railx:scale_out=40G,ports=4,{EXACT}")
    sent = found["bytes"]
    assert sent["dp"] == pytest.approx(72 * sent["pp"], rel=1e-3)
    packet = document(job, f"railx:scale_out=40G,ports=4,{EXACT}", "--mode", "packet")["waits_s"]
    divided = found["waits_s"]
    assert divided["dp"] == pytest.approx(packet["dp"] * 4 / 3, rel=1e-3)
    messages = packet["receive"] - packet["dp"]
    assert divided["receive"] - divided["dp"] == pytest.approx(4 * messages, rel=1e-3)


@pytest.mark.parametrize(("name", "mode"), [("acos", "selected"), ("railx", "phases")])
def test_selections_that_nothing_hides_add_up(job, name, mode):
    """A step that only communicates waits for whole selections, one after another."""
    mode = ["--mode", mode]
    found = document(job, name, *mode, "--switching-time", "0..10s")
    slope = (found["curve"][-1]["step_s"] - found["curve"][-2]["step_s"]) / 9
    assert slope == pytest.approx(round(slope), rel=1e-6)
    assert 1 <= round(slope) <= found["changes"]
    packet = document(job, name, "--mode", "packet")
    assert found["step_s"] >= packet["step_s"]


EXPERTS = """\
name: experts
model: {{layers: 1, width: 1024, hidden: 16, vocabulary: 1, heads: 16, experts: {0}, active: 2}}
parallelism: {{data: {0}, expert: {0}}}
batch: {{sequences: {0}, length: 1024}}
device: {{tera_operations: 1000000, memory_gb_per_s: 100000000}}
"""


@pytest.mark.parametrize(
    ("experts", "mode", "longer"),
    [
        # One link to each of seven others, of eight links; two to each of three, of eight.
        (8, "selected", 8 / 7),
        (4, "selected", 8 / 6),
        # A cube of double links: a rank's four ways lead over two links of three, of six.
        (8, "torus", 12 / 7),
        (8, "packet", 1),
    ],
)
def test_all_to_alls_go_over_acos_graphs(tmp_path, experts, mode, longer):
    """Each rank sends (n - 1) / n of 2 x 1,024 x 1,024 bytes at 1.25 bytes a ns, four times.

    On the cube of 8 a pair is 12 / 7 links apart on average, and all links carry the same.
    """
    path = tmp_path / "experts.yaml"
    path.write_text(EXPERTS.format(experts), "utf-8")
    found = document(path, f"acos:scale_out=10G,{EXACT}", "--mode", mode)
    sent = 2 * 1024 * 1024 * (experts - 1) / experts / 1.25
    assert found["waits_s"]["ep"] * 1e9 == pytest.approx(4 * sent * longer, rel=1e-3)


def test_receivers_of_acos_are_drawn_alike_for_all_modes(tmp_path):
    """What is skewed is slower on each network, and the mesh of eight is 8 / 7 of even traffic at
    least; the answer states the draw."""
    path = tmp_path / "experts.yaml"
    path.write_text(EXPERTS.format(8), "utf-8")
    for mode in ("selected", "torus", "packet"):
        even = document(path, f"acos:{EXACT}", "--mode", mode)
        skewed = document(path, f"acos:skew=1,{EXACT}", "--mode", mode)
        assert skewed["waits_s"]["ep"] > even["waits_s"]["ep"]
        assert "exp(1 x)" in " ".join(skewed["assumptions"])
        assert "all-to-alls are even" in even["assumptions"]


@pytest.mark.parametrize(
    ("experts", "mode", "printed"),
    [(512, "selected", "at most 256"), (12, "torus", "power of two")],
)
def test_all_to_alls_that_acos_has_no_graph_for_are_refused(tmp_path, experts, mode, printed):
    path = tmp_path / "experts.yaml"
    path.write_text(EXPERTS.format(experts), "utf-8")
    done = CliRunner().invoke(application(), ["simulate", str(path), "acos", "--mode", mode])
    assert done.exit_code == 2
    assert printed in done.output


def test_ports_are_not_divided_among_three(tmp_path):
    path = tmp_path / "three.yaml"
    experts = SMALL.replace("heads: 16", "heads: 16, experts: 4, active: 2")
    path.write_text(experts.replace("data: 4", "data: 4, expert: 4"), "utf-8")
    done = CliRunner().invoke(application(), ["simulate", str(path), "railx"])
    assert done.exit_code == 2
    assert "divided between two kinds of communication, found dp, ep, pp" in done.output
