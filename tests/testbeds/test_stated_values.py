"""Specs take what parts of a file state by the names of their fields."""

from dataclasses import dataclass

import pytest

from lightrig.testbeds.base import Part
from lightrig.testbeds.stated_values import spec_of


class DelayPart(Part):
    mean: int | None = None


class LampPart(Part):
    model: str
    login: str | None = None
    warm_up: int | None = None
    delay: DelayPart | None = None


@dataclass(frozen=True)
class Delay:
    mean: int = 7


@dataclass(frozen=True)
class LampSpec:
    name: str
    model: str
    login: str | None
    warm_up_ns: int = 30
    colour: str = "white"
    delay: Delay = Delay(1)


def test_fields_of_the_same_name_pass_and_what_is_left_out_has_the_default():
    assert spec_of(LampSpec, LampPart(model="x"), name="a") == LampSpec("a", "x", None)
    stated = LampPart(model="x", login="env:L", warm_up=4, delay=DelayPart())
    expected = LampSpec("a", "x", "env:L", 4, "white", Delay(7))
    assert spec_of(LampSpec, stated, {DelayPart: Delay}, name="a") == expected


def test_a_required_field_that_no_part_states_is_an_error_of_the_program():
    with pytest.raises(AttributeError, match="name"):
        spec_of(LampSpec, LampPart(model="x"))
