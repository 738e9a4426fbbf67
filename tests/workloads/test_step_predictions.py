"""The campaign that checks predicted steps: how its scripts are made to run more of them."""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.campaigns.step_predictions import longer, table

CAMPAIGNS = Path(__file__).parents[1] / "campaigns"
PRELUDES = ast.parse((CAMPAIGNS / "foreign_preludes.py").read_text("utf-8"))
FUNCTIONS = {node.name: node for node in PRELUDES.body if isinstance(node, ast.FunctionDef)}
LISTED = json.loads((CAMPAIGNS / "foreign_scripts.json").read_text("utf-8"))
MS = 1e6


def test_longer_arguments_replace_and_a_longer_prelude_follows() -> None:
    short = {"script": "a.py", "prelude": "import same", "arguments": ["--steps", "4"]}
    arguments, prelude = ["--steps", "90"], "same.more(90)"
    assert longer(short) == short
    more = {**short, "longer": {"arguments": arguments}}
    assert longer(more) == {**more, "arguments": arguments}
    more = {**short, "longer": {"prelude": prelude}}
    assert longer(more) == {**more, "prelude": "import same; same.more(90)"}
    assert more["prelude"] == "import same"
    assert longer({"longer": {"prelude": prelude}})["prelude"] == prelude


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry["script"])
def test_preludes_of_the_list_call_what_there_is(entry) -> None:
    """Each prelude is Python, and the functions that it takes from the common file are there."""
    prelude = longer(entry)["prelude"]
    ast.parse(prelude)
    assert set(re.findall(r"\bsame\.(\w+)", prelude)) <= FUNCTIONS.keys()


def test_a_script_counts_further_where_it_counts_its_steps_alone() -> None:
    """Without PyTorch, which the other preludes import."""
    names: dict[str, Callable] = {"Callable": Callable}
    module = ast.Module([FUNCTIONS["counting"]], type_ignores=[])
    exec(compile(module, "foreign_preludes.py", "exec"), names)
    counted = names["counting"](10, 300)
    assert len(counted(10)) == 300
    assert list(counted(9)) == list(range(9))
    assert list(counted(2, 10)) == list(range(2, 10))
    assert list(counted(0, 10, 5)) == [0, 5]


def test_the_median_of_three_rounds_is_judged_by_the_first_prediction() -> None:
    """Ten scripts: eight inside, one too wide (26 %), and one 31 % below: enough."""

    def rounds(name, predicted, *measured):
        found = [{"script": name, "round": n, "measured": m * MS} for n, m in enumerate(measured)]
        found[0]["predicted"] = [each * MS for each in predicted]
        found[1]["predicted"] = [1.0, 1.0, 1.0]
        return found

    done = [
        line
        for number in range(8)
        for line in rounds(f"{number}.py", (100, 75, 125), 40, 124 - number, 300)
    ]
    done += rounds("wide.py", (100, 74, 126), 100, 100, 100)
    assert table(done)[1] is True  # eight of nine
    done += rounds("below.py", (13.6, 10.8, 16.3), 9.6, 9.3, 7.4)
    printed, enough = table(done)
    assert enough
    assert printed[-1] == "8 of 10 inside narrow intervals"
    assert "TOO WIDE" in printed[-3]
    assert "OUTSIDE" in printed[-2]
    assert not table([*done, *rounds("above.py", (10, 8, 12), 13, 13, 11)])[1]


def test_what_a_cut_run_predicted_is_not_compared() -> None:
    """Its first round was cut behind its prediction, and repeated."""
    cut = {"script": "a.py", "round": 0, "predicted": [50 * MS, 40 * MS, 60 * MS]}
    again = {**cut, "predicted": [100 * MS, 80 * MS, 120 * MS]}
    measured = [{"script": "a.py", "round": n, "measured": (90 + n) * MS} for n in range(3)]
    assert not table([cut])[1]
    printed, enough = table([cut, again, *measured])
    assert enough
    assert "100.0 (80.0 to 120.0) ms" in printed[1]
