"""Every operation of the driver is right in every dialect; pairwise, and all products as `long`."""

import json
import os
import termios
import urllib.error
import urllib.request
from importlib.util import find_spec

import pytest
from dialect_matrix import OPERATIONS, outcome, pairwise, products
from switch_rig import LOGIN, MODELS, let_ports_have

from lightrig.instruments.core.errors import DeniedError, GarbledError
from lightrig.instruments.simulated.devices.dialects import DIALECTS, forms
from lightrig.instruments.wire.restconf import RestconfSession
from lightrig.testbeds import Circuit, LightrigError

DATA = "/api/data/optical-switch:"
WIRES = sorted({(model, each.wire) for model, known in DIALECTS.items() for each in known})


def _cases(combinations):
    missing = [find_spec(name) for name in ("pygnmi", "h2")].count(None)
    reason = "the extra gnmi is not installed"
    needs = {"gnmi": (pytest.mark.skipif(missing > 0, reason=reason),)}
    return [
        pytest.param(
            model,
            wire,
            forms,
            id="-".join((model, wire, *forms.values())),
            marks=needs.get(wire, ()),
        )
        for model, wire in WIRES
        for forms in combinations(model, wire)
    ]


def all_are_right(model, wire, combination):
    """Every operation is right; circuits are followed over gNMI alone, where SSH has no reports."""
    found = {each: outcome(model, wire, combination, each) for each in OPERATIONS[model]}
    followed = found.pop("follows circuits", None)
    assert set(found.values()) == {"right"}, found
    assert followed == {"gnmi": "right", "ssh": "not offered"}.get(wire), followed


@pytest.mark.parametrize(("model", "wire", "combination"), _cases(pairwise))
def test_operations_are_right_in_pairs_of_dialects(model, wire, combination):
    all_are_right(model, wire, combination)


@pytest.mark.long
@pytest.mark.parametrize(("model", "wire", "combination"), _cases(products))
def test_operations_are_right_in_every_product_of_dialects(model, wire, combination):
    all_are_right(model, wire, combination)


@pytest.mark.parametrize("model", DIALECTS)
def test_drivers_accept_the_dialects_in_a_testbed_file(model):
    assert {dialect.option for dialect in DIALECTS[model]} <= set(MODELS[model][1].options)


def test_a_form_that_no_source_shows_is_refused():
    with pytest.raises(LightrigError, match="entry: found 'tuple', expected one of list, object"):
        forms("polatis", {"entry": "tuple"})


def ask(rig, method, path, body=None, **headers):
    """Return status and decoded body of a request that another program sends."""
    passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
    url = f"http://{rig.host}:{rig.port}"
    passwords.add_password(None, url, *LOGIN, is_authenticated=True)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPBasicAuthHandler(passwords)
    )
    request = urllib.request.Request(url + path, body, headers, method=method)
    try:
        with opener.open(request, timeout=20) as reply:
            content = reply.read()
            return reply.status, json.loads(content) if content else None
    except urllib.error.HTTPError as error:
        return error.code, None


def test_a_program_of_pqnstack_finds_its_dialect(real):
    """GET /api 200; POST of XML without a content type 201; an entry as object; 204 for none."""
    rig = real(scheme="restconf", no_entries="no-content", entry="object", rerouting=False)
    assert ask(rig, "GET", "/api")[0] == 200
    assert ask(rig, "GET", f"{DATA}cross-connects") == (204, None)
    xml = b"<pair><ingress>3</ingress><egress>29</egress></pair>"
    form = "application/x-www-form-urlencoded"  # what urllib and curl state by themselves
    headers = {"Content-Type": form, "Accept": "application/yang-data+xml"}
    assert ask(rig, "POST", f"{DATA}cross-connects", xml, **headers)[0] == 201
    status, found = ask(rig, "GET", f"{DATA}cross-connects/pair=3")
    assert (status, found["optical-switch:pair"]["egress"]) == (200, 29)
    assert ask(rig, "GET", f"{DATA}cross-connects/pair=4") == (204, None)
    assert ask(rig, "POST", f"{DATA}cross-connects", xml, **headers)[0] == 409
    assert ask(rig, "DELETE", f"{DATA}cross-connects/pair=3")[0] == 204
    assert ask(rig, "DELETE", f"{DATA}cross-connects/pair=3")[0] == 404


def test_an_absent_resource_may_be_404(real):
    rig = real(scheme="restconf", no_entries="not-found")
    assert ask(rig, "GET", f"{DATA}cross-connects") == (404, None)
    rig.matrix.connect([Circuit(3, 29)])
    status, found = ask(rig, "GET", f"{DATA}cross-connects/pair=3")
    assert (status, found) == (200, {"optical-switch:pair": [{"ingress": 3, "egress": 29}]})


@pytest.mark.parametrize(("post", "left"), [("kept", {3: 29, 5: 18}), ("dropped", {5: 18})])
def test_circuits_of_post_may_vanish(virtual, post, left):
    rig = virtual(scheme="restconf", post=post)
    rig.matrix.connect([Circuit(5, 18)])
    http = RestconfSession("other", rig.host, rig.port, rig.clock, LOGIN)
    pair = {"optical-switch:pair": [{"ingress": 3, "egress": 29}]}
    assert http.request("POST", "data/optical-switch:cross-connects", pair).status == 201
    rig.clock.sleep(4_000_000_000)
    assert rig.matrix.egress_of == {3: 29, 5: 18}
    rig.clock.sleep(2_000_000_000)
    assert rig.matrix.egress_of == left
    http.close()


def test_404_of_what_is_no_polatis_is_an_error_and_not_an_empty_switch(virtual, monkeypatch):
    rig = virtual(scheme="restconf", no_entries="not-found")
    switch = rig.driver()
    get = RestconfSession.get
    monkeypatch.setattr(RestconfSession, "get", lambda self, path: get(self, f"elsewhere/{path}"))
    with pytest.raises(DeniedError, match="404"):
        switch.circuits()


@pytest.mark.parametrize("state", [None, "UNSUPPORTED", "TUNING"])
def test_an_unknown_shutter_over_restconf_is_an_error_and_not_closed(virtual, monkeypatch, state):
    leaves = {"label": ""} | ({"status": state} if state else {})
    let_ports_have(monkeypatch, leaves)
    switch = virtual(scheme="restconf").driver()
    with pytest.raises(GarbledError, match="state of the shutter of port 3"):
        switch.shutters([3])


def test_an_error_names_the_revision_of_the_module(virtual, monkeypatch):
    let_ports_have(monkeypatch, {"status": "TUNING"})
    switch = virtual(scheme="netconf", revision="2017-08-04").driver()
    with pytest.raises(GarbledError, match="of optical-switch: 2017-08-04"):
        switch.shutters([3])


def test_the_serial_line_is_38400_8n1(virtual):
    """As serial_optical_control.sh of 2026 sets it; the settings are those of the terminal."""
    rig = virtual(scheme="serial")
    assert rig.driver().size() == (16, 16)
    line = os.open(rig.service.resource, os.O_RDWR | os.O_NOCTTY)
    try:
        _, _, control, _, speed_in, speed_out, _ = termios.tcgetattr(line)
    finally:
        os.close(line)
    assert (speed_in, speed_out) == (termios.B38400, termios.B38400)
    assert control & termios.CSIZE == termios.CS8
    assert not control & (termios.PARENB | termios.CSTOPB | termios.CRTSCTS)
