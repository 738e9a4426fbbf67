"""Open the driver of an instrument by its model: Lightrig's own or that of another package."""

from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar, Protocol, TypeAlias, cast

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.capabilities import Identified
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.models import class_name, models, module_name, options_of
from lightrig.testbeds import InstrumentSpec, LightrigError, SwitchSpec
from lightrig.testbeds.findings import did_you_mean

__all__ = [
    "Driver",
    "NoDriverError",
    "Spec",
    "UnknownOptionError",
    "driver",
    "models",
    "open_instrument",
]

Spec: TypeAlias = SwitchSpec | InstrumentSpec


class NoDriverError(LightrigError):
    """No driver for a model, or none for the wire that an address names."""


class UnknownOptionError(LightrigError):
    """A testbed gives an instrument an option that its driver does not know."""


class Driver(Protocol):
    """A driver class: opens its instruments.

    Attributes:
        schemes: the wires that it supports, as addresses name them.
        options: names that it knows under `options:`; without it, none is checked.
    """

    schemes: ClassVar[Collection[str]]

    @classmethod
    def open(cls, spec: Spec, endpoint: Endpoint, clock: Clock) -> Identified:
        """Return a driver of the instrument that `spec` describes, without contacting it."""


def driver(model: str) -> type[Driver]:
    """Return the driver class of `model`; raises `NoDriverError`."""
    known = models()
    if model not in known:
        raise NoDriverError(
            f"no driver for model {model!r}; there are: {', '.join(known)}\n"
            f"  try       correct `model:` in the testbed file, install the package that has the "
            f"driver,\n            or add instruments/<kind>/{module_name(model)}.py "
            f"with class {class_name(model)} (docs/drivers.md)"
        )
    return cast(type[Driver], known[model].load())


def open_instrument(spec: Spec, endpoint: Endpoint, clock: Clock) -> Identified:
    """Return a driver of the instrument that `spec` describes, over the wire of `endpoint`.

    Raises:
        NoDriverError: no driver for its model, or the driver does not support that wire.
        UnknownOptionError: the driver does not know one of its options.
    """
    try:
        found = driver(spec.model)
    except NoDriverError as error:
        raise NoDriverError(f"{spec.name}: {error}") from error
    if endpoint.scheme not in found.schemes:
        supported = ", ".join(f"{scheme}://" for scheme in found.schemes)
        raise NoDriverError(
            f"{spec.name}: a {spec.model} is reached over {supported}, not {endpoint.scheme}://"
        )
    known = options_of(spec.model)
    for option in spec.options if known is not None else ():
        if option not in (known or ()):
            raise UnknownOptionError(
                f"{spec.name}: {spec.model} has no option {option!r}"
                + did_you_mean(option, sorted(known or ()))
            )
    return found.open(spec, replace(endpoint, timeouts=spec.timeouts), clock)
