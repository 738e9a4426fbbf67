"""Whatever an instrument does, an answer belongs to its own question, or is an error that says so.

Ten thousand random sequences are tried by `LIGHTRIG_FAULTS=10000 pytest tests/wire/test_faults.py`;
by default fewer. Time is virtual, sockets and serial lines are real.

What is left out cannot be told by any client of a protocol without tags: an answer that is
repeated after the next question was written. So a repetition is waited for there.
"""

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from faulty import MS, TIMEOUT, Bracketed, Fault, Faulty, Lines, Sized, Tl1, Words
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instruments.errors import GarbledError, InstrumentError, UnreachableError
from instruments.simulated.hislip_peer import HislipPeer, hislip_resource
from instruments.simulated.peer_server import PeerConnection, PeerServer, Session
from instruments.virtual_clock import VirtualClock
from instruments.way import Way
from instruments.wire import framing
from instruments.wire.exchange import Exchange, Resync
from instruments.wire.scpi import scpi_session
from instruments.wire.stream import serial_stream, tcp_stream
from instruments.wire.tl1 import Tl1Session

SEQUENCES = int(os.environ.get("LIGHTRIG_FAULTS", "600"))
QUIET = 20 * MS
LONGEST = 2 * TIMEOUT + (300 * MS + TIMEOUT)
"""A question to regain step, silence if it had been asked before, and the question itself."""
LONGEST_ON_LINE = LONGEST + (300 * MS + TIMEOUT)
"""Silence first."""


@dataclass
class Asker:
    """A session with the instrument; `ask` returns the number that the answer bears."""

    ask: Callable[[int], int]
    question: Callable[[int], str]
    close: Callable[[], None]
    longest: int
    """How long an answer may take, with all that comes before the question to regain step."""
    drains: bool = False
    """Whether it waits for silence, which an instrument does not hear."""


def number_in(text: str, asker: Callable[..., Exception], command: str) -> int:
    """As a driver reads an answer: what makes no sense is an error."""
    found = re.fullmatch(r"<?A(\d+)>?", text)
    if found is None:
        raise asker(GarbledError, f"answered {text!r}", command)
    return int(found[1])


def over_scpi(way: Way, clock: VirtualClock, longest: int = LONGEST) -> Asker:
    session = scpi_session("meter", way, clock)

    def ask(number: int) -> int:
        command = f"Q{number}?"
        return number_in(session.query(command, TIMEOUT).text, session.failed, command)

    return Asker(ask, "Q{}?".format, session.close, longest, longest > LONGEST)


def over_exchange(
    exchange: Exchange,
    question: Callable[[int], bytes],
    show: Callable[[int], str],
    longest: int = TIMEOUT,
) -> Asker:
    def ask(number: int) -> int:
        data = exchange.ask(question(number), TIMEOUT).data
        if isinstance(exchange._framing, framing.Sized):
            if (found := Sized.number(data)) is None:
                raise exchange.failed(GarbledError, f"answered {data!r}", show(number))
            return found
        text = data.decode("ascii", "backslashreplace")
        return number_in(text, exchange.failed, show(number))

    return Asker(ask, show, exchange.close, longest, longest > LONGEST)


def over_tl1(host: str, port: int, clock: VirtualClock) -> Asker:
    session = Tl1Session("meter", host, port, clock)

    def ask(number: int) -> int:
        lines = session.command("RTRV-X", str(number), timeout=TIMEOUT).lines

        def failed(kind, problem, command):
            return kind("meter", problem, command=command)

        return number_in(" ".join(lines), failed, f"RTRV-X::{number}:")

    return Asker(ask, "RTRV-X::{}:".format, session.close, TIMEOUT)


SIZED = (Sized.question, lambda n: Sized.question(n).hex(" "))
FORMS: dict[str, tuple[Words, framing.Framing, Callable[[int], bytes], Callable[[int], str]]] = {
    "lines": (Lines(), framing.Lines(), "Q{}\n".format, "Q{}".format),
    "lines, one question": (Lines(), framing.Lines(), "Q{}\n".format, "Q{}".format),
    "bracketed": (Bracketed(), framing.Bracketed(), "<Q{}>".format, "<Q{}>".format),
    "sized": (Sized(), framing.Sized(Sized.SIZE), *SIZED),
}  # type: ignore[dict-item]


def encoded(question: Callable[[int], bytes | str]) -> Callable[[int], bytes]:
    def encode(number: int) -> bytes:
        data = question(number)
        return data if isinstance(data, bytes) else data.encode()

    return encode


# -------------------------------------------------------------------------- the rigs


class Bench:
    """A clock and a server that many instruments share, one after the other."""

    def __init__(self) -> None:
        self.clock = VirtualClock(patience=20)
        self.server = PeerServer(self.clock)
        self.instrument: Faulty
        self.tcp = self.server.listen(self.session)
        self.hislip = hislip_resource(*self.server.listen(HislipPeer(self.session)))

    def session(self, connection: PeerConnection, index: int) -> Session:
        return self.instrument.session(connection, index)

    def close(self) -> None:
        self.server.close()
        self.clock.close()


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def asker_on(bench: Bench, form: str) -> Asker:
    if form == "tl1":
        return over_tl1(*bench.tcp, bench.clock)
    if form == "scpi":
        return over_scpi(Way("scpi", *bench.tcp), bench.clock)
    if form == "hislip":
        return over_scpi(Way("visa", resource=bench.hislip), bench.clock)
    _, cut, question, show = FORMS[form]
    exchange = Exchange(
        "meter", lambda: tcp_stream("meter", *bench.tcp, bench.clock), bench.clock, cut
    )
    return over_exchange(exchange, encoded(question), show)


@dataclass(frozen=True, slots=True)
class ManyWords(Resync):
    """One question that can be asked in several ways, each with an answer of its own."""

    def variant(self, number: int) -> tuple[bytes, Callable[[bytes], bool]]:
        return b"ID%d\n" % number, b"IDENTITY%d".__mod__(number).__eq__


RESYNCS = {
    "lines": ManyWords(QUIET),
    "lines, one question": Resync(QUIET, b"ID0\n", b"IDENTITY0".__eq__),
}


def asker_on_line(device: str, clock: VirtualClock, form: str) -> Asker:
    if form == "scpi":
        return over_scpi(Way("serial", resource=device), clock, LONGEST_ON_LINE)
    _, cut, question, show = FORMS[form]
    exchange = Exchange(
        "meter",
        lambda: serial_stream("meter", device, clock, baud=9600),
        clock,
        cut,
        resync=RESYNCS.get(form, Resync(QUIET)),
    )
    return over_exchange(exchange, encoded(question), show, LONGEST_ON_LINE)


def words_of(form: str) -> Words:
    return Tl1() if form == "tl1" else FORMS[form][0] if form in FORMS else Lines()


# ------------------------------------------------------------------------ the sequences


@dataclass(frozen=True)
class Step:
    """One question: what becomes of its answer, and how long the asker rests after it."""

    fault: Fault
    rest: int


soon = st.integers(0, TIMEOUT - 1)
late = st.integers(TIMEOUT + 1, 5 * TIMEOUT)
places = st.integers(0, 200)
rests = st.one_of(st.just(0), st.integers(0, 4 * TIMEOUT))


def faults(*kinds: str, latest: int) -> st.SearchStrategy[Step]:
    """Steps of these kinds; no answer is later than `latest`."""
    made = {
        "none": st.builds(Fault, after=soon),
        "late": st.builds(Fault, after=st.integers(TIMEOUT + 1, latest)),
        "silent": st.builds(Fault, st.just("silent"), after=soon),
        "slow": st.builds(
            Fault,
            st.just("slow"),
            gap=st.integers(0, min(TIMEOUT // 4, latest - TIMEOUT)),
            times=st.integers(2, 8),
        ),
        "closes": st.builds(Fault, st.just("closes"), after=soon, at=places),
        "resets": st.builds(Fault, st.just("resets"), after=soon, at=places),
        "truncates": st.builds(Fault, st.just("truncates"), after=soon, at=places),
        "garbles": st.builds(Fault, st.just("garbles"), after=soon, at=places),
        "repeats": st.builds(
            Fault,
            st.just("repeats"),
            after=soon,
            gap=st.one_of(st.just(0), soon),
            times=st.integers(1, 3),
        ),
        "holds back": st.builds(Fault, st.just("holds back"), after=soon),
        "mixes in": st.builds(
            Fault, st.just("mixes in"), after=soon, at=places, times=st.integers(1, 3)
        ),
    }

    return st.builds(Step, st.one_of(*(made[kind] for kind in kinds)), rests)


EVERY = ("none", "late", "silent", "slow", "truncates", "garbles", "repeats", "mixes in")
CLOSING = ("closes", "resets")


def converse(instrument: Faulty, asker: Asker, steps: list[Step], first: int) -> None:
    """Ask once for every step; an answer that is repeated later is waited for."""
    clock = instrument.clock
    for number, step in enumerate(steps, first):
        before, regaining, failure = clock.now(), instrument.regaining, None
        try:
            assert asker.ask(number) == number
        except InstrumentError as error:
            failure = error
        if failure is not None:
            assert failure.instrument == "meter"
            asked = asker.question(number) in failure.command
            assert asked or isinstance(failure, UnreachableError)
        at_once = not asker.drains and instrument.regaining == regaining
        assert clock.now() - before <= (TIMEOUT if at_once else asker.longest)
        clock.sleep(max(step.rest, instrument.repeats_until + 1 - clock.now()))


numbers = itertools.count(100, 100)


def run(bench: Bench, form: str, steps: list[Step], *, gateway: bool = False) -> None:
    plan = [step.fault for step in steps]
    bench.instrument = Faulty(bench.clock, words_of(form), plan, gateway=gateway)
    asker = asker_on(bench, form)
    with contextlib.closing(asker):
        converse(bench.instrument, asker, steps, next(numbers))
        if not gateway:
            left_in_peace(bench.instrument, asker)


def left_in_peace(instrument: Faulty, asker: Asker) -> None:
    """The next questions work."""
    instrument.behave()
    instrument.clock.sleep(20 * TIMEOUT)
    assert [asker.ask(number) for number in range(7, 10)] == [7, 8, 9]


def run_on_line(form: str, steps: list[Step], *, visa: bool = False) -> None:
    clock = VirtualClock(patience=20)
    server = PeerServer(clock)
    instrument = Faulty(clock, words_of(form), [step.fault for step in steps])
    device = server.serial_line(instrument.session)
    if visa:
        asker = over_scpi(Way("visa", resource=f"ASRL{device}::INSTR"), clock, LONGEST_ON_LINE)
    else:
        asker = asker_on_line(device, clock, form)
    try:
        converse(instrument, asker, steps, next(numbers))
        left_in_peace(instrument, asker)
    finally:
        asker.close()
        server.close()
        clock.close()


def some(share: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """So many of all sequences."""
    return settings(
        max_examples=max(1, int(SEQUENCES * share)),
        suppress_health_check=[HealthCheck.too_slow],
    )


def sequences(
    *kinds: str, latest: int = 5 * TIMEOUT, most: int = 8
) -> st.SearchStrategy[list[Step]]:
    return st.lists(faults(*kinds, latest=latest), min_size=1, max_size=most)


@pytest.mark.parametrize("form", ["lines", "bracketed", "sized"])
@some(0.1)
@given(steps=sequences(*EVERY, *CLOSING, "holds back"))
def test_untagged_over_tcp(bench, form, steps):
    run(bench, form, steps)


@some(0.2)
@given(steps=sequences(*EVERY, *CLOSING, "holds back"))
def test_scpi_over_tcp(bench, steps):
    run(bench, "scpi", steps)


@some(0.1)
@given(steps=sequences(*EVERY, *CLOSING))
def test_scpi_behind_a_gateway_that_forgets_nothing(bench, steps):
    run(bench, "scpi", steps, gateway=True)


@some(0.05)
@given(steps=sequences(*EVERY, *CLOSING, "holds back", most=4))
def test_scpi_behind_a_gateway_that_lags_behind_for_ever(bench, steps):
    """Until *IDN? has been asked in all the words that there are for it."""
    run(bench, "scpi", steps, gateway=True)


@some(0.1)
@given(steps=sequences(*EVERY, *CLOSING))
def test_scpi_over_hislip(bench, steps):
    run(bench, "hislip", steps)


@some(0.1)
@given(steps=sequences(*EVERY, *CLOSING))
def test_tl1(bench, steps):
    run(bench, "tl1", steps)


@some(0.05)
@given(steps=sequences(*EVERY, *CLOSING, "holds back"))
def test_tl1_behind_a_gateway_that_forgets_nothing(bench, steps):
    run(bench, "tl1", steps, gateway=True)


@pytest.mark.parametrize("form", ["scpi", "lines"])
@some(0.05)
@given(steps=sequences(*EVERY))
def test_a_serial_line_with_a_question_that_can_be_recognised(form, steps):
    run_on_line(form, steps)


@pytest.mark.parametrize("form", ["bracketed", "sized", "lines, one question"])
@some(0.04)
@given(steps=sequences(*EVERY, latest=TIMEOUT + QUIET - 1))
def test_a_serial_line_on_which_only_silence_helps(form, steps):
    run_on_line(form, steps)


@some(0.02)
@given(steps=sequences(*EVERY))
def test_a_serial_line_through_visa(steps):
    run_on_line("scpi", steps, visa=True)
