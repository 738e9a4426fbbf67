"""The command line: what it prints, and its exit status."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import preloaded
import pytest
import typer
from typer.testing import CliRunner

from lightrig.harness.bench.saved_state import Origin, SavedCircuits, SavedStates
from lightrig.harness.cli import commands
from lightrig.harness.cli.app import application
from lightrig.testbeds import Circuit

ROOT = Path(__file__).parents[2]
OPUS = str(ROOT / "testbeds" / "opus.yaml")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    return lambda *arguments: CliRunner().invoke(application(), arguments)


def test_check_lists_the_parts(run):
    result = run("check", OPUS)
    assert result.exit_code == 0
    assert "no errors in testbed opus" in result.stdout
    assert "giant-ring (16 circuits, 8 links)" in re.sub(r"\s+", " ", result.stdout)


def test_check_as_json_is_one_list_of_objects(run):
    parts = json.loads(run("check", OPUS, "--json").stdout)
    assert {part["part"]: part["count"] for part in parts} == {
        "switches": 1,
        "servers": 4,
        "instruments": 0,
        "NIC ports": 16,
        "fibers": 32,
        "plans": 3,
        "limits": 2,
    }


def test_check_locates_every_error(run, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\nswitches: {}\nsize: 3\nfibres: []\n")
    result = run("check", str(file))
    assert result.exit_code == 2
    assert f"{file}:3:1:" in result.stderr
    assert f"{file}:4:1:" in result.stderr
    problems = json.loads(run("check", str(file), "--json").stdout)
    assert [(problem["line"], problem["column"]) for problem in problems] == [(3, 1), (4, 1)]


def test_check_reads_the_baselines_beside_the_file(run, tmp_path):
    path = tmp_path / "namespaces.yaml"
    path.write_text(Path(OPUS).with_name("namespaces.yaml").read_text())
    rules = tmp_path / "namespaces.baselines.yaml"
    rules.write_text("quantities: {reconfiguration.light_back: {min: 3}}\n")
    ended = run("check", str(path))
    assert ended.exit_code == 0
    assert "light_back' is 'reconfiguration.signal_recovered' now" in ended.stderr
    rules.write_text("quantities: {reconfiguration.los: {min: 0}}\n")
    ended = run("check", str(path))
    assert ended.exit_code == 2
    assert "namespaces.baselines.yaml:1:" in ended.stderr


def test_check_of_a_file_that_is_not_there(run, tmp_path):
    result = run("check", str(tmp_path / "none.yaml"))
    assert result.exit_code == 2
    assert "No such file" in result.stderr


def test_schema_is_the_committed_one(run):
    committed = json.loads((ROOT / "testbeds" / "schema.json").read_text())
    assert json.loads(run("schema").stdout) == committed


def test_restore_without_saved_state(run, tmp_path):
    (tmp_path / "state").mkdir()
    result = run("restore", OPUS)
    assert result.exit_code == 0
    assert "nothing to restore" in result.stdout


@pytest.fixture
def left(tmp_path):
    """A state that a killed run of opus has left."""
    found = frozenset({Circuit(1, 36)})
    where = Origin("Polatis 1", "ocs", "Polatis 1", "tl1://ocs.invalid", "opus", *"frun", "2026")
    states = SavedStates(tmp_path / "state")
    states.save(SavedCircuits(where, found, {}, found, found))
    return states


def test_restore_without_the_lab_says_not_as_found_and_keeps_the_state(run, left):
    result = run("restore", OPUS, "--keep-trying", "0")
    assert result.exit_code == 6
    assert "ocs at tl1://ocs.invalid" in result.stderr
    assert "NOT as found: ocs; run `lightrig restore" in result.stderr
    assert len(left.read_all()[0]) == 1


def test_a_saved_state_is_shown_without_the_lab(run, left):
    result = run("restore", OPUS, "--show")
    assert result.exit_code == 0
    assert "ocs: saved 2026 by u on n, r, from Polatis 1" in result.stdout
    assert "now       it does not answer" in result.stdout
    assert "1>36" in result.stdout


def test_a_saved_state_is_forgotten_without_the_lab(run, left):
    result = run("restore", OPUS, "--forget")
    assert result.exit_code == 0
    assert result.stdout == "ocs: 1 circuits forgotten, and left as it is\n"
    assert left.read_all() == ([], [])


def test_only_one_of_show_force_and_forget(run):
    result = run("restore", OPUS, "--force", "--forget")
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "place", "message"),
    [
        ("model: polatis,", "model: polatys,", "7:16", "polatys'; did you mean 'polatis'?"),
        ("{rerouting:", "{reroutng:", "7:117", "no option 'reroutng'; did you mean 'rerouting'?"),
        (
            "n.signal_recovered",
            "n.signal_recoverd",
            "51:3",
            "did you mean 'reconfiguration.signal_recovered'?",
        ),
    ],
)
def test_check_locates_misspelt_names(run, tmp_path, right, wrong, place, message):
    file = tmp_path / "opus.yaml"
    text = Path(OPUS).read_text().replace("file: opus/", f"file: {ROOT}/testbeds/opus/")
    assert right in text
    file.write_text(text.replace(right, wrong))
    result = run("check", str(file))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{file}:{place}: ")
    assert message in result.stderr


def test_check_lists_instruments(run):
    shown = run("check", str(ROOT / "testbeds" / "infinitehbd.yaml")).stdout
    assert "ber (bit error tester)" in shown
    assert re.search(r"^instruments +9  laser1 \(light source\), ", shown, re.MULTILINE)


def lightrig(*words):
    return preloaded.run(["lightrig", *words])


def test_help_lists_every_command_of_the_application():
    shown = lightrig("--help").stdout
    of_application = typer.main.get_command(application()).commands
    assert set(of_application) == set(commands())
    assert re.findall(r"^  (\w+) +[A-Z][^.]*\.$", shown, re.MULTILINE) == list(commands())


@pytest.mark.parametrize(
    "group",
    [
        "results",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("generate", "orchestrate")),
    ],
)
def test_help_of_a_group_cuts_no_summary(group, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    listed = lightrig(group, "--help").stdout.partition("Commands:")[2]
    summaries = re.split(r"^  \w+ +", listed, flags=re.MULTILINE)[1:]
    assert summaries
    assert all(" ".join(each.split()).endswith(".") for each in summaries)
    assert "..." not in listed


def test_version_is_the_installed_one():
    assert lightrig("--version").stdout == f"lightrig {importlib.metadata.version('lightrig')}\n"


def test_unknown_command_is_bad_use_with_a_suggestion():
    ended = lightrig("chek", OPUS)
    assert ended.returncode == 2
    assert "did you mean 'check'?" in ended.stderr


@pytest.mark.parametrize("word", ["run", "measure"])
def test_who_wants_to_measure_reads_what_to_type(word):
    ended = lightrig(word, OPUS)
    assert ended.returncode == 2
    assert "\n  pytest --pyargs lightrig.suites --testbed FILE" in ended.stderr


@pytest.mark.parametrize(
    ("words", "same_as"),
    [
        (["help"], ["--help"]),
        (["help", "plan"], ["plan", "--help"]),
        (["plan", "-h"], ["plan", "--help"]),
        (["results", "query", "-h"], ["results", "query", "--help"]),
    ],
)
def test_help_is_had_in_each_usual_way(words, same_as):
    ended, expected = lightrig(*words), lightrig(*same_as)
    assert (ended.returncode, ended.stdout) == (0, expected.stdout)
    assert "Usage: lightrig" in ended.stdout


OF_NIGHTS = ("duckdb", "networkx", "pandas", "pyarrow", "scipy")
"""Large libraries of results and of planning, without which a lab is checked and changed."""


@pytest.mark.parametrize(
    ("command", "absent"),
    [
        (["--help"], ["typer", "pydantic", "ruamel", "numpy"]),
        (["--version"], ["typer", "pydantic", "ruamel", "numpy"]),
        (
            ["check", OPUS],
            [
                "rich",
                "typer",  # no option is there to be read
                "numpy",
                "paramiko",
                "lightrig.instruments.simulated",
                "lightrig.instruments.wire.session",
                "lightrig.testbeds.exceptions_document",  # there is no such file
                "ssl",
                *OF_NIGHTS,
            ],
        ),
        (
            ["plan", OPUS, "east-west"],
            ["numpy", "paramiko", "lightrig.instruments.simulated", *OF_NIGHTS],
        ),
        (
            ["apply", OPUS, "east-west"],  # its addresses are placeholders: nothing answers
            ["numpy", "paramiko", "lightrig.instruments.simulated", *OF_NIGHTS],
        ),
        (
            ["results", "list", "--results", str(ROOT / "testbeds")],  # no run is there
            ["paramiko", "lightrig.instruments.simulated", *OF_NIGHTS],
        ),
        (
            ["orchestrate", "--help"],
            ["fastapi", "uvicorn", "duckdb", "networkx", "pandas", "paramiko", "pyarrow"],
        ),
        (
            ["serve", "--help"],
            [
                "asyncio",
                "numpy",
                "paramiko",
                "ruamel",
                "lightrig.instruments.simulated",
                *OF_NIGHTS,
            ],
        ),
    ],
)
def test_start_up_loads_no_library_that_the_command_does_not_use(command, absent):
    program = (
        "import sys\nfrom lightrig.harness.cli import main\n"
        "try: main()\nfinally: print(*sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=False
    )
    loaded = ended.stdout.splitlines()[-1].split()
    assert "lightrig.harness.cli" in loaded, ended.stderr
    assert not set(absent) & set(loaded)


def test_a_declaration_of_a_quantity_loads_no_bench():
    # Each `lightrig check` reads the quantities of all installed systems.
    program = "import sys\nfrom lightrig.api import Quantity, declare\nprint(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "scipy", "pandas", "duckdb", "networkx"} & set(ended.stdout.split())


@pytest.mark.parametrize(
    "module", ["lightrig.testbeds.errors", "lightrig.harness.record.rows_inspection"]
)
def test_what_needs_no_lab_loads_no_description_of_one(module):
    # A process is started for each inspection of rows that have no digest.
    program = f"import sys, {module}\nprint(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(ended.stdout.split())
    assert module in loaded
    assert not {"pydantic", "ruamel", "yaml", "pandas", "lightrig.testbeds.model"} & loaded


def test_ssh_loads_asyncio_only_where_a_configuration_runs_a_program():
    program = """
import sys
import lightrig.instruments.wire.ssh
assert not {"asyncio", "invoke.tasks", "unittest.mock"} & set(sys.modules)
import paramiko
lines = "Match exec true\\n  Port 77\\nMatch exec false\\n  User nobody\\n"
print(sorted(paramiko.SSHConfig.from_text(lines).lookup("ocs")), sys.modules["invoke"].__name__)
import invoke.tasks
print(invoke.tasks.Task.__name__)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "['hostname', 'port'] invoke\nTask\n"


def test_collected_suites_load_no_library_of_their_runs():
    suites = [f"suites/claims/test_{name}.py" for name in ("acos", "mixnet_training", "opus")]
    arguments = ["--collect-only", "-q", "-s", "-p", "no:cacheprovider", "--testbed", OPUS, *suites]
    program = f"import sys, pytest\npytest.main({arguments!r})\nprint(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(ended.stdout.splitlines()[-1].split())
    assert "lightrig.harness.systems.mixnet.runtime.training" in loaded
    libraries = {"duckdb", "httpx", "networkx", "pandas", "paramiko", "pyarrow", "rich"}
    assert not libraries & loaded
