"""`lightrig certify`: what it announces, asks, opens and resumes, each by itself."""

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from certify_labs import lab
from switch_defects import limit_profile
from typer.testing import CliRunner, Result

from lightrig.harness.certify.sheet import SheetError
from lightrig.harness.cli.app import application
from lightrig.testbeds import load

COMMAND = importlib.import_module("lightrig.harness.certify.commands.certify")
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
    ("most", "permitted", "hours", "first", "last"),
    [
        (None, {"harmless"}, 0.0, "6 ingress and 5 egress ports", "8 times; about 40 s."),
        (8, {"harmless"}, 0.0, "6 ingress and 5 egress ports", "8 times; about 40 s."),
        (5, {"harmless"}, 0.0, "5 ingress and 5 egress ports, of 6 and 5, drawn",
         "8 times; about 40 s."),
        (3, {"harmless", "interrupting"}, 1.5, "3 ingress and 3 egress ports, of 6 and 5, drawn",
         "8 times; about 40 s, and endurance for 1.5 h."),
        (None, set(), 0.0, "6 ingress and 5 egress ports", "0 times; about 0 s."),
    ],
)  # fmt: skip
def test_what_is_tried_is_announced(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    most: int | None, permitted: set[str], hours: float, first: str, last: str,
) -> None:  # fmt: skip
    """1.2 and 2.1 move each port four times, 1.1 none; a change with its readings takes 5 s."""
    limit_profile(monkeypatch, ("1.1", "1.2", "2.1"))
    COMMAND._announce(load(file), "ocs", "polatis", frozenset(permitted), most, hours)
    head, *clauses, moves = capsys.readouterr().err.splitlines()
    assert head == f"ocs: profile polatis, {first}"
    assert [line.split()[0] for line in clauses] == ["1.1", "1.2", "2.1"]
    assert all(("not permitted" in line) is (not permitted) for line in clauses)
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


def test_further_wires_have_the_login_and_keys_of_the_first(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    def open_instrument(spec: Any, endpoint: Any, clock: Any) -> Any:
        opened.append((spec.name, endpoint.host, endpoint.login, endpoint.known_hosts, clock))
        return f"driver {len(opened)}"

    monkeypatch.setattr(COMMAND, "open_instrument", open_instrument)
    first = SimpleNamespace(endpoint=SimpleNamespace(login=("ann", "tea")))
    described = SimpleNamespace(switches=load(file).switches, known_hosts=Path("keys"))
    bench: Any = SimpleNamespace(testbed=described, switches={"ocs": first}, clock="clock")
    addresses = ["tl1://one.lab:3082", "ssh://two.lab"]
    found = COMMAND._open_wires(bench, "ocs", addresses)
    assert found == dict(zip(addresses, ("driver 1", "driver 2"), strict=True))
    keys = (("ann", "tea"), Path("keys"), "clock")
    assert opened == [("ocs", "one.lab", *keys), ("ocs", "two.lab", *keys)]
    bench.switches["ocs"] = object()
    COMMAND._open_wires(bench, "ocs", addresses[:1])
    assert opened[-1][2] is None
    assert COMMAND._open_wires(bench, "ocs", []) == {}


def test_a_resumed_run_restores_first_and_another_begins_anew(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noted: list[Any] = []
    driver = object()
    cabling = SimpleNamespace(cabled_ports=lambda switch: ([3, 2, 7], [12, 3]))
    fabric: Any = SimpleNamespace(
        bench=SimpleNamespace(switches={"ocs": driver}),
        testbed=SimpleNamespace(cabling=cabling),
        save_initial_state=lambda: noted.append("saved"),
        restore=lambda: noted.append("restored"),
    )

    class Progress:
        left: Any = None

        def __init__(self, of: Any, found: Any) -> None:
            noted.append((of, found))

        def write(self, path: Path) -> None:
            noted.append(path.name)
            if path.name == "full":
                raise OSError(28, "No space left on device")

        @classmethod
        def resumed(cls, path: Path, of: Any) -> Any:
            if isinstance(cls.left, Exception):
                raise cls.left
            return cls.left

    monkeypatch.setattr(COMMAND, "Progress", Progress)
    monkeypatch.setattr(
        COMMAND, "Configuration", SimpleNamespace(of=lambda of, ports: (of is driver, ports))
    )

    def begin(name: str = "p", resume: bool = True) -> Any:
        noted.clear()
        return COMMAND._begin(Path(name), {"seed": "7"}, fabric, "ocs", resume=resume)

    assert isinstance(begin(resume=False), Progress)
    assert noted == [({"seed": "7"}, (True, [2, 3, 7, 12])), "p"]
    begin()
    assert len(noted) == 2
    assert capsys.readouterr().err == "p: nothing to resume, begins anew\n"
    given_back = SimpleNamespace(give_back=lambda of: noted.append(of is driver))
    Progress.left = SimpleNamespace(found=given_back)
    assert begin() is Progress.left
    assert noted == ["saved", "restored", True]
    assert begin(resume=False) is not Progress.left
    Progress.left = SheetError("another seed")
    for name, resume, status, text in (
        ("p", True, 2, "another seed"),
        ("full", False, 3, "full: No space left on device"),
    ):
        with pytest.raises(typer.Exit) as ended:
            begin(name, resume)
        assert (ended.value.exit_code, capsys.readouterr().err) == (status, f"{text}\n")


def test_what_a_resumed_run_has_in_common(file: Path) -> None:
    bench: Any = SimpleNamespace(identities={"ocs": "Polatis, serial 7"})
    trial: Any = SimpleNamespace(
        seed=9, ports=None, permitted={"interrupting", "harmless"}, wires={"a": 1, "b": 2},
        hours=1.5,
    )  # fmt: skip
    found = COMMAND._of(bench, "ocs", "polatis", trial, file)
    digests = {name: found.pop(name) for name in ("testbed file", "requirements")}
    assert {len(each) for each in digests.values()} == {64}
    assert found == {
        "switch": "ocs: Polatis, serial 7", "profile": "polatis", "seed": "9", "ports": "all",
        "classes": "harmless, interrupting", "wires": "a, b", "hours": "1.5",
    }  # fmt: skip
    trial.ports = 8
    assert COMMAND._of(bench, "ocs", "polatis", trial, file)["ports"] == "8"
