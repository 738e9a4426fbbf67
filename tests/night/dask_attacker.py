"""Try to run code at each listener of a night, as somebody who has none of its keys.

    python dask_attacker.py HOST PORT...

Tries Dask's protocol without TLS, and with TLS and a key of another authority; then
Dask's pages. Prints, as JSON, by port and attempt what came back: what the code returned there, the
status of a page, or the error.
"""

import asyncio
import http.client
import json
import os
import sys
import urllib.error
import urllib.request

import distributed
from distributed.core import rpc
from distributed.protocol.pickle import dumps

from lightrig.harness.night.coordinator import security_of
from lightrig.harness.night.keys import temporary_key

PATIENCE_S = 3.0
PAGES = ("health", "metrics", "info/main/workers.html", "json/counts.json", "sitemap.json")


async def run_code(address: str, security: distributed.Security | None, operation: str) -> str:
    arguments = security.get_connection_args("client") if security else {}
    remote = rpc(address, timeout=PATIENCE_S, connection_args=arguments)
    try:
        code = getattr(remote, operation)(function=dumps(os.getuid))
        reply = await asyncio.wait_for(code, PATIENCE_S)
        assert reply["status"] == "OK"
        return f"ran as {reply['result']}"
    except Exception as error:  # as an HTTP server's answer, read as Dask's
        return type(error).__name__
    finally:
        await remote.close_rpc()


def page(host: str, port: int, path: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/{path}", timeout=PATIENCE_S) as reply:
            return str(reply.status)
    except urllib.error.HTTPError as error:
        return str(error.code)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return type(error).__name__


async def attack(host: str, ports: list[int]) -> dict[int, dict[str, str]]:
    foreign = security_of(temporary_key())
    found: dict[int, dict[str, str]] = {}
    for port in ports:
        found[port] = {}
        for operation in ("run", "run_function"):  # a worker's, a scheduler's
            for address, key in ((f"tcp://{host}:{port}", None), (f"tls://{host}:{port}", foreign)):
                result = await run_code(address, key, operation)
                found[port][f"{address} {operation}"] = result
        for path in PAGES:
            found[port][path] = await asyncio.to_thread(page, host, port, path)
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(attack(sys.argv[1], [int(port) for port in sys.argv[2:]]))))
