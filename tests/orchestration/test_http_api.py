"""The API of an orchestrator over HTTP: tokens, requests, watching, bad input, many connections."""

import asyncio
import contextlib
import json
import os
import resource
import shlex
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from real_time import LONG
from typer.testing import CliRunner

from lightrig.harness.cli.app import application
from lightrig.harness.night.keys import make_keys
from lightrig.harness.orchestration import answers
from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.listener_account import TokenAuth, token_of
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.infinitehbd.generator import render as render_row
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.testbeds import load
from lightrig.testbeds.lab_hosts import load_hosts
from lightrig.testbeds.private_files import PrivateFileError
from tests.campaigns.switchroom import Switchroom

if TYPE_CHECKING:
    import fastapi
    from starlette.datastructures import URL


CONNECTIONS = "lightrig.harness.orchestration.connections"

SUBMIT = {"do": "submit", "job": "a", "shape": {"columns": 2, "rows": 2}}


def orchestrator(folder: Path) -> Orchestrator:
    (folder / "grid.yaml").write_text(render(4, 3))
    testbed = load(folder / "grid.yaml")
    service = Orchestrator(
        testbed, GridLayout(testbed), Switchroom(testbed, "ingress"), folder / "s.json"
    )
    service.start()
    return service


@contextlib.contextmanager
def at_a_port(service: Orchestrator, folder: Path) -> Iterator[int]:
    from lightrig.harness.orchestration.http_api import HttpServer, new_token

    listening = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(service, listening, new_token(folder / "s.token"))
    yield listening.getsockname()[1]
    server.close()


@contextlib.contextmanager
def client_at(port: int, folder: Path, token: str = "s.token") -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {token_of(folder / token)}"}
    with httpx.Client(
        base_url=f"http://127.0.0.1:{port}",
        headers=headers,
        trust_env=False,
        timeout=30,
        verify=False,
    ) as made:
        yield made


@pytest.fixture
def running(tmp_path: Path) -> Orchestrator:
    return orchestrator(tmp_path)


@pytest.fixture
def port(running: Orchestrator, tmp_path: Path) -> Iterator[int]:
    with at_a_port(running, tmp_path) as number:
        yield number


@pytest.fixture
def client(port: int, tmp_path: Path) -> Iterator[httpx.Client]:
    with client_at(port, tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def unchanged(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[int, httpx.Client, Orchestrator]]:
    """A port, a client and their orchestrator, for requests that are refused."""
    folder = tmp_path_factory.mktemp("unchanged")
    service = orchestrator(folder)
    with at_a_port(service, folder) as number, client_at(number, folder) as made:
        yield number, made, service
        assert service.status()["jobs"] == {}


def test_a_job_is_placed_and_its_ranks_have_nodes_and_links(client: httpx.Client) -> None:
    answer = client.post("/v1/requests", json=SUBMIT)
    assert answer.status_code == 200
    assert answer.json()["jobs"]["a"]["ready"]
    job = client.get("/v1/jobs/a").json()
    ((ring,), epoch) = job["rings"], job["epoch"]
    assert [rank["node"] for rank in ring["ranks"]] == [
        "node0-0", "node1-0", "node0-1", "node1-1",
    ]  # fmt: skip
    # Of two nodes an all-to-all has two links a pair: each rail's plus to the other's minus port.
    assert {"port": "x0.p0", "to": "node1-0.x0.p1"} in ring["ranks"][0]["links"]
    assert {"port": "y0.p0", "to": "node0-1.y0.p1"} in ring["ranks"][0]["links"]
    events = client.get("/v1/history").json()
    assert [event["event"].split(":")[0] for event in events] == [
        "job a is submitted", "job a", "job a",
    ]  # fmt: skip
    assert client.get("/v1/history", params={"after": epoch}).json() == events[-1:]


def test_a_launcher_waits_for_the_next_form_of_its_job(client, running) -> None:
    client.post("/v1/requests", json=SUBMIT)
    job = client.get("/v1/jobs/a", params={"wait": 30}).json()
    watch = {"after": job["epoch"], "wait": 30}
    failed = {"do": "failed", "nodes": ["node0-0"]}
    threading.Timer(0.3, running.request, [failed]).start()
    again = client.get("/v1/jobs/a", params=watch).json()
    assert again["epoch"] > job["epoch"]
    assert [rank["node"] for rank in again["rings"][0]["ranks"]] == [
        "node2-0", "node1-0", "node2-1", "node1-1",
    ]  # fmt: skip


def test_a_watcher_is_answered_at_the_next_epoch(client, running) -> None:
    epoch = client.get("/v1/status").json()["epoch"]
    assert client.get("/v1/status", params={"after": epoch, "wait": 0.1}).json()["epoch"] == epoch
    threading.Timer(0.3, running.request, [SUBMIT]).start()
    found = client.get("/v1/status", params={"after": epoch, "wait": 30}).json()
    assert found["epoch"] > epoch
    assert "a" in found["jobs"]


def test_jobs_are_listed_and_a_job_is_withdrawn_by_its_path(client, running) -> None:
    assert client.get("/v1/jobs").json() == {"epoch": 0, "jobs": {}}
    client.post("/v1/requests", json=SUBMIT)
    large = {**SUBMIT, "job": "b", "shape": {"columns": 4, "rows": 3}}
    client.post("/v1/requests", json=large)
    found = client.get("/v1/jobs").json()
    assert found["jobs"]["a"]["reason"] is None
    assert found["jobs"]["b"]["reason"]["code"] == "nodes-missing"
    assert found["epoch"] == running.status()["epoch"]
    outlook = client.delete("/v1/jobs/a", params={"dry_run": True}).json()
    assert (outlook["dry_run"], outlook["jobs"]["a"]) == (True, None)
    assert set(running.status()["jobs"]) == {"a", "b"}
    done = client.delete("/v1/jobs/a")
    assert (done.status_code, list(done.json()["jobs"])) == (200, ["b"])
    assert client.delete("/v1/jobs/a").status_code == 404


def test_each_answer_has_the_epoch(client, running) -> None:
    client.post("/v1/requests", json=SUBMIT)
    for path in ("/v1/status", "/v1/jobs", "/v1/jobs/a", "/v1/history", "/metrics", "/v1/jobs/x"):
        answered = client.get(path)
        assert answered.headers["Lightrig-Epoch"] == str(running.status()["epoch"])


def test_a_problem_is_one_of_rfc_9457(client, port: int) -> None:
    client.post("/v1/requests", json=SUBMIT)
    other = {**SUBMIT, "shape": {"columns": 1, "rows": 2}}
    nowhere = {**SUBMIT, "job": "c", "nodes": ["node0-0"]}
    url = f"http://127.0.0.1:{port}"
    for answered, code, title in (
        (client.get("/v1/jobs/b"), 404, "Not Found"),
        (client.get("/v2/jobs"), 404, "Not Found"),
        (client.get("/v1/status", params={"wait": "nan"}), 400, "Bad Request"),
        (client.get("/v1/history", params={"after": "x"}), 400, "Bad Request"),
        (client.post("/v1/requests", json=other), 409, "Conflict"),
        (client.post("/v1/requests", json=nowhere), 422, None),
        (client.put("/v1/jobs/a"), 405, "Method Not Allowed"),
        (httpx.get(f"{url}/v1/jobs", trust_env=False), 401, "Unauthorized"),
    ):
        problem = answered.json()
        assert answered.headers["content-type"] == "application/problem+json"
        assert answered.status_code == problem["status"] == code
        assert title in {None, problem["title"]}
        assert (problem["type"], bool(problem["detail"])) == ("about:blank", True)
    assert client.put("/v1/jobs/a").headers["Allow"] == "DELETE, GET"
    challenge = httpx.get(f"{url}/v1/jobs", trust_env=False).headers["WWW-Authenticate"]
    assert challenge == "Bearer"


def test_answers_are_as_the_document_states_them(client, running) -> None:
    """Each path has a schema of its answer, which forbids further fields."""
    large = {**SUBMIT, "job": "b", "shape": {"columns": 4, "rows": 3}, "priority": 2}
    for request in (SUBMIT, large, {"do": "drain", "nodes": ["node3-2"]}):
        status = client.post("/v1/requests", json=request)
        answers.FabricStatus.model_validate_json(status.content)
    outlook = client.post("/v1/requests", json={**SUBMIT, "job": "c", "dry_run": True})
    answers.Outlook.model_validate_json(outlook.content)
    for path, model in (
        ("/v1/status", answers.FabricStatus),
        ("/v1/jobs", answers.Jobs),
        ("/v1/jobs/a", answers.PlacedJob),
        ("/v1/jobs/b", answers.PlacedJob),
        ("/healthz", answers.Health),
        ("/v1/jobs/x", answers.Problem),
    ):
        model.model_validate_json(client.get(path).content)
    for event in client.get("/v1/history").json():
        answers.Event.model_validate(event)
    document = client.get("/openapi.json").json()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            (content,) = operation["responses"]["200"]["content"].values()
            assert path == "/metrics" or len(json.dumps(content["schema"])) > 10
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert document["security"] == [{"token": []}]
    assert document["paths"]["/healthz"]["get"]["security"] == []


def test_metrics_and_health(client, port: int, running) -> None:
    client.post("/v1/requests", json={"do": "failed", "nodes": ["node0-0"]})
    lines = client.get("/metrics").text.splitlines()
    assert "# TYPE lightrig_orchestrate_faulty_nodes gauge" in lines
    assert "lightrig_orchestrate_faulty_nodes 1" in lines
    url = f"http://127.0.0.1:{port}/healthz"
    assert httpx.get(url, trust_env=False).json() == {"alive": True}
    running.alive = False
    assert httpx.get(url, trust_env=False).status_code == 503


def test_the_document_of_the_api_has_the_shape_of_jobs(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert schemas["GridShape"]["properties"]["columns"]["anyOf"][0]["minimum"] == 0
    body = document["paths"]["/v1/requests"]["post"]["requestBody"]
    references = json.dumps(body).split("#/components/schemas/")[1:]
    assert references
    assert {each.partition('"')[0] for each in references} <= schemas.keys()


@pytest.mark.parametrize("sent", [{}, {"Authorization": "Bearer"}, {"Authorization": "Bearer x"}])
@pytest.mark.parametrize("path", ["/v1/status", "/metrics", "/openapi.json", "/v1/jobs/a"])
def test_without_the_token_nothing_is_answered(unchanged, path: str, sent) -> None:
    port, _, _ = unchanged
    found = httpx.get(f"http://127.0.0.1:{port}{path}", headers=sent, trust_env=False, verify=False)
    assert (found.status_code, "token file" in found.json()["detail"]) == (401, True)


def test_the_path_that_is_routed_is_guarded(unchanged, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions of starlette make the URL of a request of its header Host."""

    from starlette.datastructures import URL
    from starlette.requests import HTTPConnection

    def of_the_header(request: "fastapi.Request") -> "URL":
        return URL(f"http://{request.headers['host']}{request.scope['path']}")

    monkeypatch.setattr(HTTPConnection, "url", property(of_the_header))
    port, _, _ = unchanged
    for path in ("/v1/status", "/metrics"):
        url, host = f"http://127.0.0.1:{port}{path}", {"Host": "x/healthz?"}
        assert httpx.get(url, headers=host, trust_env=False).status_code == 401
    assert httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).status_code == 200


def test_without_the_token_nothing_is_changed(port: int, running) -> None:
    found = httpx.post(f"http://127.0.0.1:{port}/v1/requests", json=SUBMIT, trust_env=False)
    assert found.status_code == 401
    assert running.status()["jobs"] == {}


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"{", 400, "Expecting"),
        (b"[]", 400, "request"),
        (b"\xff", 400, "decode"),
        (b'{"do": "submit", "job": "a", "shape": {"columns": 1e999, "rows": 1}}', 400, "columns"),
        (b'{"do": "withdraw", "job": "b"}', 400, "DELETE /v1/jobs/NAME"),
        (b'{"do": "status", "do": "withdraw", "job": "b"}', 400, "the key 'do' twice"),
        (b'{"do": "drain", "nodes": ["node9-9"]}', 400, "found node 'node9-9'"),
        (b'{"do": "submit", "job": "a", "shape": {"columns": 9, "rows": 1}}', 422, "of 4 x 3"),
        (lambda: b"[" * 100_000, 400, "nested too deeply"),
        # Made by its test: as a parameter it would stay in the memory of every worker.
        (lambda: b" " * 50_000_000, 413, "more than 1048576 bytes"),
    ],
    ids=[
        "half",
        "list",
        "bytes",
        "infinite",
        "withdraw",
        "twice",
        "node",
        "large",
        "deep",
        "50 MB",
    ],
)
def test_a_bad_body_is_answered_and_changes_nothing(unchanged, content, code, message) -> None:
    _, client, running = unchanged
    before = running.status()
    found = client.post("/v1/requests", content=content() if callable(content) else content)
    assert (found.status_code, message in found.json()["detail"]) == (code, True)
    assert running.status() is before
    assert client.get("/v1/jobs/b").status_code == 404


def test_idle_connections_are_closed_and_stop_no_other(
    client, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{CONNECTIONS}.FIRST_REQUEST_S", 0.3)
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
    assert client.get("/v1/status").status_code == 200
    for each in idle:
        each.settimeout(30)
        assert each.recv(1) == b""
        each.close()


def test_of_many_idle_connections_the_oldest_are_closed(
    client, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{CONNECTIONS}.MOST_UNASKED", 20)
    monkeypatch.setattr(f"{CONNECTIONS}.FIRST_REQUEST_S", 600)
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    assert client.get("/v1/status").status_code == 200
    closed = set()
    for number, each in enumerate(idle):
        each.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            assert each.recv(1) == b""
            closed.add(number)
        each.close()
    assert closed == {*range(100 - 20 + 1)}  # the client's is the newest


def test_connections_that_have_asked_close_no_idle_one(
    client, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{CONNECTIONS}.MOST_UNASKED", 3)
    monkeypatch.setattr(f"{CONNECTIONS}.FIRST_REQUEST_S", 600)
    idle = socket.create_connection(("127.0.0.1", port))
    for _ in range(7):
        assert client.get("/v1/status", headers={"Connection": "close"}).status_code == 200
    idle.settimeout(0.2)
    with pytest.raises(TimeoutError):
        idle.recv(1)
    idle.close()


def test_the_end_waits_for_no_look_of_the_server(
    running: Orchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn looks ten times a second whether to end, and whether connections have ended."""
    from lightrig.harness.orchestration.http_api import HttpServer, new_token

    looks = []

    async def look(*_: object) -> None:
        await asyncio.sleep(LONG / 1e9)
        looks.append("again")

    monkeypatch.setattr("uvicorn.Server.main_loop", look)
    monkeypatch.setattr("uvicorn.Server.shutdown", look)
    listening = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(running, listening, new_token(tmp_path / "s.token"))
    with client_at(listening.getsockname()[1], tmp_path) as client:
        assert client.get("/v1/status").status_code == 200
        server.close()
        listening.close()
        with pytest.raises(httpx.TransportError):
            client.get("/v1/status")
    assert not looks


def test_the_end_answers_those_that_wait(
    running: Orchestrator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that is ended has five seconds for its answers, and a watcher asks for sixty."""
    from lightrig.harness.orchestration.http_api import HttpServer, new_token

    asked, status = threading.Event(), running.status

    def noted() -> Any:
        asked.set()
        return status()

    monkeypatch.setattr(running, "status", noted)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = HttpServer(running, listening, new_token(tmp_path / "s.token"))
        with ThreadPoolExecutor() as pool, client_at(listening.getsockname()[1], tmp_path) as made:
            later = {"after": 99, "wait": 60}
            answer = pool.submit(made.get, "/v1/status", params=later, timeout=60)
            assert asked.wait(LONG / 1e9)
            server.close()
            assert answer.result().json()["jobs"] == {}


@pytest.mark.long
def test_ten_thousand_idle_connections_stop_no_request(tmp_path: Path) -> None:
    """The service may open 400 descriptors, as it has them for its switches."""
    file, state = tmp_path / "row.yaml", tmp_path / "state.json"
    file.write_text(render_row(5))
    submit = {"do": "submit", "job": "a", "shape": {"size": 2}}
    with (
        descriptors(11_000),
        service(file, state, most_descriptors=400) as port,
        client_at(port, tmp_path, "state.token") as client,
    ):
        idle = []
        for _ in range(20):
            idle += [socket.create_connection(("127.0.0.1", port)) for _ in range(500)]
            assert client.get("/v1/status").json()["settled"]
        assert client.post("/v1/requests", json=submit).json()["jobs"]["a"]["ready"]
        assert client.get("/healthz").json() == {"alive": True}
        for each in idle:
            each.close()


@contextlib.contextmanager
def descriptors(count: int, lower: bool = False) -> Iterator[None]:
    """Let this process have `count` descriptors at least, or, lower, at most."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = min(soft, count) if lower else max(soft, count)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def service(file: Path, state: Path, most_descriptors: int) -> Iterator[int]:
    """Run a service of simulated switches as a process, and yield its port."""
    limited = f"ulimit -n {most_descriptors}; exec "
    program = str(Path(sys.executable).with_name("lightrig"))
    command = [program, "orchestrate", "infinitehbd", str(file)]
    command += ["--state", str(state), "--port", "0", "--instruments", "simulated", "--json"]
    with subprocess.Popen(
        ["sh", "-c", limited + shlex.join(command)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield int(json.loads(process.stdout.readline())["address"].rpartition(":")[2])
        process.terminate()
        assert process.wait(60) == 0


def test_a_token_file_is_of_this_account_alone(tmp_path: Path) -> None:
    from lightrig.harness.orchestration.http_api import new_token

    file = tmp_path / "a.token"
    token = new_token(file)
    assert len(token) > 40
    assert file.stat().st_mode & 0o777 == 0o600
    assert token_of(file) == token
    assert new_token(file) != token
    os.chmod(file, 0o640)
    with pytest.raises(PrivateFileError, match="chmod 600"):
        token_of(file)


def test_a_token_file_of_a_group_s_folder_is_of_this_account_alone(tmp_path: Path) -> None:
    from lightrig.harness.orchestration.http_api import new_token

    tmp_path.chmod(0o2770)
    new_token(tmp_path / "a.token")
    assert (tmp_path / "a.token").stat().st_mode & 0o777 == 0o600


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.token").write_text("\n")
    (tmp_path / "a.token").chmod(0o600)
    with pytest.raises(PrivateFileError, match="holds no token"):
        token_of(tmp_path / "a.token")


def test_no_link_in_the_place_of_a_token_is_followed(tmp_path: Path) -> None:
    """Whoever listened would get the first line of the file that it leads to."""
    from lightrig.harness.orchestration.http_api import new_token

    (tmp_path / "secret").write_text("of this account\n")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "a.token").symlink_to("secret")
    with pytest.raises(PrivateFileError, match="is a link, and none is followed"):
        token_of(tmp_path / "a.token")
    new_token(tmp_path / "a.token")
    assert (tmp_path / "secret").read_text() == "of this account\n"
    assert not (tmp_path / "a.token").is_symlink()


def test_a_request_from_the_command_line(port: int, tmp_path: Path) -> None:
    def ask(text: str):
        arguments = ["orchestrate", "railx", str(tmp_path / "grid.yaml"), "--port", str(port)]
        arguments += ["--state", str(tmp_path / "s.json"), "--ask", text]
        return CliRunner().invoke(application("orchestrate"), arguments)

    done = ask(json.dumps(SUBMIT))
    assert (done.exit_code, json.loads(done.stdout)["jobs"]["a"]["ready"]) == (0, True)
    refused = ask('{"do": "withdraw", "job": "b"}')
    assert (refused.exit_code, "found no job b" in refused.stdout) == (1, True)
    assert ask("{").exit_code == 2
    (tmp_path / "s.token").unlink()
    absent = ask('{"do": "status"}')
    assert (absent.exit_code, "does `lightrig orchestrate` run there?" in absent.stderr) == (
        3,
        True,
    )


def test_a_client_reads_the_token_of_the_next_service(
    running: Orchestrator, port: int, tmp_path: Path
) -> None:
    from lightrig.harness.orchestration.http_api import HttpServer, new_token

    url = f"http://127.0.0.1:{port}/v1/status"
    with httpx.Client(auth=TokenAuth(tmp_path / "s.token"), trust_env=False, timeout=30) as client:
        assert client.get(url).status_code == 200
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = HttpServer(running, listening, new_token(tmp_path / "s.token"))
            again = f"http://127.0.0.1:{listening.getsockname()[1]}/v1/status"
            assert client.get(again).status_code == 200
            server.close()
        assert client.get(url).status_code == 401  # of the service that has ended


def test_a_unix_socket_is_for_processes_of_this_account_and_root(running, tmp_path: Path) -> None:
    from lightrig.harness.orchestration import http_api
    from lightrig.harness.orchestration.http_api import HttpServer

    path = tmp_path / "api.socket"
    http_api.unix_socket(path).close()  # what a killed service leaves
    server = HttpServer(running, http_api.unix_socket(path), None)
    try:
        with pytest.raises(OSError, match="in use"):
            http_api.unix_socket(path)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://api/v1/status").json()["jobs"] == {}
        assert path.stat().st_mode & 0o777 == 0o600
        if os.geteuid() == 0:
            for folder in (path, *path.parents[:4]):
                folder.chmod(0o777)
            assert _answer_to_account(65534, path) == b""
    finally:
        server.close()


def _answer_to_account(account: int, path: Path) -> bytes:
    """Return what a process of an account is answered at a Unix socket."""
    program = (
        "import os, socket, sys; os.setuid(int(sys.argv[1]));"
        "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[2]); s.settimeout(30)\n"
        "try:\n    s.sendall(b'GET /v1/status HTTP/1.1\\r\\nHost: api\\r\\n\\r\\n');"
        "sys.stdout.buffer.write(s.recv(99))\nexcept (BrokenPipeError, ConnectionError): pass"
    )
    command = [sys.executable, "-S", "-c", program, str(account), str(path)]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_over_tls_a_key_of_the_lab_is_asked_for(running, tmp_path: Path) -> None:
    from lightrig.harness.orchestration import http_api
    from lightrig.harness.orchestration.http_api import HttpServer

    lab, other = (made_keys(tmp_path / name) for name in ("lab", "other"))
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"https://127.0.0.1:{listening.getsockname()[1]}/v1/status"
    server = HttpServer(running, listening, None, http_api.tls(lab[0], server=True))
    try:
        context = http_api.tls(lab[1], server=False)
        assert httpx.get(url, verify=context, trust_env=False).json()["jobs"] == {}
        without = ssl.create_default_context(cafile=str(lab[1]))
        without.check_hostname = False
        for wrong in (without, http_api.tls(other[1], server=False)):
            with pytest.raises(httpx.TransportError):
                httpx.get(url, verify=wrong, trust_env=False)
        # A client refuses a server of another authority, too.
        deceived = http_api.tls(lab[1], server=False)
        deceived.load_cert_chain(other[1])
        with pytest.raises(httpx.TransportError):
            httpx.get(url, verify=deceived, trust_env=False)
    finally:
        server.close()


def made_keys(folder: Path) -> list[Path]:
    """Return the key files of the scheduler and of a host, of an authority of their own."""
    folder.mkdir()
    (folder / "hosts.yaml").write_text("keys: keys\nhosts: {lab1: {testbeds: [a.yaml]}}")
    made = [file for file, _, _ in make_keys(load_hosts(folder / "hosts.yaml"))]
    return made[1:]


def test_no_service_listens_without_a_proof_of_who_asks(running) -> None:
    from lightrig.harness.orchestration.http_api import HttpServer

    refused = pytest.raises(OrchestrationError, match="a token, a Unix socket or TLS")
    with socket.create_server(("127.0.0.1", 0)) as listening, refused:
        HttpServer(running, listening, None)
    options = ["orchestrate", "railx", "testbeds/railx5.yaml", "--address", "192.0.2.1"]
    found = CliRunner().invoke(application(), options)
    assert (found.exit_code, "beyond loopback" in found.output) == (2, True)
