"""ACOS: arrays of cheap optical switches that join into one fabric (Amir et al., 2026)."""

from pathlib import Path

from lightrig.harness.system_registry import System

_PACKAGE = "lightrig.harness.systems.acos"

SYSTEM = System(
    name="acos",
    title="ACOS",
    published=Path(__file__).parents[3] / "published" / "acos.yaml",
    claims="lightrig.suites.claims.acos.claims:COMPUTED",
    figures="lightrig.suites.claims.acos.figures:FIGURES",
    quantities=f"{_PACKAGE}.quantities:QUANTITIES",
    fixtures=f"{_PACKAGE}.fixtures",
    generator=f"{_PACKAGE}.generator:generate",
    simulated_fabric=f"{_PACKAGE}.planning.simulated_fabric:selected_topologies",
    structure=f"{_PACKAGE}.runtime.hall_structure:HallStructure",
    orchestrator=f"{_PACKAGE}.runtime.rack_layout:layout_of",
)
