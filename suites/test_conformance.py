"""Identity and state of every instrument on the bench; no circuit is moved."""

from dataclasses import astuple
from functools import partial

from lightrig.testbeds import Plan

STATE = {
    "power_meter": lambda meter, channels: sorted(meter.power(channels).dbm),
    "light_source": lambda source, channels: [source.emission(c) for c in channels],
    "attenuator": lambda attenuator, channels: [attenuator.attenuation(c) for c in channels],
}
"""State that stays constant without commands, by kind; readings of light and heat do not."""


def test_every_instrument_identifies_itself(bench):
    """Complete, and equal to the identity read when the bench was opened."""
    for name, instrument in {**bench.switches, **bench.instruments}.items():
        assert all(astuple(bench.identities[name])), name
        assert instrument.identity() == bench.identities[name]


def test_repeated_state_queries_agree(testbed, bench):
    for switch in bench.switches.values():
        assert switch.circuits() == switch.circuits(), switch.name
    for name, instrument in bench.instruments.items():
        spec = testbed.instruments[name]
        if (state := STATE.get(spec.kind)) is not None:
            channels = range(1, spec.channels + 1)
            assert state(instrument, channels) == state(instrument, channels), name


def test_applying_the_present_state_sends_nothing(testbed, fabric, switches):
    """Applying the present state takes one query and no command."""
    for name, switch in switches.items():
        ingress, egress = testbed.cabling.cabled_ports(name)
        cabled = {c for c in switch.circuits() if c.ingress in ingress and c.egress in egress}
        present = Plan("present", {name: cabled})
        fabric.apply(present)
        sent = _sent(switch, partial(fabric.apply, present))
        assert sent == _sent(switch, switch.circuits), name


def _sent(switch, act):
    """Return the number of lines sent to the switch while `act` runs."""
    before = set(switch.wire())
    act()
    return sum(" > " in line for line in switch.wire() if line not in before)
