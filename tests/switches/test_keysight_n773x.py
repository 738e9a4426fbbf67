"""A simulated N773x typed at by hand, and the driver against it and against one that lies."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import CANNOT, DeniedError, GarbledError, NotDoneError
from lightrig.instruments.simulated.devices.simulated_keysight_n773x import SimulatedKeysightN773x
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.light import Channels, LightField
from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.instruments.switches.keysight_n773x import KeysightN773x, Unit
from lightrig.testbeds import Circuit, Delay, SimulatedLoss, SimulatedSwitch, SwitchSpec

MS = 1_000_000
QUICK = SimulatedSwitch(
    acknowledge=Delay(MS // 2),
    dark=Delay(MS),
    settle=Delay(4 * MS),
    loss=SimulatedLoss(1.0, 0.1),
)
BAR = {Circuit(1, 3), Circuit(2, 4)}
CROSS = {Circuit(1, 4), Circuit(2, 3)}


@dataclass
class Box:
    clock: Clock
    matrix: Matrix
    truth: GroundTruth
    way: Endpoint
    drivers: list[KeysightN773x]

    def driver(self, **options: Any) -> KeysightN773x:
        made = KeysightN773x("sel", self.way, self.clock, **options)
        self.drivers.append(made)
        return made


@contextlib.contextmanager
def box(
    clock: Clock,
    size: tuple[int, int],
    modules: str = "",
    truth_of: SimulatedSwitch = QUICK,
    slots: str = "",
) -> Iterator[Box]:
    options = {"modules": modules} if modules else {}
    options |= {"slots": slots} if slots else {}
    spec = SwitchSpec(
        name="sel",
        kind="optical",
        model="keysight-n773x",
        address=None,
        ingress_count=size[0],
        egress_count=size[1],
        options=options,
        line=1,
        column=1,
    )
    truth, server = GroundTruth(), DeviceServer(clock)
    matrix = Matrix(
        "sel", truth_of, clock, Chance(1), truth, lambda _: 0.0, lambda egress, ingress, at: None
    )
    light = Channels("sel", LightField(()))
    peer = SimulatedKeysightN773x(
        DeviceContext(spec, clock, Chance(1), truth, ("", ""), "SIM-sel", matrix, light)
    )
    made = Box(clock, matrix, truth, Endpoint("scpi", *server.listen(peer.session)), [])
    try:
        yield made
    finally:
        for driver in made.drivers:
            driver.close()
        server.close()


@pytest.fixture
def boxed() -> Iterator[Callable[..., Box]]:
    """A box in virtual time."""
    clock = VirtualClock(stall_timeout=20)
    with contextlib.ExitStack() as stack:
        yield lambda *args, **other: stack.enter_context(box(clock, *args, **other))
    clock.close()


def test_identity(boxed):
    identity = boxed((1, 4)).driver().identity()
    assert (identity.manufacturer, identity.model) == ("Keysight Technologies", "N7734A")
    assert identity.simulated


def test_a_switch_without_dark_position_always_has_a_circuit(boxed):
    made = boxed((1, 4))
    switch = made.driver()
    assert switch.circuits() == {Circuit(1, 2)}
    for egress in (5, 3, 2, 4):
        (before,) = switch.circuits()
        switch.change([before], [Circuit(1, egress)]).done()
        assert switch.circuits() == {Circuit(1, egress)}
        assert made.matrix.egress_of == {1: egress}


@pytest.mark.parametrize(
    ("slots", "circuit"), [("2", ":ROUT2:CHAN1 A,3"), ("4", ":ROUT4:CHAN1 A,3")]
)
def test_a_module_in_a_mainframe_is_found_by_its_slot(boxed, slots, circuit):
    """`ROUTe#:CHANnel# A,3` with the slot's number: a public driver of 81595B in an 8163."""
    made = boxed((1, 4), slots=slots)
    switch = made.driver(slots=(int(slots),))
    switch.change(switch.circuits(), [Circuit(1, 4)]).done()
    assert made.matrix.egress_of == {1: 4}
    assert any(line.endswith(circuit) for line in switch.wire())
    without = made.driver()
    with pytest.raises(DeniedError):  # its slot 1 holds a power meter
        without.circuits()


def test_several_modules_in_a_mainframe_are_one_switch(boxed):
    made = boxed((3, 6), "1x4,2x2", slots="2,4")
    switch = made.driver(slots=(2, 4))
    assert switch.circuits() == {Circuit(1, 4), Circuit(2, 8), Circuit(3, 9)}
    switch.change([Circuit(1, 4)], [Circuit(1, 7)]).done()
    switch.change([Circuit(2, 8), Circuit(3, 9)], [Circuit(2, 9), Circuit(3, 8)]).done()
    assert made.matrix.egress_of == {1: 7, 2: 9, 3: 8}


def test_a_two_by_two_is_bar_or_cross(boxed):
    made = boxed((2, 2))
    switch = made.driver()
    assert switch.circuits() == BAR
    switch.change(BAR, CROSS).done()
    assert switch.circuits() == CROSS
    assert made.matrix.egress_of == dict(CROSS)
    assert [line for line in switch.wire() if "> :ROUT1:CHAN1 " in line][-1].endswith("A,2")
    switch.change(CROSS, BAR).done()
    assert switch.circuits() == BAR


@pytest.mark.parametrize(
    ("remove", "add"),
    [
        (BAR, []),
        ([Circuit(1, 3)], []),
        ([Circuit(1, 3)], [Circuit(1, 4)]),
        ([], [Circuit(1, 4)]),
        (BAR, [Circuit(1, 4)]),
    ],
)
def test_a_change_to_darkness_is_refused_before_it_is_sent(boxed, remove, add):
    made = boxed((2, 2))
    switch = made.driver()
    with pytest.raises(DeniedError) as denied:
        switch.change(remove, add)
    assert denied.value.code == CANNOT
    assert "it can be 1>3 2>4 or 1>4 2>3" in str(denied.value)
    assert not any(" A," in line and " > " in line for line in switch.wire())
    assert made.matrix.egress_of == dict(BAR)


def test_a_circuit_that_no_switch_of_the_box_can_make_is_refused(boxed):
    switch = boxed((2, 8)).driver()
    with pytest.raises(DeniedError, match="1>7 is a circuit of none of its switches") as denied:
        switch.change([Circuit(1, 3)], [Circuit(1, 7)])
    assert denied.value.code == CANNOT


def test_several_switches_in_one_box_are_numbered_one_after_the_other(boxed):
    made = boxed((5, 8), modules="2x2,1x2+1x2,1x2")
    switch = made.driver(per_slot=1)
    assert switch.circuits() == {Circuit(1, 5), Circuit(2, 6), Circuit(3, 7), Circuit(4, 9)}


def test_dual_modules_have_channels(boxed):
    made = boxed((4, 8), modules="1x2+1x2,1x2+1x2")
    switch = made.driver(per_slot=2)
    first = {Circuit(n, 2 * n + 3) for n in range(1, 5)}
    assert switch.circuits() == first
    switch.change([Circuit(2, 7), Circuit(4, 11)], [Circuit(2, 8), Circuit(4, 12)]).done()
    assert switch.circuits() == {Circuit(1, 5), Circuit(2, 8), Circuit(3, 9), Circuit(4, 12)}
    assert made.matrix.egress_of == {1: 5, 2: 8, 3: 9, 4: 12}


def test_one_change_routes_every_switch_of_the_box_that_it_touches(boxed):
    switch = boxed((3, 10), modules="1x4,1x4,1x2").driver()
    operation = switch.change([Circuit(1, 4), Circuit(3, 12)], [Circuit(1, 7), Circuit(3, 13)])
    sent = [
        line.split(" > ")[1] for line in switch.wire() if " > :ROUT" in line and "?" not in line
    ]
    assert sent == [":ROUT1:CHAN1 A,4", ":ROUT3:CHAN1 A,2"]
    operation.done()
    assert switch.circuits() == {Circuit(1, 7), Circuit(2, 8), Circuit(3, 13)}


def test_done_is_not_before_the_light_has_settled(boxed):
    made = boxed((1, 4))
    switch = made.driver(settling=8 * MS)
    switch.circuits()
    before = made.clock.now()
    operation = switch.change([Circuit(1, 2)], [Circuit(1, 5)])
    assert before <= operation.sent.earliest <= operation.sent.latest == made.clock.now()
    done = operation.done()
    assert done.latest >= operation.sent.latest + 8 * MS
    truth = made.truth.first("sel", "acknowledged", up=True, since=before)
    # The switch accepts at any moment after the first command was begun.
    assert done.earliest == operation.sent.earliest <= truth.earliest <= done.latest
    light = made.truth.first("sel.5", "light", up=True, since=before)
    assert light.latest <= done.latest


def test_nothing_to_change_sends_nothing(boxed):
    switch = boxed((1, 4)).driver()
    operation = switch.change([], [])
    assert operation.sent == operation.done()
    assert switch.wire() == []


def test_the_same_again_sends_no_route(boxed):
    switch = boxed((1, 4)).driver()
    switch.change([Circuit(1, 2)], [Circuit(1, 2)]).done()
    assert not any(" A," in line and " > " in line for line in switch.wire())


@settings(max_examples=25)
@given(st.lists(st.sampled_from(list(itertools.product(range(1, 4), range(1, 5)))), max_size=8))
def test_wherever_it_is_sent_it_goes(moves):
    clock = VirtualClock(stall_timeout=20)
    with box(clock, (3, 12)) as made:
        switch = made.driver()
        for ingress, number in moves:
            before = {circuit for circuit in switch.circuits() if circuit.ingress == ingress}
            wanted = Circuit(ingress, 3 + 4 * (ingress - 1) + number)
            switch.change(before, [wanted]).done()
            assert wanted in switch.circuits()
            assert made.matrix.egress_of == dict(switch.circuits())
    clock.close()


@given(st.text(alphabet="ABZ129,;. ", max_size=12))
def test_a_text_is_a_state_or_none(text):
    unit = Unit(":ROUT1:CHAN1", 3, 10, 1)
    state = unit.read(text)
    if state is not None:
        assert all(circuit.ingress >= 3 for circuit in state)
        assert unit.command(state).startswith(":ROUT1:CHAN1 ")


@given(st.integers(1, 12), st.integers(0, 3), st.integers(1, 64))
def test_the_command_for_a_state_names_its_first_path(ingress, letter, number):
    unit = Unit(":ROUT2:CHAN1", ingress, 20, 1)
    words = f"{chr(ord('A') + letter)},{number}"
    assert unit.command(unit.read(words)) == f":ROUT2:CHAN1 {words}"


# ------------------------------------------------------------------------- typed by hand


def typed(made: Box, *commands: str) -> list[str]:
    """Return the replies at a terminal; a command without a reply is followed by a query."""
    answers = []
    with socket.create_connection((made.way.host, made.way.port), timeout=30) as line:
        stream = line.makefile("rw", newline="\n")
        for command in commands:
            stream.write(f"{command}\n")
            if "?" not in command:
                stream.write(":SYST:ERR?\n")
            stream.flush()
            answers.append(stream.readline().strip())
        stream.close()
    return answers


def test_replies_are_those_of_the_guide():
    clock = SystemClock()
    with box(clock, (3, 6), modules="2x2,1x4") as made:
        assert typed(
            made,
            "*OPT?",
            "rout1:conf?",
            ":ROUTe2:CHANnel1:CONFig?",
            ":ROUT1:CONF:ROUT?",
            ":ROUT2:CONF:ROUT?",
            ":ROUT1?",
            ":ROUT1 A,2",
            ":ROUT1:CHAN1?",
            ":ROUT1 B,2",
            ":ROUT1?",
            ":ROUT1 A,3",
            ":ROUT2 B,1",
            ":ROUT3?;:SYST:ERR?",
            ":ROUT2 A,4",
            ":ROUT2?",
        ) == [
            "N7731A-008,N7731A-008",
            "A,B;1,2",
            "A,A;1,4",
            "A,1;B,2.A,2;B,1",
            "A,1.A,2.A,3.A,4",
            "A,1;B,2",
            '+0,"No error"',
            "A,2;B,1",
            '+0,"No error"',
            "A,1;B,2",
            '-220,"Parameter error (StatParamError)"',
            '-220,"Parameter error (StatParamError)"',
            '-303,"Module slot empty or slot / channel invalid"',
            '+0,"No error"',
            "A,4",
        ]
    clock.close()


# ---------------------------------------------------------------------------------- lies

WELL = {
    "*OPT?": "N7734A-008",
    ":ROUT1:CHAN1:CONF?": "A,A;1,4",
    ":ROUT1:CHAN1:CONF:ROUT?": "A,1.A,2.A,3.A,4",
    ":ROUT1:CHAN1?": "A,1",
    ":SYST:ERR?": '+0,"No error"',
    "*IDN?": "Keysight Technologies,N7734A,MY1,V1",
}


@contextlib.contextmanager
def faulty_switch(answers: dict[str, str]) -> Iterator[Endpoint]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, connection.makefile("rw", newline="\n") as stream:
                    for line in stream:
                        if line.strip() in answers:
                            stream.write(f"{answers[line.strip()]}\n")
                            stream.flush()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield Endpoint("scpi", *listener.getsockname())
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        ({":ROUT1:CHAN1:CONF?": "A,Z"}, GarbledError),
        ({":ROUT1:CHAN1:CONF?": "B,A;1,4"}, GarbledError),
        ({":ROUT1:CHAN1:CONF:ROUT?": "A,1.A"}, GarbledError),
        ({":ROUT1:CHAN1:CONF:ROUT?": "off"}, GarbledError),
        ({":ROUT1:CHAN1?": "A,9"}, GarbledError),
        ({":ROUT1:CHAN1?": "dark"}, GarbledError),
        ({":SYST:ERR?": "fine"}, GarbledError),
        ({}, NotDoneError),
    ],
)
def test_an_invalid_reply_or_an_unmoved_switch_is_an_error(lie, error):
    clock = SystemClock()
    with (
        faulty_switch({**WELL, **lie}) as way,
        contextlib.closing(KeysightN773x("sel", way, clock, settling=MS)) as switch,
        pytest.raises(error, match="sel"),
    ):
        switch.change([Circuit(1, 2)], [Circuit(1, 4)]).done()
    clock.close()


def test_a_refused_route_is_raised_with_its_meaning(monkeypatch):
    """The switch lists A,6 among its routes, and has four."""
    execute = SimulatedKeysightN773x.execute

    def listed(self, header, arguments):
        found = execute(self, header, arguments)
        return f"{found}.A,6" if header.endswith("CONF:ROUT?") else found

    monkeypatch.setattr(SimulatedKeysightN773x, "execute", listed)
    clock = SystemClock()
    with box(clock, (1, 4)) as made:
        switch = made.driver()
        with pytest.raises(DeniedError, match="StatParamError") as denied:
            switch.change([Circuit(1, 2)], [Circuit(1, 7)]).done()
        assert denied.value.code == "-220"
        assert switch.circuits() == {Circuit(1, 2)}
    clock.close()


def test_in_real_time_too():
    clock = SystemClock()
    with box(clock, (2, 2)) as made:
        switch = made.driver()
        switch.change(BAR, CROSS).done()
        assert switch.circuits() == CROSS
    clock.close()
