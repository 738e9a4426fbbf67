"""Figures of papers: what a person at the terminal gets, and what a broken input says."""

import csv
import json
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

from lightrig.harness.claims.commands import claims
from lightrig.harness.claims.figures import storing
from lightrig.harness.claims.published import load_published, published_files
from lightrig.harness.record import Results
from lightrig.harness.system_registry import installed_systems

FIGURES = """\
from lightrig.harness.claims.figures.curves import drawn_curve, exact_curve

def losses(scale=1):
    draws = [[0.01, 0.03, 0.02], [0.02, 0.05, 0.02], [0.03, 0.04, 0.02]]
    return [
        drawn_curve("ours", [1, 2, 4], draws, {"mean": [0.02, 0.03, 0.025]}),
        exact_curve("ideal", {1: 0.0, 2: 0.004 * scale, 4: 0.01 * scale}),
    ]

FIGURES = {"losses": losses, "prices": lambda: [exact_curve("price", {"small <1>": 3, "large": 7})]}
"""
INIT = """\
from pathlib import Path

from lightrig.harness.system_registry import System

SYSTEM = System(
    name="mine_fabric",
    title="Mine",
    published=Path(__file__).with_name("mine_fabric.yaml"),
    figures="mine_fabric.figures:FIGURES",
)
"""
PUBLISHED = """\
system: mine_fabric
paper: A paper of ours
testbed: bench
claims:
  loss-of-two:
    says: The loss of two hops.
    printed: 4 %
    holds: {from: 3.5 %, to: 4.5 %}
    source: §6
    unmeasured: no bench has it
"""
DECLARED = """\
system: mine_fabric
figures:
  "7":
    title: Loss by hops
    section: §6 Losses
    states: Losses of both, by the number of hops.
    panels:
      - title: all
        x: {title: hops}
        y: {title: loss, unit: share}
        series:
          - {computed: losses, with: {scale: 2}, basis: computed}
        printed:
          - {claim: loss-of-two, series: ours, at: {x: 2}}
          - {printed: 5 %, holds: {from: 4.95 %, to: 5.05 %}, source: §6.1, series: ideal,
             at: {x: 4}, difference: The paper counts connectors.}
        absent: {theirs: "no public data"}
    left_out: ["the inset, which has no scale"]
  "8":
    title: Prices
    section: §7 Costs
    panels:
      - title: by size
        x: {title: size}
        y: {title: price, unit: "1"}
        series: [{computed: prices, basis: printed}]
        printed:
          - {printed: "7", holds: {from: 7, to: 7}, source: Table 1, series: price, at: {x: large}}
      - title: paid
        x: {title: size}
        y: {title: price, unit: "1"}
        series:
          - rows: {series: paid, testbed: bench, quantities: {one: experts.step_speedup}}
            run: "pytest suites"
  "9":
    title: Time on the authors' machines
    section: §7 Costs
    not_drawn: measured on machines that nobody else has
"""


@pytest.fixture
def fabric(tmp_path, monkeypatch):
    """A system with declared figures, installed in a folder of its own."""
    package = tmp_path / "mine_fabric"
    package.mkdir()
    (package / "__init__.py").write_text(INIT)
    (package / "figures.py").write_text(FIGURES)
    (package / "mine_fabric.yaml").write_text(PUBLISHED)
    declared = package / "figures" / "mine_fabric.yaml"
    declared.parent.mkdir()
    declared.write_text(DECLARED)
    entry = tmp_path / "mine_fabric-1.dist-info"
    entry.mkdir()
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: mine_fabric\nVersion: 1\n")
    (entry / "entry_points.txt").write_text(
        "[lightrig.systems]\nmine_fabric = mine_fabric:SYSTEM\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    installed_systems.cache_clear()
    yield declared
    installed_systems.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine_fabric"]:
        del sys.modules[name]


def run(*arguments):
    app = typer.Typer()
    app.command()(claims)
    return CliRunner().invoke(app, ["mine_fabric", "--results", "none", *map(str, arguments)])


def files_in(folder):
    """Return all files below a folder but what Python has compiled there."""
    return sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)


def test_a_figure_has_its_series_printed_values_and_differences(fabric, tmp_path):
    target = tmp_path / "fig7.svg"
    ended = run("--figure", "7", "--output", target)
    assert ended.exit_code == 0, ended.output
    assert "ours, 2: printed 4 % (§6); ours 4.00 % (3.05 … 4.95 %): cannot tell." in ended.output, (
        ended.output
    )
    # (4.95 - 2) / 5 of the printed range, and the reason that is stated
    assert "differs, 59 % off the printed range. The paper counts connectors." in ended.output
    assert "Without theirs (all): no public data" in ended.output
    assert "Left out: the inset" in ended.output
    root = ElementTree.fromstring(target.read_text(encoding="utf-8"))
    texts = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"hops", "loss (%)", "ours (computed, n = 3)", "ideal (computed)"} <= set(texts)
    diamonds = [node for node in root.iter() if node.get("class", "").startswith("lr-print lr-k")]
    assert len(diamonds) == 2


def test_the_data_under_a_figure_is_csv(fabric, tmp_path):
    target = tmp_path / "fig7.csv"
    assert run("--figure", "7", "--output", target).exit_code == 0
    rows = list(csv.DictReader(target.read_text(encoding="utf-8").splitlines()))
    points = [row for row in rows if not row["printed"]]
    assert [(row["x"], row["y"]) for row in points if row["series"] == "ideal"] == [
        ("1", "0"),
        ("2", "0.008"),
        ("4", "0.02"),
    ]
    middle = next(row for row in points if row["series"] == "ours" and row["x"] == "2")
    assert float(middle["y"]) == pytest.approx(0.04)
    assert (middle["n"], middle["y_unit"]) == ("3", "share")
    assert 0.03 < float(middle["lower"]) < 0.04 < float(middle["upper"]) < 0.05
    printed = [row for row in rows if row["printed"]]
    assert [(row["printed"], row["source"], row["verdict"]) for row in printed] == [
        ("4 %", "§6", "cannot tell"),
        ("5 %", "§6.1", "differs"),
    ]


def test_all_figures_go_into_a_folder_grouped_by_section(fabric, tmp_path):
    folder = tmp_path / "drawn"
    assert run("--figures", "--output", folder).exit_code == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["fig7.csv", "fig7.svg", "fig8.csv", "fig8.svg", "figures.csv", "index.html"]
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert page.index("§6 Losses") < page.index("Figure 7.") < page.index("§7 Costs")
    assert page.index("§7 Costs") < page.index("Figure 8.") < page.index("Figure 9.")
    assert "Not drawn: measured on machines that nobody else has" in page
    assert "small &lt;1&gt;" in page
    assert "http" not in re.sub(r"http://www.w3.org/2000/svg", "", page.partition("<body")[2])


def test_figures_come_before_claims_in_the_page_of_claims(fabric, tmp_path):
    target = tmp_path / "claims.html"
    assert run("--html", target).exit_code == 0
    page = target.read_text(encoding="utf-8")
    assert page.index("Figure 7.") < page.index("<details><summary>Claims") < page.index("no bench")


def test_a_difference_without_a_reason_ends_with_1(fabric):
    fabric.write_text(DECLARED.replace("difference: The paper counts connectors.", ""))
    assert run("--figure", "7").exit_code == 1


def test_json_has_the_points(fabric):
    (found,) = json.loads(run("--figure", "8", "--json").output)
    (series,) = found["panels"][0]["series"]
    assert dict(zip(series["x"], series["y"], strict=True)) == {"small <1>": 3, "large": 7}
    assert found["panels"][0]["printed"][0]["verdict"] == "agrees"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--figure", "13"], "mine_fabric: no figure 13; there are: 7, 8, 9"),
        (["--figure", "7", "--output", "a.png"], "found '.png', expected one of .svg, .csv, .html"),
        (["--figure", "7", "--output", "no/a.svg"], "no/a.svg: cannot be written: no is no folder"),
        (["--figures", "--output", "file/in"], "file/in: cannot be made: Not a directory"),
        (["--figures"], "--figures: expected --output FOLDER beside it, and no --figure"),
        (["--output", "a.svg"], "--output: expected --figure NUMBER or --figures beside it"),
    ],
)
def test_wrong_requests_are_named_before_anything_is_computed(
    fabric, tmp_path, arguments, sentence
):
    (tmp_path / "file").write_text("")
    (fabric.parents[1] / "figures.py").write_text("FIGURES = {'losses': exit, 'prices': exit}\n")
    before = files_in(tmp_path)
    ended = run(*arguments)
    assert ended.exit_code == 2, ended.output
    assert sentence in ended.output
    assert ended.output.count("\n") == 1
    assert files_in(tmp_path) == before


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "computed: prices,",
            "computed: prizes,",
            "found 'prizes', but what draws figures is: losses",
        ),
        ("series: price,", "series: prize,", "found no series 'prize'; there are: price"),
    ],
)
def test_a_declaration_that_fits_nothing_leaves_no_file(fabric, tmp_path, old, new, sentence):
    fabric.write_text(DECLARED.replace(old, new))
    ended = run("--figures", "--output", tmp_path / "drawn")
    assert ended.exit_code == 3, ended.output
    assert sentence in ended.output
    assert not (tmp_path / "drawn").exists()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("claim: loss-of-two", "claim: loss-of-too", "found no claim 'loss-of-too'"),
        ("source: Table 1, ", "", "expected a `claim`, or `printed`, `holds` and `source`"),
        ("    not_drawn: measured on machines that nobody else has\n", "", "expected either"),
        (", basis: printed", "", "what is `computed` has a `basis`"),
    ],
)
def test_a_wrong_declaration_is_located(fabric, old, new, sentence):
    fabric.write_text(DECLARED.replace(old, new))
    ended = run("--figure", "8")
    assert ended.exit_code == 2
    assert sentence in ended.output
    assert "mine_fabric.yaml:" in ended.output


STORED = DECLARED.replace("basis: computed}", "basis: computed, stored: true}")


def store(tmp_path):
    published = load_published(published_files()["mine_fabric"])
    return storing.store(published, Results(tmp_path / "none"))


def test_a_stored_series_is_read_with_its_day(fabric, tmp_path):
    fabric.write_text(STORED)
    nothing = run("--figure", "7")
    assert nothing.exit_code == 3
    assert "figure 7/0/0: nothing is stored; `make figures` computes it" in nothing.output
    summary = json.loads(store(tmp_path).read_text(encoding="utf-8"))
    found = summary["figures"]["7"]
    assert (found["drawn"], found["compared"], found["agree"]) == (True, 2, 0)
    assert found["largest difference"] == pytest.approx((4.95 - 2) / 5)
    assert not summary["figures"]["9"]["drawn"]
    ended = run("--figure", "7")
    assert ended.exit_code == 0, ended.output
    assert re.search(r"Ours: computed: .*, \d{4}-\d\d-\d\d\.", ended.output)


def test_a_stored_series_of_changed_code_is_stale(fabric, tmp_path):
    fabric.write_text(STORED)
    store(tmp_path)
    functions = fabric.parents[1] / "figures.py"
    functions.write_text(FIGURES.replace("0.01 * scale", "0.02 * scale"))
    ended = run("--figures", "--output", tmp_path / "drawn")
    assert ended.exit_code == 3
    assert "was computed by other code; `make figures` computes it again" in ended.output
    assert not (tmp_path / "drawn").exists()
    assert run("--html", tmp_path / "claims.html").exit_code == 0
    page = (tmp_path / "claims.html").read_text(encoding="utf-8")
    assert "was computed by other code" in page
    assert "Figure 8. Prices" in page


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-40],
        lambda text: text.replace("0.004", "0.005").replace("0.008", "0.009"),
        lambda text: text.replace('"curves"', '"curve"'),
    ],
    ids=["cut", "changed", "renamed"],
)
def test_a_damaged_store_is_named(fabric, tmp_path, damage):
    fabric.write_text(STORED)
    store(tmp_path)
    file = fabric.with_suffix(".stored.json")
    text = file.read_text(encoding="utf-8")
    file.write_text(damage(text), encoding="utf-8")
    assert file.read_text(encoding="utf-8") != text
    ended = run("--figure", "7", "--output", tmp_path / "fig7.svg")
    assert ended.exit_code == 3
    assert "mine_fabric.stored.json is damaged" in ended.output
    assert ended.output.count("\n") == 1
    assert not (tmp_path / "fig7.svg").exists()


def test_a_printed_bound_is_drawn_where_the_declaration_marks_it(fabric, tmp_path):
    """4 % of at most 4.5 %, and the place at which a series reaches a share."""
    text = DECLARED.replace("at: {x: 2}}", "mark: 4 %, at: {x: 2}}").replace(
        "{printed: 5 %, holds: {from: 4.95 %, to: 5.05 %}, source: §6.1, series: ideal,",
        "{printed: '3', holds: {from: 2.9, to: 3.1}, source: §6.1, series: ideal,",
    )
    text = text.replace("at: {x: 4}, difference: The paper counts connectors.", "at: {y: 1.4 %}")
    fabric.write_text(text)
    target = tmp_path / "fig7.csv"
    ended = run("--figure", "7", "--output", target)
    assert ended.exit_code == 0, ended.output
    # Between 0.8 % at 2 and 2 % at 4 the series reaches 1.4 % in the middle.
    assert "ideal, 1.4 %: printed 3 (§6.1); ours 3: agrees." in ended.output
    rows = list(csv.DictReader(target.read_text(encoding="utf-8").splitlines()))
    assert [(row["x"], row["y"]) for row in rows if row["printed"]] == [
        ("2", "0.04"),
        ("3", "0.014"),
    ]


def test_a_terminal_without_utf_8_is_no_error(tmp_path):
    """A sign that the terminal lacks is in a title and a printed value."""
    command = [sys.executable, "-c", "from lightrig.harness.cli import main; main()"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ended = subprocess.run(
        [*command, "claims", "opus", "--figure", "9", "--results", str(tmp_path)],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert b"Figure 9. Time line of a reconfiguration" in ended.stdout
    assert b"Traceback" not in ended.stderr


def test_a_panel_that_no_run_has_measured_is_left_out_and_said(fabric, tmp_path):
    target = tmp_path / "8.svg"
    ended = run("--figure", "8", "--output", str(target))
    assert ended.exit_code == 0, ended.output
    assert "Without paid (paid): no run here measured it: pytest suites" in ended.output
    titles = [each.text for each in ElementTree.parse(target).iter() if each.text]
    assert "by size" in titles
    assert "paid" not in titles
