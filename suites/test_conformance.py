"""Does everything on the bench answer as itself, and twice alike? Nothing is moved."""

from dataclasses import astuple
from functools import partial

from testbeds import Plan

STATE = {
    "power_meter": lambda meter, channels: sorted(meter.power(channels).dbm),
    "light_source": lambda source, channels: [source.emission(c) for c in channels],
    "attenuator": lambda attenuator, channels: [attenuator.attenuation(c) for c in channels],
}
"""What stays as it is while nobody touches it, by kind; a reading of light or heat does not."""


def test_everything_says_who_it_is(bench):
    """Completely, and the same as when the bench was opened."""
    for name, instrument in {**bench.switches, **bench.instruments}.items():
        assert all(astuple(bench.identities[name])), name
        assert instrument.identity() == bench.identities[name]


def test_everything_tells_its_state_twice_alike(testbed, bench):
    for switch in bench.switches.values():
        assert switch.circuits() == switch.circuits(), switch.name
    for name, instrument in bench.instruments.items():
        spec = testbed.instruments[name]
        if (state := STATE.get(spec.kind)) is not None:
            channels = range(1, spec.channels + 1)
            assert state(instrument, channels) == state(instrument, channels), name


def test_what_a_switch_holds_is_not_sent_again(testbed, fabric, switches):
    """Applying the state that it is in takes one reading and no command."""
    for name, switch in switches.items():
        ingress, egress = testbed.cabling.own_ports(name)
        own = {c for c in switch.circuits() if c.ingress in ingress and c.egress in egress}
        held = Plan("as held", {name: own})
        fabric.apply(held)
        sent = _sent(switch, partial(fabric.apply, held))
        assert sent == _sent(switch, switch.circuits), name


def _sent(switch, act):
    """How many lines went to the switch meanwhile."""
    before = set(switch.wire())
    act()
    return sum(" > " in line for line in switch.wire() if line not in before)
