"""The servicer of the published protocol file on grpcio, which answers by what is asked."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc
from real_time import LONG

LARGE = 300_000
"""Bytes of a large reply."""
SLOW = 300_000_000
"""Time of a slow reply, in ns."""


class Servicer(gnmi_pb2_grpc.gNMIServicer):  # type: ignore[misc]
    """Answers by what is asked: the first name of a path."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.peers: list[str] = []
        self.metadata: dict[str, str] = {}
        self.over = threading.Event()

    def Get(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.seen.append(request)
        self.peers.append(context.peer())
        self.metadata = {each.key: each.value for each in context.invocation_metadata()}
        match request.path[0].elem[0].name:
            case "denied":
                context.abort(
                    grpc.StatusCode.PERMISSION_DENIED, "42 % verboten für hunter2-and-more"
                )
            case "slow":
                time.sleep(SLOW / 1e9)
            case "late":
                self.over.wait(LONG / 1e9)
            case "fails":
                raise RuntimeError("a fault of the server")
        val = gnmi_pb2.TypedValue(json_ietf_val=b'"' + b"x" * LARGE + b'"')
        update = gnmi_pb2.Update(path=request.path[0], val=val)
        return gnmi_pb2.GetResponse(notification=[gnmi_pb2.Notification(update=[update])])

    def Set(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.seen.append(request)
        return gnmi_pb2.SetResponse(
            response=[gnmi_pb2.UpdateResult(path=each.path) for each in request.update]
        )

    def Subscribe(self, requests: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        wanted = next(requests).subscribe.subscription
        for _ in wanted:
            yield gnmi_pb2.SubscribeResponse(update=gnmi_pb2.Notification(timestamp=7))
        yield gnmi_pb2.SubscribeResponse(sync_response=True)
        if len(wanted) > 1:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many")
        context.add_callback(self.over.set)
        self.over.wait(LONG / 1e9)
