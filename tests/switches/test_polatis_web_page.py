"""Readings and settings of public programs over RESTCONF, among them those of restlib.js.

Paths are those of the vendor's web page (quintons/polatis2, e6ec062, restlib.js), which takes the
first member of an answer for its data; values are the defaults of the modules optical-switch
2018-03-22 and polatis-switch 2017-09-11 (opennetworkinglab/onos, bd0779f), or the switch's state.
"""

import httpx
import pytest
from lxml import etree
from switch_rig import LOGIN, MS

from lightrig.instruments.wire.restconf import RestconfSession
from lightrig.testbeds import Circuit

GROUPS = "/api/data/optical-switch:groups"
JOIN = "/api/operations/polatis-switch:add-group-cross-connect"
ALARM = {
    "mode": "POWER_ALARM_DISABLED",
    "signal-low-threshold": -60,
    "signal-degrade-threshold": -60,
    "signal-high-threshold": 25,
    "alarm-clear-holdoff": 0,
}
READERS = {
    "opm-power/port": lambda data: [each["port-id"] for each in data] == [*range(17, 33)],
    "opm-power/port=18": lambda data: data[0].keys() == {"port-id", "power"},
    "opm-alarm-config/port": lambda data: data[0] == {"port-id": 17, **ALARM},
    "notification-log/log": lambda data: data == [],
    "system-config/radius-servers/radius-server": lambda data: data == [],
    "opm-config/port=17": lambda data: data[0]["wavelength"] == 1310,
    "sessions/session": lambda data: [each["user-name"] for each in data] == [LOGIN[0]],
    "system-config/user": lambda data: data == [USER],
    f"system-config/user={LOGIN[0]}": lambda data: data == [USER],
    "groups/group": lambda data: data == [],
    "system-config/activity-log": lambda data: data["log-access"] == "NONE",
    "system-config/protocols/protocol": lambda data: 3082 in [e["protocol-port"] for e in data],
    "product-information": lambda data: data["manufacturer"] == "Polatis",
    "system-config/boot-datetime": lambda data: data == "2000-01-01T00:00:00Z",
    "system-config/startup-mode": lambda data: data == "MODE_PRESERVE",
    "system-config/interface-status=eth0": lambda data: data[0]["ip-address"] == "127.0.0.1",
    "mask-notification": lambda data: data == "",
    "system-config/interface": lambda data: [each["name"] for each in data] == ["eth0"],
    "cross-connects/pair": lambda data: data == [{"ingress": 3, "egress": 29}],
    "shutter-status/port=5": lambda data: data == [{"port-id": 5, "status": "SHUTTER_IDLE"}],
    "ports/port=4": lambda data: data == [FOURTH],
    "voa/port=30": lambda data: data[0]["atten-mode"] == "VOA_MODE_NONE",
    "aps/protection-service": lambda data: data == [],
    "system-config/remote-syslog": lambda data: data["facility"] == "USER",
    "system-config/alarm-clear-hysteresis": lambda data: data == 1,
    "system-config/ntp-servers/ntp-server": lambda data: data == [],
    "system-alarms/alarm": lambda data: data == [],
    "subswitches/subswitch": lambda data: data == [],
    "port-config/port": lambda data: data[3]["status"] == "DISABLED",
    "system-config/current-datetime": lambda data: data.startswith("2000-01-0"),
}
USER = {"name": LOGIN[0], "type": "LOCAL_USER", "password": "", "polatis-switch:group": "admin"}
FOURTH = {
    "port-id": 4,
    "port-label": "spare",
    "port-state": "PC_DISABLED",
    "port-status": "PO_DISABLED",
}


def open_client(rig):
    return httpx.Client(
        base_url=f"http://{rig.host}:{rig.port}",
        auth=LOGIN,
        trust_env=False,
        timeout=20,
        verify=False,
    )


@pytest.fixture
def rig(real):
    made = real(scheme="restconf")
    made.matrix.connect([Circuit(3, 29)])
    made.matrix.shutter(4, shut=True)
    made.peer.box.label(4, "spare")
    made.clock.sleep(made.matrix.averaging + 5 * MS)  # until its monitors show the settled light
    return made


@pytest.fixture
def http(rig):
    with open_client(rig) as client:
        yield client


def test_every_reader_of_the_vendors_page_finds_its_data(http):
    wrong = {}
    for path, is_right in READERS.items():
        answer = http.get(f"/api/data/{path}")
        content = answer.json() if answer.status_code == 200 else {"": answer.text}
        data = content[next(iter(content))]
        if answer.status_code != 200 or not is_right(data):
            wrong[path] = (answer.status_code, data)
    assert wrong == {}
    assert len({path.partition("=")[0] for path in READERS}) == 28


def test_names_are_qualified_by_the_module_that_defines_them(http):
    qualified = "/api/data/optical-switch:system-config/polatis-switch:startup-mode"
    assert http.get(qualified).json() == {"polatis-switch:startup-mode": "MODE_PRESERVE"}
    wrong = "/api/data/optical-switch:system-config/optical-switch:startup-mode"
    assert http.get(wrong).status_code == 404
    label = "/api/data/optical-switch:ports/port=4/port-label"  # KalebLindev/Polatis, script.js
    assert http.get(label).json() == {"optical-switch:port-label": "spare"}


@pytest.mark.parametrize(
    "path", ["ports/port=33", "ports/port=4/colour", "groups/crowd", "sessions=1", "ports/tea:port"]
)
def test_what_is_not_in_the_tree_is_404(http, path):
    assert http.get(f"/api/data/{path}").status_code == 404


SETTERS = {
    "system-config/radius-servers/radius-server": [
        {"ip-address": "10.0.0.7", "port": 1812, "secret": "s3cret", "timeout": 5}
    ],
    "system-config/user": [{"name": "carol", "type": "LOCAL_USER", "password": "tea 4 two"}],
    "system-config/activity-log": {"log-filter": "OXC OPM", "logging-enabled": True},
    "system-config/protocols/protocol": [{"protocol-id": 3, "enabled": False}],
    "system-config/startup-mode": "MODE_VOLATILE",
    "mask-notification": "NOTIF_SYSTEM NOTIF_APS",
    "system-config/interface": [{"name": "eth0", "ip-address": "10.0.0.9"}],
    "ports/port": [{"port-id": 5, "port-label": "five", "port-state": "PC_DISABLED"}],
    "aps/protection-service": [
        {"sname": "ring", "working-port": [{"port-id": 3, "client": 29}], "protection-port": [7]}
    ],
    "system-config/remote-syslog": {"rname": "10.0.0.8", "facility": "LOCAL3"},
    "system-config/alarm-clear-hysteresis": 2.5,
    "system-config/ntp-servers/ntp-server": [{"ip-address": "10.0.0.6", "minpoll": 5}],
    "subswitches/subswitch": [{"sname": "left", "username": ["carol"], "port-id": [3, 19]}],
}
"""Settings that only restlib.js sends, by PATCH, with leaves of the modules."""
ANSWERED = {
    "system-config/user": {"password": "", "polatis-switch:group": "user"},
    "ports/port": {"port-status": "PO_DISABLED"},
    "aps/protection-service": {"active": False},
    "system-config/ntp-servers/ntp-server": {"maxpoll": 10, "version": 4},
}
"""Leaves that are read back beside those: defaults, and state that cannot be set."""


@pytest.mark.parametrize("path", SETTERS)
def test_what_the_vendors_page_sets_is_read_back(http, path):
    wanted = SETTERS[path]
    before = http.get(f"/api/data/{path}").json()
    assert http.patch(f"/api/data/{path}", json={path.split("/")[-1]: wanted}).status_code == 204
    answer = http.get(f"/api/data/{path}").json()
    (name, found), old = *answer.items(), before[next(iter(answer))]
    assert found != old
    if isinstance(wanted, list):
        key = next(iter(wanted[0]))
        entry = {**wanted[0], **ANSWERED.get(path, {})}
        assert [each[key] for each in found].count(entry[key]) == 1
        assert len(found) == len(old) + (entry[key] not in [each[key] for each in old])
        (found,) = [each for each in found if each[key] == entry[key]]
        assert entry.items() <= found.items()
        assert [e for e in answer[name] if e[key] != entry[key]] == [
            e for e in old if e[key] != entry[key]
        ]
    elif isinstance(wanted, dict):
        assert found == {**old, **wanted}
    else:
        assert found == wanted


@pytest.mark.parametrize(
    ("path", "wanted", "status"),
    [
        ("system-config/alarm-clear-hysteresis", 5.01, 400),  # range 1..5
        ("system-config/startup-mode", "MODE_LOUD", 400),
        ("mask-notification", "NOTIF_PORT", 400),
        ("system-config/activity-log", {"log-access": True}, 400),
        ("system-config/activity-log", {"logging-enabled": 1}, 400),
        ("system-config/activity-log", {"colour": "red"}, 400),
        ("system-config/user", [{"name": "dan", "password": "x"}], 400),  # type is mandatory
        ("system-config/user", [{"type": "LOCAL_USER", "password": "x"}], 400),
        ("system-config/user", [{"name": "dan", "type": "LOCAL_USER", "password": ""}], 400),
        ("system-config/interface", [{"name": "eth0", "ip-address": "10.0.0"}], 400),
        ("system-config/interface", [{"name": "eth9", "ip-address": "10.0.0.9"}], 404),
        ("system-config/protocols/protocol", [{"protocol-id": 3, "protocol-port": 1}], 400),
        ("system-config/ntp-servers/ntp-server", [{"ip-address": "10.0.0.6", "minpoll": 3}], 400),
        ("aps/protection-service", [{"sname": "ring", "active": True}], 400),  # config false
        ("ports/port", [{"port-id": 5, "port-state": "PC_FAILED"}], 400),
        ("ports/port", [{"port-id": 33, "port-label": "far"}], 400),
        ("system-config/boot-datetime", "2000-01-01T00:00:00Z", 405),
        ("notification-log/log", [], 405),
    ],
)
def test_what_the_modules_do_not_have_is_refused_and_changes_nothing(http, path, wanted, status):
    before = http.get(f"/api/data/{path}").text
    answer = http.patch(f"/api/data/{path}", json={path.split("/")[-1]: wanted})
    assert answer.status_code == status, answer.text
    assert http.get(f"/api/data/{path}").text == before


def test_entries_that_the_vendors_page_deletes_are_removed(http):
    for path, key in (
        ("system-config/radius-servers/radius-server", "10.0.0.7,1812"),
        ("system-config/user", "carol"),
        ("system-config/ntp-servers/ntp-server", "10.0.0.6"),
        ("subswitches/subswitch", "left"),
    ):
        before = http.get(f"/api/data/{path}").text
        http.patch(f"/api/data/{path}", json={path.split("/")[-1]: SETTERS[path]})
        assert http.get(f"/api/data/{path}").text != before
        assert http.delete(f"/api/data/{path}={key}").status_code == 204
        assert http.get(f"/api/data/{path}").text == before
        assert http.delete(f"/api/data/{path}={key}").status_code == 404
    assert http.delete("/api/data/system-config/interface=eth0").status_code == 405
    assert http.delete("/api/data/system-config/user").status_code == 405


def test_a_user_who_is_set_may_log_in_and_no_password_is_shown(http, rig):
    def status(name, password):
        return httpx.get(
            f"http://{rig.host}:{rig.port}/api",
            auth=(name, password),
            trust_env=False,
            timeout=20,
            verify=False,
        ).status_code

    users = [
        {"name": "carol", "type": "LOCAL_USER", "password": "tea 4 two"},
        {"name": "dan", "type": "RADIUS_USER"},
    ]
    assert status("carol", "tea 4 two") == 401
    assert http.patch("/api/data/system-config/user", json={"user": users}).status_code == 204
    logins = [("carol", "tea 4 two"), ("carol", ""), ("dan", ""), ("carol", "tea"), LOGIN]
    assert [status(*login) for login in logins] == [200, 401, 401, 401, 200]
    shown = http.get("/api/data/system-config/user").text
    assert "tea 4 two" not in shown
    assert LOGIN[1] not in shown


def test_ports_and_the_startup_mode_are_those_of_the_other_wires(http, rig):
    change = {"port": [{"port-id": 4, "port-state": "PC_ENABLED", "peer-port": "leaf1"}]}
    assert http.patch("/api/data/ports/port", json=change).status_code == 204
    assert rig.matrix.shut == set()
    assert rig.peer.box.labels[4] == "spare"
    assert rig.peer.box.peer_ports == {4: "leaf1"}
    for mode, boot in (("VOLATILE", "DARK"), ("PRESERVE", "RESTORE")):
        http.patch("/api/data/system-config/startup-mode", json={"startup-mode": f"MODE_{mode}"})
        assert rig.peer.box.boot == boot


def test_xml_has_the_namespace_of_the_module(http):
    answer = http.get("/api/data/shutter-status/port=5", headers={"Accept": "application/xml"})
    port = etree.fromstring(answer.content)[0]
    assert port.tag == "{http://www.polatis.com/yang/polatis-switch}port"
    assert [leaf.text for leaf in port] == ["5", "SHUTTER_IDLE"]


def test_alarms_are_those_of_tl1(http, rig):
    """Thresholds that one wire sets are read on the other."""
    kept = {"mode": "POWER_ALARM_ENABLED", "signal-low-threshold": -31.5}
    change = {"port": [{"port-id": 19, **kept, "alarm-clear-holdoff": 7}]}
    assert http.patch("/api/data/opm-alarm-config/port", json=change).status_code == 204
    assert (rig.peer.box.threshold("LOS", 19).mode, rig.peer.box.threshold("LOS", 19).low) == (
        "CONT",
        -31.5,
    )
    (found,) = http.get("/api/data/opm-alarm-config/port=19").json()["optical-switch:port"]
    assert found == {"port-id": 19, **ALARM, **kept, "alarm-clear-holdoff": 7}
    assert http.delete("/api/data/opm-alarm-config/port=19").status_code == 204
    (found,) = http.get("/api/data/opm-alarm-config/port=19").json()["optical-switch:port"]
    assert found == {"port-id": 19, **ALARM}
    wrong = {"port": [{"port-id": 19, "mode": "LOUD"}]}
    assert http.patch("/api/data/opm-alarm-config/port", json=wrong).status_code == 400


def test_groups_are_connected_as_a_public_page_does(http, rig):
    """KalebLindev/Polatis (2ecff32), script BU_02.js: two groups, read, joined, read again."""
    groups = [
        {"group-name": "CCU_01_SRC", "ingress": [7, 9], "egress": [23, 25]},
        {"group-name": "CCU_02_DST", "ingress": [8, 11], "egress": [31, 17]},
        {"group-name": "odd", "ingress": [12], "egress": []},
    ]
    assert http.patch(f"{GROUPS}/group", json={"group": groups}).status_code == 204
    found = http.get(GROUPS).json()["optical-switch:groups"]["group"]
    assert found == [{**group, "connected-group": ""} for group in groups]
    ends = {"group-name-from": "CCU_02_DST", "group-name-to": "CCU_01_SRC"}
    assert http.post(JOIN, json={"input": ends}).status_code == 204
    assert rig.matrix.egress_of == {3: 29, 8: 23, 11: 25, 7: 31, 9: 17}
    found = http.get(f"{GROUPS}/group=CCU_01_SRC").json()["optical-switch:group"]
    assert found == [{**groups[0], "connected-group": "CCU_02_DST"}]
    unequal = {"input": {**ends, "group-name-to": "odd"}}
    assert http.post(JOIN, json=unequal).status_code == 412
    part = JOIN.replace("add-", "delete-")
    assert http.post(part, json={"input": {"group-name": "CCU_01_SRC"}}).status_code == 204
    assert rig.matrix.egress_of == {3: 29}
    assert http.delete(f"{GROUPS}/group=CCU_01_SRC").status_code == 204
    assert http.delete(f"{GROUPS}/group=CCU_01_SRC").status_code == 404
    stranger = {"group": [{"group-name": "far", "ingress": [17]}]}
    assert http.patch(f"{GROUPS}/group", json=stranger).status_code == 400


def test_programmed_shutters_and_users_of_tl1_are_shown(virtual):
    rig = virtual(scheme="restconf")
    box = rig.peer.box
    sessions = {"user": "operator", "left": None}
    box.users += [lambda: sessions["user"], lambda: sessions["left"]]
    tree = RestconfSession("other", rig.host, rig.port, rig.clock, LOGIN)
    names = [
        e["user-name"] for e in tree.get("data/sessions/session").body["polatis-switch:session"]
    ]
    assert names == ["operator", LOGIN[0]]
    tree.close()


@pytest.mark.parametrize(
    ("forms", "status", "data"),
    [
        ({"no_entries": "no-content"}, 204, None),
        ({"no_entries": "not-found"}, 404, None),
        ({"no_entries": "empty"}, 200, {"polatis-switch:alarm": []}),
    ],
)
def test_empty_lists_have_the_form_of_the_dialect(real, forms, status, data):
    rig = real(scheme="restconf", entry="object", **forms)
    with open_client(rig) as http:
        answer = http.get("/api/data/system-alarms/alarm")
        assert (answer.status_code, answer.json() if data else None) == (status, data)
        one = http.get("/api/data/ports/port=4/").json()["optical-switch:port"]
        assert one["port-state"] == "PC_ENABLED"
