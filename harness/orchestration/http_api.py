"""Requests to an orchestrator over HTTP: an application of FastAPI.

Who asks is known by a token on loopback, by the account of a process on a Unix socket, and by a
certificate of the lab's authority over TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import os
import secrets
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import fastapi
import uvicorn
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from lightrig.harness.bench.lab_folder import LabFolderError, opened
from lightrig.harness.bench.lease import LeaseLostError
from lightrig.harness.orchestration.answers import (
    Event,
    FabricStatus,
    Health,
    Jobs,
    Outlook,
    PlacedJob,
    Problem,
)
from lightrig.harness.orchestration.connections import (
    CLOSE,
    KEEP_ALIVE_S,
    PROBLEM_TYPE,
    RETRY_AFTER,
    Server,
    TooManyConnectionsError,
    problem,
)
from lightrig.harness.orchestration.jobs import (
    ImpossibleError,
    JobConflictError,
    OrchestrationError,
    UnknownJobError,
)
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.rank_messages import ForeignError, RankMessages
from lightrig.harness.orchestration.requests import (
    NAME,
    message_schema,
    read_message,
    request_schema,
)
from lightrig.testbeds import LightrigError
from lightrig.testbeds.json_text import from_strict_json

_LONGEST_BODY = 1 << 20
"""Bytes of a request."""

LONGEST_WAIT_S = 60.0
"""Longest time that a request waits for a later epoch, whatever it asks for."""

_LOOK_AGAIN_S = 0.05
_SHUTDOWN_S = 5

EPOCH = "Lightrig-Epoch"
"""Header of each answer to one who may ask: the epoch of what is wanted."""

_EPOCH_HEADER = {EPOCH: {"schema": {"type": "integer"}, "required": True}}

_Endpoint = Callable[..., Awaitable[fastapi.Response]]
_Epoch = Annotated[int, fastapi.Query(ge=-1, le=2**63 - 1)]
_Name = Annotated[str, fastapi.Path(pattern=NAME)]
_Seconds = Annotated[float, fastapi.Query(ge=0, allow_inf_nan=False)]


class _BodyTooLongError(LightrigError):
    pass


_CODES: Mapping[type[Exception], int] = {
    UnknownJobError: 404,
    ForeignError: 403,
    JobConflictError: 409,
    _BodyTooLongError: 413,
    ImpossibleError: 422,
    LeaseLostError: 503,
    LabFolderError: 503,
    TooManyConnectionsError: 503,
}
"""Status of an answer by error; 400 for all others."""

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS))
"""Errors of a folder on which nothing is stored: status 507."""


def new_token(file: Path) -> str:
    """Write a new token to a file of mode 0600, in the place of an earlier one, and return it.

    Who listened where a former service did may have that one's. Raises `LabFolderError`.
    """
    token = secrets.token_urlsafe(32)
    with opened(file.parent) as folder:
        draft = f".{secrets.token_hex(16)}.draft"
        made = folder.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)  # also of a group: 0600
        with os.fdopen(made, "w") as written:
            written.write(token + "\n")
        at = folder.descriptor
        os.replace(draft, file.name, src_dir_fd=at, dst_dir_fd=at)
    return token


def unix_socket(path: Path) -> socket.socket:
    """Return a socket at `path` for this account; one that nothing answers at is replaced.

    A folder that does not exist is made for this account alone. Raises `OSError`.
    """
    with contextlib.suppress(FileExistsError):
        path.parent.mkdir(0o700)
    listening = socket.socket(socket.AF_UNIX)
    try:
        if path.is_socket():
            with socket.socket(socket.AF_UNIX) as asking:
                if asking.connect_ex(str(path)) == errno.ECONNREFUSED:
                    path.unlink()
        listening.bind(str(path))
        path.chmod(0o600)  # before it listens; the account of a process is asked as well
        listening.listen()
    except BaseException:
        listening.close()
        raise
    return listening


def tls(key_file: Path, *, server: bool) -> ssl.SSLContext:
    """Return TLS on which both sides have a key file of one authority, whose names are not read.

    The key file is that of `night.keys`, which was checked.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(key_file)
    context.load_verify_locations(key_file)
    return context


class _Api(fastapi.FastAPI):
    """An application whose document is made when it is first asked for, by few of its clients.

    Attributes:
        complete: adds to the document what FastAPI does not know.
    """

    complete: Callable[[dict[str, Any]], None]

    def openapi(self) -> dict[str, Any]:
        is_first = self.openapi_schema is None
        document = super().openapi()
        if is_first:
            self.complete(document)
        return document


def application(
    running: Orchestrator, token: str | None, ranks: RankMessages | None = None
) -> fastapi.FastAPI:
    """Return the API of an orchestrator; all but `/healthz` asks for `Bearer TOKEN`.

    token: None where the server lets in those alone who may ask. ranks: what takes messages of
    ranks; None where the system's ranks send none.
    """
    app = _Api(title="Lightrig orchestrator", version="1", redoc_url=None, docs_url=None)
    schema = request_schema(running.layout.shape, running.layout.nodes)
    parts = schema.pop("$defs")
    body = {
        "required": True,
        "content": {
            "application/json": {
                "schema": schema,
                "example": {"do": "drain", "nodes": list(running.layout.nodes[:1])},
            }
        },
    }

    async def request(request: fastapi.Request) -> fastapi.Response:
        """Carry out a request, and return the status afterwards."""
        document = from_strict_json(await read_body(request))
        if isinstance(document, dict) and document.get("do") == "withdraw":
            raise OrchestrationError("a job is withdrawn by DELETE /v1/jobs/NAME")
        if ranks is not None:
            ranks.check(document)
        return JSONResponse(await run_in_threadpool(running.request, document))

    async def withdraw(name: _Name, dry_run: bool = False) -> fastapi.Response:
        """Withdraw a job, and return the status afterwards, or what it would change."""
        wish = {"do": "withdraw", "job": name, "dry_run": dry_run}
        found = await run_in_threadpool(running.request, wish)
        if ranks is not None and not dry_run:
            await run_in_threadpool(ranks.forget, name)
        return JSONResponse(found)

    async def jobs() -> fastapi.Response:
        """Return all jobs, and why each waits that does."""
        found = running.status()
        return JSONResponse({"epoch": found["epoch"], "jobs": found["jobs"]})

    async def status(
        request: fastapi.Request, after: _Epoch = -1, wait: _Seconds = 0.0
    ) -> fastapi.Response:
        """Return the status: at once, or once its epoch exceeds `after` within `wait` seconds."""
        await _waited(request, lambda: running.status()["epoch"] > after, wait)
        return JSONResponse(running.status())

    async def job(
        request: fastapi.Request, name: _Name, after: _Epoch = -1, wait: _Seconds = 0.0
    ) -> fastapi.Response:
        """Return a job, and the ranks of its groups in order with their links between NIC ports.

        At once, or when its circuits are set and its epoch exceeds `after` within `wait` seconds.
        """
        rings = await run_in_threadpool(running.links, name)

        def changed() -> bool:
            found = running.status()["jobs"].get(name, {"epoch": after + 1, "ready": True})
            return bool(found["ready"] and found["epoch"] > after)

        if await _waited(request, changed, wait):
            rings = await run_in_threadpool(running.links, name)
        return JSONResponse({"job": name, **running.status()["jobs"][name], "rings": rings})

    async def message(
        request: fastapi.Request, name: _Name, wait: _Seconds = 0.0
    ) -> fastapi.Response:
        """Take a message of a rank, and answer it: at once, or within `wait` seconds.

        One whose answer is that it waits is sent again.
        """
        assert ranks is not None
        sent = read_message(from_strict_json(await read_body(request)), ranks.messages)
        answered = await run_in_threadpool(ranks.receive, name, sent)
        if answered.done():
            return JSONResponse(answered.result())
        # Shielded: another connection may wait for the same answer.
        coming = asyncio.shield(asyncio.wrap_future(answered))
        try:
            async with request.state.place_to_wait(min(wait, LONGEST_WAIT_S)):
                return JSONResponse(await coming)
        except TimeoutError:
            return JSONResponse(ranks.waiting(sent))

    async def history(after: _Epoch = -1) -> fastapi.Response:
        """Return the events since the epoch `after`, oldest first."""
        events = running.wanted.history
        return JSONResponse([event for event in events if event["epoch"] > after])

    async def metrics() -> fastapi.Response:
        """Return numbers in the text format of Prometheus."""
        return PlainTextResponse(_metrics(running.status()))

    async def healthz() -> fastapi.Response:
        """Return whether the service probes its switches; needs no token."""
        return JSONResponse({"alive": running.alive}, 200 if running.alive else 503)

    async def guarded(request: fastapi.Request, call: _Endpoint) -> fastapi.Response:
        sent = request.headers.get("authorization", "")
        # The path that is routed: that of `request.url` may be made of the header Host.
        open_to_all = request.scope["path"] == "/healthz"
        if token is not None and hmac.compare_digest(
            sent.encode("latin-1"), f"Bearer {token}".encode()
        ):
            try:
                request.state.admit()
            except TooManyConnectionsError as error:
                return problem(503, str(error), {**RETRY_AFTER, **CLOSE})
        elif token is not None and not open_to_all:
            why = "expected the header Authorization: Bearer TOKEN of the token file"
            return problem(401, why, {"WWW-Authenticate": "Bearer"})
        answered = await call(request)
        if not open_to_all:
            answered.headers[EPOCH] = str(running.status()["epoch"])
        return answered

    bodies: dict[_Endpoint, dict[str, Any]] = {request: body}
    paths: list[tuple[str, Any, str, Any, tuple[int, ...]]] = [
        (
            "/v1/requests",
            request,
            "POST",
            FabricStatus | Outlook,
            (400, 404, 409, 413, 422, 503, 507),
        ),
        ("/v1/status", status, "GET", FabricStatus, (400, 503)),
        ("/v1/jobs", jobs, "GET", Jobs, ()),
        ("/v1/jobs/{name}", job, "GET", PlacedJob, (400, 404, 503)),
        ("/v1/jobs/{name}", withdraw, "DELETE", FabricStatus | Outlook, (400, 404, 503, 507)),
        ("/v1/history", history, "GET", list[Event], (400,)),
        ("/metrics", metrics, "GET", None, ()),
        ("/healthz", healthz, "GET", Health, ()),
    ]
    if ranks is not None:
        found = message_schema(ranks.messages)
        parts |= found.pop("$defs")
        bodies[message] = {"required": True, "content": {"application/json": {"schema": found}}}
        path = "/v1/jobs/{name}/messages"
        paths.append((path, message, "POST", ranks.answer, (400, 403, 404, 409, 413, 503, 507)))
    for path, call, method, answers, codes in paths:
        app.add_api_route(
            path,
            call,
            methods=[method],
            operation_id=call.__name__,
            response_model=answers,
            response_class=JSONResponse if answers else PlainTextResponse,
            responses={200: {"headers": _EPOCH_HEADER}, **_problems(codes, token)}
            if call is not healthz
            else {503: {"model": Health}},
            openapi_extra={"requestBody": bodies[call]} if call in bodies else None,
        )
    app.middleware("http")(guarded)
    answer_problems(app)

    def complete(document: dict[str, Any]) -> None:
        document["components"].setdefault("schemas", {}).update(parts)
        _complete(document, token is not None)

    app.complete = complete
    return app


class HttpServer:
    """Serves an orchestrator at a bound socket, in a thread of its own, until `close`.

    running: the orchestrator, or another application, which asks for no token.
    token: that requests have; None for a Unix socket, and with `context`, for TLS.
    ranks: see `application`.
    """

    def __init__(
        self,
        running: Orchestrator | fastapi.FastAPI,
        listening: socket.socket,
        token: str | None,
        context: ssl.SSLContext | None = None,
        ranks: RankMessages | None = None,
    ) -> None:
        if token is None and context is None and listening.family != socket.AF_UNIX:
            raise OrchestrationError("expected a token, a Unix socket or TLS")
        config = uvicorn.Config(
            application(running, token, ranks) if isinstance(running, Orchestrator) else running,
            ws="none",
            log_level="critical",
            access_log=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        config.load()
        self._server = Server(config, listening, context, asks_token=token is not None)
        self._thread = threading.Thread(
            target=self._server.run, args=([listening],), daemon=True, name="http"
        )
        self._thread.start()

    def close(self) -> None:
        """End all connections."""
        self._server.end()
        self._thread.join()


async def _waited(request: fastapi.Request, condition: Callable[[], bool], wait_s: float) -> bool:
    """Wait for a condition; return whether it came to hold within `wait_s` seconds.

    The end of the server ends the wait.

    Raises `TooManyConnectionsError` where as many wait already as may.
    """
    if condition() or not wait_s:
        return condition()
    with contextlib.suppress(TimeoutError):
        async with request.state.place_to_wait(min(wait_s, LONGEST_WAIT_S)):
            while not condition():
                await asyncio.sleep(_LOOK_AGAIN_S)
            return True
    return False


async def read_body(request: fastapi.Request) -> bytes:
    """Return the body of a request; raises `LightrigError` for one that is too long."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > _LONGEST_BODY:
            raise _BodyTooLongError(f"found a body of more than {_LONGEST_BODY} bytes")
    return content


def answer_problems(app: fastapi.FastAPI) -> None:
    """Let an application answer what it does not carry out by a problem (RFC 9457)."""
    for kind in (LightrigError, ValueError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _refused)


async def _refused(request: fastapi.Request, error: Exception) -> fastapi.Response:
    """Return the answer to a request that was not carried out."""
    if isinstance(error, HTTPException):  # of the routes
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            routes = [one for one in request.app.routes if one.matches(request.scope)[0].value]
            headers["Allow"] = ", ".join(sorted(set().union(*(one.methods for one in routes))))
        return problem(error.status_code, str(error.detail), headers)
    if isinstance(error, RequestValidationError):
        found = (f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
        return problem(400, "; ".join(found))
    code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), 400)
    if isinstance(error, LabFolderError) and getattr(error.__cause__, "errno", 0) in _FULL:
        code = 507
    return problem(code, str(error), RETRY_AFTER if code in {503, 507} else None)


def _problems(codes: Iterable[int], token: str | None) -> dict[int | str, dict[str, Any]]:
    """Return the problems that a path may answer, as its document has them."""
    reference = {"$ref": "#/components/schemas/Problem"}
    return {
        code: {
            "description": HTTPStatus(code).phrase,
            "content": {PROBLEM_TYPE: {"schema": reference}},
        }
        for code in (*codes, *(() if token is None else (401,)))
    }


def _complete(document: dict[str, Any], asks_token: bool) -> None:
    """Add to an OpenAPI document who may ask, and what FastAPI would say otherwise."""
    parts = document["components"]
    parts["schemas"]["Problem"] = Problem.model_json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        parts["schemas"].pop(unused, None)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if (path, method) != ("/v1/requests", "post"):
                operation["responses"].pop("422", None)
            if path == "/healthz":
                operation["security"] = []
    parameters = {"name": "$request.body#/job"}
    document["paths"]["/v1/requests"]["post"]["responses"]["200"]["links"] = {
        name: {"operationId": name, "parameters": parameters} for name in ("job", "withdraw")
    }
    if asks_token:
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]


def _metrics(status: Mapping[str, Any]) -> str:
    jobs = status["jobs"].values()
    values = {
        "epoch": ("counter", status["epoch"]),
        "lead": ("counter", status["lead"]),
        "settled": ("gauge", int(status["settled"])),
        "in_doubt": ("gauge", int(status["doubt"] is not None)),
        "faulty_nodes": ("gauge", len(status["faulty"])),
        "silent_switches": ("gauge", len(status["silent"])),
        "drained_nodes": ("gauge", len(status["drained"])),
        "jobs": ("gauge", len(jobs)),
        "jobs_ready": ("gauge", sum(job["ready"] for job in jobs)),
        "groups_missing": ("gauge", sum(job["missing"] for job in jobs)),
    }
    return "".join(
        f"# TYPE lightrig_orchestrate_{name} {kind}\nlightrig_orchestrate_{name} {value}\n"
        for name, (kind, value) in values.items()
    )
