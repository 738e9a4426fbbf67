"""Hook of mkdocs: the reference pages, made from the code and the schema while the site is built.

Links from pages to files of the repository outside `docs` have no target on the site: they become
the file's path, and the build ends if there is no such file.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from lightrig import api, devices, drivers, systems
from lightrig.harness.cli import commands
from lightrig.harness.cli.app import application
from lightrig.instruments.core import capabilities
from lightrig.testbeds import json_schema
from lightrig.testbeds.pmds import pmds as known_pmds

ROOT = Path(__file__).resolve().parents[1]
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+)([^)#]+)\)")
_WIDEST = 92
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_PUBLIC: tuple[Any, ...] = (api, drivers, devices, systems)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference pages to the files of the site."""
    files.append(File.generated(config, "index.md", content=_index()))
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
        "pmds": _pmds(),
        "pytest": _pytest(),
        "python": _python(),
        **{name: content() for name, content in _tables().items()},
    }


def _tables() -> Mapping[str, Any]:
    """Return the pages of tables, which a module among the tests makes and `make test` tries."""
    sys.path.insert(0, str(ROOT / "tests"))
    try:
        return import_module("generated").REFERENCE
    finally:
        sys.path.remove(str(ROOT / "tests"))


def _index() -> str:
    """Return the README as the first page: its links are to pages, or paths of the repository."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    readme = readme.replace("](docs/decisions)", "](decisions/index.md)").replace("](docs/", "](")
    return re.sub(
        r"(?<!!)\[`?([^\]`]+)`?\]\((?!http)([^)#]+)\)",
        lambda link: link[0] if (ROOT / "docs" / link[2]).exists() else f"`{link[2]}`",
        readme,
    )


def _fenced(content: str, language: str = "text") -> str:
    return f"```{language}\n{content.strip()}\n```\n\n"


# ------------------------------------------------------------------------------- commands


def _commands() -> str:
    parts = [
        "# Commands\n\nExit status: 0 yes, 1 no, 2 bad use or input, 3 trouble in the lab. "
        "`--json` prints one JSON document.\n\n"
    ]
    for name in commands():
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


def _pmds() -> str:
    parts = [
        "# PMDs\n\nWhat `pmd:` of a transceiver may name, and what it states. Powers are averages "
        "of one lane in dBm, or of all lanes as the standard prints it (total).\n\n"
        "| name | lanes | in a fiber | nm | launch | total | receive | damage | source |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    ]
    for pmd in known_pmds().values():
        colors = ", ".join(f"{(low + high) / 2:.6g}" for low, high in pmd.bands)
        medium = "" if pmd.medium == "singlemode" else f" ({pmd.medium})"
        cells = (
            f"`{pmd.name}`{medium}",
            pmd.lanes,
            pmd.wavelengths,
            colors,
            _span(pmd.launch_min, pmd.launch_max),
            _power(pmd.launch_total),
            _span(pmd.receive_min, pmd.receive_max),
            _power(pmd.damage),
            pmd.source,
        )
        parts.append("| " + " | ".join(map(str, cells)) + " |\n")
    return "".join(parts)


def _power(dbm: float | None) -> str:
    return "" if dbm is None else f"{dbm:g}"


def _span(low: float | None, high: float | None) -> str:
    return "" if low is None else f"{low:g} … {high:g}"


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
            elif inspect.isfunction(member):
                parts += (f"### {name}\n\n", _described(_signed(name, member)))
            else:
                parts += (f"### {name}\n\n", _fenced(f"{name} = {member!r}", "python"))
    parts.append("## Capabilities\n\nWhat measurements ask of an instrument (`Protocol`s).\n\n")
    found = inspect.getmembers(capabilities, inspect.isclass)
    for _, capability in found:
        if capability.__module__.startswith("lightrig.") and getattr(capability, "_is_protocol", 0):
            parts += _class(capability, 3)
    return "".join(parts)


def _class(described: type, level: int = 2) -> Iterator[str]:
    yield f"{'#' * level} {described.__name__}\n\n"
    taken: set[str] = set()
    if getattr(described, "_is_protocol", False):
        text = f"class {described.__name__}(Protocol)\n\n{inspect.getdoc(described)}"
    else:
        with contextlib.suppress(ValueError):  # exceptions without a constructor of their own
            taken = set(inspect.signature(described).parameters)
        text = _signed(described.__name__, described)
    if declared := _declared(described, taken):
        text += "\n\n" + "\n".join(declared)
    yield _described(text)
    for name, member in inspect.getmembers(described):
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        if inspect.isfunction(member):
            yield _described(_signed(name, member))
        else:
            yield _described(f"{name}  # attribute\n\n{inspect.getdoc(member) or ''}")


def _declared(described: type, taken: set[str]) -> list[str]:
    """Return the annotated attributes of a class that its constructor does not take."""
    found = {}
    for cls in reversed(described.__mro__):
        if cls.__module__.startswith("lightrig."):
            for name, kind in inspect.get_annotations(cls).items():
                if not name.startswith("_") and name not in taken:
                    shown = kind if isinstance(kind, str) else inspect.formatannotation(kind)
                    value = f" = {vars(cls)[name]!r}" if _is_plain(vars(cls).get(name)) else ""
                    found[name] = f"{name}: {_short(shown)}{value}"
    return list(found.values())


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | bytes | int | float | tuple)


class _Unquoted(str):
    """An annotation that was written as text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _unquoted(annotation: Any) -> Any:
    text = getattr(annotation, "__forward_arg__", annotation)
    return _Unquoted(text) if isinstance(text, str) else annotation


def _signed(name: str, member: Any) -> str:
    """Return a function's or a class's name with its parameters, and its docstring."""
    with contextlib.suppress(ValueError):  # exceptions without a constructor of their own
        written = inspect.signature(member)
        every = [
            one.replace(annotation=_unquoted(one.annotation))
            for one in written.parameters.values()
            if not one.name.startswith("_")
        ]
        returned = _unquoted(written.return_annotation)
        if inspect.isclass(member):
            returned = inspect.Signature.empty
        signature = written.replace(parameters=every, return_annotation=returned)
        shown = _short(f"{name}{signature}")
        if len(shown) > _WIDEST:
            kinds = [one.kind for one in every]
            each = [_short(str(one)) for one in every]
            if _KEYWORD in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
                each.insert(kinds.index(_KEYWORD), "*")
            head = f"{name}(\n    " + ",\n    ".join(each) + "\n)"
            shown = head + shown[shown.rindex(")") + 1 :]
        name = shown
    return f"{name}\n\n{inspect.getdoc(member) or ''}"


def _described(text: str) -> str:
    """Return a signature as code and the docstring behind it as text, its lists as they are."""
    signature, *paragraphs = text.strip().split("\n\n")
    shown = [_fenced(signature, "python")]
    for paragraph in paragraphs:
        plain = "\n    " not in paragraph and not re.match(r"\w+(, \w+)*: ", paragraph)
        shown.append(f"{paragraph}\n\n" if plain else _fenced(paragraph))
    return "".join(shown)


def _short(annotations: str) -> str:
    """Return annotations without the modules of their names."""
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", annotations)
