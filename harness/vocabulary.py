"""A testbed file checked against the installed models, their options and the quantities."""

import re
from collections.abc import Collection, Iterator
from typing import Any

from lightrig.harness.quantities.registry import names_in_files
from lightrig.harness.system_registry import installed_systems
from lightrig.instruments.core.instrument import Instrument
from lightrig.instruments.core.models import kind_of, models, options_of
from lightrig.instruments.core.registry import driver
from lightrig.packs import missing
from lightrig.testbeds.credentials import CredentialError, look_up
from lightrig.testbeds.limits import QuantityNames
from lightrig.testbeds.parts import InstrumentPart, OpticalSwitchPart, WavelengthRange
from lightrig.testbeds.yaml_positions import Keys


class InstalledNames:
    """The names that a testbed file may use here; a `testbeds.Vocabulary`."""

    def __init__(self) -> None:
        self.systems: Collection[str] = installed_systems().keys()
        self.models: Collection[str] = models().keys()
        self.quantities: QuantityNames = names_in_files()
        self.missing = missing()

    def misfits(self, part: OpticalSwitchPart | InstrumentPart) -> Iterator[tuple[Keys, str]]:
        """Yield the keys of `part` that the driver of its model cannot be given, and why."""
        folder = kind_of(part.model)
        stated = "switches" if isinstance(part, OpticalSwitchPart) else f"{part.kind}s"
        if folder and folder != stated:
            kind = folder.removesuffix("es" if folder == "switches" else "s").replace("_", " ")
            yield ("model",), f"a {part.model} is a {kind}"
            return
        found: Any = driver(part.model)
        scheme = part.address.partition("://")[0]
        if scheme not in found.schemes:
            listed = ", ".join(f"{each}://" for each in found.schemes)
            yield ("address",), f"found {scheme}://, a {part.model} is reached over {listed}"
        if not isinstance(found, type) or not issubclass(found, Instrument):
            return
        for option in found.declared_options():
            if not option.attribute and option.key in part.options:
                try:
                    option.convert(part.options[option.key])
                except (TypeError, ValueError) as error:
                    yield ("options", option.key), str(error)
        channels = getattr(found, "channels", None)
        if isinstance(part, OpticalSwitchPart):
            if found.sizes and not any(_fits(part.size, f) for f in found.sizes.split(", ")):
                yield ("size",), f"found {part.size}, a {part.model} is {found.sizes}"
        elif channels is not None and part.channels > len(channels):
            yield ("channels",), f"found {part.channels}, a {part.model} has {len(channels)}"

    def login_problem(self, login: str) -> str:
        """Return why the credential that `login` names cannot be read here, or ""."""
        try:
            look_up(login)
        except CredentialError as error:
            return str(error)
        return ""

    def shares_address(self, model: str) -> bool:
        """Whether other instruments have the address of this model."""
        return bool(getattr(driver(model), "shares_address", False))

    def wavelengths(self, model: str) -> WavelengthRange | None:
        """Return to what a light source of `model` tunes where the file does not state it."""
        found: tuple[float, float] | None = getattr(driver(model), "wavelengths_nm", None)
        return WavelengthRange(*found) if found else None

    def options(self, model: str) -> Collection[str] | None:
        """Return the options that `model` knows, or None where its driver does not state them."""
        return options_of(model)


def _fits(size: str, form: str) -> bool:
    """Whether a size such as "1x4" has a form such as "1xN"; N is any number, twice the same."""
    return re.fullmatch(form.replace("N", r"(\d+)", 1).replace("N", r"\1"), size) is not None
