"""`lightrig replay`: a trace as an instrument on loopback."""

import base64
import json
import signal
import socket
import subprocess
from pathlib import Path

import paramiko
import preloaded
import pytest
import typer
from typer.testing import CliRunner

from lightrig.harness.cli.replay import replay
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import NoReplyError
from lightrig.instruments.core.transcript import Piece, first_line
from lightrig.instruments.wire.scpi import scpi_session

MS = 1_000_000


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "meter.jsonl"
    pieces = [
        Piece(0, 1, "open", b"scpi://meter.lab:5025"),
        Piece(1 * MS, 1, ">", b"POW?\n"),
        Piece(2 * MS, 1, "<", b"-3.25\n"),
    ]
    about = {"instrument": "meter", "model": "some-meter", "when": "2026-01-05T01:30:00Z"}
    lines = [first_line(about), *(piece.line().decode().rstrip() for piece in pieces)]
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.fixture
def started():
    running = []

    def start(*arguments):
        pipe = subprocess.PIPE
        running.append(
            preloaded.Process(["lightrig", "replay", *arguments], stdout=pipe, stderr=pipe)
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_it_answers_until_ctrl_c(started, trace):
    process = started(trace, "--json")
    (row,) = json.loads(process.stdout.readline())
    assert (row["name"], row["model"]) == ("meter", "some-meter")
    clock = SystemClock()
    session = scpi_session("meter", Endpoint.parse(row["address"], None), clock)
    assert session.query("POW?").text == "-3.25"
    with pytest.raises(NoReplyError):
        session.query("WAV?", 200 * MS)
    session.close()
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "not in the trace: b'WAV?" in printed


def test_addresses_are_printed(started, trace):
    process = started(trace)
    assert "instrument meter, model some-meter" in process.stdout.readline().replace("\n", "")
    assert process.stdout.readline().startswith("scpi://127.0.0.1:")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense\n", ":1: no line of a trace"),
        (None, "No such file"),
        ("netconf", "what can be replayed"),
    ],
)
def test_bad_input(trace, text, why):
    if text is None:
        trace.unlink()
    elif text == "netconf":
        trace.write_text(trace.read_text().replace("scpi://", "netconf://"))
    else:
        trace.write_text(text)
    app = typer.Typer()
    app.command()(replay)
    result = CliRunner().invoke(app, [str(trace)])
    assert result.exit_code == 2
    assert why in result.output


def test_a_command_line_over_ssh(started):
    """A client logs in with what is printed, and the recorded programs answer."""
    recorded = Path(__file__).parents[1] / "transcripts" / "sonic-ocs" / "ssh.jsonl"
    process = started(recorded, "--json")
    (row,) = json.loads(process.stdout.readline())
    host, port = row["address"].removeprefix("ssh://").split(":")
    user, password = row["login"].split(":")
    with paramiko.SSHClient() as client:
        client.get_host_keys().add(
            f"[{host}]:{port}",
            *_key(row["known_hosts"]),
        )
        client.connect(host, int(port), user, password, allow_agent=False, look_for_keys=False)
        _, stdout, _ = client.exec_command("show version")
        assert "Platform: simulated-ocs" in stdout.read().decode()
        _, stdout, _ = client.exec_command("reboot")
        assert stdout.channel.recv_exit_status() == 127
    process.send_signal(signal.SIGINT)
    assert "not in the trace: b'reboot'" in process.communicate(timeout=60)[1]


def _key(line):
    _, kind, data = line.split()
    return kind, paramiko.ECDSAKey(data=base64.b64decode(data))


def test_a_port_that_is_taken(trace):
    app = typer.Typer()
    app.command()(replay)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(app, [str(trace), "--port", str(port)])
    assert result.exit_code == 2
    assert f"port {port}: Address already in use" in result.output
    assert "try another --port" in result.output
