"""Leases by a labgrid coordinator: a run acquires the place that its laboratory is in labgrid.

Needs the extra `lightrig[labgrid]`, which is imported when a testbed file names a coordinator. The
coordinator keeps an acquired place also after its client was killed. So the acquisition bears the
name of this host and account, and the machine's own lock is taken before: who has that lock and
finds the place acquired in the same name finds what a killed run has left, and takes it over.
"""

import contextlib
import queue
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from lightrig.harness.bench.lab_folder import LabFolderError
from lightrig.harness.bench.lease import Claim, Claimant, LeaseConflictError, LeaseLostError
from lightrig.instruments.clock import boot_time
from lightrig.testbeds import CoordinatorSpec

_TIMEOUT_S = 5.0
_CHECK_INTERVAL = 1_000_000_000

_MISSING = "install lightrig[labgrid], the extra for a testbed with `labgrid:`"


class CoordinatorError(LabFolderError):
    """The labgrid coordinator cannot be used."""


class LabgridPlace:
    """Claims of a testbed's instruments, all by one place of a labgrid coordinator.

    Args:
        spec: the coordinator and the place.
        machine: claims on this machine, taken first.
        check_interval: time for which the coordinator's last answer holds, in ns.
    """

    def __init__(
        self, spec: CoordinatorSpec, machine: Claimant, check_interval: int = _CHECK_INTERVAL
    ) -> None:
        self._spec = spec
        self._machine = machine
        self._check_interval = check_interval
        self._checked = 0
        self._acquired: _Acquired | None = None
        self._claims = 0

    def claim(self, key: str, owner: Mapping[str, str]) -> Claim:
        """See `Claimant`; the first claim acquires the place, the last one to be freed frees it.

        Raises `CoordinatorError` for a coordinator that does not answer, or has no such place.
        """
        if self._acquired is None:
            lock = self._machine.claim(f"labgrid {self._spec}", owner)
            try:
                self._acquired = _Acquired(self._spec, owner, lock)
                self._checked = boot_time()
            except BaseException:
                lock.release()
                raise
        self._claims += 1
        return _PlaceClaim(self)

    def check(self) -> None:
        """Raise `LeaseLostError` if somebody has released the place meanwhile.

        A coordinator that does not answer gives the place to no one else, so the claim holds.
        """
        if self._acquired is None or boot_time() - self._checked < self._check_interval:
            return
        with contextlib.suppress(CoordinatorError):
            self._acquired.check()
            self._checked = boot_time()

    def free_one(self) -> None:
        """Free the place with the last claim."""
        self._claims -= 1
        if not self._claims and self._acquired is not None:
            acquired, self._acquired = self._acquired, None
            acquired.release()


class _PlaceClaim:
    def __init__(self, place: LabgridPlace) -> None:
        self._place: LabgridPlace | None = place

    def check(self) -> None:
        if self._place is not None:
            self._place.check()

    def release(self) -> None:
        if self._place is not None:
            place, self._place = self._place, None
            place.free_one()


class _Acquired:
    """An acquired place, and the session with the coordinator in which it was acquired."""

    def __init__(self, spec: CoordinatorSpec, owner: Mapping[str, str], lock: Claim) -> None:
        try:
            import grpc  # of the extra
            from labgrid.remote.generated import (  # noqa: PLC0415
                labgrid_coordinator_pb2,
                labgrid_coordinator_pb2_grpc,
            )
        except ImportError as error:
            raise CoordinatorError(f"{spec}: {error}\n  try       {_MISSING}") from error
        self._spec = spec
        self._lock = lock
        self._name = f"{socket.gethostname()}/{owner['user']} (lightrig)"
        self._messages: Any = labgrid_coordinator_pb2
        self._failed: type[Exception] = grpc.RpcError
        # A connection of its own: the coordinator knows a client by it.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel: Any = grpc.insecure_channel(spec.address, options)
        self._calls: Any = labgrid_coordinator_pb2_grpc.CoordinatorStub(self._channel)
        self._sent: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            self._begin_session()
            self._acquire()
        except BaseException:
            self._close()
            raise

    def _begin_session(self) -> None:
        """Introduce this client, and wait until the coordinator has taken note of it."""
        startup, sync = self._messages.ClientInMessage(), self._messages.ClientInMessage()
        startup.startup.version, startup.startup.name = "lightrig", self._name
        sync.sync.id = 1
        self._sent.put(startup)
        self._sent.put(sync)
        self._stream = self._calls.ClientStream(self._requests())
        grpc_ready = self._call(lambda: next(self._stream))
        if grpc_ready.sync.id != 1:
            raise CoordinatorError(f"{self._spec} answered something that is no labgrid session")

    def _requests(self) -> Iterator[Any]:
        while (message := self._sent.get()) is not None:
            yield message

    def _acquire(self) -> None:
        holder = self._holder()
        if holder == self._name:  # left by a killed run: this process has the machine's lock
            self._call(self._release_place)
        elif holder:
            raise LeaseConflictError(f"{holder}, by the place {self._spec.place} of labgrid")
        request = self._messages.AcquirePlaceRequest(placename=self._spec.place)
        try:
            self._calls.AcquirePlace(request, timeout=_TIMEOUT_S)
        except self._failed as error:
            holder = self._holder()  # another client was faster, or it is reserved
            if holder:
                named = f"{holder}, by the place {self._spec.place} of labgrid"
                raise LeaseConflictError(named) from None
            raise self._error(error) from error

    def _holder(self) -> str:
        """Return who has acquired the place, empty for no one; raises `CoordinatorError`."""
        request = self._messages.GetPlacesRequest()
        answer = self._call(lambda: self._calls.GetPlaces(request, timeout=_TIMEOUT_S))
        for place in answer.places:
            if place.name == self._spec.place:
                return str(place.acquired)
        raise CoordinatorError(
            f"{self._spec}: the coordinator has no such place, it has "
            f"{', '.join(sorted(place.name for place in answer.places)) or 'none'}\n"
            f"  try       `labgrid-client -p {self._spec.place} create`"
        )

    def _release_place(self) -> None:
        request = self._messages.ReleasePlaceRequest(
            placename=self._spec.place, fromuser=self._name
        )
        self._calls.ReleasePlace(request, timeout=_TIMEOUT_S)

    def check(self) -> None:
        """Raise `LeaseLostError` if somebody has released the place; raises `CoordinatorError`."""
        holder = self._holder()
        if holder != self._name:
            raise LeaseLostError(
                f"the place {self._spec.place} of labgrid was released, and is now acquired "
                f"by {holder or 'no one'}; nothing more is changed"
            )

    def release(self) -> None:
        """Release the place, and end the session."""
        with contextlib.suppress(self._failed):
            self._release_place()
        self._close()
        self._lock.release()

    def _close(self) -> None:
        self._sent.put(None)
        self._channel.close()

    def _call(self, call: Any) -> Any:
        try:
            return call()
        except self._failed as error:
            raise self._error(error) from error

    def _error(self, error: Any) -> CoordinatorError:
        code, details = getattr(error, "code", None), getattr(error, "details", None)
        why = f"{code().name.lower()}: {details()}" if code and details else str(error)
        return CoordinatorError(
            f"{self._spec} cannot be acquired: {why}\n"
            f"  try       `labgrid-client -x {self._spec.address} places`"
        )
