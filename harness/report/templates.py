"""Pages and their parts from the templates in `templates/`; what they print is escaped.

A template is a file of macros or a whole page. Its lines are joined without the white space
around them, which a browser would show between words: a sentence and a tag each end on the line
on which they begin.
"""

import functools
from importlib import resources
from typing import TYPE_CHECKING

from markupsafe import Markup

from lightrig.harness.report import markup
from lightrig.harness.report.drawing import tone
from lightrig.testbeds.escaping import escape_control

if TYPE_CHECKING:
    from jinja2 import Environment


def render_macro(template: str, macro: str, *values: object, **named: object) -> Markup:
    """Return the macro of that name in `template` of `values`, in its order or by name."""
    module = _environment().get_template(template).module
    found: Markup = getattr(module, macro)(*values, **named)
    return found


def render_page(template: str, **values: object) -> str:
    """Return the page that `template` makes of `values`."""
    return _environment().get_template(template).render(values)


@functools.cache
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415  as used

    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(_source),
        undefined=StrictUndefined,
        finalize=_finalize,
        auto_reload=False,
    )
    environment.globals.update(signs=markup.SIGNS)
    environment.filters.update(
        tone=tone,
        thousands=lambda count: f"{count:,}",
        counted=markup.number_of,
        quantile_name=markup.quantile_name,
        test_link=markup.test_link,
    )
    return environment


def _source(name: str) -> str:
    file = resources.files("lightrig.harness.report") / "templates" / f"{name}.html.j2"
    return "".join(map(str.strip, file.read_text(encoding="utf-8").splitlines()))


def _finalize(value: object) -> object:
    """Make control characters visible in all that is not markup; autoescaping does the rest."""
    return value if isinstance(value, Markup) else escape_control(str(value))
