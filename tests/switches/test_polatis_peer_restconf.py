"""The simulated Polatis as curl, httpx and a bare socket see it over RESTCONF."""

import json
import shutil
import socket
import subprocess

import httpx
import pytest
from lxml import etree
from switch_rig import LOGIN

CIRCUITS = "/api/data/optical-switch:cross-connects"
XML = "application/yang-data+xml"


@pytest.fixture
def rig(real):
    return real(scheme="restconf", monitors="both")


@pytest.fixture
def http(rig):
    with httpx.Client(
        base_url=f"http://{rig.host}:{rig.port}",
        auth=LOGIN,
        trust_env=False,
        timeout=30,
        verify=False,
    ) as client:
        yield client


def body(*pairs, module="optical-switch:"):
    listed = [{"ingress": ingress, "egress": egress} for ingress, egress in pairs]
    return {f"{module}cross-connects": {"pair": listed}}


def words(answer):
    (error,) = answer.json()["ietf-restconf:errors"]["error"]
    return error["error-tag"], error["error-message"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-u", ":".join(LOGIN), "-d", "<pair><ingress>1</ingress><egress>20</egress></pair>"],
        ["-u", ":".join(LOGIN), "-d", "<pair><ingress>1</ingress><egress>20</egress></pair>", "-0"],
    ],
    ids=["1.1", "1.0"],
)
def test_curl_is_enough(rig, arguments):
    """The command line that one lab publishes; where there is no curl, the same bytes."""
    url = f"http://{rig.host}:{rig.port}{CIRCUITS}/pair=1"
    command = ["curl", "-X", "PUT", "-s", "-w", "%{http_code}", "-H", f"Accept: {XML}"]
    command += ["-H", f"Content-Type: {XML}", *arguments, url]
    if shutil.which("curl"):
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        code = told.stdout
    else:
        headers = {"Accept": XML, "Content-Type": XML}
        code = str(httpx.put(url, auth=LOGIN, headers=headers, content=arguments[3]).status_code)
    assert code == "201"
    assert rig.matrix.egress_of == {1: 20}


def test_identity_and_size(http):
    wrapped = http.get("/api/data/optical-switch:product-information")
    assert wrapped.status_code == 200
    assert wrapped.headers["Content-Type"] == "application/yang-data+json"
    assert wrapped.headers["Server"] == ""
    assert "ETag" in wrapped.headers
    assert wrapped.json() == {
        "optical-switch:product-information": {
            "manufacturer": "Polatis",
            "serial-number": "SIM-ocs",
            "model-name": "N-VST-16x16-LU1-DMHNV-801",
            "software-version": "6.7.3.9",
        }
    }
    assert http.get("/api/data/product-information").json() == wrapped.json()


def first_member(answer):
    """Return the member that the vendor's page takes for data (quintons/polatis2, restlib.js)."""
    content = answer.json()
    return content[next(iter(content))]


def test_the_vendors_web_page_finds_the_data_of_unqualified_paths(http):
    """The expectation of its test restapi.info.test.js: `data.data.manufacturer` is Polatis."""
    assert first_member(http.get("/api/data/product-information"))["manufacturer"] == "Polatis"
    assert http.put(CIRCUITS, json=body((1, 17), (2, 18))).status_code == 204
    circuits = first_member(http.get("/api/data/cross-connects/pair"))
    assert circuits == [{"ingress": 1, "egress": 17}, {"ingress": 2, "egress": 18}]


def test_circuits_in_every_form(http):
    assert http.get(CIRCUITS).json() == body()
    assert http.put(CIRCUITS, json=body((1, 17), (2, 18))).status_code == 204
    assert http.get(CIRCUITS).json() == body((1, 17), (2, 18))
    pairs = body((1, 17), (2, 18))["optical-switch:cross-connects"]["pair"]
    assert http.get("/api/data/cross-connects/pair").json() == {"optical-switch:pair": pairs}
    assert http.get("/api/data/cross-connects").json() == body((1, 17), (2, 18))
    assert http.get(f"{CIRCUITS}/pair").json() == {"optical-switch:pair": pairs}
    assert http.get(f"{CIRCUITS}/pair=2").json() == {"optical-switch:pair": pairs[1:]}
    assert http.get("/api/data/cross-connects/pair=2").json() == {"optical-switch:pair": pairs[1:]}
    answer = http.get(CIRCUITS, headers={"Accept": XML})
    assert answer.headers["Content-Type"] == XML
    assert etree.tostring(etree.fromstring(answer.content), method="text") == b"117218"
    assert http.head(CIRCUITS).content == b""


def test_circuits_are_made_moved_and_taken_down(http, rig):
    one = {"optical-switch:pair": [{"ingress": 1, "egress": 17}]}
    assert http.post(CIRCUITS, json=one).status_code == 201
    assert http.post(CIRCUITS, json=one).status_code == 409
    assert http.patch(CIRCUITS, json=body((2, 18), (3, 19))).status_code == 204
    assert http.patch(CIRCUITS, json=body((2, 19), (3, 18), module="")).status_code == 204
    assert rig.matrix.egress_of == {1: 17, 2: 19, 3: 18}
    replaced = http.put(f"{CIRCUITS}/pair=1", json={"pair": {"ingress": 1, "egress": 20}})
    assert replaced.status_code == 204
    assert http.put(f"{CIRCUITS}/pair=4", json={"ingress": 4, "egress": 21}).status_code == 201
    assert http.delete(f"{CIRCUITS}/pair=3").status_code == 204
    assert rig.matrix.egress_of == {1: 20, 2: 19, 4: 21}
    assert http.put(CIRCUITS, json=body((9, 25))).status_code == 204
    assert rig.matrix.egress_of == {9: 25}
    assert http.delete(CIRCUITS).status_code == 204
    assert rig.matrix.egress_of == {}


REFUSALS = {
    "no such egress": ("PATCH", CIRCUITS, body((2, 33)), 400, "invalid-value"),
    "in use": ("PATCH", CIRCUITS, body((2, 17)), 409, "in-use"),
    "in use by one of many": ("PATCH", CIRCUITS, body((2, 18), (3, 17)), 409, "in-use"),
    "a word": ("PATCH", CIRCUITS, body((2, "x")), 400, "invalid-value"),
    "no key": ("PATCH", CIRCUITS, {"pair": [{"egress": 18}]}, 400, "missing-element"),
    "no list": ("PATCH", CIRCUITS, {"pair": [17]}, 400, "invalid-value"),
    "another key": ("PUT", f"{CIRCUITS}/pair=2", {"ingress": 3, "egress": 18}, 400, "invalid-v"),
    "not there": ("DELETE", f"{CIRCUITS}/pair=2", None, 404, "data-missing"),
    "no such entry": ("GET", f"{CIRCUITS}/pair=2", None, 404, "data-missing"),
    "no such container": ("GET", "/api/data/optical-switch:coffee", None, 404, "data-missing"),
    "another module": ("GET", "/api/data/tea:cross-connects", None, 404, "data-missing"),
    "no such list": ("GET", f"{CIRCUITS}/triple", None, 400, "invalid-value"),
    "another root": ("GET", "/restconf/data", None, 404, "data-missing"),
    "read only": ("PUT", "/api/data/opm-power", {"port": []}, 405, "operation-not-supported"),
    "no such method": ("BREW", CIRCUITS, None, 405, "operation-not-supported"),
    "no such operation": ("POST", "/api/operations/coffee", {}, 404, "data-missing"),
}


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "tag"), REFUSALS.values(), ids=REFUSALS
)
def test_a_refused_edit_changes_nothing(http, rig, method, path, content, status, tag):
    http.patch(CIRCUITS, json=body((1, 17)))
    answer = http.request(method, path, json=content)
    assert answer.status_code == status
    assert words(answer)[0].startswith(tag)
    assert rig.matrix.egress_of == {1: 17}


@pytest.mark.parametrize("content", [b"{", b"<pair", b"", b"\xff"])
def test_a_body_that_cannot_be_read(http, content):
    answer = http.put(CIRCUITS, content=content)
    assert (answer.status_code, words(answer)[0]) == (400, "malformed-message")
    asked_in_xml = http.put(CIRCUITS, content=content, headers={"Content-Type": XML, "Accept": XML})
    assert asked_in_xml.status_code == 400
    assert b"malformed-message" in asked_in_xml.content


@pytest.mark.parametrize("login", [None, (LOGIN[0], "guess"), ("root", LOGIN[1])])
def test_only_the_right_login(rig, login):
    answer = httpx.get(f"http://{rig.host}:{rig.port}{CIRCUITS}", auth=login, trust_env=False)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic")
    assert words(answer) == ("access-denied", "Authentication required")
    odd = {"Authorization": "Basic ???"}
    url = f"http://{rig.host}:{rig.port}/api/data"
    assert httpx.get(url, headers=odd, trust_env=False).status_code == 401


def test_if_match_protects_from_concurrent_edits(http, rig):
    version = http.get(CIRCUITS).headers["ETag"]
    assert http.get(CIRCUITS).headers["ETag"] == version
    http.patch(CIRCUITS, json=body((9, 25)))
    late = http.put(CIRCUITS, json=body((1, 17)), headers={"If-Match": version})
    assert (late.status_code, words(late)[0]) == (412, "operation-failed")
    assert rig.matrix.egress_of == {9: 25}
    now = http.get(CIRCUITS).headers["ETag"]
    in_time = http.put(CIRCUITS, json=body((1, 17)), headers={"If-Match": now})
    assert in_time.status_code == 204


def test_shutters_power_monitors_and_attenuators(http, rig):
    told = {"optical-switch:input": {"port-disab": [1, 17], "port-enab": [2]}}
    path = "/api/operations/optical-switch:port-set-state"
    assert http.post(path, json=told).status_code == 204
    assert rig.matrix.shut == {1, 17}
    in_xml = b"<input><port-enab>1</port-enab><port-enab>17</port-enab></input>"
    assert http.post(path, content=in_xml, headers={"Content-Type": XML}).status_code == 204
    assert rig.matrix.shut == set()
    wrong = http.post(path, json={"input": {"port-enab": ["x"]}})
    assert (wrong.status_code, words(wrong)[0]) == (400, "invalid-value")
    assert http.get(path).status_code == 405

    (power,) = first_member(http.get("/api/data/opm-power/port=1"))
    assert power == {"port-id": 1, "power": 0.0}
    voa = {"port-id": 17, "atten-mode": "VOA_MODE_ABSOLUTE", "atten-level": -10.0}
    patched = http.patch(
        "/api/data/optical-switch:voa", json={"optical-switch:voa": {"port": [voa]}}
    )
    assert patched.status_code == 204
    assert first_member(http.get("/api/data/voa/port=17")) == [voa]
    setting = {"port-id": 17, "averaging-time": 3}
    assert http.patch("/api/data/opm-config", json={"port": [setting]}).status_code == 204
    assert first_member(http.get("/api/data/opm-config/port=17"))[0]["averaging-time"] == 3
    label = {"port": [{"port-id": 2, "label": "FCSW49/2/3 in"}]}
    assert http.patch("/api/data/port-config", json=label).status_code == 204
    assert first_member(http.get("/api/data/port-config/port=2"))[0]["label"] == "FCSW49/2/3 in"
    assert http.delete("/api/data/port-config/port=2").status_code == 204
    assert first_member(http.get("/api/data/port-config/port=2"))[0]["label"] == ""


def test_a_response_comes_when_the_light_has_moved(http, rig):
    began = rig.clock.now()
    http.patch(CIRCUITS, json=body((1, 17)))
    assert rig.clock.now() - began >= 2_000_000


def typed(rig, *pieces):
    """Return the reply to bytes on a bare socket, until the device closes it."""
    with socket.create_connection((rig.host, rig.port), timeout=30) as line:
        for piece in pieces:
            line.sendall(piece)
        data = b""
        while piece := line.recv(4096):
            data += piece
        return data


AUTHORITY = b"Authorization: Basic YmVuY2g6aHVudGVyMi1hbmQtbW9yZQ==\r\nHost: ocs\r\n"


def test_requests_may_follow_each_other_and_come_in_pieces(rig):
    request = b"GET /api/data/cross-connects/pair HTTP/1.1\r\n" + AUTHORITY
    last = request + b"Connection: close\r\n\r\n"
    answers = typed(rig, request + b"\r\n" + last[:30], last[30:])
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.count(b'\r\n\r\n{"optical-switch:pair": []}') == 2


def test_a_chunked_body_after_100_continue(rig):
    content = json.dumps(body((1, 17))).encode()
    answers = typed(
        rig,
        b"PUT %s HTTP/1.1\r\n" % CIRCUITS.encode() + AUTHORITY,
        b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content),
    )
    assert b"HTTP/1.1 100 " in answers
    assert b"HTTP/1.1 204 No Content" in answers
    assert rig.matrix.egress_of == {1: 17}


RUBBISH = {
    "no http": b"RTRV-HDR:::1:;\r\n\r\n",
    "eight bits": bytes(range(128, 256)) + b"\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a lie about its length": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "too long": b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n",
}


@pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH)
def test_bad_requests_are_answered_and_disconnected(rig, rubbish):
    try:
        answer = typed(rig, rubbish + b"x" * (2_000_000 if b"2000000" in rubbish else 0))
    except ConnectionError:
        answer = b"HTTP/1.1 4"  # it hung up while still being told
    assert answer.startswith(b"HTTP/1.1 4")
    assert typed(rig, b"GET / HTTP/1.0\r\n" + AUTHORITY + b"\r\n").startswith(b"HTTP/1.1 404")


def test_a_client_that_leaves_affects_no_client(rig, http):
    for _ in range(4):
        with socket.create_connection((rig.host, rig.port), timeout=30) as line:
            line.sendall(b"GET /api/data/voa HTTP/1.1\r\n" + AUTHORITY + b"\r\n")
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    assert http.get(CIRCUITS).status_code == 200
