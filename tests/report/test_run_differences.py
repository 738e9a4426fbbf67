"""What differed between two runs besides what they measured."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from runs.running import started
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.report.run_differences import structural_differences

FOLDER = Path(__file__).parents[2] / "testbeds"
FILES = [
    FOLDER / f"{name}.yaml" for name in ("opus", "mixnet", "namespaces", "railx", "infinitehbd")
]
RUNS = "20260101-020000-first", "20260102-020000-second"
LAB = """
name: lab
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 8x8}
servers:
  server[0-1]:
    address: "ssh://bench@{name}.invalid"
    nics:
      nic0: {ports: 2, netdev: "ens1f{p}", rate: 100G, transceiver: optics}
transceivers:
  optics:
    wavelength: 1310 nm
    launch: {min: -4.3 dBm, max: 4.5 dBm}
    receive: {min: -10.6 dBm, max: 4.5 dBm}
    damage: 5.5 dBm
fibers:
  - server[0-1].nic0.p[0-1] <-> ocs
plans:
  straight:
    - server[0].nic0.p[0-1] <-> server[1].nic0.p[0-1]
limits:
  insertion_loss: {max: 3 dB}
"""


def scalars(document: Any, path: str = "") -> list[tuple[dict[str, Any], str, str]]:
    """Return the place of each scalar below mappings: its mapping, its key and its path."""
    found = []
    for key, value in document.items() if isinstance(document, dict) else ():
        inner = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict):
            found += scalars(value, inner)
        elif not isinstance(value, list):
            found.append((document, key, inner))
    return found


@pytest.mark.parametrize("seed", range(30))
def test_each_edit_of_a_testbed_file_is_one_difference_and_nothing_else_is(seed: int) -> None:
    """A scalar has another value, one goes, a key comes, and so does a fiber; keys are shuffled."""
    draws = random.Random(seed)
    before = json.loads(json.dumps(yaml.safe_load(FILES[seed % len(FILES)].read_text())))
    after = copy.deepcopy(before)
    changed, removed, beside = draws.sample(scalars(after), 3)
    expected = {
        f"{changed[2]}: {changed[0][changed[1]]} → another",
        f"{removed[2]}: {removed[0][removed[1]]} is removed",
        f"{beside[2].removesuffix(beside[1])}new: {seed} is added",
        "fibers: a.1 -> b.2 is added",
    }
    changed[0][changed[1]] = "another"
    del removed[0][removed[1]]
    beside[0]["new"] = seed
    fibers = after["fibers"]
    fibers.insert(draws.randrange(len(fibers) + 1), "a.1 -> b.2")
    after = dict(draws.sample(list(after.items()), len(after)))
    assert set(structural_differences(before, after)) == expected


def test_a_document_differs_not_from_itself_in_another_order() -> None:
    one = {"a": [1, {"b": 2, "c": 3}], "d": None}
    same = {"d": None, "a": [1, {"c": 3, "b": 2}]}
    assert list(structural_differences(one, same)) == []
    assert list(structural_differences({"a": 1}, {"a": "1"})) == ["a: 1 → 1"]
    assert list(structural_differences({"a": [1, 2]}, {"a": [2, 1]})) == [
        "a: its entries have another order"
    ]


def test_compare_says_first_what_else_differed(tmp_path: Path) -> None:
    """The limit and a comment change from one run to the next, and the samples asked for."""
    results = tmp_path / "results"
    for number, (text, samples) in enumerate(
        [(LAB, "2"), (f"# a comment\n{LAB.replace('max: 3 dB', 'max: 2.5 dB')}", "3")], start=1
    ):
        file = tmp_path / "lab.yaml"
        file.write_text(text)
        # Empty, as a writer that was killed leaves it, and then with a card.
        known = 'known: {no-light/ocs.3: {because: LAB-123, until: "2999-01-01"}}' * (number - 1)
        (tmp_path / "lab.exceptions.yaml").write_text(known)
        arguments = (
            *("suites/test_insertion_loss.py", "-k", "every_circuit", "--testbed", file),
            *(
                "--instruments",
                "simulated",
                "--samples",
                samples,
                "--run-name",
                f"{RUNS[number - 1]}",
            ),
        )
        with started(arguments, results) as run:
            assert run.end().code == 0
    compared = CliRunner().invoke(
        application(), ["results", "compare", *RUNS, "--results", str(results)]
    )
    lines = compared.stdout.splitlines()
    differs = [line.removeprefix("differs: ") for line in lines if line.startswith("differs: ")]
    assert lines[: len(differs)] == [f"differs: {each}" for each in differs]
    assert "lab: testbed file, limits.insertion_loss.max: 3 dB → 2.5 dB" in differs
    entry = "{no-light/ocs.3: {because: LAB-123, until: 2999-01-01}}"
    assert [each for each in differs if each.startswith("lab: ")] == [
        "lab: testbed file, limits.insertion_loss.max: 3 dB → 2.5 dB",
        f"lab: exceptions, known: {entry} is added",
    ]
    (command,) = (each for each in differs if each.startswith("command: "))
    assert "--samples" in command or "..." in command
    again = CliRunner().invoke(
        application(), ["results", "compare", RUNS[0], RUNS[0], "--results", str(results)]
    )
    assert "differs: " not in again.stdout
