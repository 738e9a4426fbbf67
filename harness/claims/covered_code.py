"""The code of a system that its tests reach by imports, and a digest of it.

Imports are read from the source, so nothing is run. Modules outside of the system's own packages
are not followed: generic code imports no published system.
"""

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lightrig.harness.system_registry import System
from lightrig.testbeds import LightrigError

_PARTS = ("claims", "figures", "sections", "fixtures", "generator", "quantities", "orchestrator")


class CoveredCodeError(LightrigError):
    """A package or a module of a system cannot be found."""


class SystemCode:
    """Modules of the packages that a system's parts are in.

    Raises `CoveredCodeError` for a package that is not there.
    """

    def __init__(self, system: System) -> None:
        self._folders: dict[str, Path] = {}
        for package in sorted(_packages(system)):
            spec = importlib.util.find_spec(package)
            if spec is None or not spec.submodule_search_locations:
                raise CoveredCodeError(f"system {system.name}: no package {package}")
            self._folders[package] = Path(next(iter(spec.submodule_search_locations)))
        self._trees: dict[str, ast.Module] = {}

    def imported_by(self, source: Path) -> frozenset[str]:
        """Return the modules of the system that a file outside of it imports."""
        tree = ast.parse(source.read_text(encoding="utf-8"))
        found = {self._module(name) for name in imported_names(tree)}
        return frozenset(name for name in found if name is not None)

    def reached_from(self, modules: Iterable[str]) -> frozenset[str]:
        """Return these modules and those that they import, directly or through each other.

        Raises `CoveredCodeError` for a module that is not there.
        """
        reached = set[str]()
        waiting = set(modules)
        while waiting:
            name = waiting.pop()
            reached.add(name)
            # The packages around a module are run when it is imported.
            names = [*imported_names(self._tree(name), self._package(name)), *_parents(name)]
            found = {self._module(each) for each in names}
            waiting |= {each for each in found if each is not None} - reached
        return frozenset(reached)

    def modules(self) -> frozenset[str]:
        """Return all modules of the system."""
        return frozenset(
            ".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(
                ".__init__"
            )
            for package, folder in self._folders.items()
            for path in folder.rglob("*.py")
        )

    def digest(self, modules: Iterable[str]) -> str:
        """Return a digest of the code that is reached from these modules.

        Docstrings, comments, layout and the place of the installation are not part of it; data
        files in a module's folder that the module names are. Raises `CoveredCodeError` for a module
        that is not there.
        """
        digest = hashlib.sha256()
        for name in sorted(self.reached_from(modules)):
            tree = self._tree(name)
            digest.update(f"{name}\0{_plain(tree)!r}\0".encode())
            for data in _named_data(tree, self._file(name).parent):
                digest.update(hashlib.sha256(data.read_bytes()).digest())
        return digest.hexdigest()[:16]

    def _module(self, name: str) -> str | None:
        """Return the module of the system in which an imported name is; None for others."""
        for candidate in (name, name.rpartition(".")[0]):
            if self._path(candidate) is not None:
                return candidate
        return None

    def _tree(self, module: str) -> ast.Module:
        if module not in self._trees:
            self._trees[module] = ast.parse(self._file(module).read_text(encoding="utf-8"))
        return self._trees[module]

    def _package(self, module: str) -> str:
        return module if self._file(module).name == "__init__.py" else module.rpartition(".")[0]

    def _file(self, module: str) -> Path:
        path = self._path(module)
        if path is None:
            raise CoveredCodeError(f"no module {module}")
        return path

    def _path(self, module: str) -> Path | None:
        for package, folder in self._folders.items():
            if module == package or module.startswith(f"{package}."):
                place = folder.joinpath(*module.removeprefix(package).split(".")[1:])
                for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
                    if path.is_file():
                        return path
        return None


def imported_names(tree: ast.Module, package: str = "") -> Iterator[str]:
    """Yield the modules, and the names in modules, that a file imports anywhere in its code.

    package: the package of the file, for relative imports.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                origin = importlib.util.resolve_name("." * node.level + origin, package)
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _packages(system: System) -> set[str]:
    packages = {
        reference.partition(":")[0].rpartition(".")[0] or reference.partition(":")[0]
        for part in _PARTS
        if (reference := getattr(system, part)) is not None
    }
    return {each for each in packages if not packages & set(_parents(each))}


def _parents(module: str) -> Iterator[str]:
    while module := module.rpartition(".")[0]:
        yield module


def _plain(node: Any) -> Any:
    """Return a syntax tree as tuples, without docstrings and positions.

    Empty fields are left out: which of them a tree has differs between versions of Python.
    """
    if isinstance(node, list):
        return tuple(map(_plain, node))
    if not isinstance(node, ast.AST):
        return node
    documented = isinstance(
        node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    ) and bool(ast.get_docstring(node, clean=False))
    fields = []
    for field, value in ast.iter_fields(node):
        part = value[1:] if documented and field == "body" else value
        if part is not None and part != []:
            fields.append((field, _plain(part)))
    return (type(node).__name__, *fields)


def _named_data(tree: ast.Module, folder: Path) -> list[Path]:
    """Return the data files in a module's folder, and below it, whose name stands in its code."""
    named = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return sorted(
        path
        for path in folder.rglob("*")
        if path.name in named and path.is_file() and path.suffix not in {".py", ".pyc"}
    )
