"""`lightrig check` and `lightrig schema`: is a testbed's description right?"""

from pathlib import Path
from typing import Annotated

import typer

from lightrig.harness.cli.checked_file import check_file
from lightrig.harness.cli.common import AsJson, File, print_json
from lightrig.testbeds import json_schema

Declarations = Annotated[
    Path | None,
    typer.Option(
        "--declarations",
        metavar="PY",
        help="A Python file that declares quantities, such as your conftest.py.",
    ),
]


def check(file: File, as_json: AsJson = False, declarations: Declarations = None) -> None:
    """Check a testbed with its baselines and exceptions. Exit 0, or 2 with every error located.

    FILE may be -, standard input; what it names is looked for in the current folder. Of a fabric
    that the file describes by its sizes, the structure is checked.
    """
    check_file(file, as_json=as_json, declarations=declarations)


def schema() -> None:
    """Print the JSON Schema of testbed files, for editors that complete and underline."""
    print_json(json_schema())
