"""A testbed file checked against the installed models, their options and the quantities."""

from collections.abc import Collection

from lightrig.harness.quantities import names_in_files
from lightrig.harness.system_registry import installed_systems
from lightrig.instruments.core.models import models, options_of
from lightrig.testbeds.limits import QuantityNames


class InstalledNames:
    """The names that a testbed file may use here; a `testbeds.Vocabulary`."""

    def __init__(self) -> None:
        self.systems: Collection[str] = installed_systems().keys()
        self.models: Collection[str] = models().keys()
        self.quantities: QuantityNames = names_in_files()

    def options(self, model: str) -> Collection[str] | None:
        """Return the options that `model` knows, or None where its driver does not state them."""
        return options_of(model)
