"""`lightrig read`: which tool's output is a file, and what is read from it?"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lightrig.harness.cli.common import BAD_INPUT, AsJson, echo, give_up, print_json
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.servers.tools.recognition import read as recognize

_MOST_LINES = 200

Output = Annotated[Path, typer.Argument(metavar="FILE", help="What a tool printed; - for stdin.")]


def read(file: Output, as_json: AsJson = False) -> None:
    """Name the tool whose output FILE is, and print what is read from it.

    It reads ethtool, mlxlink, ip, rdma, sysfs, nccl-tests, perftest, OSU and what SONiC knows of
    its modules. Exit 0, or 2 for an output that is of no known tool or cannot be read with
    certainty.
    """
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        give_up(f"{file}: {error.strerror}", BAD_INPUT)
    try:
        tool, value = recognize(data.decode("utf-8", "backslashreplace"))
    except ToolOutputError as error:
        give_up(f"{file}: {error}", BAD_INPUT)
    if as_json:
        print_json({"tool": tool, "read": _plain(value)})
        return
    echo(f"{file}: output of {tool}")
    lines = list(_lines(_plain(value)))
    for line in lines[:_MOST_LINES]:
        echo(line)
    if len(lines) > _MOST_LINES:
        echo(f"  ... and {len(lines) - _MOST_LINES} more; all of them with --json")


def _plain(value: Any) -> Any:
    """Return dataclasses, tuples and sets as JSON has them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value))
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)


def _lines(value: Any, name: str = "") -> Iterator[str]:
    """Yield `name: value` for every value that is known."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _lines(each, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for index, each in enumerate(value):
            yield from _lines(each, f"{name}[{index}]")
    elif isinstance(value, list):
        if value:
            yield f"  {name}: {', '.join(map(str, value))}"
    elif value is not None:
        yield f"  {name}: {value}"
