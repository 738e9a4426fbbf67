"""Carousel: a switch that joins every pair of servers in turn."""

from pathlib import Path

from lightrig.systems import System

SYSTEM = System(
    name="carousel",
    title="Carousel",
    published=Path(__file__).with_name("published.yaml"),
    claims="carousel.claims:COMPUTED",
    quantities="carousel.quantities:QUANTITIES",
    sections="carousel.report:SECTIONS",
    fixtures="carousel.fixtures",
    generator="carousel.generator:generate",
)
