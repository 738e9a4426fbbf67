"""Text as HTML and SVG show it."""

from html import escape

from lightrig.testbeds.escaping import escape_control


def text(value: object) -> str:
    """Return `value` as text that HTML shows as it is, also inside an attribute."""
    return escape(escape_control(str(value)), quote=True)
