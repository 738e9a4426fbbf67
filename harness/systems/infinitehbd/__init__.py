"""InfiniteHBD: rings of transceivers that switch."""

from pathlib import Path

from lightrig.harness.system_registry import System

_PACKAGE = "lightrig.harness.systems.infinitehbd"

SYSTEM = System(
    name="infinitehbd",
    title="InfiniteHBD",
    published=Path(__file__).parents[3] / "published" / "infinitehbd.yaml",
    claims="lightrig.suites.claims.infinitehbd.claims:COMPUTED",
    figures="lightrig.suites.claims.infinitehbd.figures:FIGURES",
    quantities=f"{_PACKAGE}.quantities:QUANTITIES",
    fixtures=f"{_PACKAGE}.fixtures",
    sections=f"{_PACKAGE}.report:SECTIONS",
    generator=f"{_PACKAGE}.generator:generate",
    simulated_fabric=f"{_PACKAGE}.planning.simulated_fabric:rings",
    orchestrator=f"{_PACKAGE}.runtime.layout:RowLayout",
)
