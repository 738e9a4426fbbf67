"""A token goes to no port that the kernel names another account's: processes of two accounts."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.orchestration.listener_account import (
    AccountTransport,
    ListenerAccountError,
    check_account,
)
from lightrig.harness.systems.railx.generator import render

STRANGER = 65534
SECRET = "a-token-of-forty-three-characters-and-more-"
ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"epoch": 7}\r\n'

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root with setpriv can become another account"
)


@contextlib.contextmanager
def stranger(program: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program as another account."""
    begin = f"import os, socket; os.setgid({STRANGER}); os.setuid({STRANGER})\n"
    command = [sys.executable, "-S", "-c", begin + program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


LISTENS = """
one = socket.create_server((HOST, PORT), family=FAMILY)
print(one.getsockname()[1], flush=True)
"""
TAKES = """
one.settimeout(60)
made, _ = one.accept()
made.settimeout(30)
print("got", made.recv(4096), flush=True)
"""


@contextlib.contextmanager
def answering(host: str, family: int = socket.AF_INET, dual: bool = False) -> Iterator[int]:
    """Answer one request as this account; yields the port."""

    def answer() -> None:
        made, _ = listening.accept()
        with made:
            while not made.recv(4096).endswith(b"\r\n\r\n"):
                pass
            made.sendall(ANSWER)

    with socket.create_server((host, 0), family=family, dualstack_ipv6=dual) as listening:
        listening.settimeout(30)
        thread = threading.Thread(target=answer)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(60)


def get(host: str, port: int) -> httpx.Response:
    with httpx.Client(transport=AccountTransport(30), trust_env=False) as client:
        return client.get(f"http://{host}:{port}/x", headers={"Authorization": SECRET})


@needs_root
def test_another_account_that_listens_is_sent_nothing(tmp_path: Path) -> None:
    """The whole command, with a token of an earlier service."""
    (tmp_path / "grid.yaml").write_text(render(4, 3))
    token = tmp_path / "s.token"
    token.touch(0o600)
    token.write_text(SECRET)
    listens = LISTENS.replace("HOST, PORT", "'127.0.0.1', 0").replace("FAMILY", "socket.AF_INET")
    with stranger(listens + TAKES) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        asked = ["orchestrate", "railx", str(tmp_path / "grid.yaml"), "--port", str(port)]
        asked += ["--state", str(tmp_path / "s.json"), "--ask", '{"do": "status"}']
        done = CliRunner().invoke(application("orchestrate"), asked)
        assert (done.exit_code, done.stdout) == (3, "")
        assert f"127.0.0.1:{port}: account {STRANGER} listens there, neither this" in done.stderr
        assert process.stdout.readline() == "got b''\n"


@needs_root
def test_another_account_at_a_unix_socket_is_sent_nothing(tmp_path: Path) -> None:
    """The path that was stated lies where that account may make files."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)
    tmp_path.chmod(0o777)
    path = tmp_path / "api.socket"
    listens = f"one = socket.socket(socket.AF_UNIX)\none.bind({str(path)!r})\none.listen()\n"
    listens += f"os.chmod({str(path)!r}, 0o777)\nprint(flush=True)\n"
    with stranger(listens + TAKES) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (tmp_path / "grid.yaml").write_text(render(4, 3))
        asked = ["orchestrate", "railx", str(tmp_path / "grid.yaml"), "--socket", str(path)]
        done = CliRunner().invoke(application("orchestrate"), [*asked, "--ask", '{"do": "status"}'])
        assert (done.exit_code, done.stdout) == (3, "")
        assert f"api.socket: account {STRANGER} listens there" in done.stderr
        assert process.stdout.readline() == "got b''\n"


@needs_root
def test_a_listener_of_this_account_that_came_later_is_not_the_other_end() -> None:
    """The stranger has the connection already when the service listens again."""
    program = LISTENS.replace("HOST, PORT", "'127.0.0.1', 0").replace("FAMILY", "socket.AF_INET")
    program += "made, _ = one.accept()\none.close()\nprint(flush=True)\nmade.recv(1)\n"
    with stranger(program) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as connected:
            process.stdout.readline()
            with (
                socket.create_server(("127.0.0.1", port)),
                pytest.raises(ListenerAccountError, match=f"account {STRANGER} listens"),
            ):
                check_account(connected)


@needs_root
def test_a_listener_of_another_account_beside_ours_hinders_nothing() -> None:
    """The kernel gives it no connection to the address that ours is bound to."""
    with answering("127.0.0.1") as port:
        listens = LISTENS.replace("HOST, PORT", f"'::', {port}").replace(
            "FAMILY", "socket.AF_INET6"
        )
        with stranger(listens + TAKES) as process:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == port
            assert get("127.0.0.1", port).json() == {"epoch": 7}


@pytest.mark.parametrize(
    ("host", "family", "dual", "at"),
    [
        ("127.0.0.1", socket.AF_INET, False, "127.0.0.1"),
        ("0.0.0.0", socket.AF_INET, False, "127.0.0.1"),
        ("::1", socket.AF_INET6, False, "[::1]"),
        ("::", socket.AF_INET6, True, "127.0.0.1"),
    ],
)
def test_a_listener_of_this_account_is_sent_the_request(host, family, dual, at) -> None:
    with answering(host, family, dual) as port:
        assert get(at, port).json() == {"epoch": 7}


def test_a_port_without_a_listener_is_a_transport_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(httpx.TransportError):
        get("127.0.0.1", port)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"Content-Length: 10\r\n\r\n12345", httpx.TransportError),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n", httpx.TransportError),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n", None),
        (b"Content-Length: 5\r\n\r\n12345", None),
    ],
)
def test_an_answer_at_a_socket_comes_in_pieces_and_whole_or_not_at_all(
    tmp_path: Path, answer: bytes, error: type[Exception] | None
) -> None:
    path = tmp_path / "a.socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + answer)

        thread = threading.Thread(target=serve)
        thread.start()
        refused = contextlib.nullcontext() if error is None else pytest.raises(error)
        transport = AccountTransport(30, path)
        with (
            refused,
            httpx.Client(base_url="http://a", transport=transport) as client,
            client.stream("GET", "/") as got,
        ):
            assert b"".join(got.iter_raw()) == b"12345"
        thread.join()
