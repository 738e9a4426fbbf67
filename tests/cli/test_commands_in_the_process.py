"""Commands of the lab in the process of the test: texts, statuses, and what they pass on."""

import importlib
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from bench.served_lab import describe
from typer.testing import CliRunner

from lightrig.harness import signals
from lightrig.harness.cli import main
from lightrig.harness.cli.app import application
from lightrig.testbeds import LightrigError


def module_of(name: str) -> Any:
    return importlib.import_module(f"lightrig.harness.cli.{name}")


def run(*arguments: object, **given: Any) -> Any:
    return CliRunner().invoke(application(str(arguments[0])), list(map(str, arguments)), **given)


# ------------------------------------------------------------------------------- replay


@pytest.mark.parametrize("keys", ["known_hosts", "certificate", ""])
def test_a_replayed_instrument_is_printed_with_its_login(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: str
) -> None:
    command = module_of("replay")
    noted: list[Any] = []
    about = {"instrument": "meter", "model": "N7744"}
    recording = SimpleNamespace(about=about)
    peer = SimpleNamespace(name="meter", scheme="scpi", resource="inst0")
    given = {"known_hosts": "", "certificate": "", **({keys: f"a {keys}"} if keys else {})}
    service = SimpleNamespace(address="scpi://127.0.0.1:7", **given)
    clock = SimpleNamespace(close=lambda: noted.append("clock closed"))
    server = SimpleNamespace(close=lambda: noted.append("server closed"))
    handlers: dict[int, Any] = {}

    class Event:
        def set(self) -> None:
            noted.append("over")

        def wait(self) -> None:
            noted.append("waits")
            handlers[signal.SIGTERM]()

    def replayed(of: Any, at: Any, unknown: Any) -> Any:
        assert (of, at) == (recording, clock)
        unknown(b"WAV?")
        return peer

    parts = {
        "read": lambda trace: recording,
        "SystemClock": lambda: clock,
        "DeviceServer": lambda at: server if at is clock else None,
        "ReplayDevice": replayed,
        "serve": lambda *args, **more: noted.append((*args, more)) or service,
    }
    for name, part in parts.items():
        monkeypatch.setattr(command, name, part)
    monkeypatch.setattr(signals, "threading", SimpleNamespace(Event=Event))
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    done = run("replay", tmp_path / "t.jsonl", "--port", 7)
    assert done.exit_code == 0, done.output
    assert noted == [
        ("meter", peer, "scpi", server, ("replay", "replay"), 7, {"resource": "inst0"}),
        *("waits", "over", "server closed", "clock closed"),
    ]
    assert set(handlers) == {signal.SIGINT, signal.SIGTERM}
    assert done.stderr == "not in the trace: b'WAV?'\n"
    login = [f"login replay:replay, {keys}:", f"a {keys}"] if keys else []
    assert done.stdout.splitlines() == [
        f"{tmp_path / 't.jsonl'}: instrument meter, model N7744",
        *login,
        "scpi://127.0.0.1:7, in real time; Ctrl-C ends it",
    ]
    document = json.loads(run("replay", tmp_path / "t.jsonl", "--json").stdout)
    expected = {"name": "meter", "address": "scpi://127.0.0.1:7", **about}
    expected |= {"login": "replay:replay", keys: f"a {keys}"} if keys else {}
    assert document == [expected]


def test_a_replay_that_cannot_listen_closes_what_it_has_opened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = module_of("replay")
    closed: list[str] = []
    monkeypatch.setattr(command, "read", lambda trace: SimpleNamespace(about={}))
    monkeypatch.setattr(
        command, "SystemClock", lambda: SimpleNamespace(close=lambda: closed.append("clock"))
    )
    monkeypatch.setattr(
        command,
        "DeviceServer",
        lambda clock: SimpleNamespace(close=lambda: closed.append("server")),
    )
    for error, text in (
        (OSError(98, "Address already in use"), "port 7: Address already in use; try another"),
        (LightrigError("two instruments"), "two instruments\n"),
    ):

        def refuse(*_: object, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(command, "ReplayDevice", refuse)
        done = run("replay", tmp_path / "t.jsonl", "--port", 7)
        assert (done.exit_code, done.stderr.startswith(text)) == (2, True)
    assert closed == ["server", "clock"] * 2


# ----------------------------------------------------------------------------- served lab


@pytest.mark.parametrize(
    ("servers", "obstacle", "ethtool", "lacking"),
    [
        ((True, False), "no root", None, ["ethtool", "shell"]),
        ((True, True), "no root", None, ["ethtool"]),
        ((True, True), "no root", "/sbin/ethtool", []),
        ((False, False), "no root", None, ["shell"]),
        ((False, False), None, None, []),
        ((), "no root", None, []),
    ],
)
def test_a_served_lab_names_what_this_machine_lacks(
    monkeypatch: pytest.MonkeyPatch, servers: Any, obstacle: str | None, ethtool: str | None,
    lacking: list[str],
) -> None:  # fmt: skip
    """Servers that are namespaces listen behind the instruments, and further wires behind them."""
    command = module_of("served_lab")
    noted: list[Any] = []
    wires: list[int] = []

    def closer(name: str) -> Any:
        return SimpleNamespace(close=lambda: noted.append(name))

    def simulated(testbed: Any, clock: Any, seed: int, links: Any, **more: Any) -> Any:
        noted.append((seed, links, more))
        return SimpleNamespace(
            services={"ocs": "service", "laser": "service"}, login=("drawn", "secret"),
            close=lambda: noted.append("world"), failure="broken",
            serve_further_wires=lambda port: wires.append(port) or {"ocs": ["more"]},
        )  # fmt: skip

    def sshd(pid: int, name: str, login: Any, port: int) -> Any:
        noted.append((pid, name, login, port))
        return SimpleNamespace(
            address=("host", port), known_hosts_line=lambda: "key",
            close=lambda: noted.append(f"sshd {name}"),
        )  # fmt: skip

    local = {
        f"s{n}": SimpleNamespace(is_local_namespace=one, has_interfaces=False)
        for n, one in enumerate(servers)
    }
    names = [name for name, one in local.items() if one.is_local_namespace]
    pids = {name: 70 + number for number, name in enumerate(names)}
    parts = {
        "SystemClock": lambda: closer("clock"),
        "shell_obstacle": lambda: obstacle,
        "sshd_program": lambda: noted.append("sshd is there"),
        "kernel_lab": lambda testbed, spaces, closers: (pids, "links"),
        "shutil": SimpleNamespace(which={"ethtool": ethtool}.get),
        "SimulatedLab": simulated,
        "NamespaceSshd": sshd,
    }
    for name, part in parts.items():
        monkeypatch.setattr(command, name, part)
    lab = command.ServedLab(SimpleNamespace(servers=local), 9, 500, {"s0": ("ann", "tea")})
    assert [line.partition(":")[0].rpartition(" ")[2] for line in lab.lacking] == lacking
    logins = {"s0": ("ann", "tea"), "s1": ("drawn", "secret")}
    made = [one for one in noted if isinstance(one, tuple)]
    assert (made[0][2].pop("elsewhere"), made[0][2].pop("carrier_changed")) == ([], None)
    options = {"first_port": 500, "logins": {"s0": ("ann", "tea")}, "stated_identities": True}
    assert made[0] == (9, "links" if names else None, {**options, "with_shells": obstacle is None})
    assert made[1:] == [
        (70 + number, name, logins[name], 502 + number) for number, name in enumerate(names)
    ]
    assert list(lab.services) == ["ocs", "laser", *names]
    assert (wires, lab.further_wires) == ([502 + len(names)], {"ocs": ["more"]})
    assert lab.failure == "broken"
    noted.clear()
    lab.close()
    lab.close()
    assert noted == [*(f"sshd {name}" for name in reversed(names)), "world", "clock"]
    command.ServedLab(SimpleNamespace(servers=local), 9, 0)
    assert wires[-1] == 0
    assert {one[3] for one in noted if isinstance(one, tuple) and len(one) == 4} <= {0}


# -------------------------------------------------------------------------------- init


def run_init(file: Path, *options: str, asked: str = "", **changes: object) -> Any:
    """Run `lightrig init` with an answer to each question, but to the one that is asked."""
    answers = {
        "name": "mine", "switch": "ocs", "model": "polatis", "address": "tl1://ocs.lab:3082",
        "login": "", "size": "20x20", "servers": 6, "ports": 3, "server-address": "ssh://{name}",
        "netdev": "eth{p}", "rdma": "", "rate": "100G", **changes,
    }  # fmt: skip
    given = [f"--{name}={value}" for name, value in answers.items() if name != asked]
    return run("init", file, *given, *options, input=f"{changes.get(asked, '')}\n")


@pytest.mark.parametrize(
    ("servers", "ports", "plans"),
    [
        (6, 3, ["server[0,1,2].nic0.p[0-2] <-> server[3,4,5].nic0.p[0-2]",
                "server[0,1,2].nic0.p[0-2] <-> server[3,4,5].nic0.p[2,1,0]"]),
        (4, 1, ["server[0,1].nic0 <-> server[2,3].nic0", "server[0,1].nic0 <-> server[3,2].nic0"]),
        (2, 2, ["server[0].nic0.p[0-1] <-> server[1].nic0.p[0-1]",
                "server[0].nic0.p[0-1] <-> server[1].nic0.p[1,0]"]),
        (2, 1, ["server[0].nic0 <-> server[1].nic0"]),
    ],
)  # fmt: skip
def test_the_written_plans_pair_the_halves_of_the_servers(
    tmp_path: Path, servers: int, ports: int, plans: list[str]
) -> None:
    file = tmp_path / "mine.yaml"
    done = run_init(file, "--no-probe", servers=servers, ports=ports)
    assert done.exit_code == 0, done.output
    text = file.read_text()
    assert [line.strip(" -") for line in text.splitlines() if " <-> server" in line] == plans
    assert f"server[0-{servers - 1}].nic0" in text
    assert ("crossed:" in text) is (len(plans) == 2)
    assert "login:" not in text
    assert "rdma:" not in text
    assert "`lightrig check mine.yaml`" in text
    more = tmp_path / "m.yaml"
    run_init(more, "--no-probe", login="env:X", rdma="mlx5_{p}")
    full = more.read_text()
    assert 'address: "tl1://ocs.lab:3082", login: env:X, size: 20x20' in full
    assert 'netdev: "eth{p}", rdma: "mlx5_{p}", rate: 100G' in full


@pytest.mark.parametrize(
    ("size", "servers", "ports", "fits"),
    [("9x20", 2, 4, True), ("9x20", 2, 5, False), ("20x9", 2, 5, False), ("10x10", 2, 5, True)],
)
def test_ports_fit_on_the_smaller_side(
    tmp_path: Path, size: str, servers: int, ports: int, fits: bool
) -> None:
    file = tmp_path / "mine.yaml"
    done = run_init(file, "--no-probe", size=size, servers=servers, ports=ports)
    assert (done.exit_code, file.exists()) == ((0, True) if fits else (2, False))


@pytest.mark.parametrize(
    ("switch", "server", "placeholder"),
    [
        ("tl1://a.invalid", "ssh://{name}.invalid", True),
        ("tl1://a.lab", "ssh://{name}.invalid", False),
        ("tl1://a.invalid", "ssh://{name}.lab", False),
    ],
)
def test_only_a_lab_without_any_address_is_not_probed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, switch: str, server: str, placeholder: bool
) -> None:
    def connect(testbed: Any, **_: object) -> Any:
        raise LightrigError("no route")

    monkeypatch.setattr("lightrig.harness.doctor.connect.connect_lab", connect)
    done = run_init(tmp_path / "m.yaml", address=switch, **{"server-address": server})
    assert done.exit_code == (0 if placeholder else 1), done.output
    assert ("nothing was probed: no route" in done.stderr) is not placeholder


def test_what_was_probed_is_printed_and_decides_the_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    closed: list[str] = []
    failures: dict[str, LightrigError] = {}
    bench = SimpleNamespace(
        identities={"ocs": "Polatis, serial 7"}, close=lambda: closed.append("x")
    )

    def connect(testbed: Any, *, simulated: bool, seed: int) -> Any:
        assert (simulated, seed) == (False, 0)
        return SimpleNamespace(bench=bench, failures=failures)

    monkeypatch.setattr("lightrig.harness.doctor.connect.connect_lab", connect)
    file = tmp_path / "mine.yaml"
    at = ("init", file, "--defaults", "--address", "tl1://127.0.0.1:9")
    done = run(*at)
    assert (done.exit_code, closed) == (0, ["x"])
    assert done.stdout.splitlines() == [
        "ocs: answers as Polatis, serial 7",
        f"{file} is written and has no errors.",
        f"next      lightrig doctor {file}",
        f"or        pytest --pyargs lightrig.suites --testbed {file} --instruments simulated",
    ]
    file.unlink()
    failures["server0"] = LightrigError("no route\nmore")
    done = run(*at, "--json")
    assert (done.exit_code, closed) == (1, ["x", "x"])
    assert json.loads(done.stdout) == [
        {"instrument": "ocs", "answered": True, "text": "Polatis, serial 7"},
        {"instrument": "server0", "answered": False, "text": "no route"},
    ]
    file.unlink()
    done = run(*at)
    assert (done.exit_code, "server0: does not answer: no route" in done.stdout) == (1, True)
    file.unlink()
    done = run(*at, "--no-probe")
    assert (done.exit_code, len(closed), done.stdout.startswith(f"{file} is")) == (0, 3, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--servers", 2), "asked"),
        (("--size", "9x20", "--servers", 4, "--ports", 3), "12 NIC ports do not fit on 9 ports"),
        (("--size", "0x9"), "size: found '0x9', expected ingress x egress"),
    ],
)
def test_answers_given_are_not_asked(tmp_path: Path, options: Any, message: str) -> None:
    done = run("init", tmp_path / "m.yaml", *options, input="\n" * 20)
    if message == "asked":
        assert done.exit_code == 0, done.output
        assert "Number of servers" not in done.output
        assert "Switched NIC ports of each server [2]" in done.output
        return
    assert (done.exit_code, message in done.output) == (2, True)


@pytest.mark.parametrize("text", ["0", "-2", "two", "1"])
def test_a_number_that_is_typed_is_from_1_on(tmp_path: Path, text: str) -> None:
    done = run_init(tmp_path / "m.yaml", "--no-probe", asked="ports", ports=text)
    expected = f"ports: found {text!r}, expected a number from 1 on"
    assert (done.exit_code, expected in done.stderr) == ((0, False) if text == "1" else (2, True))


# -------------------------------------------------------------------------------- plan

LEFT_OF_STRAIGHT = """\
crossed: 4 circuits; links server0.nic0.p0 <-> server1.nic0.p1, server0.nic0.p1 <-> server1.nic0.p0
   switch  circuit  from             to
-  ocs     1>11     server0.nic0.p0  server1.nic0.p0
"""


def test_each_change_of_a_plan_has_a_line_in_columns(tmp_path: Path) -> None:
    done = run("plan", describe(tmp_path), "crossed", "--from", "straight")
    assert done.exit_code == 0, done.output
    head, *lines = done.stdout.splitlines()
    assert head.startswith("crossed: 4 circuits; links server0.nic0.p0 <-> server1.nic0.p1, ")
    assert "\n".join([head, *lines[:2]]) == LEFT_OF_STRAIGHT.strip()
    signs = [(line[0], line.split()[2]) for line in lines[1:]]
    removed = ["1>11", "2>12", "3>9", "4>10"]
    made = ["1>12", "2>11", "3>10", "4>9"]
    assert signs == [*(("-", each) for each in removed), *(("+", each) for each in made)]
    whole = run("plan", describe(tmp_path))
    assert [line.split(":")[0] for line in whole.stdout.splitlines() if "links" in line] == [
        *("straight", "crossed")
    ]
    assert whole.stdout.count("\n+  ocs") == 8


# -------------------------------------------------------------------------------- check


def test_the_table_of_parts_is_folded_within_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    command = module_of("checked_file")
    monkeypatch.setattr(command.shutil, "get_terminal_size", lambda: SimpleNamespace(columns=58))
    long = "x" * 20 + " " + "y" * 20 + " z"
    parts = [
        ("switches", 2, ["ocs", "tor"]),
        ("NIC ports", 1_234, []),
        ("plans", 3, ["a (4 circuits, 2 links)", "b (4 circuits, 2 links)", long]),
    ]
    assert command.parts_table(parts).splitlines() == [
        "switches      2  ocs, tor",
        "NIC ports  1234",
        "plans         3  a (4 circuits, 2 links),",
        "                 b (4 circuits, 2 links),",
        f"                 {'x' * 20} {'y' * 20}",
        "                 z",
    ]


# -------------------------------------------------------------------------------- train


@pytest.mark.parametrize(
    ("text", "degrees"),
    [
        ("pp=2,dp=3", {"pp": 2, "dp": 3}),
        ("", {}),
        ("pp=0", None),
        ("pp=1", {"pp": 1}),
        ("p2=2", None),
        ("pp=x", None),
        ("pp=2,pp=2", None),
        ("pp", None),
    ],
)
def test_degrees_are_read(text: str, degrees: dict[str, int] | None) -> None:
    command = importlib.import_module("lightrig.harness.jobs.commands.train")
    if degrees is not None:
        assert command.parallel_degrees(text) == degrees
        return
    with pytest.raises(typer.Exit) as ended:
        command.parallel_degrees(text)
    assert ended.value.exit_code == 2


# ------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (BlockingIOError(11, "Resource temporarily unavailable"), "starts no more processes"),
        (RuntimeError("can't start new thread"), "starts no more threads"),
        (MemoryError(), "has no more memory"),
    ],
)
def test_what_the_machine_refuses_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    sentence: str,
) -> None:
    def command(**_: object) -> None:
        raise error

    monkeypatch.setattr("lightrig.harness.cli.app.application", lambda _name: command)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "lab.yaml"])
    assert ended.value.code == 3
    assert f"lightrig doctor: the machine {sentence} for this account" in capsys.readouterr().err
