"""`lightrig generate SYSTEM`: testbed files of any size, each written by a published system."""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from lightrig.harness.cli.common import BAD_INPUT, AsJson, CommandGroup, give_up, print_json
from lightrig.harness.cli.terminal import out
from lightrig.harness.system_registry import installed_systems
from lightrig.testbeds import LightrigError

Output = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File to write; standard output without it.")
]


def _group() -> typer.Typer:
    """Return the command group, with one command for each installed system that can generate."""
    group = typer.Typer(
        cls=CommandGroup, help="Write a testbed of any size, as a published system builds it."
    )

    @group.callback()
    def systems() -> None:
        """Write a testbed of any size, as a published system builds it."""

    for name, system in installed_systems().items():
        if system.generator is not None:
            command = _command(system.load("generator"))
            group.command(name, epilog=f"Example: lightrig generate {name} --output mine.yaml")(
                command
            )
    return group


def _command(render: Callable[..., str]) -> Callable[..., None]:
    """Return a command with the options of `render`, which returns YAML, and where to write it."""

    @wraps(render)
    def command(*, output: Path | None, as_json: bool, **options: Any) -> None:
        try:
            text = render(**options)
            if output is not None:
                output.write_text(text, encoding="utf-8")
        except LightrigError as error:
            give_up(str(error), BAD_INPUT)
        except OSError as error:
            give_up(f"{output}: {error.strerror}", BAD_INPUT)
        if as_json:
            print_json({"file": None if output is None else str(output), "text": text})
        elif output is None:
            sys.stdout.write(text)
        else:
            check = f"{output}: check it with lightrig check {output}"
            out.print(check, soft_wrap=True)

    # Typer reads the options of a command from its signature.
    signature = inspect.signature(render, eval_str=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [
        *(p.replace(kind=keyword) for p in signature.parameters.values()),
        inspect.Parameter("output", keyword, default=None, annotation=Output),
        inspect.Parameter("as_json", keyword, default=False, annotation=AsJson),
    ]
    command.__signature__ = signature.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    del command.__wrapped__
    return command


generate = _group()
