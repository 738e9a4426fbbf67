"""The place of a labgrid coordinator, of which the test is in the place of labgrid and gRPC.

Messages and calls are those of labgrid's `labgrid-coordinator.proto`.
"""

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.bench import labgrid_lease
from lightrig.harness.bench.labgrid_lease import CoordinatorError, LabgridPlace
from lightrig.harness.bench.lease import LeaseConflictError, LeaseLostError, MachineLocks
from lightrig.testbeds import CoordinatorSpec

SECOND = 10**9
OWNER = {"user": "anna", "pid": "7"}
NAME = f"{socket.gethostname()}/anna (lightrig)"


class RpcError(Exception):
    """A refusal, as gRPC raises it."""

    def code(self) -> Any:
        return SimpleNamespace(name="FAILED_PRECONDITION")

    def details(self) -> str:
        return "reserved by a token"


class Coordinator:
    """Three places and who has acquired each; `faster` acquires one before the next client."""

    def __init__(self) -> None:
        self.acquired = {"rack-9": "", "rack-7": "", "rack-6": "lab/eve"}
        self.calls: list[str] = []
        self.names: list[str] = []
        self.open_channels = 0
        self.requests: Iterator[Any] = iter(())
        self.faster: str | None = None
        self.answers, self.session = True, 1

    def stream(self, requests: Iterator[Any]) -> Iterator[Any]:
        self.requests = requests
        self.names.append(next(requests).startup.name)
        yield SimpleNamespace(sync=SimpleNamespace(id=next(requests).sync.id * self.session))

    def places(self, request: Any, timeout: float) -> Any:
        if not self.answers:
            raise RpcError
        found = [SimpleNamespace(name=n, acquired=by) for n, by in self.acquired.items()]
        return SimpleNamespace(places=found)

    def acquire(self, request: Any, timeout: float) -> None:
        self.calls.append(f"acquire {request.placename}")
        if self.faster is not None:
            self.acquired[request.placename] = self.faster
            raise RpcError
        self.acquired[request.placename] = self.names[-1]

    def release(self, request: Any, timeout: float) -> None:
        self.calls.append(f"release {request.placename} of {request.fromuser}")
        self.acquired[request.placename] = ""

    def channel(self, address: str, options: Any) -> Any:
        assert address == "127.0.0.1:20408"
        self.open_channels += 1

        def close() -> None:
            self.open_channels -= 1

        return SimpleNamespace(close=close)


def message(**fields: Any) -> Any:
    return SimpleNamespace(startup=SimpleNamespace(), sync=SimpleNamespace(), **fields)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    found = Coordinator()
    calls = SimpleNamespace(
        ClientStream=found.stream,
        GetPlaces=found.places,
        AcquirePlace=found.acquire,
        ReleasePlace=found.release,
    )
    names = ("ClientInMessage", "GetPlacesRequest", "AcquirePlaceRequest", "ReleasePlaceRequest")
    generated = {
        "labgrid_coordinator_pb2": SimpleNamespace(**dict.fromkeys(names, message)),
        "labgrid_coordinator_pb2_grpc": SimpleNamespace(CoordinatorStub=lambda _: calls),
    }
    contents: dict[str, dict[str, Any]] = {
        "grpc": {"RpcError": RpcError, "insecure_channel": found.channel},
        "labgrid": {},
        "labgrid.remote": {},
        "labgrid.remote.generated": generated,
    }
    for name, content in contents.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return found


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(ns=100 * SECOND)
    monkeypatch.setattr(labgrid_lease, "boot_time", lambda: clock.ns)
    return clock


@pytest.fixture
def place(tmp_path: Path) -> LabgridPlace:
    return LabgridPlace(CoordinatorSpec("127.0.0.1:20408", "rack-7"), MachineLocks(tmp_path))


def test_the_first_claim_acquires_the_place_and_the_last_frees_it(
    coordinator: Coordinator, place: LabgridPlace
) -> None:
    first, second = place.claim("ocs", OWNER), place.claim("laser", OWNER)
    assert coordinator.names == [NAME]
    assert coordinator.acquired == {"rack-9": "", "rack-7": NAME, "rack-6": "lab/eve"}
    first.release()
    first.release()
    assert (coordinator.acquired["rack-7"], coordinator.open_channels) == (NAME, 1)
    reader = threading.Thread(target=list, args=(coordinator.requests,), daemon=True)
    reader.start()  # as gRPC's own thread, which waits for what the client sends
    second.release()
    reader.join(30)
    assert not reader.is_alive()
    assert (coordinator.acquired["rack-7"], coordinator.open_channels) == ("", 0)
    assert coordinator.calls == ["acquire rack-7", f"release rack-7 of {NAME}"]
    place.check()
    place.claim("ocs", OWNER).release()  # the machine's lock is free too
    assert coordinator.acquired["rack-6"] == "lab/eve"


def test_a_refused_place_leaves_no_lock_and_no_connection(
    coordinator: Coordinator, place: LabgridPlace
) -> None:
    coordinator.acquired["rack-7"] = "lab/bob"
    with pytest.raises(LeaseConflictError, match="lab/bob, by the place rack-7 of labgrid"):
        place.claim("ocs", OWNER)
    assert (coordinator.calls, coordinator.open_channels) == ([], 0)
    coordinator.acquired["rack-7"], coordinator.faster = "", "lab/eve"
    with pytest.raises(LeaseConflictError, match="lab/eve, by the place rack-7 of labgrid"):
        place.claim("ocs", OWNER)
    coordinator.acquired["rack-7"] = coordinator.faster = ""
    with pytest.raises(CoordinatorError, match="failed_precondition: reserved by a token"):
        place.claim("ocs", OWNER)
    coordinator.session = 2
    with pytest.raises(CoordinatorError, match="no labgrid session"):
        place.claim("ocs", OWNER)
    assert coordinator.open_channels == 0
    coordinator.faster, coordinator.session = None, 1
    place.claim("ocs", OWNER).release()


def test_a_place_that_a_killed_run_has_left_is_taken_over(
    coordinator: Coordinator, place: LabgridPlace
) -> None:
    coordinator.acquired["rack-7"] = NAME
    claim = place.claim("ocs", OWNER)
    assert coordinator.calls == [f"release rack-7 of {NAME}", "acquire rack-7"]
    claim.release()


def test_a_released_place_is_lost_once_it_is_asked_for_again(
    coordinator: Coordinator, place: LabgridPlace, now: SimpleNamespace
) -> None:
    claim = place.claim("ocs", OWNER)
    coordinator.acquired["rack-7"] = ""
    now.ns += SECOND - 1
    claim.check()
    coordinator.answers = False
    now.ns += 1
    claim.check()  # without an answer it holds
    coordinator.answers = True
    with pytest.raises(LeaseLostError, match="now acquired by no one"):
        claim.check()
    coordinator.acquired["rack-7"] = "lab/bob"
    now.ns += SECOND
    with pytest.raises(LeaseLostError, match="now acquired by lab/bob"):
        claim.check()
    claim.release()
    claim.check()


def test_a_place_that_is_not_there_is_named_with_those_that_are(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    spec = CoordinatorSpec("127.0.0.1:20408", "rack-8")
    with pytest.raises(CoordinatorError, match="no such place, it has rack-6, rack-7, rack-9"):
        LabgridPlace(spec, MachineLocks(tmp_path)).claim("ocs", OWNER)
    coordinator.acquired.clear()
    with pytest.raises(CoordinatorError, match="no such place, it has none"):
        LabgridPlace(spec, MachineLocks(tmp_path)).claim("ocs", OWNER)
