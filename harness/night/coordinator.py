"""A night distributed by Dask: one task a testbed, one resource a testbed on each host.

Dask places a task where its testbed is a resource, and places it again when the worker is lost.
Leases of instruments keep two attempts from using one testbed at once, where a worker that
seemed lost still measures.

Whoever reaches a listener of Dask may run code there. All therefore speak TLS with keys on both
sides, and listen where the file of hosts says. Dask's HTTP servers ask for no key and begin always;
they have no pages, listen on loopback, and are stopped at once.
"""

import asyncio
import shlex
import ssl
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dask
import distributed

from lightrig.harness.night.keys import SCHEDULER, NightKey, read_key, temporary_key
from lightrig.harness.night.measuring import Task, measure, tasks
from lightrig.harness.night.outcomes import TestbedNight, collect, store, with_attempts
from lightrig.instruments.temporary_folders import TemporaryFolder
from lightrig.testbeds import LightrigError
from lightrig.testbeds.lab_hosts import LOOPBACK, LabHost, LabHosts, load_hosts

_UNPLACED = (distributed.scheduler.NoValidWorkerError, distributed.scheduler.NoWorkerError)
_TOPIC = "lightrig-night"
_BEGUN = "lightrig-night-begun"
_POLL_S = 0.5
_END_S = 20
_HTTP_ADDRESS = urlsplit(LOOPBACK).netloc
_NO_PAGES: dict[str, Any] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}

Follow = Callable[[str, str, int, int], None]
"""Called as a night goes on: testbed, host, number of tests that have ended, number of all."""


class SchedulerError(LightrigError):
    """The scheduler of a night does not speak TLS, or has a key of another authority."""


def resources(host: LabHost) -> dict[str, float]:
    """Return what a host's worker offers: each of its testbeds, once."""
    return dict.fromkeys(host.testbeds, 1.0)


def run_night(
    lab: LabHosts, night: str, follow: Follow, announce: Callable[[str], None]
) -> list[TestbedNight]:
    """Measure all testbeds on the hosts that reach them, and store how each ended.

    announce: called with the scheduler's address, then with each worker that ends too early.
    After Ctrl-C the testbeds that are being measured are restored, and nothing more begins.
    Raises `TestbedError` for a testbed's file, `KeyFileError` for the scheduler's key,
    `RecordError` for results that cannot be written.
    """
    wanted = tasks(lab, night)
    at = urlsplit(lab.scheduler)
    key = temporary_key() if lab.keys is None else read_key(lab.keys / SCHEDULER)
    settings = {
        # Dask counts a lost worker against what only waited there, too: attempts are counted by
        # the tasks themselves.
        "distributed.scheduler.allowed-failures": sys.maxsize,
        "distributed.scheduler.no-workers-timeout": f"{lab.wait_ns} ns",
        # A host that joins late takes over what waits at others that reach the same testbeds.
        "distributed.scheduler.work-stealing": True,
        "distributed.scheduler.unknown-task-duration": "600 s",
        "distributed.admin.tick.limit": "1 h",
    }
    with (
        _configured(settings),
        distributed.LocalCluster(
            n_workers=0,
            host=at.hostname,
            scheduler_port=at.port or 0,
            scheduler_kwargs={"dashboard": False, "dashboard_address": _HTTP_ADDRESS},
            security=security_of(key),
            silence_logs="CRITICAL",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        cluster.sync(_stop_pages, cluster.scheduler)
        announce(f"scheduler {cluster.scheduler_address}")
        with _workers(lab, cluster.scheduler_address, key, announce) as watch:
            found = _distribute(client, lab, wanted, follow, watch)
    for outcome in found:
        if outcome.state == "not run" or outcome.attempts > 1:
            store(outcome, night, lab.results)
    return found


async def _stop_pages(scheduler: distributed.Scheduler) -> None:
    """Stop the HTTP server, in the thread that it runs in."""
    scheduler.http_server.stop()


def _distribute(
    client: Any, lab: LabHosts, wanted: Sequence[Task], follow: Follow, watch: Callable[[], None]
) -> list[TestbedNight]:
    night = wanted[0].night
    hosts: dict[str, list[str]] = defaultdict(list)

    def began(event: tuple[float, Mapping[str, str]]) -> None:
        hosts[event[1]["testbed"]].append(event[1]["host"])

    def heard(event: tuple[float, Mapping[str, Any]]) -> None:
        message = event[1]
        follow(message["testbed"], message["host"], message["done"], message["of"])

    client.subscribe_topic(_BEGUN, began)
    client.subscribe_topic(_TOPIC, heard)
    futures = {
        client.submit(
            _measure_on_worker,
            str(lab.path),
            task,
            key=f"{night}-{task.testbed}",
            resources={task.file: 1},
            pure=False,
        ): task
        for task in wanted
    }
    pending = set(futures)
    try:
        pending = _until_done(pending, watch)
    except KeyboardInterrupt:
        distributed.Event(night, client=client).set()
        _until_done(pending, lambda: None)
    return [_ended(future, task, hosts[task.testbed]) for future, task in futures.items()]


def _until_done(pending: set[Any], watch: Callable[[], None]) -> set[Any]:
    while pending:
        with suppress(distributed.TimeoutError):
            pending = distributed.wait(pending, _POLL_S, "FIRST_COMPLETED").not_done
        watch()
    return pending


def _ended(future: Any, task: Task, hosts: Sequence[str]) -> TestbedNight:
    if future.status == "finished":
        return with_attempts(future.result(), hosts)
    error = future.exception()
    if isinstance(error, _UNPLACED):
        reason = "no host that reaches it has a worker"
        if hosts:
            reason += f" any more; it was begun on {', '.join(hosts)}"
    else:
        reason = str(error) or repr(error)
    return with_attempts(TestbedNight(task.testbed, "not run", reason=reason), hosts)


# ---------------------------------------------------------------------------- on the worker's side


def _measure_on_worker(file: str, task: Task) -> TestbedNight:
    """Measure a testbed, on the host that this worker is.

    Not again where a worker that was lost since has published it, or where as many workers as the
    lab allows have begun it.
    """
    lab = load_hosts(Path(file))
    worker, client = distributed.get_worker(), distributed.get_client()
    host = str(worker.name)
    stop = distributed.Event(task.night, client=client)
    (stored,) = collect(task.night, [task.testbed], lab.results)
    if stored.run:
        return stored
    events = client.get_events(_BEGUN)
    lost = [event["host"] for _, event in events if event["testbed"] == task.testbed]
    if len(lost) >= lab.attempts:
        reason = f"each worker that began it was lost: {', '.join(lost)}"
        return TestbedNight(task.testbed, "not run", reason=reason)
    worker.log_event(_BEGUN, {"testbed": task.testbed, "host": host})

    def progress(done: int, of: int) -> None:
        worker.log_event(_TOPIC, {"testbed": task.testbed, "host": host, "done": done, "of": of})

    def stopped() -> bool:
        try:
            return bool(stop.is_set())
        except (OSError, TimeoutError):
            # A scheduler that is slow to answer is no reason to lose what is measured; where it
            # has ended, this process does.
            return False

    return measure(lab, task, host, stopped, progress)


async def work(lab: LabHosts, host: LabHost, scheduler: str, key: NightKey) -> None:
    """Be the worker of `host` until the scheduler at that address, `tls://HOST:PORT`, ends.

    Waits for the scheduler to begin. Raises `SchedulerError` for one that speaks no TLS, or whose
    key is of another authority.
    """
    at = urlsplit(host.address)
    security = security_of(key)
    await _await_scheduler(scheduler, security)
    with _configured({"distributed.worker.daemon": False}):
        async with distributed.Worker(
            scheduler,
            name=host.name,
            host=at.hostname,
            port=at.port or 0,
            security=security,
            nthreads=host.parallel,
            resources=resources(host),
            memory_limit=0,
            dashboard=False,
            dashboard_address=_HTTP_ADDRESS,
        ) as worker:
            worker.http_server.stop()
            await worker.finished()


async def _await_scheduler(scheduler: str, security: distributed.Security) -> None:
    """Wait until the scheduler's TLS accepts this key; Dask would go on without a word if not."""
    at = urlsplit(scheduler)
    context = security.get_connection_args("worker")["ssl_context"]
    while True:
        try:
            _, writer = await asyncio.open_connection(at.hostname, at.port, ssl=context)
        except ssl.SSLCertVerificationError as error:
            raise SchedulerError(
                f"the key of the scheduler at {scheduler} is not of the authority of this host's "
                f"key file ({error.verify_message}): copy this host's key file again"
            ) from error
        except ssl.SSLError as error:
            raise SchedulerError(f"the scheduler at {scheduler} speaks no TLS: {error}") from error
        except OSError:  # it has not begun, or its host does not answer yet
            await asyncio.sleep(_POLL_S)
        else:
            writer.transport.abort()
            return


@contextmanager
def _configured(settings: Mapping[str, Any]) -> Iterator[None]:
    """Configure Dask: `settings`, no pages, and a folder of its own for its files.

    By default that is `dask-scratch-space` in the folder of temporary files. Another account that
    has made it before could have files of this account overwritten, by links, and modules of its
    own imported, since Dask searches there first.
    """
    with (
        TemporaryFolder("dask") as folder,
        dask.config.set(_NO_PAGES | {"temporary-directory": folder} | dict(settings)),
    ):
        yield


def security_of(key: NightKey) -> distributed.Security:
    """Return that scheduler, workers and clients show `key`, and accept those of its authority."""
    parts = {
        f"tls_{role}_{part}": text
        for role in ("client", "scheduler", "worker")
        for part, text in (("key", key.key), ("cert", key.certificate))
    }
    return distributed.Security(require_encryption=True, tls_ca_file=key.authority, **parts)


# ------------------------------------------------------------------------------- starting workers


@contextmanager
def _workers(
    lab: LabHosts, scheduler: str, key: NightKey, announce: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Start the workers of hosts that say how; the function yielded starts those again that ended.

    A host's worker is started as often as a testbed is begun.
    """
    running = {host.name: _start(lab, host, scheduler, key) for host in lab.hosts if host.start}
    starts = dict.fromkeys(running, 1)

    def watch() -> None:
        for host in lab.hosts:
            process = running.get(host.name)
            if process is None or process.poll() is None:
                continue
            announce(f"the worker of {host.name} ended with {process.returncode}")
            if starts[host.name] < lab.attempts:
                starts[host.name] += 1
                running[host.name] = _start(lab, host, scheduler, key)
            else:
                del running[host.name]

    try:
        yield watch
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _start(
    lab: LabHosts, host: LabHost, scheduler: str, key: NightKey
) -> "subprocess.Popen[bytes]":
    """Start a host's worker; without key files it reads the night's key from standard input.

    Neither arguments nor environment have it, which other accounts and programs may read.
    """
    arguments = ["night", str(lab.path), "--worker", host.name, "--scheduler", scheduler]
    process = subprocess.Popen(
        start_command(str(host.start), arguments), stdin=subprocess.PIPE, bufsize=0
    )
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as pipe:  # it may have ended
        if lab.keys is None:
            pipe.write(key.pem.encode())  # shorter than a pipe's buffer
    return process


def start_command(template: str, arguments: Sequence[str]) -> list[str]:
    """Return a host's command with lightrig and its arguments in their place.

    A word that is {command} alone becomes as many words as it stands for; within a word, such as
    the remote command of ssh, it is quoted for a shell.
    """
    lightrig = [sys.executable, "-c", "from lightrig.harness.cli import main; main()", *arguments]
    places = {"{command}": lightrig, "{arguments}": list(arguments)}
    command: list[str] = []
    for part in shlex.split(template):
        if part in places:
            command += places[part]
            continue
        for place, meaning in places.items():
            part = part.replace(place, shlex.join(meaning))  # noqa: PLW2901
        command.append(part)
    return command
