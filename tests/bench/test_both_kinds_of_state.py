"""Circuits and settings are saved, compared and restored alike: the same scenes for both kinds.

A switch passes the light of a laser to an attenuator; all are served on loopback. A process that
is killed with SIGKILL leaves them changed, and `lightrig restore` is what a person runs then.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import preloaded
import pytest
from bench.accounts import EVE, needs_accounts
from click.testing import Result
from typer.testing import CliRunner

from lightrig.harness.bench import Bench, Fabric, bind_only
from lightrig.harness.bench.lab_folder import LabFolderError
from lightrig.harness.bench.lease import Lease, LeaseLostError
from lightrig.harness.bench.restoring import NotRestoredError
from lightrig.harness.bench.saved_state import SavedStates, StateConflictError
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.harness.cli.app import application
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.capabilities import Identity
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.simulated.devices import simulated_keysight_n7776c
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Circuit, load

FILE = """
name: bench
switches:
  ocs: {{model: polatis, address: "{ocs}", login: env:LAB_OCS, size: 4x4}}
instruments:
  laser: {{kind: light_source, model: keysight-n7776c, address: "{laser}", launch: {{max: 3 dBm}}}}
  voa: {{kind: attenuator, model: keysight-n7764a, address: "{voa}", channels: 2}}
fibers:
  - laser -> ocs.1
  - ocs.[5-6] -> voa.[1-2]
  - voa.1 -> ocs.2
plans:
  one: {{circuits: {{ocs: ["1>5"]}}}}
  two: {{circuits: {{ocs: ["1>6"]}}}}
"""
PLACES = {
    "ocs": "tl1://ocs.invalid",
    "laser": "scpi://laser.invalid",
    "voa": "scpi://voa.invalid",
}
FOUND = {"ocs": {Circuit(1, 5)}, "voa": 0.0, "laser": False}
LEFT = {"ocs": {Circuit(1, 6)}, "voa": 7.0, "laser": True}
"""What the killed run has made of it."""

OPEN = """
import os, signal, sys
from lightrig.harness.bench import Fabric, bind_only
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.testbeds import load
bench = bind_only(load(sys.argv[1]), {"ocs", "laser", "voa"}, "a run")
SavedInstruments(bench).save_initial_state()
fabric = Fabric(bench)
fabric.save_initial_state()
"""
CHANGE = """
bench.instruments["voa"].set_attenuation(1, 7.0)
fabric.apply(fabric.plans["two"])
bench.instruments["laser"].set_emission(1, on=True)
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)\n"
RESTORE = """
import os, signal, sys
from lightrig.harness.bench import leftovers
from lightrig.harness.bench.interlocks import Interlocks
from lightrig.harness.cli.app import application
leftovers.SETTLING = -1
"""
AT_A_SETTING = """
check = Interlocks.check_setting
def counted(*given, calls=[]):
    calls.append(given)
    if len(calls) == 2:  # the laser is off, the attenuation is to be set
        os.kill(os.getpid(), signal.SIGKILL)
    check(*given)
Interlocks.check_setting = counted
"""
AT_A_CIRCUIT = """
from lightrig.instruments.switches.polatis import Polatis
change = Polatis.change
def cut(self, remove, add):
    change(self, remove, ()).done()
    os.kill(os.getpid(), signal.SIGKILL)
Polatis.change = cut
"""
RUN_IT = "application('restore')(['restore', sys.argv[1]])\n"
OF_BOTH_KINDS = pytest.mark.parametrize("part", ["ocs", "voa"], ids=["circuits", "settings"])


class Lab:
    """The served lab, and what a person and a run do with it."""

    def __init__(self, folder: Path, clock: SystemClock) -> None:
        self.file, self.states = folder / "bench.yaml", folder / "state"
        self.file.write_text(FILE.format(**PLACES))
        self.world = SimulatedLab(load(self.file), clock, 1)
        self.places = {name: self.world.services[name].address for name in PLACES}
        self.file.write_text(FILE.format(**self.places))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Bench]:
        with contextlib.closing(bind_only(load(self.file), set(PLACES), "a test")) as bench:
            yield bench

    def set(self, **wanted: Any) -> None:
        """Set parts as a person does at their front panels."""
        with self.opened() as bench:
            instruments: Any = bench.instruments
            if "ocs" in wanted:
                switch, circuits = bench.switches["ocs"], frozenset(wanted["ocs"])
                present = switch.circuits()
                switch.change(present - circuits, circuits - present).done()
            if "voa" in wanted:
                instruments["voa"].set_attenuation(1, wanted["voa"])
            if "laser" in wanted:
                instruments["laser"].set_emission(1, on=wanted["laser"])

    @property
    def now(self) -> dict[str, Any]:
        with self.opened() as bench:
            instruments: Any = bench.instruments
            return {
                "ocs": set(bench.switches["ocs"].circuits()),
                "voa": instruments["voa"].attenuation(1),
                "laser": instruments["laser"].emission(1),
            }

    def killed(self, script: str) -> None:
        """Let a process do something until it ends by SIGKILL."""
        done = preloaded.run(["python", "-c", script, self.file])
        assert done.returncode == -9, done.stdout + done.stderr

    def abandoned(self) -> None:
        """Change everything as a run that ends without restoring anything."""
        with self.opened() as bench:
            SavedInstruments(bench).save_initial_state()
            fabric = Fabric(bench)
            fabric.save_initial_state()
            instruments: Any = bench.instruments
            instruments["voa"].set_attenuation(1, 7.0)
            fabric.apply(fabric.plans["two"])
            instruments["laser"].set_emission(1, on=True)

    def state_of(self, part: str) -> Path:
        kind = "circuits" if part == "ocs" else f"settings.{part}"
        (path,) = self.states.glob(f"*.{kind}.found.json")
        return path

    def restore(self, *options: str) -> Result:
        arguments = ["restore", str(self.file), "--keep-trying", "0", *options]
        return CliRunner().invoke(application("restore"), arguments)

    def assert_as_found(self) -> None:
        assert self.now == FOUND
        assert list(self.states.glob("*.found.json")) == []


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_is_carried_out: None) -> Iterator[Lab]:
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(simulated_keysight_n7776c, "LASER_ON", 10_000_000)  # in real time
    with contextlib.closing(SystemClock()) as clock:
        served = Lab(tmp_path, clock)
        monkeypatch.setenv("LAB_OCS", ":".join(served.world.services["ocs"].login))
        try:
            served.set(**FOUND)
            yield served
        finally:
            served.world.close()


# -------------------------------------------------------------------------------- kills


def test_killed_between_saving_and_changing_nothing_differs(lab: Lab) -> None:
    lab.killed(OPEN + KILL)
    shown = lab.restore("--show", "--json")
    assert [row["differences"] for row in json.loads(shown.stdout)] == [[], [], []]
    done = lab.restore()
    assert (done.exit_code, done.stderr) == (0, "")
    assert "ocs: 1 circuits restored" in done.stdout
    assert re.search(r"voa: \d+ settings restored", done.stdout)
    lab.assert_as_found()


def test_killed_after_changing_all_is_as_found(lab: Lab) -> None:
    lab.killed(OPEN + CHANGE + KILL)
    assert lab.now == LEFT
    assert lab.restore().exit_code == 0
    lab.assert_as_found()


@pytest.mark.parametrize(
    "cut", [AT_A_SETTING, AT_A_CIRCUIT], ids=["at a setting", "amid the circuits"]
)
def test_killed_while_restoring_the_next_restore_ends_it(lab: Lab, cut: str) -> None:
    lab.killed(OPEN + CHANGE + KILL)
    lab.killed(RESTORE + cut + RUN_IT)
    assert lab.now not in (FOUND, LEFT)
    assert lab.now["laser"] is False  # light that was found off ends first
    done = lab.restore()
    assert (done.exit_code, done.stderr) == (0, "")
    lab.assert_as_found()


def test_a_run_after_a_kill_restores_what_was_found_before_the_kill(lab: Lab) -> None:
    lab.killed(OPEN + CHANGE + KILL)
    with lab.opened() as bench:
        kinds = (SavedInstruments(bench), Fabric(bench))
        for kind in kinds:
            kind.save_initial_state()
        for kind in kinds:
            kind.restore()
    lab.assert_as_found()


def test_light_comes_back_after_everything_that_lowers_it(lab: Lab) -> None:
    """Found: a laser that is on, behind 20 dB. The run has left it off, and the 20 dB away."""
    lab.set(voa=20.0, laser=True)
    sent: list[tuple[str, float]] = []
    with lab.opened() as bench:
        settings = SavedInstruments(bench)
        settings.save_initial_state()
        instruments: Any = bench.instruments
        instruments["laser"].set_emission(1, on=False)
        instruments["voa"].set_attenuation(1, 0.0)
        for name in ("laser", "voa"):
            noted = instruments[name].on_setting

            def note(setting: str, value: float, noted: Any = noted) -> None:
                sent.append((setting, value))
                noted(setting, value)

            instruments[name].on_setting = note
        settings.restore()
    assert sent == [("attenuation 1", 20.0), ("emission 1", True)]


def test_light_stays_off_where_what_comes_before_it_has_failed(lab: Lab) -> None:
    """Also where that would succeed by now: a person looks first."""
    lab.set(laser=True)
    with lab.opened() as bench:
        settings = SavedInstruments(bench)
        settings.save_initial_state()
        laser: Any = bench.instruments["laser"]
        laser.set_emission(1, on=False)
        laser.set_wavelength(1, 1550.12)
        noted, failures = laser.on_setting, [InstrumentError("laser", "does not answer")]

        def fail_once(setting: str, value: float) -> None:
            if failures:
                raise failures.pop()
            noted(setting, value)

        laser.on_setting = fail_once
        with pytest.raises(NotRestoredError, match="NOT as found: laser;"):
            settings.restore(keep_trying=0)
        assert laser.emission(1) is False
    assert lab.state_of("laser").exists()


# ------------------------------------------------------------------- files of before


def former_name(key: str, kind: str) -> str:
    """Return the name that version 1 of the format gives a file."""
    readable = re.sub(r"[^A-Za-z0-9.]+", "_", key).strip("_.")[:80]
    return f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.{kind}.found.json"


FORMER = """\
{
 "lightrig state": 1,
 "origin": {
  "key": "%(key)s",
  "instrument": "%(part)s",
  "identity": "%(key)s, firmware 1",
  "address": "%(address)s",
  "testbed": "bench",
  "file": "/lab/bench.yaml",
  "purpose": "run 1",
  "user": "ann",
  "host": "gate",
  "saved": "2026-03-14 02:00:00 UTC"
 },
%(values)s,
 "changed": "2026-03-14 02:05:00 UTC"
}"""
CIRCUITS = """\
 "found": [
  "1>5"
 ],
 "cabling": {
  "1": "laser.1",
  "2": "voa.1",
  "5": "voa.1",
  "6": "voa.2"
 },
 "before": [
  "1>5"
 ],
 "after": [
  "1>6"
 ]"""
SETTINGS = """\
 "found": {
  "attenuation 1": 0.0
 },
 "values": {
  "attenuation 1": [
   7.0
  ]
 }"""


@pytest.mark.parametrize(
    ("part", "values"), [("ocs", CIRCUITS), ("voa", SETTINGS)], ids=["circuits", "settings"]
)
def test_a_file_that_an_earlier_version_wrote_is_restored(lab: Lab, part: str, values: str) -> None:
    with lab.opened() as bench:
        identity = bench.identities[part]
    key = f"{identity.manufacturer} {identity.model} serial {identity.serial} at {lab.places[part]}"
    kind = "circuits" if part == "ocs" else f"settings.{part}"
    lab.set(**{part: LEFT[part]})
    before = lab.now
    filled = {"key": key, "part": part, "address": lab.places[part], "values": values}
    (lab.states / former_name(key, kind)).write_text(FORMER % filled)
    assert lab.restore("--show").exit_code == 0
    assert lab.now == before
    if part == "voa":  # of its other settings the file knows nothing: a person has to say
        assert lab.restore().exit_code == 3
        assert lab.restore("--force").exit_code == 0
    else:
        assert lab.restore().exit_code == 0
    lab.assert_as_found()


# ------------------------------------------------- what is not restored, and keeps no other


@pytest.mark.parametrize(
    ("dead", "others"),
    [
        ("ocs", {"voa": 0.0, "laser": False}),
        ("voa", {"ocs": FOUND["ocs"], "laser": False}),
    ],
    ids=["circuits", "settings"],
)
def test_what_does_not_answer_is_named_and_the_rest_is_restored(
    lab: Lab, dead: str, others: dict[str, Any]
) -> None:
    lab.abandoned()
    text = lab.file.read_text()
    lab.file.write_text(re.sub(rf'({dead}: .*address: "\w+)://[^"]*', r"\1://127.0.0.1:9", text))
    done = lab.restore()
    assert done.exit_code == 6
    assert f"NOT as found: {dead}; run `lightrig restore" in done.stderr
    lab.file.write_text(text)
    assert lab.now == {**LEFT, **others}
    assert [path.name for path in lab.states.glob("*.found.json")] == [lab.state_of(dead).name]
    assert lab.restore().exit_code == 0
    lab.assert_as_found()


BY_HAND = {"ocs": {Circuit(2, 6)}, "voa": 12.5}


@OF_BOTH_KINDS
def test_what_somebody_else_has_changed_is_named_and_overwritten_only_when_asked(
    lab: Lab, part: str
) -> None:
    lab.abandoned()
    lab.set(**{part: BY_HAND[part]})
    for _ in range(2):
        done = lab.restore()
        assert done.exit_code == 3, done.stderr
        assert f"{part} is not restored: " in done.stderr
        assert "by somebody else" in done.stderr or "somebody else has set it" in done.stderr
        assert lab.now == {**FOUND, part: BY_HAND[part]}
    (row,) = json.loads(lab.restore("--show", "--json").stdout)
    assert row["differences"]
    assert lab.restore("--force").exit_code == 0
    lab.assert_as_found()


@OF_BOTH_KINDS
def test_what_is_forgotten_stays_as_it_is(lab: Lab, part: str) -> None:
    lab.abandoned()
    lab.set(**{part: BY_HAND[part]})
    assert lab.restore("--forget").exit_code == 0
    assert lab.now == {**LEFT, part: BY_HAND[part]}
    assert list(lab.states.glob("*.found.json")) == []


@OF_BOTH_KINDS
@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        ("link", "is a link"),
        ("hard link", "more than one hard link"),
        ("for all", "can be written by other accounts"),
        ("cut", "is damaged"),
        ("of another", "it is the state of"),
        pytest.param("account", f"belongs to account {EVE}", marks=needs_accounts),
    ],
)
def test_a_file_that_is_not_to_be_believed_is_named_and_moves_nothing_of_its_kind(
    lab: Lab, part: str, spoilt: str, why: str
) -> None:
    lab.abandoned()
    path = lab.state_of(part)
    apart = lab.file.with_name("apart")
    if spoilt == "link":
        path.rename(apart)
        path.symlink_to(apart)
    elif spoilt == "hard link":
        apart.hardlink_to(path)
    elif spoilt == "for all":
        path.chmod(0o666)
    elif spoilt == "cut":
        path.write_text(path.read_text()[:-40])
    elif spoilt == "of another":
        document = json.loads(path.read_text())
        document["origin"]["key"] += "1"
        path.write_text(json.dumps(document))
    else:
        os.chown(path, EVE, EVE)
    text = path.read_text()
    for options in (("--force",), ("--forget",)):
        done = lab.restore(*options)
        assert done.exit_code == 3
        assert why in done.stderr
        assert lab.now[part] == LEFT[part]
        assert path.read_text() == text
    with lab.opened() as bench, pytest.raises(StateConflictError, match=f"{part} is not used"):
        {"ocs": Fabric, "voa": SavedInstruments}[part](bench).save_initial_state()
    assert [each.name for each in lab.states.glob("*.found.json")] == [path.name]


FORGED = {
    "ocs": {"found": ["1>7"]},
    "voa": {"found": {"attenuation 4": 3.0}},
}


@OF_BOTH_KINDS
def test_a_state_beyond_the_testbed_moves_nothing_also_by_force(lab: Lab, part: str) -> None:
    """Port 7 is cabled to nothing; the attenuator has four channels, of which two are stated."""
    lab.abandoned()
    path = lab.state_of(part)
    path.write_text(json.dumps({**json.loads(path.read_text()), **FORGED[part]}))
    done = lab.restore("--force")
    assert done.exit_code == 3
    assert f"{part} is not restored: it" in done.stderr
    assert lab.now == {**FOUND, part: LEFT[part]}


@OF_BOTH_KINDS
def test_an_instrument_that_was_renamed_since_is_restored(lab: Lab, part: str) -> None:
    lab.abandoned()
    text = lab.file.read_text()
    lab.file.write_text(re.sub(rf"\b{part}\b", f"new{part}", text))
    done = lab.restore()
    lab.file.write_text(text)
    if part == "voa":  # so the ports at the switch have other names, too
        assert done.stderr.startswith("ocs is not restored: recabled since: port 2, 5, 6\n")
        assert lab.now == {**FOUND, "ocs": LEFT["ocs"]}
        done = lab.restore()
    assert (done.exit_code, done.stderr) == (0, "")
    lab.assert_as_found()


def test_the_state_of_another_part_of_a_box_is_not_that_of_a_renamed_one(lab: Lab) -> None:
    """Laser and attenuator report one serial number, as modules of a mainframe do."""
    states = SavedStates(lab.states)
    with lab.opened() as bench:
        identities: Any = bench.identities
        identities.update(dict.fromkeys(("laser", "voa"), Identity("Keysight", "8164B", "7", "1")))
        SavedInstruments(bench).save_initial_state()
        (laser,) = [each for each in states.read_all()[0] if each.origin.instrument == "laser"]
        states.clear(laser)
        settings = SavedInstruments(bench)
        settings.save_initial_state()
        assert settings.states["laser"].found == laser.found
        assert len(states.read_all()[0]) == 2


# --------------------------------------------------------------------- within a process


KINDS = pytest.mark.parametrize("kind", [Fabric, SavedInstruments], ids=["circuits", "settings"])


def refuse_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk be full at the second state that is written."""
    save, saved = SavedStates.save, list[str]()

    def full(states: SavedStates, state: Any, *, durable: bool = True) -> None:
        saved.append(state.origin.instrument)
        if len(saved) == 2:
            raise LabFolderError("no space left")
        save(states, state, durable=durable)

    monkeypatch.setattr(SavedStates, "save", full)


def test_a_state_that_cannot_be_written_leaves_no_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Laser and attenuator are saved one after the other."""
    with lab.opened() as bench:
        settings = SavedInstruments(bench)
        with monkeypatch.context() as full:
            refuse_second(full)
            with pytest.raises(LabFolderError):
                settings.save_initial_state()
        assert list(lab.states.glob("*.found.json")) == []
        settings.save_initial_state()
        assert len(list(lab.states.glob("*.found.json"))) == 2
        settings.restore()


TWO = """
name: two
switches:
  a: {model: polatis, address: "tl1://a.invalid", size: 4x4}
  b: {model: polatis, address: "tl1://b.invalid", size: 4x4}
instruments:
  laser: {kind: light_source, model: keysight-n7776c, address: "scpi://laser.invalid"}
fibers: ["laser -> a.1", "a.5 -> b.1"]
plans:
  one: {circuits: {a: ["1>5"], b: []}}
"""


def test_a_full_disk_at_the_second_switch_ends_no_promise_for_the_next_plan(
    simulated: Callable[..., Bench], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found is saved of both switches before any is changed, once there is room."""
    bench, states = simulated(TWO), SavedStates(tmp_path / "states")
    fabric = Fabric(bench, states)
    with monkeypatch.context() as full:
        refuse_second(full)
        with pytest.raises(LabFolderError):
            fabric.apply(fabric.plans["one"])
    assert states.read_all()[0] == []
    assert not bench.switches["a"].circuits()
    fabric.apply(fabric.plans["one"])
    assert {each.origin.instrument for each in states.read_all()[0]} == {"a", "b"}
    fabric.restore()
    assert states.read_all()[0] == []


class Lost(Lease):
    """A lease that another host takes after some checks."""

    def __init__(self, checks: int) -> None:
        super().__init__([], "a test")
        self.left = checks

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise LeaseLostError("lost")


@KINDS
@pytest.mark.parametrize("checks", [0, 1])
def test_nothing_is_restored_once_the_lease_is_lost(
    lab: Lab, kind: Any, checks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is lost after restoring has begun."""
    lab.abandoned()
    with lab.opened() as bench:
        part = kind(bench)
        part.save_initial_state()
        drivers = [*bench.switches.values(), *bench.instruments.values()]
        before, lease = [list(each.wire()) for each in drivers], bench.lease
        monkeypatch.setattr(bench, "lease", Lost(checks))
        with pytest.raises((LeaseLostError, NotRestoredError), match="lost"):
            part.restore()
        assert [list(each.wire()) for each in drivers] == before  # nor is anything asked
        monkeypatch.setattr(bench, "lease", lease)
    assert lab.now == LEFT
    assert lab.restore().exit_code == 0
    lab.assert_as_found()


def test_nothing_is_changed_once_the_lease_is_lost(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lab.opened() as bench:
        monkeypatch.setattr(bench, "lease", Lost(0))
        voa: Any = bench.instruments["voa"]
        with pytest.raises(LeaseLostError):
            voa.set_attenuation(1, 7.0)
        with pytest.raises(LeaseLostError):
            Fabric(bench).apply(bench.testbed.plans["two"])
        monkeypatch.setattr(bench, "lease", None)
    assert lab.now == FOUND
