"""A table of 102,400 rows over gNMI: a driver's reading beside pygnmi's Get, time and memory.

A switch of 320 x 320 has a factory insertion loss for every cross-connect that is possible
(sonic-ocs-states.yang), 8 MB of JSON. Both clients ask one server on grpcio, each in a process of
its own, in turns; pygnmi's Get returns decoded JSON, the driver a loss by circuit, which is most of
its time. Peak memory is that of the process less what it had before it asked. The driver's own
limit is 60 s (`table_time_s`).

    gnmi_tables.py serve           prints its port and the file of its certificate
    gnmi_tables.py ask CLIENT PORT FILE
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent import futures
from pathlib import Path
from typing import Any

from benchmarks.figures import beside_limit

PORTS = 320
LIMIT_S = 60
TABLE = ("STATE_DB", "localhost", "OCS_FACTORY_INSERTION_LOSS")


def serve() -> None:
    """Serve the table until stdin ends."""
    import grpc
    from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc

    from lightrig.instruments.simulated.protocols.tls_server import (
        ServerCertificate,
    )

    row = {"loss_dB": "1.59", "accuracy_dB": "0.10"}
    ends = range(1, PORTS + 1)
    table = {f"{a}A-{b}B|193.500|25.00": row for a in ends for b in ends}
    value = gnmi_pb2.TypedValue(json_ietf_val=json.dumps(table).encode())

    class Servicer(gnmi_pb2_grpc.gNMIServicer):  # type: ignore[misc]
        def Capabilities(self, request: Any, context: Any) -> Any:  # noqa: N802
            return gnmi_pb2.CapabilityResponse(supported_encodings=[gnmi_pb2.JSON_IETF])

        def Get(self, request: Any, context: Any) -> Any:  # noqa: N802
            update = gnmi_pb2.Update(path=request.path[0], val=value)
            return gnmi_pb2.GetResponse(notification=[gnmi_pb2.Notification(update=[update])])

    certificate = ServerCertificate("gnmi")
    server = grpc.server(
        futures.ThreadPoolExecutor(2), options=[("grpc.max_send_message_length", -1)]
    )
    gnmi_pb2_grpc.add_gNMIServicer_to_server(Servicer(), server)
    pair = (certificate.key().encode(), certificate.text.encode())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    server.start()
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(certificate.text)
        file.flush()
        print(port, file.name, flush=True)
        sys.stdin.read()
    server.stop(0)


def ask(client: str, port: int, file: str) -> None:
    """Read the table once and print rows, seconds and peak memory in MiB."""
    if client == "pygnmi":
        from pygnmi.client import gNMIclient

        path = "sonic-db:/" + "/".join(TABLE)
        with gNMIclient(
            target=("127.0.0.1", port),
            username="admin",
            password="none",
            path_cert=file,
            gnmi_timeout=120,
            grpc_options=[("grpc.max_receive_message_length", -1)],
        ) as opened:
            _measured(lambda: _rows(opened.get(path=[path], encoding="json_ietf")))
        return
    from lightrig.instruments.clock import SystemClock
    from lightrig.instruments.core.endpoint import Endpoint
    from lightrig.instruments.switches.sonic_ocs.gnmi import SonicGnmi

    at = Endpoint("gnmi", "127.0.0.1", port, ("admin", "none"), certificates=Path(file))
    driver = SonicGnmi("ocs", at, SystemClock(), ports=PORTS)
    _measured(driver.factory_losses)
    driver.close()


def _rows(answer: Any) -> Any:
    return answer["notification"][0]["update"][0]["val"]


def _measured(read: Any) -> None:
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    found = read()
    took = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([len(found), took, peak / 1024]))


def main() -> None:
    """Print both clients' figures and their ratios."""
    rounds = int(os.environ.get("LIGHTRIG_ROUNDS", "5"))
    command = [sys.executable, "-m", "benchmarks.gnmi_tables"]
    found: dict[str, list[tuple[float, float]]] = {"pygnmi": [], "driver": []}
    with subprocess.Popen(
        [*command, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port, file = server.stdout.readline().split()
        for _ in range(rounds):
            for client, figures in found.items():
                asked = subprocess.run(
                    [*command, "ask", client, port, file],
                    capture_output=True,
                    text=True,
                    check=True,
                )
                rows, took, peak = json.loads(asked.stdout)
                assert rows == PORTS**2
                figures.append((took, peak))
        server.stdin.close()
    medians = {
        client: [statistics.median(column) for column in zip(*figures, strict=True)]
        for client, figures in found.items()
    }
    for client, (took, peak) in medians.items():
        print(f"{client:<8}{took:8.2f} s{peak:8.0f} MiB, medians of {rounds}")
    for what, client, driver in zip(("time", "memory"), *medians.values(), strict=True):
        print(f"ratio of {what}: {driver / client:.2f}")
    beside_limit("slowest reading", max(took for took, _ in found["driver"]), LIMIT_S, "s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve()
    elif sys.argv[1:2] == ["ask"]:
        ask(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main()
