"""One Polatis, four wires: each says the same, in virtual and in real time."""

import contextlib
import re
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from real_time import slack, until
from switch_rig import EXACT, LOGIN, QUICK, simulated_switch, spec

from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.capabilities import PowerMonitor
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import CANNOT, DeniedError, GarbledError, UnreachableError
from lightrig.instruments.simulated.world.optics import DARK_DBM
from lightrig.instruments.switches.polatis import Polatis
from lightrig.instruments.switches.polatis.session import PatchOperation
from lightrig.instruments.wire.restconf import RestconfSession
from lightrig.testbeds import (
    Circuit,
    Delay,
    LightrigError,
    SimulatedMonitor,
    SimulatedSwitch,
    difference,
)

MS = 1_000_000
SCHEMES = ("tl1", "scpi", "netconf", "restconf")
NO_SUCH_PORT = {"tl1": "IDNV", "scpi": "-222", "netconf": "invalid-value", "restconf": "400"}
IN_USE = {"tl1": "SRCN", "scpi": "-221", "netconf": "in-use", "restconf": "409"}
CHANGES = {
    "tl1": "ENT-PATCH|DLT-PATCH",
    "scpi": "CONN:ADD|CONN:SUB",
    "netconf": "<nc:edit-config>",
    "restconf": "^(PATCH|PUT|DELETE) ",
}


@pytest.fixture(params=SCHEMES)
def scheme(request):
    return request.param


def sent(switch, pattern):
    """Return the commands of one kind that were sent to the switch, in order."""
    pieces = [piece for session in switch.sessions for piece in session.trace.pieces()]
    return [p.text for p in pieces if p.direction == ">" and re.search(pattern, p.text)]


def test_the_address_chooses_the_wire(scheme, virtual):
    rig = virtual(scheme=scheme, size=(12, 20))
    way = Endpoint(scheme, rig.host, rig.port, LOGIN, known_hosts=rig.known_hosts)
    switch = Polatis.open(spec("ocs", (12, 20), {}), way, rig.clock)
    rig.drivers.append(switch)
    assert scheme in Polatis.schemes
    assert isinstance(switch, PowerMonitor)
    identity = switch.identity()
    assert (identity.manufacturer, identity.serial) == ("Polatis", "SIM-ocs")
    assert identity.model == "N-VST-12x20-LU1-DMHNV-701"
    assert identity.firmware == "6.7.3.9"
    assert switch.size() == (12, 20)


def test_sixty_four_circuits_are_one_command(scheme, virtual):
    rig = virtual(scheme=scheme, size=(64, 64))
    switch = rig.driver()
    assert switch.circuits() == frozenset()
    every = [Circuit(port, 64 + (port * 37) % 64 + 1) for port in range(1, 65)]
    switch.change([], every).done()
    assert switch.circuits() == frozenset(every)
    assert rig.matrix.egress_of == dict(every)
    assert len(sent(switch, CHANGES[scheme])) == 1


def test_nothing_to_change_sends_nothing(scheme, virtual):
    switch = virtual(scheme=scheme).driver()
    operation = switch.change([], [])
    assert operation.sent == operation.done()
    assert switch.wire() == []


def test_circuits_of_another_program_are_not_touched(scheme, virtual):
    """Even those that somebody else makes after the switch was read."""
    rig = virtual(scheme=scheme)
    switch = rig.driver()
    rig.matrix.connect([Circuit(9, 25)])
    switch.change([], [Circuit(1, 17), Circuit(2, 18)]).done()
    assert switch.circuits() == {Circuit(1, 17), Circuit(2, 18), Circuit(9, 25)}
    rig.matrix.connect([Circuit(10, 26)])
    switch.change([Circuit(1, 17)], [Circuit(3, 19)]).done()
    assert rig.matrix.egress_of == {2: 18, 3: 19, 9: 25, 10: 26}
    switch.change([Circuit(2, 18), Circuit(3, 19)], []).done()
    assert rig.matrix.egress_of == {9: 25, 10: 26}


def test_the_acknowledgement_is_stamped_when_it_comes(scheme, virtual):
    """However late it is asked for, and while the monitors are read."""
    rig = virtual(SimulatedSwitch(acknowledge=Delay(300 * MS, 0, MS)), scheme=scheme)
    switch = rig.driver()
    switch.power([17])
    switch.circuits()
    before = rig.clock.now()
    operation = switch.change([], [Circuit(1, 17), Circuit(2, 18), Circuit(3, 19)])
    assert operation.sent == (before, before)
    while switch.power([17]).dbm[17] == DARK_DBM:
        rig.clock.sleep(10 * MS)
    assert rig.clock.now() - before < 150 * MS
    rig.clock.sleep(700 * MS)
    truth = rig.truth.first("ocs", "acknowledged", up=True, since=before)
    done = operation.done()
    assert done.earliest == done.latest
    assert 302 * MS < done.earliest - before < 304 * MS
    assert done == truth
    assert operation.done() == done


def test_two_switches_changed_at_once_take_no_longer_than_one(scheme):
    clock = VirtualClock(stall_timeout=20)
    with (
        simulated_switch(clock, EXACT, name="a", scheme=scheme) as one,
        simulated_switch(clock, EXACT, name="b", scheme=scheme) as other,
    ):
        switches = [one.driver(), other.driver()]
        for switch in switches:
            switch.circuits()
        before = clock.now()
        operations = [switch.change([], [Circuit(1, 17)]) for switch in switches]
        ends = [operation.done() for operation in operations]
        assert ends[0] == ends[1]
        assert 40 * MS < clock.now() - before < 42 * MS
        clock.parallel(*(switch.circuits for switch in switches))
    clock.close()


def test_one_seed_gives_one_wire_to_the_last_byte(scheme):
    def run():
        clock = VirtualClock(stall_timeout=20)
        with simulated_switch(clock, SimulatedSwitch(), scheme=scheme, monitors="both") as rig:
            switch = rig.driver()
            switch.identity()
            switch.change([], [Circuit(1, 17), Circuit(2, 18)]).done()
            clock.parallel(lambda: switch.power([17, 1, 18]), switch.circuits)
            switch.change([Circuit(1, 17)], [Circuit(1, 20)]).done()
            lines = [line for line in switch.wire() if " ! " not in line]
        clock.close()
        return lines

    assert run() == run()


@pytest.mark.parametrize("moved", [Circuit(1, 18), Circuit(9, 18)])
def test_a_port_in_use_is_refused(scheme, virtual, moved):
    if scheme in {"netconf", "restconf"} and moved.ingress == 1:
        moved = Circuit(3, 18)  # there an ingress has one egress, and merging moves it
    switch = virtual(scheme=scheme, rerouting=False).driver()
    switch.change([], [Circuit(1, 17), Circuit(2, 18)]).done()
    with pytest.raises(DeniedError, match="in use") as raised:
        switch.change([], [moved]).done()
    assert raised.value.code == IN_USE[scheme]
    assert "Port in use" in raised.value.text
    assert switch.circuits() == {Circuit(1, 17), Circuit(2, 18)}


def test_a_port_that_does_not_exist_is_refused(scheme, virtual):
    switch = virtual(scheme=scheme).driver()
    switch.change([], [Circuit(1, 17)]).done()
    with pytest.raises(DeniedError, match="compare `size:`") as raised:
        switch.change([], [Circuit(2, 18), Circuit(3, 35)]).done()
    assert raised.value.code == NO_SUCH_PORT[scheme]
    assert "Invalid OXC port: 35" in raised.value.text
    assert "35" in raised.value.command
    assert switch.circuits() == {Circuit(1, 17)}
    switch.change([], [Circuit(2, 18)]).done()
    assert switch.circuits() == {Circuit(1, 17), Circuit(2, 18)}


@pytest.mark.parametrize("monitors", ["egress", "both"])
def test_power_on_one_side_or_both(scheme, virtual, monitors):
    rig = virtual(scheme=scheme, monitors=monitors)
    switch = rig.driver(averaging=1)
    own = {*range(17, 33), *(range(1, 17) if monitors == "both" else ())}
    assert switch.monitored() == own
    switch.change([], [Circuit(1, 17), Circuit(16, 18)]).done()
    asked = rig.clock.now()
    reading = switch.power([17, 18, 19])
    assert reading.dbm[17] == pytest.approx(-rig.matrix.loss(Circuit(1, 17)), abs=0.006)
    assert reading.dbm[18] == reading.dbm[19] == DARK_DBM
    assert reading.window == 10 * MS
    assert asked <= reading.asked < reading.answered == rig.clock.now()
    if monitors == "both":
        entering = switch.power([16, 1, 17]).dbm
        assert entering[1] == 0.0
        assert entering[16] == DARK_DBM
        assert entering[17] == reading.dbm[17]
    else:
        refusal = {"tl1": DeniedError, "scpi": DeniedError}.get(scheme, GarbledError)
        with pytest.raises(refusal, match=r"no power monitor: 1|nothing of ports \[1\]"):
            switch.power([1])


@pytest.mark.parametrize(("monitors", "count"), [("none", 0), ("egress", 16), ("both", 32)])
def test_a_testbed_may_say_where_monitors_are(virtual, monitors, count):
    rig = virtual()
    assert len(rig.driver(monitors=monitors).monitored()) == count


@pytest.mark.parametrize("scheme", ["netconf", "restconf", "tl1"])
def test_the_window_follows_the_monitors_setting(scheme, virtual):
    rig = virtual(scheme=scheme)
    rig.peer.box.set_monitor(18, step=5)
    reading = rig.driver().power([17, 18])
    assert reading.window == 200 * MS


def test_over_scpi_the_window_is_the_stated_one(virtual):
    rig = virtual(SimulatedSwitch(monitor=SimulatedMonitor(320 * MS)), scheme="scpi")
    assert rig.driver(averaging=6).power([17]).window == 500 * MS
    assert rig.driver().power([17]).window == 100 * MS


def test_a_long_list_of_monitors_takes_several_scpi_queries(virtual):
    rig = virtual(scheme="scpi", size=(200, 300))
    switch = rig.driver()
    reading = switch.power(list(range(201, 501)))
    assert set(reading.dbm) == set(range(201, 501))
    assert len(sent(switch, "PMON:POW")) == 2


def test_shutters(scheme, virtual):
    rig = virtual(scheme=scheme)
    switch = rig.driver(averaging=1)
    switch.change([], [Circuit(1, 17), Circuit(2, 18)]).done()
    assert switch.shutters([1, 17, 18]) == {1: True, 17: True, 18: True}
    switch.set_shutters([17, 2], is_open=False)
    assert switch.shutters([1, 17, 2]) == {1: True, 17: False, 2: False}
    rig.clock.sleep(30 * MS)
    assert set(switch.power([17, 18]).dbm.values()) == {DARK_DBM}
    switch.set_shutters([17], is_open=True)
    rig.clock.sleep(30 * MS)
    dbm = switch.power([17, 18]).dbm
    assert dbm[17] > -5
    assert dbm[18] == DARK_DBM
    with pytest.raises(DeniedError, match="Invalid OXC port: 99"):
        switch.set_shutters([99], is_open=False)


@pytest.mark.parametrize("scheme", ["netconf", "restconf", "tl1"])
def test_attenuators_limit_what_leaves(scheme, virtual):
    rig = virtual(scheme=scheme, monitors="both")
    switch = rig.driver()
    switch.change([], [Circuit(1, 17)]).done()
    unattenuated = switch.power([17]).dbm[17]
    assert switch.attenuation(17) == 0.0
    switch.set_attenuation(17, 7.25)
    assert switch.attenuation(17) == 7.25
    rig.clock.sleep(200 * MS)
    assert switch.power([17]).dbm[17] == pytest.approx(-7.25, abs=0.006)
    switch.set_attenuation(17, 0.1)  # less than the circuit loses anyway
    rig.clock.sleep(200 * MS)
    assert switch.power([17]).dbm[17] == pytest.approx(unattenuated, abs=0.006)
    switch.set_attenuation(17, 0)
    assert switch.attenuation(17) == 0.0
    with pytest.raises(DeniedError, match="Invalid OXC port: 3"):
        switch.set_attenuation(3, 1.0)


@pytest.mark.parametrize("scheme", ["netconf", "restconf", "tl1"])
def test_absolute_mode_is_no_attenuation(scheme, virtual):
    from lightrig.instruments.simulated.devices.polatis_box import VoaSetting

    rig = virtual(scheme=scheme)
    rig.peer.box.set_voa(17, VoaSetting("ABSOLUTE", -10.0))
    with pytest.raises(DeniedError, match="mode ABSOLUTE") as raised:
        rig.driver().attenuation(17)
    assert raised.value.code == CANNOT


def test_over_scpi_there_is_no_attenuator(virtual):
    switch = virtual(scheme="scpi").driver()
    for ask in (lambda: switch.attenuation(17), lambda: switch.set_attenuation(17, 1.0)):
        with pytest.raises(DeniedError, match="no SCPI command") as raised:
            ask()
        assert raised.value.code == CANNOT
    assert switch.wire() == []


@pytest.mark.parametrize("scheme", ["netconf", "restconf", "tl1"])
def test_a_wrong_login_is_refused_and_no_secret_shown(scheme, virtual):
    rig = virtual(scheme=scheme)
    switch = rig.driver(login=(LOGIN[0], "not-this-one"))
    for ask in (switch.identity, lambda: switch.power([17])):
        with pytest.raises(UnreachableError, match="refused the login at 127") as raised:
            ask()
        assert "not-this-one" not in str(raised.value) + repr(raised.value)
    right = rig.driver()
    right.identity()
    right.power([17])
    shown = "\n".join(right.wire())
    assert "hunter2" not in shown
    assert "YmVuY2g6" not in shown  # what base64 makes of the user's name
    assert right.sessions[0].trace.pieces()


def test_a_netconf_switch_needs_a_known_host_key(virtual, tmp_path):
    rig = virtual(scheme="netconf")
    known = rig.known_hosts.read_text()
    nobody, another = tmp_path / "nobody", tmp_path / "another"
    nobody.write_text("")
    with simulated_switch(rig.clock, scheme="netconf", name="b") as other:
        key = other.known_hosts.read_text().split(" ", 1)[1]
    another.write_text(f"{known.split(' ', 1)[0]} {key}")
    for file, says in (
        (nobody, "showed an unknown host key"),
        (another, "showed another host key"),
        (tmp_path / "none", "known_hosts cannot be read"),
    ):
        rig.known_hosts = file
        with pytest.raises(UnreachableError, match=says):
            rig.driver().identity()


def test_errors_about_openflow_are_set_aside(virtual):
    rig = virtual(scheme="netconf", openflow_errors=True)
    switch = rig.driver()
    assert switch.identity().model.startswith("N-VST")
    switch.change([], [Circuit(1, 17)]).done()
    assert switch.circuits() == {Circuit(1, 17)}
    assert any("set aside: OpenFlow is not supported" in line for line in switch.wire())


def test_with_put_the_whole_collection_goes_with_its_version(virtual, monkeypatch):
    rig = virtual(scheme="restconf")
    switch = rig.driver(collection="put")
    rig.matrix.connect([Circuit(9, 25)])
    switch.change([], [Circuit(1, 17), Circuit(2, 18)]).done()
    switch.change([Circuit(1, 17)], [Circuit(2, 20), Circuit(3, 17)]).done()
    assert rig.matrix.egress_of == {2: 20, 3: 17, 9: 25}
    assert [text.split(" ")[0] for text in sent(switch, CHANGES["restconf"])] == ["PUT", "PUT"]
    honest = RestconfSession.get

    def read_too_early(self, path):
        reply = honest(self, path)
        rig.matrix.connect([Circuit(10, 26)])
        return reply

    monkeypatch.setattr(RestconfSession, "get", read_too_early)
    with pytest.raises(DeniedError, match="the circuits have changed since") as raised:
        switch.change([], [Circuit(5, 21)]).done()
    assert raised.value.code == "412"
    assert rig.matrix.egress_of == {2: 20, 3: 17, 9: 25, 10: 26}


@pytest.mark.parametrize("scheme", ["netconf", "restconf", "scpi"])
def test_moving_circuits_is_one_request(scheme, virtual):
    switch = virtual(scheme=scheme).driver()
    old, new = [Circuit(1, 17), Circuit(2, 18)], [Circuit(1, 18), Circuit(2, 17)]
    switch.change([], old).done()
    switch.change(old, new).done()
    assert switch.circuits() == set(new)
    assert len(sent(switch, CHANGES[scheme])) == 2


WRONG_OPTIONS = {
    "monitors": {"monitors": "ingress"},
    "averaging": {"averaging": 9},
    "collection": {"collection": "post"},
}


@pytest.mark.parametrize(("key", "options"), WRONG_OPTIONS.items(), ids=WRONG_OPTIONS)
def test_an_option_that_makes_no_sense(key, options):
    clock = SystemClock()
    with pytest.raises(LightrigError, match=f"ocs: options: {key}: found .* expected one of"):
        Polatis.open(spec("ocs", (8, 8), options), Endpoint("tl1", "ocs.invalid"), clock)
    clock.close()


def test_in_real_time(scheme, real):
    rig = real(scheme=scheme, monitors="both")
    switch = rig.driver()
    assert switch.identity().simulated
    circuits = [Circuit(1, 17), Circuit(2, 18)]
    for _ in range(20):
        began = rig.clock.now()
        operation = switch.change([], circuits)
        assert began <= operation.sent.earliest <= operation.sent.latest
        done = operation.done()
        # The command may have reached the switch at any moment of `sent`, also at its first.
        assert done.latest >= operation.sent.earliest + 2 * MS
        if done.earliest > operation.sent.latest:
            break
        # The reply was there before it was waited for: this machine was busy for 2 ms.
        switch.change(circuits, []).done()
    assert done.earliest >= operation.sent.earliest + 2 * MS
    assert done.earliest >= operation.sent.latest
    assert done.earliest - operation.sent.latest < 100 * MS + slack(rig.clock)
    assert switch.circuits() == {Circuit(1, 17), Circuit(2, 18)}
    lit = pytest.approx(-rig.matrix.loss(Circuit(1, 17)), abs=0.006)
    until(lambda: switch.power([17]).dbm[17] == lit, rig.clock)
    reading = switch.power([17, 18, 20])
    assert reading.dbm[17] == lit
    assert reading.dbm[20] == DARK_DBM
    assert reading.asked < reading.answered
    switch.set_shutters([17], is_open=False)
    assert switch.shutters([17, 18]) == {17: False, 18: True}
    switch.change([Circuit(1, 17), Circuit(2, 18)], []).done()
    with pytest.raises(DeniedError):
        switch.change([], [Circuit(1, 99)]).done()
    switch.close()
    assert switch.circuits() == frozenset()


def test_an_acknowledgement_ends_the_interval_in_which_its_command_was_written():
    """The writer was interrupted before its second stamp, at 10; the reply came at 7."""
    reply = SimpleNamespace(received=7, not_before=5)
    step = SimpleNamespace(sent=Span(1, 10), result=lambda: reply)
    clock = VirtualClock()
    operation = PatchOperation([step], clock)
    assert operation.done() == Span(5, 7)
    assert operation.sent == Span(1, 7)
    clock.close()


@pytest.mark.parametrize(
    "scheme",
    ["netconf", *(pytest.param(s, marks=pytest.mark.long) for s in SCHEMES if s != "netconf")],
    indirect=True,
)
def test_acknowledgements_in_real_time_are_stamped_by_their_reader(scheme, real):
    rig = real(scheme=scheme)
    switch = rig.driver()
    switch.circuits()
    operation = switch.change([], [Circuit(1, 17)])
    rig.clock.sleep(600 * MS)
    assert operation.done().latest - operation.sent.latest < 500 * MS


# ---------------------------------------------------------------------------- any sequence

_CIRCUITS = st.sets(st.tuples(st.integers(1, 6), st.integers(7, 12)), max_size=6).map(
    lambda pairs: frozenset(Circuit(*pair) for pair in _matching(pairs))
)


def _matching(pairs):
    ingress, egress, kept = set(), set(), []
    for pair in sorted(pairs):
        if pair[0] not in ingress and pair[1] not in egress:
            ingress.add(pair[0])
            egress.add(pair[1])
            kept.append(pair)
    return kept


@pytest.fixture(scope="module")
def all_wires():
    """One switch a wire, and one more for each way of changing circuits."""
    clock = VirtualClock(stall_timeout=20)
    ways = [
        *((scheme, {}, {}) for scheme in SCHEMES),
        ("tl1", {"rerouting": True}, {"rerouting": True}),
        ("scpi", {"rerouting": True}, {"rerouting": True}),
        ("restconf", {}, {"collection": "put"}),
    ]
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                simulated_switch(clock, QUICK, size=(6, 6), scheme=scheme, **peer)
            ).driver(**driver)
            for scheme, peer, driver in ways
        ]
    clock.close()


@settings(max_examples=5)
@given(steps=st.lists(_CIRCUITS, min_size=1, max_size=5))
def test_whatever_is_changed_all_wires_agree(all_wires, steps):
    for wanted in [*steps, frozenset()]:
        for switch in all_wires:
            change = difference(switch.circuits(), wanted)
            switch.change(change.remove, change.add).done()
        assert {switch.circuits() for switch in all_wires} == {wanted}


def test_an_ingress_in_two_circuits_is_refused_on_each_wire(scheme, virtual):
    """NETCONF and RESTCONF merge entries of one key, so there the driver sends nothing."""
    switch = virtual(scheme=scheme, size=(12, 20)).driver()
    with pytest.raises(DeniedError) as refused:
        switch.change([], [Circuit(2, 14), Circuit(2, 15)]).done()
    unsent = scheme in {"netconf", "restconf"}
    assert (refused.value.code == CANNOT) == unsent
    assert bool(sent(switch, CHANGES[scheme])) != unsent
    assert switch.circuits() == frozenset()
