"""Completion by bash, zsh and fish: of commands, testbed files, plans, systems and runs.

The shell starts `lightrig` with `_LIGHTRIG_COMPLETE` and the words of its line in the environment
(Typer's protocol), and waits for it at every press of the tab key: only the command that stands in
the line is loaded, and none where the command itself is completed.

Nothing here raises: a line that cannot be completed has no completions.
"""

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from lightrig.harness.cli import COMPLETION_VARIABLE, commands

SHELLS = ("bash", "zsh", "fish")

_BESIDE = (".baselines.yaml", ".exceptions.yaml", ".references.yaml")
"""Files beside a testbed's, which no command takes."""


def complete() -> None:
    """Print the completions of the line that the environment holds; end the process."""
    line = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")).split()
    name = line[1] if len(line) > 1 else ""
    _typer_completion().completion_init()
    _application(name)(args=[], prog_name="lightrig")


def _application(name: str) -> typer.Typer:
    """Return the application of the command `name`, or of all commands without their options."""
    if name in commands():
        from lightrig.harness.cli.app import application  # noqa: PLC0415 - loads the command

        return application(name)
    app = typer.Typer(add_completion=False)
    for each, command in commands().items():
        app.command(each, help=command.summary)(_nothing)

    @app.callback()
    def _options(
        version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    ) -> None: ...

    return app


def _nothing() -> None: ...


def show(shell: str) -> None:
    """Print the script that makes a shell complete `lightrig`."""
    script = _typer_completion().get_completion_script(
        prog_name="lightrig", complete_var=COMPLETION_VARIABLE, shell=shell
    )
    sys.stdout.write(f"{script}\n")


def install(shell: str) -> None:
    """Write that script where the shell reads it at its start."""
    _, path = _typer_completion().install(
        shell=shell, prog_name="lightrig", complete_var=COMPLETION_VARIABLE
    )
    sys.stdout.write(f"{path} is written; a new {shell} completes lightrig\n")


def _typer_completion() -> Any:
    # Loads what only shells need. Typer's module says of none of its names that it exports them.
    return import_module("typer.completion")


def shell_of(arguments: list[str]) -> str | None:
    """Return the shell that the arguments name, else that of `$SHELL`; None if not known."""
    named = arguments[0] if arguments else Path(os.environ.get("SHELL", "")).name
    return named if named in SHELLS else None


# ---------------------------------------------------------------------------------- values


def testbed_files(incomplete: str) -> list[str]:
    """Return YAML files that begin so, and folders that lead to others."""
    found = sorted(_files_and_folders(incomplete))
    while len(found) == 1 and found[0].endswith("/"):  # a shell would put a space behind it
        found = sorted(_files_and_folders(found[0]))
    return found


def _files_and_folders(start: str) -> Iterator[str]:
    folder, _, begin = start.rpartition("/")
    prefix = f"{folder}/" if "/" in start else ""
    try:
        entries = list(os.scandir(prefix or "."))
    except OSError:
        return
    for entry in entries:
        hidden = entry.name.startswith(".") and not begin.startswith(".")
        if hidden or not entry.name.startswith(begin):
            continue
        if entry.is_dir():
            yield f"{prefix}{entry.name}/"
        elif entry.name.endswith((".yaml", ".yml")) and not entry.name.endswith(_BESIDE):
            yield f"{prefix}{entry.name}"


def plans(context: typer.Context, incomplete: str) -> list[str]:
    """Return the plans of the testbed file that stands in the line."""
    from lightrig.testbeds import LightrigError, load  # noqa: PLC0415 - `results` needs no testbed

    try:
        found = load(Path(context.params.get("file") or "")).plans
    except (LightrigError, OSError):
        return []
    return [name for name in found if name.startswith(incomplete)]


def instruments(context: typer.Context, incomplete: str) -> list[str]:
    """Return the instruments, switches and servers of the testbed file that stands in the line."""
    from lightrig.testbeds import LightrigError, load  # noqa: PLC0415 - as above

    try:
        testbed = load(Path(context.params.get("file") or ""))
    except (LightrigError, OSError):
        return []
    names = (*testbed.optical_switches, *testbed.instruments, *testbed.servers)
    return [name for name in names if name.startswith(incomplete)]


def settings(context: typer.Context, incomplete: str) -> list[str]:
    """Return what `instruments` does, and the shutters of a switch whose name stands there."""
    from lightrig.instruments.core.registry import driver  # noqa: PLC0415 - as above
    from lightrig.testbeds import LightrigError, load  # noqa: PLC0415 - as above

    name, dot, _ = incomplete.partition(".")
    if not dot:
        return instruments(context, incomplete)
    try:
        testbed = load(Path(context.params.get("file") or ""))
        if not hasattr(driver(testbed.switches[name].model), "set_shutters"):
            return []
    except (LightrigError, OSError, KeyError):
        return []
    numbers = sorted(frozenset().union(*testbed.cabling.cabled_ports(name)))
    found = [f"{name}.{number}.shutter" for number in numbers]
    return [each for each in found if each.startswith(incomplete)]


def ports(context: typer.Context, incomplete: str) -> list[str]:
    """Return the cabled ports of the testbed file that stands in the line."""
    from lightrig.testbeds import LightrigError, load  # noqa: PLC0415 - as above

    try:
        fibers = load(Path(context.params.get("file") or "")).cabling.fibers
    except (LightrigError, OSError):
        return []
    found = dict.fromkeys(str(end) for fiber in fibers for end in (fiber.source, fiber.sink))
    return [name for name in found if name.startswith(incomplete)]


def systems(incomplete: str) -> list[str]:
    """Return the installed published systems."""
    from lightrig.harness.system_registry import installed_systems  # noqa: PLC0415 - as above

    return [name for name in installed_systems() if name.startswith(incomplete)]


def runs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the runs of the folder of results, the newest first."""
    folder = Path(str(context.params.get("results") or "results"), "runs")
    names = sorted((path.name for path in folder.glob("*") if path.is_dir()), reverse=True)
    return [name for name in ("last", *names) if name.startswith(incomplete)]


def quantities(incomplete: str) -> list[str]:
    """Return the declared quantities."""
    from lightrig.harness.quantities.declarations import DECLARED  # noqa: PLC0415 - as above

    return [one.name for one in DECLARED if one.name.startswith(incomplete)]
