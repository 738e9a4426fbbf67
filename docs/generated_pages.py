"""Hook of mkdocs: the reference pages, made from the code and the schema while the site is built.

Links from pages to files of the repository outside `docs` have no target on the site: they become
the file's path, and the build ends if there is no such file.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from lightrig import api, devices, drivers, systems
from lightrig.harness.cli import COMMANDS
from lightrig.harness.cli.app import application
from lightrig.instruments.core import capabilities
from lightrig.testbeds import json_schema

ROOT = Path(__file__).resolve().parents[1]
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)\)")
_PUBLIC: tuple[Any, ...] = (api, drivers, devices, systems)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference pages to the files of the site."""
    for name, content in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page whose links to files outside of `docs` are their paths."""
    folder = Path(config.docs_dir, page.file.src_uri).parent

    def path_of(link: re.Match[str]) -> str:
        target = Path(folder, link[2] + link[3]).resolve()
        if target.is_relative_to(Path(config.docs_dir).resolve()):
            return link[0]
        if not target.exists():
            raise PluginError(f"{page.file.src_uri}: {link[2]}{link[3]} does not exist")
        path = f"`{target.relative_to(ROOT)}`"
        return path if link[1].strip("`") in path else f"{link[1]} ({path})"

    return _OUTSIDE.sub(path_of, markdown)


def pages() -> Mapping[str, str]:
    """Return the text of each reference page by its name."""
    return {
        "commands": _commands(),
        "testbed-files": _schema(),
        "pytest": _pytest(),
        "python": _python(),
    }


def _fenced(content: str, language: str = "text") -> str:
    return f"```{language}\n{content.strip()}\n```\n\n"


# ------------------------------------------------------------------------------- commands


def _commands() -> str:
    parts = [
        "# Commands\n\nExit status: 0 yes, 1 no, 2 bad use or input, 3 trouble in the lab. "
        "`--json` prints one JSON document.\n\n"
    ]
    for name in COMMANDS:
        group = typer.main.get_command(application(name))
        assert isinstance(group, click.Group) or hasattr(group, "commands")
        parts += _help(group.commands[name], f"lightrig {name}", 2)
    return "".join(parts)


def _help(command: Any, name: str, level: int) -> Iterator[str]:
    context = command.context_class(command, info_name=name, terminal_width=92)
    yield f"{'#' * level} {name}\n\n"
    yield _fenced(re.sub(r"\x1b\[[0-9;]*m", "", command.get_help(context)))
    for child, each in getattr(command, "commands", {}).items():
        yield from _help(each, f"{name} {child}", level + 1)


# --------------------------------------------------------------------------- testbed files


def _schema() -> str:
    document = json_schema()
    parts = ["# Testbed files\n\nEvery key that a testbed file may have, from its JSON Schema.\n\n"]
    parts += _object("The file", document)
    for name, definition in sorted(document.get("$defs", {}).items()):
        if definition.get("properties"):
            parts += _object(name.removesuffix("Part"), definition)
    return "".join(parts)


def _object(title: str, definition: Mapping[str, Any]) -> Iterator[str]:
    about = str(definition.get("description", "")).partition("\n\n")[0].replace("\n", " ")
    yield f"## {title}\n\n{about}\n\n"
    yield "| key | value | default | meaning |\n| --- | --- | --- | --- |\n"
    required = definition.get("required", ())
    for key, value in definition.get("properties", {}).items():
        default = "required" if key in required else _default(value)
        meaning = str(value.get("description", "")).replace("\n", " ")
        if examples := value.get("examples"):
            meaning += f" Example: `{examples[0]}`"
        cells = (f"`{key}`", _type(value), default, meaning)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    yield "\n"


def _default(value: Mapping[str, Any]) -> str:
    found = value.get("default")
    return "" if found in (None, {}, [], "") else f"`{found}`"


def _type(value: Mapping[str, Any]) -> str:
    if "$ref" in value:
        return value["$ref"].rpartition("/")[2].removesuffix("Part")
    if "enum" in value:
        return ", ".join(f"`{each}`" for each in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    for many in ("anyOf", "oneOf", "allOf"):
        if many in value:
            found = dict.fromkeys(_type(each) for each in value[many])
            return " or ".join(each for each in found if each != "null")
    if value.get("type") == "array":
        return f"list of {_type(value.get('items', {}))}"
    if value.get("type") == "object":
        inner = value.get("additionalProperties")
        return f"by name: {_type(inner)}" if isinstance(inner, dict) else "keys and values"
    return str(value.get("type", "any"))


# --------------------------------------------------------------------------------- pytest


def _pytest() -> str:
    options = _printed("--help").partition("\noptical testbeds:\n")[2]
    options = re.split(r"\n(?=\S)", options)[0]
    fixtures = _printed("--fixtures", "--quiet", "suites")
    blocks = re.findall(
        r"^(\w+)(?: \[[\w ]+\])? -- lightrig/(harness/\S+?):\d+\n((?:    .*\n|\n)*)",
        fixtures,
        re.MULTILINE,
    )
    lines = [
        f"| `{name}` | {' '.join(about.split())} |".replace("\x1b", "")
        for name, _, about in sorted(blocks)
    ]
    if not lines or not options.strip():
        raise PluginError("pytest prints no fixtures or no options of Lightrig")
    return (
        "# Fixtures and options of pytest\n\n## Options\n\n"
        f"{_fenced(inspect.cleandoc(options))}## Fixtures\n\n| fixture | meaning |\n| --- | --- |\n"
        + "\n".join(lines)
        + "\n"
    )


def _printed(*options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


# --------------------------------------------------------------------------------- Python


def _python() -> str:
    parts = ["# Python\n\nWhat the [public modules](../public-modules.md) hold.\n\n"]
    for module in _PUBLIC:
        about = inspect.getdoc(module) or ""
        parts.append(f"## {module.__name__}\n\n{about.partition(chr(10))[0]}\n\n")
        for name in module.__all__:
            member = getattr(module, name)
            if inspect.isclass(member):
                parts += _class(member, 3)
            else:
                parts.append(f"### {name}\n\n")
                taken = inspect.signature(member) if inspect.isfunction(member) else ""
                text = inspect.getdoc(member) if inspect.isfunction(member) else repr(member)
                parts.append(_fenced(f"{name}{taken}\n\n{text}".replace("lightrig.", ""), "python"))
    parts.append("## Capabilities\n\nWhat measurements ask of an instrument (`Protocol`s).\n\n")
    found = inspect.getmembers(capabilities, inspect.isclass)
    for _, capability in found:
        if capability.__module__.startswith("lightrig.") and getattr(capability, "_is_protocol", 0):
            parts += _class(capability, 3)
    return "".join(parts)


def _class(described: type, level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} {described.__name__}\n\n`{described.__module__}`\n\n"
    yield _fenced(inspect.getdoc(described) or "")
    for name, member in inspect.getmembers(described):
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        signature = inspect.signature(member) if inspect.isfunction(member) else ""
        text = inspect.getdoc(member) or ""
        yield _fenced(f"{name}{signature}\n\n{text}".replace("lightrig.", ""), "python")
