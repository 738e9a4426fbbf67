"""`lightrig claims`: every line and field of claims that differ in each respect."""

import importlib
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from lightrig.harness.claims.checking import CheckedClaim, ClaimResult
from lightrig.harness.claims.published import Claim, ClaimContext, Lookup, PrintedFigure
from lightrig.harness.claims.verdicts import Estimate
from lightrig.harness.cli.terminal import PlainConsole
from lightrig.harness.statistics.quantiles import NotEnough

COMMAND = importlib.import_module("lightrig.harness.claims.commands")
MS = 1_000_000
LOOKUP = Lookup("reconfiguration.acknowledged", None, "median", {}, "worst")
LONG = "reconfiguration/of/a/whole/fabric/without/any/space/in/its/name/until/the/very/end"


def claim(name, figure, **changes):
    given = {
        "statement": f"statement of {name}", "source": "§6", "note": None, "erratum": None,
        "difference": None, "unmeasured": None, "ours": None, "computed": None, "basis": None,
        "path": None, "tested": False, "same_as": None, "undecided": None, "tolerance": None,
        "line": 3,
    }  # fmt: skip
    return Claim(name, figure=figure, **{**given, **changes})


TIME = PrintedFigure("≈ 40 ms", 35 * MS, 45 * MS, "ns")
ELSEWHERE = ClaimContext("elsewhere:", "other", LOOKUP, False)
MEASURED = CheckedClaim(
    claim(
        "turnaround", TIME, ours=LOOKUP, note=LONG, path="of ports",
        tolerance=(0.05, "Boards differ."),
    ),
    Estimate(41 * MS, 39 * MS, 44 * MS, 1_234),
    "hardware",
    "2026-03-14",
    "agrees",
    "within it",
    rests_on="all ports",
    related=(
        ClaimResult(ELSEWHERE, Estimate(7 * MS, 6 * MS, 9 * MS, 2_345), "ns", True, "2026-03-15"),
        ClaimResult(ELSEWHERE, Estimate(8 * MS, 6 * MS, 9 * MS, 17), "ns", False, "2026-03-16"),
        ClaimResult(ELSEWHERE, NotEnough(3, 20), "ns", False, "2026-03-17"),
        ClaimResult(ELSEWHERE, None, "ns", False, None),
    ),
)  # fmt: skip
FEW = CheckedClaim(
    claim("wait", PrintedFigure("70 to 80 µs", 70_000, 80_000, "ns"), ours=LOOKUP),
    NotEnough(5, 1_020),
    "closure",
    "2026-03-14",
    "cannot tell",
    "too few",
)
EXACT = CheckedClaim(
    claim(
        "price", PrintedFigure("4", -math.inf, 4, "1"), computed="price", erratum="printed twice"
    ),
    Estimate(5, 5, 5, 1),
    "computed",
    None,
    "differs",
    "beyond",
)
DRAWN = CheckedClaim(
    claim("share", PrintedFigure("4", 3, 4, "1"), computed="share"),
    Estimate(3.5, 3.2, 3.9, 1),
    "emulated",
    None,
    "agrees",
    "within",
)
WRONG = CheckedClaim(
    claim("speed", PrintedFigure("3", 3, 3, "1"), computed="speed"),
    Estimate(7, 7, 7, 1),
    "computed",
    None,
    "differs",
    "far off",
)
EXPLAINED = replace(WRONG, claim=replace(WRONG.claim, difference="another model"))
NONE = CheckedClaim(
    claim("cost", PrintedFigure("9", 9, 9, "1"), unmeasured="later"),
    None, None, None, "not measured", "later",
)  # fmt: skip
SAME = CheckedClaim(
    claim("again", TIME, ours=LOOKUP, same_as="turnaround"),
    Estimate(41 * MS, 39 * MS, 44 * MS, 1_234), "hardware", "2026-03-14", "agrees", "as it",
)  # fmt: skip
CONSTANT = CheckedClaim(
    claim("ports", PrintedFigure("9", 9, 9, "1"), computed="ports", erratum="a slip"),
    Estimate(8, 8, 8, 1), "printed", None, "differs", "slip",
)  # fmt: skip
ALL = [MEASURED, FEW, EXACT, DRAWN, WRONG, NONE, SAME, CONSTANT]


def screen(monkeypatch, capsys, width, checked):
    # Both sizes, else a dumb terminal has 80 columns.
    console = PlainConsole(width=width)
    console.height, console.no_color = 50, True
    # To Rich a terminal, whatever it is; a console that was made before has no colours.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(COMMAND, "out", console)
    COMMAND.print_claims("A paper", checked)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_measured_claim_has_all_of_its_lines(monkeypatch, capsys):
    assert screen(monkeypatch, capsys, 70, [MEASURED]) == [
        "A paper",
        "",
        "turnaround  statement of turnaround                             agrees",
        "  published  ≈ 40 ms  (§6)",
        "  hardware   41.0 ms  39.0 … 44.0 ms, n = 1,234, 2026-03-14",
        "  why        within it",
        "  path       of ports",
        "  rests on   all ports",
        "  note       reconfiguration/of/a/whole/fabric/without/any/space/in/it",
        "             s/name/until/the/very/end",
        "  related    elsewhere: 7.0 ms (6.0 … 9.0 ms; n = 2,345; other,",
        "             something simulated)",
        "  related    elsewhere: 8.0 ms (6.0 … 9.0 ms; n = 17; other)",
        "",
        "Of 1 claims 1 have a value here and 1 agree; 1 were measured here and",
        "1 agree.",
        "  measured on hardware: 1 agrees",
    ]


def test_counted_claims_precede_the_table_of_uncounted_ones(monkeypatch, capsys):
    assert screen(monkeypatch, capsys, 90, ALL[1:]) == [
        "A paper",
        "",
        f"{'wait  statement of wait':<77}{'cannot tell':>13}",
        "  published  70 to 80 µs  (§6)",
        "  closure    1,020 needed, n = 5, 2026-03-14",
        "  why        too few",
        "",
        f"{'price  statement of price':<75}{'known erratum':>15}",
        "  published  4  (§6)",
        "  computed   5",
        "  why        beyond",
        "  erratum    printed twice",
        "",
        f"{'share  statement of share':<77}{'agrees':>13}",
        "  published  4  (§6)",
        "  emulated   3.50  3.20 … 3.90",
        "",
        f"{'speed  statement of speed':<77}{'differs':>13}",
        "  published  3  (§6)",
        "  computed   7",
        "  why        far off",
        "",
        f"{'cost  statement of cost':<77}{'not measured':>13}",
        "  published  9  (§6)",
        "  why        later",
        "",
        "Arithmetic, constants and repeated values, which do not count",
        "  claim                                      published  here     verdict",
        "  again  statement of again (as turnaround)  ≈ 40 ms    41.0 ms  agrees",
        "  ports  statement of ports (a slip)         9          8        known erratum",
        "",
        "Of 5 claims 4 have a value here and 1 agree; 0 were measured here and 0 agree.",
        "  closure: the simulation returns what it was given: 1 cannot tell",
        "  emulated: the system's control plane in virtual time: 1 agrees",
        "  computed: by a path that contains neither the figure nor the paper's formula: 1 known",
        "  erratum, 1 differs",
        "  no value: 1 not measured",
        "  outside the count, printed: arithmetic and constants of the paper: 1 agrees, 1 known",
        "  erratum",
    ]


def test_into_a_pipe_goes_each_field_of_each_claim(capsys):
    COMMAND.print_claims("A paper", ALL)
    assert [line.split("\t") for line in capsys.readouterr().out.splitlines()] == [
        ["turnaround", "agrees", "hardware", "≈ 40 ms", "41.0 ms", "39.0 … 44.0 ms", "1,234", "§6",
         "5%: Boards differ."],
        ["wait", "cannot tell", "closure", "70 to 80 µs", "", "1,020 needed", "5", "§6", ""],
        ["price", "known erratum", "computed", "4", "5", "", "", "§6", ""],
        ["share", "agrees", "emulated", "4", "3.50", "3.20 … 3.90", "", "§6", ""],
        ["speed", "differs", "computed", "3", "7", "", "", "§6", ""],
        ["cost", "not measured", "", "9", "", "", "", "§6", ""],
        ["again", "agrees", "hardware", "≈ 40 ms", "41.0 ms", "39.0 … 44.0 ms", "1,234", "§6", ""],
        ["ports", "known erratum", "printed", "9", "8", "", "", "§6", ""],
    ]  # fmt: skip


def test_the_document_of_a_measured_claim_has_all_of_its_values():
    head = {
        "claim": "turnaround", "says": "statement of turnaround", "published": "≈ 40 ms",
        "published_low": 35 * MS, "published_high": 45 * MS, "unit": "ns", "statistic": "median",
        "computed": None, "path": "of ports", "same_as": None, "counted": True,
        "tolerance": 0.05, "tolerance_reason": "Boards differ.", "value": 41 * MS,
        "lower": 39 * MS, "upper": 44 * MS, "n": 1_234, "kind": "hardware", "simulated": False,
        "night": "2026-03-14", "verdict": "agrees", "reason": "within it",
        "rests_on": "all ports", "source": "§6", "note": LONG, "erratum": None,
        "difference": None,
    }  # fmt: skip
    related = {"says": "elsewhere:", "testbed": "other", "unit": "ns"}
    beside = [
        {"ours": 7 * MS, "lower": 6 * MS, "upper": 9 * MS, "n": 2_345, "simulated": True,
         "night": "2026-03-15"},
        {"ours": 8 * MS, "lower": 6 * MS, "upper": 9 * MS, "n": 17, "simulated": False,
         "night": "2026-03-16"},
        {"ours": None, "lower": None, "upper": None, "n": 3, "simulated": False,
         "night": "2026-03-17"},
        {"ours": None, "lower": None, "upper": None, "n": None, "simulated": None, "night": None},
    ]  # fmt: skip
    assert COMMAND.document(MEASURED) == {
        **head,
        "beside": [{**related, **one} for one in beside],
    }


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (FEW, (None, None, None, 5, True, 70_000, 80_000)),
        (EXACT, (5, 5, 5, 1, False, None, 4)),
        (NONE, (None, None, None, None, None, 9, 9)),
    ],
)
def test_a_document_without_a_value_has_none_in_its_place(one, expected):
    found = COMMAND.document(one)
    names = ("value", "lower", "upper", "n", "simulated", "published_low", "published_high")
    assert tuple(found[name] for name in names) == expected
    assert (found["tolerance"], found["tolerance_reason"], found["beside"]) == (None, None, [])
    endless = COMMAND.document(CheckedClaim(one.claim, Estimate(2, 1, math.inf, 7), "hardware",
                                             None, "agrees", ""))  # fmt: skip
    assert (endless["lower"], endless["upper"]) == (1, None)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command on a file whose claims are `run.checked`; note the engine that computes."""
    file = tmp_path / "mine.yaml"
    file.write_text("")
    engines: list[tuple[object, ...]] = []
    published = SimpleNamespace(paper="A paper", path=file, system="mine")

    def engine(processes, scheduler, progress):
        progress(1_000, 2_000)
        engines.append((processes, scheduler))
        return "engine"

    class ComputedOn:
        def __init__(self, engine: object) -> None:
            assert engine == "engine"

        def __enter__(self) -> None:
            engines.append(("in use",))

        def __exit__(self, *_: object) -> None:
            engines.append(("over",))

    def check(given, results):
        assert given is published
        assert engines[-1] == ("in use",)
        return run.checked

    def write(path, given, checked, figures):
        assert (given, checked, figures) == (published, run.checked, [])
        path.write_text("page")

    parts = {
        "claims.checking.check_claims": check,
        "claims.page.write_claims": write,
        "claims.published.load_published": lambda path: published,
        "jobs.sweeps.Engine": engine,
        "jobs.sweeps.computed_on": ComputedOn,
    }
    for name, part in parts.items():
        module, _, attribute = name.rpartition(".")
        owner = importlib.import_module(f"lightrig.harness.{module}")
        monkeypatch.setattr(owner, attribute, part)
    app = typer.Typer()
    app.command()(COMMAND.claims)

    def run(*options):
        engines.clear()
        results = ("--results", str(tmp_path))
        return CliRunner().invoke(app, [str(file), *results, *map(str, options)])

    run.checked, run.engines = [MEASURED, EXACT], engines
    return run


@pytest.mark.parametrize(
    ("checked", "status"),
    [
        ([MEASURED, EXACT], 0),
        ([MEASURED, WRONG, EXACT], 1),
        ([WRONG, WRONG], 1),
        ([MEASURED, EXPLAINED], 0),
        ([EXPLAINED, WRONG], 1),
        ([NONE, CONSTANT], 0),
    ],
)
def test_one_that_contradicts_decides_the_status(run, checked, status):
    run.checked = checked
    assert run().exit_code == status
    assert run.engines == [(1, None), ("in use",), ("over",)]


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("127.0.0.1:8786", "tcp://127.0.0.1:8786"),
        ("tcp://127.0.0.1:8786", "tcp://127.0.0.1:8786"),
        ("tls://far.example:8786", "tls://far.example:8786"),
        ("tls://127.0.0.1:8786", "tls://127.0.0.1:8786"),
    ],
)
def test_a_scheduler_computes(run, given, used):
    assert run("--scheduler", given, "--processes", 3).exit_code == 0
    assert run.engines[0] == (3, used)


@pytest.mark.parametrize("given", ["10.1.2.3:8786", "tcp://far.example:8786"])
def test_a_scheduler_beyond_loopback_needs_tls(run, given):
    done = run("--scheduler", given)
    assert (done.exit_code, run.engines) == (2, [])
    assert "expected tls://HOST:PORT beyond loopback" in done.stderr


def test_the_page_is_named_after_the_lines(run, tmp_path):
    page = tmp_path / "claims.html"
    done = run("--html", page)
    assert (done.stderr.splitlines()[-1], page.read_text()) == (f"page  {page}", "page")
    done = run("--html", page, "--json")
    assert (done.stderr, done.exit_code) == ("", 0)
    (tmp_path / "mine.yaml").unlink()
    assert "no such file of published values" in run().stderr
