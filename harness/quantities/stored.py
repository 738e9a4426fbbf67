"""Declarations of a user's conftest and of other packages, as JSON beside the rows.

A report is often made where those are not installed, or once they have changed.
"""

import dataclasses
import json
from typing import Any

from lightrig.harness.quantities.quantity import Quantity, QuantityDeclarationError
from lightrig.harness.quantities.registry import declare_stored, declared_elsewhere
from lightrig.testbeds.baselines import Guard, Rule, RuleError
from lightrig.testbeds.json_text import from_json

SCHEMA = 1


class StoredQuantitiesError(QuantityDeclarationError):
    """Stored declarations that this version cannot read."""


def stored_quantities() -> str | None:
    """Return as JSON all quantities that Lightrig does not declare itself; None without any."""
    found = [_stated(one) for one in declared_elsewhere()]
    if not found:
        return None
    document = {"schema": SCHEMA, "quantities": found}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def declare_from(name: str, text: str | bytes) -> None:
    """Declare what `stored_quantities` returned, unless a name is declared here already.

    name: of the file, for the message. Raises `StoredQuantitiesError`.
    """
    try:
        document = from_json(text)
        if document["schema"] != SCHEMA:
            raise StoredQuantitiesError(
                f"{name}: found schema {document['schema']}, expected {SCHEMA}; read it with the "
                "version of Lightrig that wrote it"
            )
        declare_stored(map(_quantity, document["quantities"]))
    except (ValueError, KeyError, TypeError, RuleError) as error:
        if isinstance(error, StoredQuantitiesError):
            raise
        raise StoredQuantitiesError(f"{name} is damaged: {error!r}") from error


def _stated(one: Quantity) -> dict[str, Any]:
    found = dataclasses.asdict(one)
    if not one.beside:
        del found["beside"]  # versions before 0.2 know no such field
    return found


def _quantity(stored: dict[str, Any]) -> Quantity:
    rule = stored["baseline"]
    if rule is not None:
        guard = rule["guard"]
        # Versions before 0.2 kept a test.
        rule = Rule(**{**rule, "test": None, "guard": guard and Guard(**guard)})
    names = {name: tuple(stored.get(name, ())) for name in ("aliases", "beside")}
    return Quantity(**{**stored, "baseline": rule, **names})
