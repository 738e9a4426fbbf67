"""The simulated Polatis as a person with a terminal sees it, by the reference and no driver."""

import re
import socket
import time

import pytest
from real_time import LONG, until

from lightrig.instruments.clock import SystemClock

DONE = ["M  5 COMPLD"]


def refused(code, text, tag="5"):
    return [f"M  {tag} DENY", code, f"/* {text} */"]


@pytest.fixture
def line(real, type_in):
    return type_in(real())


def test_an_answer_is_laid_out_to_the_byte(line):
    line.write("ENT-PATCH::1&2,17&18:5:;RTRV-PATCH:::123:;RTRV-HDR:::7:;")
    header = r"\r\n\n   ocs \d\d-\d\d-\d\d \d\d:\d\d:\d\d\r\n"
    assert re.fullmatch(header + r"M  5 COMPLD\r\n;", line.read())
    assert re.fullmatch(
        header + r'M  123 COMPLD\r\n   "1,17"\r\n   "2,18"\r\n;',
        line.read(),
    )
    assert re.fullmatch(header + r"M  7 COMPLD\r\n;", line.read())
    line.write("RTRV-FOO:::8:;")
    assert re.fullmatch(
        header + r"M  8 DENY\r\n   IICM\r\n   /\* Invalid command \*/\r\n;", line.read()
    )


LOGINS = {
    "right": ("ACT-USER::bench:5::hunter2-and-more;", DONE),
    "empty password": (
        "ACT-USER::bench:5::;",
        refused("IPMS", "Too few parameters (0/1) in block 1"),
    ),
    "no block": ("ACT-USER::bench:5;", refused("IPMS", "Too few parameters (0/1) in block 1")),
    "wrong password": ("ACT-USER::bench:5::x;", refused("PICC", "Authentication failure")),
    "wrong user": (
        "ACT-USER::root:5::hunter2-and-more;",
        refused("PICC", "Authentication failure"),
    ),
    "wrong case": (
        "ACT-USER::Bench:5::hunter2-and-more;",
        refused("PICC", "Authentication failure"),
    ),
}


@pytest.mark.parametrize(("text", "answer"), LOGINS.values(), ids=LOGINS)
def test_logging_in(real, type_in, text, answer):
    line = type_in(real(), log_in=False)
    assert line.ask(text) == answer
    allowed = line.ask("RTRV-HDR:::6:;")
    assert allowed == (["M  6 COMPLD"] if answer == DONE else refused("PLNA", "Not logged in", "6"))


def test_logging_in_twice_and_out(line):
    assert line.ask("ACT-USER::bench:5::hunter2-and-more;") == refused("PICC", "Already logged in")
    assert line.ask("CANC-USER::root:5:;") == refused("PICC", " Permission denied ")
    assert line.ask("CANC-USER::bench:5:;") == DONE
    assert line.ask("RTRV-PATCH:::5:;") == refused("PLNA", "Not logged in")
    assert line.ask("ACT-USER::bench:5::hunter2-and-more;") == DONE


def test_each_session_logs_in_separately(real, type_in):
    rig = real()
    first, second = type_in(rig), type_in(rig, log_in=False)
    assert second.ask("RTRV-HDR:::5:;") == refused("PLNA", "Not logged in")
    assert first.ask("RTRV-HDR:::5:;") == DONE


@pytest.mark.parametrize("text", ["RTRV-HDR;", "RTRV-HDR::;", "RTRV-HDR:::;", "RTRV-HDR::::;", ";"])
def test_a_command_needs_its_ctag(line, text):
    status, code, words = line.ask(text)
    assert re.fullmatch(r"M  \S+ DENY", status)
    assert code == "IICT"
    assert re.fullmatch(r"/\* Parse error at offset \d+ in command \*/", words)
    assert line.ask("RTRV-HDR:::5:;") == DONE


@pytest.mark.parametrize(
    "text",
    [
        "rtrv-hdr:::5:;",
        "Rtrv-Hdr:::5:;",
        "\r\nRTRV-HDR:::5:;",
        "RTRV-HDR:::5:;\r\n",
        "RTRV-HDR:::5;",
        "RTRV-HDR:ocs::5:;",
        'RTRV-HDR:"ocs"::5:;',
    ],
)
def test_forms_of_a_command(line, text):
    assert line.ask(text) == DONE
    assert line.ask("RTRV-HDR:::6:;") == ["M  6 COMPLD"]


@pytest.mark.parametrize("tid", ["other", '"Polatis OXC"', "OCS2", '"a:b"'])
def test_a_command_for_another_switch_is_refused(line, tid):
    assert line.ask(f"RTRV-HDR:{tid}::5:;") == refused("IITA", "Mismatched TID")


def test_a_name_with_spaces_is_quoted(real, type_in):
    line = type_in(real(name="Polatis OXC"))
    assert line.ask('RTRV-HDR:"Polatis OXC"::5:;') == DONE
    line.write("RTRV-HDR:::5:;")
    assert "   Polatis OXC " in line.read()


def test_a_command_may_come_in_pieces_and_two_in_one(line):
    for byte in "ENT-PATCH::1,17:5:;":
        line.write(byte)
        time.sleep(0.001)
    assert "M  5 COMPLD" in line.read()
    line.write("RTRV-PATCH:::6:;DLT-PATCH::1:7:;RTRV-PA")
    line.write("TCH:::8:;")
    assert ['"1,17"' in line.read() for _ in range(3)] == [True, False, False]


CONNECTIONS = {
    "one": ("3,19", {3: 19}),
    "a list": ("1&2&3,17&18&19", {1: 17, 2: 18, 3: 19}),
    "crossed": ("1&2,18&17", {1: 18, 2: 17}),
    "a range": ("1&&3,17&&19", {1: 17, 2: 18, 3: 19}),
    "both": ("1&&3&9,17&20&&22", {1: 17, 2: 20, 3: 21, 9: 22}),
    "all": ("1&&16,17&&32", {port: port + 16 for port in range(1, 17)}),
}


@pytest.mark.parametrize(("aid", "made"), CONNECTIONS.values(), ids=CONNECTIONS)
def test_connecting(line, aid, made):
    assert line.ask(f"ENT-PATCH::{aid}:5:;") == DONE
    listed = [f'"{ingress},{egress}"' for ingress, egress in sorted(made.items())]
    for every in ("", "ALL", "all", "1&&32", "17&&32", "1&&16"):
        assert line.ask(f"RTRV-PATCH::{every}:5:;") == DONE + listed


REFUSALS = {
    "too far": ("1,33", "IDNV", "Invalid OXC port: 33"),
    "far too far": ("1000,17", "IDNV", "Invalid OXC port: 1000"),
    "zero": ("0,17", "IDNV", "Invalid OXC port: 0"),
    "a letter": ("a,17", "IDNV", "Invalid OXC port: a"),
    "negative": ("-10,17", "IDNV", "Invalid OXC port: -10"),
    "a sign": ("@,17", "IDNV", "Invalid OXC port: @"),
    "egress as ingress": ("18,17", "IDNV", "Invalid OXC port: 18"),
    "ingress as egress": ("1,2", "IDNV", "Invalid OXC port: 2"),
    "an open range": ("1&&,17&&18", "IDNV", "Invalid OXC port: "),
    "a backward range": ("3&&1,17&&19", "IIAC", "Empty parameters"),
    "empty sides": (",", "IIAC", "Empty parameters"),
    "unequal": ("1&2,17", "IIAC", "Unequal lists"),
    "twice": ("1&1,17&18", "IIAC", "Port given twice"),
}


@pytest.mark.parametrize(("aid", "code", "text"), REFUSALS.values(), ids=REFUSALS)
def test_impossible_circuits_are_denied(line, aid, code, text):
    assert line.ask(f"ENT-PATCH::{aid}:5:;") == refused(code, text)
    assert line.ask("RTRV-PATCH:::5:;") == DONE


@pytest.mark.parametrize("aid", ["", "1", "1&17", "1,17,18"])
def test_connecting_needs_two_sides(line, aid):
    status, code, _ = line.ask(f"ENT-PATCH::{aid}:5:;")
    assert (status, code) == ("M  5 DENY", "IIAC")


def test_a_list_is_made_as_a_whole_or_not_at_all(real, type_in):
    line = type_in(real(rerouting=False))
    assert line.ask("ENT-PATCH::1,17:5:;") == DONE
    assert line.ask("ENT-PATCH::2&3,18&17:5:;")[1] == "SRCN"
    assert line.ask("RTRV-PATCH:::5:;") == [*DONE, '"1,17"']
    assert line.ask("ENT-PATCH::1&2,17&18:5:;") == DONE


def test_a_switch_that_reroutes_moves_what_is_in_use(real, type_in):
    line = type_in(real(rerouting=True))
    line.ask("ENT-PATCH::1&2&3,17&18&19:5:;")
    assert line.ask("ENT-PATCH::1,18:5:;") == DONE
    assert line.ask("RTRV-PATCH:::5:;") == [*DONE, '"1,18"', '"3,19"']


PARTINGS = {
    "by ingress": ("2", {1, 3}),
    "by egress": ("18", {1, 3}),
    "some": ("1&19", {2}),
    "a range": ("1&&2", {3}),
    "free ports": ("9&25", {1, 2, 3}),
    "both ends": ("1&17", {2, 3}),
    "all": ("ALL", set()),
    "all in small letters": ("all", set()),
    "empty": ("", set()),
}


@pytest.mark.parametrize(("aid", "left"), PARTINGS.values(), ids=PARTINGS)
def test_disconnecting(line, aid, left):
    line.ask("ENT-PATCH::1&&3,17&&19:5:;")
    assert line.ask(f"DLT-PATCH::{aid}:5:;") == DONE
    assert line.ask("RTRV-PATCH:::5:;") == DONE + [f'"{port},{port + 16}"' for port in sorted(left)]


def test_disconnecting_what_does_not_exist(line):
    assert line.ask("DLT-PATCH::99:5:;") == refused("IDNV", "Invalid OXC port: 99")


@pytest.mark.parametrize(
    ("aid", "listed"), [("2", ["2,18"]), ("18&1", ["1,17", "2,18"]), ("9", []), ("3&&4", ["3,19"])]
)
def test_retrieving_some_circuits(line, aid, listed):
    line.ask("ENT-PATCH::1&&3,17&&19:5:;")
    assert line.ask(f"RTRV-PATCH::{aid}:5:;") == DONE + [f'"{each}"' for each in listed]


def test_identity_and_size(line):
    assert line.ask("RTRV-NETYPE:::5:;") == [
        *DONE,
        '"Polatis,N-VST-16x16-LU1-DMHNV-701,OCS,6.7.3.9"',
    ]
    assert line.ask("RTRV-INV::OCS:5:;") == [*DONE, '"OCS::SN=SIM-ocs"']
    assert line.ask("RTRV-EQPT::SYSTEM:5:::PARAMETER=SIZE;") == [*DONE, '"SYSTEM:SIZE=16x16"']
    assert line.ask("rtrv-eqpt::system:5:::parameter=size;") == [*DONE, '"SYSTEM:SIZE=16x16"']


@pytest.mark.parametrize(
    "text", ["RTRV-EQPT::SYSTEM:5;", "RTRV-EQPT::SYSTEM:5:;", "RTRV-EQPT::X:5:::PARAMETER=SIZE;"]
)
def test_bad_equipment_queries_are_denied(line, text):
    assert line.ask(text) == refused("IDNV", "Bad parameter value")
    assert line.ask("RTRV-HDR:::5:;") == DONE


def test_monitors(line):
    assert line.ask("RTRV-PORT-PMON::17&18:5:;") == [
        *DONE,
        '"17:1310.0,0.00,1"',
        '"18:1310.0,0.00,1"',
    ]
    assert line.ask("RTRV-PORT-POWER::17:5:;") == [*DONE, '"17:-60.00"']
    assert len(line.ask("RTRV-PORT-POWER:::5:;")) == len(line.ask("RTRV-PORT-POWER::ALL:5:;")) == 17
    line.ask("ENT-PATCH::1,17:5:;")

    def lit():
        _, shown = line.ask("RTRV-PORT-POWER::17:5:;")
        return re.fullmatch(r'"17:-[0-2]\.\d\d"', shown)

    until(lit, SystemClock())


def test_reports_come_between_answers_unless_inhibited(real, type_in):
    rig = real()
    line = type_in(rig)

    def report():
        reported = rig.clock.event()
        rig.clock.schedule(
            rig.clock.now(),
            "alarm",
            lambda: (rig.sessions[0].report("Port 1 disabled"), reported.set()),
        )
        assert reported.wait(LONG)

    report()
    assert re.search(
        r'\r\nA  \d+ REPT EVT EQPT\r\n   "Port 1 disabled"\r\n;$',
        line.read(),
    )
    assert line.ask("OPR-ARC-EQPT::REPMGR:5::IND;") == DONE
    report()
    assert line.ask("RLS-ARC-EQPT::REPMGR:5:;") == DONE
    report()
    assert "Port 1 disabled" in line.read()


@pytest.mark.parametrize(
    "rubbish",
    [b"\xff\xfe\xfd;", b"ENT-PATCH::\xe9,17:5:;", b"RTRV-HDR:::\xe9:;", b'"\0;', b"::::::::;"],
)
def test_bad_input_is_denied_and_discarded(line, rubbish):
    line.write(rubbish)
    assert " DENY\r\n" in line.read() or rubbish.startswith(b"RTRV-HDR")
    assert line.ask("RTRV-HDR:::5:;") == DONE


def test_a_client_that_leaves_during_a_command_affects_no_client(real, type_in):
    rig = real()
    line = type_in(rig)
    for abrupt in (False, True, False, True):
        with socket.create_connection((rig.host, rig.port), timeout=30) as other:
            other.sendall(b"ACT-USER::bench:1::hunter2-and-more;" + b"RTRV-PATCH:::2:;" * 20)
            if abrupt:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        assert line.ask("RTRV-HDR:::5:;") == DONE
    with socket.create_connection((rig.host, rig.port), timeout=30) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    assert line.ask("RTRV-HDR:::5:;") == DONE
