"""Output of programs, from the files in `templates/`, whose lines are as they are printed."""

import functools
import math
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

    from lightrig.instruments.simulated.hosts.host_ports import SimulatedPort


def render(template: str, **values: object) -> str:
    """Return the text that `template` makes of `values`."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415 - as used

    environment = Environment(
        autoescape=False,  # noqa: S701 - of a terminal, no page
        loader=FunctionLoader(_source),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.filters.update(ber=_ber, current=_current, dbm=_dbm, minutes=_minutes)
    return environment


def _source(name: str) -> str:
    file = resources.files(__package__) / "templates" / f"{name}.txt.j2"
    return file.read_text(encoding="utf-8")


def _ber(errors: int, bits: float) -> str:
    """One digit and a power of ten, as the firmware of a NIC gives it."""
    if not errors or bits < 1:
        return "15E-255"
    magnitude = -math.floor(math.log10(errors / bits))
    return f"{max(int(errors / bits * 10**magnitude), 1)}E-{magnitude}"


def _current(register: int) -> str:
    return f"{register / 500:g}"


def _dbm(register: int) -> str:
    return f"{10 * math.log10(register / 1e4):.6g}" if register else "-40"


def _minutes(since: int, port: "SimulatedPort") -> str:
    return f"{port.nanoseconds_since(since) / 60e9:.1f}"
