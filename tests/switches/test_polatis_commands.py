"""Numbers of commands that a Polatis makes of a change, on each of its wires."""

import pytest

from lightrig.testbeds import Circuit

MS = 1_000_000


@pytest.mark.parametrize(
    ("scheme", "counts"),
    [
        ("tl1", (1, 2, 1, 0)),
        ("scpi", (1, 2, 1, 0)),
        ("netconf", (1, 1, 1, 0)),
        ("restconf", (1, 2, 2, 0)),
    ],
)
def test_a_change_takes_the_time_of_each_of_its_commands(scheme, counts, virtual):
    """Circuits whose ports stay free are one more command over TL1 and SCPI, or one each.

    A command takes 40 ms, and 1 ms for each circuit.
    """
    rig = virtual(scheme=scheme)
    switch = rig.driver(**({"rerouting": True} if scheme in ("tl1", "scpi") else {}))
    switch.circuits()
    steps = [
        ([], [Circuit(1, 17), Circuit(2, 18), Circuit(3, 19)]),
        ([Circuit(2, 18), Circuit(3, 19)], [Circuit(2, 20), Circuit(4, 21)]),
        ([Circuit(1, 17), Circuit(2, 20)], []),
        ([], []),
    ]
    for count, step in zip(counts, steps, strict=True):
        assert switch.commands(*step) == count
        before = rig.clock.now()
        switch.change(*step).done()
        assert round((rig.clock.now() - before) / (40 * MS)) == count
