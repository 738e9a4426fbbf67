"""Files and pages that are made from the code.

`make generated` writes the files, and a test names stale ones. The reference pages are made while
the site is built (docs/generated_pages.py); no copy of them is stored.

The table of docs/appendix/conformance.md is the outcome of the conformance suite, which writes it.
"""

import contextlib
import inspect
import json
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from figures_page import figures_page
from labs_page import closure_page
from mornings_page import mornings_page
from package_pages import package_page
from public_sources import PROGRAMS, share_done

from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.sheet import sheet_schema
from lightrig.harness.quantities import declarations
from lightrig.harness.system_registry import installed_systems
from lightrig.harness.workloads.description import workload_schema
from lightrig.instruments.core.models import models, shipped_drivers
from lightrig.instruments.core.registry import driver
from lightrig.testbeds import json_schema
from lightrig.testbeds.baselines import baselines_schema
from lightrig.testbeds.exceptions_document import exceptions_schema
from lightrig.testbeds.references import references_schema

ROOT = Path(__file__).parents[1]
PUBLIC_MODULES = ("api", "drivers", "devices", "systems")
_CERTIFICATION = """\
# Certification: clauses, sources, models

[Certify a switch](../how-to/certify.md) tells how a sheet is made.

"""
_OF_MODELS = """\
## What each model can be asked

Healthy simulated switches, with all classes allowed and nobody at the terminal: p pass,
a not applicable, n not tested. Clauses that need time, or more than the switch, are left out.
No clause fails. DiCon GP600, whose commands make one circuit each, is not asked for a port twice in
a batch, and Polatis over NETCONF and RESTCONF not for an ingress twice, which is one entry there.

"""
_OF_SUITES = """\
## Beside the suites of sonic-mgmt

The list is that of `docs/testbed/README.testbed.OCS.HLD.md`, v0.2, of sonic-mgmt. Each suite is
covered by the clauses beside it; what is not testable stands there too, with the reason.

"""


def _table(head: str, rows: list[tuple[object, ...]]) -> str:
    lines = [f"| {head} |", "| " + " | ".join("---" for _ in head.split(" | ")) + " |"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------- instruments


def instruments_page() -> str:
    """Return two tables: models of instruments, and facts about their wires."""
    return (
        "# Models of instruments\n\n[Instruments](../devices.md) tells how drivers are checked.\n\n"
        f"{_models()}\n## Facts about wires\n\n{_facts()}"
    )


def _models() -> str:
    rows: list[tuple[object, ...]] = []
    for model, entry in models().items():
        if entry.value.startswith("lightrig."):  # other packages may be installed here
            package = entry.value.split(".")[2]
            kind = {"switches": "optical switch"}.get(package, package.removesuffix("s"))
            schemes = ", ".join(f"`{scheme}://`" for scheme in driver(model).schemes)
            rows.append((kind.replace("_", " "), f"`{model}`", schemes))
    return _table("kind | `model:` | `address:`", sorted(rows))


def _facts() -> str:
    rows: list[tuple[object, ...]] = []
    for model, entry in sorted(shipped_drivers().items()):
        loaded = entry.load()
        for fact in sorted(loaded.wire_facts, key=lambda fact: not fact.confirmed):
            wires = ", ".join(scheme for scheme in loaded.schemes if fact.is_about(scheme))
            if wires:  # else of a wire that only the switch's own driver speaks
                text = fact.text.replace("|", "\\|")
                second = fact.second or ("one source" if fact.source else "")
                rows.append((model, wires, text, fact.source or "**unconfirmed**", second))
    return _table("device | wire | fact | confirmed by | second source", rows)


# ---------------------------------------------------------------------------------- dialects


def dialects_page() -> str:
    """Return the outcome of each operation of a driver in each form of its protocol."""
    sys.path.insert(0, str(ROOT / "tests/switches"))
    try:
        matrix = import_module("dialect_matrix")
    finally:
        sys.path.pop(0)
    text = (
        "# Forms of protocols\n\nEach row is one form, with the default in all other respects; a "
        "cell is `right`, the error that the driver raises, or `not offered`. The first form of "
        "each option is the default ([dialects](../dialects.md)).\n\n"
    )
    for model, known in matrix.DIALECTS.items():
        operations = matrix.OPERATIONS[model]
        rows: list[tuple[object, ...]] = [
            (
                f"`{each.wire}`",
                f"`{each.option}: {form}`",
                each.about,
                source,
                *(
                    matrix.outcome(model, each.wire, {each.option: form} | each.needs, operation)
                    for operation in operations
                ),
            )
            for each in known
            for form, source in each.forms.items()
        ]
        head = " | ".join(("wire", "form", "units differ in", "source", *operations))
        text += f"## `{model}`\n\n{_table(head, rows)}\n"
    return f"{text}## Programs by others\n\n{_programs()}"


def _programs() -> str:
    rows: list[tuple[object, ...]] = []
    for entry in PROGRAMS:
        source = entry["source"]
        commit = source.get("commit", "")[:7]
        known = source.get("repository") or source.get("package")
        where = f"{known}, {source['path']}" if known else source["title"]
        dialect = ", ".join(f"`{name}: {form}`" for name, form in entry.get("dialect", {}).items())
        reasons = [
            f"{each['does']}: {each.get('outside') or 'not simulated: ' + each['left']}"
            for each in entry["operations"]
            if each.keys() & {"outside", "left"}
        ]
        rows.append(
            (
                entry["program"],
                f"{where}, {commit}" if commit else where,
                f"`{entry['model']}`, {entry['wire']}",
                dialect,
                entry["before"],
                f"{share_done(entry)}, {entry['checked']}",
                "; ".join(reasons),
            )
        )
    return _table("program | source | device | dialect | before | now | left, and why", rows)


# -------------------------------------------------------------------------------- quantities


def quantities_page() -> str:
    """Return the table of all declared quantities."""
    declared = list(declarations.DECLARED)
    for system in installed_systems().values():
        declared += system.load("quantities") or ()
    rows: list[tuple[object, ...]] = [
        (
            f"`{one.name}`",
            one.unit,
            one.better or "",
            one.meaning,
            ", ".join(f"`{alias}`" for alias in one.aliases),
        )
        for one in declared
    ]
    table = _table("quantity | unit | better | meaning | former names", rows)
    return f"# All quantities\n\nHow to [declare one](../quantities.md).\n\n{table}"


# ------------------------------------------------------------------------------ certification


def certification_page() -> str:
    """Return the tables of models, suites of sonic-mgmt, and clauses with sources and defects."""
    known = requirements()
    defects = {
        name: each
        for file in ("defects.yaml", "manual_defects.yaml")
        for name, each in yaml.safe_load((ROOT / "tests/certify" / file).read_text("utf-8")).items()
    }
    rows: list[tuple[object, ...]] = [
        (
            f"{each.number} {each.title}",
            each.source,
            each.effect,
            ", ".join(each.depends_on),
            ", ".join(name for name, one in known.profiles.items() if each.number in one.required),
            ", ".join(name for name, one in defects.items() if each.number in one["required"]),
        )
        for each in known.requirements
    ]
    head = "requirement | source | class | depends on | required by | defects that must fail it"
    asked = yaml.safe_load((ROOT / "tests/certify/models.yaml").read_text("utf-8"))
    models: list[tuple[object, ...]] = [
        (f"`{model}`", f"`{wire}`", size, *verdicts.values())
        for key, verdicts in asked.items()
        for model, wire, size in [key.split()]
    ]
    columns = " | ".join(("model", "wire", "size", *next(iter(asked.values()))))
    suites: list[tuple[object, ...]] = [
        (each.suite, ", ".join(each.covered_by), each.note) for each in known.suites
    ]
    return (
        f"{_CERTIFICATION}{_OF_MODELS}{_table(columns, models)}\n"
        f"{_OF_SUITES}{_table('suite there | clauses here | beside', suites)}\n"
        f"## Traceability\n\n{_table(head, rows)}"
    )


# ---------------------------------------------------------------------------- public modules


def public_modules(_: str = "") -> str:
    """Return every public name with what it takes or has."""
    lines = []
    for module in PUBLIC_MODULES:
        loaded = import_module(f"lightrig.{module}")
        lines += [f"{module}.{name}{_taken(getattr(loaded, name))}" for name in loaded.__all__]
    return "\n".join(lines) + "\n"


def _taken(member: Any) -> str:
    """Return the parameters of a function or class, and the members of a class of ours."""
    if not (inspect.isfunction(member) or inspect.isclass(member)):
        return ""
    parameters: list[str] = []
    if not getattr(member, "_is_protocol", False):
        with contextlib.suppress(ValueError):  # exceptions without a constructor of their own
            parameters = [n for n in inspect.signature(member).parameters if not n.startswith("_")]
    members = {
        name
        for cls in (member.__mro__ if inspect.isclass(member) else ())
        if cls.__module__.startswith("lightrig.")
        for name in (*vars(cls), *inspect.get_annotations(cls))
        if not name.startswith("_") and name not in parameters
    }
    has = f": {', '.join(sorted(members))}" if members else ""
    return f"({', '.join(parameters)}){has}"


# ----------------------------------------------------------------------------------- schemas


def _schema(schema: Callable[[], object], _: str) -> str:
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


GENERATED: dict[str, Callable[[str], str]] = {
    "docs/appendix/closure.md": closure_page,
    "docs/appendix/mornings.md": mornings_page,
    "harness/certify/sheet.schema.json": partial(_schema, sheet_schema),
    "harness/workloads/workload.schema.json": partial(_schema, workload_schema),
    "tests/structure/public_modules.txt": public_modules,
    "testbeds/schema.json": partial(_schema, json_schema),
    "testbeds/baselines.schema.json": partial(_schema, baselines_schema),
    "testbeds/exceptions.schema.json": partial(_schema, exceptions_schema),
    "testbeds/references.schema.json": partial(_schema, references_schema),
}
"""Content of each file, made from the present one: pages have parts that are written by hand."""

REFERENCE: dict[str, Callable[[], str]] = {
    "certification": certification_page,
    "dialects": dialects_page,
    "driver-package": partial(
        package_page,
        "A package of drivers",
        "A power meter over SCPI and a switch on a serial line, each with its simulated device "
        "([writing a driver](../drivers.md)).",
        ROOT / "tests/drivers_by_others/acme",
        ("pyproject.toml", "acme_pm4.py", "acme_pm4_device.py"),
    ),
    "figures": figures_page,
    "instruments": instruments_page,
    "quantities": quantities_page,
    "system-package": partial(
        package_page,
        "A package of a published system",
        "A switch that joins every pair of servers in turn "
        "([a published system of your own](../systems.md)).",
        ROOT / "tests/systems_by_others/carousel",
        ("pyproject.toml", "carousel/__init__.py", "carousel/planning.py"),
    ),
}
"""Text of each page of tables in the site's folder `reference`."""


def main() -> None:
    """Write every file that is stale."""
    for name, content in GENERATED.items():
        path = ROOT / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if (after := content(before)) != before:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()
