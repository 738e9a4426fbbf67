"""Drivers and simulated devices by model: Lightrig's by file name, others by entry point.

Each module of a driver package is the driver of the model of its name: the module
`power_meters/keysight_n7745a.py` has the class `KeysightN7745a` for `model: keysight-n7745a`. So a
new file in a checkout is found without declaring it or installing anything again. Other packages
declare theirs as entry points (docs/drivers.md). No driver is imported before it is needed, so that
`lightrig check` stays fast.
"""

import functools
import importlib.resources
import pkgutil
from collections.abc import Collection, Mapping
from importlib.metadata import EntryPoint
from types import MappingProxyType

from lightrig.instruments.core.entry_points import entries

DRIVERS = "lightrig.drivers"
SIMULATED_DEVICES = "lightrig.peers"
"""Entry point groups of other packages."""

KINDS = (
    "switches",
    "power_meters",
    "light_sources",
    "attenuators",
    "bit_error_testers",
    "climate_chambers",
    "oscilloscopes",
    "polarization_controllers",
)
"""The driver packages in `lightrig.instruments`, one for each kind of instrument."""

_INSTRUMENTS = "lightrig.instruments"


def module_name(model: str) -> str:
    """Return the name of the module of a model: `keysight-n7745a` is in `keysight_n7745a`."""
    return model.replace("-", "_")


def class_name(model: str) -> str:
    """Return the name of the class of a model: `KeysightN7745a` for `keysight-n7745a`."""
    return "".join(part.capitalize() for part in model.split("-"))


def installed(group: str) -> dict[str, EntryPoint]:
    """Return the entry points that other packages declare in `group`, by model."""
    # Those of Lightrig itself are left over from an installation of an earlier version.
    return {
        name: entry
        for name, entry in entries(group).items()
        if not entry.value.startswith(_INSTRUMENTS)
    }


@functools.cache
def modules(package: str) -> list[str]:
    """Return the names of the modules of a package of `lightrig.instruments`."""
    folder = importlib.resources.files(_INSTRUMENTS).joinpath(*package.split("."))
    return [module.name for module in pkgutil.iter_modules([str(folder)])]


@functools.cache
def shipped_drivers() -> Mapping[str, EntryPoint]:
    """Return the drivers that are part of Lightrig, by model."""
    found: dict[str, EntryPoint] = {}
    for kind in KINDS:
        for module in modules(kind):
            model = module.replace("_", "-")
            value = f"{_INSTRUMENTS}.{kind}.{module}:{class_name(model)}"
            found[model] = EntryPoint(model, value, DRIVERS)
    return MappingProxyType(found)


def kind_of(model: str) -> str:
    """Return the driver package of a model that is part of Lightrig, "" for any other."""
    return next((kind for kind in KINDS if module_name(model) in modules(kind)), "")


def models() -> dict[str, EntryPoint]:
    """Return the drivers of all models, in alphabetic order.

    The driver of an installed package replaces Lightrig's for the same model.
    """
    return dict(sorted({**shipped_drivers(), **installed(DRIVERS)}.items()))


def simulated_models() -> dict[str, EntryPoint]:
    """Return the simulated devices of all models that have one, in alphabetic order.

    The module `simulated_keysight_n7745a` has the class `SimulatedKeysightN7745a`. Modules in the
    same folder that several devices share have no driver of their name.
    """
    package = "simulated.devices"
    existing = set(modules(package))
    found = {}
    for model in shipped_drivers():
        module = f"simulated_{module_name(model)}"
        if module in existing:
            value = f"{_INSTRUMENTS}.{package}.{module}:Simulated{class_name(model)}"
            found[model] = EntryPoint(model, value, SIMULATED_DEVICES)
    return dict(sorted((found | installed(SIMULATED_DEVICES)).items()))


def options_of(model: str) -> Collection[str] | None:
    """Return the names that `model` knows under `options:`, or None where nothing states them.

    They are the class attribute `options` of the driver, which is imported for it.
    """
    entry = models().get(model)
    stated: Collection[str] | None = getattr(entry.load(), "options", None) if entry else None
    return stated
