"""The Polatis driver against a simulated switch, in virtual and in real time."""

import pytest
from switch_rig import EXACT, simulated_switch

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import DeniedError, GarbledError, UnreachableError
from lightrig.instruments.simulated.world.optics import DARK_DBM
from lightrig.testbeds import Circuit, Delay, SimulatedMonitor, SimulatedSwitch

MS = 1_000_000


def commands(switch, verb=""):
    """Return the driver's commands that change circuits, or those that start with `verb`."""
    wanted = (verb,) if verb else ("ENT-PATCH", "DLT-PATCH")
    pieces = (line.split(" > ", 1)[-1] for line in switch.wire() if " > " in line)
    return [":".join(text.split(":")[:3]) for text in pieces if text.startswith(wanted)]


def test_identity(virtual):
    switch = virtual(size=(32, 48)).driver()
    identity = switch.identity()
    assert identity.manufacturer == "Polatis"
    assert identity.model == "N-VST-32x48-LU1-DMHNV-701"
    assert identity.serial == "SIM-ocs"
    assert identity.simulated
    assert switch.size() == (32, 48)
    assert switch.name == "ocs"


def test_circuits_none_and_many(virtual):
    rig = virtual(size=(64, 64))
    switch = rig.driver()
    assert switch.circuits() == frozenset()
    every = [Circuit(port, 64 + (port * 37) % 64 + 1) for port in range(1, 65)]
    switch.change([], every).done()
    assert switch.circuits() == frozenset(every)
    assert len(commands(switch)) == 1
    assert rig.matrix.egress_of == dict(every)


def test_nothing_to_change_sends_nothing(virtual):
    switch = virtual().driver()
    operation = switch.change([], [])
    assert operation.sent == operation.done()
    assert switch.wire() == []


def test_a_change_takes_as_long_as_the_switch_does(virtual):
    rig = virtual()
    switch = rig.driver()
    switch.circuits()
    before = rig.clock.now()
    operation = switch.change([], [Circuit(1, 17), Circuit(2, 18), Circuit(3, 19)])
    assert operation.sent == (before, before)
    done = operation.done()
    assert done.earliest == done.latest == rig.clock.now()
    assert 42 * MS < done.earliest - before < 43 * MS
    truth = rig.truth.first("ocs", "acknowledged", up=True, since=before)
    assert truth == done
    light = rig.truth.first("ocs.18", "light", up=True, since=before)
    assert light is not None
    assert 20 * MS < light.earliest - before < 21 * MS


@pytest.mark.parametrize(
    ("rerouting", "sent"),
    [(True, ["ENT-PATCH::1&2,18&17"]), (False, ["DLT-PATCH::1&2", "ENT-PATCH::1&2,18&17"])],
)
def test_moving_circuits(virtual, rerouting, sent):
    rig = virtual(rerouting=rerouting)
    switch = rig.driver(rerouting=rerouting)
    old, new = [Circuit(2, 18), Circuit(1, 17)], [Circuit(2, 17), Circuit(1, 18)]
    stays = Circuit(5, 21)
    switch.change([], [*old, stays]).done()
    switch.change(old, new).done()
    assert switch.circuits() == {*new, stays}
    assert commands(switch)[1:] == sent


def test_rerouting_removes_only_what_is_not_moved(virtual):
    rig = virtual(rerouting=True)
    switch = rig.driver(rerouting=True)
    old = [Circuit(1, 17), Circuit(2, 18), Circuit(3, 19)]
    switch.change([], old).done()
    switch.change(old, [Circuit(1, 18), Circuit(4, 20)]).done()
    assert switch.circuits() == {Circuit(1, 18), Circuit(4, 20)}
    assert commands(switch)[1:] == ["DLT-PATCH::3", "ENT-PATCH::1&4,18&20"]


@pytest.mark.parametrize("rerouting", [False, True])
def test_removing_some(virtual, rerouting):
    rig = virtual(rerouting=rerouting)
    switch = rig.driver(rerouting=rerouting)
    switch.change([], [Circuit(1, 17), Circuit(2, 18), Circuit(3, 19)]).done()
    switch.change([Circuit(3, 19), Circuit(1, 17)], []).done()
    assert switch.circuits() == {Circuit(2, 18)}
    assert commands(switch)[1:] == ["DLT-PATCH::1&3"]


@pytest.mark.parametrize("circuit", [Circuit(1, 18), Circuit(2, 17), Circuit(1, 19)])
def test_a_busy_port_is_denied_where_the_switch_does_not_reroute(virtual, circuit):
    switch = virtual(rerouting=False).driver()
    switch.change([], [Circuit(1, 17), Circuit(2, 18)]).done()
    with pytest.raises(DeniedError, match="SRCN Port in use") as raised:
        switch.change([], [circuit]).done()
    assert raised.value.code == "SRCN"
    assert switch.circuits() == {Circuit(1, 17), Circuit(2, 18)}
    switch.change([], [Circuit(1, 17)]).done()


def test_a_port_that_does_not_exist(virtual):
    switch = virtual().driver()
    with pytest.raises(DeniedError) as raised:
        switch.change([], [Circuit(3, 35)]).done()
    assert (raised.value.code, raised.value.text) == ("IDNV", "Invalid OXC port: 35")
    assert "meaning   a port or a value in the command does not exist" in str(raised.value)
    assert "try       compare `size:`" in str(raised.value)
    assert raised.value.command == "ENT-PATCH::3,35:2:;"
    assert "ENT-PATCH::3,35:2:;" in str(raised.value)
    with pytest.raises(DeniedError, match="IDNV Invalid OXC port: 17"):
        switch.change([], [Circuit(17, 18)]).done()
    with pytest.raises(DeniedError, match="IDNV Port has no power monitor: 3"):
        switch.power([3])
    assert switch.circuits() == frozenset()


def test_the_first_denial_of_a_change_is_raised_and_the_rest_done(virtual):
    switch = virtual().driver(rerouting=False)
    with pytest.raises(DeniedError, match="Invalid OXC port: 99"):
        switch.change([Circuit(99, 17)], [Circuit(1, 17)]).done()
    assert switch.circuits() == {Circuit(1, 17)}


def test_power_of_lit_and_dark_ports(virtual):
    rig = virtual()
    switch = rig.driver()
    switch.change([], [Circuit(1, 17), Circuit(16, 18)]).done()
    asked = rig.clock.now()
    reading = switch.power([17, 18, 19])
    assert reading.dbm[17] == pytest.approx(-rig.matrix.loss(Circuit(1, 17)), abs=0.006)
    assert reading.dbm[18] == reading.dbm[19] == DARK_DBM
    assert reading.window == 10 * MS
    assert asked < reading.asked < reading.answered == rig.clock.now()
    again = switch.power([19])
    assert again.asked == reading.answered
    assert len(commands(switch, "RTRV-PORT-PMON")) == 1
    switch.power([20])
    assert len(commands(switch, "RTRV-PORT-PMON")) == 2


@pytest.mark.parametrize("step", range(1, 9))
def test_the_monitors_window_is_learnt(virtual, step):
    window = 10 * MS << (step - 1)
    rig = virtual(SimulatedSwitch(monitor=SimulatedMonitor(window, 0.0)))
    switch = rig.driver()
    switch.change([], [Circuit(1, 17)]).done()
    reading = switch.power([17])
    assert window <= reading.window <= 1.6 * window
    assert -60 < reading.dbm[17] <= 0


def test_light_can_be_watched_while_the_switch_is_busy(virtual):
    rig = virtual(SimulatedSwitch(acknowledge=Delay(500 * MS)))
    switch = rig.driver()
    switch.power([17])
    operation = switch.change([], [Circuit(1, 17)])
    seen = []
    while switch.power([17]).dbm[17] == DARK_DBM:
        seen.append(rig.clock.now())
    assert seen
    assert rig.clock.now() - operation.sent.latest < 100 * MS
    assert operation.done().latest - operation.sent.latest > 400 * MS


def test_two_switches_changed_at_once_twenty_times():
    def run():
        clock = VirtualClock(stall_timeout=20)
        with (
            simulated_switch(clock, EXACT, name="a") as one,
            simulated_switch(clock, SimulatedSwitch(), name="b") as other,
        ):
            switches = [one.driver(), other.driver()]
            moved = [Circuit(1, 17), Circuit(2, 18)]

            def change(switch):
                switch.change([], moved).done()
                return clock.now(), switch.power([17]).dbm, switch.wire()

            found = clock.parallel(*[lambda switch=switch: change(switch) for switch in switches])
            end = clock.now()
        clock.close()
        return [
            (at, dbm, [line for line in wire if "!" not in line]) for at, dbm, wire in found
        ], end

    first = run()
    (one, _, _), (other, _, _) = first[0]
    assert 41 * MS < one < 43 * MS
    assert 35 * MS < other < 46 * MS
    assert first[1] < 50 * MS
    for _ in range(19):
        assert run() == first


@pytest.mark.parametrize(
    "login", [("bench", "wrong-password"), ("Bench", "hunter2-and-more"), ("root", "root")]
)
def test_a_wrong_login_is_refused(virtual, login):
    switch = virtual().driver(login=login)
    for ask in (switch.identity, lambda: switch.power([17])):
        with pytest.raises(UnreachableError, match="refused the login") as raised:
            ask()
        assert login[1] not in str(raised.value).replace("root", "", login[0] == "root")
        assert "PICC Authentication failure" in str(raised.value)


def test_without_a_login_everything_is_denied(virtual):
    switch = virtual().driver(login=None)
    with pytest.raises(DeniedError, match="Not logged in"):
        switch.circuits()


def test_both_sessions_log_in_once_and_tell_no_password(virtual):
    switch = virtual().driver()
    switch.circuits()
    switch.power([17])
    switch.size()
    assert commands(switch, "ACT-USER") == ["ACT-USER::bench"] * 2
    assert "hunter2" not in "\n".join(switch.wire())
    assert "***" in "\n".join(switch.wire())


def test_reports_of_the_switch_disturb_nothing(virtual):
    rig = virtual()
    switch = rig.driver()
    switch.circuits()
    operation = switch.change([], [Circuit(1, 17)])
    for at in range(0, 60 * MS, 7 * MS):
        rig.clock.schedule(
            rig.clock.now() + at, "alarm", lambda: rig.sessions[0].report("Port 1 disabled")
        )
    operation.done()
    assert switch.circuits() == {Circuit(1, 17)}


WRONG = {
    "circuits": ("RTRV-PATCH", lambda switch: switch.circuits(), ["x,17"]),
    "a circuit without sides": ("RTRV-PATCH", lambda switch: switch.circuits(), ["1,a"]),
    "size": ("RTRV-EQPT", lambda switch: switch.size(), ["SYSTEM:SIZE=many"]),
    "no size": ("RTRV-EQPT", lambda switch: switch.size(), []),
    "identity": ("RTRV-NETYPE", lambda switch: switch.identity(), ["Polatis,N-VST"]),
    "serial": ("RTRV-INV", lambda switch: switch.identity(), ["OCS::"]),
    "power": ("RTRV-PORT-POWER", lambda switch: switch.power([17]), ["17:--"]),
    "missing power": ("RTRV-PORT-POWER", lambda switch: switch.power([17]), ["18:-3.00"]),
    "window": ("RTRV-PORT-PMON", lambda switch: switch.power([17]), ["17:1310.0,0.00,9"]),
    "missing window": ("RTRV-PORT-PMON", lambda switch: switch.power([17]), []),
}


@pytest.mark.parametrize(("verb", "ask", "lines"), WRONG.values(), ids=WRONG)
def test_an_invalid_reply_is_shown(virtual, monkeypatch, verb, ask, lines):
    from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
    from lightrig.instruments.simulated.protocols.tl1_device import Tl1Reply

    unchanged = SimulatedPolatis.execute

    def execute(self, request):
        return Tl1Reply(lines) if request.verb == verb else unchanged(self, request)

    monkeypatch.setattr(SimulatedPolatis, "execute", execute)
    switch = virtual().driver()
    with pytest.raises(GarbledError, match="ocs answered something that is no ") as raised:
        ask(switch)
    assert verb in "\n".join(raised.value.trace)


def test_free_ports_may_be_listed(virtual, monkeypatch):
    from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
    from lightrig.instruments.simulated.protocols.tl1_device import Tl1Reply

    unchanged = SimulatedPolatis.execute

    def execute(self, request):
        if request.verb == "RTRV-PATCH":
            return Tl1Reply(["1,17", "2,0", "3,", "4,20"])
        return unchanged(self, request)

    monkeypatch.setattr(SimulatedPolatis, "execute", execute)
    assert virtual().driver().circuits() == {Circuit(1, 17), Circuit(4, 20)}


def test_in_real_time(real):
    rig = real()
    switch = rig.driver()
    assert switch.identity().simulated
    assert switch.size() == (16, 16)
    began = rig.clock.now()
    operation = switch.change([], [Circuit(1, 17), Circuit(2, 18)])
    assert began <= operation.sent.earliest <= operation.sent.latest
    done = operation.done()
    # The command arrived at any moment of `sent`: the later one may follow a pause of this process.
    assert done.latest >= operation.sent.earliest + 2 * MS
    assert switch.circuits() == {Circuit(1, 17), Circuit(2, 18)}
    rig.clock.sleep(20 * MS)
    reading = switch.power([17, 18, 20])
    assert reading.dbm[17] == pytest.approx(-rig.matrix.loss(Circuit(1, 17)), abs=0.006)
    assert reading.dbm[20] == DARK_DBM
    assert reading.asked < reading.answered
    switch.change([Circuit(1, 17), Circuit(2, 18)], []).done()
    assert switch.circuits() == frozenset()
    with pytest.raises(DeniedError, match="IDNV"):
        switch.change([], [Circuit(1, 99)]).done()
    switch.close()
    assert switch.circuits() == frozenset()
