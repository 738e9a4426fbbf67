"""Capabilities, drivers, wires, clocks, servers and simulated devices."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def _load_late(name: str) -> None:
    """Let an installed module be loaded when an attribute of it is used, not by its import.

    `importlib.util.LazyLoader` would load it at the second import, which asks for its `__spec__`.
    """
    if name in sys.modules:
        return
    late = sys.modules[name] = ModuleType(name)

    def load(attribute: str) -> Any:
        if sys.modules.get(name) is late:
            del sys.modules[name]
        return getattr(import_module(name), attribute)

    late.__getattr__ = load  # type: ignore[method-assign]


# Paramiko requires it, imports it with asyncio and unittest.mock, and uses it for `Match exec` in
# a configuration of OpenSSH alone: half of the time that paramiko takes to load.
_load_late("invoke")
