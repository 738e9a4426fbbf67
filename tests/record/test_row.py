"""Rows and contexts hold what a record may hold, and name what it may not."""

import dataclasses
import math

import numpy as np
import pytest

from lightrig.harness.record import Context, RowError


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"subject": ""}, "subject: found '', expected text"),
        ({"quantity": 3}, "quantity: found 3"),
        ({"unit": ""}, "unit: found ''"),
        ({"unit": "\ud800"}, "not Unicode"),
        ({"value": math.nan}, "value: found nan"),
        ({"value": True}, "value: found True of type bool"),
        ({"value": np.int64(41_440_000)}, "of type int64, expected int or float"),
        ({"value": 2**63, "upper": None}, "64 bits"),
        ({"value": 10**400, "upper": None}, "64 bits"),
        ({"upper": math.inf}, "upper: found inf"),
        ({"lower": 42_000_000}, "lower 42000000 is above value 41440000"),
        ({"upper": 41_000_000}, "upper 41000000 is below value 41440000"),
        ({"time_ns": 1.5}, "time_ns: found 1.5"),
        ({"time_ns": True}, "time_ns: found True"),
        ({"time_ns": 2**63}, "integer nanoseconds"),
        ({"conditions": []}, "expected a mapping"),
        ({"conditions": {"moved": None}}, "conditions.moved: found None"),
        ({"conditions": {3: 4}}, "conditions: found 3"),
        ({"conditions": {"a": -math.inf}}, "conditions.a: found -inf"),
        ({"conditions": {"a": "\udfff"}}, "not Unicode"),
    ],
)
def test_a_row_names_what_it_cannot_hold(row, change, says):
    with pytest.raises(RowError, match=says):
        dataclasses.replace(row, **change)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"testbed": ""}, "testbed: found ''"),
        ({"test": None}, "test: found None"),
        ({"simulated": 1}, "simulated: found 1"),
        ({"instruments": ["Polatis"]}, "expected a tuple"),
        ({"instruments": ("",)}, "instruments: found ''"),
        ({"instruments": ({"serial": None},)}, "instruments.serial: found None"),
        ({"conditions": {"a": math.nan}}, "conditions.a: found nan"),
    ],
)
def test_a_context_names_what_it_cannot_hold(context, change, says):
    with pytest.raises(RowError, match=says):
        dataclasses.replace(context, **change)


def test_a_row_does_not_change_with_its_source():
    identity, conditions = {"serial": "1"}, {"a": 1}
    context = Context("t", "test", (identity,), False, conditions)
    identity["serial"] = "2"
    conditions["a"] = 2
    assert context.instruments == ({"serial": "1"},)
    assert context.conditions == {"a": 1}


def test_numpy_floats_and_bounds_equal_to_the_value_are_fine(row):
    assert dataclasses.replace(row, value=np.float64(41e6), lower=41e6, upper=41e6)
