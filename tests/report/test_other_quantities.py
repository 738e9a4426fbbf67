"""Quantities without a section of their own: which figure do their rows make?"""

import re

import pytest
from report_runs import MS, context, rows

from lightrig.harness.record import Row
from lightrig.harness.report.templates import render_macro


def plain(subject, quantity, value, unit="dB", **conditions):
    return Row(subject, quantity, value, value - 0.01, value + 0.01, unit, 0, conditions)


def test_circuits_of_a_whole_grid_make_a_heat_map(show):
    grid = [
        plain(f"ocs {a}>{b}", "insertion_loss", 1 + a / 10 + n / 100, repetition=n)
        for a in range(1, 5)
        for b in range(5, 9)
        for n in range(3)
    ]
    page = show((context(), grid))
    assert "Heat map of insertion_loss ocs" in page.labelled
    assert "1, 5: 1.11 dB" in page.text
    assert "median of 3 for each of 16 circuits" in page.text
    assert "48 of 16 subjects" in page.text
    assert re.search(
        r"1\.\d+ dB \(median of 48; as 6 independent ones; 95 % interval [\d.]+ … [\d.]+; sim",
        page.text,
    )


def test_circuits_of_one_plan_make_no_heat_map(show):
    few = [plain(f"ocs {a}>{a + 4}", "insertion_loss", 1.0 + a / 10) for a in range(1, 5)] * 5
    page = show((context(), few))
    assert not any("Heat map" in label for label in page.labelled)
    assert "Distribution of insertion_loss" in page.labelled


def test_condition_of_the_rows_that_varies_makes_a_curve(show):
    found = [
        plain("server0.nic0", "bit_error", 10.0**-power, "1", received_power_dbm=-15.0 + power)
        for power in range(3, 9)
        for _ in range(7)
    ]
    page = show((context(), found))
    assert "bit_error over received power" in page.labelled
    assert "received power (dBm)" in page.text
    assert "varied: see below" in page.text


def test_condition_of_the_tests_that_varies_makes_a_curve(show):
    parts = [
        (
            context(moving=n),
            [plain("small", "turnaround", 40.0 + n, "lx", event=e) for e in range(8)],
        )
        for n in (1, 4, 16)
    ]
    page = show(*parts)
    assert page.labelled.count("turnaround over moving") >= 1
    assert "moves: straight → crossed. Medians" in page.text


def test_two_conditions_that_vary_make_no_curve(show):
    parts = [
        (context(moving=n, power=n * 2), [plain("small", "turnaround", 40.0 + n, "lx")] * 8)
        for n in (1, 4, 16)
    ]
    page = show(*parts)
    assert not any("over" in label for label in page.labelled)


def test_condition_that_was_measured_is_no_axis(show):
    found = [
        plain("small", "turnaround", 40.0 + n, "lx", temperature=20.1 + n / 7) for n in range(30)
    ]
    page = show((context(), found))
    assert not any("over" in label for label in page.labelled)


def test_textual_conditions_distinguish_subjects(show):
    found = [
        plain("server0", "bit_error", value, "1", pattern=pattern)
        for pattern, value in (("PRBS7", 1e-9), ("PRBS31", 2e-9))
        for _ in range(8)
    ]
    assert "16 of 2 subjects" in show((context(), found)).text


def test_limit_on_another_quantity_is_judged(show, small, tmp_path):
    from lightrig import testbeds

    path = tmp_path / "limited.yaml"
    path.write_text(small.path.read_text() + "  insertion_loss: {max: 3 dB}\n")
    described = {"small": testbeds.load(path)}
    page = show((context(), [plain("ocs 1>5", "insertion_loss", 3.5)] * 8), described=described)
    assert "Limit: insertion_loss max <= 3 dB." in page.text
    assert "✗ fail" in page.text
    assert "Verdicts: ✗ 1 fail" in page.text
    assert "insertion_loss" not in page.text.partition("nothing measured to judge by them")[2][:120]


def test_stages_of_single_ports_are_in_no_generic_section(show):
    page = show((context(), rows("small", 20)))
    assert "Other quantities" not in page.text


def test_the_bounds_of_a_value_are_the_value_without_bounds(show):
    found = [Row("s", "bus_bandwidth", 8e10 + n, None, None, "bit/s", 0, {}) for n in range(9)]
    assert (
        "80.0000 Gbit/s (median of 9; 95 % interval 80.0000 … 80.0001"
        in show((context(), found)).text
    )


def test_time_that_was_never_seen_has_no_bound(show):
    found = [Row("s", "wait", MS, MS, None, "ns", 0, {}) for _ in range(9)]
    assert "no bound" in show((context(), found)).text


@pytest.mark.parametrize(
    ("outcome", "kind", "sign"),
    [
        ("marginal", "lr-marginal", "!"),
        ("not enough data", "lr-not", "?"),
        ("never heard of", "lr-unknown", "‼"),
    ],
)
def test_every_outcome_is_seen(outcome, kind, sign):
    assert f'class="lr-verdict {kind}"' in render_macro("markup", "chip", outcome, 2)
    assert f"{sign} 2 {outcome}" in render_macro("markup", "chip", outcome, 2)
