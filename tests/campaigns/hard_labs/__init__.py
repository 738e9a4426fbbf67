"""Hard labs with a ground truth of their own; `python -m tests.campaigns labs` runs them.

A lab is a file in `labs` that states its fault, which quantities may be declined there, and which
cause must be reported. `timing`, `losses`, `bits` and `samples` measure one seed of a lab with the
harness and record the ground truth.
"""

from importlib import import_module
from pathlib import Path

from tests.campaigns.hard_labs.found import Lab


def load_labs() -> dict[str, Lab]:
    """Return every lab by the name of its file; the package `labs` has their files."""
    files = sorted(Path(__file__).with_name("labs").glob("[a-z]*.py"))
    return {
        path.stem: import_module(f"tests.campaigns.hard_labs.labs.{path.stem}").LAB
        for path in files
    }


def about(name: str) -> str:
    """Return the fault of a lab: the first line of its file."""
    module = import_module(f"tests.campaigns.hard_labs.labs.{name}")
    return (module.__doc__ or "").partition("\n")[0].removesuffix(".")
