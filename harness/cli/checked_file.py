"""What `lightrig check` does with a file, without Typer, whose import costs as much again."""

import os
import runpy
import shutil
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from lightrig.harness.cli.output import BAD_INPUT, echo, print_json
from lightrig.harness.quantities.registry import names_in_files
from lightrig.harness.system_registry import SizedFabric, structure_of
from lightrig.harness.vocabulary import InstalledNames
from lightrig.testbeds import (
    LightrigError,
    SizesOnlyError,
    Testbed,
    TestbedError,
    load,
)
from lightrig.testbeds.baselines import baselines_path, load_baselines
from lightrig.testbeds.exceptions import ExceptionsError
from lightrig.testbeds.out_of_service import plan_sentences, with_exceptions
from lightrig.testbeds.yaml_positions import MOST_FILE_BYTES

Part = tuple[str, int, list[str]]
"""A kind of part, how many of it the testbed has, and their names."""


def check_file(file: Path, *, as_json: bool = False, declarations: Path | None = None) -> None:
    """Print what a testbed file describes; end with status 2 and every error located.

    file: may be "-", standard input.
    """
    if declarations is not None:
        try:
            runpy.run_path(str(declarations))
        except (OSError, SyntaxError, ImportError, LightrigError) as error:
            _refuse(f"{declarations}: {error}")
    try:
        testbed = _read(file)
        baselines = baselines_path(file)
        rules = load_baselines(baselines, names_in_files()) if baselines.exists() else None
        out = plan_sentences(with_exceptions(testbed)) if isinstance(testbed, Testbed) else []
    except TestbedError as error:
        if as_json:
            print_json(
                [
                    {"file": p.file, "line": p.line, "column": p.column, "message": p.message}
                    for p in error.problems
                ]
            )
        else:
            echo(str(error), err=True)
        raise SystemExit(BAD_INPUT) from error
    except ExceptionsError as error:
        _refuse(str(error))
    except OSError as error:
        _refuse(f"{file}: {error.strerror}")
    for note in (*out, *testbed.notes, *(rules.notes if rules else ())):
        echo(f"note: {note}", err=True)
    parts = list(_parts(testbed) if isinstance(testbed, Testbed) else testbed.parts())
    if as_json:
        print_json([{"part": name, "count": count, "names": names} for name, count, names in parts])
        return
    how = "testbed" if isinstance(testbed, Testbed) else "the structure of"
    echo(f"{file}: no errors in {how} {testbed.name}. {testbed.about}")
    echo(parts_table(parts))


def check_only(file: str) -> None:
    """Check a file; ends as commands do that Typer runs, also at an interrupt and a closed pipe."""
    try:
        check_file(Path(file))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:  # the reader wants no more, nor does the interpreter's end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def _refuse(message: str) -> NoReturn:
    echo(message, err=True)
    raise SystemExit(BAD_INPUT)


def _read(file: Path) -> Testbed | SizedFabric:
    names = InstalledNames()
    piped = str(file) == "-"
    try:
        content = sys.stdin.buffer.read(MOST_FILE_BYTES + 1) if piped else None
        return load(file, names, content=content)
    except SizesOnlyError as found:
        if not piped:
            return structure_of(file, found, names)
        (place,) = found.problems
        problem = "describes a fabric by its sizes, which are read from a file alone"
        raise TestbedError([replace(place, message=problem)]) from None


def _parts(testbed: Testbed) -> Iterator[Part]:
    yield "switches", len(testbed.switches), list(testbed.switches)
    yield "servers", len(testbed.servers), list(testbed.servers)
    instruments = [
        f"{name} ({spec.kind.replace('_', ' ')})" for name, spec in testbed.instruments.items()
    ]
    yield "instruments", len(instruments), instruments
    for name, given in testbed.automatic_ports.items():
        yield f"{name} ports", len(given), list(given)
    yield "NIC ports", len(testbed.nic_ports), []
    yield "fibers", len(testbed.fibers), []
    plans = [
        f"{name} ({len(plan)} circuits, {len(testbed.links(plan))} links)"
        for name, plan in testbed.plans.items()
    ]
    yield "plans", len(plans), plans
    yield "limits", len(testbed.limits), [str(limit) for limit in testbed.limits.values()]


def parts_table(parts: list[Part]) -> str:
    """Return the parts in columns, the names wrapped at the terminal's width.

    Written here rather than with a library for tables, which takes as long to load as the
    file takes to check.
    """
    kinds = max(len(name) for name, _, _ in parts)
    digits = max(len(str(count)) for _, count, _ in parts)
    lines: list[str] = []
    for name, count, names in parts:
        start = f"{name:<{kinds}}  {count:>{digits}}  "
        width = max(shutil.get_terminal_size().columns, len(start) + 40)
        # Short names, such as a port and its circuit, stay in one line.
        whole = ", ".join(n if len(n) > 40 else n.replace(" ", "\0") for n in names)
        text = textwrap.wrap(
            whole, width - len(start), break_long_words=False, break_on_hyphens=False
        )
        lines += [f"{start}{(text or [''])[0]}".rstrip().replace("\0", " ")]
        lines += [" " * len(start) + more.replace("\0", " ") for more in text[1:]]
    return "\n".join(lines)
