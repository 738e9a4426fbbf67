"""Context parallelism and sharded parameters: collectives and bytes beside closed forms.

A ring of n passes on n - 1 parts of what one puts into an all-gather, and (n - 1) / n of what one
puts into a reduce-scatter; an all-reduce is twice that.
"""

import json
from collections import Counter
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.workloads.collectives import Timing
from lightrig.harness.workloads.graph import Device, Kind, Pattern
from lightrig.harness.workloads.networks import DedicatedLinks
from lightrig.harness.workloads.simulator import Simulator
from lightrig.harness.workloads.transformer import workload
from lightrig.harness.workloads.transformer_sizes import Model, Parallelism

LAYERS, WIDTH, HIDDEN, VOCABULARY, TOKENS = 6, 256, 1024, 48, 8 * 4 * 2 * 96
MODEL = Model(LAYERS, WIDTH, HIDDEN, VOCABULARY, heads=8, kv_heads=2)
DEVICE = Device(1e3, 1e3)
LAYER = 2 * WIDTH * WIDTH + 2 * WIDTH * WIDTH // 4 + 2 * WIDTH * HIDDEN
"""Parameters: of queries and the output, of the keys and values of a quarter of heads, of two."""


def collectives(step, stage, group):
    nodes = step.graph(stage).nodes
    return Counter(
        node.pattern for node in nodes if node.kind is Kind.COLLECTIVE and node.group == group
    )


@pytest.mark.parametrize("micro", [1, 4])
@pytest.mark.parametrize("folded", [False, True])
def test_sharded_parameters_are_gathered_for_each_pass_and_gradients_scattered(micro, folded):
    """Three stages of two layers on 4 data-parallel and 2 tensor-parallel ranks each."""
    degrees = Parallelism(4, 2, 3, micro_batches=micro, sharded=True)
    step = workload(MODEL, degrees, TOKENS, DEVICE, fold_data=folded)
    middle = len(step.graph_of) // 2
    assert collectives(step, middle, "dp") == {
        Pattern.ALL_GATHER: 2 * 2 * micro,
        Pattern.REDUCE_SCATTER: 2,
    }
    assert collectives(step, 0, "dp")[Pattern.ALL_GATHER] == 2 * 2 * micro + 1
    part = LAYER // 2
    layers = LAYERS * (2 * micro * 3 * part / 4 + 3 / 4 * part)
    embeddings = 2 * 2 * (3 / 4 * WIDTH * VOCABULARY)
    assert step.traffic()["dp"] == 8 * (layers + embeddings)
    whole = workload(MODEL, replace(degrees, sharded=False), TOKENS, DEVICE, fold_data=folded)
    assert whole.traffic()["dp"] == 8 * (2 * 3 / 4 * (LAYERS * part + 2 * WIDTH * VOCABULARY))


def test_sharded_experts_are_gathered_among_those_that_have_the_same():
    """Eight experts, two ranks of four: a rank has four of them, as another one does."""
    model = replace(MODEL, experts=8, active=2)
    degrees = Parallelism(4, 1, 1, expert=2, sharded=True)
    step = workload(model, degrees, TOKENS, DEVICE)
    gathered = {Pattern.ALL_GATHER: 2 * LAYERS, Pattern.REDUCE_SCATTER: LAYERS}
    assert collectives(step, 0, "edp") == gathered
    expert = 2 * WIDTH * HIDDEN
    attention = LAYER - expert
    layer = (2 + 1) * (3 / 4 * attention + 1 / 2 * 4 * expert)
    embeddings = 2 * 2 * (3 / 4 * WIDTH * VOCABULARY)
    assert step.traffic()["dp"] == 4 * (LAYERS * layer + embeddings)


@pytest.mark.parametrize("folded", [False, True])
def test_a_sequences_parts_exchange_keys_and_values(folded):
    """Of a quarter of the heads, once forward; backward again, with their gradients."""
    degrees = Parallelism(2, 2, 3, micro_batches=2, context=4)
    step = workload(MODEL, degrees, TOKENS, DEVICE, fold_data=folded)
    assert step.ranks == 2 * 2 * 3 * 4
    assert collectives(step, 0, "cp") == {Pattern.ALL_GATHER: 8, Pattern.REDUCE_SCATTER: 4}
    keys_and_values = 2 * (TOKENS // (2 * 4 * 2)) * WIDTH // 2 // 4
    assert step.traffic()["cp"] == 16 * LAYERS * 2 * 3 * (3 * keys_and_values)
    # Parameters are the same on all eight ranks that data and sequences are divided among.
    reduced = LAYERS * LAYER // 2 + 2 * WIDTH * VOCABULARY
    assert step.traffic()["dp"] == 16 * 2 * 7 / 8 * reduced


def test_gathers_hide_behind_the_layer_before():
    """Where a gather takes less than a layer's compute, a step waits for the first one's weights
    and the last gradients, not for those between."""
    fast = DedicatedLinks({"dp": 1e3, "tp": 1e9, "pp": 1e9}, Timing(latency=0))
    slow = DedicatedLinks({"dp": 1.0, "tp": 1e9, "pp": 1e9}, Timing(latency=0))
    degrees = Parallelism(4, 1, 1, sharded=True)
    step = workload(MODEL, degrees, 100 * TOKENS, DEVICE, fold_data=True)
    hidden, bound = (Simulator(step, network).run() for network in (fast, slow))
    assert hidden.exposed < 0.01 * hidden.step
    assert bound.exposed > 100 * hidden.exposed
    gathered = step.traffic()["dp"] / 4
    assert bound.step > gathered


def test_a_description_has_both(tmp_path):
    path = tmp_path / "job.yaml"
    text = """\
name: both
model: {layers: 6, width: 256, hidden: 1024, vocabulary: 48, heads: 8, kv_heads: 2}
parallelism: {data: 2, context: 4, sharded: true}
batch: {sequences: 8, length: 256}
device: {tera_operations: 1, memory_gb_per_s: 1000}
"""
    path.write_text(text, "utf-8")
    arguments = ["simulate", str(path), "fat-tree:leaf=2", "--json"]
    found = CliRunner().invoke(application(), [*arguments, "--write-traces", str(tmp_path / "t")])
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    assert answer["ranks"] == 8
    assert answer["bytes"]["cp"] == 8 * 6 * 3 * 3 * 2 * 256 * 256 // 4
    again = CliRunner().invoke(
        application(), ["simulate", str(tmp_path / "t"), "fat-tree:leaf=2", "--json"]
    )
    sent = json.loads(again.stdout)["bytes"]
    assert sent == pytest.approx({key: answer["bytes"][key] for key in sent})
    path.write_text(text.replace("context: 4", "context: 3"), "utf-8")
    refused = CliRunner().invoke(application(), arguments)
    assert refused.exit_code == 2
    assert "3:" in refused.output
    assert "expected a divisor of the 256 tokens" in refused.output
