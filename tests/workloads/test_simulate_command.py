"""`lightrig simulate`: what it answers, and what it says of bad input."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lightrig.harness.cli.app import application

ROOT = Path(__file__).parents[2]
SMALL = """\
name: small
model: {layers: 4, width: 1024, hidden: 4096, vocabulary: 1000, heads: 16}
parallelism: {data: 2, tensor: 2, pipeline: 2}
batch: {sequences: 8, length: 128}
device: {tera_operations: 100, memory_gb_per_s: 1000}
"""


@pytest.fixture
def job(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def simulate(*arguments):
    return CliRunner().invoke(application(), ["simulate", *map(str, arguments)])


def document(*arguments):
    done = simulate(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_example_is_the_released_step():
    """128 H200 at 100 GiB/s and 450 GiB/s, circuits at 10 ms: released as 10,897.x ms."""
    rates = "scale_out=858.993459200G,scale_up=3865.470566400G,latency=936ns"
    found = document(ROOT / "examples/workloads/gpt.yaml", f"opus:{rates}", "--mode", "packet")
    assert found["step_s"] == pytest.approx(10.691283735, rel=2e-5)
    assert found["compute_s"] == pytest.approx(1.814929112)
    assert found["computed"] is True
    assert found["folded"] == {"TP": 8, "DP": 4}
    assert found["ranks"] == 128


def test_a_curve_rises_by_the_changes_that_the_step_waits_for(job):
    """Where switching takes all the time, a step grows by a switching time for each such change."""
    found = document(job, "opus", "--mode", "archived-on-demand", "--switching-time", "0..10s")
    times = [point["switching_s"] for point in found["curve"]]
    steps = [point["step_s"] for point in found["curve"]]
    assert times == [0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10]
    assert steps == sorted(steps)
    # Two stages: 3 PP - 2 = 4 changes on the critical path at large times, as the released sweeps.
    assert (steps[-1] - steps[-2]) / 9 == pytest.approx(4, rel=1e-3)


def test_comparisons_are_modes_of_the_fabric(job):
    found = document(job, "opus", "--compare", "packet,one-shot")
    assert set(found["compared"]) == {"packet", "one-shot"}
    packet = found["compared"]["packet"]
    assert packet["more"] == pytest.approx(found["step_s"] / packet["step_s"] - 1)
    assert found["changes_on_critical_path"] > 0


def test_an_oversubscribed_tree_is_slower_where_rings_leave_the_leaf(job):
    within = document(job, "fat-tree:oversubscription=8,leaf=8,scale_out=10G")
    across = document(job, "fat-tree:oversubscription=8,leaf=2,scale_out=10G")
    packet = document(job, "fat-tree:scale_out=10G", "--mode", "packet")
    assert packet["step_s"] == pytest.approx(within["step_s"], rel=0.01)
    assert across["step_s"] > 1.5 * within["step_s"]
    up = [one["bytes"] for one in across["links"] if one["link"][0] == "up"]
    assert sum(up) > 0
    assert not [one for one in within["links"] if one["link"][0] == "up"]


def test_a_network_that_does_not_matter_is_said(tmp_path):
    slow = tmp_path / "slow.yaml"
    slow.write_text(SMALL.replace("tera_operations: 100", "tera_operations: 0.001"), "utf-8")
    assert document(slow, "fat-tree")["network_matters"] is False
    assert "does not matter here" in simulate(slow, "fat-tree").stdout
    assert document(slow, "fat-tree:scale_out=100k")["network_matters"] is True


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_micro_batches_overlap_stages(tmp_path, schedule):
    """(m + p - 1) / m of the compute, for m micro-batches over p stages."""
    path = tmp_path / "micro.yaml"
    text = SMALL.replace(
        "tensor: 2, pipeline: 2", f"pipeline: 2, micro_batches: 4, schedule: {schedule}"
    )
    text = text.replace("vocabulary: 1000", "vocabulary: 1").replace("length: 128", "length: 12800")
    path.write_text(text.replace("memory_gb_per_s: 1000", "memory_gb_per_s: 100000000"), "utf-8")
    rates = "scale_out=1000000G,scale_up=1000000G,latency=0ns,endpoint=0ns,memory=1000000G"
    found = document(path, f"fat-tree:{rates}", "--mode", "packet")
    assert found["step_s"] / found["compute_s"] == pytest.approx((4 + 1) / 4, rel=0.005)


def test_experts_exchange_tokens(tmp_path):
    path = tmp_path / "experts.yaml"
    text = SMALL.replace("heads: 16", "heads: 16, experts: 4, active: 2").replace(
        "data: 2", "data: 2, expert: 2"
    )
    path.write_text(text, "utf-8")
    found = document(path, "fat-tree")
    # 4 exchanges a layer of 512 tokens x 1,024 / 2, to 2 experts each, of which half stays; 8
    # ranks of 2 layers.
    assert found["bytes"]["ep"] == 8 * 2 * 4 * (512 * 1024 // 2 * 2) // 2


@pytest.mark.parametrize("shared", [2, 4])
def test_gradients_of_experts_are_reduced_among_those_that_have_the_same(tmp_path, shared):
    """Eight ranks of one layer of 8 experts of 2 x 256 x 1,024; attention has 4 x 256 x 256.

    A ring of n sends 2 (n - 1) / n of what is reduced: of attention and the embeddings, 256 x 16
    twice, over all eight; of 8 / shared experts over the 8 / shared ranks that have the same.
    """
    path = tmp_path / "experts.yaml"
    path.write_text(
        f"""\
name: experts
model: {{layers: 1, width: 256, hidden: 1024, vocabulary: 16, heads: 4, experts: 8, active: 2}}
parallelism: {{data: 8, expert: {shared}}}
batch: {{sequences: 8, length: 128}}
device: {{tera_operations: 100, memory_gb_per_s: 1000}}
""",
        "utf-8",
    )
    same = 8 // shared
    all_ranks = 2 * 7 / 8 * (4 * 256 * 256 + 2 * 256 * 16)
    experts = 2 * (same - 1) / same * (8 // shared) * 2 * 256 * 1024
    for mode in ("packet", "shared"):  # folded, and rank by rank
        found = document(path, "fat-tree", "--mode", mode)
        assert found["bytes"]["dp"] == 8 * (all_ranks + experts)


def test_experts_that_one_rank_has_alone_are_not_reduced(tmp_path):
    """Two ranks and two experts: only attention's gradients and the embeddings' go round."""
    path = tmp_path / "experts.yaml"
    text = SMALL.replace("heads: 16", "heads: 16, experts: 2, active: 1")
    path.write_text(text.replace("data: 2", "data: 2, expert: 2"), "utf-8")
    attention = 4 * (4 * 1024 * 1024)
    found = document(path, "fat-tree", "--write-traces", tmp_path / "traces")
    # Of two tensor-parallel ranks both have the whole embedding; a ring of two sends once each way.
    assert found["bytes"]["dp"] == 2 * attention + 2 * (2 * 2 * 1024 * 1000)


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["fat-tre"], "unknown fabric 'fat-tre'; did you mean 'fat-tree'"),
        (["fat-tree:oversub=3"], "unknown option 'oversub'"),
        (["fat-tree:oversubscription=0"], "oversubscription: found '0', expected at least 1"),
        (["fat-tree:oversubscription=nan"], "expected at least 1"),
        (["fat-tree:leaf"], "found 'leaf', expected key=value"),
        (["opus:scale_out=fast"], "scale_out: "),
        (["opus", "--mode", "magic"], "no mode 'magic'; its modes are provisioned"),
        (["fat-tree", "--compare", "one-shot"], "no mode 'one-shot'"),
        (["opus", "--switching-time", "25"], "--switching-time 25"),
        (["opus", "--switching-time", "1s..0"], "expected a time as 25ms"),
        (["opus", "--switching-time", "2h"], "at most an hour"),
        (["fat-tree:leaf=1"], "expected at least a server's 2 ranks"),
    ],
)
def test_bad_fabrics_and_options_end_with_2(job, arguments, printed):
    done = simulate(job, *arguments)
    assert done.exit_code == 2
    assert printed in done.output


@pytest.mark.parametrize(
    ("before", "after", "place", "printed"),
    [
        ("layers: 4", "layers: 0", "2:17", "at least 1"),
        ("layers: 4", "layer: 4", "2:9", "unknown key 'layer'"),
        ("pipeline: 2", "pipeline: 8", "3:1", "4 layers are too few for 8 stages"),
        (
            "sequences: 8, length: 128",
            "sequences: 3, length: 3",
            "3:1",
            "9 tokens are not divisible",
        ),
        ("heads: 16", "heads: 16, kv_heads: 5", "2:", "expected a divisor of the 16 heads"),
        ("heads: 16", "heads: 16, experts: 2, active: 3", "2:", "at most 2 experts"),
        ("width: 1024", "width: .nan", "2:27", "a whole number"),
        ("tera_operations: 100", "tera_operations: -1", "5:27", "at least"),
    ],
)
def test_mistakes_of_a_description_are_located(job, before, after, place, printed):
    job.write_text(SMALL.replace(before, after), "utf-8")
    done = simulate(job, "fat-tree")
    assert done.exit_code == 2
    assert f"{job.name}:{place}" in done.output
    assert printed in done.output


def test_a_file_that_is_not_there_ends_with_2(tmp_path):
    done = simulate(tmp_path / "none.yaml", "fat-tree")
    assert done.exit_code == 2
    assert "none.yaml" in done.output


@pytest.mark.parametrize(
    ("fabric", "mode", "dollars", "watts"),
    [
        # Two optical ports of 520 $ and 75 / 192 W and a transceiver of 879 $ and 10 W a GPU.
        ("opus", "provisioned", 128 * (2 * 520 + 879), 128 * (2 * 75 / 192 + 10)),
        ("opus:scale_out=200G", "provisioned", None, None),
        ("opus", "one-shot", None, None),
        ("fat-tree", "packet", None, None),
    ],
)
def test_published_prices_give_a_bill(fabric, mode, dollars, watts):
    found = document(ROOT / "examples/workloads/gpt.yaml", fabric, "--mode", mode)["bill"]
    if dollars is None:
        assert found is None
    else:
        assert (found["dollars"], found["watts"]) == pytest.approx((dollars, watts))


def test_prices_of_nics_give_a_bill_without_power():
    """Table 4 at 100G: 6 NICs of 659, 99 and 520 $, 2 of 659, 99 and 5 x (187 + 99) a server."""
    found = document(
        ROOT / "examples/workloads/mixtral.yaml", "mixnet:scale_out=100G", "--mode", "static"
    )["bill"]
    server = 6 * (659 + 99 + 520) + 2 * (659 + 99 + 5 * (187 + 99))
    assert found == {
        "dollars": 8 * server,
        "watts": None,
        "of": "circuits beside a fat tree, with NICs",
    }


def test_a_page_has_the_answer_and_its_curve(job, tmp_path):
    job.write_text(SMALL.replace("name: small", 'name: "<small>"'), "utf-8")
    page = tmp_path / "answer.html"
    arguments = (job, "opus", "--html", page)
    done = simulate(*arguments, "--switching-time", "0..10s")
    assert done.exit_code == 0
    written = page.read_text("utf-8")
    assert "&lt;small&gt; on opus" in written
    assert "<small>" not in written
    for line in done.stdout.splitlines()[1:]:
        if line.startswith("  step"):
            assert line[12:].strip() in written
    assert written.count("<svg") == 1
    assert "http" not in written.replace("http://www.w3.org", "")
    simulate(*arguments, "--switching-time", "10ms")
    assert "<svg" not in page.read_text("utf-8")
    refused = simulate(job, "opus", "--html", tmp_path / "none" / "answer.html")
    assert refused.exit_code == 2
    assert "No such file or directory" in refused.output
