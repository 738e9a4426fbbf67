"""Quantities: what a measurement records, declared once and read by every other part.

Limits take the unit from here, the terminal what it shows, the report titles and sections, and
the comparison of nights its default rule. `measure.record` takes any declared quantity.
docs/quantities.md says how to declare one.
"""

from lightrig.harness.quantities.quantity import (
    Better,
    Combination,
    Quantity,
    QuantityDeclarationError,
    Reduction,
    Terminal,
)
from lightrig.harness.quantities.registry import (
    UnknownQuantityError,
    aliases,
    all_quantities,
    current_name,
    declare,
    find,
    in_section,
    names_in_files,
    quantity,
    quantity_of,
)
from lightrig.harness.quantities.stored import (
    StoredQuantitiesError,
    declare_from,
    stored_quantities,
)

__all__ = [
    "Better",
    "Combination",
    "Quantity",
    "QuantityDeclarationError",
    "Reduction",
    "StoredQuantitiesError",
    "Terminal",
    "UnknownQuantityError",
    "aliases",
    "all_quantities",
    "current_name",
    "declare",
    "declare_from",
    "find",
    "in_section",
    "names_in_files",
    "quantity",
    "quantity_of",
    "stored_quantities",
]
