"""A simulated instrument's SCPI, compared with SCPI-99 and IEEE 488.2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instruments.simulated.scpi_peer import (
    ErrorQueue,
    Later,
    ScpiCommands,
    ScpiDialogue,
    ScpiError,
    block,
    number,
    one,
    split_arguments,
)
from instruments.virtual_clock import VirtualClock


class Instrument:
    """A dialogue without a wire."""

    def __init__(self):
        self.clock = VirtualClock()
        self.said = b""
        self.requests = []
        self.resets = 0
        self.commands = ScpiCommands("Maker,Meter,SIM-1,1.0", reset=self.reset)
        self.commands.add("SENSe#:POWer[:DC]:WAVelength", self.requests.append)
        self.commands.add("SENSe#:POWer[:DC]:WAVelength?", self.told)
        self.commands.add("[:SOURce#]:POWer?", lambda r: f"{r.suffixes}")
        self.commands.add("[CHANnel#:]OUTPut[:STATe]?", lambda _: "on")
        self.commands.add("SLOW", lambda _: Later(50, None, lambda: self.requests.append("done")))
        self.commands.add("SLOW?", lambda _: Later(50, "slow"))
        self.commands.add("BLOCk?", lambda _: block(b"\n;\n"))
        self.commands.add("TEXT", self.requests.append)
        self.dialogue = ScpiDialogue(self, self.clock, "meter", self.commands, takes=10)

    def reset(self):
        self.resets += 1

    def told(self, request):
        self.requests.append(request)
        return "1.55E-06"

    def send(self, data):
        self.said += data

    def close(self, *, abruptly=False):
        pass

    def hear(self, data):
        """What it says to `data`."""
        self.said = b""
        self.dialogue.received(data.encode() if isinstance(data, str) else data)
        self.clock.sleep(100_000)
        return self.said.decode()


@pytest.fixture
def meter():
    made = Instrument()
    yield made
    made.clock.close()


@pytest.mark.parametrize(
    ("header", "suffix"),
    [
        ("SENS:POW:WAV?", 1),
        ("sense:power:wavelength?", 1),
        (":SENS2:POW:DC:WAV?", 2),
        ("SENSe12:POWer:WAVelength?", 12),
    ],
)
def test_headers_in_all_their_forms(meter, header, suffix):
    assert meter.hear(header + "\n") == "1.55E-06\n"
    assert meter.requests[-1].suffixes == (suffix,)
    assert meter.hear("SYST:ERR?\n") == '+0,"No error"\n'


@pytest.mark.parametrize("header", ["SENS:POWE:WAV?", "SEN:POW:WAV?", "SENS:POW", "POW:WAV?", "?"])
def test_headers_that_are_none(meter, header):
    assert meter.hear(header + "\n") == ""
    assert meter.hear("SYST:ERR?\n") == '-113,"Undefined header"\n'


def test_a_node_that_may_be_left_out(meter):
    assert meter.hear("POW?\n") == meter.hear("SOUR:POW?\n") == "(1,)\n"
    assert meter.hear(":SOUR3:POW?\n") == "(3,)\n"
    assert meter.hear("OUTP?\n") == meter.hear("OUTP:STAT?\n") == "on\n"
    assert meter.hear("CHAN2:OUTP?\n") == "on\n"


def test_a_path_goes_on_after_a_semicolon(meter):
    assert meter.hear("SENS2:POW:WAV 1310;WAV?\n") == "1.55E-06\n"
    assert [request.suffixes for request in meter.requests] == [(2,), (2,)]
    assert meter.hear("SENS2:POW:WAV?;*OPC?;WAV?;:SENS3:POW:WAV?\n") == (
        "1.55E-06;1;1.55E-06;1.55E-06\n"
    )
    assert meter.requests[-1].suffixes == (3,)
    meter.hear("SENS2:POW:WAV 1;:WAV 2\n")
    assert meter.hear("SYST:ERR?\n") == '-113,"Undefined header"\n'


def test_answers_of_one_message_are_one(meter):
    assert meter.hear("*IDN?;:BLOC?\n*OPC?\r\n\n") == ("Maker,Meter,SIM-1,1.0;#13\n;\n\n1\n")


def test_arguments(meter):
    meter.hear("TEXT \"a;b, c\", (@1,2:5),3 ,'it\\'\n")
    assert meter.requests[-1].arguments == ('"a;b, c"', "(@1,2:5)", "3", "'it\\'")


def test_a_message_in_pieces(meter):
    assert meter.hear("*ID") == ""
    assert meter.hear("N?") == ""
    assert meter.hear("\n") == "Maker,Meter,SIM-1,1.0\n"


def test_commands_wait_for_each_other(meter):
    start = meter.clock.now()
    meter.dialogue.received(b"SLOW;SLOW?\n*OPC?\n")
    meter.clock.sleep(10 + 50 + 10 + 50 + 9)
    assert meter.said == b""
    assert meter.requests == ["done"]
    meter.clock.sleep(2)
    assert meter.said == b"slow\n"
    meter.clock.sleep(18)
    assert meter.said == b"slow\n"
    meter.clock.sleep(2)
    assert meter.said == b"slow\n1\n"
    assert meter.clock.now() == start + 151


def test_a_client_that_has_gone_is_answered_no_more(meter):
    meter.dialogue.received(b"SLOW?\n*OPC?\n")
    meter.dialogue.closed()
    meter.clock.sleep(1000)
    assert b"1" not in meter.said


def test_the_queue_of_errors(meter):
    for number_ in range(40):
        meter.commands.errors.put(-100 - number_, "again")
    assert len(meter.commands.errors) == 30
    first = meter.hear("SYST:ERR?\n"), meter.hear("SYSTem:ERRor:NEXT?\n")
    assert first == ('-100,"again"\n', '-101,"again"\n')
    rest = [meter.hear("SYST:ERR?\n") for _ in range(29)]
    assert rest[-2:] == ['-350,"Queue overflow"\n', '+0,"No error"\n']
    meter.hear("NONSENSE\n")
    meter.hear("*CLS\n")
    assert meter.hear("SYST:ERR?\n") == '+0,"No error"\n'


def test_another_form_of_errors():
    queue = ErrorQueue(form="{code}, {text}")
    queue.put(-222, "Data out of range")
    assert [queue.take(), queue.take()] == ["-222, Data out of range", "0, No error"]


def test_registers(meter):
    assert meter.hear("*ESR?;*ESR?\n") == "128;0\n"  # power on, and read once
    meter.hear("NONSENSE\n*OPC\n")
    assert meter.hear("*STB?\n") == "4\n"
    meter.hear("*ESE 33\n")
    assert meter.hear("*ESE?;*STB?;*ESR?;*STB?\n") == "33;36;33;4\n"
    meter.commands.failed(ScpiError(-222, "Data out of range"))
    meter.commands.failed(ScpiError(-310, "System error"))
    meter.commands.failed(ScpiError(-410, "Query INTERRUPTED"))
    meter.commands.failed(ScpiError(101, "its own"))
    assert meter.hear("*ESR?\n") == "60\n"
    meter.hear("*SRE 32\n*ESE 256\n*ESE\n")
    assert meter.hear("*SRE?;*ESE?\n") == "32;33\n"
    assert meter.hear("*CLS;*STB?;*ESR?;*TST?\n") == "0;0;0\n"


def test_a_reset(meter):
    meter.hear("*RST\n")
    assert meter.resets == 1


@given(st.binary(max_size=300))
def test_blocks_say_how_long_they_are(data):
    made = block(data)
    digits = int(made[1:2])
    assert int(made[2 : 2 + digits]) == len(data)
    assert made[2 + digits :] == data


def test_numbers_and_single_arguments(meter):
    assert number(" 1.5E3") == 1500.0
    with pytest.raises(ScpiError, match="-121"):
        number("1,5")
    request = meter.commands
    assert request is not None
    assert split_arguments("") == ()
    for arguments, code in (("", "-109"), ("1,2", "-108")):
        with pytest.raises(ScpiError, match=code):
            one(Request(split_arguments(arguments)))


class Request:
    def __init__(self, arguments):
        self.arguments = arguments


@given(st.text(alphabet="*:;?#\"'(),@ABCabc123 \n\r", max_size=60))
def test_rubbish_never_stops_it(text):
    meter = Instrument()
    meter.hear(text + "\n")
    meter.hear("\"'\n")
    assert meter.hear("*OPC?\n").endswith("1\n")
    meter.clock.close()
