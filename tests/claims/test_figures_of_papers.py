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
