"""Ports that are crossed inside a switch, which its reports do not show.

Light at each of two egress ports tells whether they are crossed only while one of them is lit and
the other is dark. So the ports that a clause lights have to tell each two of them apart. Ingress
ports that are all lit are told apart by taking the light of some of them away.
"""

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from certify_labs import lab, optics_lab
from light_defects import cross_egress_ports, cross_ingress_ports
from manual_defects import OTHERS
from switch_defects import limit_profile
from typer.testing import CliRunner

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.sheet import Sheet
from lightrig.harness.certify.subject import Outcome, Trial
from lightrig.harness.cli.app import application
from lightrig.harness.measure.insertion_loss.readings import telling_settings
from lightrig.instruments.simulated.world.optics import Matrix

N = 18
EGRESS = range(N + 1, 2 * N + 1)
PAIRS = list(itertools.combinations(EGRESS, 2))
LAB = f"""
name: crossed
switches:
  ocs: {{model: polatis, address: "tl1://ocs.invalid", size: {N}x{N}}}
servers:
  server0:
    address: ssh://bench@server0.invalid
    nics: {{nic0: {{ports: {N}, netdev: "ens1f{{p}}", rate: 100G, transceiver: lr4}}}}
transceivers:
  lr4: {{wavelength: 1310 nm, launch: {{min: -4 dBm, max: 4 dBm}},
        receive: {{min: -14 dBm, max: 4 dBm}}}}
fibers: ["server0.nic0.p[0-{N - 1}] <-> ocs"]
limits: {{crosstalk: {{max: -48 dB}}}}
"""
LASERS = """
name: lasers
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x4}
instruments:
  laser: {kind: light_source, model: keysight-n7776c, address: "scpi://laser.invalid"}
  other: {kind: light_source, model: keysight-n7776c, address: "scpi://other.invalid"}
  meter: {kind: power_meter, model: keysight-n7745a, address: "scpi://meter.invalid", channels: 4}
fibers: [laser -> ocs.2, other -> ocs.3, "ocs.[5-8] -> meter.[1-4]"]
"""
Simulated = Callable[..., Bench]


INGRESS_PAIRS = list(itertools.combinations(range(1, N + 1), 2))
INTERRUPTING = Trial(permitted=frozenset({"harmless", "interrupting"}))
# Switches whose driver has no shutters of ports.
WITHOUT_SHUTTERS = LAB.replace("model: polatis", "model: calient-s")


def outcome(bench: Bench, clause: str, trial: Trial = Trial()) -> Outcome:  # noqa: B008 -- frozen
    profile = requirements().profiles["polatis"]
    return Certification(Fabric(bench), "ocs", profile, trial).outcome(clause)


def swap_is_found(bench: Bench, trial: Trial, side: str, pair: tuple[int, int]) -> None:
    """Clause 3.2 names both ports, and they alone."""
    found = outcome(bench, "3.2", trial)
    assert found.verdict == "fail", (pair, found)
    named = f"{side} {pair[0]} and {side} {pair[1]} are exchanged"
    assert found.reason.startswith(named), found
    assert found.reason.count("are exchanged") == 1


def test_losses_of_drawn_ports_of_18(simulated: Simulated) -> None:
    """Light enters at the ports that were not drawn too, and none of their losses is asked for."""
    drawn = replace(INTERRUPTING, ports=8)
    for text in (LAB, WITHOUT_SHUTTERS):
        found = outcome(simulated(text), "5.9", drawn)
        assert (found.verdict, found.n) == ("pass", 3), found
        assert "64 losses from" in found.reason, found


def apart(lit: Iterable[frozenset[int]]) -> list[tuple[int, int]]:
    """Return the pairs of egress ports of which one is lit and the other dark in a setting."""
    settings = set(lit)
    return [(a, b) for a, b in PAIRS if any((a in made) != (b in made) for made in settings)]


def test_all_153_pairs_are_distinguished(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings, lit = Matrix.readings, set[frozenset[int]]()

    def note(matrix: Matrix, egresses: Iterable[int], ingresses: Iterable[int] = ()) -> list[float]:
        lit.add(frozenset(matrix.ingress_of))
        return readings(matrix, egresses, ingresses)

    monkeypatch.setattr(Matrix, "readings", note)
    assert outcome(simulated(LAB), "3.2").verdict == "pass"
    assert len(PAIRS) == 153
    assert apart(lit) == PAIRS
    assert frozenset(EGRESS) in lit
    assert frozenset() in lit


@pytest.mark.parametrize("pair", random.Random(5).sample(PAIRS, 10), ids=str)
def test_ten_drawn_pairs_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: tuple[int, int]
) -> None:
    """A whole run of the command, whose profile has no other clauses on light."""
    limit_profile(monkeypatch, ("1.1", "1.2", "1.3", "2.1", "3.2"))
    cross_egress_ports(monkeypatch, *pair)
    (tmp_path / "lab.yaml").write_text(LAB)
    options = ("--instruments", "simulated", "--out", str(tmp_path))
    command = ["certify", str(tmp_path / "lab.yaml"), "ocs", *options]
    done = CliRunner().invoke(application("certify"), command)
    assert done.exit_code == 1, done.output
    sheet = Sheet.model_validate_json((tmp_path / "ocs.json").read_text())
    found = {each.requirement.number: each for each in sheet.clauses}
    assert {number: each.verdict for number, each in found.items()} == {
        **dict.fromkeys(("1.1", "1.2", "1.3", "2.1"), "pass"),
        "3.2": "fail",
    }
    named = f"egress {pair[0]} and egress {pair[1]} are exchanged, or their monitors are"
    assert named in found["3.2"].reason


@pytest.mark.parametrize("pair", random.Random(6).sample(INGRESS_PAIRS, 6), ids=str)
def test_exchanged_ingress_ports_are_named_by_their_shutters(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, pair: tuple[int, int]
) -> None:
    cross_ingress_ports(monkeypatch, *pair)
    swap_is_found(simulated(LAB), Trial(), "ingress", pair)


@pytest.mark.parametrize("text", [LAB, WITHOUT_SHUTTERS], ids=["shutters", "no shutters"])
def test_exchanged_ingress_fibers_are_named_by_transmitters(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Shutters behind the exchange show nothing of it; a NIC port that is dark does."""
    cross_ingress_ports(monkeypatch, 3, 14, before_shutters=True)
    swap_is_found(simulated(text), INTERRUPTING, "ingress", (3, 14))


def test_exchanged_ingress_ports_are_named_by_lasers(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    cross_ingress_ports(monkeypatch, 2, 3, before_shutters=True)
    swap_is_found(simulated(LASERS), Trial(), "ingress", (2, 3))


def test_inputs_that_are_all_lit_decide_nothing(simulated: Simulated) -> None:
    found = outcome(simulated(WITHOUT_SHUTTERS), "3.2")
    assert found.verdict == "inconclusive"
    assert found.reason.startswith("inputs are all lit: ")
    assert "--allow interrupting" in found.reason
    told = outcome(simulated(WITHOUT_SHUTTERS), "3.2", INTERRUPTING)
    assert told.verdict == "pass", told
    assert told.reason.endswith("; inputs told apart by transmitter")


def test_shutters_that_pass_light_are_no_exchange(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Matrix, "shutter", lambda matrix, port, *, shut: None)
    found = outcome(simulated(LAB), "3.2")
    assert found.verdict == "inconclusive"
    assert "the shutter of ingress 1 leaves its light" in found.reason


@pytest.mark.long
@pytest.mark.parametrize("first", range(1, N))
def test_all_swaps_of_two_ports_are_found(simulated: Simulated, first: int) -> None:
    """All 153 of two egress ports, by 3.2 and 3.4, and all 153 of two ingress ports, by 3.2."""
    for second in range(first + 1, N + 1):
        with pytest.MonkeyPatch.context() as patch:
            cross_ingress_ports(patch, first, second)
            swap_is_found(simulated(LAB), Trial(), "ingress", (first, second))
        with pytest.MonkeyPatch.context() as patch:
            cross_egress_ports(patch, N + first, N + second)
            bench = simulated(LAB)
            swap_is_found(bench, Trial(), "egress", (N + first, N + second))
            found = outcome(bench, "3.4")
            assert found.verdict == "fail", (first, second, found)


def test_crosstalk_fails_where_a_circuit_is_dark_and_another_egress_is_lit(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    cross_egress_ports(monkeypatch, 27, 31)
    found = outcome(simulated(LAB), "3.4")
    assert found.verdict == "fail", found
    assert "the egress of 9>27 is dark, and light leaves egress 31" in found.reason


def test_full_light_at_a_port_that_is_not_asked_for_fails_without_a_limit(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    OTHERS["split light"](monkeypatch)
    text = lab().replace("limits: {crosstalk: {max: -48 dB}}\n", "")
    found = outcome(simulated(text), "3.4")
    assert found.verdict == "fail", found
    assert found.reason == "2>10 is alone, and light leaves egress 11"


@pytest.mark.parametrize("limited", [True, False])
def test_crosstalk_by_power_meters_fails_too(simulated: Simulated, limited: bool) -> None:
    """Swapped fibers to two meters show what crossed egress ports do."""
    text = optics_lab() if limited else optics_lab().replace("  crosstalk: {max: -48 dB}\n", "")
    bench = simulated(f"{text}  faults: [{{fault: swapped fibers, at: [ocs.3, ocs.4]}}]\n")
    found = outcome(bench, "3.4")
    assert found.verdict == "fail", found
    assert found.reason.startswith("an egress gets more light than that of the circuit")
    assert found.interval is not None
    assert found.interval[0] > 48  # as far below the circuit as its crosstalk may be, above it


@pytest.mark.parametrize("ingress", [1, 2, 5, 18, 40])
@pytest.mark.parametrize("egress", [1, 2, 3, 8, 18, 33])
def test_settings_tell_each_two_egress_ports_apart(ingress: int, egress: int) -> None:
    entering, leaving = range(1, ingress + 1), range(ingress + 1, ingress + egress + 1)
    settings = telling_settings(entering, leaving)
    for setting in settings:
        assert len({c.ingress for c in setting}) == len({c.egress for c in setting}) == len(setting)
        assert {c.ingress for c in setting} <= set(entering)
        assert {c.egress for c in setting} <= set(leaving)
    lit = [{c.egress for c in setting} for setting in settings]
    for a, b in itertools.combinations(leaving, 2):
        assert any((a in made) != (b in made) for made in lit)
    if ingress >= egress:  # as few as can be: n settings tell 2^n ports apart
        assert len(settings) == (egress - 1).bit_length()
