"""Compilation of plain loops by numba where it is installed (`pip install lightrig[flits]`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TypeVar

Function = TypeVar("Function", bound=Callable[..., object])


@cache
def compiled(function: Function) -> Function:
    """Return `function` compiled, or itself where numba is absent; the results are the same."""
    if find_spec("numba") is None:
        return function
    fast: Function = import_module("numba").njit(function)
    return fast
