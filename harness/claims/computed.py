"""What answers a claim by computing: the functions that a control plane offers by name."""

from importlib import import_module
from importlib.util import find_spec

from harness.fabrics.computed import Registry


def computable(system: str) -> Registry:
    """What `harness.fabrics.<system>.claims` computes, by name; nothing where it is not there."""
    package = f"harness.fabrics.{system}"
    if not system.isidentifier() or find_spec(package) is None:
        return {}
    module = f"{package}.claims"
    if find_spec(module) is None:
        return {}
    registry: Registry = import_module(module).COMPUTED
    return registry
