"""The section of the report that only Carousel has."""

from lightrig.api import NotEnough
from lightrig.systems import (
    Column,
    Estimate,
    Section,
    Table,
    Value,
    median_value,
    test_column,
    verdict_column,
)


def _median(one: Estimate) -> Value | NotEnough:
    return median_value(one.median, one.test.simulated, one.unit)


SECTIONS = (
    Section(
        "Carousel",
        parts=(
            Table(
                "Turns through all matchings",
                [test_column(), Column("median", _median), verdict_column()],
                rows=lambda data: data.each("carousel.cycle"),
            ),
        ),
    ),
)
