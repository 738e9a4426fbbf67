"""Whatever a tool can print is read as what it meant."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from rendered_outputs import (
    Collective,
    Module,
    collective_text,
    collectives,
    mlxlink_json,
    mlxlink_text,
    module_json,
    module_text,
    modules,
)

from lightrig.instruments.jobs.tools import nccl_tests
from lightrig.instruments.servers.tools import ethtool_module, mlxlink
from lightrig.instruments.servers.tools.module import ModuleReading

EXAMPLES = settings(max_examples=40)


def dbm(register: int) -> float:
    """One step of the register is no light."""
    return 10 * math.log10(register / 1e4) if register > 1 else -math.inf


def check_module(printed: Module, read: ModuleReading, bias_step: float = 5e-4) -> None:
    assert [lane.number for lane in read.lanes] == list(range(1, printed.lanes + 1))
    assert [lane.rx_power_dbm for lane in read.lanes] == pytest.approx([*map(dbm, printed.rx)])
    assert [lane.tx_power_dbm for lane in read.lanes] == pytest.approx([*map(dbm, printed.tx)])
    expected = [register / 500 for register in printed.bias]
    assert [lane.tx_bias_ma for lane in read.lanes] == pytest.approx(expected, abs=bias_step)
    assert read.temperature_c == pytest.approx(printed.temperature / 256, abs=0.0051)
    assert read.voltage_v == pytest.approx(printed.voltage / 1e4)
    if printed.lanes > 1:
        assert [lane.rx_los for lane in read.lanes] == printed.los
        alarmed = {alarm.lane for alarm in read.alarms if alarm.level == "low_alarm"}
        assert alarmed == {lane for lane, on in enumerate(printed.low_alarms, 1) if on}


@EXAMPLES
@given(modules(), st.sampled_from([0, 1]), st.booleans(), st.sampled_from(["\t", "", " "]))
def test_a_module_as_text(module: Module, first: int, spaced: bool, tab: str) -> None:
    text = module_text(module, first=first, spaced=spaced, tab=tab)
    read = ethtool_module.parse(text)
    check_module(module, read)
    assert read.vendor == "Example: Optics"


@EXAMPLES
@given(modules(lanes=(4, 8)), st.booleans())
def test_a_module_as_json(module: Module, repeating: bool) -> None:
    read = ethtool_module.parse(module_json(module, repeating=repeating))
    check_module(module, read)
    assert read.thresholds["temperature"]["high_alarm"] == 80


@EXAMPLES
@given(modules(lanes=(4, 8)))
def test_a_module_is_the_same_as_text_and_as_json(module: Module) -> None:
    text = ethtool_module.parse(module_text(module))
    json = ethtool_module.parse(module_json(module, repeating=True))
    for one, second in zip(text.lanes, json.lanes, strict=True):
        assert (one.rx_power_dbm, one.tx_power_dbm, one.rx_los) == (
            second.rx_power_dbm,
            second.tx_power_dbm,
            second.rx_los,
        )


counts = st.lists(st.integers(0, 1 << 63), min_size=4, max_size=4)


@EXAMPLES
@example([0] * 4, (15, 255), [0.0] * 4, 1_456_677, "text")
@given(
    counts,
    st.tuples(st.integers(1, 9), st.integers(1, 30)) | st.just((15, 255)),
    st.lists(st.integers(-3999, 700).map(lambda each: each / 100), min_size=4, max_size=4),
    st.integers(0, 10_000_000),
    st.sampled_from(["text", "colours", "json"]),
)
def test_a_report_of_mlxlink(
    errors: list[int], ber: tuple[int, int], light: list[float], tenths: int, form: str
) -> None:
    sections = {
        "Operational Info": {"State": "Active", "Speed": "100G_4X", "Width": "4x"},
        "Module Info": {
            "Identifier": "QSFP28",
            "Rx Power Current [dBm]": ",".join(f"{each:g}" for each in light) + " [-10.5..4.5]",
        },
        "Physical Counters and BER Info": {
            "Time Since Last Clear [Min]": f"{tenths / 10:.1f}",
            "Raw Physical Errors Per Lane": ",".join(map(str, errors)),
            "Raw Physical BER": f"{ber[0]}E-{ber[1]}",
            "Something New": "and, unknown: [1..2]",
        },
    }
    text = (
        mlxlink_json(sections, frozenset({"Raw Physical Errors Per Lane"}))
        if form == "json"
        else mlxlink_text(sections, coloured=form == "colours")
    )
    report = mlxlink.parse(text)
    assert report.sections == sections
    assert report.link is not None
    assert report.errors is not None
    assert report.module is not None
    assert report.link.rate_bps == 100 * 10**9
    assert report.errors.raw_errors == tuple(errors)
    expected = 0.0 if ber[1] == 255 else ber[0] * 10.0 ** -ber[1]
    assert report.errors.raw_ber == pytest.approx(expected)
    assert report.errors.since_clear_ns == tenths * 6 * 10**9
    assert [lane.rx_power_dbm for lane in report.module.lanes] == pytest.approx(light, rel=1e-5)


@EXAMPLES
@given(collectives(), st.sampled_from(["", "0: ", "[1,0]<stdout>:"]), st.booleans(), st.booleans())
def test_a_table_of_nccl_tests(run: Collective, prefix: str, old: bool, iterations: bool) -> None:
    iterations = iterations and not old
    text = collective_text(run, prefix=prefix, old=old, iterations=iterations)
    read = nccl_tests.parse(text, collective=run.name)
    assert read.ranks == run.ranks
    assert [row.count for row in read.rows] == [count for count, *_ in run.rows]
    for row, (_, *times) in zip(read.rows, run.rows, strict=True):
        for measured, time in zip(row.measured, times, strict=True):
            assert abs(measured.time_us.value - time) <= measured.time_us.half * 1.001
            assert (measured.iterations is not None) == iterations
