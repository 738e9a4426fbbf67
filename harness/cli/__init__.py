"""The command-line face: one module for each command, loaded when that command is used.

Exit status: 0 yes, 1 no, 2 bad use or input, 3 lab trouble.
"""

import contextlib
import gc
import io
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence

from lightrig.harness.garbage import paused
from lightrig.harness.machine_folder import VARIABLE, stated_folder
from lightrig.packs import Command, packs

BAD_USE = 2
LAB_ERROR = 3

_AFTER_RUNS = ("restore", "report", "results")
"""Commands about what runs have left: a folder of states that is not there is a mistyped one."""

SUITES = "pytest --pyargs lightrig.suites --testbed"
"""The command that runs the suites, in a checkout and without one; the testbed's file follows."""
SUITES_RUN = f"Suites run with pytest:\n  {SUITES} FILE --instruments simulated"

_READERS = ("check", "plan", "schema")
"""Commands that only read, and end before garbage would matter."""

_MEASURES = ("run", "measure", "test", "pytest", "suite", "suites")
"""What a user types first to measure, which is no command."""

COMPLETION_VARIABLE = "_LIGHTRIG_COMPLETE"
"""Set in the environment by a shell that asks for completions."""


_CORE = {
    "init": Command("Write a first testbed file from a few answers.", "mine.yaml"),
    "check": Command("Check a testbed file; locate every error.", "testbeds/mine.yaml"),
    "doctor": Command("Compare the lab with its testbed file.", "testbeds/mine.yaml"),
    "serve": Command(
        "Serve a testbed's simulated instruments on loopback.",
        "testbeds/mine.yaml --write served.yaml",
    ),
    "plan": Command(
        "Show which circuits plans would set; send nothing.",
        "testbeds/mine.yaml crossed --from straight",
    ),
    "apply": Command("Set a plan on the hardware.", "testbeds/mine.yaml crossed"),
    "connect": Command(
        "Make one circuit or link; leave all others.", "testbeds/mine.yaml ocs.3 ocs.17"
    ),
    "disconnect": Command(
        "Unmake one circuit or link.",
        "testbeds/mine.yaml ocs.3 ocs.17",
        "lightrig.harness.cli.connect",
    ),
    "get": Command("Read powers, carriers, circuits, settings.", "testbeds/mine.yaml laser ocs.3"),
    "set": Command("Set settings of instruments by name.", "testbeds/mine.yaml laser.power=0dBm"),
    "trial": Command(
        "Measure what a setting changes, in random blocks.",
        "testbeds/mine.yaml --vary voa.1.attenuation=0dB,3dB --measure relock",
    ),
    "live": Command("Show powers and carriers once a second.", "testbeds/mine.yaml --for 10m"),
    "ask": Command(
        "Send an instrument one raw command.", "testbeds/mine.yaml ocs 'RTRV-PATCH:::1:;'"
    ),
    "restore": Command("Restore the circuits after a run that was killed.", "testbeds/mine.yaml"),
    "out": Command(
        "Put ports out of service for a time.",
        "testbeds/mine.yaml server3.nic0.p1 --because LAB-123",
        "lightrig.harness.cli.out_of_service",
    ),
    "in": Command(
        "Put ports back in service, once a circuit works.",
        "testbeds/mine.yaml server3.nic0.p1",
        "lightrig.harness.cli.out_of_service",
    ),
    "who": Command("Show who uses the instruments; contact nothing.", "testbeds/mine.yaml"),
    "note": Command(
        "Note what was done to a part of the lab.", 'testbeds/mine.yaml ocs.3 "cleaned"'
    ),
    "known": Command(
        "Enter a card of the nights as known until a date.",
        'testbeds/mine.yaml no-light/ocs.3 --until 2026-12-12 --because "LAB-123"',
    ),
    "history": Command(
        "Show a part of the lab over its nights, with notes.", "testbeds/mine.yaml ocs.9 --nights 5"
    ),
    "reference": Command("Take the references of insertion losses.", "testbeds/mine.yaml"),
    "night": Command("Measure testbeds on the hosts that reach them.", "lab.yaml"),
    "report": Command("Draw the pages of runs, or the trend over nights.", ""),
    "results": Command("List, query, compare, export and recover runs.", "list"),
    "replay": Command("Serve the replies of a recorded trace on loopback.", "traces/ocs.jsonl"),
    "read": Command("Name the tool whose output a file is, and what is in it.", "ethtool.txt"),
    "schema": Command(
        "Print the JSON Schema of testbed files.",
        "> testbeds/schema.json",
        "lightrig.harness.cli.check",
    ),
}


def commands() -> Mapping[str, Command]:
    """Return all commands by name: the core's in the order of a first day in the lab, then packs'.

    Raises `PackError`.
    """
    found = dict(_CORE)
    for pack in packs().values():
        found |= pack.commands
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` name, by default those of this process.

    Help and version are answered here, since loading a command takes longer than printing them.
    """
    arguments_given = list(sys.argv[1:] if arguments is None else arguments)
    name = arguments_given[0] if arguments_given else ""
    try:
        known = commands()
    except ImportError as error:  # `PackError`, whose module only an error loads
        sys.stderr.write(f"lightrig: {error}\n")
        raise SystemExit(BAD_USE) from error
    if name == "help":
        arguments_given = [*arguments_given[1:2], "--help"]
        name = arguments_given[0]
    if COMPLETION_VARIABLE in os.environ:
        from lightrig.harness.cli.completion import complete  # noqa: PLC0415 - only for shells

        complete()
    elif name in ("-h", "--help"):
        sys.stdout.write(help_text())
    elif name == "--version":
        from importlib.metadata import version  # noqa: PLC0415 - only this option needs it

        sys.stdout.write(f"lightrig {version('lightrig')}\n")
    elif name in ("--install-completion", "--show-completion"):
        _completion(name, arguments_given[1:])
    elif name in known:
        with paused() if name in _READERS else contextlib.nullcontext():
            _run(name, arguments_given)
    elif not arguments_given:
        sys.stderr.write(help_text())
        raise SystemExit(BAD_USE)
    else:
        from lightrig.testbeds.findings import did_you_mean  # noqa: PLC0415 - only for an error

        kind = "option" if name.startswith("-") else "command"
        hint = SUITES_RUN if name in _MEASURES else "lightrig --help lists the commands"
        nearest = "" if name in _MEASURES else did_you_mean(name, known)
        sys.stderr.write(f"lightrig: no such {kind}: {name!r}{nearest}\n{hint}\n")
        raise SystemExit(BAD_USE)


def _completion(option: str, shells: list[str]) -> None:
    from lightrig.harness.cli import completion  # noqa: PLC0415 - only these options need it

    shell = completion.shell_of(shells)
    if shell is None:
        known = ", ".join(completion.SHELLS)
        sys.stderr.write(f"lightrig {option}: name a shell of {known}, as in {option} bash\n")
        raise SystemExit(BAD_USE)
    (completion.install if option == "--install-completion" else completion.show)(shell)


def _run(name: str, arguments_given: list[str]) -> None:
    folder = stated_folder() if name in _AFTER_RUNS else None
    if folder is not None and not folder.is_dir():
        sys.stderr.write(
            f"lightrig {name}: {VARIABLE} names {folder}, which is no folder; runs make it\n"
        )
        raise SystemExit(BAD_USE)
    if name in _READERS:
        # Pydantic would read the metadata of all installed packages for plugins of itself.
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    with paused():
        from lightrig.testbeds.errors import LightrigError, PackError  # noqa: PLC0415 - loads much

        _refuse_missing(name)
        try:
            command = _loaded(name, arguments_given)
        except LightrigError as error:  # such as an installed system that cannot be loaded
            sys.stderr.write(f"lightrig {name}: {error}\n")
            raise SystemExit(BAD_USE) from error
    shown_before, warnings.formatwarning = warnings.formatwarning, _sentence
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # What a terminal of another encoding cannot show is escaped, as on standard error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        command()
    except PackError as error:
        sys.stderr.write(f"lightrig {name}: {error}\n")
        raise SystemExit(BAD_USE) from error
    except SystemExit:
        _flush(name)
        raise
    except (OSError, RuntimeError, MemoryError) as error:
        if isinstance(error, OSError):
            # A failed write may have left nothing to flush: only a further one shows what failed.
            _flush(name, b"\n")
        from lightrig.instruments.machine_limits import refused_by_machine  # noqa: PLC0415 - seldom

        if (problem := refused_by_machine(error)) is None:
            raise
        sys.stderr.write(f"lightrig {name}: {problem}\n")
        raise SystemExit(LAB_ERROR) from error
    finally:
        warnings.formatwarning = shown_before
        if name in _READERS:
            # Spare the collection at the interpreter's end, a sixth of these commands' time.
            # Others may have loaded DuckDB, which reports objects that are not collected.
            gc.freeze()


def _loaded(name: str, arguments_given: list[str]) -> Callable[[], object]:
    """Load a command; returns what runs it."""
    if name == "check" and len(arguments_given) == 2:
        file = arguments_given[1]
        if file == "-" or not file.startswith("-"):
            # No option is there to be read by Typer, whose import is a tenth of this command.
            from lightrig.harness.cli.checked_file import check_only  # noqa: PLC0415 - as above

            return lambda: check_only(file)
    from lightrig.harness.cli.app import application  # noqa: PLC0415 - loads its libraries

    app = application(name)
    return lambda: app(args=arguments_given, prog_name="lightrig")


def _flush(name: str, more: bytes = b"") -> None:
    """Write what is left of standard output; end with a sentence where that cannot be, but a pipe.

    A reader that has left a pipe, such as `head`, wants no more.
    """
    try:
        sys.stdout.flush()
        if more:
            os.write(sys.stdout.fileno(), more)
    except (BrokenPipeError, io.UnsupportedOperation):
        return
    except OSError as error:
        # The interpreter writes the rest when it ends: it would fail there again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write(f"lightrig {name}: standard output: {error.strerror}\n")
        raise SystemExit(LAB_ERROR) from error


def _refuse_missing(name: str) -> None:
    """End with a sentence where the pack of a command cannot be imported."""
    for pack in packs().values():
        if name in pack.commands and (problem := pack.problem):
            sys.stderr.write(f"lightrig {name}: its pack {pack.name} is not installed: {problem}\n")
            raise SystemExit(BAD_USE)


def _sentence(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """Return a warning of Lightrig as its sentence alone, and one of another program as usual."""
    if category.__module__.startswith("lightrig."):
        from lightrig.testbeds.escaping import escape_control  # noqa: PLC0415 - only for these

        return f"{escape_control(str(message))}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n{line or ''}"


def help_text() -> str:
    """Return what `lightrig --help` prints."""
    width = max(map(len, commands()))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in commands().items()]
    return "\n".join(
        (
            "Usage: lightrig COMMAND [OPTIONS] ...",
            "",
            "Measure optical-circuit-switched ML fabrics. Suites run with pytest:",
            f"  {SUITES} FILE",
            "",
            "Commands:",
            *lines,
            "",
            "Options:",
            "  --install-completion [SHELL]  Complete commands in bash, zsh or fish.",
            "  --show-completion [SHELL]     Print the script that does so.",
            "  --version                     Print the version.",
            "  -h, --help                    Print this; COMMAND --help explains a command.",
            "",
            "Example: lightrig check testbeds/mine.yaml",
            "",
        )
    )
