"""Variations of attacks on `lightrig orchestrate` by a client without token or key.

The service drives switches over wires with 1,024 descriptors. `VARIATIONS_CONNECTIONS` (default
1,200) connections for each variation of what keeps one busy, for `VARIATIONS_SECONDS` (20),
and each variation of a request that is meant to pass for one with the token, as reads and as
changes. After each the owner's client must be answered, no switch may be silent, nothing may have
been placed, and no answer may have anything but a refusal.
"""

import contextlib
import json
import os
import selectors
import socket
import sys
import tempfile
import time
from pathlib import Path

import httpx

from tests.campaigns.connection_flood import service
from tests.campaigns.suite_kills import processor_time

POST = b"POST /v1/requests HTTP/1.1\r\nHost: a\r\n"
BUSY = {
    "a body of one byte": (POST + b"Content-Length: 1000000\r\n\r\nx", b""),
    "a body that drips": (POST + b"Content-Length: 1000000\r\n\r\n", b"x"),
    "chunks without an end": (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "a header that drips": (b"GET /v1/status HTTP/1.1\r\nX: ", b"y"),
    "headers without an end": (b"GET /v1/status HTTP/1.1\r\n", b"X-A: " + b"y" * 200 + b"\r\n"),
    "asked to go on": (POST + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n", b""),
    "many requests at once": (b"GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n" * 500, b""),
    "healthy for ever": (
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    ),
    "a watcher": (b"GET /v1/status?wait=60 HTTP/1.1\r\nHost: a\r\n\r\n", b""),
    "empty lines": (b"\r\n" * 50, b"\r\n"),
}
"""What a connection says first, and again every 0.2 s."""

SUBMIT = b'{"do": "submit", "job": "evil", "shape": {"columns": 2, "rows": 2}}'
PASSES = {
    "host": (b"/v1/status", b"Host: x/healthz?\r\n"),
    "host with a fragment": (b"/v1/status", b"Host: x/healthz#\r\n"),
    "two hosts": (b"/v1/status", b"Host: a\r\nHost: x/healthz?\r\n"),
    "an absolute path": (b"http://x/healthz?/v1/status", b"Host: a\r\n"),
    "a path upwards": (b"/healthz/../v1/status", b"Host: a\r\n"),
    "an escaped path": (b"/healthz%2f..%2fv1%2fstatus", b"Host: a\r\n"),
    "two slashes": (b"//healthz/../v1/status", b"Host: a\r\n"),
    "another path in a header": (b"/v1/status", b"Host: a\r\nX-Original-URL: /healthz\r\n"),
    "a forwarded prefix": (b"/v1/status", b"Host: a\r\nX-Forwarded-Prefix: /healthz\r\n"),
    "an empty token": (b"/v1/status", b"Host: a\r\nAuthorization: Bearer \r\n"),
    "another scheme": (b"/v1/status", b"Host: a\r\nAuthorization: Basic Og==\r\n"),
    "two authorizations": (
        b"/v1/status",
        b"Host: a\r\nAuthorization: x\r\nAuthorization: Bearer\r\n",
    ),
}


def busy(port: int, first: bytes, again: bytes, count: int, seconds: float) -> int:
    """Keep `count` connections busy; return how many were open at once at most."""
    ready, most = selectors.EpollSelector(), 0
    ends, next_turn = time.monotonic() + seconds, 0.0
    opened: list[socket.socket] = []
    while (now := time.monotonic()) < ends:
        for _ in range(min(count - len(opened), 100)):
            made = socket.socket()
            made.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                made.connect(("127.0.0.1", port))
            ready.register(made, selectors.EVENT_READ | selectors.EVENT_WRITE, True)
            opened.append(made)
        for key, _ in ready.select(0.02):
            made = key.fileobj
            assert isinstance(made, socket.socket)
            try:
                if key.data:
                    made.send(first)
                    ready.modify(made, selectors.EVENT_READ, False)
                elif not made.recv(4096):
                    raise ConnectionError
            except BlockingIOError:
                pass
            except OSError:
                ready.unregister(made)
                made.close()
                opened.remove(made)
        if again and now > next_turn:
            next_turn = now + 0.2
            for made in opened:
                with contextlib.suppress(OSError):
                    made.send(again)
        most = max(most, len(opened))
    for made in opened:
        made.close()
    return most


def said(port: int, request: bytes) -> bytes:
    """Send a request; return all that comes."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), 30) as made, contextlib.suppress(OSError):
        made.sendall(request)
        while data := made.recv(1 << 16):
            found += data
    return found


def main() -> bool:
    """Try all; return whether nothing was answered, changed or ended."""
    setting = os.environ.get
    count = int(setting("VARIATIONS_CONNECTIONS", "1200"))
    seconds = float(setting("VARIATIONS_SECONDS", "20"))
    good = True
    with tempfile.TemporaryDirectory() as name, service(Path(name)) as (process, port, headers):
        token = headers["Authorization"].partition(" ")[2].encode()
        client = httpx.Client(headers=headers, timeout=60, trust_env=False)

        def report(what: str, problem: str, more: str = "") -> None:
            nonlocal good
            began, before = time.monotonic(), processor_time(process)
            try:
                found = client.get(f"http://127.0.0.1:{port}/v1/status").json()
                if found["silent"] or found["jobs"]:
                    problem = problem or json.dumps(found)[:300]
            except (httpx.HTTPError, ValueError) as error:
                problem = problem or repr(error)
            took, files = time.monotonic() - began, len(os.listdir(f"/proc/{process}/fd"))
            good = good and not problem
            used = processor_time(process) - before
            print(
                f"{what}: {problem or 'holds'}; answered in {took:.2f} s with {used:.2f} s of the "
                f"service's processor time, {files} descriptors{more}"
            )
            sys.stdout.flush()

        for what, (first, again) in BUSY.items():
            most = busy(port, first, again, count, seconds)
            report(what, "", f", at most {most} connections of the attacker")
        for what, (path, header) in PASSES.items():
            read = said(
                port, b"GET " + path + b" HTTP/1.1\r\n" + header + b"Connection: close\r\n\r\n"
            )
            length = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(SUBMIT)
            at = path.replace(b"status", b"requests")
            changed = said(port, b"POST " + at + b" HTTP/1.1\r\n" + header + length + SUBMIT)
            lines = [each.partition(b"\r\n")[0] for each in (read, changed)]
            problem = "" if not any(b" 200 " in line for line in lines) else f"{lines}"
            problem = problem or ("TOLD THE TOKEN" if token in read + changed else "")
            report(what, problem, f"; {b', '.join(lines).decode('latin-1')}")
        client.close()
    return good
