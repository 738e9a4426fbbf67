"""`lightrig restore`: what it prints, and its status, for states that differ in every respect."""

import importlib
import json
import os
import pwd
from dataclasses import replace
from types import SimpleNamespace

import pytest
from bench.served_lab import circuits, describe
from typer.testing import CliRunner

from lightrig.harness.bench.leftovers import Found, Leftover, Restoration, StateComparison
from lightrig.harness.bench.saved_state import (
    Origin,
    SavedCircuits,
    SavedSettings,
    SavedStateError,
)
from lightrig.harness.cli.app import application
from lightrig.testbeds import LightrigError

COMMAND = importlib.import_module("lightrig.harness.cli.restore")
ORIGIN = Origin(
    *("Polatis serial 1", "ocs", "Polatis, serial 1", "tl1://ocs.lab", "lab", "/lab.yaml"),
    *("run 1", "ann", "gate", "2026-03-14 02:00:00 UTC"),
)
CIRCUITS = SavedCircuits(
    ORIGIN,
    circuits("10>12", "2>11", "2>9"),
    {"1": "server0.nic0"},
    circuits("1>9"),
    circuits("11>13", "4>12"),
    changed="2026-03-14 02:05:00 UTC",
)
SETTINGS = SavedSettings(
    replace(ORIGIN, instrument="laser", identity="Keysight, serial 7", address="scpi://laser.lab"),
    {"emission 1": False, "power 1": -3.5},
    {"power 1": (-3.5, 1.5, 2.5)},
)
UNTOUCHED = SavedSettings(replace(ORIGIN, instrument="meter"), {}, {})
EMPTY = replace(CIRCUITS, found=frozenset(), after=frozenset(), changed="")
SAVED = "saved 2026-03-14 02:00:00 UTC by ann on gate, run 1, from"
TEXT = f"""\
ocs: {SAVED} Polatis, serial 1 at tl1://ocs.lab
  found     10>12, 2>11, 2>9
  last set  4>12, 11>13 (2026-03-14 02:05:00 UTC)
  now       3>9, 1>10
  differs   3>9 made by somebody else; 4>12 is missing
laser: {SAVED} Keysight, serial 7 at scpi://laser.lab
  found     emission 1 False, power 1 -3.5
  last set  power 1 2.5 (nothing was changed)
  now       it does not answer
  differs   no
meter: {SAVED} Polatis, serial 1 at tl1://ocs.lab
  found     nothing
  last set  nothing (nothing was changed)
  now       nothing
  differs   no
"""


class Saved:
    """Stands for the module that finds, restores and forgets; notes what it is asked for."""

    def __init__(self) -> None:
        self.left = [
            Leftover(state, name)
            for state, name in ((CIRCUITS, "ocs"), (SETTINGS, "light"), (UNTOUCHED, None))
        ]
        self.unused = [SavedStateError("one is of another account")]
        self.done = Restoration([CIRCUITS, SETTINGS])
        self.noted: list[object] = []

    def leftovers(self, testbed, owners):
        self.noted.append(("owners", testbed.name, owners))
        return Found(self.left, self.unused, "states")

    def forget(self, testbed, found):
        self.noted.append(("forget", testbed.name, found.left))

    def restore_left(self, testbed, found, *, force, keep_trying, notify):
        notify("waits for ocs")
        self.noted.append(("restore", testbed.name, found.left, force, keep_trying))
        return self.done

    def open_available(self, testbed, names, states, wait):
        self.noted.append(("open", testbed.name, names, states, wait))
        return {
            name: SimpleNamespace(name=name, close=lambda name=name: self.noted.append(name))
            for name in ("light", "ocs")
        }, {}

    def compare(self, bench, left):
        assert [each.name for each in left] == [bench.name]
        if bench.name == "ocs":
            differences = ["3>9 made by somebody else", "4>12 is missing"]
            return [StateComparison(left[0].state, ["3>9", "1>10"], differences)]
        return []


@pytest.fixture
def saved(monkeypatch):
    found = Saved()
    monkeypatch.setattr(COMMAND, "saved", found)
    return found


@pytest.fixture
def run(tmp_path, saved):
    file = describe(tmp_path)
    return lambda *options: CliRunner().invoke(
        application("restore"), ["restore", str(file), *map(str, options)]
    )


def test_what_was_saved_is_shown_beside_what_is_there(run, saved):
    compared = {"meter": StateComparison(UNTOUCHED, [], [])}
    compare = saved.compare
    saved.compare = lambda bench, left: [*compare(bench, left), *compared.values()]
    done = run("--show")
    assert (done.exit_code, done.stdout) == (0, TEXT)
    assert done.stderr == "one is of another account\n"
    name = "lab"
    assert saved.noted == [
        ("owners", name, []),
        ("open", name, {"ocs", "light"}, "states", 0),
        *("light", "ocs"),
    ]


def test_the_document_tells_what_does_not_answer_from_what_is_empty(run, saved):
    saved.left[2] = Leftover(EMPTY, "ocs2")
    ocs, laser, empty = json.loads(run("--show", "--json").stdout)
    assert ocs == {
        "switch": "ocs",
        # As text, since they are read by eye.
        "circuits": ["10>12", "2>11", "2>9"],
        "origin": f"{SAVED} Polatis, serial 1 at tl1://ocs.lab",
        "last_set": ["4>12", "11>13"],
        "changed": "2026-03-14 02:05:00 UTC",
        "now": ["3>9", "1>10"],
        "differences": ["3>9 made by somebody else", "4>12 is missing"],
    }
    assert (laser["now"], laser["differences"], laser["changed"]) == (None, [], None)
    assert laser["settings"] == {"emission 1": False, "power 1": -3.5}
    assert (empty["circuits"], empty["last_set"]) == ([], [])


def test_all_is_restored_and_only_what_is_not_used_is_a_problem(run, saved):
    done = run("--keep-trying", "2.5", "--force")
    assert done.exit_code == 3
    assert done.stdout == "ocs: 3 circuits restored, 2 removed\nlaser: 2 settings restored\n"
    assert done.stderr == "waits for ocs\none is of another account\n"
    assert saved.noted[-1] == ("restore", "lab", saved.left, True, 2_500_000_000)
    saved.unused = []
    done = run("--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)[0]["removed"] == ["11>13", "4>12"]
    assert json.loads(done.stdout)[1] == {
        "instrument": "laser",
        "settings": {"emission 1": False, "power 1": -3.5},
    }
    # As findings of a night have it: an instrument is tried again for a minute.
    assert saved.noted[-1][3:] == (False, COMMAND.RESTORE_TIME)


def test_conflicts_come_before_failures_which_decide_the_status(run, saved):
    saved.done.conflicts = ["3>9 was made by hand"]
    done = run()
    assert done.exit_code == 3
    saved.done.failures = {"laser": LightrigError("no reply")}
    done = run()
    assert done.exit_code == 6
    conflict, unused, wrong, why = done.stderr.splitlines()[1:]
    assert (conflict, unused, why) == (
        "3>9 was made by hand",
        "one is of another account",
        "  no reply",
    )
    assert wrong.startswith("NOT as found: laser; run `lightrig restore ")


def test_nothing_is_left(run, saved):
    saved.left = []
    done = run()
    assert (done.exit_code, done.stdout, done.stderr) == (3, "", "one is of another account\n")
    saved.unused = []
    assert run().stdout == "lab: nothing to restore\n"
    assert run("--forget").stdout == "lab: nothing to restore\n"
    assert run("--json").stdout == "[]\n"
    assert {one[0] for one in saved.noted} == {"owners"}


def test_what_is_forgotten_is_left_as_it_is(run, saved):
    done = run("--forget")
    assert done.exit_code == 3
    assert done.stdout.splitlines() == [
        "ocs: 3 circuits forgotten, and left as it is",
        "laser: 2 settings forgotten, and left as it is",
        "meter: 0 settings forgotten, and left as it is",
    ]
    assert saved.noted[-1] == ("forget", "lab", saved.left)


@pytest.mark.parametrize("options", [("--show", "--force"), ("--force", "--forget")])
def test_two_of_three_exclude_each_other(run, saved, options):
    done = run(*options)
    assert (done.exit_code, saved.noted) == (2, [])
    assert "exclude each other" in done.stderr


def test_an_account_is_a_number_or_a_name_and_for_root(run, saved, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    nobody = pwd.getpwnam("nobody").pw_uid
    for given, number in (("1234", 1234), ("nobody", nobody)):
        run("--owner", given, "--json")
        assert saved.noted[-2] == ("owners", "lab", [number])
    done = run("--owner", "no-such-account")
    assert (done.exit_code, "there is no account 'no-such-account'" in done.stderr) == (2, True)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "--owner is for root" in run("--owner", "1234").stderr
