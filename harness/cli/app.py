"""The commands as one Typer application, each loaded from the module of its name."""

from importlib import import_module

import typer

from lightrig.harness.cli import COMMANDS

_MODULES = {
    "schema": "lightrig.harness.cli.check",
    "claims": "lightrig.harness.claims.commands",
    **{name: f"lightrig.harness.certify.commands.{name}" for name in ("certify", "sheet")},
    **{name: f"lightrig.harness.jobs.commands.{name}" for name in ("train", "survive")},
    **{
        name: f"lightrig.harness.orchestration.commands.{name}" for name in ("orchestrate", "agent")
    },
}
"""Modules of commands that are not those of the same name here."""


def application(*names: str) -> typer.Typer:
    """Return an application of the commands `names`, or of all where none is named."""
    app = typer.Typer(
        help="Measure optical-circuit-switched ML fabrics.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
    )
    app.callback()(_keep_the_name)
    for name in names or COMMANDS:
        module = _MODULES.get(name, f"lightrig.harness.cli.{name}")
        command = getattr(import_module(module), name)
        example = COMMANDS[name].example
        if "SYSTEM" in example:
            from lightrig.harness.system_registry import installed_systems  # noqa: PLC0415

            example = example.replace("SYSTEM", next(iter(installed_systems()), "SYSTEM"))
        epilog = f"Example: lightrig {name} {example}".rstrip()
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, epilog=epilog)(command)
    return app


def _keep_the_name() -> None:
    """Make Typer ask for a command's name even where it has only one command."""
