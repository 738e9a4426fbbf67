"""Floods of connections at `lightrig orchestrate`, and how long clients with the token wait.

One process opens `FLOOD_CONNECTIONS` (default 10,000) connections from 127.0.0.2 to .11, without a
token, and opens those that were closed again, `FLOOD_REOPENED` (1,000) a second, for
`FLOOD_SECONDS` (120). They send nothing, a half of a request, a refused request with a byte of its
body, or bytes that are no HTTP. Meanwhile two clients with the token, one at 127.0.0.2 and one at
127.0.0.99, ask for the status by a new connection each time. The service drives switches over
wires, with 1,024 descriptors. At the end requests a second are compared with those of uvicorn
without the bounds, in turns.
"""

import asyncio
import contextlib
import json
import os
import random
import resource
import selectors
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from lightrig.harness.orchestration import http_api
from lightrig.harness.orchestration.http_api import HttpServer
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.testbeds import load
from tests.campaigns.orchestrations import served
from tests.campaigns.switchroom import Switchroom

ATTACKED, ELSEWHERE = "127.0.0.2", "127.0.0.99"
SENT = (
    b"",
    b"GET /v1/st",
    b"POST /v1/requests HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n{",
    b"\x16\x03\x01\x02\x00\x01\x00",
)
MOST_P99_S = 1.0
LEAST_SHARE = 0.9
TURNS, REQUESTS = 7, 400


def attack(
    service: tuple[str, int],
    network: str,
    sent: Sequence[bytes],
    count: int,
    reopened: int,
    seconds: float,
) -> int:
    """Hold `count` connections, and open closed ones again; return how many were opened.

    They come from ten addresses of a network, such as "127.0.0", and say one of `sent` each.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 200), hard))
    chance, ready = random.Random(1), selectors.EpollSelector()
    opened = taken = 0
    began = time.monotonic()
    while (now := time.monotonic() - began) < seconds:
        due = min(count - taken, round(reopened * now) + count - opened)
        for _ in range(min(due, 200)):
            made = socket.socket()
            made.setblocking(False)
            made.bind((f"{network}.{2 + opened % 10}", 0))
            with contextlib.suppress(BlockingIOError):
                made.connect(service)
            ready.register(made, selectors.EVENT_WRITE | selectors.EVENT_READ, chance.choice(sent))
            opened, taken = opened + 1, taken + 1
        for key, _ in ready.select(0.01):
            made = key.fileobj
            assert isinstance(made, socket.socket)
            try:
                if key.data is not None:
                    made.send(key.data)
                    ready.modify(made, selectors.EVENT_READ, None)
                elif not made.recv(4096):
                    raise ConnectionError
            except BlockingIOError:
                pass
            except OSError:
                ready.unregister(made)
                made.close()
                taken -= 1
    return opened


@contextlib.contextmanager
def service(folder: Path) -> Iterator[tuple[int, int, dict[str, str]]]:
    """Run the service over wires; yield its process, its port and its header."""
    with served(folder, render(4, 3)) as (_, file):
        command = [Path(sys.executable).with_name("lightrig"), "orchestrate", "railx", file]
        command += ["--state", folder / "s.json", "--port", "0", "--json", "--period", "0.5"]
        limited = f"ulimit -n 1024; exec {shlex.join(map(str, command))}"
        with (
            (folder / "errors").open("w") as errors,
            subprocess.Popen(
                ["sh", "-c", limited], stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            assert process.stdout is not None
            port = int(json.loads(process.stdout.readline())["address"].rpartition(":")[2])
            token = (folder / "s.token").read_text().strip()
            yield process.pid, port, {"Authorization": f"Bearer {token}", "Connection": "close"}
            process.terminate()
        assert process.returncode == 0, process.returncode


def ask(client: httpx.Client, url: str, over: threading.Event, took: list[float]) -> None:
    """Ask again and again; a request that failed took for ever."""
    while not over.wait(0.02):
        began = time.monotonic()
        try:
            found = client.get(url)
            ok = found.is_success and not found.json()["silent"]
        except httpx.HTTPError:
            ok = False
        took.append(time.monotonic() - began if ok else float("inf"))


def ask_from(
    address: str, port: int, headers: dict[str, str], over: threading.Event, took: list[float]
) -> None:
    """Ask again and again from an address."""
    transport = httpx.HTTPTransport(local_address=address)
    with httpx.Client(transport=transport, headers=headers, timeout=30, trust_env=False) as client:
        ask(client, f"http://127.0.0.1:{port}/v1/status", over, took)


def p99(took: list[float]) -> float:
    return sorted(took)[round(0.99 * (len(took) - 1))]


def flooded(count: int, reopened: int, seconds: float) -> bool:
    with tempfile.TemporaryDirectory() as name, service(Path(name)) as (process, port, headers):
        over = threading.Event()
        times_of: dict[str, list[float]] = {ATTACKED: [], ELSEWHERE: []}
        clients = [
            threading.Thread(target=ask_from, args=(address, port, headers, over, took))
            for address, took in times_of.items()
        ]
        command = [sys.executable, "-m", __name__, *map(str, (port, count, reopened, seconds))]
        most = 0
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
            for client in clients:
                client.start()
            while attacker.poll() is None:
                most = max(most, len(os.listdir(f"/proc/{process}/fd")))
                over.wait(0.2)
            assert attacker.stdout is not None
            opened = int(attacker.stdout.read())
        over.set()
        for client in clients:
            client.join()
        lines = (Path(name) / "errors").read_text().splitlines()
    print(
        f"{opened} connections in {seconds:g} s; {most} descriptors; {len(lines)} lines of errors"
    )
    good = most < 1024 and len(lines) <= 1 + seconds / 60
    for address, took in times_of.items():
        failed = took.count(float("inf"))
        print(
            f"{address}: {len(took)} requests, {failed} failed, p50 {statistics.median(took):.3f}, "
            f"p99 {p99(took):.3f}, longest {max(took):.3f} s"
        )
        good = good and not failed and p99(took) < MOST_P99_S
    return good


@contextlib.contextmanager
def unbounded(running: Orchestrator, listening: socket.socket, token: str) -> Iterator[None]:
    """Serve by uvicorn alone."""
    app = http_api.application(running, token)

    async def admitting(scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("state", {})["admit"] = lambda: None
        await app(scope, receive, send)

    config = uvicorn.Config(
        admitting, log_level="critical", access_log=False, ws="none", lifespan="off", http="h11"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=asyncio.run, args=(server.serve([listening]),))
    thread.start()
    yield
    server.should_exit = True
    thread.join()


def share() -> bool:
    """Compare requests a second with the bounds and without, in turns."""
    with (
        tempfile.TemporaryDirectory() as name,
        socket.create_server(("127.0.0.1", 0)) as bounded,
        socket.create_server(("127.0.0.1", 0)) as plain,
    ):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        folder = Path(name)
        (folder / "grid.yaml").write_text(render(4, 3))
        testbed = load(folder / "grid.yaml")
        room = Switchroom(testbed, "ingress")
        running = Orchestrator(testbed, GridLayout(testbed), room, folder / "s.json")
        token = http_api.new_token(folder / "s.token")
        server = HttpServer(running, bounded, token)
        rates: dict[str, list[float]] = {"with": [], "without": []}
        headers = {"Authorization": f"Bearer {token}"}
        with unbounded(running, plain, token):
            for _ in range(TURNS):
                for how, listening in (("with", bounded), ("without", plain)):
                    url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1/status"
                    with httpx.Client(headers=headers, timeout=30, trust_env=False) as client:
                        client.get(url)
                        began = time.monotonic()
                        for _ in range(REQUESTS):
                            client.get(url)
                        rates[how].append(REQUESTS / (time.monotonic() - began))
        server.close()
    found = {how: statistics.median(each) for how, each in rates.items()}
    ratio = found["with"] / found["without"]
    print(
        f"{found['with']:.0f} requests/s with bounds, {found['without']:.0f} without: {ratio:.2f}"
    )
    return ratio >= LEAST_SHARE


def main() -> bool:
    """Run both; return whether no number is missed."""
    setting = os.environ.get
    count, reopened = int(setting("FLOOD_CONNECTIONS", "10000")), setting("FLOOD_REOPENED", "1000")
    good = [flooded(count, int(reopened), float(setting("FLOOD_SECONDS", "120"))), share()]
    return all(good)


if __name__ == "__main__":
    port, number, again, lasting = sys.argv[1:5]
    at = "127.0.0.1", int(port)
    print(attack(at, "127.0.0", SENT, int(number), int(again), float(lasting)))
