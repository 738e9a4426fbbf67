"""The figures of a running test, and the guess at the time that is left."""

import pytest

from harness.plugin.live import TimeLeft, short
from harness.plugin.quantities import Quantities, in_a_line
from harness.record import Row

MS = 1_000_000


def row(quantity: str, value: int, event: int | None = None, subject: str = "lab") -> Row:
    held = {} if event is None else {"event": event}
    return Row(subject, quantity, value, value - MS, value + MS, "ns", 0, held)


def test_nothing_is_guessed_before_a_test_has_ended() -> None:
    left = TimeLeft()
    left.expect(["f.py::test_a[1]", "f.py::test_a[2]"])
    assert left.seconds() is None
    assert left.words() == ""


def test_each_function_is_expected_to_take_its_own_mean() -> None:
    left = TimeLeft()
    left.expect([f"f.py::test_slow[{n}]" for n in range(4)])
    left.expect([f"f.py::test_fast[{n}]" for n in range(3)])
    left.ended("f.py::test_slow[0]", 100)
    left.ended("f.py::test_slow[1]", 140)
    left.ended("f.py::test_fast[0]", 3)
    assert left.seconds() == pytest.approx(2 * 120 + 2 * 3)
    assert left.words() == "about 4 min left"


def test_function_that_has_not_run_is_expected_to_take_what_a_test_took() -> None:
    left = TimeLeft()
    left.expect(["f.py::test_known", "f.py::test_unknown"])
    left.ended("f.py::test_known", 7)
    assert left.seconds() == pytest.approx(7)
    left.ended("f.py::test_unknown", 2)
    assert left.words() == ""


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
    assert left.words() == words


def test_figures_are_medians_of_events_with_their_interval() -> None:
    found = Quantities()
    for event in range(9):
        rows = [row("reconfiguration.light_back", (40 + event) * MS, event)]
        found.add(True, [*rows, row("light_back", 1, event, "ocs.9")])
    (figure,) = found.figures()
    assert figure.quantity == "reconfiguration.light_back"
    assert (figure.value, figure.n, figure.unit) == (44 * MS, 9, "ns")
    assert figure.lower is not None
    assert figure.upper is not None
    assert figure.lower < figure.value < figure.upper
    assert in_a_line([figure]) == "light_back 44 ms (median of 9, simulated)"


def test_worst_subject_speaks_for_its_event() -> None:
    found = Quantities()
    found.add(False, [row("retraining", 3 * MS, 0, "a"), row("retraining", 9 * MS, 0, "b")])
    (figure,) = found.figures()
    assert (figure.value, figure.lower, figure.n) == (9 * MS, None, 1)


def test_rows_without_events_are_samples_each() -> None:
    found = Quantities()
    found.add(False, [row("retraining", n * MS) for n in (1, 2, 6)])
    (figure,) = found.figures()
    assert (figure.value, figure.n) == (2 * MS, 3)


def test_harness_and_closure_are_not_told_of() -> None:
    found = Quantities()
    found.add(True, [row(f"{name}.x", MS) for name in ("closure", "harness", "outage")])
    assert list(found.figures()) == []


def test_few_figures_fit_in_a_line() -> None:
    found = Quantities()
    stages = ("firmware_up", "carrier_up", "light_back", "acknowledged", "light_gone")
    found.add(False, [row(f"reconfiguration.{stage}", MS, 0) for stage in stages])
    found.add(False, [row("retraining", 2 * MS, event) for event in range(2)])
    assert in_a_line(found.few()) == (
        "acknowledged 1 ms, light_back 1 ms, carrier_up 1 ms (medians of 1); "
        "retraining 2 ms (median of 2)"
    )


@pytest.mark.parametrize(
    ("nodeid", "name"),
    [
        ("suites/test_x.py::test_a", "test_a"),
        ("suites/test_x.py::TestB::test_a[opus-a::b]", "test_a[opus-a::b]"),
    ],
)
def test_test_is_named_without_its_file(nodeid: str, name: str) -> None:
    assert short(nodeid) == name
