"""The ready-made plots draw what the frame holds, and say where it is simulated."""

import numpy as np
import pytest

from lightrig.harness.report.plots import PlotError, bit_error_curve, latency, loss_matrix


@pytest.fixture(autouse=True)
def without_a_screen():
    import matplotlib as mpl  # slow to import: not where tests are only collected

    mpl.use("Agg")


def frame(quantity, unit, subjects, values, **more):
    import pandas as pd

    n = len(values)
    return pd.DataFrame({
        "quantity": quantity, "unit": unit, "subject": subjects, "value": values,
        "lower": values, "upper": values, "simulated": [True] * n, **more,
    })  # fmt: skip


def test_latency_is_a_distribution_in_milliseconds():
    axes = latency(frame("carrier_up", "ns", "p0", [2e6, 1e6, 4e6]))
    (line,) = axes.lines
    assert list(line.get_xdata()) == [1, 2, 4]
    assert axes.get_title() == "Latency (simulated)"


def test_a_loss_matrix_leaves_unmeasured_circuits_out():
    axes = loss_matrix(frame("insertion_loss", "dB", ["ocs 2>17", "ocs 10>18"], [1.0, 2.0]))
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert np.array_equal(shown, [[1.0, np.nan], [np.nan, 2.0]], equal_nan=True)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["2", "10"]


def test_a_gate_without_errors_is_at_its_upper_bound():
    rows = frame("bit_error_ratio", "1", "p0", [0.0, 1e-6], received_power=[-5.0, -9.0])
    rows["upper"] = [1e-12, 2e-6]
    axes = bit_error_curve(rows, "received_power")
    assert list(axes.lines[0].get_ydata()) == [1e-6, 1e-12]
    with pytest.raises(PlotError, match="no condition 'oma'"):
        bit_error_curve(rows, "oma")
    with pytest.raises(PlotError, match="no row of a quantity in ns"):
        latency(rows)
