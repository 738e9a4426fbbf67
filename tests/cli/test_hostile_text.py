"""All that Lightrig prints, with hostile text in every field that comes from outside.

What is hostile is judged by Unicode's own classes and by an HTML parser, not by Lightrig's list.
"""

import ast
import csv
import io
import json
import socketserver
import threading
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest
from record.recorded import MS, description
from rich.progress import Progress
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.cli.terminal import PlainConsole
from lightrig.harness.record import Context, Journal, Row, TestOutcome, settle, store_descriptions
from lightrig.harness.record.results import rows_as_csv

ROOT = Path(__file__).parents[2]
HOSTILE = (
    "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\r</script><img src=x onerror=alert(1)>\"'>"
    "[red][link=http://evil.invalid]"
)
FORMULA = "=cmd|'/C calc'!A0" + HOSTILE
RUN = "20260314-021500-h"
BLIND = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def assert_harmless(text):
    wrong = {
        c
        for c in text
        if (unicodedata.category(c) in {"Cc", "Cs"} and c not in "\t\n")
        or unicodedata.bidirectional(c) in BLIND
    }
    assert not wrong


class Elements(HTMLParser):
    """The elements of a page, and the attributes that run something."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.running = set(), []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.running += [name for name, _ in attrs if name.startswith("on")]


def assert_no_live_element(page):
    found = Elements(page)
    assert "img" not in found.tags
    assert not found.running
    assert "\x1b" not in page


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A run whose names, identities, conditions, notes and outcomes are hostile."""
    place = tmp_path_factory.mktemp("hostile") / "results"
    for run, night in ((RUN, "2026-03-14"), (f"{RUN}2", "2026-03-15")):
        folder = place / "runs" / run
        stored = store_descriptions({"opus": str(description(place.parent / "lab"))}, folder)
        header = {
            "testbeds": {HOSTILE: HOSTILE, "opus": HOSTILE},
            "descriptions": stored,
            "seed": 7,
            "arguments": [HOSTILE],
            "versions": {HOSTILE: HOSTILE},
            "host": HOSTILE,
            "deselected": {HOSTILE: {HOSTILE: 1}},
        }
        journal = Journal(folder / "journal.jsonl", {"run": run, "night": night, **header})
        for testbed, subject in ((HOSTILE, FORMULA), ("opus", FORMULA), ("it's", "opus")):
            test = f"suites/test_x.py::test_{HOSTILE}"
            conditions = {"before": HOSTILE, "event_name": FORMULA}
            context = Context(testbed, test, (HOSTILE, "ocs: Polatis"), True, conditions)
            rows = [
                Row(subject, "reconfiguration.control", n * MS, n * MS, n * MS + 7, "ns", n)
                for n in range(60, 83)
            ]
            journal.append_many(context, rows)
            details = {
                "log": HOSTILE,
                "why": HOSTILE,
                "repeat": HOSTILE,
                "wire": {HOSTILE: [HOSTILE]},
            }
            for outcome in ("failed", "inconclusive", "error", "skipped", "passed"):
                journal.note_test(TestOutcome(f"{test}[{outcome}]", outcome, 1.0, details))
        journal.close({"exit": 1, "duration_s": 12.5, "ended": HOSTILE, "not_restored": [HOSTILE]})
        settle(folder)
    return place


@pytest.fixture
def lightrig(results):
    def run(*arguments):
        command, *rest = map(str, arguments)
        ended = CliRunner().invoke(
            application(command), [command, *rest, "--results", str(results)]
        )
        assert not isinstance(ended.exception, Exception), ended.exception
        return ended

    return run


@pytest.mark.parametrize(
    "command",
    [
        "results list",
        "results list --json",
        "results query|SELECT DISTINCT testbed, test, subject, instruments, conditions FROM rows",
        "results query|SELECT * FROM tests",
        f"results compare|{RUN}|last",
        f"results compare|{RUN}|last|--json",
        "results export|last|--format|csv",
        "results export|last|--format|json",
        "results metrics",
        "results watch",
        "results recover",
        "results prune --before 2027-01-01",
        "results compact",
        f"results query|SELECT '{HOSTILE[:9]}' FROM nowhere",
        f"results export|{HOSTILE}",
    ],
)  # fmt: skip
def test_results_print_hostile_text_as_text(lightrig, command):
    head, *words = command.split("|")
    ended = lightrig(*head.split(), *words)
    printed = ended.stdout + ended.stderr
    assert printed.strip()
    assert_harmless(printed)


def test_a_testbed_s_name_is_no_sql(lightrig):
    ended = lightrig("results", "metrics")
    assert ended.exit_code == 0, ended.stderr
    assert 'lightrig_median{testbed="\\\\x1b]0;title' in ended.stdout


def test_exported_cells_are_no_formulas(lightrig):
    lines = list(csv.reader(io.StringIO(lightrig("results", "export", "last").stdout)))
    cells = {cell for line in lines[1:] for cell in line}
    assert any("cmd|" in cell for cell in cells)
    for cell in cells:
        assert_harmless(cell)
        assert not cell.startswith(("=", "+", "@"))
        if cell.startswith("-"):
            float(cell)


@pytest.mark.parametrize("runs", [[RUN], []], ids=["run", "nights"])
def test_pages_have_no_element_of_hostile_text(lightrig, results, runs):
    (page,) = json.loads(lightrig("report", *runs, "--json").stdout)
    assert_no_live_element(Path(page["page"]).read_text())


class _Hostile(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            identity = f"Keysight Technologies,N7745A,{HOSTILE},V1.18".replace("\r", "")
            reply = identity if b"IDN" in line else "0"
            self.wfile.write(reply.encode() + b"\n")


def test_an_instrument_s_identity_is_printed_as_text(tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Hostile) as server:
        threading.Thread(target=server.serve_forever, args=[0.01]).start()
        file = tmp_path / "lab.yaml"
        address = f"scpi://127.0.0.1:{server.server_address[1]}"
        file.write_text(
            "name: lab\nswitches: {ocs: {model: polatis, address: tl1://127.0.0.1:1, "
            "login: env:LAB_LOGIN, size: 8x8}}\ninstruments:\n"
            f"  meter: {{kind: power_meter, model: keysight-n7745a, address: '{address}', "
            "channels: 8}\n"
        )
        ended = CliRunner().invoke(application("doctor"), ["doctor", str(file), "--read-only"])
        server.shutdown()
    printed = ended.stdout + ended.stderr
    assert "evil.invalid" in printed, printed
    assert_harmless(printed)


@pytest.mark.parametrize("command", ["check", "plan", "doctor", "restore", "read", "night"])
def test_a_file_s_name_is_printed_as_text(command, tmp_path):
    file = tmp_path / HOSTILE.replace("/", "")
    more = ["ring"] if command == "plan" else []
    ended = CliRunner().invoke(application(command), [command, str(file), *more])
    assert ended.exit_code in {2, 3}
    assert_harmless(ended.stdout + ended.stderr)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_whatever_is_drawn_on_the_terminal_is_escaped(is_terminal, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    console = PlainConsole()
    console.file = stream
    table = Table(title=HOSTILE, caption=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    for drawn in (HOSTILE, Text(HOSTILE, "red"), table):
        console.print(drawn)
    with Progress(console=console, disable=not is_terminal) as progress:
        progress.add_task(HOSTILE)
    printed = stream.getvalue()
    assert printed.replace("\n", "").count("[link=http://evil.invalid]") >= 5
    for sequence in ("\x1b]0", "\x1b[2J", "\x9b", "\x07", "\u202e", "\x1b]8"):
        assert sequence not in printed


# ------------------------------------------------------------------ nothing prints by another way


def calls(folder, *words):
    """Return file, function and node of each call in files that have one of the words."""
    for file in sorted((ROOT / folder).rglob("*.py")):
        source = file.read_text()
        if words and not any(word in source for word in words):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call):
                yield file.relative_to(ROOT).as_posix(), ast.unparse(node.func), node


def test_commands_print_by_the_functions_that_escape():
    allowed = {"harness/cli/terminal.py"}
    found = [
        f"{file}:{node.lineno} {name}"
        for file, name, node in calls("harness")
        if name in {"typer.echo", "typer.secho", "click.echo", "Console", "rich.print"}
        and file not in allowed
    ]
    assert not found


def test_the_plugin_prints_escaped_text():
    found = [
        f"{file}:{node.lineno} {ast.unparse(node)}"
        for file, name, node in calls("harness/plugin")
        if name == "print" or name.endswith((".write_line", "reporter.write"))
        if "escape_control(" not in ast.unparse(node.args[0])
    ]
    assert not found


def test_pages_and_tables_escape_by_one_function():
    for folder, only, names in (
        ("harness", "harness/report/escaping.py", {"escape", "html.escape"}),
        ("harness", "harness/record/results.py", {"shown.to_csv", "frame.to_csv", "csv.writer"}),
    ):
        found = {file for file, name, _ in calls(folder, *names) if name in names}
        assert found <= {only}, found


def test_texts_of_a_table_are_no_formulas_and_numbers_stay_numbers():
    written = rows_as_csv(["a", "b"], [["=1+1", "-0.5"], ["@x\n", 3], ["-inf", "plain"]])
    assert written == "a,b\n'=1+1,-0.5\n'@x\\n,3\n'-inf,plain\n"
