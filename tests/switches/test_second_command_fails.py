"""A change of which one circuit is refused: which circuits are there afterwards, on each wire."""

import pytest

from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import Circuit

FIRST = {Circuit(1, 17), Circuit(5, 31), Circuit(7, 20)}
REMOVED = {Circuit(5, 31)}
ADDED = {Circuit(2, 31), Circuit(3, 20), Circuit(4, 32)}
"""The second asks for egress 20, which has light from ingress 7."""

AFTERWARDS = {
    # RFC 6241, 8.3 and 7.2: an edit is made as a whole or not at all.
    ("polatis", "netconf"): FIRST,
    # Two commands: what the first removed stays removed; the second is denied as a whole.
    ("polatis", "tl1"): FIRST - REMOVED,
    ("polatis", "scpi"): FIRST - REMOVED,
    ("polatis", "restconf"): FIRST - REMOVED,
    # A command a circuit.
    ("calient-s", "tl1"): {Circuit(1, 17), Circuit(7, 20), Circuit(2, 31), Circuit(4, 32)},
    # `update` would take egress 20 from ingress 7: refused before it is sent.
    ("sonic-ocs", "ssh"): FIRST,
    # gNMI specification, 3.4.3: a Set is made as a whole or not at all.
    ("sonic-ocs", "gnmi"): FIRST,
}


@pytest.mark.parametrize(("model", "scheme"), AFTERWARDS)
def test_circuits_after_a_change_of_which_the_second_is_refused(virtual, model, scheme):
    uneven = model == "polatis"
    rig = virtual(
        model=model,
        scheme=scheme,
        size=(12, 20) if uneven else (16, 16),
        **({"rerouting": False} if uneven else {}),
    )
    # The egress ports of a Polatis of 12 x 20 are 13 to 32, those of the others 17 to 32.
    switch = rig.driver(**({} if uneven else {"ports": 16}))
    switch.change([], FIRST).done()
    assert switch.circuits() == FIRST
    with pytest.raises(DeniedError) as raised:
        switch.change(REMOVED, ADDED).done()
    assert "3" in str(raised.value)
    assert switch.circuits() == AFTERWARDS[model, scheme]
    # The session goes on, and is in step with its replies.
    left = AFTERWARDS[model, scheme]
    switch.change(left, [Circuit(12, 20)]).done()
    assert switch.circuits() == {Circuit(12, 20)}
