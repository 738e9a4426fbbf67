"""Figures of the papers hold what caption, text and tables print of them.

Expected are the printed values themselves, each with its place, so that an error of a sign, of a
factor or by one in what computes a figure is seen.
"""

import functools

import pytest

from lightrig.harness.claims.figures.declarations import load_figures
from lightrig.harness.claims.figures.drawn import FigureMaker
from lightrig.harness.claims.published import load_published, published_files
from lightrig.harness.record import Results
from lightrig.suites.claims.mixnet.optical_ports import optical_ports
from lightrig.suites.claims.mixnet.prototype import prototype_steps
from lightrig.suites.claims.mixnet.simulated_steps import (
    NETWORKS,
    efficiency_by_size,
    failures,
    packet_links,
    ratios_by_rate,
    step_time,
    steps_by_degree,
    steps_by_latency,
    steps_by_rate,
    throughput_by_size,
)

NUMBERS = {
    "acos": [*range(6, 13)],
    "infinitehbd": [*range(10, 19), *range(20, 24)],
    "mixnet": [*range(2, 6), *range(10, 15), *range(16, 20), *range(21, 29)],
    "opus": [4, *range(9, 15)],
    "railx": [*range(14, 18)],
}
"""Figures that plot numbers, counted in the papers: those before and between them are drawings."""
AGREE = {
    ("acos", "7"): {("ACOS", "64 GPUs"), ("ACOS", "72 GPUs"), ("ACOS", "144 GPUs")},
    ("infinitehbd", "13"): {("NVL-72", "mean")},
    ("mixnet", "11"): {("Fat-tree over MixNet", "400G"), ("Fat-tree over MixNet", "mean")},
    ("mixnet", "24"): {("Fat-tree over MixNet", "DAC or AOC to the first switch")},
    ("opus", "12"): {("against EPS", "100 ms"), ("against ideal one-shot", "100G")},
    ("opus", "14"): {("against EPS", "512"), ("cost", "128"), ("power", "512"), ("cost", "2048")},
    ("railx", "14"): {("RailX-2D-HyperX, k = 2", "1.0")},
    ("railx", "17"): {("worst case", "4"), ("best case", "12"), ("64 x 64 nodes", "0.1 %")},
}
"""Printed values, by series and place, that ours must agree with."""


@functools.cache
def published(system):
    return load_published(published_files()[system])


def drawn(system, number, tmp_path):
    maker = FigureMaker(published(system), Results(tmp_path / "none"))
    return maker.make(load_figures(published(system))[number])


@pytest.mark.parametrize("system", NUMBERS)
def test_each_figure_that_plots_numbers_is_declared(system):
    assert list(load_figures(published(system))) == list(map(str, NUMBERS[system]))


def test_there_are_52():
    assert sum(map(len, NUMBERS.values())) == 52


@pytest.mark.long
@pytest.mark.parametrize(("system", "number"), AGREE)
def test_printed_values_are_met(system, number, tmp_path):
    compared = drawn(system, number, tmp_path).compared
    agree = {(one.value.series, one.value.place) for one in compared if one.outcome == "agrees"}
    assert AGREE[system, number] <= agree
    ours = [one.ours for one in compared if one.ours is not None]
    assert all(one.lower <= one.value <= one.upper for one in ours)  # a verdict is by the interval
    assert not [one for one in compared if one.contradicts]


@pytest.mark.parametrize(
    ("system", "number"), [pair for pair in AGREE if pair[0] in ("acos", "mixnet")]
)
def test_printed_values_of_quick_figures_are_met(system, number, tmp_path):
    test_printed_values_are_met(system, number, tmp_path)


@pytest.mark.parametrize("number", ["11", "21", "22", "23"])
def test_figures_of_runs_are_marked(number, tmp_path):
    """A run of simulated instruments is stored; what it shows is no measurement of a device."""
    system = "infinitehbd" if number == "11" else "mixnet"
    found = drawn(system, number, tmp_path)
    assert found.simulated
    assert all("run 2026" in one.origin for panel in found.panels for one in panel.series)


def test_series_that_the_text_names_are_in_the_order_of_the_text(tmp_path):
    names = drawn("mixnet", "11", tmp_path).panels[0].series
    assert [one.curve.name for one in names] == [
        "Fat-tree, Rail-optimized",
        "OverSub. Fat-tree",
        "MixNet",
    ]
    assert "TopoOpt" in drawn("mixnet", "11", tmp_path).panels[0].absent


def test_parts_of_an_iteration_make_it_up(tmp_path):
    """Llama 4 Maverick: 17e9 parameters at work, 6 FLOPs each, 1,024 x 4,096 tokens on 1,024 H200
    at 40 % of 989 TFLOPS, longer by 7 stages of 16 micro-batches that wait. Each GPU reduces its
    part of 400e9 parameters of 2 bytes, of 64 x 32 GPUs, twice 15 / 16, at 100 bytes a ns."""
    figure = drawn("acos", "10", tmp_path)
    whole = {one.curve.name: one.curve.y[0] for one in figure.panels[0].series}
    parts = {one.curve.name: one.curve for one in figure.panels[-1].series}
    assert {name: sum(one.y) for name, one in parts.items()} == pytest.approx(whole)
    computed = 6 * 17e9 * 1024 * 4096 / (1024 * 0.4 * 989e12) * 1e9 * (1 + 7 / 16)
    reduced = 2 * 15 / 16 * 2 * 400e9 / 64 / 32 / 100
    assert parts["switch"].at("computation").value == pytest.approx(computed)
    assert parts["switch"].at("DP").value == pytest.approx(reduced)
    assert parts["3D torus"].at("DP").value == pytest.approx(3 * reduced)
    assert parts["ACOS"].at("TP and PP").value == parts["switch"].at("TP and PP").value
    assert parts["ACOS"].at("EP").value > parts["switch"].at("EP").value


TREE = "Fat-tree, Rail-optimized"
GATHERED = 7 / 8 * 8 * 4096 * 6144 * 2
"""Bytes that a GPU of eight sends, gathering activations of a micro-batch of Mixtral 8x22B."""


def named(curves):
    return {one.name: one for one in curves}


@pytest.mark.long
def test_ratios_of_simulated_steps_approach_one_with_the_rate_and_the_batch():
    """MixNet approaches a fat tree with the rate (Appendix D.4). Its waits do not grow with the
    batch, and all else of a step is in proportion to it."""
    eight, sixteen = (
        named(ratios_by_rate("Mixtral 8x22B", micro_batch=each, rates=(100, 800)))[TREE].y
        for each in (8, 16)
    )
    assert 0.5 < eight[0] < eight[1] < 1
    assert eight[1] < sixteen[1] < 1


@pytest.mark.long
def test_an_iteration_is_as_long_as_its_batch():
    """All of a step on a fat tree grows with the micro-batch, but gradients and latencies."""
    first, second = (
        named(steps_by_rate("Mixtral 8x22B", micro_batch=each, rates=(400,)))[TREE]
        for each in (8, 16)
    )
    assert first.x == (400e9,)
    assert second.y[0] / first.y[0] == pytest.approx(2, rel=0.02)
    # 39.2e9 parameters at work on a token (public), 6 FLOPs each with the backward pass, and
    # attention, on 64 A100s of which the stages' eight work at a time, at 40 % of 312 TFLOPS.
    computed = 6 * 39.2e9 * 8 * 4096 / (8 * 0.4 * 312e12) * 1e9
    assert computed < first.y[0] < 1.5 * computed


@pytest.mark.long
def test_performance_per_dollar_is_that_of_costs_and_throughput():
    """By size, over a fat tree that costs 2.3 times as much at 400 Gbit/s (section 7.2)."""
    found = named(throughput_by_size([128, 256]))
    efficiency = efficiency_by_size([128, 256])[0]
    assert efficiency.x == (1024.0, 2048.0)
    quotients = [a / b for a, b in zip(found["MixNet"].y, found[TREE].y, strict=True)]
    for quotient, ours in zip(quotients, efficiency.y, strict=True):
        assert ours / quotient == pytest.approx(2.3, rel=0.01)
    # 1,024 GPUs are 8 groups of EP 8, TP 4 and 4 stages, each rank with 8 sequences of 4,096.
    tree = sum(step_time("Mixtral 8x7B", NETWORKS[TREE], draw) for draw in range(3)) / 3
    assert found[TREE].y[0] == pytest.approx(64 * 8 * 4096 / tree * 1e9, rel=0.01)
    assert found[TREE].y[1] == pytest.approx(2 * found[TREE].y[0], rel=0.02)


@pytest.mark.parametrize("optical", range(8))
def test_degrees_are_compared_at_equal_cost(optical):
    """Table 4 at 100 Gbit/s: an NIC of 659 dollars and transceivers of 99, five ports of 187 with
    one each on packets, or one of 520 on circuits; those on packets cost as their rate."""
    packet, circuit = 659 + 99 + 5 * (187 + 99), 659 + 99 + 520
    cost = packet_links(optical) * packet + optical * circuit
    assert cost == pytest.approx(2 * packet + 6 * circuit)


def test_steps_by_degree_are_over_that_of_six_circuits():
    curve = steps_by_degree((5, 6))[0]
    assert curve.x == (5.0, 6.0)
    assert curve.y[1] == 1
    kind = NETWORKS["MixNet"]
    fewer = type(kind)("block", 5, packet_links(5))
    ratios = [
        step_time("Mixtral 8x22B", fewer, draw, rate=100)
        / step_time("Mixtral 8x22B", kind, draw, rate=100)
        for draw in range(4)
    ]
    assert curve.y[0] == pytest.approx(sum(ratios) / 4)
    assert curve.numbers["last over first"].value == pytest.approx(
        sum(1 / each for each in ratios) / 4
    )


@pytest.mark.long
def test_long_changes_are_all_waited_for():
    """Each of 56 layers changes circuits before its first exchange, and all but the last of a stage
    of eight before its backward pass (Appendix B.2): 56 + 48 changes."""
    blocks, predicted = steps_by_latency((1e3, 1e9, 1e10))
    assert blocks.y[0] == 1
    short = sum(
        step_time("Mixtral 8x22B", NETWORKS["MixNet"], draw, switching=1000) for draw in range(4)
    )
    assert (blocks.y[2] - blocks.y[1]) * short / 4 == pytest.approx(104 * 9e9, rel=0.02)
    assert predicted.y[0] > 1  # microseconds make the first exchange exact: D.7, "marginal"
    assert predicted.y[0] < 1.05


def test_a_ring_over_nics_lengthens_a_step_by_its_collectives():
    """A stage of seven layers gathers and scatters ten times a layer, at 50 instead of 450 bytes a
    ns: two of them overlap computation, and of eight at most two are behind the two changes of
    circuits of a layer (Appendix B.2)."""
    found = named(failures(["a GPU"]))["Mixtral 8x22B"]
    whole = sum(step_time("Mixtral 8x22B", NETWORKS["MixNet"], draw) for draw in range(4)) / 4
    each = GATHERED * (1 / 50 - 1 / 450)
    assert 7 * 6 * each < found.y[0] * whole < 7 * 8 * each


@pytest.mark.long
def test_failures_lengthen_steps():
    """One of two NICs less is worse than one of six for gradients and stages. A server without
    circuits carries its exchanges by two NICs and waits for no change of circuits: either may win
    in a draw."""
    found = failures(["an NIC on packets", "an NIC on circuits", "a server"])[0]
    packet, circuit, server = found.y
    assert packet > circuit > -0.01
    assert -0.01 < server < packet
    assert max(found.y) < 0.2


def test_optical_ports_save_what_ethernet_carries():
    """Half of a token's copies leave a domain of 64 GPUs of 128: at 100 or, over circuits, 450
    bytes a ns. DeepSeek-V3: 58 layers, 8 experts a token, 7,168 elements; FP8 there, BF16 back, and
    both again backward. 37e9 parameters at work, on 2.5 PFLOPS at 40 %."""
    curve = optical_ports()[0]
    copies = 58 * 8 * 7168 * (1 + 2) * 2 / 2
    weights = 6 * 37e9 / (0.4 * 2.5e6)
    saved = copies / 100 - copies / 450
    bound = 1 + saved / (weights + copies / 450)  # attention only lowers it
    assert 1 + 0.8 * (bound - 1) < curve.y[0] < bound
    assert 1.25 < curve.y[0] < 1.35  # 1.3 times is printed
    assert curve.y[1] > curve.y[0]  # gains go on at 16 Tbit/s


def test_the_prototype_sends_each_pair_over_one_nic():
    """Four servers of 32 GPUs with a circuit of 12.5 bytes a ns to each of the others, against
    four NICs for what goes to all three: of even loads 4 / 3 of the time, of uneven ones as much
    more, and gradients through one NIC."""
    mixnet, ethernet = (one.y[0] for one in prototype_steps())
    sent = 2 * 8 * 4096 * 2 * 4096 * 2  # of a server: tokens, two experts each, BF16
    first, second = 28 * sent / 4 / 12.5, 28 * 3 * sent / 4 / 50
    weights = 4096 * 2 * (4096 + 1024) + 2 * 3 * 4096 * 14336
    computed = 6 * 8 * 8 * 4096 * 7 * weights / (32 * 0.4 * 312e12) * 1e9
    assert ethernet > computed + second
    assert mixnet > computed + first
    assert mixnet - ethernet > first - second
    assert mixnet < 1.5 * ethernet  # "comparable" is printed
