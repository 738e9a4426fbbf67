"""`lightrig orchestrate`: requests over TCP, one JSON a line."""

import json
import shlex
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from bench.accounts import EVE, needs_accounts, shell
from typer.testing import CliRunner

from lightrig.harness.cli import orchestrate
from lightrig.harness.cli.app import application
from lightrig.testbeds import LightrigError


class Echo:
    """Answers with what it is asked."""

    def start(self) -> None:
        pass

    def request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if request["do"] == "refuse":
            raise LightrigError("no such job")
        return request

    def close(self) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    with orchestrate._Server((orchestrate.HOST, 0), Echo()) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_each_line_is_answered(port: int) -> None:
    with socket.create_connection((orchestrate.HOST, port), timeout=10) as opened:
        lines = opened.makefile("rw", encoding="utf-8")
        for sent, answer in [
            ('{"do": "status"}', {"do": "status"}),
            ("not JSON", "Expecting value"),
            ("[]", "list indices"),
            ('{"do": "refuse"}', "no such job"),
            ('{"do": "again"}', {"do": "again"}),
        ]:
            lines.write(sent + "\n")
            lines.flush()
            found = json.loads(lines.readline())
            assert found == answer if isinstance(answer, dict) else answer in found["error"]


def ask(port: int, text: str) -> Any:
    arguments = ["orchestrate", "infinitehbd", "lab.yaml", "--port", str(port), "--ask", text]
    return CliRunner().invoke(application("orchestrate"), arguments)


def test_a_request_from_the_command_line(port: int) -> None:
    done = ask(port, '{"do": "status"}')
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"do": "status"})
    assert ask(port, '{"do": "refuse"}').exit_code == 1
    assert ask(port, "{").exit_code == 2


def test_without_a_service_the_command_says_so(port: int) -> None:
    with socket.socket() as unused:
        unused.bind((orchestrate.HOST, 0))
        found = ask(unused.getsockname()[1], "{}")
    assert found.exit_code == 3
    assert "does `lightrig orchestrate` run there?" in found.stderr


@needs_accounts
def test_another_account_moves_no_light(port: int) -> None:
    request = json.dumps({"do": "status"})
    program = f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo '{request}' >&3; head -n 1 <&3"
    for account, answer in ((EVE, "own account and from root"), (0, '{"do": "status"}')):
        found = shell(account, f"bash -c {shlex.quote(program)}")
        assert answer in found.stdout, found
