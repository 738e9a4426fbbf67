"""With any fault of an instrument, a query gets the reply to it or a typed error.

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
from faulty import MS, TIMEOUT, Bracketed, Dialect, Fault, Faulty, Lines, Sized, Tl1
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import GarbledError, InstrumentError, UnreachableError
from lightrig.instruments.simulated.protocols.device_server import (
    DeviceConnection,
    DeviceServer,
    Session,
)
from lightrig.instruments.simulated.protocols.hislip_server import HislipServer, hislip_resource
from lightrig.instruments.wire import framing
from lightrig.instruments.wire.scpi import scpi_session
from lightrig.instruments.wire.session import QuerySession, Resync
from lightrig.instruments.wire.stream import serial_stream, tcp_stream
from lightrig.instruments.wire.tl1 import Tl1Session

SEQUENCES = int(os.environ.get("LIGHTRIG_FAULTS", "300"))
QUIET = 20 * MS
LONGEST = 2 * TIMEOUT + (300 * MS + TIMEOUT)
"""Time for a resync query, silence if it was sent before, and the query itself, in ns."""
LONGEST_ON_LINE = LONGEST + (300 * MS + TIMEOUT)
"""Time with silence before it."""


@dataclass
class Querier:
    """A session with the instrument; `query` returns the number in the reply."""

    query: Callable[[int], int]
    question: Callable[[int], str]
    close: Callable[[], None]
    longest: int
    """Time allowed for a reply, with everything before the resync query."""
    drains: bool = False
    """Whether it waits for silence, which the instrument cannot observe."""


def number_in(text: str, querier: Callable[..., Exception], command: str) -> int:
    """Return the number in a reply; like in a driver, a malformed reply is an error."""
    found = re.fullmatch(r"<?A(\d+)>?", text)
    if found is None:
        raise querier(GarbledError, f"answered {text!r}", command)
    return int(found[1])


def over_scpi(endpoint: Endpoint, clock: VirtualClock, longest: int = LONGEST) -> Querier:
    session = scpi_session("meter", endpoint, clock)

    def query(number: int) -> int:
        command = f"Q{number}?"
        return number_in(session.query(command, TIMEOUT).text, session.failed, command)

    return Querier(query, "Q{}?".format, session.close, longest, longest > LONGEST)


def over_session(
    session: QuerySession,
    question: Callable[[int], bytes],
    show: Callable[[int], str],
    longest: int = TIMEOUT,
    *,
    sized: bool = False,
) -> Querier:
    def query(number: int) -> int:
        data = session.query(question(number), TIMEOUT).data
        if sized:
            if (found := Sized.number(data)) is None:
                raise session.failed(GarbledError, f"answered {data!r}", show(number))
            return found
        text = data.decode("ascii", "backslashreplace")
        return number_in(text, session.failed, show(number))

    return Querier(query, show, session.close, longest, longest > LONGEST)


def over_tl1(host: str, port: int, clock: VirtualClock) -> Querier:
    session = Tl1Session("meter", host, port, clock)

    def query(number: int) -> int:
        lines = session.command("RTRV-X", str(number), timeout=TIMEOUT).lines

        def failed(kind, problem, command):
            return kind("meter", problem, command=command)

        return number_in(" ".join(lines), failed, f"RTRV-X::{number}:")

    return Querier(query, "RTRV-X::{}:".format, session.close, TIMEOUT)


SIZED = (Sized.question, lambda n: Sized.question(n).hex(" "))
FORMS: dict[str, tuple[Dialect, framing.Framing, Callable[[int], bytes], Callable[[int], str]]] = {
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
    """A clock and a server for many instruments, one after the other."""

    def __init__(self) -> None:
        self.clock = VirtualClock(stall_timeout=20)
        self.server = DeviceServer(self.clock)
        self.instrument: Faulty
        self.tcp = self.server.listen(self.session)
        self.hislip = hislip_resource(*self.server.listen(HislipServer(self.session)))

    def session(self, connection: DeviceConnection, index: int) -> Session:
        return self.instrument.session(connection, index)

    def close(self) -> None:
        self.server.close()
        self.clock.close()


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


def asker_on(bench: Bench, form: str) -> Querier:
    if form == "tl1":
        return over_tl1(*bench.tcp, bench.clock)
    if form == "scpi":
        return over_scpi(Endpoint("scpi", *bench.tcp), bench.clock)
    if form == "hislip":
        return over_scpi(Endpoint("visa", resource=bench.hislip), bench.clock)
    _, cut, question, show = FORMS[form]
    session = QuerySession(
        "meter", lambda: tcp_stream("meter", *bench.tcp, bench.clock), bench.clock, cut
    )
    sized = isinstance(cut, framing.Sized)
    return over_session(session, encoded(question), show, sized=sized)


@dataclass(frozen=True, slots=True)
class Variants(Resync):
    """One resync query with several variants, each with a different reply."""

    def variant(self, number: int) -> tuple[bytes, Callable[[bytes], bool]]:
        return b"ID%d\n" % number, b"IDENTITY%d".__mod__(number).__eq__


RESYNCS = {
    "lines": Variants(QUIET),
    "lines, one question": Resync(QUIET, b"ID0\n", b"IDENTITY0".__eq__),
}


def querier_on_line(device: str, clock: VirtualClock, form: str) -> Querier:
    if form == "scpi":
        return over_scpi(Endpoint("serial", resource=device), clock, LONGEST_ON_LINE)
    _, cut, question, show = FORMS[form]
    session = QuerySession(
        "meter",
        lambda: serial_stream("meter", device, clock, baud=9600),
        clock,
        cut,
        resync=RESYNCS.get(form, Resync(QUIET)),
    )
    sized = isinstance(cut, framing.Sized)
    return over_session(session, encoded(question), show, LONGEST_ON_LINE, sized=sized)


def dialect_of(form: str) -> Dialect:
    return Tl1() if form == "tl1" else FORMS[form][0] if form in FORMS else Lines()


# ------------------------------------------------------------------------ the sequences


@dataclass(frozen=True)
class Step:
    """One query: the fault of its reply, and the pause after it."""

    fault: Fault
    rest: int


soon = st.integers(0, TIMEOUT - 1)
late = st.integers(TIMEOUT + 1, 5 * TIMEOUT)
places = st.integers(0, 200)
rests = st.one_of(st.just(0), st.integers(0, 4 * TIMEOUT))


def faults(*kinds: str, latest: int) -> st.SearchStrategy[Step]:
    """Steps of these kinds; no reply is later than `latest`."""
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


def converse(instrument: Faulty, querier: Querier, steps: list[Step], first: int) -> None:
    """Query once for every step; wait for a reply that is repeated later."""
    clock = instrument.clock
    for number, step in enumerate(steps, first):
        before, regaining, failure = clock.now(), instrument.regaining, None
        try:
            assert querier.query(number) == number
        except InstrumentError as error:
            failure = error
        if failure is not None:
            assert failure.instrument == "meter"
            asked = querier.question(number) in failure.command
            assert asked or isinstance(failure, UnreachableError)
        at_once = not querier.drains and instrument.regaining == regaining
        assert clock.now() - before <= (TIMEOUT if at_once else querier.longest)
        clock.sleep(max(step.rest, instrument.repeats_until + 1 - clock.now()))


numbers = itertools.count(100, 100)


def run(bench: Bench, form: str, steps: list[Step], *, gateway: bool = False) -> None:
    plan = [step.fault for step in steps]
    bench.instrument = Faulty(bench.clock, dialect_of(form), plan, gateway=gateway)
    querier = asker_on(bench, form)
    with contextlib.closing(querier):
        converse(bench.instrument, querier, steps, next(numbers))
        if not gateway:
            left_in_peace(bench.instrument, querier)


def left_in_peace(instrument: Faulty, querier: Querier) -> None:
    """Assert that the next queries succeed."""
    instrument.behave()
    instrument.clock.sleep(20 * TIMEOUT)
    assert [querier.query(number) for number in range(7, 10)] == [7, 8, 9]


def run_on_line(form: str, steps: list[Step], *, visa: bool = False) -> None:
    clock = VirtualClock(stall_timeout=20)
    server = DeviceServer(clock)
    instrument = Faulty(clock, dialect_of(form), [step.fault for step in steps])
    device = server.serial_line(instrument.session)
    if visa:
        querier = over_scpi(
            Endpoint("visa", resource=f"ASRL{device}::INSTR"), clock, LONGEST_ON_LINE
        )
    else:
        querier = querier_on_line(device, clock, form)
    try:
        converse(instrument, querier, steps, next(numbers))
        left_in_peace(instrument, querier)
    finally:
        querier.close()
        server.close()
        clock.close()


def some(share: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hypothesis settings for `count` sequences."""
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
def test_scpi_behind_a_gateway_with_a_buffer(bench, steps):
    run(bench, "scpi", steps, gateway=True)


@some(0.05)
@given(steps=sequences(*EVERY, *CLOSING, "holds back", most=4))
def test_scpi_behind_a_gateway_one_reply_late(bench, steps):
    """Until all variants of *IDN? were sent."""
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
def test_tl1_behind_a_gateway_with_a_buffer(bench, steps):
    run(bench, "tl1", steps, gateway=True)


@pytest.mark.parametrize("form", ["scpi", "lines"])
@some(0.05)
@given(steps=sequences(*EVERY))
def test_serial_line_with_a_recognisable_query(form, steps):
    run_on_line(form, steps)


@pytest.mark.parametrize("form", ["bracketed", "sized", "lines, one question"])
@some(0.04)
@given(steps=sequences(*EVERY, latest=TIMEOUT + QUIET - 1))
def test_serial_line_resynchronised_by_silence(form, steps):
    run_on_line(form, steps)


@some(0.02)
@given(steps=sequences(*EVERY))
def test_serial_line_through_visa(steps):
    run_on_line("scpi", steps, visa=True)
