"""Programs by others, as programs.yaml lists them: each operation passes, or a reason is stated."""

import base64
import re
import select
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import serial
from lxml import etree
from netconf_client import netconf_session
from public_sources import PROGRAMS, fetch, share_done
from switch_rig import LOGIN, QUICK, Rig, simulated_switch

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.devices.dialects import DIALECTS

ROOT = Path(__file__).parents[2]
YANG = "http://www.polatis.com/yang/optical-switch"
SECONDS = 60
BASIC = "Basic " + base64.b64encode(":".join(LOGIN).encode()).decode()
Ask = Callable[[str, re.Pattern[str]], str]


def exchanges(entry: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        (operation["does"], sent, expected)
        for operation in entry["operations"]
        for sent, expected in operation.get("exchange", ())
    ]


DISTILLED = [entry for entry in PROGRAMS if exchanges(entry)]


@contextmanager
def text_wire(rig: Rig) -> Iterator[Ask]:
    """Send text as it stands, and read until the answer matches or for `SECONDS`."""
    is_serial = rig.service.scheme == "serial"
    line: Any = (
        serial.Serial(rig.service.resource, 38_400, timeout=0)
        if is_serial
        else socket.create_connection((rig.host, rig.port), timeout=SECONDS)
    )
    send, receive = (line.write, line.read) if is_serial else (line.sendall, line.recv)

    def ask(text: str, expected: re.Pattern[str]) -> str:
        user, password = LOGIN
        send(text.replace("{user}", user).replace("{password}", password).encode())
        answer, late = "", time.monotonic() + SECONDS
        while not expected.fullmatch(answer) and (left := late - time.monotonic()) > 0:
            if select.select([line], [], [], left)[0]:
                answer += receive(4096).decode()
        return answer

    with line:
        yield ask


@contextmanager
def http_wire(rig: Rig) -> Iterator[Ask]:
    """Send `METHOD path body` with no header but the login; return status and body."""

    def ask(text: str, expected: re.Pattern[str]) -> str:
        method, path, *body = text.split(" ", 2)
        connection = HTTPConnection(rig.host, rig.port, timeout=SECONDS)
        connection.request(method, path, "".join(body) or None, {"Authorization": BASIC})
        reply = connection.getresponse()
        try:
            return f"{reply.status} {reply.read().decode()}"
        finally:
            connection.close()

    yield ask


@contextmanager
def netconf_wire(rig: Rig) -> Iterator[Ask]:
    """Send an operation; return the reply in one line."""
    with netconf_session((rig.host, rig.port), LOGIN) as session:

        def ask(text: str, expected: re.Pattern[str]) -> str:
            operation = etree.fromstring(text.replace("{module}", YANG))
            return " ".join(session.rpc(operation).xml.split())

        yield ask


WIRES = {"restconf": http_wire, "netconf": netconf_wire}


@pytest.fixture
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    entry = request.param
    clock = SystemClock()
    dialect = {**entry.get("dialect", {})}
    with simulated_switch(
        clock, QUICK, scheme=entry["wire"], model=entry["model"], **dialect
    ) as it:
        yield it
    clock.close()


@pytest.mark.parametrize(
    ("entry", "rig"),
    [(entry, entry) for entry in DISTILLED],
    ids=[entry["program"] for entry in DISTILLED],
    indirect=["rig"],
)
def test_what_a_program_sends_is_answered_as_it_expects(entry: Mapping[str, Any], rig: Rig) -> None:
    with WIRES.get(entry["wire"], text_wire)(rig) as ask:
        for does, sent, expected in exchanges(entry):
            pattern = re.compile(expected)
            answer = ask(sent, pattern)
            assert pattern.fullmatch(answer), (does, sent, answer)


@pytest.mark.parametrize("entry", PROGRAMS, ids=[entry["program"] for entry in PROGRAMS])
def test_each_operation_has_an_exchange_a_test_or_a_reason(entry: Mapping[str, Any]) -> None:
    assert entry["checked"] in {"run", "replayed", "distilled"}
    assert entry["before"] in {"whole", "part", "none", "untried"}
    for operation in entry["operations"]:
        assert len(operation.keys() & {"exchange", "test", "outside", "left"}) == 1, operation
        if "test" in operation:
            path, _, name = operation["test"].partition("::")
            assert f"def {name}(" in (ROOT / path).read_text(), operation
    known = {each.option: each.forms for each in DIALECTS.get(entry["model"], ())}
    for option, form in entry.get("dialect", {}).items():
        assert option not in known or str(form) in known[option], (option, form)
    source = entry["source"]
    assert source.keys() in ({"repository", "path", "commit"}, {"title"}, {"package", "path"})
    if "commit" in source:
        assert re.fullmatch("[0-9a-f]{40}", source["commit"])
    if "package" in source:
        assert source["package"].lower() in (ROOT / source["path"]).read_text().lower()


def test_counts_before_and_now() -> None:
    tried = [entry for entry in PROGRAMS if entry["before"] != "untried"]
    assert Counter(entry["before"] for entry in tried) == {"whole": 16, "part": 10, "none": 4}
    after = Counter(map(share_done, tried))
    page = (ROOT / "docs" / "dialects.md").read_text()
    counts = f"now {after['whole']}, {after['part']} and {after['none']}"
    assert f"16 did their whole job, 10 a part, 4 none; {counts}" in " ".join(page.split())


def test_public_sources_are_fetched_at_their_commit(tmp_path: Path, monkeypatch: Any) -> None:
    """From a repository here: the file as it was at the commit, and not as it is now."""
    origin = tmp_path / "from" / "owner" / "name"
    origin.mkdir(parents=True)
    git = ["git", "-C", str(origin), "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "config", "uploadpack.allowAnySHA1InWant", "true"], check=True)
    subprocess.run([*git, "config", "uploadpack.allowFilter", "true"], check=True)
    commits = []
    (origin / "lib").mkdir()
    for text in ("first", "second"):
        (origin / "a b.sh").write_text(text)
        (origin / "lib" / "c.py").write_text(text)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", text], check=True)
        commits.append(subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip())
    source = {"repository": "owner/name", "path": "a b.sh", "commit": commits[0]}
    monkeypatch.setattr("public_sources.PROGRAMS", [{"source": source}, {"source": {"title": "x"}}])
    monkeypatch.setattr("public_sources.LIBRARIES", [("owner/name", "lib", commits[0])])
    assert fetch(tmp_path / "to", f"file://{tmp_path}/from") == 0
    assert (tmp_path / "to/owner/name/a b.sh").read_text() == "first"
    assert (tmp_path / "to/owner/name/lib/c.py").read_text() == "first"
    source["commit"] = "0" * 40
    assert fetch(tmp_path / "to", f"file://{tmp_path}/from") == 1
