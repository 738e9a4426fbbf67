"""The quantities that only Carousel records."""

from lightrig.api import Quantity

QUANTITIES = (
    Quantity(
        name="carousel.cycle",
        unit="ns",
        meaning="duration of one turn through all matchings",
        better="lower",
        section="Carousel",
    ),
)
