"""The section of the report that only Carousel has."""

from lightrig.harness.report.estimates import Estimate
from lightrig.harness.report.markup import Value, median_value
from lightrig.harness.report.sections import (
    Column,
    Section,
    Table,
    test_column,
    verdict_column,
)
from lightrig.harness.statistics import NotEnough


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
