"""Offer the optical NIC ports of one node to Kubernetes, healthy as an orchestrator sees them.

    python examples/kubernetes_device_plugin.py FILE NODE --socket PATH

A device plugin (API v1beta1) runs on each node beside its kubelet. Its devices are the ports of
NODE that the testbed FILE cables to optical switches. They are unhealthy while `lightrig
orchestrate` finds the node faulty or drained or the port's switch silent, or does not answer. A
container that asks for `lightrig.io/nic-port` gets LIGHTRIG_NODE and LIGHTRIG_PORTS.

The socket is the service's, or led here by ssh (-L PATH:PATH). Needs grpcio. Methods and numbers of
fields: Kubernetes' page "Device Plugins", and k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1.
"""

import argparse
import queue
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx

from lightrig.api import Testbed, load

NO_GANGS = """\
A device plugin cannot do gangs: a kubelet asks it for the ports of one container on one node, after
the scheduler has chosen that node; it does not know a job's other pods and cannot keep them from
starting. Let Kueue, Volcano or JobSet admit all pods of a job or none, submit the job to `lightrig
orchestrate`, and start its ranks when its circuits are set (GET /v1/jobs/NAME?wait=60)."""

FOLDER = Path("/var/lib/kubelet/device-plugins")
RESOURCE, ENDPOINT = "lightrig.io/nic-port", "lightrig.sock"
VERSION = "v1beta1"
WAIT_S, RETRY_S = 30.0, 2.0
OPTIONS = b"\x10\x01"  # get_preferred_allocation_available, field 2, is true


def varint(value: int) -> bytes:
    """Return a whole number as Protocol Buffers have it, seven bits a byte, low ones first."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def message(*fields: tuple[int, str | bytes]) -> bytes:
    """Return a message of texts and messages by number."""
    data = b""
    for number, value in fields:
        content = value.encode() if isinstance(value, str) else value
        data += varint(number << 3 | 2) + varint(len(content)) + content
    return data


def fields(data: bytes) -> dict[int, list[Any]]:
    """Return the values of a message by number: of texts and messages their bytes."""
    rest = iter(data)

    def number() -> int:
        return low if (low := next(rest)) < 128 else low & 127 | number() << 7

    found: dict[int, list[Any]] = {}
    for first in rest:
        value: Any = number()
        if first & 7 == 2:
            value = bytes(next(rest) for _ in range(value))
        found.setdefault(first >> 3, []).append(value)
    return found


def texts(found: dict[int, list[Any]], number: int) -> list[str]:
    """Return the texts of a field."""
    return [each.decode() for each in found.get(number, ())]


class Plugin:
    """The device plugin of one node of a testbed."""

    def __init__(self, testbed: Testbed, node: str) -> None:
        self._node = node
        self._switch_of = {
            fiber.source.name: fiber.sink.owner
            for fiber in testbed.fibers
            if fiber.source.owner == node and fiber.sink.owner in testbed.optical_switches
        }
        if not self._switch_of:
            raise ValueError(f"{testbed.path} has no server {node} at an optical switch")
        self._unhealthy = dict.fromkeys(self._switch_of, "the service was not asked yet")
        self._watching: list[queue.SimpleQueue[None]] = []

    def see(self, status: Mapping[str, Any] | None) -> None:
        """Note the status of the service, None where it does not answer; tell the kubelet."""
        found = {port: why for port in self._switch_of if (why := self._why(port, status))}
        changed, self._unhealthy = found.keys() != self._unhealthy.keys(), found
        for each in self._watching if changed else ():
            each.put(None)

    def _why(self, port: str, status: Mapping[str, Any] | None) -> str:
        """Return why a port cannot be used, or nothing."""
        if status is None:
            return "the service does not answer"
        silent = status["silent"].get(self._switch_of[port], "")
        drained = "drained" if self._node in status["drained"] else silent
        return str(status["faulty"].get(self._node, drained))

    def watch(self, request: bytes, context: Any) -> Iterator[bytes]:
        """ListAndWatch: the devices, and anew when the health of one changes."""
        changes: queue.SimpleQueue[None] = queue.SimpleQueue()
        context.add_callback(lambda: changes.put(None))  # when the kubelet has left
        self._watching.append(changes)
        while context.is_active():
            health = dict.fromkeys(self._unhealthy, "Unhealthy")
            found = ((port, health.get(port, "Healthy")) for port in self._switch_of)
            yield message(*((1, message((1, port), (2, state))) for port, state in found))
            changes.get()
        self._watching.remove(changes)

    def prefer(self, request: bytes, context: Any) -> bytes:
        """GetPreferredAllocation: required ones, then others of their NICs."""
        answers = []
        for each in map(fields, fields(request)[1]):
            near = {port.partition(".")[0] for port in texts(each, 2)}
            ports = sorted(texts(each, 1), key=lambda one: (one.partition(".")[0] not in near, one))
            chosen = [*texts(each, 2), *(port for port in ports if port not in texts(each, 2))]
            answers.append((1, message(*((1, port) for port in chosen[: each[3][0]]))))
        return message(*answers)

    def allocate(self, request: bytes, context: Any) -> bytes:
        """Allocate: what a container learns of its ports; refused where one is unhealthy."""
        answers = []
        for ports in (texts(fields(each), 1) for each in fields(request)[1]):
            for port in ports:
                if port not in self._switch_of or port in self._unhealthy:
                    why = self._unhealthy.get(port, "there is no such port")
                    context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{port}: {why}")
            variables = {"LIGHTRIG_NODE": self._node, "LIGHTRIG_PORTS": ",".join(ports)}
            entries = (message((1, name), (2, value)) for name, value in variables.items())
            answers.append((1, message(*((1, entry) for entry in entries))))
        return message(*answers)

    def serve(self, folder: Path) -> grpc.Server:
        """Serve at a socket of the kubelet's folder, and register; raises `grpc.RpcError`."""
        handler = grpc.unary_unary_rpc_method_handler
        handlers = {
            "GetDevicePluginOptions": handler(lambda request, context: OPTIONS),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self.watch),
            "GetPreferredAllocation": handler(self.prefer),
            "Allocate": handler(self.allocate),
        }
        server = grpc.server(ThreadPoolExecutor())
        service = f"{VERSION}.DevicePlugin"
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
        (folder / ENDPOINT).unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{folder / ENDPOINT}")
        server.start()
        request = message((1, VERSION), (2, ENDPOINT), (3, RESOURCE), (4, OPTIONS))
        with grpc.insecure_channel(f"unix:{folder}/kubelet.sock") as channel:
            channel.unary_unary(f"/{VERSION}.Registration/Register")(request, timeout=WAIT_S)
        return server


def follow(client: httpx.Client, plugin: Plugin, over: threading.Event) -> None:
    """Give a plugin each status of the service, until `over` is set."""
    epoch = -1
    while not over.is_set():
        try:
            answer = client.get("/v1/status", params={"after": epoch, "wait": WAIT_S})
            status = answer.raise_for_status().json()
        except httpx.HTTPError:
            status = None
            over.wait(RETRY_S)
        plugin.see(status)
        epoch = status["epoch"] if status else -1


def main() -> None:
    """Run the plugin until it is ended, and register anew with each kubelet that starts."""
    parser = argparse.ArgumentParser(description=__doc__, epilog=NO_GANGS)
    parser.add_argument("file", type=Path)
    parser.add_argument("node")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--kubelet", type=Path, default=FOLDER)
    given = parser.parse_args()
    print(NO_GANGS, file=sys.stderr, flush=True)
    plugin, over = Plugin(load(given.file), given.node), threading.Event()
    transport = httpx.HTTPTransport(uds=given.socket)
    with httpx.Client(
        base_url="http://lightrig", transport=transport, timeout=2 * WAIT_S
    ) as client:
        threading.Thread(target=follow, args=(client, plugin, over), daemon=True).start()
        while True:
            server = plugin.serve(given.kubelet)
            while (given.kubelet / ENDPOINT).exists():  # a kubelet that starts removes it
                over.wait(RETRY_S)
            server.stop(None)


if __name__ == "__main__":
    main()
