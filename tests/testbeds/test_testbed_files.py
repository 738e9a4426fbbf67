"""The testbeds that come with the project, and what holds for any file."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightrig import testbeds
from lightrig.testbeds import (
    ClockOffset,
    Delay,
    Identity,
    Port,
    Problem,
    SimulatedLoss,
    SimulatedSwitch,
    TestbedError,
    UnknownNameError,
    json_schema,
    load,
)
from lightrig.testbeds.yaml_positions import read

HOME = Path(testbeds.__file__).resolve().parent
OPUS = HOME / "opus.yaml"
SWAPS = ("[34,33,36,35]", "[38,37,40,39]", "[62,61,64,63]", "[58,57,60,59]")
SKIPS = ("[35,36,33,34]", "[39,40,37,38]", "[63,64,61,62]", "[59,60,57,58]")
STRAIGHT = ("[33-36]", "[37-40]", "[61-64]", "[57-60]")


@pytest.fixture(scope="module")
def opus():
    return load(OPUS)


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "testbed.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def rewired(tmp_path, pairing):
    text = OPUS.read_text(encoding="utf-8")
    for old, new in zip(SWAPS, pairing, strict=True):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "opus").symlink_to(HOME / "opus")
    path = tmp_path / "opus.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path)


def by_rail(testbed, plan):
    """Pairs of servers and ports that the plan joins, for each NIC."""
    rails = {"nic0": [], "nic1": []}
    for link in testbed.links(plan):
        (nic, p), (second, q) = (port.name.split(".") for port in (link.a, link.b))
        assert (nic, p) == (second, q), "a link stays on its rail and its port"
        rails[nic].append((link.a.owner, link.b.owner, p))
    return rails


def assert_maps_fit(testbed):
    import networkx as nx

    for name in ("east-west", "north-south", "giant-ring"):
        assert len(testbed.plans[name]) == 16
        assert len(testbed.links(name)) == 8
    for name in ("east-west", "north-south"):
        for links in by_rail(testbed, name).values():
            pairs = Counter((a, b) for a, b, _ in links)
            assert sorted(pairs.values()) == [2, 2]
            for p in ("p0", "p1"):
                ends = [end for a, b, q in links if q == p for end in (a, b)]
                assert sorted(ends) == [f"server{i}" for i in range(4)]
    for links in by_rail(testbed, "giant-ring").values():
        ring = nx.Graph((a, b) for a, b, _ in links)
        assert nx.is_connected(ring)
        assert len(ring.edges) == 4
        assert set(dict(ring.degree).values()) == {2}


def test_opus_maps_close_every_link(opus):
    assert_maps_fit(opus)


def test_opus_maps_fit_the_second_pairing_too(tmp_path):
    assert_maps_fit(rewired(tmp_path, SKIPS))


def test_opus_maps_do_not_fit_straight_fibers(tmp_path):
    straight = rewired(tmp_path, STRAIGHT)
    assert straight.links("north-south") == ()
    for circuit in straight.plans["north-south"].circuits["ocs"]:
        source, sink = straight.cabling.light_path("ocs", circuit)
        assert source == sink


def test_opus_as_it_stands(opus):
    ocs = opus.switches["ocs"]
    assert (ocs.model, ocs.address, ocs.login) == ("polatis", "tl1://ocs.invalid", "env:OCS_LOGIN")
    assert (ocs.ingress_ports, ocs.egress_ports) == (range(1, 33), range(33, 65))
    assert (ocs.loss_max_db, ocs.options) == (3.0, {"rerouting": True})
    assert (ocs.identity, ocs.line, ocs.column) == (Identity(), 7, 3)
    assert len(opus.fibers) == 32
    ingress, egress = opus.cabling.cabled_ports("ocs")
    assert ingress == {*range(1, 9), *range(25, 33)}
    assert egress == {*range(33, 41), *range(57, 65)}
    assert list(opus.servers) == ["server0", "server1", "server2", "server3"]
    assert opus.servers["server2"].address == "ssh://bench@server2.invalid"
    assert (opus.servers["server0"].gpus.count, opus.servers["server0"].gpus.model) == (2, "L40")
    assert [str(spec.port) for spec in opus.nic_ports[:5]] == [
        "server0.nic0.p0",
        "server0.nic0.p1",
        "server0.nic1.p0",
        "server0.nic1.p1",
        "server1.nic0.p0",
    ]
    spec = opus.nic_port(Port("server3", "nic1.p0"))
    assert (spec.netdev, spec.rdma, spec.ip) == ("ens1f0np0", "mlx5_10", None)
    _, nic = opus.nic_of(Port("server3", "nic1.p0"))
    assert (nic.rate_bps, nic.numa, nic.transceiver) == (100_000_000_000, 1, "qsfp-100g-lr4")
    assert opus.transceiver_of(spec.port).launch.min == -4.3
    assert opus.limits["reconfiguration.signal_recovered"].value == 150_000_000
    assert opus.simulation.switches["ocs"].settle == Delay(42_000_000, 3_000_000, 354_000)
    assert opus.simulation.switches["ocs"].loss == SimulatedLoss(1.2, 0.2)
    assert opus.simulation.clocks.offset == ClockOffset(0, 2_000_000)


def test_unknown_names_are_typed(opus):
    with pytest.raises(UnknownNameError):
        opus.nic_of(Port("server9", "nic0.p0"))
    with pytest.raises(UnknownNameError):
        opus.nic_port(Port("server0", "nic0"))
    with pytest.raises(UnknownNameError, match="east-west"):
        opus.links("west-east")


def test_namespaces_take_the_next_free_ports():
    import networkx as nx

    testbed = load(HOME / "namespaces.yaml")
    specs = testbed.nic_ports
    assert [testbed.cabling.ingress_of(spec.port) for spec in specs] == [
        ("ocs", i) for i in range(1, 9)
    ]
    assert [testbed.cabling.egress_of(spec.port) for spec in specs] == [
        ("ocs", i) for i in range(9, 17)
    ]
    assert [spec.ip for spec in specs] == [f"192.0.2.{k}/24" for k in range(1, 9)]
    assert {spec.netdev for spec in specs} == {"fabric0", "fabric1"}
    assert testbed.servers["server1"].address == "netns://server1"
    rings = {}
    for name in ("ring", "crossed", "pairs"):
        links = testbed.links(name)
        assert len(links) == 4
        rings[name] = nx.Graph((link.a.owner, link.b.owner) for link in links)
    assert nx.is_isomorphic(rings["ring"], nx.cycle_graph(4))
    assert nx.is_isomorphic(rings["crossed"], nx.cycle_graph(4))
    assert rings["ring"].edges != rings["crossed"].edges
    assert set(rings["pairs"].edges) == {("server0", "server1"), ("server2", "server3")}


MIXED = """
name: mixed
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4, identity: {serial: "21877"}}
  tor: {model: sn3700, kind: packet, ports: 4, rate: 100G}
servers:
  server[0-1]:
    address: ssh://bench@{name}.invalid
    nics:
      nic0: {netdev: "ens{server}0", rate: 100G, transceiver: lr4}
      nic1: {netdev: ens1, rate: 100G}
instruments:
  laser: {kind: light_source, model: n7711a, address: scpi://laser.invalid, launch: {max: 4 dBm}}
  meter: {kind: power_meter, model: n7744a, address: scpi://meter.invalid, channels: 4}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -10 dBm, max: 4 dBm}}
fibers:
  - server[0-1].nic0 <-> ocs
  - server[0-1].nic1 <-> tor
  - laser -> ocs.3
  - {fiber: "ocs.8 -> meter.2", loss: 0.3 dB}
plans:
  pair: [server0.nic0 <-> server1.nic0]
  probe: {circuits: {ocs: [3>8]}}
"""


def test_packet_switches_instruments_and_losses(write):
    testbed = load(write(MIXED))
    cabling = testbed.cabling
    assert list(testbed.optical_switches) == ["ocs"]
    assert list(testbed.simulation.switches) == ["ocs"]
    assert testbed.simulation.switches["ocs"] == SimulatedSwitch()
    assert testbed.switches["tor"].ingress_ports == testbed.switches["tor"].egress_ports
    assert testbed.switches["ocs"].identity == Identity(serial="21877")
    assert cabling.ingress_of(Port("server1", "nic0")) == ("ocs", 2)
    assert cabling.egress_of(Port("server1", "nic0")) == ("ocs", 6)
    assert testbed.automatic_ports["ocs"] == ("server0.nic0 1>5", "server1.nic0 2>6")
    (circuit,) = testbed.plans["probe"].circuits["ocs"]
    assert cabling.light_path("ocs", circuit) == (Port("laser", "1"), Port("meter", "2"))
    into = cabling.fiber_from(Port("laser", "1"))
    assert into is not None
    assert into.loss_db + cabling.fiber_to(Port("meter", "2")).loss_db == 0.3
    assert len(testbed.links("pair")) == 1
    assert testbed.links("probe") == ()
    assert cabling.ingress_of(Port("server0", "nic1")) is None
    assert cabling.fiber_from(Port("server0", "nic1")).sink == Port("tor", "1")


@pytest.mark.parametrize(
    ("find", "write_instead", "named", "given"),
    [
        ("laser -> ocs.3", "laser -> ocs.1", "ocs.1, which line 20", "server0.nic0 2>5"),
        ("ocs.8 -> meter", "ocs.6 -> meter", "ocs.6, which line 21", "server1.nic0 2>7"),
    ],
)
def test_a_named_port_never_moves_those_of_a_bare_switch(write, find, write_instead, named, given):
    with pytest.raises(TestbedError) as caught:
        load(write(MIXED.replace(find, write_instead)))
    problem = caught.value.problems[0]
    assert (problem.line, problem.column) == (18, 26)
    assert named in problem.message
    assert given in problem.message


def test_all_problems_are_reported_at_once(write):
    text = MIXED.replace("ports: 4", "ports: 0").replace(
        "laser.invalid,", "laser.invalid, lunch: 1,"
    )
    text = text.replace("-10 dBm", "-10 dB").replace("name: mixed\n", "name: mixed\nname: twice\n")
    with pytest.raises(TestbedError) as caught:
        load(write(text))
    assert [problem.line for problem in caught.value.problems] == [3, 6, 14, 17]

    text = MIXED.replace("laser -> ocs.3", "laser -> ocs.9").replace("ens1", '"ens{x}"')
    text = text.replace("meter.2", "metre.2").replace("lr4}", "lr5}")
    text += "limits: {outage: {p99: 3 dBs}}\nsimulation: {switches: {osc: {}}}\n"
    with pytest.raises(TestbedError) as caught:
        load(write(text))
    assert [problem.line for problem in caught.value.problems] == [10, 11, 20, 21, 25, 26]
    assert str(caught.value).count("\n") == 5


def test_problems_of_a_plan_file_name_that_file(write, tmp_path):
    plan = "  file: {file: maps.yaml, map: a, switch: ocs}\n"
    path = write(MIXED + plan)
    maps = tmp_path / "maps.yaml"
    for text, line in (
        ("cross-connects: [", 1),
        ("a: 1", 1),
        ("cross-connects:\n  a: {ingress: [1], egress: []}", 2),
        ("cross-connects:\n  a: {ingress: [1], egress: [five]}", 2),
        ("cross-connects:\n  a: 3", 2),
    ):
        maps.write_text(text, encoding="utf-8")
        with pytest.raises(TestbedError) as caught:
            load(path)
        (problem,) = caught.value.problems
        assert (problem.file, problem.line) == (str(maps), line)


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "testbed.yaml"
    for raw, message in (
        (b"name: a\nabout: \xff", ":2:8: found the byte 0xff"),
        (b"name: a\nabout: \x01", ":2:8: is not YAML: found a character"),
        (b"a: " + b"[" * 600, "nested too deeply"),
    ):
        path.write_bytes(raw)
        with pytest.raises(TestbedError, match=re.escape(message)):
            load(path)
    with pytest.raises(TestbedError, match="cannot be read: No such file"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(TestbedError, match="cannot be read: Is a directory"):
        load(tmp_path)


def test_aliases_that_multiply_are_stopped(write):
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(TestbedError, match="more than 100000 values"):
        load(write("\n".join(lines)))


def test_the_schema_helps_an_editor():
    text = json.dumps(json_schema())
    assert '"type": "null"' not in text
    nic = json_schema()["$defs"]["NicPart"]["properties"]
    assert re.search(nic["rate"]["pattern"], nic["rate"]["examples"][0])
    for definition in json_schema()["$defs"].values():
        assert definition["additionalProperties"] is False
        assert definition["description"]
        for field in definition["properties"].values():
            for example in field.get("examples", []) if "pattern" in field else []:
                assert re.search(field["pattern"], example)


def test_the_schema_states_defaults_with_their_units():
    definitions = json_schema()["$defs"]
    switch = definitions["SimulatedSwitch"]["properties"]
    assert switch["acknowledge"]["default"]["mean"] == "40 ms"
    assert switch["edge"]["default"] == {"rise": "0 ns", "fall": "0 ns"}
    assert definitions["SimulatedEdge"]["properties"]["rise"]["default"] == "1 ms"
    assert definitions["Connectors"]["properties"]["mean"]["default"] == "0.24 dB"


@pytest.mark.parametrize(
    ("simulation", "column", "message"),
    [
        ("clocks: {drift_ppm: '15'}", 23, "found '15', expected a number"),
        ("nic: {fec_histogram: 1}", 24, "found the number 1, expected true or false"),
        ("nic: {bringup: {mean: 1 s}}", 9, "unknown key 'bringup'; did you mean 'bring_up'?"),
        ("nic: {bring_up: {sd: 1 s}}", 9, "the key 'mean' is missing"),
        ("switches: {ocs: {monitor: {noise_db: 1 dB}}}", 30, "unknown key 'noise_db'; did you"),
        ("switches: {ocs: {loss: 1 dB}}", 26, "found '1 dB', expected keys with values"),
        ("faults: [{fault: dark laser, at: ocs}]", 36, "found 'ocs', expected a list"),
        ("faults: [{fault: dark laser, at: [ocs], los: 1 dB}]", 43, "did you mean 'loss'?"),
    ],
)
def test_mistakes_in_the_ground_truth_are_located(write, simulation, column, message):
    switches = "switches:\n  ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4}\n"
    with pytest.raises(TestbedError) as caught:
        load(write(f"name: a\n{switches}simulation:\n  {simulation}\n"))
    assert f":5:{column}: " in str(caught.value)
    assert message in str(caught.value)


SEEDS = [OPUS.read_text(encoding="utf-8"), MIXED]
SCRAPS = [
    "[",
    "]",
    "{",
    "}",
    ":",
    "-",
    "&a",
    "*a",
    "!!x",
    "|",
    ">",
    "'",
    "#",
    "0",
    "9",
    "[0-",
    "{n}",
    "->",
    "<->",
    "ocs",
    "null",
    "~",
    ".nan",
    "1e999",
    "%",
    "?",
]
SCRAPS += ['"', "\n", "\t", "\x00", "\u2028", "\\x", "- ", ": ", "|\n", " #", "\n  ", ""]


@st.composite
def mutated(draw):
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.integers(0, 12))
        text = text[:start] + draw(st.sampled_from(SCRAPS) | st.text(max_size=3)) + text[end:]
    return text


@settings(
    max_examples=50,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=mutated())
def test_mutated_file_loads_or_raises_testbed_error(tmp_path, text):
    path = tmp_path / "testbed.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    if not (tmp_path / "opus").exists():
        (tmp_path / "opus").symlink_to(HOME / "opus")
    lines = sum(map(text.count, "\n\r\x85\u2028\u2029")) + 2
    problems = (Problem(str(path), 1, 1, "none"),)
    try:
        load(path)
    except TestbedError as error:
        problems = error.problems
    assert problems
    for problem in problems:
        assert problem.message
        assert problem.column >= 1
        assert 1 <= problem.line <= lines or problem.file != str(path)


@pytest.mark.parametrize(
    ("name", "namespaces", "local"),
    [("rings4", True, True), ("mixnet", False, False), ("opus", False, False)],
)
def test_namespaces_are_distinguished_from_computers(name, namespaces, local):
    testbed = load(HOME / f"{name}.yaml")
    assert (testbed.only_namespaces, testbed.only_local_namespaces) == (namespaces, local)


def test_a_served_namespace_is_not_local(tmp_path):
    text = (HOME / "rings4.yaml").read_text(encoding="utf-8")
    path = tmp_path / "served.yaml"
    path.write_text(
        text.replace(
            "address: netns://{name}", "kind: namespace\n    address: ssh://lab@{name}.invalid"
        )
    )
    testbed = load(path)
    assert testbed.only_namespaces
    assert not testbed.only_local_namespaces


def read_or_refused(path):
    """Return a file's values and places, or the problems for which it is refused."""
    try:
        return read(path)
    except TestbedError as error:
        return error.problems


def read_by_both(path, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(yaml, "__with_libyaml__", False)
        slow = read_or_refused(path)
    return read_or_refused(path), slow


SCALARS = r"""
null Null NULL nUll ~ true True TRUE tRue yes no on off y n 0 007 0o17 0x1f 0b11 -0x1f +5 1_000
1__0 _1 0.5 .5 5. 1e3 1E-3 1.e3 .5e+3 .5e3 +.inf -.Inf 1:30 190:20:30.15 2026-01-01 = << ! !!str
- -a --- ... ? : a:b a: @a `a |x >x %a *a &a &a. 'it''s' "\x41" "" '' [] {} [a,b] {a,b} {a:,b} [a]b
"a
"""
TEXTS = (
    "a:\n",
    "a: b\tc\n",
    "a:\tb\n",
    "- a\n-\n- b\n",
    "-a\n",
    "%YAML 1.1\n---\na: yes\n",
    "a: |\n  b\n\n  c\n",
    "a: >-\n  b\n  c\n\n  d\n",
    "? a\n: b\n",
    "a: &x {b: 1}\nc: *x\n",
    "a: &x {b: 1}\nc: {<<: *x, d: 2}\n",
    "\ufeffa: 1\n",
    "a: b\r\nc: d\r\n",
    "a: b # c\n#d\n  # e\nf: g\n",
    "a: 1\na: 2\n",
    "--- a\n--- b\n",
    "a: 'b\n  c'\n",
    'a: "b\\\n  c"\n',
    "a: b\n c: d\n",
    "a: [b, c\n",
    "a: !!set {b}\n",
)


@pytest.mark.parametrize("texts", [[f"a: {one}\n" for one in SCALARS.split()], TEXTS])
def test_libyaml_and_ruamel_read_the_same_of_small_texts(texts, tmp_path, monkeypatch):
    differ = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text, encoding="utf-8", newline="")
        fast, slow = read_by_both(path, monkeypatch)
        differ += [] if fast == slow else [(text, fast, slow)]
    assert differ == []


@pytest.mark.parametrize("name", ["opus.yaml", "mixnet.yaml", "acos_rings.yaml"])
def test_libyaml_and_ruamel_read_the_same_of_a_shipped_file(name, monkeypatch):
    fast, slow = read_by_both(HOME / name, monkeypatch)
    assert fast == slow
    assert len(fast.values) > 50


@pytest.mark.long
@settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=mutated())
def test_libyaml_and_ruamel_read_the_same_of_a_mutated_file(tmp_path, monkeypatch, text):
    path = tmp_path / "testbed.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    fast, slow = read_by_both(path, monkeypatch)
    assert fast == slow
