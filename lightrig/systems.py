"""Names for published systems to import: declaration, sections of the report, computed claims.

    from lightrig.systems import System

docs/systems.md tells how to write one.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightrig.harness.system_registry import System, SystemRegistryError

if TYPE_CHECKING:
    from lightrig.harness.claims.computed import Computed, exactly, over_draws
    from lightrig.harness.claims.published import PUBLISHED, Claim, load_published
    from lightrig.harness.orchestration.jobs import Group, Job, OrchestrationError
    from lightrig.harness.orchestration.layout import Layout, Shape
    from lightrig.harness.report.estimates import Estimate
    from lightrig.harness.report.markup import median_value
    from lightrig.harness.report.sections import (
        Column,
        Figure,
        Figures,
        Section,
        SectionData,
        Table,
        test_column,
        verdict_column,
    )
    from lightrig.harness.report.units import Value

__all__ = [
    "PUBLISHED",
    "Claim",
    "Column",
    "Computed",
    "Estimate",
    "Figure",
    "Figures",
    "Group",
    "Job",
    "Layout",
    "OrchestrationError",
    "Section",
    "SectionData",
    "Shape",
    "System",
    "SystemRegistryError",
    "Table",
    "Value",
    "exactly",
    "load_published",
    "median_value",
    "over_draws",
    "test_column",
    "verdict_column",
]

_LOADED_AT_FIRST_USE = {
    "load_published": "lightrig.harness.claims.published",
    "Computed": "lightrig.harness.claims.computed",
    "exactly": "lightrig.harness.claims.computed",
    "over_draws": "lightrig.harness.claims.computed",
    "PUBLISHED": "lightrig.harness.claims.published",
    "Claim": "lightrig.harness.claims.published",
    "Group": "lightrig.harness.orchestration.jobs",
    "Job": "lightrig.harness.orchestration.jobs",
    "OrchestrationError": "lightrig.harness.orchestration.jobs",
    "Layout": "lightrig.harness.orchestration.layout",
    "Shape": "lightrig.harness.orchestration.layout",
    "Estimate": "lightrig.harness.report.estimates",
    "Value": "lightrig.harness.report.units",
    "median_value": "lightrig.harness.report.markup",
    "Column": "lightrig.harness.report.sections",
    "Figure": "lightrig.harness.report.sections",
    "Figures": "lightrig.harness.report.sections",
    "Section": "lightrig.harness.report.sections",
    "SectionData": "lightrig.harness.report.sections",
    "Table": "lightrig.harness.report.sections",
    "test_column": "lightrig.harness.report.sections",
    "verdict_column": "lightrig.harness.report.sections",
}
"""Names that load large parts, the report and the reading of claims, by module."""


def __getattr__(name: str) -> Any:
    if name in _LOADED_AT_FIRST_USE:
        return getattr(import_module(_LOADED_AT_FIRST_USE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
