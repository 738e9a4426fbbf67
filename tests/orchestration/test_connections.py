"""Connections that have not shown that they may ask are few, are closed, and hinder no other."""

import contextlib
import json
import select
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from orchestration.test_http_api import at_a_port, client_at, descriptors, made_keys, orchestrator

from lightrig.harness.orchestration import connections, http_api
from lightrig.harness.orchestration.http_api import HttpServer
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.infinitehbd.generator import render

UNFINISHED = b"POST /v1/requests HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
WITHIN_S = 1.0


@pytest.fixture
def running(tmp_path: Path) -> Orchestrator:
    return orchestrator(tmp_path)


@pytest.fixture
def port(running: Orchestrator, tmp_path: Path) -> Iterator[int]:
    with at_a_port(running, tmp_path) as number:
        yield number


@pytest.fixture
def keys(tmp_path: Path) -> list[Path]:
    return made_keys(tmp_path / "lab")


@pytest.fixture
def port_with_keys(running: Orchestrator, keys: list[Path]) -> Iterator[int]:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = HttpServer(running, listening, None, http_api.tls(keys[0], server=True))
        yield listening.getsockname()[1]
        server.close()


def refused_amid_a_body(port: int) -> socket.socket:
    """Return a connection whose request was refused, and whose body has begun and does not end."""
    made = socket.create_connection(("127.0.0.1", port), 30)
    made.sendall(UNFINISHED)
    assert made.recv(4096).startswith(b"HTTP/1.1 401 ")
    with contextlib.suppress(ConnectionError):
        made.sendall(b"x")
    return made


def is_open(made: socket.socket) -> bool:
    """Return whether the other side has not closed; what it has sent is read and dropped."""
    made.setblocking(False)
    try:
        while made.recv(4096):
            pass
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    return False


def closed(made: socket.socket) -> bool:
    """Wait until the other side closes."""
    made.settimeout(30)
    with contextlib.suppress(ConnectionError):
        while made.recv(4096):
            pass
    return True


def test_a_body_that_never_ends_keeps_no_connection_open(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte of it made the server wait for the next one."""
    monkeypatch.setattr(connections, "FIRST_REQUEST_S", 0.5)
    made = refused_amid_a_body(port)
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while time.monotonic() < began + 10 and not select.select([made], [], [], 0.05)[0]:
            made.sendall(b"x")
    assert time.monotonic() - began < 5
    assert closed(made)
    made.close()
    with client_at(port, tmp_path) as client:
        assert client.get("/v1/status").status_code == 200


def test_of_many_refused_connections_the_oldest_are_closed(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_UNASKED", 20)
    made = [refused_amid_a_body(port) for _ in range(60)]
    with client_at(port, tmp_path) as client:
        assert client.get("/v1/status").status_code == 200
        assert not any(is_open(one) for one in made[: 60 + 1 - 20])
        assert all(is_open(one) for one in made[60 + 1 - 20 :])
        # The client's own stays, however many there are after it: it has the token.
        more = [refused_amid_a_body(port) for _ in range(30)]
        assert client.get("/v1/status").status_code == 200
    for one in (*made, *more):
        one.close()


def test_health_is_no_token(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "FIRST_REQUEST_S", 0.5)
    made = socket.create_connection(("127.0.0.1", port), 30)
    made.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nP")
    assert made.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert closed(made)
    made.close()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["nothing", "half a handshake"])
def test_connections_without_a_handshake_are_closed(
    port_with_keys: int, keys: list[Path], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "MOST_UNASKED", 20)
    monkeypatch.setattr(connections, "FIRST_REQUEST_S", 600)
    made = []
    for _ in range(60):
        made.append(socket.create_connection(("127.0.0.1", port_with_keys)))
        made[-1].sendall(sent)
    until = time.monotonic() + 30
    while sum(map(is_open, made)) > 20:
        assert time.monotonic() < until
        select.select(made, [], [], 0.1)
    verify = http_api.tls(keys[1], server=False)
    url = f"https://127.0.0.1:{port_with_keys}/v1/status"
    assert httpx.get(url, verify=verify, trust_env=False).json()["jobs"] == {}
    monkeypatch.setattr(connections, "FIRST_REQUEST_S", 0.3)
    last = socket.create_connection(("127.0.0.1", port_with_keys))
    last.sendall(sent)
    assert closed(last)
    for one in (*made, last):
        one.close()


def test_a_slow_handshake_is_not_pushed_out_by_silent_connections(
    port_with_keys: int, keys: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with a key takes its time; those that connect after it send nothing."""
    monkeypatch.setattr(connections, "MOST_UNASKED", 5)
    monkeypatch.setattr(connections, "FIRST_REQUEST_S", 600)
    context = http_api.tls(keys[1], server=False)
    plain = socket.create_connection(("127.0.0.1", port_with_keys), 30)
    with context.wrap_socket(plain, do_handshake_on_connect=False) as slow:
        slow.setblocking(False)
        with contextlib.suppress(OSError):
            slow.do_handshake()  # sends ClientHello
        assert select.select([slow], [], [], 30)[0]  # ServerHello has come
        silent = [socket.create_connection(("127.0.0.1", port_with_keys)) for _ in range(12)]
        assert closed(silent[0])
        slow.settimeout(30)
        slow.do_handshake()
        slow.sendall(b"GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n")
        assert slow.recv(4096).startswith(b"HTTP/1.1 200 ")
        assert sum(map(is_open, silent)) <= 5
    for one in silent:
        one.close()


def test_a_service_without_descriptors_accepts_again(tmp_path: Path) -> None:
    """It has fewer of them than the connections that it would accept."""
    few = connections.MOST_UNASKED - 20
    with service(tmp_path, most=few) as port, contextlib.ExitStack() as stack:
        for _ in range(connections.MOST_UNASKED + 20):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 30))
        client = stack.enter_context(client_at(port, tmp_path))
        assert client.get("/v1/status").status_code == 200
        assert client.get("/healthz").json() == {"alive": True}


@contextlib.contextmanager
def service(folder: Path, *options: str, most: int = 1024) -> Iterator[int]:
    """Run a service of simulated switches as a process with `most` descriptors; yield its port."""
    (folder / "row.yaml").write_text(render(5))
    command = [Path(sys.executable).with_name("lightrig"), "orchestrate", "infinitehbd"]
    command += [
        folder / "row.yaml",
        "--state",
        folder / "s.json",
        "--port",
        "0",
        "--json",
        *options,
    ]
    command += ["--instruments", "simulated"]
    limited = f"ulimit -n {most}; exec {shlex.join(map(str, command))}"
    with subprocess.Popen(["sh", "-c", limited], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(json.loads(process.stdout.readline())["address"].rpartition(":")[2])
        finally:
            process.terminate()
            ended = process.wait(60)
        assert ended == 0


@pytest.mark.long
@pytest.mark.parametrize(("proof", "count"), [("token", 1015), ("key", 1144)])
def test_connections_that_took_all_descriptors_end_no_service(
    tmp_path: Path, keys: list[Path], proof: str, count: int
) -> None:
    """The numbers at which a service of 1,024 descriptors ended in five seconds."""
    options = ["--key", str(keys[0])] if proof == "key" else []
    with descriptors(4096), service(tmp_path, *options) as port, contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            if proof == "token":
                made.append(stack.enter_context(refused_amid_a_body(port)))
            else:
                made.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), 30)))
        if proof == "token":
            client = stack.enter_context(client_at(port, tmp_path))
        else:
            context = http_api.tls(keys[1], server=False)
            client = stack.enter_context(
                httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, trust_env=False)
            )
        lead = client.get("/v1/status").json()["lead"]
        until = time.monotonic() + 4
        while time.monotonic() < until:
            began = time.monotonic()
            status = client.get("/v1/status", headers={"Connection": "close"}).json()
            assert time.monotonic() - began < WITHIN_S
            assert (status["lead"], client.get("/healthz").json()) == (lead, {"alive": True})
        assert sum(map(is_open, made)) <= connections.MOST_UNASKED
