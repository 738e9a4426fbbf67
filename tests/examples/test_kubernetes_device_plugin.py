"""The device plugin, in a process, against a kubelet of the tests over gRPC.

The kubelet has the messages of the package protobuf, with the numbers of fields from
k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto.
"""

import contextlib
import functools
import importlib.util
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench.lab_folder import opened
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.infinitehbd.generator import render
from lightrig.harness.systems.infinitehbd.runtime.layout import RowLayout
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom

PROGRAM = Path(__file__).parents[2] / "examples" / "kubernetes_device_plugin.py"
LIMIT_S = 60.0
PACKAGE = "v1beta1"

FIELDS = """
Empty
DevicePluginOptions pre_start_required:bool get_preferred_allocation_available:bool
RegisterRequest version:string endpoint:string resource_name:string options:DevicePluginOptions
Device ID:string health:string
ListAndWatchResponse devices:Device*
ContainerPreferred available:string* required:string* size:int32
PreferredAllocationRequest containers:ContainerPreferred*
ContainerDevices ids:string*
PreferredAllocationResponse containers:ContainerDevices*
AllocateRequest containers:ContainerDevices*
Variable key:string value:string
ContainerAllocated envs:Variable*
AllocateResponse containers:ContainerAllocated*
"""
"""Messages with the fields that are used, in the order of their numbers from 1; * is repeated.

Names are not on the wire, where a map is a repeated message of key and value.
"""


pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None, reason="the extra gnmi is not installed"
)


@functools.cache
def messages() -> dict[str, Any]:
    """Return the classes of the messages, by name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="kubelet.proto", package=PACKAGE, syntax="proto3"
    )
    stated = [line.split() for line in FIELDS.strip().splitlines()]
    names = [name for name, *_ in stated]
    for name, *fields in stated:
        message = file.message_type.add(name=name)
        for number, (called, kind) in enumerate((each.split(":") for each in fields), 1):
            made = message.field.add(name=called, number=number, label=field.LABEL_OPTIONAL)
            if kind.endswith("*"):
                made.label = field.LABEL_REPEATED
            if kind.rstrip("*") in names:
                made.type_name = f".{PACKAGE}.{kind.rstrip('*')}"
            else:
                made.type = getattr(field, f"TYPE_{kind.rstrip('*').upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"{PACKAGE}.{name}") for name in names)
    return {each.name: message_factory.GetMessageClass(each) for each in found}


class Kubelet:
    """Registers a plugin in a folder, and calls it at the socket that it states."""

    def __init__(self, folder: Path) -> None:
        import grpc

        self._folder = folder
        self.registered: queue.Queue[Any] = queue.Queue()
        self._server = grpc.server(ThreadPoolExecutor(2))
        handler = grpc.unary_unary_rpc_method_handler(self._register)
        register = grpc.method_handlers_generic_handler(
            "v1beta1.Registration", {"Register": handler}
        )
        self._server.add_generic_rpc_handlers([register])
        self._server.add_insecure_port(f"unix:{folder}/kubelet.sock")
        self._server.start()

    def _register(self, request: bytes, context: Any) -> bytes:
        self.registered.put(messages()["RegisterRequest"].FromString(request))
        return b""

    def method(self, name: str, *, stream: bool = False) -> Callable[..., Any]:
        """Return a method of the plugin, from bytes to bytes."""
        import grpc

        channel = grpc.insecure_channel(f"unix:{self._folder}/lightrig.sock")
        kind = channel.unary_stream if stream else channel.unary_unary
        method: Callable[..., Any] = kind(f"/v1beta1.DevicePlugin/{name}")
        return lambda request=b"": method(request, timeout=LIMIT_S)

    def close(self) -> None:
        self._server.stop(None).wait()


def devices(answer: bytes) -> dict[str, str]:
    found = messages()["ListAndWatchResponse"].FromString(answer).devices
    return {device.ID: device.health for device in found}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Orchestrator]:
    """Yield an orchestrator of nine nodes, served at `api.socket`."""
    from lightrig.harness.orchestration.http_api import HttpServer, unix_socket

    (tmp_path / "row.yaml").write_text(render(9, hops=3))
    testbed = load(tmp_path / "row.yaml")
    with opened(tmp_path / "state"):
        pass
    made = Orchestrator(testbed, RowLayout(testbed), Switchroom(testbed), tmp_path / "state/s.json")
    made.start()
    server = HttpServer(made, unix_socket(tmp_path / "api.socket"), None)
    yield made
    server.close()


@contextlib.contextmanager
def plugin_of(node: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    words = [sys.executable, str(PROGRAM), str(folder / "row.yaml"), node]
    words += ["--socket", str(folder / "api.socket"), "--kubelet", str(folder)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.long
def test_a_kubelet_sees_the_ports_of_a_node_as_the_service_does(
    service: Orchestrator, tmp_path: Path
) -> None:
    import grpc

    with plugin_of("node1", tmp_path) as process, contextlib.ExitStack() as stack:
        kubelet = Kubelet(tmp_path)
        stack.callback(kubelet.close)
        assert process.stderr is not None
        assert "cannot do gangs" in process.stderr.readline()
        request = kubelet.registered.get(timeout=LIMIT_S)
        stated = (request.version, request.endpoint, request.resource_name)
        assert stated == ("v1beta1", "lightrig.sock", "lightrig.io/nic-port")
        assert request.options.get_preferred_allocation_available
        options = messages()["DevicePluginOptions"].FromString(
            kubelet.method("GetDevicePluginOptions")()
        )
        assert (options, options.pre_start_required) == (request.options, False)
        changes = kubelet.method("ListAndWatch", stream=True)()
        seen = devices(next(changes))
        while "Unhealthy" in seen.values():  # until the service has answered
            seen = devices(next(changes))
        ports = list(seen)

        asked = messages()["AllocateRequest"]()
        asked.containers.add(ids=ports[:2])
        asked.containers.add(ids=ports[2:3])
        allocate, wanted = kubelet.method("Allocate"), asked.SerializeToString()
        answer = messages()["AllocateResponse"].FromString(allocate(wanted))
        assert [{each.key: each.value for each in one.envs} for one in answer.containers] == [
            {"LIGHTRIG_NODE": "node1", "LIGHTRIG_PORTS": ",".join(ports[:2])},
            {"LIGHTRIG_NODE": "node1", "LIGHTRIG_PORTS": ports[2]},
        ]
        choice = messages()["PreferredAllocationRequest"]()
        choice.containers.add(
            available=["nic0.p0", "nic1.p0", "nic1.p1"], required=["nic1.p1"], size=2
        )
        answer = messages()["PreferredAllocationResponse"].FromString(
            kubelet.method("GetPreferredAllocation")(choice.SerializeToString())
        )
        assert [list(each.ids) for each in answer.containers] == [["nic1.p1", "nic1.p0"]]

        service.request({"do": "failed", "nodes": ["node2"]})  # no port of node1
        service.request({"do": "failed", "nodes": ["node1"]})
        assert set(devices(next(changes)).values()) == {"Unhealthy"}
        with pytest.raises(grpc.RpcError, match=f"{ports[0]}: reported"):
            allocate(wanted)
        service.request({"do": "repaired", "nodes": ["node1"]})
        assert set(devices(next(changes)).values()) == {"Healthy"}

        (tmp_path / "lightrig.sock").unlink()  # as a kubelet does that starts
        assert kubelet.registered.get(timeout=LIMIT_S) == request
        assert devices(next(kubelet.method("ListAndWatch", stream=True)())) == dict.fromkeys(
            ports, "Healthy"
        )
