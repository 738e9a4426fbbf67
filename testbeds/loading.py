"""Loading of a testbed file: read, parse, expand, wire, check."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from lightrig.testbeds.budgets import check_budgets
from lightrig.testbeds.cabling import Cabling
from lightrig.testbeds.errors import Problem, SizesOnlyError
from lightrig.testbeds.expansion import expand_document
from lightrig.testbeds.findings import Findings, did_you_mean
from lightrig.testbeds.limits import Limit, LimitError, QuantityNames, parse_limit
from lightrig.testbeds.model import Testbed
from lightrig.testbeds.parsing import read_as
from lightrig.testbeds.plan_parser import read_plans
from lightrig.testbeds.plausibility import implausible
from lightrig.testbeds.pmd_checks import check_pmds
from lightrig.testbeds.quantities import format_duration
from lightrig.testbeds.schema import Document
from lightrig.testbeds.simulation import expanded
from lightrig.testbeds.vocabulary import Vocabulary, check_names
from lightrig.testbeds.wiring import wire
from lightrig.testbeds.yaml_positions import Keys, Located

_SHORTEST_TURN = 1_000_000_000
"""Shortest time for which a soak holds a plan, in ns."""


def load(
    path: str | Path,
    vocabulary: Vocabulary | None = None,
    *,
    quantities: QuantityNames | None = None,
    content: bytes | None = None,
) -> Testbed:
    """Return the testbed that the file at `path` describes, or `content` in its place.

    Models, options and limited quantities are checked against `vocabulary`, if there is one, and
    what may be meant but rarely is, such as two plans alike, is among the notes.
    Limits are read in the unit that `quantities`, by default those of `vocabulary`, state; a
    limit on a quantity that is not among them is read in the unit that is written.

    Raises `TestbedError` with every problem that was found. A file that breaks the schema is
    not looked at further, since what it describes is not known. Raises `SizesOnlyError` for a file
    that has the sizes of a fabric instead of its parts.
    """
    path = Path(path)
    document, located, findings = read_as(Document, path, content)
    if document.fabric is not None:
        place = located.place(("fabric",), of_key=True)
        problem = "describes a fabric by its sizes, which check and orchestrate alone read"
        where = Problem(located.file, place.line, place.column, problem)
        raise SizesOnlyError(where, document.system)
    parts = expand_document(document, located, findings)
    wiring = wire(document, parts, findings)
    optical = [name for name, spec in parts.switches.items() if spec.kind == "optical"]
    cabling = Cabling(wiring.fibers, frozenset(optical))
    if (tree := document.fat_tree) and (
        tree.per_domain % tree.per_tor or len(parts.servers) % tree.per_domain
    ):
        findings.add(
            ("fat_tree",),
            f"found {tree.per_tor} servers a ToR and {tree.per_domain} a domain, of "
            f"{len(parts.servers)} in all, expected each to be a multiple of the one before",
            of_key=True,
        )
    wired_well = not findings
    overrides = document.overrides.model_dump(exclude_none=True) if document.overrides else {}
    check_budgets(parts, wiring, findings, damage="receiver_damage" not in overrides)
    # Plans over wrong fibers would only repeat what is wrong with the fibers.
    plans = read_plans(document, parts, cabling, path.parent, findings) if wired_well else {}
    if wired_well:
        for number, turn in enumerate(document.soak):
            if turn.plan not in document.plans:
                unknown = f"no plan {turn.plan!r}{did_you_mean(turn.plan, document.plans)}"
                findings.add(("soak", number, "plan"), unknown)
            if turn.hold_ns < _SHORTEST_TURN:
                short = format_duration(turn.hold_ns)
                findings.add(("soak", number, "hold"), f"found {short}, expected 1 s or more")
    check_pmds(document, parts, wiring, cabling, plans, findings)
    if quantities is None:
        quantities = vocabulary.quantities if vocabulary is not None else {}
    notes = [
        f"{_where(located, ('overrides', name))}: the interlock {name} is off: {reason}"
        for name, reason in overrides.items()
    ]
    limits = _limits(document, located, quantities, findings, notes)
    simulation = expanded(document.simulation, optical, findings)
    if vocabulary is not None:
        check_names(document, vocabulary, findings)
    findings.raise_if_any()
    testbed = Testbed(
        name=document.name,
        about=document.about,
        system=document.system,
        path=path,
        known_hosts=path.parent / document.known_hosts if document.known_hosts else None,
        ssh_config=path.parent / document.ssh_config if document.ssh_config else None,
        timezone=document.timezone,
        switches=parts.switches,
        servers=parts.servers,
        instruments=parts.instruments,
        transceivers=parts.transceivers,
        cabling=cabling,
        plans=plans,
        limits=limits,
        simulation=simulation,
        notes=tuple(notes),
        lab_folder=path.parent / document.lab_folder if document.lab_folder else None,
        overrides=overrides,
        coordinator=document.labgrid,
        fat_tree=document.fat_tree,
        laboratory=document.laboratory,
        soak=tuple(document.soak),
        automatic_ports=wiring.automatic,
    )
    if vocabulary is None:
        return testbed
    notes += [
        f"{_where(located, keys, of_key=of_key)}: {sentence}"
        for keys, of_key, sentence in implausible(testbed, document, vocabulary)
    ]
    return dataclasses.replace(testbed, notes=tuple(dict.fromkeys(notes)))


def _where(located: Located, keys: Keys, *, of_key: bool = True) -> str:
    place = located.place(keys, of_key=of_key)
    return f"{located.file}:{place.line}:{place.column}"


def _limits(
    document: Document,
    located: Located,
    quantities: QuantityNames,
    findings: Findings,
    notes: list[str],
) -> dict[str, Limit]:
    """Read the limits by the present names of their quantities; note each former name."""
    limits: dict[str, Limit] = {}
    for written, body in document.limits.items():
        keys: Keys = ("limits", written)
        known = quantities.get(written)
        name, unit = (known.name, known.unit) if known else (written, None)
        try:
            limit = parse_limit(name, body, unit, known)
        except LimitError as error:
            if error.key is None:
                findings.add(keys, str(error), of_key=True)
            else:
                findings.add((*keys, error.key), str(error), of_key=error.of_key)
            continue
        if name != written:
            if name in document.limits:
                findings.add(
                    keys, f"{written!r} is {name!r} now, which has a limit as well", of_key=True
                )
            notes.append(
                f"{_where(located, keys)}: {written!r} is {name!r} now; write the new name"
            )
        place = located.place(keys, of_key=True)
        limits[name] = dataclasses.replace(limit, line=place.line, column=place.column)
    return limits
