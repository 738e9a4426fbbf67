"""Which driver speaks to which model: found by name among the installed entry points.

Lightrig's own drivers stand in the same group as anybody else's (docs/drivers.md).
"""

from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar, Protocol, TypeAlias, cast

from instruments.capabilities import Identified
from instruments.clock import Clock
from instruments.way import Way
from testbeds import InstrumentSpec, LightrigError, SwitchSpec

GROUP = "lightrig.drivers"

Spec: TypeAlias = SwitchSpec | InstrumentSpec


class NoDriverError(LightrigError):
    """No driver for a model, or none for the wire that an address names."""


class Driver(Protocol):
    """What an entry point of the group names: a class that opens its instruments.

    Attributes:
        schemes: the wires it can speak, as addresses name them.
    """

    schemes: ClassVar[Collection[str]]

    @classmethod
    def open(cls, spec: Spec, way: Way, clock: Clock) -> Identified:
        """A driver for the instrument that `spec` describes; contacts it only when asked."""


def models() -> dict[str, EntryPoint]:
    """All models that have a driver, in alphabetic order."""
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP))}


def driver(model: str) -> type[Driver]:
    """The driver of `model`; raises `NoDriverError`."""
    known = models()
    if model not in known:
        raise NoDriverError(f"no driver for model {model!r}; there are: {', '.join(known)}")
    return cast(type[Driver], known[model].load())


def open_instrument(spec: Spec, way: Way, clock: Clock) -> Identified:
    """A driver for the instrument that `spec` describes, over the wire that `way` names.

    Raises:
        NoDriverError: no driver for its model, or the driver does not speak that wire.
    """
    try:
        found = driver(spec.model)
    except NoDriverError as error:
        raise NoDriverError(f"{spec.name}: {error}") from error
    if way.scheme not in found.schemes:
        spoken = ", ".join(f"{scheme}://" for scheme in found.schemes)
        raise NoDriverError(
            f"{spec.name}: a {spec.model} is spoken to over {spoken}, not {way.scheme}://"
        )
    return found.open(spec, way, clock)
