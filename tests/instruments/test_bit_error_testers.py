"""Every bit error tester counts what its receiver makes, and says when it counted nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from lightrig.harness.bench import Bench, bind
from lightrig.harness.statistics.bit_errors import error_ratio
from lightrig.instruments.bit_error_testers.eye_bert import TextOrRecord, decode_count
from lightrig.instruments.core.capabilities import BitErrorTester
from lightrig.instruments.core.errors import DeniedError, NotDoneError
from lightrig.instruments.simulated.devices.simulated_eye_bert import short_float
from lightrig.instruments.simulated.world.bit_receiver import Receiver
from lightrig.testbeds import load

SECOND = 1_000_000_000
TESTERS = {
    "anritsu-mp1900a": "scpi",
    "keysight-m8040a": "scpi",
    "eye-bert": "serial",
}
FILE = """
name: bits
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: 4x4}}
instruments:
  ber: {{kind: bit_error_tester, model: {model}, address: "{scheme}://{where}.invalid",
        launch: {{max: 0 dBm}}}}
fibers:
  - {{fiber: ber.1 -> ber.1, loss: {loss} dB}}
"""


@contextmanager
def bench(tmp_path: Path, model: str, loss: float) -> Iterator[Bench]:
    path = tmp_path / "bits.yaml"
    scheme = TESTERS[model]
    path.write_text(FILE.format(model=model, scheme=scheme, where="/dev/x", loss=loss))
    if scheme != "serial":
        path.write_text(FILE.format(model=model, scheme=scheme, where="ber", loss=loss))
    bound = bind(load(path), "simulated", seed=3)
    try:
        yield bound
    finally:
        bound.close()


def the_ber(bound: Bench) -> BitErrorTester:
    return bound.instruments["ber"]  # type: ignore[return-value]


@pytest.mark.parametrize("model", TESTERS)
def test_identity_is_complete(tmp_path: Path, model: str) -> None:
    with bench(tmp_path, model, 5) as bound:
        assert bound.identities["ber"].simulated


@pytest.mark.parametrize("model", TESTERS)
def test_it_counts_errors_as_its_receiver_makes_them(tmp_path: Path, model: str) -> None:
    with bench(tmp_path, model, 11.4) as bound:
        ber = the_ber(bound)
        ber.prepare(1, pattern="PRBS31", bits_per_second=10e9)
        ber.align(1)
        before = bound.clock.now()
        counted = ber.count(1, duration=2 * SECOND).result()
        assert not counted.sync_lost
        assert counted.bits == pytest.approx(2e10, rel=0.02)
        assert counted.began.earliest >= before
        assert counted.ended.latest - counted.began.earliest == pytest.approx(2e9, rel=0.03)
        assert bound.world is not None
        # The receiver's sensitivity is drawn around its kind's; the ratio must be one of those.
        ratios = [Receiver(-9 + shift).ratio(10**-1.14) for shift in (-1.2, 1.2)]
        found = error_ratio(counted.errors, counted.bits)
        assert ratios[0] < found.value < ratios[1]


@pytest.mark.parametrize(("loss", "dbm"), [(5, -5.0), (11.4, -11.4)])
def test_the_received_power_of_a_record_is_in_hundredths_of_a_decibel(
    tmp_path: Path, loss: float, dbm: float
) -> None:
    """As allefr/eyebert reads it: bytes 5 and 6, (32768 - raw) / 100 dBm; 1 mW is sent."""
    with bench(tmp_path, "eye-bert", loss) as bound:
        ber = the_ber(bound)
        ber.prepare(1, pattern="PRBS31", bits_per_second=10e9)
        record = ber.session.query(b"r\r\n").data  # type: ignore[attr-defined]
        assert (32768 - int.from_bytes(record[5:7], "big")) / 100 == pytest.approx(dbm, abs=0.8)
        assert ber.power([1]).dbm[1] == pytest.approx(dbm, abs=0.8)  # type: ignore[attr-defined]


@pytest.mark.parametrize("model", TESTERS)
def test_a_strong_signal_has_no_errors(tmp_path: Path, model: str) -> None:
    with bench(tmp_path, model, 3) as bound:
        ber = the_ber(bound)
        ber.prepare(1, pattern="PRBS31", bits_per_second=10e9)
        counted = ber.count(1, duration=SECOND).result()
        assert counted.errors == 0
        assert not counted.sync_lost


@pytest.mark.parametrize("model", TESTERS)
def test_a_lost_pattern_is_not_zero_errors(tmp_path: Path, model: str) -> None:
    with bench(tmp_path, model, 35) as bound:
        ber = the_ber(bound)
        ber.prepare(1, pattern="PRBS31", bits_per_second=10e9)
        counted = ber.count(1, duration=SECOND).result()
        assert counted.sync_lost
        assert counted.clock_lost
        with pytest.raises(NotDoneError, match="ber"):
            ber.align(1)


@pytest.mark.parametrize("model", TESTERS)
def test_a_gate_can_be_looked_into_and_stopped(tmp_path: Path, model: str) -> None:
    with bench(tmp_path, model, 5) as bound:
        ber = the_ber(bound)
        ber.prepare(1, pattern="PRBS31", bits_per_second=10e9)
        gate = ber.count(1, duration=60 * SECOND)
        bound.clock.sleep(SECOND)
        sofar = gate.now()
        bound.clock.sleep(SECOND)
        stopped = gate.stop()
        assert 0 < sofar.bits < stopped.bits < 3e10
        again = ber.count(1, duration=SECOND).result()
        assert again.bits == pytest.approx(1e10, rel=0.03)


@pytest.mark.parametrize("model", TESTERS)
def test_a_pattern_that_it_has_not_is_refused_before_anything_is_sent(
    tmp_path: Path, model: str
) -> None:
    with bench(tmp_path, model, 5) as bound:
        ber = the_ber(bound)
        sent = len(ber.wire())
        with pytest.raises(DeniedError, match="no pattern PRBS12; it has PRBS7"):
            ber.prepare(1, pattern="PRBS12", bits_per_second=10e9)
        assert len(ber.wire()) == sent


def test_four_levels_carry_two_bits(tmp_path: Path) -> None:
    with bench(tmp_path, "keysight-m8040a", 5) as bound:
        ber = the_ber(bound)
        ber.prepare(1, pattern="PRBS13Q", bits_per_second=100e9)
        counted = ber.count(1, duration=10_000_000).result()
        assert counted.bits == pytest.approx(1e9, rel=0.01)


def test_a_detector_follows_the_pattern_of_the_generator_it_sees(tmp_path: Path) -> None:
    path = tmp_path / "crossed.yaml"
    file = FILE.format(model="keysight-m8040a", scheme="scpi", where="ber", loss=5)
    path.write_text(
        file.replace("ber.1 -> ber.1", "ber.1 -> ber.2").replace("}}", "}, channels: 2}")
    )
    bound = bind(load(path), "simulated", seed=3)
    try:
        ber = the_ber(bound)
        ber.prepare(2, pattern="PRBS31", bits_per_second=10e9)
        ber.align(2)
        assert ber.count(2, duration=10_000_000).result().bits == pytest.approx(1e8, rel=0.01)
        with pytest.raises(NotDoneError, match="found no eye"):
            ber.align(1)
        with pytest.raises(DeniedError, match="no channel 3; there are 2"):
            ber.align(3)
    finally:
        bound.close()


def test_an_impossible_rate_is_denied_with_the_testers_text(tmp_path: Path) -> None:
    with bench(tmp_path, "anritsu-mp1900a", 5) as bound:
        with pytest.raises(DeniedError) as denied:
            the_ber(bound).prepare(1, pattern="PRBS31", bits_per_second=100e9)
        assert denied.value.code == "-222"
        assert "BITRate 100.0" in denied.value.command


@given(st.integers(0, 2**60))
def test_a_short_float_keeps_24_bits(count: int) -> None:
    assert decode_count(short_float(count)) == pytest.approx(count, rel=2**-23)


@given(st.integers(0, 2**24 - 1))
def test_a_small_count_is_exact(count: int) -> None:
    assert decode_count(short_float(count)) == count


@given(st.binary(min_size=26, max_size=26), st.integers(0, 26))
def test_a_record_is_never_cut_early(data: bytes, came: int) -> None:
    record = data + b"\0"
    framing = TextOrRecord()
    if b"\n" not in record:
        assert framing.cut(record[:came]) is None
        assert framing.cut(record) == (record, 27)


SETTINGS = {
    ":SENSe:PATTern:TYPE": "DATA",
    ":SENSe:MEASure:EALarm:MODE": "SING",
    ":SENSe:MEASure:EALarm:PERiod": "1,2,3,4",
    ":SOURce:PATTern:TYPE": "PRBS",
    ":SOURce:PATTern:EADDition:VARiation": "SING",
    ":SOURce:PATTern:EADDition:RATE": "E_5,1",
}
"""Settings that a program in C# for MP2100A compares with what it has sent, and one in Python."""


def test_an_analyzer_replies_to_queries_as_programs_compare_them(tmp_path: Path) -> None:
    with bench(tmp_path, "anritsu-mp1900a", 5) as bound:
        ber: Any = bound.instruments["ber"]
        for header, value in SETTINGS.items():
            ber.write(f":MODule:ID {3 if 'SENSe' in header else 1}")
            ber.write(f"{header} {value}")
            assert ber.query(f"{header}?") == value
        ber.write(":SOURce:PATTern:EADDition:SET ON")
        assert ber.query(":SOURce:PATTern:EADDition:SET?") == "1"


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ((":VARiation REP", ":RATE E_3,1", ":SET ON"), 10_000_000),
        ((":VARiation REP", ":RATE E_5,3", ":SET ON"), 300_000),
        ((":VARiation REP", ":RATE E_3,1", ":SET OFF"), 0),
        ((":VARiation SING", ":RATE E_3,1", ":SET ON"), 0),
    ],
)
def test_errors_that_the_generator_adds_are_counted(
    tmp_path: Path, commands: tuple[str, ...], expected: int
) -> None:
    """At 10 Gbit/s, 1e-3 of a second's bits are 10 million."""
    with bench(tmp_path, "anritsu-mp1900a", 3) as bound:
        ber: Any = bound.instruments["ber"]
        ber.prepare(1, pattern="PRBS31", bits_per_second=10e9)
        ber.write(":MODule:ID 1")
        for command in commands:
            ber.write(f":SOURce:PATTern:EADDition{command}")
        assert ber.count(1, duration=SECOND).result().errors == pytest.approx(expected, rel=0.02)


def test_single_errors_are_counted_one_by_one(tmp_path: Path) -> None:
    with bench(tmp_path, "anritsu-mp1900a", 3) as bound:
        ber: Any = bound.instruments["ber"]
        ber.prepare(1, pattern="PRBS31", bits_per_second=10e9)
        gate = ber.count(1, duration=2 * SECOND)
        ber.write(":MODule:ID 1")
        ber.write(":SOURce:PATTern:EADDition:SINGle")  # neither on nor single: ignored
        for command in (":VARiation SING", ":SET ON", ":SINGle", ":SINGle", ":SINGle"):
            ber.write(f":SOURce:PATTern:EADDition{command}")
        ber.write(":MODule:ID 3")
        assert gate.result().errors == 3
