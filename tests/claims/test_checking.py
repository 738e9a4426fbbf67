"""Claims looked up in results, and the command that does so."""

import json

import pytest
import typer
from typer.testing import CliRunner

from lightrig.harness.claims.checking import ClaimError, check_claims
from lightrig.harness.claims.commands import claims
from lightrig.harness.claims.published import load_published, published_files
from lightrig.harness.cli.terminal import PlainConsole
from lightrig.harness.record import Context, Journal, Results, Row, settle

MS = 1_000_000
YAML = """\
system: mine
paper: A paper of ours
testbed: bench
claims:
  turnaround:
    says: It takes so long.
    printed: ≈ 40 ms
    holds: {from: 35 ms, to: 45 ms}
    source: §6, Fig. 21
    ours: {quantity: reconfiguration.acknowledged, statistic: median, conditions: {moving: 4}}
  wait:
    says: From firmware to carrier.
    printed: 70 to 80 µs
    holds: {from: 70 us, to: 80 us}
    source: §7
    erratum: printed twice
    ours: {quantity: carrier_up, since: firmware_up, statistic: median, pick: turn}
  price:
    says: It costs so much.
    printed: "4"
    holds: {to: 4}
    source: Table 2
    unmeasured: computed
"""


@pytest.fixture
def lab(tmp_path):
    """Results, and what writes a run into them: rows by (subject, quantity, event, low, high)."""

    def lab(*rows, run="r1", night="2026-03-14", simulated=False, unit="ns", **held):
        path = tmp_path / "runs" / run / "journal.jsonl"
        path.parent.mkdir(parents=True)
        with Journal(path, {"run": run, "night": night}) as journal:
            for subject, quantity, event, low, high in rows:
                value = (low + high) // 2
                row = Row(subject, quantity, value, low, high, unit, 1, {"event": event})
                context = Context("bench", "test_it", ("ocs: x",), simulated, held)
                journal.append(context, row)
        settle(path.parent)

    return lab


@pytest.fixture
def check(tmp_path):
    """The claims of `YAML`, checked, by name."""

    def check(text=YAML):
        path = tmp_path / "mine.yaml"
        path.write_text(text)
        found = check_claims(load_published(path), Results(tmp_path))
        return {one.claim.name: one for one in found}

    return check


def acknowledged(milliseconds, events=20):
    return (
        ("bench", "reconfiguration.acknowledged", n, milliseconds * MS, milliseconds * MS + n)
        for n in range(events)
    )


def test_without_results_nothing_is_measured(check):
    assert {name: one.outcome for name, one in check().items()} == {
        "turnaround": "not measured",
        "wait": "not measured",
        "price": "not measured",
    }
    assert check()["price"].reason == "computed"


def test_rows_answer_where_their_conditions_hold(lab, check):
    lab(*acknowledged(41), moving=4)
    lab(*acknowledged(80), run="r2", moving=8)
    found = check()["turnaround"]
    assert (found.outcome, found.kind, found.night) == ("agrees", "hardware", "2026-03-14")
    assert found.value.n == 20
    assert found.value.value == pytest.approx(41 * MS, rel=1e-6)


def test_rows_of_another_testbed_answer_where_the_claim_names_it(lab, check):
    lab(*acknowledged(41), moving=4)
    elsewhere = YAML.replace("testbed: bench", "testbed: other")
    assert check(elsewhere)["turnaround"].outcome == "not measured"
    named = elsewhere.replace("ours: {quantity: rec", "ours: {testbed: bench, quantity: rec")
    assert check(named)["turnaround"].outcome == "agrees"


def test_values_beyond_the_tolerance_differ(lab, check):
    lab(*acknowledged(46), moving=4)
    assert check()["turnaround"].outcome == "differs"


def test_too_few_events_are_no_verdict(lab, check):
    lab(*acknowledged(41, events=5), moving=4)
    assert check()["turnaround"].outcome == "not enough data"


def test_the_last_night_answers(lab, check):
    lab(*acknowledged(80), moving=4)
    lab(*acknowledged(41), run="r2", night="2026-03-15", moving=4)
    assert (check()["turnaround"].outcome, check()["turnaround"].night) == ("agrees", "2026-03-15")


def test_hardware_speaks_before_any_simulation(lab, check):
    lab(*acknowledged(46), moving=4)
    lab(*acknowledged(41), run="r2", night="2026-03-15", simulated=True, moving=4)
    assert (check()["turnaround"].outcome, check()["turnaround"].kind) == ("differs", "hardware")


@pytest.mark.parametrize(
    ("clock", "kind", "verdict"),
    [("virtual", "closure", "recovered"), ("system", "namespaces", "agrees")],
)
def test_a_simulation_in_virtual_time_is_closure(lab, check, clock, kind, verdict):
    lab(*acknowledged(41), simulated=True, moving=4, clock=clock)
    found = check()["turnaround"]
    assert (found.outcome, found.kind, found.verdict) == ("agrees", kind, verdict)
    assert found.simulated


def waits(width):
    for event in range(20):
        for port in ("a", "b"):
            up = 3_000 * MS + event
            # Of two ports, b waits ten times as long; events take them in turn.
            wait = 75_000 if port == "a" else 750_000
            yield port, "firmware_up", event, up, up + width
            yield port, "carrier_up", event, up + wait, up + wait + width


def test_a_time_counts_from_another_one_port_an_event(lab, check):
    lab(*waits(width=0))
    found = check()["wait"]
    assert found.value.n == 20
    assert (found.value.lower, found.value.upper) == (75_000, 750_000)


def test_values_within_the_observers_uncertainty_are_no_agreement(lab, check):
    lab(*waits(width=MS))
    assert check()["wait"].outcome == "cannot tell"


def test_a_unit_that_does_not_fit_is_named(lab, check):
    lab(*acknowledged(41), unit="dB", moving=4)
    with pytest.raises(ClaimError, match="turnaround: the published figure is in ns"):
        check()


# ------------------------------------------------------------------------ the tolerance


def test_a_measured_value_has_one_percent_beyond_the_printed_digits(lab, check):
    lab(*acknowledged(45), moving=4)
    assert check()["turnaround"].outcome == "agrees"  # by 19 ns above 45 ms
    narrow = YAML.replace("to: 45 ms", "to: 44.5 ms")
    assert check(narrow)["turnaround"].outcome == "differs"  # 44.945 ms are 1 % more


def test_what_is_undecided_cannot_tell(lab, check):
    lab(*acknowledged(41), moving=4)
    undecided = YAML.replace(
        "    ours: {quantity: rec", "    undecided: the switch is another\n    ours: {quantity: rec"
    )
    one = check(undecided)["turnaround"]
    assert (one.outcome, one.reason) == ("cannot tell", "the switch is another")


# ---------------------------------------------------------------------- repeated values

SAME = """\
  again:
    says: It takes so long, once more.
    printed: ≈ 40 ms
    source: §7
    same_as: turnaround
"""


def test_a_repeated_value_has_the_verdict_of_the_other_and_does_not_count(lab, check):
    lab(*acknowledged(41), moving=4)
    one, again = (check(YAML + SAME)[name] for name in ("turnaround", "again"))
    assert (again.value, again.outcome, again.kind) == (one.value, "agrees", "hardware")
    assert (str(again.claim.figure), again.claim.figure.unit) == ("≈ 40 ms", "ns")
    assert (one.counted, again.counted) == (True, False)
    assert again.reason.startswith("The value of turnaround, which counts once.")


# ------------------------------------------------------------------------- the command


@pytest.fixture
def run(tmp_path):
    app = typer.Typer()
    app.command()(claims)
    path = tmp_path / "mine.yaml"
    path.write_text(YAML)
    options = ("--results", str(tmp_path))
    return lambda *arguments: CliRunner().invoke(app, [*(arguments or [str(path)]), *options])


@pytest.fixture
def terminal(monkeypatch):
    console = PlainConsole(width=80)
    console.height, console.no_color = 50, True
    # To Rich a terminal, whatever it is; a console that was made before has no colours.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("lightrig.harness.claims.commands.out", console)


def test_into_a_pipe_goes_one_line_a_claim(run, lab):
    lab(*acknowledged(41), simulated=True, moving=4)
    result = run()
    assert result.exit_code == 0
    assert [line.split("\t") for line in result.stdout.splitlines()] == [
        ["turnaround", "recovered", "closure", "≈ 40 ms", "41.0000 ms", "41.0000 … 41.0001 ms",
         "20", "§6, Fig. 21", ""],
        ["wait", "not measured", "", "70 to 80 µs", "", "", "", "§7", ""],
        ["price", "not measured", "", "4", "", "", "", "Table 2", ""],
    ]  # fmt: skip


def test_a_terminal_of_80_columns_shows_notes_errata_and_reasons(run, lab, terminal):
    lab(*acknowledged(41), simulated=True, moving=4)
    shown = run().stdout
    assert all(len(line) <= 80 for line in shown.splitlines())
    words = " ".join(shown.split())
    assert "turnaround It takes so long. recovered" in words
    assert "published ≈ 40 ms (§6, Fig. 21)" in words
    assert "closure 41.0000 ms 41.0000 … 41.0001 ms, n = 20, 2026-03-14" in words
    run_of = "`pytest suites --testbed testbeds/bench.yaml` records it, and with "
    run_of += "`--instruments simulated` what the file states of it."
    assert f"yet that answers it. No results of bench have carrier_up; {run_of} erratum" in words
    assert "why computed" in words
    assert "Of 3 claims 1 have a value here and 1 agree; 0 were measured here" in words
    assert "closure: the simulation returns what it was given: 1 recovered" in words
    assert "no value: 2 not measured" in words


def test_another_tolerance_shows_its_reason_also_where_it_agrees(lab, run, terminal, tmp_path):
    lab(*acknowledged(46), moving=4)
    wide = YAML.replace(
        "    ours: {quantity: rec",
        "    tolerance: {share: 5 %, reason: Boards differ by it.}\n    ours: {quantity: rec",
    )
    (tmp_path / "mine.yaml").write_text(wide)
    shown = " ".join(run().stdout.split())
    assert "It takes so long. agrees" in shown
    assert "why Ours is within the printed range and its tolerance of 5 %. Boards differ" in shown


def test_what_does_not_count_is_a_table_of_its_own(lab, run, terminal, tmp_path):
    lab(*acknowledged(41), moving=4)
    (tmp_path / "mine.yaml").write_text(YAML + SAME)
    counted, outside = " ".join(run().stdout.split()).split("which do not count")
    assert "once more" not in counted
    assert "again It takes so long, once more. (as ≈ 40 ms 41.0000 ms agrees turnaround)" in outside
    assert "Of 3 claims 1 have a value here and 1 agree; 1 were measured here" in outside
    assert "outside the count, printed: arithmetic and constants of the paper: 1 agrees" in outside


def test_a_claim_that_differs_exits_with_status_1(run, lab):
    lab(*acknowledged(46), moving=4)
    assert run().exit_code == 1


def test_a_known_erratum_is_no_failure(run, lab, tmp_path):
    lab(*acknowledged(46), moving=4)
    (tmp_path / "mine.yaml").write_text(
        YAML.replace("    ours: {quantity: rec", "    erratum: x\n    ours: {quantity: rec")
    )
    result = run()
    assert result.exit_code == 0
    assert result.stdout.startswith("turnaround\tknown erratum\thardware\t")


def test_as_json_it_is_a_list_of_objects(run, lab, tmp_path):
    lab(*acknowledged(41), moving=4)
    first, *rest = json.loads(run(str(tmp_path / "mine.yaml"), "--json").stdout)
    assert first["verdict"] == "agrees"
    assert (first["published_low"], first["published_high"]) == (35 * MS, 45 * MS)
    assert first["lower"] <= first["value"] <= first["upper"]
    assert (first["simulated"], first["kind"], first["n"]) == (False, "hardware", 20)
    assert [one["value"] for one in rest] == [None, None]
    assert rest[1]["published_low"] is None


def test_an_unknown_system_is_bad_use(run, tmp_path):
    result = run("nonesuch")
    assert result.exit_code == 2
    assert f"known are: {', '.join(published_files())}" in result.stderr
    (tmp_path / "mine.yaml").write_text("system: [")
    assert run(str(tmp_path / "mine.yaml")).exit_code == 2


def test_unreadable_results_end_with_status_3(run, tmp_path):
    bad = tmp_path / "rows" / "testbed=bench" / "night=2026-03-14" / "bad.parquet"
    bad.parent.mkdir(parents=True)
    bad.write_text("no")
    assert run().exit_code == 3


def test_the_page_never_shows_published_as_ours(run, lab, tmp_path):
    lab(*acknowledged(41), simulated=True, moving=4)
    page = tmp_path / "claims.html"
    assert run(str(tmp_path / "mine.yaml"), "--html", str(page)).exit_code == 0
    html = page.read_text()
    assert '<span class="lc-published">≈ 40 ms</span>' in html
    assert "✓ recovered" in html
    assert "✓ agrees" not in html
    assert "Erratum: printed twice" in html
    assert "http" not in html.partition("<body")[2]


def test_a_stage_of_the_whole_event_began_for_every_subject(lab, check):
    rows = [
        row
        for n in range(40)
        for row in (
            ("bench", "reconfiguration.acknowledged", n, n * MS, n * MS),
            ("server0.nic0", "carrier_up", n, (n + 75) * MS, (n + 75) * MS),
            ("server1.nic0", "carrier_up", n, (n + 77) * MS, (n + 77) * MS),
        )
    ]
    lab(*rows)
    found = check(YAML.replace("since: firmware_up", "since: reconfiguration.acknowledged"))["wait"]
    assert (found.value.value, found.value.n) == (76 * MS, 40)


# -------------------------------------------------------------------- related values

BESIDE = """\
    beside:
      - {says: "ten times the price:", testbed: bench, quantity: price.ratio, statistic: stated}
      - {says: "elsewhere:", testbed: other, quantity: price.ratio, statistic: median}
"""


def test_a_related_value_gives_no_verdict(lab, check):
    lab(("a / b", "price.ratio", 0, 38, 44), ("a / b", "price.ratio", 1, 39, 43), unit="1", n=7)
    price = check(YAML + BESIDE)["price"]
    assert (price.outcome, price.value, price.reason) == ("not measured", None, "computed")
    ours, elsewhere = price.related
    assert (ours.ours.value, ours.ours.lower, ours.ours.upper, ours.ours.n) == (41, 39, 43, 7)
    assert (ours.unit, ours.simulated, ours.night) == ("1", False, "2026-03-14")
    assert elsewhere.ours is None


def test_a_stated_value_has_a_number_of_samples(lab, check):
    lab(("a / b", "price.ratio", 0, 38, 44), unit="1")
    with pytest.raises(ClaimError, match=r"price\.ratio: its rows state no number"):
        check(YAML + BESIDE)


def test_related_values_are_marked_as_such_everywhere(run, lab, tmp_path, terminal):
    lab(("a / b", "price.ratio", 0, 39, 43), unit="1", n=7, simulated=True)
    page, file = tmp_path / "claims.html", str(tmp_path / "mine.yaml")
    (tmp_path / "mine.yaml").write_text(YAML + BESIDE)
    output = " ".join(run(file, "--html", str(page)).stdout.split())
    assert (
        "related ten times the price: 41.0 (39.0 … 43.0; n = 7; bench, something simulated)"
        in output
    )
    assert "elsewhere" not in output
    html = page.read_text()
    assert "Related: ten times the price:" in html
    assert "n = 7" in html
    assert "- not measured" in html
    price = json.loads(run(file, "--json").stdout)[-1]
    assert (price["value"], price["verdict"]) == (None, "not measured")
    assert [one["ours"] for one in price["beside"]] == [41, None]
    assert (price["beside"][0]["n"], price["beside"][0]["simulated"]) == (7, True)
