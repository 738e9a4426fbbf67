"""A simulated instrument's SCPI, compared with SCPI-99 and IEEE 488.2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.simulated.protocols.commands import command
from lightrig.instruments.simulated.protocols.scpi_device import (
    DelayedReply,
    ErrorQueue,
    ScpiDevice,
    ScpiServerSession,
    block,
    split_arguments,
)
from lightrig.instruments.simulated.protocols.scpi_values import (
    METRES,
    Choice,
    Flag,
    Number,
    ScpiError,
    ScpiNode,
    number,
)


class Channel(ScpiNode):
    wavelength = Number(
        "SENSe#:POWer[:DC]:WAVelength",
        default=1.55e-6,
        minimum=1.2e-6,
        maximum=1.7e-6,
        units=METRES,
    )
    automatic = Flag("SENSe#:RANGe:AUTO", default=True)
    unit = Choice("SENSe#:UNIT", default="DBM", names=("DBM", "WATT"))


class Meter(ScpiDevice):
    channel_type = Channel
    processing = 10

    def __init__(self, clock):
        super().__init__("meter", clock, "Maker,Meter,SIM-1,1.0")
        self.channels = {number: Channel() for number in (1, 2, 3, 12)}
        self.done = self.resets = 0
        self.texts = []

    def channel(self, suffixes):
        if suffixes[0] not in self.channels:
            raise ScpiError(-114, "Header suffix out of range")
        return self.channels[suffixes[0]]

    def reset(self):
        super().reset()
        self.resets += 1

    @command("[:SOURce#]:POWer?")
    def power(self):
        return "on"

    @command("[CHANnel#:]OUTPut[:STATe]?")
    def output(self):
        return "on"

    @command("SLOW")
    def slow(self):
        def finish():
            self.done += 1

        return DelayedReply(50, finish)

    @command("SLOW?")
    def query_slow(self):
        return DelayedReply(50, lambda: "slow")

    @command("BLOCk?")
    def trace(self):
        return block(b"\n;\n")

    @command("TEXT")
    def text(self, *words):
        self.texts.append(words)

    @command("PAIR")
    def pair(self, first, second="2"):
        self.texts.append((first, second))


class Instrument:
    """A meter and a session with it, without a wire."""

    def __init__(self):
        self.clock = VirtualClock()
        self.sent = b""
        self.meter = Meter(self.clock)
        self.session = ScpiServerSession(self.meter, self, "meter")

    def send(self, data):
        self.sent += data

    def close(self, *, abruptly=False):
        pass

    def ask(self, data):
        """Return the replies to `data`."""
        self.sent = b""
        self.session.received(data.encode() if isinstance(data, str) else data)
        self.clock.sleep(100_000)
        return self.sent.decode()


@pytest.fixture
def meter():
    made = Instrument()
    yield made
    made.clock.close()


@pytest.mark.parametrize(
    ("header", "suffix"),
    [
        ("SENS:POW:WAV", 1),
        ("sense:power:wavelength", 1),
        (":SENS2:POW:DC:WAV", 2),
        ("SENSe12:POWer:WAVelength", 12),
    ],
)
def test_headers_in_all_their_forms_select_a_channel(meter, header, suffix):
    query = f"{header.removeprefix(':')}?"
    assert meter.ask(f"{header} 1310 nm;:{query}\n") == "1.31000000E-06\n"
    changed = [n for n, each in meter.meter.channels.items() if each.wavelength != 1.55e-6]
    assert changed == [suffix]
    assert meter.ask("SYST:ERR?\n") == '+0,"No error"\n'


@pytest.mark.parametrize("header", ["SENS:POWE:WAV?", "SEN:POW:WAV?", "SENS:POW", "POW:WAV?", "?"])
def test_unknown_headers_are_errors(meter, header):
    assert meter.ask(header + "\n") == ""
    assert meter.ask("SYST:ERR?\n") == '-113,"Undefined header"\n'


def test_a_node_that_may_be_left_out(meter):
    assert meter.ask("POW?\n") == meter.ask("SOUR3:POW?\n") == "on\n"
    assert meter.ask("OUTP?\n") == meter.ask("OUTP:STAT?\n") == "on\n"
    assert meter.ask("CHAN2:OUTP?\n") == "on\n"


def test_parameters_are_set_queried_and_reset(meter):
    channel = meter.meter.channels[1]
    assert meter.ask("SENS:POW:WAV? MAX;WAV? MIN\n") == "1.70000000E-06;1.20000000E-06\n"
    meter.ask("SENS:RANG:AUTO off\nSENS:UNIT watt\n")
    assert (channel.automatic, channel.unit) == (False, "WATT")
    assert meter.ask("SENS:RANG:AUTO?;:SENS:UNIT?\n") == "0;WATT\n"
    meter.ask("SENS:POW:WAV 1800 nm\nSENS:POW:WAV 1 V\nSENS:UNIT VOLT\nSENS7:UNIT?\n")
    errors = [meter.ask("SYST:ERR?\n").partition(",")[0] for _ in range(4)]
    assert errors == ["-222", "-131", "-224", "-114"]
    channel.reset_parameters()
    assert (channel.automatic, channel.unit, channel.wavelength) == (True, "DBM", 1.55e-6)


def test_the_number_of_arguments_is_checked(meter):
    meter.ask("PAIR\nPAIR 1,2,3\nSENS:UNIT\nSENS:UNIT DBM,DBM\n*IDN? 1\n")
    errors = [meter.ask("SYST:ERR?\n").partition(",")[0] for _ in range(5)]
    assert errors == ["-109", "-108", "-109", "-108", "-108"]
    meter.ask("PAIR 1\nPAIR 3,4\n")
    assert meter.meter.texts == [("1", "2"), ("3", "4")]


def test_a_path_goes_on_after_a_semicolon(meter):
    assert meter.ask("SENS2:POW:WAV 1310nm;WAV?\n") == "1.31000000E-06\n"
    assert meter.ask("SENS2:POW:WAV?;*OPC?;WAV?;:SENS3:POW:WAV?\n") == (
        "1.31000000E-06;1;1.31000000E-06;1.55000000E-06\n"
    )
    meter.ask("SENS2:POW:WAV 1310nm;:WAV 2\n")
    assert meter.ask("SYST:ERR?\n") == '-113,"Undefined header"\n'


def test_replies_to_one_message_are_one_response(meter):
    assert meter.ask("*IDN?;:BLOC?\n*OPC?\r\n\n") == ("Maker,Meter,SIM-1,1.0;#13\n;\n\n1\n")


def test_arguments(meter):
    meter.ask("TEXT \"a;b, c\", (@1,2:5),3 ,'it\\'\n")
    assert meter.meter.texts[-1] == ('"a;b, c"', "(@1,2:5)", "3", "'it\\'")


def test_a_message_in_pieces(meter):
    assert meter.ask("*ID") == ""
    assert meter.ask("N?") == ""
    assert meter.ask("\n") == "Maker,Meter,SIM-1,1.0\n"


def test_commands_wait_for_each_other(meter):
    start = meter.clock.now()
    meter.session.received(b"SLOW;SLOW?\n*OPC?\n")
    meter.clock.sleep(10 + 50 + 10 + 50 + 9)
    assert meter.sent == b""
    assert meter.meter.done == 1
    meter.clock.sleep(2)
    assert meter.sent == b"slow\n"
    meter.clock.sleep(18)
    assert meter.sent == b"slow\n"
    meter.clock.sleep(2)
    assert meter.sent == b"slow\n1\n"
    assert meter.clock.now() == start + 151


def test_commands_that_arrive_during_a_command_wait_for_it(meter):
    meter.session.received(b"SLOW?\n")
    meter.clock.sleep(20)
    meter.session.received(b"*OPC?\n")
    meter.session.received(b"*OPC?\n")
    meter.clock.sleep(39)
    assert meter.sent == b""
    meter.clock.sleep(200)
    assert meter.sent == b"slow\n1\n1\n"


def test_a_client_that_has_left_gets_no_replies(meter):
    meter.session.received(b"SLOW?\n*OPC?\n")
    meter.session.closed()
    meter.clock.sleep(1000)
    assert b"1" not in meter.sent


def test_the_queue_of_errors(meter):
    for number_ in range(40):
        meter.meter.errors.put(-100 - number_, "again")
    assert len(meter.meter.errors) == 30
    first = meter.ask("SYST:ERR?\n"), meter.ask("SYSTem:ERRor:NEXT?\n")
    assert first == ('-100,"again"\n', '-101,"again"\n')
    rest = [meter.ask("SYST:ERR?\n") for _ in range(29)]
    assert rest[-2:] == ['-350,"Queue overflow"\n', '+0,"No error"\n']
    meter.ask("NONSENSE\n")
    meter.ask("*CLS\n")
    assert meter.ask("SYST:ERR?\n") == '+0,"No error"\n'


def test_another_form_of_errors():
    queue = ErrorQueue(form="{code}, {text}")
    queue.put(-222, "Data out of range")
    assert [queue.take(), queue.take()] == ["-222, Data out of range", "0, No error"]


def test_registers(meter):
    assert meter.ask("*ESR?;*ESR?\n") == "128;0\n"  # power on, and read once
    meter.ask("NONSENSE\n*OPC\n")
    assert meter.ask("*STB?\n") == "4\n"
    meter.ask("*ESE 33\n")
    assert meter.ask("*ESE?;*STB?;*ESR?;*STB?\n") == "33;36;33;4\n"
    meter.meter.report(ScpiError(-222, "Data out of range"))
    meter.meter.report(ScpiError(-310, "System error"))
    meter.meter.report(ScpiError(-410, "Query INTERRUPTED"))
    meter.meter.report(ScpiError(101, "its own"))
    assert meter.ask("*ESR?\n") == "60\n"
    meter.ask("*SRE 32\n*ESE 256\n*ESE\n")
    assert meter.ask("*SRE?;*ESE?\n") == "32;33\n"
    assert meter.ask("*CLS;*STB?;*ESR?;*TST?\n") == "0;0;0\n"


def test_a_reset(meter):
    meter.ask("*RST\n")
    assert meter.meter.resets == 1


@given(st.binary(max_size=300))
def test_blocks_state_their_length(data):
    made = block(data)
    digits = int(made[1:2])
    assert int(made[2 : 2 + digits]) == len(data)
    assert made[2 + digits :] == data


def test_numbers(meter):
    assert number(" 1.5E3") == 1500.0
    with pytest.raises(ScpiError, match="-121"):
        number("1,5")
    assert split_arguments("") == ()


@given(st.text(alphabet="*:;?#\"'(),@ABCabc123 \n\r", max_size=60))
def test_random_input_never_stops_the_device(text):
    meter = Instrument()
    meter.ask(text + "\n")
    meter.ask("\"'\n")
    assert meter.ask("*OPC?\n").endswith("1\n")
    meter.clock.close()
