"""`lightrig generate`: testbed files of any size for a published system."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.common import BAD_INPUT, AsJson, give_up, out, print_json
from harness.fabrics.infinitehbd.testbed import render, render_fixed
from harness.fabrics.infinitehbd.wiring import InfiniteHbdError

generate = typer.Typer(help="Write a testbed of any size, as a published system builds it.")

Nodes = Annotated[int, typer.Option(min=1, help="How many nodes stand in the row.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Where to; else to stdout.")]


@generate.callback()
def systems() -> None:
    """Write a testbed of any size, as a published system builds it."""


@generate.command(epilog="Example: lightrig generate infinitehbd --nodes 8 --output mine.yaml")
def infinitehbd(
    nodes: Nodes = 8,
    hops: Annotated[int, typer.Option(help="K: the farthest node that a link reaches.")] = 2,
    gpus: Annotated[int, typer.Option(help="GPUs of a node.")] = 4,
    group: Annotated[int, typer.Option(help="Nodes of a ring in the file's plans.")] = 3,
    line: Annotated[bool, typer.Option("--line", help="Leave the row's ends apart.")] = False,
    namespaces: Annotated[
        bool, typer.Option("--namespaces", help="Nodes that are namespaces of this machine.")
    ] = False,
    fixed: Annotated[
        bool, typer.Option("--fixed", help="Fixed optics in one ring, as the paper's 32 GPUs.")
    ] = False,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """A ring of nodes whose transceivers switch, each joined to its K next on both sides.

    Exit 0, or 2 for sizes that cannot be.
    """
    try:
        if fixed:
            text = render_fixed(nodes, gpus=gpus)
        else:
            text = render(
                nodes, hops=hops, gpus=gpus, group=group, line=line, namespaces=namespaces
            )
    except InfiniteHbdError as error:
        give_up(str(error), BAD_INPUT)
    if output is not None:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            give_up(f"{output}: {error.strerror}", BAD_INPUT)
    if as_json:
        print_json({"file": None if output is None else str(output), "text": text})
    elif output is None:
        sys.stdout.write(text)
    else:
        out.print(f"{output}: check it with lightrig check {output}", markup=False, soft_wrap=True)
