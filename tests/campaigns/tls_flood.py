"""A flood from another network namespace at `lightrig orchestrate --key`, without a key.

As `connection_flood`, over TLS: the service is in a network namespace of its own, and a veth leads
to another one with ten addresses, from which `TLS_FLOOD_CONNECTIONS` (default 10,000) connections
come; closed ones are opened again, `TLS_FLOOD_REOPENED` (100) a second, for `TLS_FLOOD_SECONDS`
(120). They say nothing, begin a ClientHello, send a whole one of a client without a key, or bytes
that are no TLS. Two clients with a key ask for the status, one at an attacker's address and one at
another. Needs namespaces, so root.
"""

import json
import os
import shlex
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

from lightrig.harness.night.keys import make_keys
from lightrig.harness.orchestration.http_api import tls
from lightrig.harness.systems.railx.generator import render
from lightrig.testbeds.lab_hosts import load_hosts
from tests.campaigns.connection_flood import MOST_P99_S, ask, attack, p99
from tests.campaigns.orchestrations import served

SERVICE, NETWORK = "10.77.0.1", "10.77.0"
ATTACKED, ELSEWHERE = 2, 99
ALONE = "TLS_FLOOD_ALONE"


def client_hello() -> bytes:
    """Return the first message of a client without a key."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(incoming, outgoing, server_hostname="a")
    try:
        made.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a server")


def make_keys_in(folder: Path) -> list[Path]:
    """Return the key files of the service and of a client."""
    (folder / "hosts.yaml").write_text("keys: keys\nhosts: {lab1: {testbeds: [a.yaml]}}")
    return [file for file, _, _ in make_keys(load_hosts(folder / "hosts.yaml"))][1:]


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def elsewhere() -> "subprocess.Popen[bytes]":
    """Start a namespace beside this one, with addresses of its own, and a veth between the two."""
    process = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    here = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{process.pid}/ns/net") == here:
        time.sleep(0.01)
    ip("link", "add", "flood0", "type", "veth", "peer", "name", "flood1", "netns", str(process.pid))
    ip("addr", "add", f"{SERVICE}/24", "dev", "flood0")
    ip("link", "set", "flood0", "up")
    inside = ["-n", "-t", str(process.pid)]
    for number in (*range(2, 12), ELSEWHERE):
        address = ["ip", "addr", "add", f"{NETWORK}.{number}/24", "dev", "flood1"]
        subprocess.run(["nsenter", *inside, *address], check=True)
    subprocess.run(["nsenter", *inside, "ip", "link", "set", "flood1", "up"], check=True)
    return process


def asked(address: str, url: str, key: str) -> None:
    """Ask until standard input ends; print how long each request took."""
    over, took = threading.Event(), list[float]()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    transport = httpx.HTTPTransport(local_address=address, verify=tls(Path(key), server=False))
    with httpx.Client(transport=transport, headers={"Connection": "close"}, timeout=30) as client:
        ask(client, url, over, took)
    print(json.dumps(took))


def main() -> bool:
    """Flood the service; return whether no number is missed."""
    if ALONE not in os.environ:
        begin = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$0" "$@"']
        command = [*begin, sys.executable, "-m", "tests.campaigns", "tls_flood"]
        return subprocess.run(command, env={**os.environ, ALONE: "1"}, check=False).returncode == 0
    setting = os.environ.get
    count, reopened = (
        setting("TLS_FLOOD_CONNECTIONS", "10000"),
        setting("TLS_FLOOD_REOPENED", "100"),
    )
    seconds = setting("TLS_FLOOD_SECONDS", "120")
    beside = elsewhere()
    inside = ["nsenter", "-n", "-t", str(beside.pid), sys.executable, "-m", __name__]
    try:
        with tempfile.TemporaryDirectory() as name, served(Path(name), render(4, 3)) as (_, file):
            folder = Path(name)
            service_key, client_key = make_keys_in(folder)
            command = [Path(sys.executable).with_name("lightrig"), "orchestrate", "railx", file]
            command += [
                "--state",
                folder / "s.json",
                "--json",
                "--period",
                "0.5",
                "--port",
                "17900",
            ]
            command += ["--address", SERVICE, "--key", service_key]
            limited = f"ulimit -n 1024; exec {shlex.join(map(str, command))}"
            with (
                (folder / "errors").open("w") as errors,
                subprocess.Popen(
                    ["sh", "-c", limited], stdout=subprocess.PIPE, stderr=errors, text=True
                ) as service,
            ):
                assert service.stdout is not None
                url = f"https://{json.loads(service.stdout.readline())['address']}/v1/status"
                clients = {
                    number: subprocess.Popen(
                        [*inside, "ask", f"{NETWORK}.{number}", url, str(client_key)],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                    for number in (ATTACKED, ELSEWHERE)
                }
                most = 0
                flood = [*inside, "attack", "17900", count, reopened, seconds]
                with subprocess.Popen(flood, stdout=subprocess.PIPE, text=True) as attacker:
                    while attacker.poll() is None:
                        most = max(most, len(os.listdir(f"/proc/{service.pid}/fd")))
                        time.sleep(0.2)
                    assert attacker.stdout is not None
                    opened = int(attacker.stdout.read())
                times_of = {
                    number: json.loads(client.communicate()[0])
                    for number, client in clients.items()
                }
                memory = Path(f"/proc/{service.pid}/status").read_text()
                service.terminate()
            lines = (folder / "errors").read_text().splitlines()
    finally:
        beside.kill()
        beside.wait()
    peak = next(line for line in memory.splitlines() if line.startswith("VmHWM")).split()[1]
    print(
        f"{opened} connections in {seconds} s; {most} descriptors; {len(lines)} lines of errors; "
        f"at most {int(peak) / 1000:.0f} MB; exit {service.returncode}"
    )
    good = most < 1024 and len(lines) <= 1 + float(seconds) / 60 and service.returncode == 0
    for number, took in times_of.items():
        failed = took.count(float("inf"))
        print(
            f"{NETWORK}.{number}: {len(took)} requests, {failed} failed, "
            f"p50 {statistics.median(took):.3f}, p99 {p99(took):.3f}, longest {max(took):.3f} s"
        )
        good = good and not failed and p99(took) < MOST_P99_S
    return good


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        asked(*sys.argv[2:5])
    else:
        port, number, again, lasting = sys.argv[2:6]
        hello = client_hello()
        said = (b"", hello[:60], hello, b"GET / HTTP/1.1\r\n\r\n")
        print(attack((SERVICE, int(port)), NETWORK, said, int(number), int(again), float(lasting)))
