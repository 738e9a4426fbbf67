"""`lightrig certify`: what it announces, asks, opens and resumes, each by itself."""

import importlib
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from certify_labs import lab
from switch_defects import limit_profile
from typer.testing import CliRunner, Result

from lightrig.harness.bench import Bench
from lightrig.harness.certify import certification
from lightrig.harness.certify.clauses import CLAUSES
from lightrig.harness.certify.progress import Progress
from lightrig.harness.cli.app import application
from lightrig.instruments.clock import Clock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Reply, Tl1Request
from lightrig.testbeds import SwitchSpec

COMMAND = importlib.import_module("lightrig.harness.certify.commands.certify")
COMMAND_BIND = COMMAND.bind
SIMULATED = ("--instruments", "simulated")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lab.yaml"
    path.write_text(lab())
    return path


def run(file: Path, *arguments: str) -> Result:
    whole = ["certify", str(file), "ocs", "--out", str(file.parent), *arguments]
    return CliRunner().invoke(application("certify"), whole)


@pytest.mark.parametrize(
    ("quick", "options", "first", "last"),
    [
        (8, [], "6 ingress and 5 egress ports", "8 times; about 1 s."),
        (8, ["--quick"], "6 ingress and 5 egress ports", "8 times; about 1 s."),
        (5, ["--quick"], "5 ingress and 5 egress ports, of 6 and 5, drawn", "8 times; about 1 s."),
        (3, ["--quick", "--allow", "interrupting", "--hours", "0.0001"],
         "3 ingress and 3 egress ports, of 6 and 5, drawn",
         "10 times; about 1 s, and endurance for 0.0001 h."),
    ],
)  # fmt: skip
def test_what_is_tried_is_announced(
    file: Path, monkeypatch: pytest.MonkeyPatch, quick: int, options: list[str], first: str,
    last: str,
) -> None:  # fmt: skip
    """1.2 and 2.1 move each port four times, 1.1 none, 4.1 twice; 0.6 and 0.5 s."""
    limit_profile(monkeypatch, ("1.1", "1.2", "2.1", "4.1"))
    monkeypatch.setattr(COMMAND, "QUICK_PORTS", quick)
    head, *clauses = run(file, *SIMULATED, *options).stderr.splitlines()
    clauses, moves = clauses[:4], clauses[4]
    assert head == f"ocs: profile polatis, {first}"
    assert [line.split()[0] for line in clauses] == ["1.1", "1.2", "2.1", "4.1"]
    forbidden = [line.split()[0] for line in clauses if line.endswith(", not permitted)")]
    assert forbidden == ([] if "--allow" in options else ["4.1"])
    assert moves == f"Each port is moved at most {last} Then the circuits are restored."


@pytest.mark.parametrize(
    ("options", "terminal", "status", "text"),
    [
        ((*SIMULATED, "--operator"), False, 2, "--operator needs a terminal"),
        ((), False, 2, "without a terminal, --yes allows the moves"),
        ((), True, 1, "Traffic over these ports stops meanwhile. Go on?"),
    ],
)
def test_nothing_is_bound_before_a_person_has_agreed(
    file: Path, monkeypatch: pytest.MonkeyPatch, options: Any, terminal: bool, status: int,
    text: str,
) -> None:  # fmt: skip
    bound: list[Any] = []
    monkeypatch.setattr(COMMAND, "is_on_terminal", lambda: terminal)
    monkeypatch.setattr(COMMAND, "bind", lambda *given: bound.append(given))
    done = run(file, *options)
    assert (done.exit_code, text in done.stderr, bound) == (status, True, [])


def test_a_switch_without_ports_on_a_side_cannot_be_tested(file: Path) -> None:
    file.write_text("\n".join(line for line in lab().splitlines() if "- ocs." not in line))
    done = run(file, *SIMULATED)
    assert (done.exit_code, "nothing to test" in done.stderr) == (2, True)


class Wire:
    """A driver of the switch over another wire, which says nothing."""

    closed = 0

    def close(self) -> None:
        """Count it."""
        Wire.closed += 1


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Endpoint, Clock]]:
    """What further wires were opened with."""
    noted: list[tuple[str, Endpoint, Clock]] = []

    def open_instrument(spec: SwitchSpec, endpoint: Endpoint, clock: Clock) -> Wire:
        noted.append((spec.name, endpoint, clock))
        return Wire()

    monkeypatch.setattr(COMMAND, "open_instrument", open_instrument)
    monkeypatch.setattr(Wire, "closed", 0)
    return noted


WIRES = ("--wire", "tl1://one.lab:3082", "--wire", "ssh://two.lab")


def test_further_wires_have_the_login_and_keys_of_the_first(
    file: Path, monkeypatch: pytest.MonkeyPatch, opened: list[tuple[str, Endpoint, Clock]]
) -> None:
    limit_profile(monkeypatch, ("1.1",))
    (file.parent / "keys").write_text("")
    file.write_text(lab().replace("switches:\n", "known_hosts: keys\nswitches:\n", 1))
    benches: list[Bench] = []

    def bind(*given: Any, **options: Any) -> Bench:
        benches.append(COMMAND_BIND(*given, **options))
        return benches[-1]

    monkeypatch.setattr(COMMAND, "bind", bind)
    done = run(file, *SIMULATED, *WIRES)
    assert done.exit_code == 0, done.output
    (bench,) = benches  # with further wires all clauses are tried on one bench
    first: Any = bench.switches["ocs"]
    assert [(name, endpoint.host) for name, endpoint, _ in opened] == [
        ("ocs", "one.lab"),
        ("ocs", "two.lab"),
    ]
    for _, endpoint, clock in opened:
        assert (endpoint.login, endpoint.known_hosts) == (
            first.endpoint.login,
            file.parent / "keys",
        )
        assert clock is bench.clock
    assert Wire.closed == 2


def interrupted(file: Path, patch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    """Certify until the process ends amid the first clause; return what it leaves."""

    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    with patch.context() as context:
        context.setattr(certification, "CLAUSES", {**CLAUSES, "identity": kill})
        with pytest.raises(Killed):
            run(file, *arguments)
    left: dict[str, Any] = json.loads((file.parent / "ocs.progress.json").read_text())
    return left


def test_what_a_resumed_run_has_in_common(
    file: Path, monkeypatch: pytest.MonkeyPatch, opened: object
) -> None:
    limit_profile(monkeypatch, ("1.1",))
    options = ["--seed", "9", "--allow", "interrupting", "--hours", "1.5", *WIRES]
    found = interrupted(file, monkeypatch, *SIMULATED, *options)["of"]
    assert found.pop("testbed file") == sha256(file.read_bytes()).hexdigest()
    assert len(found.pop("requirements")) == 64
    assert found == {
        "switch": "ocs: Polatis N-VST-8x12-LU1-DMHNV-701, serial SIM-ocs, firmware 6.7.3.9",
        "profile": "polatis", "seed": "9", "ports": "all", "classes": "harmless, interrupting",
        "wires": "tl1://one.lab:3082, ssh://two.lab", "hours": "1.5",
    }  # fmt: skip
    (file.parent / "ocs.progress.json").unlink()
    assert interrupted(file, monkeypatch, *SIMULATED, "--quick")["of"]["ports"] == "8"


def test_a_resumed_run_gives_back_what_was_found_before_anything_else(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A label and a blocked port that the killed run has found, and this process has not."""
    limit_profile(monkeypatch, ("1.1", "1.3"))
    left = interrupted(file, monkeypatch, *SIMULATED)
    assert left["found"]["labels"] == {str(port): "" for port in (*range(2, 8), *range(10, 15))}
    assert left["found"]["open"] == {str(port): True for port in (*range(2, 8), *range(10, 15))}
    left["found"]["labels"]["12"], left["found"]["open"]["13"] = "rack 4", False
    progress = file.parent / "ocs.progress.json"
    progress.write_text(json.dumps(left))
    asked: list[tuple[str, str]] = []
    execute = SimulatedPolatis.execute

    def note(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        if request.verb in {"ED-PORT-LABEL", "OPR-PORT-SHUTTER"}:
            asked.append((request.verb, request.aid))
        return execute(device, request)

    monkeypatch.setattr(SimulatedPolatis, "execute", note)
    done = run(file, *SIMULATED, "--resume")
    assert (done.exit_code, progress.exists()) == (0, False), done.output
    assert asked[:2] == [("ED-PORT-LABEL", "12"), ("OPR-PORT-SHUTTER", "13")]
    assert asked[2] == ("ED-PORT-LABEL", "2")  # the first of 1.3


def test_a_full_disk_ends_the_command_before_anything_is_tried(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(progress: Progress, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Progress, "write", fail)
    done = run(file, *SIMULATED)
    path = file.parent / "ocs.progress.json"
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (3, f"{path}: No space left on device")
    assert done.stdout == ""
