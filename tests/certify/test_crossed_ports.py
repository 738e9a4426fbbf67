"""Egress ports that are crossed inside a switch, which its reports do not show.

Light at each of two ports tells whether they are crossed only while one of them is lit and the
other is dark. So the ports that a clause lights have to tell each two of them apart.
"""

import itertools
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from certify_labs import optics_lab
from light_defects import cross_egress_ports
from switch_defects import limit_profile
from typer.testing import CliRunner

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.sheet import Sheet
from lightrig.harness.certify.subject import Outcome
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
Simulated = Callable[..., Bench]


def outcome(bench: Bench, clause: str) -> Outcome:
    return Certification(Fabric(bench), "ocs", requirements().profiles["polatis"]).outcome(clause)


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
    assert "is reported and stays dark" in found["3.2"].reason
    assert any(f"egress {port}" in found["3.2"].reason for port in pair)


def test_crosstalk_fails_where_a_circuit_is_dark_and_another_egress_is_lit(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    cross_egress_ports(monkeypatch, 27, 31)
    found = outcome(simulated(LAB), "3.4")
    assert found.verdict == "fail", found
    assert "the egress of 9>27 is dark, and light leaves egress 31" in found.reason


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
