"""`lightrig orchestrate`: the order of its parts, where it is reached, and its exit statuses."""

import importlib
import json
import os
import signal
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from bench.served_lab import describe
from typer.testing import CliRunner

from lightrig.harness.bench.lease import LeaseConflictError
from lightrig.harness.cli.app import application
from lightrig.harness.orchestration.listener_account import AccountTransport, TokenAuth
from lightrig.testbeds import LightrigError

COMMAND = importlib.import_module("lightrig.harness.orchestration.commands.orchestrate")
TITLE = "A system of ours"


class Service:
    """Stands for what the command puts together; notes what is called, in order.

    end: called in the loop's thread, as the service goes on.
    """

    def __init__(self) -> None:
        self.noted: list[object] = []
        self.tokens: list[str] = []
        self.handlers: dict[int, object] = {}
        self.alive, self.ended, self.leads = True, "", False
        self.takes_messages = False
        self.end = lambda: self.handlers[signal.SIGTERM](15, None)  # type: ignore[operator]

    # The control.

    def take(self) -> None:
        self.noted.append("takes the lead")
        if self.leads:
            raise LeaseConflictError("process 7 of gate")

    def wait(self, over, report):
        assert isinstance(over, threading.Event)
        report("process 7 of gate")
        self.noted.append("waits")
        return not self.leads

    def release(self) -> None:
        self.noted.append("gives up the lead")

    # The orchestrator.

    def start(self) -> None:
        self.noted.append("starts")

    def run(self, over, period, report):
        self.noted.append(("runs", period))
        self.end()

    def close(self) -> None:
        self.noted.append("gives up the switches")

    # What takes messages of ranks.

    def rank_messages(self, running, heard, control):
        assert running is control is self
        self.noted.append(("hears", Path(heard).name))
        return SimpleNamespace(
            start=lambda: self.noted.append("listens to ranks"),
            close=lambda: self.noted.append("listens no more"),
        )

    # The API.

    def new_token(self, file):
        self.tokens.append(file.name)
        file.parent.mkdir(exist_ok=True)
        file.write_text("made\n")
        file.chmod(0o600)
        return f"token of {file.name}"

    def unix_socket(self, path):
        return f"socket {path.name}"

    def tls(self, key, *, server):
        return f"tls {key.name} {server}"

    def http_server(self, running, listening, token, context, ranks):
        assert running is self
        assert (ranks is not None) == self.takes_messages
        if isinstance(listening, socket.socket):
            listening.close()
            listening = "port"
        self.noted.append(("serves", listening, token, context))
        return SimpleNamespace(close=lambda: self.noted.append("serves no more"))


@pytest.fixture
def service(monkeypatch):
    made = Service()
    made.HttpServer = made.http_server

    def orchestrator(wiring, layout, switches, state, control):
        assert control is made
        made.noted.append(("of", wiring, layout, switches, Path(state).name))
        return made

    parts = {
        "read_fabric": lambda file: "fabric",
        "http_api": lambda: made,
        "Control": lambda state: made,
        "wiring_of": lambda fabric: f"wiring of {fabric}",
        "SimulatedSwitches": lambda wiring: "simulated",
        "SwitchSessions": lambda wiring, control: ("sessions", wiring, control is made),
        "Orchestrator": orchestrator,
        "LOOK_AGAIN_S": 0.01,
    }
    for name, part in parts.items():
        monkeypatch.setattr(COMMAND, name, part)
    monkeypatch.setattr(signal, "signal", made.handlers.__setitem__)
    keys = importlib.import_module("lightrig.harness.night.keys")
    monkeypatch.setattr(keys, "read_key", lambda file: made.noted.append(f"reads {file.name}"))
    return made


@pytest.fixture
def run(tmp_path, service, monkeypatch):
    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "states"))
    monkeypatch.chdir(tmp_path)
    file = describe(tmp_path)
    parts = {
        "orchestrator": lambda: lambda fabric: f"orchestrator of {fabric}",
        "rank_messages": lambda: service.rank_messages if service.takes_messages else None,
    }
    system = SimpleNamespace(title=TITLE, load=lambda part: parts[part](), orchestrator="there")
    app = typer.Typer()
    app.command()(COMMAND.command_of(system))
    return lambda *options: CliRunner().invoke(app, [str(file), *map(str, options)])


def test_switches_are_given_up_before_the_lead_and_after_the_last_request(run, service):
    done = run("--period", "2.5", "--port", "0", "--json")
    assert done.exit_code == 0, done.output
    wiring, layout = "wiring of fabric", "orchestrator of fabric"
    first, *rest = service.noted
    state = rest[0][-1]
    assert first == "takes the lead"
    assert state.startswith("orchestrate-")
    assert state.endswith(".json")
    assert rest == [
        ("of", wiring, layout, ("sessions", wiring, True), state),
        "starts",
        ("serves", "port", f"token of {Path(state).stem}.token", None),
        ("runs", 2.5),
        *("serves no more", "gives up the switches", "gives up the lead"),
    ]
    assert set(service.handlers) == {signal.SIGINT, signal.SIGTERM}
    document = json.loads(done.stdout)
    host, _, port = document["address"].rpartition(":")
    assert (host, document["simulated"]) == ("127.0.0.1", False)
    assert 1024 < int(port) < 65536
    assert document["token"].endswith(f"{Path(state).stem}.token")


def test_ranks_are_heard_after_the_switches_are_set_and_not_after_the_last_request(run, service):
    service.takes_messages = True
    done = run("--period", "2.5", "--port", "0", "--state", "mine.json")
    assert done.exit_code == 0, done.output
    assert service.noted[2:] == [
        "starts",
        ("hears", "mine-ranks.json"),
        "listens to ranks",
        ("serves", "port", "token of mine.token", None),
        ("runs", 2.5),
        *("serves no more", "listens no more", "gives up the switches", "gives up the lead"),
    ]


def test_simulated_switches_are_named_and_have_a_state_of_their_own(run, service, tmp_path):
    done = run("--instruments", "simulated", "--port", "0")
    assert done.exit_code == 0, done.output
    made = service.noted[1]
    assert made[3] == "simulated"
    assert made[4].startswith("orchestrate-simulated-")
    warning, line = done.stdout.splitlines()
    assert "no switch of the lab is driven" in warning
    assert line.startswith(f"{tmp_path / 'lab.yaml'}: http://127.0.0.1:")
    token = f"{Path(made[4]).stem}.token"
    assert line.endswith(f", token in {tmp_path / 'states' / token}; Ctrl-C ends it")
    assert "no switch of the lab is driven" not in run("--port", "0").stdout


def test_a_socket_needs_no_token(run, service, tmp_path):
    path = tmp_path / "api.socket"
    done = run("--socket", path, "--state", tmp_path / "mine.json", "--json")
    assert json.loads(done.stdout) == {
        "address": f"unix:{path}",
        "token": None,
        "simulated": False,
    }
    assert ("serves", "socket api.socket", None, None) in service.noted
    assert service.noted[1][4] == "mine.json"
    done = run("--socket", path, "--state", tmp_path / "mine.json")
    assert done.stdout == f"{tmp_path / 'lab.yaml'}: socket {path}; Ctrl-C ends it\n"


def test_without_an_option_a_unix_socket_of_this_account_is_used(run, service, tmp_path):
    document = json.loads(run("--json").stdout)
    folder = tmp_path / "states" / f"orchestrate-{os.geteuid()}"
    assert Path(document["address"].removeprefix("unix:")).parent == folder
    assert document["token"] is None
    assert service.tokens == []
    # Another file of what is wanted is another service.
    other = json.loads(run("--json", "--state", tmp_path / "other.json").stdout)
    assert other["address"] != document["address"]


def test_beyond_this_host_a_key_proves_who_asks(run, service, tmp_path):
    at = ("--address", "::1", "--port", "0", "--key", tmp_path / "k.pem")
    done = run(*at)
    assert done.exit_code == 0, done.output
    assert ": https://[::1]:" in done.stdout
    assert "token" not in done.stdout
    assert ("serves", "port", None, "tls k.pem True") in service.noted
    assert "reads k.pem" in service.noted
    document = json.loads(run(*at, "--json").stdout)
    assert document["address"].startswith("[::1]:")
    assert document["token"] is None


def test_what_ends_by_itself_is_an_error_and_another_leader_is_named(run, service):
    service.end = lambda: setattr(service, "alive", False)
    done = run("--port", "0")
    assert done.exit_code == 3
    assert "the service ended by an error of its own; its state is on disk" in done.stderr
    service.ended = "process 9 of rack"
    done = run("--port", "0")
    assert done.exit_code == 3
    assert done.stderr == "another process leads: process 9 of rack\n"
    assert service.noted[-3:] == ["serves no more", "gives up the switches", "gives up the lead"]


def test_a_second_process_waits_only_on_standby(run, service):
    service.leads = True
    done = run("--port", "0")
    assert done.exit_code == 3
    assert "process 7 of gate, leads; --standby waits to follow it" in done.stderr
    assert service.noted == ["takes the lead"]
    done = run("--port", "0", "--standby")
    assert (done.exit_code, done.stderr) == (0, "standby: process 7 of gate, leads\n")
    assert service.noted[1:] == ["waits"]
    service.leads = False
    assert service.tokens == []
    assert run("--port", "0", "--standby").exit_code == 0
    assert "starts" in service.noted
    (token,) = service.tokens  # there was none
    # Clients of the leader that is followed have its token.
    assert run("--port", "0", "--standby").exit_code == 0
    assert service.tokens == [token]
    assert service.noted[-5][:3] == ("serves", "port", "made")
    assert run("--port", "0").exit_code == 0
    assert service.tokens == [token, token]


def test_a_port_that_is_taken_is_named(run, service):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--port", port)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"http://127.0.0.1:{port}, token in ")
    assert ".token: Address already in use" in done.stderr
    assert done.stderr.endswith("; try another place\n")
    assert service.noted[-2:] == ["gives up the switches", "gives up the lead"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--address", "gate"), "found --address gate, expected an IP address"),
        (("--address", "192.0.2.1"), "192.0.2.1 is beyond loopback: state --key FILE as well"),
    ],
)
def test_an_address_without_proof_is_refused(run, service, options, why):
    done = run(*options)
    assert (done.exit_code, service.noted) == (2, [])
    assert done.stderr == f"{why}\n"


@pytest.mark.parametrize("local", ["127.0.0.1", "127.0.0.9"])
def test_a_local_address_and_a_proof_need_no_other(tmp_path, local):
    place = COMMAND.ServicePlace
    assert str(place(local, 7, None, None, tmp_path)) == f"http://{local}:7, token in {tmp_path}"
    assert str(place("192.0.2.1", 7, None, tmp_path / "s", tmp_path)) == f"socket {tmp_path / 's'}"
    keyed = place("192.0.2.1", 7, tmp_path / "k", None, tmp_path)
    assert str(keyed) == "https://192.0.2.1:7"
    assert keyed.document() == {"address": "192.0.2.1:7", "token": None}


def test_the_state_is_in_the_folder_of_the_lab(run, service, tmp_path, monkeypatch):
    """Its token lies beside it, by the same name."""

    def places(*options):
        document = json.loads(run("--port", "0", "--json", *options).stdout)
        state = next(given[-1] for given in service.noted if given[0] == "of")
        service.noted.clear()
        token = Path(document["token"])
        assert token.name == f"{Path(state).stem}.token"
        return token.parent, state

    monkeypatch.setenv("LIGHTRIG_STATE", str(tmp_path / "machine"))
    folder, name = places()
    assert folder == tmp_path / "machine"
    file = tmp_path / "lab.yaml"
    file.write_text(f"lab_folder: shared\n{file.read_text()}")
    assert places() == (tmp_path / "shared", name)
    simulated = name.replace("orchestrate-", "orchestrate-simulated-")
    assert places("--instruments", "simulated") == (tmp_path / "shared", simulated)


def test_a_request_is_sent_as_it_is_given(run, service, tmp_path, monkeypatch):
    clients, answers = [], []

    class Client:
        def __init__(self, **given):
            clients.append(given)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            clients.append("closed")

        def post(self, path, content):
            clients.append((path, json.loads(content)))
            return answers.pop(0)

    def answer(document, is_error):
        return SimpleNamespace(json=lambda: document, is_error=is_error)

    token = tmp_path / "mine.token"
    token.write_text("secret\n")
    token.chmod(0o600)
    monkeypatch.setattr(COMMAND.httpx, "Client", Client)
    answers[:] = [answer({"jobs": {}}, False), answer({"error": "no"}, True)]
    at = ("--state", tmp_path / "mine.json", "--ask", '{"do": "status"}')
    done = run("--port", "81", *at)
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"jobs": {}})
    given, sent, closed = clients
    assert (sent, closed) == (("/v1/requests", {"do": "status"}), "closed")
    assert given["base_url"] == "http://127.0.0.1:81"
    assert isinstance(given["auth"], TokenAuth)
    assert (given["trust_env"], given["verify"]) == (False, True)
    assert isinstance(given["transport"], AccountTransport)
    clients.clear()
    refused = run("--key", tmp_path / "k.pem", "--address", "192.0.2.1", "--port", "81", *at)
    assert (refused.exit_code, json.loads(refused.stdout)) == (1, {"error": "no"})
    assert clients[0]["base_url"] == "https://192.0.2.1:81"
    assert (clients[0]["auth"], clients[0]["verify"]) == (None, "tls k.pem False")
    assert clients[0]["transport"] is None
    assert service.noted == ["reads k.pem"]
    token.unlink()
    assert run("--port", "81", *at).exit_code == 3
    wrong = run("--ask", "{")
    assert (wrong.exit_code, "'{' is no JSON" in wrong.stderr) == (2, True)
    clients.clear()
    answers[:] = [answer({}, False)]
    assert run("--socket", tmp_path / "s", "--ask", "{}").exit_code == 0
    assert clients[0]["base_url"] == "http://lightrig"
    assert clients[0]["transport"] is not None


def test_there_is_a_command_for_each_control_plane():
    done = CliRunner().invoke(application("orchestrate"), ["orchestrate", "--help"])
    for name in ("acos", "infinitehbd", "mixnet", "opus", "railx"):
        assert name in done.stdout


def test_a_fabric_that_cannot_be_reached_is_an_error_of_the_lab(run, service, monkeypatch):
    def refuse():
        raise LightrigError("no switch answers")

    monkeypatch.setattr(service, "start", refuse)
    done = run("--port", "0")
    assert (done.exit_code, done.stderr) == (3, "no switch answers\n")
    assert service.noted[-2:] == ["gives up the switches", "gives up the lead"]
