"""Labs that are not kind, each with a truth of its own; `python -m tests.campaigns labs` runs them.

A lab is a file in `labs`: it says what is planted, what may be declined there, and what must be
named. `worlds` of several kinds measure one seed of a lab with the harness and note the truth.
"""

from importlib import import_module
from pathlib import Path

from tests.campaigns.hard_labs.found import Lab


def labs() -> dict[str, Lab]:
    """Return every lab by its name, which is its file's."""
    files = sorted(Path(__file__).with_name("labs").glob("[a-z]*.py"))
    return {
        path.stem: import_module(f"tests.campaigns.hard_labs.labs.{path.stem}").LAB
        for path in files
    }


def about(name: str) -> str:
    """Return what is planted in a lab: the first line of its file."""
    module = import_module(f"tests.campaigns.hard_labs.labs.{name}")
    return (module.__doc__ or "").partition("\n")[0].removesuffix(".")
