"""Closure of insertion loss in a lab with a fault: the harness measures right what is wrong."""

import lossy_lab
import numpy as np
import pytest

from lightrig.harness.measure.insertion_loss.rows import closure_rows, normalized_errors
from lightrig.testbeds import Circuit

EXCESS_DB = 1.2
BEFORE = "{fault: dirty connector, at: [server0.nic0.p1], loss: 1.2 dB}"
BEHIND = "{fault: bent fiber, at: [trx.5], loss: 1.2 dB}"


def losses_with(lab, fault):
    with lab(fault) as bench:
        losses = lossy_lab.measured(bench)
        (row,) = closure_rows(losses, bench)
        errors = dict(normalized_errors(losses, bench))
    return losses, row, errors


@pytest.mark.parametrize(
    ("lab", "fault", "faulty"),
    [
        (lambda d: lambda *f: lossy_lab.polatis(d, *f, ports=2, monitors="egress"), BEFORE, 2),
        (lambda d: lambda *f: lossy_lab.metered(d, *f), BEHIND, 5),
    ],
    ids=["fiber before the switch", "fiber behind the switch"],
)
def test_a_fault_of_a_fiber_does_not_fail_closure(tmp_path, lab, fault, faulty):
    losses, row, errors = losses_with(lab(tmp_path), fault)
    assert row.conditions["closed"]
    assert row.conditions["n"] == len(losses.losses)  # none is left out
    hit = [circuit for circuit in errors if faulty in circuit]
    assert hit
    # The excess is about ten times the half-width of an interval: it is in both or in neither.
    assert max(abs(errors[circuit]) for circuit in hit) < EXCESS_DB / 0.1 / 4


def test_monitors_on_both_sides_do_not_see_what_a_fiber_loses_before_them(tmp_path):
    losses, row, errors = losses_with(lambda *f: lossy_lab.polatis(tmp_path, *f, ports=2), BEFORE)
    assert row.conditions["closed"]
    through = np.median([losses.losses[Circuit(2, n)].value for n in (5, 6, 7, 8)])
    assert through < 1.2 + EXCESS_DB / 2
    assert max(map(abs, errors.values())) < 3


def test_a_drifting_laser_that_is_not_read_is_no_matter_of_closure(tmp_path):
    drift = "{fault: drifting laser, at: [server0.nic0.p1], drift: 6 dB}"
    with lossy_lab.polatis(tmp_path, drift, ports=2, monitors="egress") as bench:
        losses = lossy_lab.measured(bench)
        circuits = {circuit for circuit, _ in normalized_errors(losses, bench)}
    assert circuits == {circuit for circuit in losses.losses if circuit.ingress != 2}
