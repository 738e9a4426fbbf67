"""Specs take what parts of a file state by the names of their fields."""

from dataclasses import dataclass

import pytest

from lightrig.testbeds.base import Part
from lightrig.testbeds.stated_values import spec_of


class LampPart(Part):
    model: str
    login: str | None = None
    warm_up: int | None = None


@dataclass(frozen=True)
class LampSpec:
    name: str
    model: str
    login: str | None
    warm_up_ns: int = 30
    colour: str = "white"


def test_fields_of_the_same_name_pass_and_what_is_left_out_has_the_default():
    assert spec_of(LampSpec, LampPart(model="x"), name="a") == LampSpec("a", "x", None)
    stated = LampPart(model="x", login="env:L", warm_up=4)
    assert spec_of(LampSpec, stated, name="a") == LampSpec("a", "x", "env:L", 4, "white")


def test_a_required_field_that_no_part_states_is_an_error_of_the_program():
    with pytest.raises(AttributeError, match="name"):
        spec_of(LampSpec, LampPart(model="x"))
