"""Shutters, monitors, attenuators, labels and settings over TL1, typed by hand."""

import re
import socket
import time

import pytest
from real_time import until
from switch_rig import LOGIN

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.wire.tl1 import Tl1Session

DONE = ["M  5 COMPLD"]


def refused(code, text):
    return ["M  5 DENY", code, f"/* {text} */"]


@pytest.fixture
def rig(real):
    return real(monitors="both")


@pytest.fixture
def line(rig, type_in):
    return type_in(rig)


def quiet(line):
    """The same line without autonomous messages."""
    assert line.ask("OPR-ARC-EQPT::REPMGR:5::IND;") == DONE
    return line


def test_shutters_close_and_open(line):
    quiet(line)
    assert line.ask("RTRV-PORT-SHUTTER::1&17:5:;") == [*DONE, '"1:OPEN"', '"17:OPEN"']
    assert line.ask("OPR-PORT-SHUTTER::1&&2:5:;") == DONE
    assert line.ask("RTRV-PORT-SHUTTER::1&&3:5:;") == [
        *DONE,
        '"1:CLOSED"',
        '"2:CLOSED"',
        '"3:OPEN"',
    ]
    assert line.ask("RLS-PORT-SHUTTER::ALL:5:;") == DONE
    assert len([one for one in line.ask("RTRV-PORT-SHUTTER:::5:;") if "OPEN" in one]) == 32
    assert line.ask("OPR-PORT-SHUTTER::33:5:;") == refused("IDNV", "Invalid OXC port: 33")


def test_a_closing_shutter_is_reported_to_sessions_that_allow_it(rig, line, type_in):
    other, stranger = quiet(type_in(rig)), type_in(rig, log_in=False)
    line.write("OPR-PORT-SHUTTER::1:5:;")
    first, second = line.read(), line.read()
    report = next(block for block in (first, second) if "REPT" in block)
    assert re.search(r'\r\nA  \d+ REPT EVT EQPT\r\n   "Port 1 disabled"\r\n;$', report)
    assert "M  5 COMPLD" in first + second
    assert other.ask("RTRV-HDR:::5:;") == DONE
    assert stranger.ask("RTRV-HDR:::5:;") == refused("PLNA", "Not logged in")
    assert line.ask("OPR-PORT-SHUTTER::1:5:;") == DONE  # it was closed: nothing happened
    assert line.ask("RTRV-ARC-EQPT::REPMGR:5:;") == [*DONE, '"REPMGR:,,"']
    assert other.ask("RTRV-ARC-EQPT::REPMGR:5:;") == [*DONE, '"REPMGR:IND,,"']


def test_which_ports_have_monitors(line, real, type_in):
    both = line.ask("RTRV-EQPT::PMON:5:::PARAMETER=CONFIG;")
    assert both[1] == '"PMON::PORT=1,MODE=INPUT"'
    assert both[-1] == '"PMON::PORT=32,MODE=OUTPUT"'
    without = type_in(real(monitors="none"))
    assert without.ask("RTRV-EQPT::PMON:5:::PARAMETER=CONFIG;") == DONE
    assert without.ask("RTRV-NETYPE:::5:;")[1] == '"Polatis,I-OST-16x16-LU1-DMHNS,OCS,6.7.3.9"'
    assert without.ask("RTRV-PORT-POWER::17:5:;") == refused(
        "IDNV", "Port has no power monitor: 17"
    )


def test_monitors_are_set(line):
    assert line.ask("SET-PORT-PMON::17&18:5:::WAVE=1550;") == DONE
    assert line.ask("set-port-pmon::18:5:::offset=(-1.5),atime=3;") == DONE
    assert line.ask("RTRV-PORT-PMON::17&18:5:;") == [
        *DONE,
        '"17:1550.0,0.00,1"',
        '"18:1550.0,-1.50,3"',
    ]
    line.ask("ENT-PATCH::1&2,17&18:5:;")

    def lit():
        _, shown, offset = line.ask("RTRV-PORT-POWER::17&18:5:;")
        plain, less = (float(one.strip('"').partition(":")[2]) for one in (shown, offset))
        return -3 < plain < 0 and -4.5 < less < -1.5

    until(lit, SystemClock())


WRONG_SETTINGS = {
    "wavelength": ("WAVE=1700", "IPNV", "Invalid value 1700"),
    "averaging": ("ATIME=9", "IPNV", "Invalid value 9"),
    "word": ("WAVE=red", "IDNV", "Invalid value red"),
    "key": ("COLOUR=red", "IPNV", "Unexpected parameter colour in block 2"),
    "nothing": ("", "IPMS", "Too few parameters (0/1) in block 2"),
}


@pytest.mark.parametrize(("block", "code", "text"), WRONG_SETTINGS.values(), ids=WRONG_SETTINGS)
def test_bad_monitor_settings_are_denied(line, block, code, text):
    assert line.ask(f"SET-PORT-PMON::17:5:::{block};") == refused(code, text)


def test_attenuators(line):
    assert line.ask("RTRV-EQPT::ATTEN:5:::PARAMETER=CONFIG;") == [*DONE, '"ATTEN:CONFIG=RELATIVE"']
    line.ask("ENT-PATCH::1,17:5:;")
    assert line.ask("SET-PORT-ATTEN::17:5:::MODE=REL,LEVEL=(-6.5);") == DONE
    assert line.ask("SET-PORT-ATTEN::18:5:::mode=absolute,level=-10;") == DONE
    assert line.ask("SET-PORT-ATTEN::19:5:::MODE=MAX;") == DONE
    assert line.ask("RTRV-PORT-ATTEN::17&&20:5:;") == [
        *DONE,
        '"17:REL,-6.50,1"',
        '"18:ABS,-10.00,"',
        '"19:MAX,,"',
        '"20:NONE,,"',
    ]
    dimmed = [*DONE, '"17:-6.50"']
    until(lambda: line.ask("RTRV-PORT-POWER::17:5:;") == dimmed, SystemClock())
    assert line.ask("SET-PORT-ATTEN::17:5:::MODE=FIX;") == DONE
    time.sleep(0.15)
    assert line.ask("RTRV-PORT-POWER::17:5:;") == [*DONE, '"17:-6.50"']
    assert line.ask("SET-PORT-ATTEN::1:5:::MODE=NONE;") == refused("IDNV", "Invalid OXC port: 1")
    assert line.ask("SET-PORT-ATTEN::17:5:::MODE=REL;")[1] == "IPMS"
    assert line.ask("SET-PORT-ATTEN::17:5:::MODE=LOUD;")[1] == "IDNV"


def test_labels(line):
    assert line.ask("ED-PORT-LABEL::2:5:::LABEL=plain;") == DONE
    assert line.ask('ED-PORT-LABEL::3:5:::LABEL="FCSW49/2/3; in: \\"x\\"";') == DONE
    assert line.ask('ED-PORT-LABEL::4&5:5:::LABEL=a&"b&c";') == DONE
    assert line.ask("RTRV-PORT-LABEL::1&&5:5:;") == [
        *DONE,
        '"1:"',
        '"2:plain"',
        '"3:FCSW49/2/3; in: "x""',
        '"4:a"',
        '"5:b&c"',
    ]
    assert line.ask("DLT-PORT-LABEL::2&&5:5:;") == DONE
    assert line.ask("RTRV-PORT-LABEL::2:5:;") == [*DONE, '"2:"']
    assert line.ask(f"ED-PORT-LABEL::2:5:::LABEL={'x' * 129};")[1] == "IPNV"


SETTINGS = {
    "timeout": ("TIMEOUT", "ADMIN=30", "ADMIN", '"TIMEOUT:ADMIN=30"'),
    "never": ("TIMEOUT", "USER=0", "USER", '"TIMEOUT:USER=0"'),
    "boot": ("BOOT", "MODE=DARK", "MODE", '"BOOT:MODE=DARK"'),
}


@pytest.mark.parametrize(("aid", "block", "key", "shown"), SETTINGS.values(), ids=SETTINGS)
def test_settings_can_be_retrieved(line, aid, block, key, shown):
    assert line.ask(f"ED-EQPT::{aid}:5:::{block};") == DONE
    assert line.ask(f"RTRV-EQPT::{aid}:5:::PARAMETER={key};") == [*DONE, shown]


WRONG = {
    "too long a timeout": ("ED-EQPT::TIMEOUT:5:::ADMIN=61;", "IPNV", "Parameter not valid"),
    "a negative timeout": ("ED-EQPT::TIMEOUT:5:::ADMIN=-2;", "IPNV", "Parameter not valid"),
    "an unknown group": (
        "ED-EQPT::TIMEOUT:5:::adm=1;",
        "IPNV",
        "Unexpected parameter adm in block 2",
    ),
    "another start": ("ED-EQPT::BOOT:5:::MODE=sun;", "IDNV", "Invalid value sun"),
    "alarms of nothing": ("RTRV-ALM-EQPT::X:5:;", "IIAC", "Bad AID"),
    "too long a name": (f"SET-SID:::5::{'x' * 21};", "IPNV", "Parameter not valid"),
    "another reset": ("INIT-SYS::SYSTEM:5::7;", "IDNV", "Bad parameter value"),
}


@pytest.mark.parametrize(("text", "code", "words"), WRONG.values(), ids=WRONG)
def test_bad_settings_are_denied(line, text, code, words):
    assert line.ask(text) == refused(code, words)


def test_an_idle_login_ends_where_a_timeout_is_set(virtual):
    rig = virtual()
    switch = rig.driver()
    line = Tl1Session("typed", rig.host, rig.port, rig.clock, LOGIN)
    line.command("ED-EQPT", "TIMEOUT", "", "", "ADMIN=1")
    line.close()
    switch.circuits()
    rig.clock.sleep(59_000_000_000)
    assert switch.circuits() == frozenset()
    rig.clock.sleep(61_000_000_000)
    logins = [piece.text for piece in switch.sessions[0].trace.pieces() if "ACT-USER" in piece.text]
    assert len(logins) == 1
    assert switch.circuits() == frozenset()  # refused, logged in again, asked again
    shown = [piece.text for piece in switch.sessions[0].trace.pieces()]
    assert any("Not logged in" in text for text in shown)
    assert len([text for text in shown if text.startswith("ACT-USER")]) == 2


def test_sid_and_time_of_day(line):
    assert line.ask('SET-SID:::5::"Lab OXC";') == DONE
    line.write("RTRV-HDR:::5:;")
    assert re.search(r"   Lab OXC \d\d-\d\d-\d\d ", line.read())
    time_of_day = line.ask("RTRV-TOD:::5:;")[1]
    assert re.fullmatch(r'"20\d\d(,\d\d){5}"', time_of_day)
    assert line.ask("RTRV-ALM-ALL::ALL:5:;") == DONE


def test_a_reset_disconnects_everything_and_opens_all_shutters(line):
    quiet(line)
    line.ask("ENT-PATCH::1&2,17&18:5:;")
    line.ask("OPR-PORT-SHUTTER::1:5:;")
    assert line.ask("INIT-SYS::SYSTEM:5::1;") == DONE
    assert line.ask("RTRV-PATCH:::5:;") == DONE
    assert line.ask("RTRV-PORT-SHUTTER::1:5:;") == [*DONE, '"1:OPEN"']


PASSWORDS = ["pass;word", "a:b", "a,b&c=d", 'say "x;y"', "back\\slash;", "two words", '";:']


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_password_may_hold_whatever_ends_a_command(virtual, monkeypatch, password):
    rig = virtual()
    monkeypatch.setattr(rig.peer, "login", (LOGIN[0], password))
    switch = rig.driver(login=(LOGIN[0], password))
    assert switch.circuits() == frozenset()
    shown = "\n".join(switch.wire())
    assert re.search(r'ACT-USER::bench:1::"\\?\*\*\*";', shown)
    assert password not in shown


def test_a_quoted_value_may_come_in_pieces(rig, type_in):
    line = type_in(rig)
    for piece in ('ED-PORT-LABEL::2:5:::LABEL="a', ";", 'b";RTRV-PORT-LABEL::2:6:;'):
        line.write(piece)
        time.sleep(0.01)
    assert "M  5 COMPLD" in line.read()
    assert '"2:a;b"' in line.read()


def test_netcat_is_enough(rig):
    """Plain text in, plain text out, as anybody at a terminal would."""
    with socket.create_connection((rig.host, rig.port), timeout=30) as line:
        line.sendall(f"act-user::{LOGIN[0]}:1::{LOGIN[1]};\nrtrv-netype:::2:;\n".encode())
        shown = b""
        while shown.count(b"\r\n;") < 2:
            shown += line.recv(4096)
    assert b"M  1 COMPLD" in shown
    assert b'"Polatis,N-VST-16x16-LU1-DMHNV-801,OCS,6.7.3.9"' in shown
