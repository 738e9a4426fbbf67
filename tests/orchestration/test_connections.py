"""Connections that have not shown that they may ask are few, are closed, and hinder no other."""

import asyncio
import contextlib
import json
import select
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx
import pytest
from orchestration.test_http_api import at_a_port, client_at, descriptors, made_keys, orchestrator
from real_time import LONG

from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.infinitehbd.generator import render

CONNECTIONS = "lightrig.harness.orchestration.connections"

UNFINISHED = b"POST /v1/requests HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"


@pytest.fixture(autouse=True)
def many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are looked at in each tick, so that limits below a second hold."""
    monkeypatch.setattr(f"{CONNECTIONS}.TICKS_BETWEEN_LOOKS", 1)


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
    from lightrig.harness.orchestration import http_api
    from lightrig.harness.orchestration.http_api import HttpServer

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
    monkeypatch.setattr(f"{CONNECTIONS}.FIRST_REQUEST_S", 0.5)
    monkeypatch.setattr(f"{CONNECTIONS}.REFUSED_S", 0.2)
    made = refused_amid_a_body(port)
    ends = time.monotonic_ns() + LONG
    with contextlib.suppress(ConnectionError):
        while not select.select([made], [], [], 0.05)[0]:
            assert time.monotonic_ns() < ends
            made.sendall(b"x")
    assert closed(made)
    made.close()
    with client_at(port, tmp_path) as client:
        assert client.get("/v1/status").status_code == 200


def test_of_many_refused_connections_the_oldest_are_closed(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{CONNECTIONS}.MOST_UNASKED", 20)
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
    monkeypatch.setattr(f"{CONNECTIONS}.FIRST_REQUEST_S", 0.5)
    monkeypatch.setattr(f"{CONNECTIONS}.REFUSED_S", 0.2)
    made = socket.create_connection(("127.0.0.1", port), 30)
    made.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nP")
    assert made.recv(4096).startswith(b"HTTP/1.1 200 ")
    assert closed(made)
    made.close()


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"], ids=["nothing", "half a handshake"])
def test_connections_without_a_handshake_are_closed(
    port_with_keys: int, keys: list[Path], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    from lightrig.harness.orchestration import http_api

    monkeypatch.setattr(f"{CONNECTIONS}.MOST_UNASKED", 20)
    monkeypatch.setattr(f"{CONNECTIONS}.FIRST_REQUEST_S", 600)
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
    monkeypatch.setattr(f"{CONNECTIONS}.FIRST_REQUEST_S", 0.3)
    last = socket.create_connection(("127.0.0.1", port_with_keys))
    last.sendall(sent)
    assert closed(last)
    for one in (*made, last):
        one.close()


def test_a_slow_handshake_is_not_pushed_out_by_silent_connections(
    port_with_keys: int, keys: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client with a key takes its time; those that connect after it send nothing."""
    from lightrig.harness.orchestration import http_api

    monkeypatch.setattr(f"{CONNECTIONS}.MOST_UNASKED", 5)
    monkeypatch.setattr(f"{CONNECTIONS}.FIRST_REQUEST_S", 600)
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
    from lightrig.harness.orchestration import connections

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
    from lightrig.harness.orchestration import connections, http_api

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
                httpx.Client(
                    base_url=f"https://127.0.0.1:{port}",
                    verify=context,
                    trust_env=False,
                    timeout=30,
                )
            )
        lead = client.get("/v1/status").json()["lead"]
        until = time.monotonic() + 4
        while time.monotonic() < until:
            status = client.get("/v1/status", headers={"Connection": "close"}).json()
            assert (status["lead"], client.get("/healthz").json()) == (lead, {"alive": True})
        assert sum(map(is_open, made)) <= connections.MOST_UNASKED


def test_a_refused_request_ends_its_connection(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has sent a half of its body may read the refusal for a second."""
    monkeypatch.setattr(f"{CONNECTIONS}.REFUSED_S", 0.2)
    monkeypatch.setattr(f"{CONNECTIONS}.FIRST_REQUEST_S", 600)
    made = refused_amid_a_body(port)
    assert closed(made)
    made.close()


def test_a_host_with_many_connections_pushes_out_its_own_alone(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{CONNECTIONS}.MOST_UNASKED", 20)
    monkeypatch.setattr(f"{CONNECTIONS}.FIRST_REQUEST_S", 600)
    with contextlib.ExitStack() as stack:

        def connect(address: str, sent: bytes = b"GET") -> socket.socket:
            made = socket.create_connection(("127.0.0.1", port), 30, source_address=(address, 0))
            made.sendall(sent)
            return stack.enter_context(made)

        few = [connect("127.0.0.2") for _ in range(3)]
        many = [connect("127.0.0.3") for _ in range(50)]
        with client_at(port, tmp_path) as client:
            assert client.get("/v1/status").status_code == 200
        assert all(map(is_open, few))
        assert sum(map(is_open, many)) == 20 - len(few) - 1  # for the client's own
        # However much room there is, one address has not all of it.
        monkeypatch.setattr(f"{CONNECTIONS}.MOST_UNASKED", 600)
        monkeypatch.setattr(f"{CONNECTIONS}.MOST_UNASKED_OF_PEER", 7)
        last = [connect("127.0.0.4") for _ in range(30)]
        with client_at(port, tmp_path) as client:
            assert client.get("/v1/status").status_code == 200
        assert sum(map(is_open, last)) == 7


def with_token(folder: Path, rest: bytes) -> bytes:
    """Return the beginning of a request with the token, and `rest`."""
    token = (folder / "s.token").read_text().strip().encode()
    start = b"POST /v1/requests HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
    return start + token + b"\r\n" + rest


@pytest.mark.parametrize("pause", [False, True], ids=["drips", "pauses"])
def test_an_admitted_request_has_to_end(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: bool
) -> None:
    monkeypatch.setattr(f"{CONNECTIONS}.BETWEEN_BYTES_S", 0.3 if pause else 600)
    monkeypatch.setattr(f"{CONNECTIONS}.WHOLE_REQUEST_S", 600 if pause else 0.3)
    with socket.create_connection(("127.0.0.1", port), 30) as made:
        made.sendall(with_token(tmp_path, b"Content-Length: 1000000\r\n\r\n{"))
        with contextlib.suppress(ConnectionError):
            while not pause and not select.select([made], [], [], 0.05)[0]:
                made.sendall(b" ")
        assert closed(made)
    with client_at(port, tmp_path) as client:
        assert client.get("/v1/status").status_code == 200


def unread(port: int, folder: Path) -> socket.socket:
    """Return a connection whose client asks for answers and reads none."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", port))
    made.sendall(
        with_token(folder, b"Content-Length: 0\r\n\r\n").replace(b"POST /v1/requests", ASKED)
    )
    return made


ASKED = b"GET /openapi.json"


def test_an_answer_that_is_not_read_is_given_up(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{CONNECTIONS}.ANSWER_S", 0.5)
    with contextlib.closing(unread(port, tmp_path)) as made:
        poll = select.poll()
        poll.register(made, select.POLLHUP | select.POLLERR)
        assert poll.poll(30_000)  # reset


def test_few_answers_may_be_read_late(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{CONNECTIONS}.LATE_ANSWER_S", 0.2)
    monkeypatch.setattr(f"{CONNECTIONS}.MOST_LATE_ANSWERS", 2)
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        for _ in range(5):
            made = stack.enter_context(contextlib.closing(unread(port, tmp_path)))
            poll.register(made, select.POLLHUP | select.POLLERR)
        ended: set[int] = set()
        while len(ended) < 3:
            found = poll.poll(30_000)
            assert found
            for descriptor, _ in found:
                poll.unregister(descriptor)
                ended.add(descriptor)
        assert len(ended) == 3
        with client_at(port, tmp_path) as client:
            for _ in range(3):  # whole looks of the server pass
                assert client.get("/v1/status", params={"after": 9, "wait": 0.3}).is_success
        assert not poll.poll(0)


def test_more_admitted_connections_than_descriptors_are_refused(tmp_path: Path) -> None:
    """The limit leaves room for the least number of them alone."""
    from lightrig.harness.orchestration import connections

    most = connections.MOST_UNASKED + connections.RESERVED_DESCRIPTORS
    with service(tmp_path, most=most) as port, contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(client_at(port, tmp_path))
            for _ in range(connections.LEAST_ADMITTED + 1)
        ]
        answers = [client.get("/v1/status") for client in clients]
        assert [one.status_code for one in answers] == [200] * connections.LEAST_ADMITTED + [503]
        assert answers[-1].headers["Retry-After"] == "1"
        assert "`ulimit -n 4096`" in answers[-1].json()["detail"]
        clients[0].close()
        until = time.monotonic() + 30
        while clients[-1].get("/v1/status").status_code != 200:
            assert time.monotonic() < until


def test_fewer_requests_wait_than_are_admitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lightrig.harness.orchestration import connections

    most = connections.MOST_UNASKED + connections.RESERVED_DESCRIPTORS
    later = {"after": 99, "wait": 30}
    with service(tmp_path, most=most) as port, contextlib.ExitStack() as stack:
        first = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
        request = with_token(tmp_path, b"\r\n").replace(b"POST /v1/requests", WATCHED)
        first.sendall(request)
        client = stack.enter_context(client_at(port, tmp_path))
        until = time.monotonic() + 30
        while (found := client.get("/v1/status", params={**later, "wait": 0.1})).is_success:
            assert time.monotonic() < until
        assert (found.status_code, found.headers["Retry-After"]) == (503, "1")
        assert client.get("/v1/status").status_code == 200


WATCHED = b"GET /v1/status?after=99&wait=60"


def test_errors_of_connections_are_one_line(
    port_with_keys: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Clients that speak no TLS, or end amid a handshake, write no traceback each."""
    for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", bytes(300)) * 5:
        with socket.create_connection(("127.0.0.1", port_with_keys), 30) as made:
            made.sendall(sent)
    assert len(capfd.readouterr().err.splitlines()) <= 1


class Stalled:
    """A service on a Unix socket whose event loop stands still after a request for `/stall`.

    Calls of `steps` are made one by one, each before all else that is due, and after each the loop
    stands still for longer than `LIMIT_S`.
    """

    def __init__(self, folder: Path) -> None:
        import fastapi

        from lightrig.harness.orchestration.http_api import HttpServer, unix_socket

        self.path = folder / "stalled"
        self.steps: list[Callable[[], object]] = []
        app = fastapi.FastAPI()
        app.add_api_route("/stall", self._stall)
        app.add_api_route("/now", lambda: "answered")
        self.close = HttpServer(app, unix_socket(self.path), None).close

    async def _stall(self) -> Any:
        from starlette.background import BackgroundTask
        from starlette.responses import JSONResponse

        return JSONResponse("answered", background=BackgroundTask(self._stand_still))

    async def _stand_still(self) -> None:
        self._step()

    def _step(self) -> None:
        loop = asyncio.get_running_loop()
        self.steps.pop(0)()
        ends = loop.time() + 2 * LIMIT_S
        while loop.time() < ends:
            pass
        if self.steps:
            loop.call_at(0.0, self._step)

    def connect(self) -> socket.socket:
        """Connect to the service."""
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(30)
        made.connect(str(self.path))
        return made


LIMIT_S = 0.05


def ask(made: socket.socket, path: str) -> None:
    """Send a request, whose answer is not waited for."""
    made.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())


def answer(made: socket.socket) -> bytes:
    """Wait for a whole answer."""
    read = b""
    while not read.endswith(b'"answered"'):
        part = made.recv(4096)
        assert part, read
        read += part
    return read


def test_a_request_that_comes_as_its_connection_ends_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle connection was closed with the request unread: `Connection reset by peer`."""
    monkeypatch.setattr("lightrig.harness.orchestration.http_api.KEEP_ALIVE_S", LIMIT_S)
    stalled = Stalled(tmp_path)
    with contextlib.closing(stalled), stalled.connect() as made:
        stalled.steps = [bool, lambda: ask(made, "/now")]
        ask(made, "/stall")
        assert answer(made)
        assert answer(made).startswith(b"HTTP/1.1 200 ")


def test_a_service_that_reads_late_ends_no_connection_that_has_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled = Stalled(tmp_path)
    with contextlib.closing(stalled), stalled.connect() as first:
        made: SimpleQueue[socket.socket] = SimpleQueue()

        def connect() -> None:
            late = stalled.connect()  # is accepted before the next step, and its time ends then
            stalled.steps += [bool, lambda: ask(late, "/now"), lambda: made.put(late)]

        stalled.steps = [connect]
        ask(first, "/now")
        assert answer(first)
        monkeypatch.setattr(f"{CONNECTIONS}.FIRST_REQUEST_S", LIMIT_S)
        monkeypatch.setattr(f"{CONNECTIONS}.REFUSED_S", LONG / 1e9)
        ask(first, "/stall")
        with contextlib.closing(made.get(timeout=30)) as late:
            assert answer(late).startswith(b"HTTP/1.1 200 ")
