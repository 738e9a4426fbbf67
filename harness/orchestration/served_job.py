"""A job of a service on this machine, from the side of who runs its ranks.

`lightrig orchestrate` has the switches; this process has the job's ranks and their servers. A
service that was killed and started again goes on: circuits stay meanwhile, and requests wait.
"""

from __future__ import annotations

import re
import socket
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lightrig.harness.bench import bind_only
from lightrig.harness.bench.bench import Bench
from lightrig.harness.signals import uninterrupted
from lightrig.instruments.clock import boot_time
from lightrig.testbeds import LightrigError, Testbed

if TYPE_CHECKING:  # suites are collected without a client of HTTP
    import httpx

KEEP_ALIVE_S = 10.0
"""Time after which the service gives the servers of a killed process to others."""

AWAY_S = 60.0
"""How long a request waits for a service that does not answer, such as one that is restarted."""

_AGAIN_S = 0.2
_TIMEOUT_S = 30.0
_WAIT_S = 10.0


class ServiceError(LightrigError):
    """The service refused, does not answer, or has given the job other servers."""


class ServedJob:
    """A job of a service, submitted again and again until `withdraw`.

    Args:
        path: of the Unix socket of the service.
        name: of the job, which no other has.
        shape: what it wants, without what `change` states later.
        keep_alive_s: see `KEEP_ALIVE_S`.

    Attributes:
        groups: the servers of each of its groups, in the order of ranks.

    Raises `ServiceError` where the service has no place for it, which it then does not keep.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        shape: Mapping[str, Any],
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
        away_s: float = AWAY_S,
    ) -> None:
        import httpx  # noqa: PLC0415 - as above

        from lightrig.harness.orchestration.listener_account import (  # noqa: PLC0415 - as above
            AccountTransport,
        )

        self.name, self._path, self._away_s = name, path, away_s
        self._lost = httpx.TransportError, OSError
        self._shape, self._keep_alive_s = dict(shape), keep_alive_s
        self._client = httpx.Client(
            base_url="http://lightrig",
            transport=AccountTransport(_TIMEOUT_S, path),
            timeout=_TIMEOUT_S,
        )
        self._turn, self._over = threading.Lock(), threading.Event()
        self.groups: tuple[tuple[str, ...], ...] = ()
        try:
            found = self._submit()
            if found["missing"]:
                raise ServiceError(f"job {name} has no place: {found['reason']['detail']}")
            self.groups = tuple(tuple(group["nodes"]) for group in found["groups"])
        except BaseException:
            self.withdraw()
            raise
        self._thread = threading.Thread(target=self._keep, daemon=True, name="keep-alive")
        self._thread.start()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Its servers, group after group."""
        return tuple(node for group in self.groups for node in group)

    def change(self, fields: Mapping[str, Any]) -> None:
        """Change fields of its shape, and wait until circuits are there; raises `ServiceError`."""
        with self._turn:
            self._shape.update(fields)
            found = self._submit()
        if found["without"]:
            raise ServiceError(f"{', '.join(found['without'])} failed: see the service's status")
        if not found["ready"]:
            raise ServiceError(f"the circuits of job {self.name} are not set")

    def send(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send a message of a rank, again while it waits; return its answer.

        Raises `ServiceError` where the service refuses it.
        """
        path = f"/v1/jobs/{self.name}/messages?wait={_WAIT_S:g}"
        while True:
            answered = self._post(path, message)
            if answered["answer"] == "failed":
                raise ServiceError(f"job {self.name}: {answered['reason']}")
            if answered["answer"] != "waits":
                return answered

    def withdraw(self) -> None:
        """End the job, whose servers others may have then; a lost service ends it by itself."""
        import httpx  # noqa: PLC0415 - as above

        self._over.set()
        with self._turn, closing(self._client), suppress(httpx.HTTPError, OSError):
            self._reach()
            self._client.delete(f"/v1/jobs/{self.name}")

    def _submit(self) -> Mapping[str, Any]:
        request = {
            "do": "submit",
            "job": self.name,
            "shape": self._shape,
            "keep_alive": self._keep_alive_s,
        }
        found: Mapping[str, Any] = self._post("/v1/requests", request)["jobs"][self.name]
        groups = tuple(None if each is None else tuple(each["nodes"]) for each in found["groups"])
        if self.groups and groups != self.groups:
            now = ", ".join(node for group in groups for node in group or ()) or "no servers"
            raise ServiceError(
                f"job {self.name} was on {', '.join(self.nodes)} and has {now} now, since one "
                "failed or nothing was heard of the job: start it again"
            )
        return found

    def _post(self, path: str, content: Mapping[str, Any]) -> Mapping[str, Any]:
        # A first submit finds a service, or there is none.
        ends = boot_time() + (self._away_s * 1e9 if self.groups else 0)
        while True:
            try:
                self._reach()
                answered = self._client.post(path, json=content)
            except self._lost as error:
                if boot_time() >= ends or self._over.is_set():
                    raise ServiceError(
                        f"no service at {self._path} ({error}): does `lightrig orchestrate` run "
                        "there?"
                    ) from error
                self._over.wait(_AGAIN_S)
                continue
            if answered.is_error:
                raise ServiceError(f"job {self.name} was refused: {_detail(answered)}")
            found: Mapping[str, Any] = answered.json()
            return found

    def _reach(self) -> None:
        """Raise `OSError` where nothing listens; httpcore 1.0 would leave its socket open then."""
        with socket.socket(socket.AF_UNIX) as tried:
            tried.connect(str(self._path))

    def _keep(self) -> None:
        while not self._over.wait(self._keep_alive_s / 4):
            with self._turn:
                if self._over.is_set():
                    return
                try:
                    self._submit()
                except ServiceError:
                    return  # the next change of circuits is refused alike, and says so


Job = TypeVar("Job", bound=ServedJob)


def job_name(script: str) -> str:
    """Return a name for a job that runs a script, which no other job has."""
    name = f"{re.sub('[^A-Za-z0-9._-]', '-', Path(script).stem)[:40]}-{uuid.uuid4().hex[:8]}"
    return name.lstrip("._-")


def part_of(testbed: Testbed, servers: Sequence[str]) -> Testbed:
    """Return a testbed with these servers alone, in this order, and without plans."""
    return replace(testbed, servers={name: testbed.servers[name] for name in servers}, plans={})


@contextmanager
def placed(submit: Callable[[], Job], testbed: Testbed, about: str) -> Iterator[tuple[Bench, Job]]:
    """Give a job that `submit` has placed, and a bench of its servers alone; withdraw it at last.

    Raises `ServiceError`, and as `bind_only`.
    """
    with ExitStack() as stack:
        served = submit()
        stack.callback(_uninterrupted, served.withdraw)
        part = part_of(testbed, served.nodes)
        bench = bind_only(part, set(served.nodes), f"{about}, job {served.name}")
        stack.callback(_uninterrupted, bench.close)
        yield bench, served


def _uninterrupted(action: Callable[[], None]) -> None:
    with uninterrupted():
        action()


def _detail(answered: httpx.Response) -> str:
    try:
        return str(answered.json()["detail"])
    except (ValueError, LookupError, TypeError):
        return answered.reason_phrase
