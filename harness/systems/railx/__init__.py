"""RailX: nodes on rows and columns of circuit switches (Feng et al.)."""

from pathlib import Path

from lightrig.harness.system_registry import System

_PACKAGE = "lightrig.harness.systems.railx"

SYSTEM = System(
    name="railx",
    title="RailX",
    published=Path(__file__).parents[3] / "published" / "railx.yaml",
    claims="lightrig.suites.claims.railx.claims:COMPUTED",
    figures="lightrig.suites.claims.railx.figures:FIGURES",
    fixtures=f"{_PACKAGE}.fixtures",
    generator=f"{_PACKAGE}.generator:generate",
    simulated_fabric=f"{_PACKAGE}.planning.simulated_fabric:rails",
    orchestrator=f"{_PACKAGE}.runtime.layout:GridLayout",
    structure=f"{_PACKAGE}.runtime.structure:GridStructure",
    quantities=f"{_PACKAGE}.quantities:QUANTITIES",
)
