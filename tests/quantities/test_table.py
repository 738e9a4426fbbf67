"""Tables of quantities: options of a section, of a quantity, and what is refused."""

import pytest

from lightrig.harness.quantities.quantity import Quantity, QuantityDeclarationError
from lightrig.harness.quantities.table import table
from lightrig.testbeds.baselines import Rule

TEXT = """
[Light sources] dBm higher hidden
# Of all sources.
launched minimum=5 direction=down title="power launched" aliases=sent,out
    optical power into the fiber
drift dB lower unjudged none
    change of it in an hour
"""


def test_a_quantity_has_the_options_of_its_section_and_its_own():
    assert table(TEXT) == (
        Quantity(
            name="launched",
            unit="dBm",
            meaning="optical power into the fiber",
            better="higher",
            section="Light sources",
            terminal="hidden",
            title="power launched",
            aliases=("sent", "out"),
            baseline=Rule(minimum=5, direction="down"),
        ),
        Quantity(
            name="drift",
            unit="dB",
            meaning="change of it in an hour",
            better="lower",
            combine="none",
            section="Light sources",
            terminal="hidden",
            baseline=None,
        ),
    )


@pytest.mark.parametrize("option", ["downward", "colour=red", "dbm"])
def test_an_unknown_option_is_named(option):
    with pytest.raises(QuantityDeclarationError, match=f"launched: found the option '{option}'"):
        table(TEXT.replace("minimum=5", option))


def test_a_quote_without_its_second_is_named():
    with pytest.raises(QuantityDeclarationError, match='title="power launched aliases'):
        table(TEXT.replace('launched" aliases', "launched aliases"))
