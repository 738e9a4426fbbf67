"""The simulated Polatis over SCPI, typed by hand and compared with what drivers quote of it."""

import re
import socket

import pytest


class Terminal:
    """Return the reply as a person at a terminal would see it."""

    def __init__(self, rig):
        self.socket = socket.create_connection((rig.host, rig.port), timeout=30)
        self._buffer = b""

    def ask(self, text, end="\n"):
        self.socket.sendall(f"{text}{end}".encode())
        while b"\r\n" not in self._buffer:
            data = self.socket.recv(4096)
            assert data, "the switch hung up"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line.decode("ascii")


@pytest.fixture
def rig(real):
    return real(scheme="scpi", rerouting=False)


@pytest.fixture
def terminal(rig):
    made = Terminal(rig)
    yield made
    made.socket.close()


def test_identity_and_size(terminal):
    assert terminal.ask("*idn?") == "Polatis,N-VST-16x16-LU1-DMHNV-701,SIM-ocs,6.7.3.9"
    assert terminal.ask(":oxc:swit:size?") == "16,16"
    assert terminal.ask("*opc?", end="\r\n") == "1"
    assert terminal.ask(":syst:err?") == '0,"No error"'
    assert re.fullmatch(
        r'IP="127[.\d]+" Gateway="[.\d]+" Mask="[.\d]+" Broadcast="[.\d]+"',
        terminal.ask(":syst:comm:netw:addr?"),
    )
    assert terminal.ask(":syst:comm:netw2:addr?").startswith("IP=")


@pytest.mark.parametrize("header", [":oxc:swit:conn", "OXC:SWITch:CONNect", ":OXC:SWIT:CONN"])
def test_connections_are_added_and_taken_down(terminal, header):
    assert terminal.ask(f"{header}:stat?") == "(@),(@)"
    assert terminal.ask(f"{header}:add (@1,2,3),(@19,18,22);*opc?") == "1"
    assert terminal.ask(f"{header}:stat?") == "(@1,2,3),(@19,18,22)"
    assert terminal.ask(f"{header}:sub (@1,2),(@19,17);*opc?") == "1"  # 2 is not at 17
    assert terminal.ask(f"{header}:stat?") == "(@2,3),(@18,22)"
    assert terminal.ask(f"{header}:sub (@3),(@);*opc?") == "1"
    assert terminal.ask(f"{header}:stat?") == "(@2),(@18)"
    assert terminal.ask(f"{header}:port? 2") == '"18"'
    assert terminal.ask(f"{header}:port? 18") == '"2"'
    assert terminal.ask(f"{header}:port? 5") == '""'
    assert terminal.ask("syst:err?") == '0,"No error"'


def test_only_removes_all_circuits_that_it_does_not_name(terminal):
    terminal.ask(":oxc:swit:conn:add (@1,2),(@17,18);*opc?")
    only = ":oxc:swit:conn:only (@2,3),(@17,18); stat?"  # goes on from the same path
    assert terminal.ask(only) == "(@2,3),(@17,18)"
    assert terminal.ask(":oxc:swit:disc:all;*opc?") == "1"
    assert terminal.ask(":oxc:swit:conn:stat?") == "(@),(@)"


def test_a_reset_disconnects_everything(terminal):
    terminal.ask(":oxc:swit:conn:add (@1),(@17);*opc?")
    assert terminal.ask("*rst;*opc?") == "1"
    assert terminal.ask(":oxc:swit:conn:stat?") == "(@),(@)"


def test_completion_comes_when_the_light_has_moved(terminal, rig):
    began = rig.clock.now()
    assert terminal.ask(":oxc:swit:conn:add (@1),(@17);*opc?") == "1"
    assert rig.clock.now() - began >= 2_000_000


OBJECTIONS = {
    "no such egress": (":oxc:swit:conn:add (@1),(@33)", '-222,"Data out of range;Invalid OXC '),
    "an ingress as egress": (":oxc:swit:conn:add (@1),(@2)", '-222,"Data out of range;'),
    "in use": (":oxc:swit:conn:add (@1),(@18)", '-221,"Settings conflict;Port in use: 1>18"'),
    "unequal": (":oxc:swit:conn:add (@1,2),(@18)", '-220,"Parameter error;Unequal lists"'),
    "twice": (":oxc:swit:conn:add (@3,3),(@18,19)", '-220,"Parameter error;Port given twice"'),
    "one list": (":oxc:swit:conn:add (@1)", '-109,"Missing parameter"'),
    "no list": (":oxc:swit:conn:add 1,18", '-171,"Invalid expression"'),
    "no monitor": (":pmon:pow? (@1)", '-241,"Hardware missing;Port has no power monitor: 1"'),
    "too many": (f":pmon:pow? (@{','.join(['17'] * 257)})", '-223,"Too much data"'),
    "no such header": (":oxc:swit:conn:remove (@1)", '-113,"Undefined header"'),
    "no such shutter": (":oxc:swit:port:dis (@40)", '-222,"Data out of range;'),
}


@pytest.mark.parametrize(("command", "entry"), OBJECTIONS.values(), ids=OBJECTIONS)
def test_refused_commands_are_in_the_error_queue(terminal, command, entry):
    terminal.ask(":oxc:swit:conn:add (@1),(@17);*opc?")
    terminal.socket.sendall(f"{command}\n".encode())
    assert terminal.ask(":syst:err?").startswith(entry)
    assert terminal.ask(":syst:err?") == '0,"No error"'
    assert terminal.ask(":oxc:swit:conn:stat?") == "(@1),(@17)"


def test_all_errors_at_once_and_clearing_them(terminal):
    terminal.socket.sendall(b"nonsense\n:oxc:swit:conn:add (@1),(@99)\n")
    both = terminal.ask(":syst:err:all?")
    assert re.fullmatch(r'-113,"Undefined header",-222,"Data out of range;[^"]*99"', both)
    terminal.socket.sendall(b"nonsense\n*cls\n")
    assert terminal.ask(":syst:err:all?") == '0,"No error"'


def test_a_switch_that_reroutes_moves_what_is_in_use(real):
    terminal = Terminal(real(scheme="scpi", rerouting=True))
    terminal.ask(":oxc:swit:conn:add (@1,2),(@17,18);*opc?")
    assert terminal.ask(":oxc:swit:conn:add (@1),(@18);*opc?") == "1"
    assert terminal.ask(":oxc:swit:conn:stat?") == "(@1),(@18)"
    terminal.socket.close()


def test_shutters(terminal):
    assert terminal.ask(":oxc:swit:port:stat? (@2,4,6)") == "(E,E,E)"
    assert terminal.ask(":oxc:swit:port:dis (@2,6);*opc?") == "1"
    assert terminal.ask(":oxc:swit:port:stat? (@2,4,6)") == "(D,E,D)"
    assert terminal.ask(":oxc:swit:port:stat?") == f"(E,D,E,E,E,D{',E' * 26})"
    assert terminal.ask(":oxc:swit:port:enab (@1:32);*opc?") == "1"
    assert terminal.ask(":oxc:swit:port:stat? (@2,4,6)") == "(E,E,E)"


def test_power(terminal):
    assert terminal.ask(":pmon:pow? (@17)") == "(-60.00)"
    assert terminal.ask(":pmon:pow? (@17,18)") == "(-60.00,-60.00)"
    terminal.ask(":oxc:swit:conn:add (@1),(@18);*opc?")
    while (shown := terminal.ask(":pmon:pow? (@17,18)")).endswith(",-60.00)"):
        pass
    assert re.fullmatch(r"\(-60\.00,-\d+\.\d\d\)", shown)
