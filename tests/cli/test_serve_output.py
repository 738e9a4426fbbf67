"""`lightrig serve`: what it prints and writes of instruments that differ, and when it refuses."""

import importlib
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.served_lab import describe
from typer.testing import CliRunner

from lightrig.harness import signals
from lightrig.harness.cli.app import application
from lightrig.instruments.simulated.protocols.listeners import Service

COMMAND = importlib.import_module("lightrig.harness.cli.serve")
DRAWN = ("user", "secret")


def service(port: int, login: Any = DRAWN, **more: str) -> Service:
    return Service("ssh" if "known_hosts" in more else "tl1", "127.0.0.1", port, login, **more)


class Served:
    """Stands for the served lab; notes what it is made of and when it is closed."""

    def __init__(self) -> None:
        self.noted: list[Any] = []
        self.services = {
            "ocs": service(17, certificate="CERT1\n"),
            "server0": service(18, ("ann", "tea"), known_hosts="host0 key"),
            "server1": service(19, known_hosts="host1 key"),
        }
        self.further_wires = {
            "ocs": [service(21, known_hosts="ocs key"), service(22, certificate="CERT2\n")]
        }
        self.lacking = ["no ethtool"]
        self.interfaces_pid: int | None = None
        self.failure: Any = None

    def made(
        self, testbed: Any, seed: int, port: int, stated: Any, carrier_changed: object
    ) -> "Served":
        assert carrier_changed is None
        self.noted.append((testbed.name, seed, port, stated))
        return self

    def close(self) -> None:
        self.noted.append("closed")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    made = Served()
    handlers: dict[int, Any] = {}
    monkeypatch.setattr("lightrig.harness.cli.served_lab.ServedLab", made.made)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)

    class Event:
        def __init__(self) -> None:
            self._waits = 0

        def set(self) -> None:
            self._waits = -9

        def wait(self, seconds: float) -> bool:
            made.noted.append(seconds)
            if len(made.noted) > 2:
                assert set(handlers) == {signal.SIGINT, signal.SIGTERM}
                handlers[signal.SIGTERM]()
            return self._waits < 0

    monkeypatch.setattr(signals, "threading", SimpleNamespace(Event=Event))
    monkeypatch.setattr(COMMAND, "stated_logins", lambda testbed: {"server0": ("ann", "tea")})
    return made


@pytest.fixture
def run(tmp_path: Path, served: Served) -> Any:
    file = describe(tmp_path)

    def call(*options: object) -> Any:
        served.noted.clear()
        return CliRunner().invoke(application("serve"), ["serve", str(file), *map(str, options)])

    call.file = file  # type: ignore[attr-defined]
    return call


def test_the_table_has_every_wire_and_each_login_once(
    run: Any, served: Served, tmp_path: Path
) -> None:
    target = tmp_path / "served.yaml"
    done = run("--port", 17, "--seed", 5, "--write", target)
    assert done.exit_code == 0, done.output
    assert served.noted == [("lab", 5, 17, {"server0": ("ann", "tea")}), 1.0, 1.0, "closed"]
    first, head, *rows, login, stated, export, command = done.stdout.splitlines()
    assert first == f"{run.file}: simulated, in real time; Ctrl-C ends it"
    assert head.split() == ["instrument", "address"]
    assert [row.split() for row in rows] == [
        ["ocs", "tl1://127.0.0.1:17"],
        ["ssh://127.0.0.1:21"],
        ["tl1://127.0.0.1:22"],
        ["server0", "ssh://127.0.0.1:18"],
        ["server1", "ssh://127.0.0.1:19"],
    ]
    assert (login, stated) == ("login user:secret", f"login of server0: as {run.file} names it")
    assert export == "export LIGHTRIG_SERVED=user:secret"
    assert command.startswith("pytest --pyargs lightrig.suites --testbed ")
    assert command.endswith("served.yaml --instruments hardware")
    assert done.stderr == "lacking here: no ethtool\n"
    keys = (tmp_path / "served.known_hosts").read_text()
    assert keys == "host0 key\nhost1 key\nocs key\n"
    assert (tmp_path / "served.certificates").read_text() == "CERT1\nCERT2\n"
    assert "tl1://127.0.0.1:17" in target.read_text()


def test_without_certificates_there_is_no_file_of_them(
    run: Any, served: Served, tmp_path: Path
) -> None:
    served.services = {"server0": service(18, ("ann", "tea"), known_hosts="host0 key")}
    served.further_wires, served.lacking = {}, []
    done = run("--write", tmp_path / "served.yaml")
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "served.certificates").exists()
    assert (tmp_path / "served.known_hosts").read_text() == "host0 key\n"
    assert "export" not in done.stdout
    assert "login user" not in done.stdout
    assert "export" not in run().stdout
    assert "pytest " not in run().stdout


def test_the_document_has_further_wires_with_their_instrument(run: Any, served: Served) -> None:
    ocs, server0, _ = json.loads(run("--json").stdout)
    assert ocs == {
        "name": "ocs", "address": "tl1://127.0.0.1:17", "user": "user", "password": "secret",
        "known_hosts": "", "certificate": "CERT1\n",
        "further_wires": [
            {"address": "ssh://127.0.0.1:21", "known_hosts": "ocs key", "certificate": ""},
            {"address": "tl1://127.0.0.1:22", "known_hosts": "", "certificate": "CERT2\n"},
        ],
    }  # fmt: skip
    assert (server0["user"], server0["password"], server0["further_wires"]) == ("ann", "tea", [])


def test_a_simulation_that_ends_and_one_without_wires_are_errors(run: Any, served: Served) -> None:
    served.failure = "a bug"
    done = run()
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (3, "the simulation has ended: a bug")
    assert served.noted[-1] == "closed"
    served.services = {}
    done = run()
    assert (done.exit_code, "none of its instruments has a wire" in done.stderr) == (2, True)
    assert served.noted[-1] == "closed"


@pytest.mark.parametrize(("port", "fits"), [(65533, True), (65534, False)])
def test_the_last_port_is_used(run: Any, served: Served, port: int, fits: bool) -> None:
    """A switch and two servers take three ports."""
    done = run("--port", port)
    assert done.exit_code == (0 if fits else 2)
    if not fits:
        assert done.stderr == f"3 ports from {port} on: 65535 is the last one\n"


def test_logins_are_those_of_the_file_that_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_OCS", "bob:milk")
    monkeypatch.delenv("LAB_SERVER", raising=False)
    load = importlib.import_module("lightrig.testbeds").load
    assert COMMAND.stated_logins(load(describe(tmp_path))) == {"ocs": ("bob", "milk")}
    monkeypatch.setenv("LAB_SERVER", "eve:tea")
    found = COMMAND.stated_logins(load(describe(tmp_path)))
    assert found["server1"] == found["server0"] == ("eve", "tea")
