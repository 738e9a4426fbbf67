"""Packs: parts of Lightrig beside its core, each with commands, fixtures, sections and suites.

A pack is a folder below harness/ with a manifest, `pack.json`, found without declaring it or
installing it again; or a package of another distribution, with a manifest beside its `__init__`,
that an entry point in the group `lightrig.packs` names. Finding packs imports none of them.

docs/packs.md has a complete example.
"""

# Light: `lightrig --help` reads the manifests, and takes hardly longer than Python itself.
import json
import os
import sys
from collections.abc import Iterator, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

GROUP = "lightrig.packs"
"""Entry points of other distributions in this group name a package each."""

MANIFEST = "pack.json"

_HARNESS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "harness")


class Command:
    """A command: its line in `lightrig --help`, the example at the end of its own help, its module.

    SYSTEM in an example is replaced with the name of an installed system. The module, for one of
    the core the one of its name in harness.cli, has a function or a Typer application of the
    command's name.
    """

    __slots__ = ("example", "module", "summary")

    def __init__(self, summary: str, example: str = "", module: str = "") -> None:
        self.summary = summary
        self.example = example
        self.module = module


class Pack:
    """What the core may load of a pack.

    A part is named as `package.module`, or `package.module:attribute`, and is imported when it is
    first needed. Everything but the package is optional.

    Attributes:
        name: of its folder, or of its entry point.
        package: the Python package of its harness part.
        commands: by name.
        parts: what it offers by kind. `fixtures`: a module of pytest fixtures, a plugin that is
            loaded when a testbed is given; it may implement `pytest_lightrig_unavailable` for them.
            `sections`: of a run's page. `quantities`: that it records. `server_programs`: programs
            of simulated servers, functions that make
            `lightrig.instruments.simulated.hosts.host_tools.ServerPrograms`. `readers`: of tools'
            output, each an `instruments.servers.tools.recognition.Reader`. `suites`: a package
            of tests.
        former_suites: present paths of its suites by former ones, so that their history goes on.
    """

    __slots__ = ("commands", "former_suites", "name", "package", "parts")

    def __init__(
        self,
        name: str,
        package: str,
        commands: Mapping[str, Command],
        parts: Mapping[str, str],
        former_suites: Mapping[str, str],
    ) -> None:
        self.name = name
        self.former_suites = former_suites
        self.package = package
        self.commands = commands
        self.parts = parts

    @property
    def built_in(self) -> bool:
        """Whether the pack is one of Lightrig's own."""
        return self.package.startswith("lightrig.")

    @property
    def problem(self) -> str:
        """Why its package cannot be imported here; empty where it can."""
        if self.package in sys.modules:
            return ""
        try:
            __import__(self.package)
        except ImportError as error:
            return str(error)
        return ""

    def load(self, part: str) -> "Any":
        """Import and return a part; None where the pack has none.

        Raises `PackError` where it cannot be imported.
        """
        reference = self.parts.get(part)
        if reference is None:
            return None
        from pkgutil import resolve_name  # noqa: PLC0415 - not for a list of commands

        try:
            return resolve_name(reference)
        except (ImportError, AttributeError, ValueError) as error:
            raise _error(
                f"pack {self.name}: {part} {reference!r} cannot be loaded: {error}"
            ) from error


PARTS = ("fixtures", "quantities", "readers", "sections", "server_programs", "suites")

_packs: dict[str, Pack] | None = None


def packs() -> Mapping[str, Pack]:
    """Return all packs by name: those of this distribution in alphabetical order, then others'.

    One of another distribution replaces Lightrig's of the same name. Raises `PackError` for a
    manifest that cannot be read.
    """
    global _packs  # noqa: PLW0603 - read once
    if _packs is None:
        folders = sorted(os.scandir(_HARNESS), key=lambda each: each.name)
        found = [
            (each.name, f"lightrig.harness.{each.name}", each.path)
            for each in folders
            if os.path.exists(os.path.join(each.path, MANIFEST))
        ]
        _packs = {
            name: _read(name, package, path) for name, package, path in (*found, *_installed())
        }
    return _packs


def present() -> Iterator[Pack]:
    """Yield the packs that can be imported here."""
    return (pack for pack in packs().values() if not pack.problem)


def missing() -> str:
    """Return a sentence on the packs that cannot be imported here; empty without any."""
    absent = [pack.name for pack in packs().values() if pack.problem]
    if not absent:
        return ""
    return f"not installed here: pack{'s' * (len(absent) > 1)} {', '.join(absent)}"


def load_all(part: str) -> Iterator[tuple[Pack, "Any"]]:
    """Yield the packs that can be imported and have a part, each with it; raises `PackError`."""
    for pack in present():
        if part in pack.parts:
            yield pack, pack.load(part)


def _installed() -> Iterator[tuple[str, str, str]]:
    """Yield name, package and folder of each pack of another distribution."""
    if not declared(GROUP):
        return
    from importlib.metadata import entry_points  # noqa: PLC0415 - only where there is one
    from importlib.util import find_spec  # noqa: PLC0415 - as above

    for entry in sorted(entry_points(group=GROUP)):
        spec = find_spec(entry.value)
        if spec is None or not spec.submodule_search_locations:
            raise _error(
                f"pack {entry.name}: there is no package {entry.value}, which its entry point names"
            )
        yield entry.name, entry.value, next(iter(spec.submodule_search_locations))


_texts: dict[str, bytes] = {}


def declared(group: str) -> bool:
    """Whether a distribution on the search path declares entry points of a group.

    The texts of all entry points are searched: parsing them takes as long as Python's start.
    """
    for folder in sys.path:
        if folder not in _texts:
            _texts[folder] = b"\n".join(_entry_points(folder))
    heading = f"[{group}]".encode()
    return any(heading in _texts[folder] for folder in sys.path)


def _entry_points(folder: str) -> Iterator[bytes]:
    """Yield the text of the entry points of each distribution that is installed in a folder."""
    try:
        entries = list(os.scandir(folder or "."))
    except OSError:  # a folder of the search path need not exist
        return
    for each in entries:
        if each.name.endswith((".dist-info", ".egg-info")):
            try:
                with open(os.path.join(each.path, "entry_points.txt"), "rb") as file:
                    yield file.read()
            except OSError:  # most distributions have none
                continue


def _read(name: str, package: str, folder: str) -> Pack:
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, encoding="utf-8") as file:
            manifest = json.load(file)
        if not isinstance(manifest, dict):
            raise TypeError(f"found a {type(manifest).__name__}, expected an object of JSON")
        commands = {
            command: Command(**stated) for command, stated in manifest.pop("commands", {}).items()
        }
        former_suites = dict(manifest.pop("former_suites", {}))
        if unknown := sorted(manifest.keys() - set(PARTS)):
            known = ", ".join(("commands", "former_suites", *PARTS))
            raise ValueError(f"unknown {', '.join(unknown)}; known are {known}")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise _error(f"pack {name}: {path} is no manifest of a pack: {error}") from error
    return Pack(name, package, commands, manifest, former_suites)


def _error(message: str) -> Exception:
    from lightrig.testbeds.errors import PackError  # noqa: PLC0415 - only for an error

    return PackError(message)
