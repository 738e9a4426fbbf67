"""The nights page and `lightrig results compare` say the same of the same series, each morning."""

import json
import re
import shutil

import numpy as np
import pytest
from record.recorded import begin, context, description
from typer.testing import CliRunner

from lightrig.harness.cli.results import results as command
from lightrig.harness.record import Results, Row, settle, store_descriptions
from lightrig.harness.record.compaction import compact
from lightrig.harness.report.comparison import compare
from lightrig.harness.report.nights import write_nights

MS = 1_000_000
NIGHTS = [f"2026-03-{day:02}" for day in (1, 2, 3, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 19, 20)]
"""Sixteen nights, some days apart; those of few nights begin with the twelfth."""
STEPPED, DRIFTING, ODD, FEW = (
    "reconfiguration.signal_recovered",
    "reconfiguration.carrier_up",
    "reconfiguration.acknowledged",
    "outage.carrier",
)
FEW_FROM = 11
NO_CHANGE = {"unchanged", "cannot tell", "not enough data"}


def factor(quantity, night):
    """What the lab does: a step on the last three nights, a slow drift, one bad night."""
    if quantity == STEPPED:
        return 1.3 if night >= len(NIGHTS) - 3 else 1.0
    if quantity == DRIFTING:
        return 1.004**night
    return 1.6 if quantity == ODD and night == len(NIGHTS) - 1 else 1.0


def measure(results, night, *, rules="", seed=3, testbed="opus", date=None):
    """Record one night: uneven numbers of events, levels that scatter by 2 % between nights."""
    random = np.random.default_rng((seed, night))
    run, folder = f"{testbed}-{night:02}", results / "runs" / f"{testbed}-{night:02}"
    file = description(results.parent / f"lab of {run}")
    if rules:
        file.with_name("opus.baselines.yaml").write_text(rules)
    stored = store_descriptions({testbed: str(file)}, folder)
    journal = begin(results, run, date or NIGHTS[night], descriptions=stored)
    for quantity in (STEPPED, DRIFTING, ODD, FEW):
        level = 60 * MS * factor(quantity, night) * np.exp(random.normal(0, 0.02))
        count = int(random.integers(21, 45))
        if quantity == FEW and night < FEW_FROM:
            continue
        journal.append_many(
            context(testbed),
            [
                Row("ocs", quantity, value, value - MS, value + MS, "ns", event, {"event": event})
                for event, value in enumerate(
                    map(int, level * np.exp(random.normal(0, 0.05, count)))
                )
            ],
        )
    journal.close()
    settle(journal.path.parent)
    return run


@pytest.fixture(scope="module")
def all_but_the_last(tmp_path_factory):
    """The folder of all nights but the last one, and their runs."""
    results = tmp_path_factory.mktemp("nights") / "results"
    return results, [measure(results, night) for night in range(len(NIGHTS) - 1)]


@pytest.fixture
def recorded(all_but_the_last, tmp_path):
    """A copy of those nights for a test of its own, and their runs."""
    results, runs = all_but_the_last
    return shutil.copytree(results, tmp_path / "results"), [*runs]


def command_words(results, before, run):
    """Return the word of each series in the command's JSON, and its exit status."""
    made = CliRunner().invoke(command, ["compare", before, run, "--json", "--results", results])
    assert made.exit_code in {0, 1}, made.output
    return {
        (one["testbed"], one["quantity"], one["statistic"]): one["drift"]["outcome"]
        for one in json.loads(made.stdout)
    }, made.exit_code


def table_words(results, before, run):
    """Return the word of each series in the command's table, and its exit status."""
    made = CliRunner().invoke(
        command, ["compare", before, run, "--results", results], env={"COLUMNS": "300"}
    )
    _, *lines = [re.split(" {2,}", line.strip()) for line in made.stdout.splitlines()]
    return {
        (line[0].partition(" ")[0], line[2], "greatest" if "greatest" in line[3] else "median"): (
            re.sub(" (below|any).*", "", line[6])
        )
        for line in lines
        if len(line) == 7
    }, made.exit_code


def page_words(results):
    """Return the word of each series that the page's section of the last night names."""
    text = write_nights(results, results / "nights.html").read_text()
    section = re.search(r'id="last-night".*?</section>', text, re.DOTALL)
    words = {}
    for article in re.split("<article>", section[0] if section else "")[1:]:
        testbed = re.search(r"</time> (\w+)", article)[1]
        for part in re.split('<p class="ln-apart">', article)[1:]:
            word = re.search(r'class="ln-by">([^<]*)</b>', part)[1].partition(" since")[0]
            for item in re.findall(r"<li>.*?</li>", part, re.DOTALL):
                quantity = re.search(r">([a-z._]+)</a>", item)[1]
                statistic = "greatest" if "greatest of the night" in item else "median"
                words[testbed, quantity, statistic] = word
    return words


def compared(results, before, run):
    """Return the command's words; those of departed series are the page's, and no others."""
    words, status = command_words(results, before, run)
    departed = {key: word for key, word in words.items() if word not in NO_CHANGE}
    of_testbed = {key: word for key, word in page_words(results).items() if key[0] == run[:-3]}
    assert departed == of_testbed
    assert status == ("changed" in departed.values() or "guard broken" in departed.values())
    return words


def test_each_morning_both_say_the_same_of_every_series(tmp_path):
    """Of two testbeds; a run is judged by its own night and those before, also later on."""
    results = tmp_path / "results"
    runs, mornings = [], []
    for night in range(len(NIGHTS)):
        runs.append(measure(results, night))
        far = measure(results, night, testbed="mixnet", seed=4)
        if night >= 3:
            before = 0 if night < FEW_FROM else FEW_FROM
            mornings.append(compared(results, runs[before], runs[-1]))
            if night % 4 == 3:
                compared(results, f"mixnet-{before:02}", far)
    last = {quantity: word for (_, quantity, of), word in mornings[-1].items() if of == "median"}
    assert last[STEPPED] == "changed"
    assert last[ODD] == "departed, unconfirmed"
    assert last[DRIFTING] in {"unchanged", "cannot tell"}
    assert last[FEW] in NO_CHANGE
    stepped = [each["opus", STEPPED, "median"] for each in mornings[-3:-1]]
    assert stepped == ["departed, unconfirmed"] * 2
    assert not any("changed" in each.values() for each in mornings[:-1])
    for again in (-1, -2, -6):
        before = runs[0 if again == -6 else FEW_FROM]
        for said in (command_words, table_words):
            assert said(results, before, runs[again])[0] == mornings[again]


def test_what_is_compacted_or_chosen_is_judged_alike(recorded):
    results, runs = recorded
    runs.append(measure(results, len(NIGHTS) - 1))
    whole, _ = command_words(results, runs[FEW_FROM], runs[-1])
    chosen = compare(Results(results), runs[FEW_FROM], runs[-1], "reconfiguration.signal*")
    assert [one.drift.outcome for one in chosen] == [whole["opus", STEPPED, "median"]]
    numbers = compare(Results(results), runs[FEW_FROM], runs[-1])
    measure(results, 0, testbed="mixnet", date="2026-05-01")
    assert compact(str(results)).files
    assert compare(Results(results), runs[FEW_FROM], runs[-1]) == numbers


RULE = "quantities:\n  reconfiguration.signal_recovered: {%s}\n"


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        ("detect: 1.1", "changed"),
        ("detect: 1.6", "unchanged"),
        ("error: 0.000001 %", "cannot tell"),
        ("direction: down", "cannot tell"),
        ("min: 60", "not enough data"),
        ("guard: {max: 65 ms}", "guard broken"),
    ],
)
def test_a_rule_of_the_lab_reaches_both(recorded, rule, word):
    """Of a step by 1.3 the lab writes what matters, how sure it must be, and which way is worse."""
    results, runs = recorded
    runs.append(measure(results, len(NIGHTS) - 1, rules=RULE % rule))
    words = compared(results, runs[-5], runs[-1])
    assert words["opus", STEPPED, "median"] == word
