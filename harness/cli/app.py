"""The commands as one Typer application, each loaded from the module of its name."""

from importlib import import_module

import typer

from lightrig.harness.cli import commands


def application(*names: str) -> typer.Typer:
    """Return an application of the commands `names`, or of all where none is named."""
    app = typer.Typer(
        help="Measure optical-circuit-switched ML fabrics.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_keep_the_name)
    known = commands()
    for name in names or known:
        module = import_module(known[name].module or f"lightrig.harness.cli.{name}")
        # A name that Python has already is written with an underscore.
        command = getattr(module, name, None) or getattr(module, f"{name}_")
        example = known[name].example
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
