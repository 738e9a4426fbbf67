"""`lightrig agent` and `orchestrate --agents`: where agents are reached, and what is refused."""

import contextlib
import importlib
import json
import signal
import socket
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.night.keys import make_keys
from lightrig.harness.orchestration.agents import AgentSwitches, HostAgent
from lightrig.harness.systems.acos.generator import render_rings
from lightrig.testbeds import LightrigError, load
from lightrig.testbeds.lab_hosts import load_hosts
from tests.campaigns.switchroom import Switchroom

ORCHESTRATE = importlib.import_module("lightrig.harness.orchestration.commands.orchestrate")
AGENT = importlib.import_module("lightrig.harness.orchestration.commands.agent")
LAB = "keys: keys\nhosts: {gate: {testbeds: [a.yaml]}}"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rings") / "rings.yaml"
    made.write_text(render_rings())
    return made


def run(*options: object):
    return CliRunner().invoke(application("agent"), ["agent", "acos", *map(str, options)])


def test_an_agent_needs_a_proof_of_who_asks(file) -> None:
    done = run(file, "--host", "gpu1")
    assert (done.exit_code, done.stderr) == (
        2,
        "state --socket PATH, or --address IP with --key FILE\n",
    )
    done = run(file, "--host", "gpu1", "--address", "192.0.2.1")
    assert done.exit_code == 2


def test_an_agent_says_which_switches_it_drives(file, tmp_path, monkeypatch) -> None:
    from lightrig.harness.orchestration import http_api

    handlers = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(AGENT, "_LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr(http_api.HttpServer, "close", lambda server: None)

    def served(server, running, listening, token, context=None, ranks=None):
        assert (token, context, ranks) == (None, None, None)
        listening.close()
        handlers[signal.SIGTERM](15, None)

    monkeypatch.setattr(http_api.HttpServer, "__init__", served)
    done = run(file, "--host", "gpu3", "--socket", tmp_path / "a.socket", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "address": f"unix:{tmp_path / 'a.socket'}",
        "token": None,
        "host": "gpu3",
        "switches": ["rx-gpu3-lane0", "rx-gpu3-lane1", "tx-gpu3-lane0", "tx-gpu3-lane1"],
    }


@pytest.mark.parametrize(
    ("template", "hosts", "why"),
    [
        ("/run/agent.socket", {"gpu1": {"a"}}, "expected one that has {host} in it"),
        ("{host}:17901", {"gpu1": {"a"}}, "state --key FILE, or a path"),
        ("/run/{host}", {}, "is of a system whose hosts drive switches"),
    ],
)
def test_a_template_that_reaches_no_agent_is_refused(capsys, template, hosts, why: str) -> None:
    with pytest.raises(typer.Exit) as raised:
        ORCHESTRATE.clients_of(template, hosts, None)
    assert raised.value.exit_code == 2
    assert why in capsys.readouterr().err


def test_agents_beyond_this_host_are_reached_with_a_key_of_the_lab(file, tmp_path) -> None:
    """The host is named by its loopback address here; a client without a key gets no answer."""
    from lightrig.harness.orchestration import http_api
    from lightrig.harness.orchestration.agent_api import agent_application

    (tmp_path / "lab.yaml").write_text(LAB)
    _, agent_key, key = (made for made, _, _ in make_keys(load_hosts(tmp_path / "lab.yaml")))
    room = Switchroom(load(file))
    names = frozenset({"tx-gpu1-lane0"})

    def unreadable():
        raise LightrigError("no server answers")

    agent = HostAgent("127.0.0.1", names, room, unreadable)
    listening = socket.create_server(("127.0.0.1", 0))
    template = f"{{host}}:{listening.getsockname()[1]}"
    server = http_api.HttpServer(
        agent_application(agent), listening, None, http_api.tls(agent_key, server=True)
    )
    with contextlib.closing(server):
        hosts = {"127.0.0.1": names}
        switches = AgentSwitches(hosts, ORCHESTRATE.clients_of(template, hosts, key), room)
        with contextlib.closing(switches):
            found = switches.probe(names)
            assert found["tx-gpu1-lane0"].circuits == frozenset()
            assert (dict(switches.look.silent), dict(switches.look.carriers)) == ({}, {})
