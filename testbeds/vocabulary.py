"""Names in a file that higher floors define: models, their options, quantities."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from lightrig.testbeds.findings import Findings, did_you_mean
from lightrig.testbeds.limits import QuantityNames
from lightrig.testbeds.parts import InstrumentPart, OpticalSwitchPart, WavelengthRange
from lightrig.testbeds.schema import Document
from lightrig.testbeds.yaml_positions import Keys


class Vocabulary(Protocol):
    """The names that a testbed file may use.

    Attributes:
        systems: published systems whose claims have tests.
        models: models that have a driver.
        quantities: quantities that can be measured, and so limited.
        missing: a sentence on parts of Lightrig that are not installed here, and would bring
            systems and quantities; empty without any.
    """

    systems: Collection[str]
    models: Collection[str]
    quantities: QuantityNames
    missing: str

    def options(self, model: str) -> Collection[str] | None:
        """Return the options of `model`, or None if they are unknown."""

    def misfits(self, part: OpticalSwitchPart | InstrumentPart) -> Iterable[tuple[Keys, str]]:
        """Yield what the driver of its model cannot be given: a place in the part, and why."""

    def login_problem(self, login: str) -> str:
        """Return why the credential that `login` names cannot be read here, or ""."""

    def shares_address(self, model: str) -> bool:
        """Whether other instruments have the address of this model, as modules of a mainframe."""

    def wavelengths(self, model: str) -> WavelengthRange | None:
        """Return to what a light source of `model` tunes where the file does not state it."""


def check_names(document: Document, vocabulary: Vocabulary, findings: Findings) -> None:
    """Note every system, model, option and limited quantity that `vocabulary` lacks."""
    missing = f"; {vocabulary.missing}" if vocabulary.missing else ""
    if document.system is not None and document.system not in vocabulary.systems:
        findings.add(
            ("system",),
            f"nothing is known of the system {document.system!r}"
            + (missing or did_you_mean(document.system, sorted(vocabulary.systems))),
        )
    parts: list[tuple[Keys, OpticalSwitchPart | InstrumentPart]] = [
        (("switches", name), part)
        for name, part in document.switches.items()
        if isinstance(part, OpticalSwitchPart)  # nothing talks to a packet switch
    ]
    parts += [(("instruments", name), part) for name, part in document.instruments.items()]
    for keys, part in parts:
        if part.model not in vocabulary.models:
            findings.add(
                (*keys, "model"),
                f"no driver for the model {part.model!r}"
                + did_you_mean(part.model, sorted(vocabulary.models)),
            )
            continue
        known = vocabulary.options(part.model)
        for option in part.options if known is not None else ():
            if option not in (known or ()):
                findings.add(
                    (*keys, "options", option),
                    f"{part.model} has no option {option!r}"
                    + did_you_mean(option, sorted(known or ())),
                    of_key=True,
                )
        for below, problem in vocabulary.misfits(part):
            findings.add((*keys, *below), problem)
    present = sorted({one.name for one in vocabulary.quantities.values()})
    for quantity in document.limits:
        if quantity not in vocabulary.quantities:
            findings.add(
                ("limits", quantity),
                f"no quantity {quantity!r} is declared" + did_you_mean(quantity, present) + missing,
                of_key=True,
            )
