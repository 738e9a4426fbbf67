"""The HTTP interface of an agent, for the controller alone: a Unix socket, or mutual TLS."""

from __future__ import annotations

import fastapi
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from lightrig.harness.orchestration.agents import HostAgent, Orders
from lightrig.harness.orchestration.http_api import read_body
from lightrig.testbeds import LightrigError


def agent_application(agent: HostAgent) -> fastapi.FastAPI:
    """Return the interface of an agent; who may ask is the server's matter."""
    app = fastapi.FastAPI(
        title=f"Lightrig agent of {agent.host}", version="1", redoc_url=None, docs_url=None
    )

    async def probe() -> fastapi.Response:
        """Read the switches of the host, and the carriers of its NIC ports."""
        answer = await run_in_threadpool(agent.probe)
        return Response(answer.model_dump_json(), media_type="application/json")

    async def orders(request: fastapi.Request) -> fastapi.Response:
        """Bring switches of the host to circuits, and read them back."""
        wanted = Orders.model_validate_json(await read_body(request))
        answer = await run_in_threadpool(agent.order, wanted)
        return Response(answer.model_dump_json(), media_type="application/json")

    async def refused(_: fastapi.Request, error: Exception) -> fastapi.Response:
        return JSONResponse({"error": str(error)}, 400)

    app.add_api_route("/v1/probe", probe, methods=["POST"])
    app.add_api_route("/v1/orders", orders, methods=["POST"])
    for kind in (LightrigError, ValueError):
        app.add_exception_handler(kind, refused)
    return app
