"""A changed output is read as it was, or refused: never another exception.

Where a tool prints one thing twice, a number that is read from a changed output is the right
one to the printed digits. These are guarded: power (mW, dBm) and temperature (°C, °F) of
`ethtool -m`; size, count, time, both bandwidths and missing rows of nccl-tests; average
bandwidth, size and message rate of perftest; states in sysfs. Not guarded, since printed once:
bias, voltage and counters.
"""

import contextlib
import functools
import json
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from rendered_outputs import digit_changes, json_mutations, mutations
from tool_samples import names, parser_of, read, sample

from lightrig.instruments.jobs.tools.nccl_results import CollectiveRow, CollectiveRun
from lightrig.instruments.servers.tools.output import ToolOutputError

MANY = settings(max_examples=70)
pytestmark = pytest.mark.hypothesis  # some tests apply @given inside


def mutated(name: str, *marks: str) -> st.SearchStrategy[str]:
    """Changes anywhere, half of them of a digit in lines with one of `marks`."""
    anywhere = mutations(sample(name))
    return anywhere | digit_changes(sample(name), marks) if marks else anywhere


@pytest.mark.parametrize("name", names())
def test_mutations_raise_only_tool_errors(name: str) -> None:
    parse = parser_of(name)

    @settings(max_examples=8)
    @given(mutated(name))
    def never_another_exception(text: str) -> None:
        error = refusal(parse, text)
        assert error is None or 0 < len(str(error)) < 2000

    never_another_exception()


@pytest.mark.parametrize(
    "name", [name for name in names() if name.endswith(".json") and "qos" not in name]
)
def test_values_of_another_kind(name: str) -> None:
    parse = parser_of(name)

    @settings(max_examples=8)
    @given(json_mutations(sample(name)))
    def never_another_exception(text: str) -> None:
        refusal(parse, text)

    never_another_exception()


@settings(max_examples=8)
@given(
    st.sampled_from(sorted({parser_of(name) for name in names()}, key=repr)),
    st.text(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["result", "end", "status", "code"]), inner, max_size=3
            )
        ),
        max_leaves=8,
    ).map(json.dumps),
)
def test_anything_at_all(parse: Callable[[str], Any], text: str) -> None:
    refusal(parse, text)


def refusal(parse: Callable[[str], Any], text: str) -> ToolOutputError | None:
    try:
        parse(text)
    except ToolOutputError as error:
        return error
    return None


def unless_refused(parse: Callable[[str], Any], text: str) -> Any:
    with contextlib.suppress(ToolOutputError):
        return parse(text)
    return None


@functools.cache
def right(name: str) -> Any:
    return read(name)


@pytest.mark.parametrize("name", ["ethtool/jc_module_sfp.txt", "synthetic/ethtool_module_cmis.txt"])
def test_light_and_temperature_are_right_or_refused(name: str) -> None:
    was = right(name)

    @MANY
    @given(mutated(name, " mW / ", "degrees C"))
    def check(text: str) -> None:
        now = unless_refused(parser_of(name), text)
        if now is None:
            return
        if None not in (now.temperature_c, was.temperature_c):
            assert abs(now.temperature_c - was.temperature_c) <= 0.011
        if len(now.lanes) == len(was.lanes):
            for one, second in zip(was.lanes, now.lanes, strict=True):
                for light in ("rx_power_dbm", "tx_power_dbm"):
                    before, after = getattr(one, light), getattr(second, light)
                    assert after is None or after == before or abs(after - before) <= 0.011

    check()


def by_size(run: CollectiveRun) -> dict[int, CollectiveRow]:
    """The rows of large messages, whose numbers have digits enough to guard each second."""
    return {row.size: row for row in run.rows if row.size > 1 << 24}


@pytest.mark.parametrize(
    "name", ["nccl-tests/superbench_allreduce.txt", "synthetic/nccl_current.txt"]
)
def test_a_table_of_nccl_tests_is_right_or_refused(name: str) -> None:
    was = right(name)

    @MANY
    @given(mutated(name, " float "))
    def check(text: str) -> None:
        now = unless_refused(parser_of(name), text)
        if now is None or now.average_bus_gbytes is None:
            return  # refused, or it says that its end is missing
        before, after = by_size(was), by_size(now)
        assert after.keys() == before.keys()
        for size, row in after.items():
            assert row.count == before[size].count
            for one, second in zip(before[size].measured, row.measured, strict=True):
                assert second.time_ns == pytest.approx(one.time_ns, rel=2e-3)
                assert second.bus_bps == pytest.approx(one.bus_bps, rel=2e-3)
                assert second.algorithm_bps == pytest.approx(one.algorithm_bps, rel=2e-3)

    check()


def test_perftest_is_right_or_refused() -> None:
    name = "perftest/superbench_ib_loopback_all_sizes.txt"
    was = {row.size: row for row in right(name)[0].bandwidths}

    text = sample(name)
    assert text.count("524288 ") == 1

    @MANY
    @example(text.replace("524288 ", "524280 "))
    @given(mutated(name))
    def check(text: str) -> None:
        for report in unless_refused(parser_of(name), text) or ():
            for row in report.bandwidths:
                if row.size in was and row.size >= 4096:
                    assert row.average_bps == pytest.approx(was[row.size].average_bps, rel=1e-3)
                else:
                    assert row.size < 4096

    check()


def test_a_state_in_sysfs_is_right_or_refused() -> None:
    name = "rdma/gpud_sysfs_class_infiniband_h100.txt"
    was = {port.device: port for port in right(name)}

    @MANY
    @given(mutated(name, "state"))
    def check(text: str) -> None:
        for port in unless_refused(parser_of(name), text) or ():
            before = was.get(port.device)
            if before is not None:
                assert port.state in (before.state, None)
                assert port.physical_state in (before.physical_state, None)

    check()
