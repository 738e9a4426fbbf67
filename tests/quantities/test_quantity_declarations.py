"""Declarations: what a quantity must state, which names are taken, how an event is combined."""

import pytest

from lightrig.harness.quantities.quantity import Quantity, QuantityDeclarationError
from lightrig.harness.quantities.registry import (
    UnknownQuantityError,
    all_quantities,
    current_name,
    declare,
    find,
    in_section,
    quantity,
    quantity_of,
)


def test_a_quantity_without_direction_cannot_combine_by_the_worst():
    with pytest.raises(QuantityDeclarationError, match="color combines subjects by the worst"):
        Quantity(name="color", unit="1", meaning="color")


@pytest.mark.parametrize("name", ["Isolation", "isolation.", "1st", "a b"])
def test_names_are_dotted_words(name):
    with pytest.raises(QuantityDeclarationError, match="expected a name such as"):
        Quantity(name=name, unit="dB", meaning="isolation", better="higher")


@pytest.mark.parametrize(
    ("better", "combine", "side", "reduction"),
    [
        ("lower", "worst", None, "max"),
        ("higher", "worst", None, "min"),
        ("higher", "worst", "upper", "max"),
        ("lower", "worst", "lower", "min"),
        ("lower", "sum", "upper", "sum"),
        (None, "least", None, "min"),
        (None, "greatest", "lower", "max"),
        ("lower", "none", None, None),
    ],
)
def test_the_worst_subject_follows_from_direction_and_limit(better, combine, side, reduction):
    one = Quantity(name="x", unit="1", meaning="x", better=better, combine=combine)
    assert one.reduction(side) == reduction


def test_an_alias_finds_the_present_quantity():
    assert quantity("opus.change") is quantity("opus.reconfiguration_time")
    assert current_name("reconfiguration.light_gone") == "reconfiguration.los"
    assert current_name("never_declared") == "never_declared"


def test_an_unknown_name_suggests_a_known_one():
    with pytest.raises(UnknownQuantityError, match=r"did you mean 'insertion_loss'\?"):
        quantity("insertion_los")


def test_an_undeclared_quantity_still_has_one_sample_an_event():
    assert quantity_of("jitter", "ns").reduction() == "max"
    assert quantity_of("outage.carrier", "ns") is quantity("outage.carrier")


@pytest.mark.parametrize("taken", ["insertion_loss", "collective.use"])
def test_a_declared_name_cannot_be_taken(taken):
    with pytest.raises(QuantityDeclarationError, match=f"'{taken}' is declared already"):
        declare(Quantity(name=taken, unit="1", meaning="x", better="lower"))


def test_the_same_declaration_twice_is_one():
    declare(quantity("insertion_loss"))


def test_a_section_lists_its_quantities_in_order():
    names = [one.name for one in in_section("RDMA")]
    assert names[:2] == ["rdma.latency", "rdma.latency_p99"]


def test_every_declaration_has_a_meaning_without_a_full_stop():
    for one in all_quantities().values():
        assert one.meaning, one.name
        assert not one.meaning.endswith("."), one.name
        assert find(one.name) is one
