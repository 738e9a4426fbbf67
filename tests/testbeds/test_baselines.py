"""Baselines files: rules by name and pattern, and mistakes found where they stand."""

import json
import re
from pathlib import Path

import pytest

from lightrig import testbeds
from lightrig.harness.quantities.registry import names_in_files
from lightrig.testbeds import TestbedError, load
from lightrig.testbeds.baselines import (
    Guard,
    Rule,
    RuleError,
    baselines_path,
    baselines_schema,
    load_baselines,
)

HOME = Path(testbeds.__file__).resolve().parent


@pytest.fixture
def read(tmp_path):
    def read(text):
        path = tmp_path / "mine.baselines.yaml"
        path.write_text(text, encoding="utf-8")
        return load_baselines(path, names_in_files())

    return read


def test_the_file_stands_beside_the_testbeds():
    assert baselines_path(Path("lab/mine.yaml")) == Path("lab/mine.baselines.yaml")
    assert baselines_path(Path("lab.d/mine.yml")) == Path("lab.d/mine.baselines.yml")


def test_a_rule_with_everything(read):
    found = read(
        "family_error: 2 %\n"
        "correction: none\n"
        "quantities:\n"
        "  outage.carrier:\n"
        "    {error: 0.1 %, min: 100, nights: 20, direction: up,\n"
        "     effect: difference, guard: {max: 5 s, min: 1 ms}, ratio: 10}\n"
    )
    assert (found.family_error, found.correction) == (0.02, "none")
    assert found.rule_for("outage.carrier") == Rule(
        quantity="outage.carrier",
        error=0.001,
        minimum=100,
        nights=20,
        direction="up",
        effect="difference",
        guard=Guard(5_000_000_000, 1_000_000, "ns"),
        ratio=10,
        line=4,
        column=3,
    )


def test_unstated_keys_have_defaults(read):
    found = read("quantities: {outage.carrier: {}}")
    assert (found.family_error, found.correction) == (None, "bonferroni")
    rule = found.rule_for("outage.carrier")
    assert rule == Rule("outage.carrier", line=1, column=14)
    assert (rule.error, rule.minimum, rule.nights) == (0.01, 1, 20)


def test_what_a_rule_chooses_no_more_is_accepted_and_noted(read):
    found = read("correction: holm\nquantities:\n  outage: {min: 3, test: rank}\n")
    assert (found.correction, found.rule_for("outage").minimum) == ("bonferroni", 3)
    test, correction = found.notes
    assert "mine.baselines.yaml:3:20: 'test' chooses nothing since version 0.2" in test
    assert "mine.baselines.yaml:1:13: 'holm' is read as 'bonferroni'" in correction
    with pytest.warns(DeprecationWarning, match="chooses nothing since version 0.2"):
        assert Rule(test="interval").minimum == 1


def test_the_nearest_rule_holds(read):
    found = read(
        "quantities:\n"
        "  outage: {min: 4}\n"
        "  '*': {min: 1}\n"
        "  reconfiguration.*: {min: 2}\n"
        "  reconfiguration.signal_recovered: {min: 3}\n"
        "  reconfiguration.signal_recovered.*: {min: 5}\n"
    )
    for quantity, minimum in {
        "reconfiguration.signal_recovered": 3,
        "reconfiguration.signal_recovered.of_one": 5,
        "reconfiguration.carrier_up": 2,
        "reconfigurations": 1,
        "outage": 4,
        "outage.carrier": 1,
    }.items():
        assert found.rule_for(quantity).minimum == minimum, quantity
    assert read("quantities: {outage.*: {}}").rule_for("outage") is None


def test_decibels_are_compared_by_difference(read):
    found = read("quantities: {'*': {}, sensitivity: {effect: ratio}}")
    assert found.rule_for("insertion_loss").in_unit("dB").effect == "difference"
    assert found.rule_for("sensitivity").in_unit("dBm").effect == "ratio"
    assert found.rule_for("outage.carrier").in_unit("ns").effect == "ratio"


def test_a_fifth_half_a_decibel_or_what_is_stated_must_be_seen(read):
    found = read("quantities: {'*': {}, outage.carrier: {detect: 1.5}}")
    usual, stated = found.rule_for("insertion_loss"), found.rule_for("outage.carrier")
    assert [usual.in_unit(unit).detect for unit in ("ns", "dB", "dBm")] == [1.2, 0.5, 0.5]
    assert usual.in_unit("°C").detect == float("inf")
    assert stated.in_unit("ns").detect == 1.5
    with pytest.raises(TestbedError, match="expected more than 1"):
        read("quantities: {outage.carrier: {detect: 0.9}}")


def test_a_former_name_is_read_as_the_present_one(read):
    found = read("quantities: {reconfiguration.light_back: {min: 3}}")
    assert found.rule_for("reconfiguration.signal_recovered").minimum == 3
    (note,) = found.notes
    assert "mine.baselines.yaml:1:14: 'reconfiguration.light_back' is" in note
    assert "'reconfiguration.signal_recovered' now" in note


def test_a_former_name_beside_the_present_one_is_refused(read):
    with pytest.raises(TestbedError, match="which has a rule as well"):
        read(
            "quantities: {reconfiguration.light_back: {min: 3}, "
            "reconfiguration.signal_recovered: {min: 4}}"
        )


MISTAKES = [
    ("quantities:\n  outage: {nigths: 10}", 2, 12, "unknown key 'nigths'; did you mean 'nights'?"),
    ("quantities: {Outage: {}}", 1, 14, "found the quantity 'Outage'"),
    ("quantities: {out*: {}}", 1, 14, "found the quantity 'out*'"),
    ("quantities:\n  outage: {error: 0 %}", 2, 19, "found an error of 0"),
    ("quantities:\n  outage: {error: 0.01}", 2, 19, "expected a percentage"),
    ("quantities:\n  outage: {min: 0}", 2, 17, "expected at least 1"),
    ("quantities:\n  outage: {nights: 4}", 2, 20, "expected at least 5"),
    ("quantities:\n  outage: {test: t}", 2, 18, "expected 'rank' or 'interval'"),
    ("quantities:\n  outage: {ratio: 0.5}", 2, 19, "expected more than 1"),
    ("quantities:\n  outage.carrier: {guard: {max: 3 dB}}", 2, 33, "expected a duration"),
    ("quantities:\n  gain: {guard: {max: few}}", 2, 23, "expected a value with its unit"),
    ("quantities:\n  outage: {guard: {}}", 2, 19, "found no bound"),
    ("quantities:\n  gain: {guard: {max: 3 dB, min: 1}}", 2, 17, "expected one unit"),
    ("quantities: {outage: {}}\nfamily_error: 100 %", 2, 15, "expected e.g. 5 %"),
    ("quantities: {outage: {}}\ncorrection: half", 2, 13, "expected 'bonferroni'"),
    ("correction: holm", 1, 1, "the key 'quantities' is missing"),
    ("quantities:\n  outage: {}\n  outage: {}", 3, 3, "is given twice"),
    ("quantities:", 1, 1, "found nothing after 'quantities'"),
]


@pytest.mark.parametrize(("text", "line", "column", "message"), MISTAKES)
def test_a_mistake_is_found_where_it_is(read, text, line, column, message):
    with pytest.raises(TestbedError) as caught:
        read(text)
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == (line, column), str(problem)
    assert message in problem.message


def test_all_mistakes_are_found_at_once(read):
    with pytest.raises(TestbedError) as caught:
        read("quantities:\n  a: {error: 0 %}\n  b: {guard: {max: x}}\nfamily_error: 0 %")
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4]


def test_missing_file_is_reported(tmp_path):
    with pytest.raises(TestbedError, match=r"none\.yaml:1:1: cannot be read"):
        load_baselines(tmp_path / "none.yaml")


@pytest.mark.parametrize("name", ["opus", "namespaces"])
def test_guards_of_the_shipped_files_have_the_unit_of_their_limits(name):
    path = HOME / f"{name}.yaml"
    found = load_baselines(baselines_path(path), names_in_files())
    for limit in load(path, quantities=names_in_files()).limits.values():
        rule = found.rule_for(limit.quantity)
        assert rule is None or rule.guard is None or rule.guard.unit == limit.unit


def test_the_schema_helps_an_editor():
    rule = baselines_schema()["$defs"]["RulePart"]["properties"]
    assert re.search(rule["error"]["pattern"], "1 %")
    assert '"type": "null"' not in json.dumps(baselines_schema())


def test_a_rule_is_checked_wherever_it_is_made():
    with pytest.raises(RuleError, match="expected up to 50 %"):
        Rule(error=0.7)
