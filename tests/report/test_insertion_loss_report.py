"""The report's section on insertion loss: from rows as a measurement writes them."""

import re

from report_runs import context

from lightrig.harness.record import Row


def row(subject, quantity, value, half=0.1, **conditions):
    return Row(subject, quantity, value, value - half, value + half, "dB", 0, conditions)


def grid(size=8, dirty=3, extra=1.5, quantity="insertion_loss"):
    return [
        row(f"ocs {a}>{b}", quantity, 1.0 + b / 100 + extra * (a == dirty), wavelength_nm=1310)
        for a in range(1, size + 1)
        for b in range(size + 1, 2 * size + 1)
    ]


BESIDE = [
    row("ocs.3", "loss.fault", 1.52, 0.2, fault="dirty connector"),
    row("ocs.9", "loss.fault", 0.0, 0.0, fault="stuck monitor"),
    row("ocs", "loss.budget.reference", 0.057, 0.001, method="monitors"),
    row("ocs", "loss.budget.combined", 0.064, 0.001, method="monitors"),
    Row("ocs", "insertion_loss.repeatability", 0.021, 0.018, 0.026, "dB", 0, {}),
    *(row("ocs 1>9", "loss.remade", n / 100, repetition=n) for n in range(12)),
    Row("ocs", "loss.closure", 60 / 64, 60 / 64, 60 / 64, "1", 0, {"n": 64}),
]


def test_one_section_shows_all_about_losses(show):
    page = show((context(), [*grid(), *BESIDE]))
    text = page.text
    assert "Other quantities" not in text
    assert "Heat map of insertion_loss ocs" in page.labelled
    wrong = text.partition("Faults simulated")[2][:400]
    assert re.search(r"ocs\.3 dirty connector 1\.52 dB \(95 % interval 1\.32 … 1\.72", wrong)
    assert re.search(r"ocs\.9 stuck monitor (?!.{0,20}0 dB)", wrong)
    assert re.search(r"0\.0210 dB \(standard deviation of 12 makings; 95 % interval 0\.0180", text)
    assert "Deviation of a remade circuit from the mean of its circuit" in page.labelled
    assert re.search(r"monitors reference 0\.0570 \(0\.0560 … 0\.0580\)", text)
    assert re.search(r"monitors combined 0\.064", text)
    assert re.search(r"60 of 64 \(95 % interval \d", text)


def test_the_check_standard_has_its_shift_limit_and_verdict_where_no_loss_is_recorded(show):
    shifts = [
        row("ocs", "check_standard.shift", db, 0.02, phase=phase, limit_db=0.1, void=db < -0.12)
        for phase, db in (("before", -0.05), ("after", -0.21))
    ]
    text = " ".join(show((context(), [*BESIDE[:1], *shifts])).text.split())
    assert re.search(
        r"ocs, before -0\.050 dB \(95 % interval -0\.070 … -0\.030.*?0\.1 dB ✓ within", text
    )
    assert re.search(r"ocs, after -0\.210 dB \(95 % interval -0\.230 … -0\.190.*?losses void", text)
    assert "ocs.3 dirty connector" in text


def test_the_worst_port_comes_first(show):
    text = show((context(), grid())).text
    worst = text.partition("Worst ports of insertion loss")[2]
    first = re.search(
        r"(ocs\.\d+) (ingress|egress) ([\d.]+) dB \(median of 8; 95 % interval", worst
    )
    assert first.groups()[:2] == ("ocs.3", "ingress")
    assert float(first[3]) > 2.5


def test_circuits_of_a_plan_have_no_worst_port(show):
    text = show(
        (context(), [row(f"ocs {a}>{a + 8}", "insertion_loss", 1.0) for a in range(1, 9)])
    ).text
    assert "Worst ports" not in text


def test_relative_losses_are_called_so(show):
    page = show((context(), grid(quantity="insertion_loss.relative")))
    assert "insertion loss.relative" in page.text
    assert "Worst ports of insertion loss.relative" in page.text
    assert "Heat map of insertion_loss.relative ocs" in page.labelled


def test_simulated_losses_are_marked(show):
    text = show((context(simulated=True), [*grid(), *BESIDE])).text
    for title in (
        "Insertion loss",
        "Faults",
        "Worst ports of insertion loss",
        "Uncertainty",
    ):
        assert f"{title} simulated" in text


def test_circuits_over_temperatures_are_a_heat_map(show):
    rows = [
        row(f"trx 1>{6 + path}", "insertion_loss", 3.0 + path / 10, temperature_c=at)
        for path in (0, 1)
        for at in (-5.0, 25.02, 50.0)
    ]
    page = show((context(), rows))
    assert "Heat map of insertion loss by temperature" in page.labelled
    assert "25 °C" in page.text


def test_one_temperature_makes_no_heat_map(show):
    rows = [row(f"trx 1>{n}", "insertion_loss", 3.0, temperature_c=25) for n in (6, 7)]
    assert "by temperature" not in show((context(), rows)).text


def test_a_budget_states_type_distribution_degrees_and_factor(show):
    parts = [
        row("ocs", "loss.budget.noise", 0.03, method="meter", type="A, normal", degrees=7.0),
        row("ocs", "loss.budget.source", 0.008, method="meter", type="B, rectangular"),
        row("ocs", "loss.budget.combined", 0.031, method="meter", factor=2.3, expanded_db=0.0714),
    ]
    text = " ".join(show((context(), [*grid(), *parts])).text.split())
    assert "noise A, normal 0.03 (-0.070 … 0.13)" in text
    assert "source B, rectangular 0.008" in text
    assert "± 0.072 dB" in text
    assert "k = 2.30" in text
    for name in ("check standard", "drift", "linearity", "polarization"):
        assert f"{name} not included" in text
    assert "wavelength not included" in text


def test_a_stated_polarization_is_a_component(show):
    kinds = ("check_standard", "linearity", "polarization", "wavelength", "combined")
    parts = [row("ocs", f"loss.budget.{name}", 0.03, method="meter") for name in kinds]
    assert "not included" not in show((context(), [*grid(), *parts])).text


def test_circuits_that_share_ports_count_as_fewer_samples(show):
    """Losses of 8 x 8 circuits by egress alone, the same from each ingress: as many as egresses."""
    text = " ".join(show((context(), grid(extra=0.0))).text.split())
    assert "median of 64; as 8 independent ones; 95 % interval 0.99 … 1.26" in text


def test_circuits_with_ports_of_their_own_count_each(show):
    apart = [row(f"ocs {a}>{a + 8}", "insertion_loss", 1.0 + a / 100) for a in range(1, 9)]
    text = " ".join(show((context(), apart)).text.split())
    assert "median of 8; 95 % interval" in text


def test_wavelength_and_temperature_stand_beside_the_losses(show):
    stated = [row(f"ocs {n}>{n + 8}", "insertion_loss", 1.0, wavelength_nm=1310, temperature_c=23.5)
              for n in range(1, 9)]  # fmt: skip
    text = " ".join(show((context(), stated)).text.split())
    assert re.search(r"median wavelength temperature .*?1310 nm 23\.5 °C", text)


def test_an_unstated_temperature_is_an_empty_cell(show):
    stated = [row(f"ocs {n}>{n + 8}", "insertion_loss", 1.0, wavelength_nm=1310) for n in range(9)]
    page = show((context(), stated))
    text = " ".join(page.text.split())
    assert re.search(r"median wavelength temperature .*?1310 nm ", text)
    assert "°C" not in text
