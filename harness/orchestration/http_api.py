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
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import fastapi
import uvicorn
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.concurrency import run_in_threadpool

from lightrig.harness.bench.lab_folder import open_folder
from lightrig.harness.bench.lease import LeaseLostError
from lightrig.harness.orchestration.connections import Server
from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.orchestration.requests import request_schema
from lightrig.testbeds import LightrigError
from lightrig.testbeds.json_text import from_json
from lightrig.testbeds.private_files import PrivateFileError, read_private

_LONGEST_BODY = 1 << 20
"""Bytes of a request."""

_LONGEST_WAIT_S = 60.0
_LOOK_AGAIN_S = 0.05
_SHUTDOWN_S = 5

_Endpoint = Callable[..., Awaitable[fastapi.Response]]


class _BodyTooLongError(LightrigError):
    pass


def read_token(file: Path, *, make: bool = False) -> str:
    """Return the token in a file of mode 0600; make: write a new one where there is no file.

    Raises `PrivateFileError` for a file that is absent, empty, or that other accounts can use.
    """
    if make and not file.exists():
        open_folder(file.parent)
        made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(made, "w") as opened:
            opened.write(secrets.token_urlsafe(32) + "\n")
    token = read_private(file, group=False).decode("ascii", "replace").strip()
    if not token:
        raise PrivateFileError(
            f"{file} holds no token: remove it, and the service writes a new one"
        )
    return token


def unix_socket(path: Path) -> socket.socket:
    """Return a socket at `path` for this account; one that nothing answers at is replaced.

    Raises `OSError`.
    """
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


def application(running: Orchestrator, token: str | None) -> fastapi.FastAPI:
    """Return the API of an orchestrator; all but `/healthz` asks for `Bearer TOKEN`.

    token: None where the server lets in those alone who may ask.
    """
    app = fastapi.FastAPI(title="Lightrig orchestrator", version="1", redoc_url=None, docs_url=None)
    schema = request_schema(running.layout.shape)
    parts = schema.pop("$defs")
    body = {"content": {"application/json": {"schema": schema}}}

    async def request(request: fastapi.Request) -> fastapi.Response:
        """Carry out a request, and return the status afterwards."""
        document = from_json(await read_body(request))
        return JSONResponse(await run_in_threadpool(running.request, document))

    async def status(after: int = -1, wait: float = 0.0) -> fastapi.Response:
        """Return the status: at once, or once its epoch exceeds `after` within `wait` seconds."""
        await _waited(lambda: running.status()["epoch"] > after, wait)
        return JSONResponse(running.status())

    async def job(name: str, after: int = -1, wait: float = 0.0) -> fastapi.Response:
        """Return a job, and the ranks of its groups in order with their links between NIC ports.

        At once, or when its circuits are set and its epoch exceeds `after` within `wait` seconds.
        """
        rings = await run_in_threadpool(running.links, name)

        def changed() -> bool:
            found = running.status()["jobs"].get(name, {"epoch": after + 1, "ready": True})
            return bool(found["ready"] and found["epoch"] > after)

        if await _waited(changed, wait):
            rings = await run_in_threadpool(running.links, name)
        return JSONResponse({"job": name, **running.status()["jobs"][name], "rings": rings})

    async def history(after: int = -1) -> fastapi.Response:
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
        if token is None:
            return await call(request)
        sent = request.headers.get("authorization", "")
        if hmac.compare_digest(sent.encode("latin-1"), f"Bearer {token}".encode()):
            request.state.admit()
        # The path that is routed: that of `request.url` may be made of the header Host.
        elif request.scope["path"] != "/healthz":
            return _error(401, "expected the header Authorization: Bearer TOKEN of the token file")
        return await call(request)

    app.add_api_route(
        "/v1/requests", request, methods=["POST"], openapi_extra={"requestBody": body}
    )
    app.add_api_route("/v1/status", status)
    app.add_api_route("/v1/jobs/{name}", job)
    app.add_api_route("/v1/history", history)
    app.add_api_route("/metrics", metrics)
    app.add_api_route("/healthz", healthz)
    app.middleware("http")(guarded)

    async def refused(_: fastapi.Request, error: Exception) -> fastapi.Response:
        known = isinstance(error, OrchestrationError) and str(error).startswith("found no job")
        code = 404 if known else 413 if isinstance(error, _BodyTooLongError) else 400
        return _error(503 if isinstance(error, LeaseLostError) else code, str(error))

    for kind in (LightrigError, ValueError):
        app.add_exception_handler(kind, refused)
    document = app.openapi()  # is kept for `/openapi.json`
    document["components"].setdefault("schemas", {}).update(parts)
    return app


class HttpServer:
    """Serves an orchestrator at a bound socket, in a thread of its own, until `close`.

    running: the orchestrator, or another application, which asks for no token.
    token: that requests have; None for a Unix socket, and with `context`, for TLS.
    """

    def __init__(
        self,
        running: Orchestrator | fastapi.FastAPI,
        listening: socket.socket,
        token: str | None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        if token is None and context is None and listening.family != socket.AF_UNIX:
            raise OrchestrationError("expected a token, a Unix socket or TLS")
        config = uvicorn.Config(
            application(running, token) if isinstance(running, Orchestrator) else running,
            ws="none",
            log_level="critical",
            access_log=False,
            server_header=False,
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
        self._server.should_exit = True
        self._thread.join()


async def _waited(condition: Callable[[], bool], wait_s: float) -> bool:
    """Wait for a condition; return whether it came to hold within `wait_s` seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(min(wait_s, _LONGEST_WAIT_S)):
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


def _error(code: int, text: str) -> fastapi.Response:
    return JSONResponse({"error": text}, code)


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
