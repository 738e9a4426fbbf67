"""The HTTP interfaces of an agent: for the controller by a Unix socket or mutual TLS, for ranks."""

from __future__ import annotations

import fastapi
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from lightrig.harness.orchestration.agents import HostAgent, Orders, ProbeRequest, Wish
from lightrig.harness.orchestration.http_api import answer_problems, read_body


def agent_application(agent: HostAgent) -> fastapi.FastAPI:
    """Return the interface of an agent; who may ask is the server's matter."""
    app = fastapi.FastAPI(
        title=f"Lightrig agent of {agent.host}", version="1", redoc_url=None, docs_url=None
    )

    async def probe(request: fastapi.Request) -> fastapi.Response:
        """Read the switches of the host, and the carriers of its NIC ports."""
        probe_request = ProbeRequest.model_validate_json(await read_body(request) or b"{}")
        answer = await run_in_threadpool(agent.probe, probe_request)
        return Response(answer.model_dump_json(), media_type="application/json")

    async def orders(request: fastapi.Request) -> fastapi.Response:
        """Bring switches of the host to circuits, and read them back."""
        wanted = Orders.model_validate_json(await read_body(request))
        answer = await run_in_threadpool(agent.order, wanted)
        return Response(answer.model_dump_json(), media_type="application/json")

    app.add_api_route("/v1/probe", probe, methods=["POST"])
    app.add_api_route("/v1/orders", orders, methods=["POST"])
    answer_problems(app)
    return app


def rank_application(agent: HostAgent) -> fastapi.FastAPI:
    """Return what ranks of a job ask of their host's agent; who may ask is the server's matter."""
    app = fastapi.FastAPI(
        title=f"Topologies of {agent.host}", version="1", redoc_url=None, docs_url=None
    )

    async def select(request: fastapi.Request) -> fastapi.Response:
        """Lead a NIC's light to a topology, and wait for its links."""
        wish = Wish.model_validate_json(await read_body(request))
        answer = await run_in_threadpool(agent.select, wish)
        return Response(answer.model_dump_json(), media_type="application/json")

    app.add_api_route("/v1/select", select, methods=["POST"])
    answer_problems(app)
    return app
