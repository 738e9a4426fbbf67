"""The figures of a running test, and the guess at the time that is left."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from lightrig.harness.plugin.live import Live, TimeLeft, short
from lightrig.harness.plugin.quantities import Quantities, in_a_line
from lightrig.harness.record import Row
from lightrig.harness.run import ObservedRun

MS = 1_000_000


def row(quantity: str, value: int, event: int | None = None, subject: str = "lab") -> Row:
    held = {} if event is None else {"event": event}
    return Row(subject, quantity, value, value - MS, value + MS, "ns", 0, held)


def test_nothing_is_guessed_before_a_test_has_ended() -> None:
    left = TimeLeft()
    left.expect(["f.py::test_a[1]", "f.py::test_a[2]"])
    assert left.seconds() is None
    assert left.remaining_text() == ""


def test_each_function_is_expected_to_take_its_own_mean() -> None:
    left = TimeLeft()
    left.expect([f"f.py::test_slow[{n}]" for n in range(4)])
    left.expect([f"f.py::test_fast[{n}]" for n in range(3)])
    left.ended("f.py::test_slow[0]", 100)
    left.ended("f.py::test_slow[1]", 140)
    left.ended("f.py::test_fast[0]", 3)
    assert left.seconds() == pytest.approx(2 * 120 + 2 * 3)
    assert left.remaining_text() == "about 4 min left"


def test_function_that_has_not_run_is_expected_to_take_what_a_test_took() -> None:
    left = TimeLeft()
    left.expect(["f.py::test_known", "f.py::test_unknown"])
    left.ended("f.py::test_known", 7)
    assert left.seconds() == pytest.approx(7)
    left.ended("f.py::test_unknown", 2)
    assert left.remaining_text() == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "less than a second left"),
        (42.4, "about 42 s left"),
        (150, "about 2 min left"),
        (6 * 3600 + 900, "about 6.2 h left"),
    ],
)
def test_guess_is_no_finer_than_it_can_be(seconds: float, words: str) -> None:
    left = TimeLeft()
    left.expect(["f.py::test_a[1]", "f.py::test_a[2]"])
    left.ended("f.py::test_a[1]", seconds)
    assert left.remaining_text() == words


@pytest.mark.parametrize("events", [(0, 1, 2), (2, 0, 1), (7, 3, 5)])
def test_subjects_of_an_event_are_one_sample_in_any_order(events: tuple[int, ...]) -> None:
    found = Quantities()
    for late in (0, 6):  # the other subject comes after all events
        for number, event in enumerate(events):
            found.add(True, [row("reconfiguration.carrier_up", (40 + number + late) * MS, event)])
    (figure,) = found.figures()
    assert (figure.value, figure.n) == (47 * MS, 3)  # of each event the greater


def test_figures_are_medians_of_events_with_their_interval() -> None:
    found = Quantities()
    for event in range(9):
        rows = [row("reconfiguration.signal_recovered", (40 + event) * MS, event)]
        found.add(True, [*rows, row("signal_recovered", 1, event, "ocs.9")])
    (figure,) = found.figures()
    assert figure.quantity == "reconfiguration.signal_recovered"
    assert (figure.value, figure.n, figure.unit) == (44 * MS, 9, "ns")
    # From the second of nine less 1 ms to the eighth and 1 ms: outside of these two lies the median
    # in 2 (1 + 9) / 2^9 = 3.9 %.
    assert (figure.lower, figure.upper) == (40 * MS, 48 * MS)
    assert in_a_line([figure]) == "signal_recovered 44.0 ms [40.0 … 48.0] (median of 9, simulated)"


@pytest.mark.parametrize(
    ("quantity", "unit", "worst"),
    [("collective.time", "ns", 60), ("collective.utilization", "share", 35)],
)
def test_the_worst_subject_of_an_event_is_shown(quantity: str, unit: str, worst: float) -> None:
    found = Quantities()
    values = {"a": 35, "b": 60}
    found.add(
        False,
        [
            Row(subject, quantity, value, None, None, unit, 0, {"event": 0})
            for subject, value in values.items()
        ],
    )
    (figure,) = found.figures()
    assert (figure.value, figure.lower, figure.n) == (worst, None, 1)


def test_rows_without_events_are_samples_each() -> None:
    found = Quantities()
    found.add(False, [row("retraining", n * MS) for n in (1, 2, 6)])
    (figure,) = found.figures()
    assert (figure.value, figure.n) == (2 * MS, 3)


def test_hidden_quantities_are_not_shown() -> None:
    found = Quantities()
    found.add(
        True, [row(name, MS) for name in ("closure.los", "harness.carrier_stamp", "outage.carrier")]
    )
    assert list(found.figures()) == []


def test_few_figures_fit_in_a_line() -> None:
    found = Quantities()
    stages = ("firmware_up", "carrier_up", "signal_recovered", "acknowledged", "los")
    found.add(False, [row(f"reconfiguration.{stage}", MS, 0) for stage in stages])
    found.add(False, [row("retraining", 2 * MS, event) for event in range(2)])
    assert in_a_line(found.few()) == (
        "acknowledged 1 ms, signal_recovered 1 ms, carrier_up 1 ms (n = 1); "
        "retraining not enough data: 6 needed"
    )


@pytest.mark.parametrize(
    ("nodeid", "name"),
    [
        ("suites/test_x.py::test_a", "test_x.py::test_a"),
        ("suites/a/test_x.py::TestB::test_a[opus/a::b]", "test_x.py::TestB::test_a[opus/a::b]"),
    ],
)
def test_test_is_named_with_its_file_and_no_folder(nodeid: str, name: str) -> None:
    assert short(nodeid) == name


def test_a_note_is_written_once_a_test(tmp_path: Path) -> None:
    written: list[str] = []
    reporter = SimpleNamespace(write_line=written.append, isatty=False)
    plugins = {"terminalreporter": reporter}
    config = SimpleNamespace(pluginmanager=SimpleNamespace(getplugin=plugins.get))
    run = ObservedRun(tmp_path, {})
    live = Live(config, run)  # type: ignore[arg-type]  # of the configuration, this is all it needs
    for sentence in ("a gate of 30 s", "a gate of 30 s", "a gate of 9 s"):
        run.note("lab", sentence)
    live.pytest_runtest_logstart("f.py::test_a")
    for finish in run.finishes:
        finish("f.py::test_a", "passed", 1.0, "")
    run.note("lab", "a gate of 9 s")
    assert written == ["lab: a gate of 30 s", "lab: a gate of 9 s", "lab: a gate of 9 s"]


def loss(decibel: float, **conditions: float) -> Row:
    return Row("ocs 1>17", "insertion_loss", decibel, decibel, decibel, "dB", 0, conditions)


def test_a_loss_has_its_wavelength_and_its_temperature_beside_it() -> None:
    found = Quantities()
    found.add(False, [loss(1.4, wavelength_nm=1310, temperature_c=c) for c in (24.9, 25.2) * 3])
    (figure,) = found.figures()
    assert figure.beside == {"wavelength": "1310 nm", "temperature": "24.9, 25.2 °C"}
    assert in_a_line([figure]).endswith("] (median of 6; 1310 nm; 24.9, 25.2 °C)")


def test_what_no_row_states_is_empty() -> None:
    found = Quantities()
    found.add(False, [loss(1.4, wavelength_nm=1310), loss(1.4)] * 3)
    (figure,) = found.figures()
    assert figure.beside == {"wavelength": "1310 nm, not of all", "temperature": ""}
    assert in_a_line([figure]).endswith("; 1310 nm, not of all; temperature not stated)")
