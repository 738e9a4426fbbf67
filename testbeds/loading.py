"""From a file to a testbed: read, parse, expand, wire, check."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from testbeds.budgets import check_budgets
from testbeds.cabling import Cabling
from testbeds.expansion import expand_document
from testbeds.findings import Findings
from testbeds.limits import Limit, LimitError, parse_limit
from testbeds.located import Keys, Located
from testbeds.model import Testbed
from testbeds.parsing import read_as
from testbeds.schema import Document
from testbeds.stated_plans import read_plans
from testbeds.stated_truth import read_simulation
from testbeds.wiring import wire


def load(path: str | Path) -> Testbed:
    """Return the testbed that the file at `path` describes.

    Raises `TestbedError` with every problem that was found. A file that breaks the schema is
    not looked at further, since what it describes is not known.
    """
    path = Path(path)
    document, located, findings = read_as(Document, path)
    parts = expand_document(document, located, findings)
    wiring = wire(document, parts, findings)
    optical = frozenset(name for name, spec in parts.switches.items() if spec.kind == "optical")
    cabling = Cabling(wiring.fibers, optical)
    wired_well = not findings
    check_budgets(parts, wiring, findings)
    # Plans over wrong fibers would only repeat what is wrong with the fibers.
    plans = read_plans(document, parts, cabling, path.parent, findings) if wired_well else {}
    limits = _limits(document, located, findings)
    simulation = read_simulation(document, parts, findings)
    findings.raise_if_any()
    return Testbed(
        document.name,
        document.about,
        path,
        path.parent / document.known_hosts if document.known_hosts else None,
        parts.switches,
        parts.servers,
        parts.instruments,
        parts.transceivers,
        cabling,
        plans,
        limits,
        simulation,
    )


def _limits(document: Document, located: Located, findings: Findings) -> dict[str, Limit]:
    limits = {}
    for quantity, body in document.limits.items():
        keys: Keys = ("limits", quantity)
        try:
            limit = parse_limit(quantity, body)
        except LimitError as error:
            if error.key is None:
                findings.add(keys, str(error), of_key=True)
            else:
                findings.add((*keys, error.key), str(error), of_key=error.of_key)
            continue
        place = located.place(keys, of_key=True)
        limits[quantity] = dataclasses.replace(limit, line=place.line, column=place.column)
    return limits
