"""A Polatis without circuits that answers 204, without a body, as public clients expect."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.switches.polatis.switch import Polatis
from lightrig.testbeds import Circuit

IDENTITY = {
    "manufacturer": "HUBER+SUHNER",
    "serial-number": "1",
    "model-name": "N-VST-8x8-LA1-DMHNS-000",
    "software-version": "6.8.1.2",
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pairs: dict[int, int]

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, container: str = "", content: object = None) -> None:
        body = json.dumps({f"optical-switch:{container}": content}).encode() if container else b""
        self.send_response(200 if body else 204)
        if body:
            self.send_header("Content-Type", "application/yang-data+json")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path.endswith("product-information"):
            self._answer("product-information", IDENTITY)
        elif self.pairs:
            made = [{"ingress": one, "egress": other} for one, other in self.pairs.items()]
            self._answer("cross-connects", {"pair": made})
        else:
            self._answer()

    def do_PATCH(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        found = sent["optical-switch:cross-connects"]["pair"]
        self.pairs.update({pair["ingress"]: pair["egress"] for pair in found})
        self._answer()

    def do_PUT(self) -> None:
        self.do_PATCH()


@pytest.fixture
def port() -> Iterator[int]:
    handler = type("Handler", (_Handler,), {"pairs": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("collection", ["patch", "put"])
def test_no_content_is_no_circuit(port: int, collection: str, system_clock: SystemClock) -> None:
    endpoint = Endpoint("restconf", "127.0.0.1", port, ("admin", "root"))
    switch = Polatis("ocs", endpoint, system_clock, collection=collection)
    try:
        assert switch.circuits() == frozenset()
        switch.change([], [Circuit(3, 13)]).done()
        assert switch.circuits() == {Circuit(3, 13)}
    finally:
        switch.close()
