"""Lab faults that last: a fiber that is dark again and again, and a switch that is slow."""

import pytest
from measure import lossy_lab

from lightrig.testbeds import Circuit, Port

AT = Port("ocs", "2")
"""The port where the fiber of server0.nic0.p1 ends."""


def lit_at(bench, *seconds):
    """Return whether light arrives at each time."""
    found = []
    for second in seconds:
        bench.clock.sleep(round(second * 1e9) - bench.clock.now())
        found.append(bench.world.light.level(AT) > 1e-6)
    return found


@pytest.mark.parametrize(
    ("stated", "at", "lit"),
    [
        ("after: 2 s", (1.9, 2.05, 2.15, 9.05), [True, False, True, True]),
        ("after: 2 s, lasting: 0.7 s", (1.9, 2.05, 2.6, 2.8), [True, False, False, True]),
        (
            "after: 2 s, lasting: 0.3 s, every: 5 s",
            (2.2, 2.4, 6.9, 7.2, 7.4, 12.2, 12.4),
            [False, True, True, False, True, False, True],
        ),
    ],
)
def test_a_fiber_is_dark_as_long_and_as_often_as_stated(tmp_path, stated, at, lit):
    fault = f"{{fault: interrupted fiber, at: [server0.nic0.p1], {stated}}}"
    with lossy_lab.polatis(tmp_path, fault, ports=2) as bench:
        assert lit_at(bench, *at) == lit


def acknowledged_ms(folder, *faults):
    with lossy_lab.polatis(folder, *faults, ports=2) as bench:
        begun = bench.clock.now()
        bench.switches["ocs"].change((), [Circuit(1, 5)]).done()
        return (bench.clock.now() - begun) / 1e6


def test_a_slow_switch_takes_longer_by_its_factor(tmp_path):
    usual = acknowledged_ms(tmp_path)
    slow = acknowledged_ms(tmp_path, "{fault: slow switch, at: [ocs], factor: 2.5}")
    assert slow - usual == pytest.approx(1.5 * 40, abs=1)  # the file states 40 ms
