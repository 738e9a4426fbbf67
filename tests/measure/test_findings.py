"""Findings: of errors, as documents, and what would explain them.

By the file, server0 is on the ingress ports 1 and 2 and the egress ports 17 and 18 of a 16x16
switch, server1 on 3, 4, 19 and 20.
"""

from pathlib import Path

import pytest

from lightrig import testbeds
from lightrig.harness.components import HARNESS, Components, LabComponent
from lightrig.harness.findings import (
    CLOSURE,
    FAILED,
    INSTRUMENT,
    LIMIT,
    LINK_DOWN,
    NO_LIGHT,
    SWAPPED_FIBERS,
    VOID_COUNT,
    Finding,
    FoundError,
    each_at,
    findings_of,
    next_step,
)
from lightrig.harness.measure.gates import NothingCountedError
from lightrig.harness.measure.links import LinksDownError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.core.errors import NoReplyError
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.testbeds import Circuit, LightrigError, Port
from lightrig.testbeds.plans import circuit_in, names_in, pair_in

LAB = Path(__file__).parents[1] / "report" / "causes_lab.yaml"
DOWN = [(Port("server1", "nic0.p1"), "carrier"), (Port("server0", "nic0.p0"), "firmware")]
DOWN += [(Port("server1", "nic0.p1"), "datagram")]
NAMES = ("server1.nic0.p1", "server0.nic0.p0")


@pytest.fixture(scope="module")
def lab() -> testbeds.Testbed:
    return testbeds.load(LAB)


def what(error: BaseException) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.kind, one.subjects) for one in findings_of(error)]


def test_links_that_stay_down_are_findings_of_their_ports_and_of_their_light() -> None:
    down = [(LINK_DOWN, (name,)) for name in NAMES]
    assert what(LinksDownError(DOWN, 60_000_000_000)) == down
    dark = LinksDownError(DOWN, 60_000_000_000).with_causes(["ocs.20"], {})
    assert what(dark) == [*down, (NO_LIGHT, ("ocs.20",))]
    assert str(dark).endswith("(datagram); no light at ocs.20")
    port, quote = DOWN[0][0], "its driver x says by ethtool: 'No cable'"
    quoted = LinksDownError(DOWN, 60_000_000_000).with_causes(["ocs.20"], {port: (quote,)})
    assert str(quoted) == f"{dark}\n  vendor    {port}: {quote}"
    assert what(quoted) == what(dark), "what a vendor says locates nothing"
    assert f"{port}: {quote}" in quoted.findings[0].evidence
    lit = LinksDownError(DOWN, 60_000_000_000, [])
    assert what(lit) == [(SWAPPED_FIBERS, NAMES)]
    assert {one.evidence for one in lit.findings} == {str(lit)}


def test_an_error_is_a_finding_of_what_it_is_about_or_of_what_caused_it() -> None:
    silent = NoReplyError("ocs (Polatis, serial 7)", "did not answer within 10 s", command="X")
    (found,) = findings_of(silent)
    assert (found.kind, found.subjects) == (INSTRUMENT, ("ocs",))
    assert found.evidence == "ocs (Polatis, serial 7) did not answer within 10 s"
    wrapped = RuntimeError("the night ended")
    wrapped.__cause__ = silent
    assert what(wrapped) == [(INSTRUMENT, ("ocs",))]
    garbled = ToolOutputError("ethtool", "a number", "x").at("server1", "ethtool -m ens1f0")
    assert what(garbled) == [(FAILED, ("server1",))]
    assert str(garbled).startswith("server1: ethtool -m ens1f0 printed something")
    assert what(NothingCountedError({"b.2": "no signal", "b.1": "reset"})) == [
        (VOID_COUNT, ("b.2",)),
        (VOID_COUNT, ("b.1",)),
    ]
    assert what(LightrigError("something")) == what(ValueError("ocs.3: no light")) == []


def test_limits_that_are_exceeded_are_findings() -> None:
    limits = {"insertion_loss": testbeds.parse_limit("insertion_loss", {"max": "3 dB"})}
    recording = Recording(lambda _rows: None, limits)
    recording.record([Row("ocs 1>17", "insertion_loss", 4.5, 4.25, 4.75, "dB", 0)])
    with pytest.raises(AssertionError) as error:
        recording.judge("insertion_loss")
    (found,) = findings_of(error.value)
    assert (found.kind, found.evidence) == (LIMIT, str(error.value))


def test_a_document_has_all_that_a_finding_has(lab: testbeds.Testbed) -> None:
    sizes = (1.5, 1.125, 1.75, "dB")
    found = Finding("dirty connector", "ocs.3: dirty", ("ocs.3",), (), *sizes)
    found = found.located(Components(lab))
    assert {str(one) for one in found.components} == {
        *("ocs", "connector ocs.3", "fiber server1.nic0.p0 -> ocs.3")
    }
    assert found.next_step.startswith("clean the connector")
    assert Finding.of_document({**found.document(), "of": "a later version"}) == found
    assert Finding.of_document({"kind": "x", "evidence": "y"}) == Finding("x", "y")


def test_what_would_explain_a_finding_follows_from_its_kind(lab: testbeds.Testbed) -> None:
    def of(kind: str, *subjects: str) -> set[str]:
        found = Finding(kind, "seen", subjects).located(Components(lab))
        return set(map(str, found.components))

    assert Finding(CLOSURE, "", ("ocs",)).located(Components(lab)).components == (HARNESS,)
    assert of("stuck monitor", "ocs.19") == {"connector ocs.19"}
    assert of(FAILED) == set()
    assert of(SWAPPED_FIBERS, "server0.nic0.p1") == {
        *("fiber server0.nic0.p1 -> ocs.2", "fiber ocs.18 -> server0.nic0.p1")
    }
    circuit = {"ocs", "ocs 2>19", "connector ocs.2", "connector ocs.19"}
    fibers = {"fiber server0.nic0.p1 -> ocs.2", "fiber ocs.19 -> server1.nic0.p0"}
    assert of("lossy circuit", "ocs 2>19") == circuit | fibers
    assert {"server1.nic0.p0", "server1.nic0.p1"} <= of(LINK_DOWN, "server0.nic0.p1")
    assert of("unknown", "chamber") == {"chamber"}


@pytest.mark.parametrize("stage", ["acknowledged", "los", "signal_recovered", "carrier_up"])
def test_servers_have_no_part_in_the_light_of_a_whole_event(
    lab: testbeds.Testbed, stage: str
) -> None:
    """The switch has 4 + 4 cabled ports and 8 fibers, the servers 2 + 4 names more."""
    found = Components(lab).of("lab", f"reconfiguration.{stage}")
    kinds = {one.kind for one in found}
    assert kinds >= {"switch", "connector", "fiber"}
    assert len(found) == (23 if stage == "carrier_up" else 17)
    assert kinds.isdisjoint({"server", "port"}) is (stage != "carrier_up")


def test_the_next_step_follows_from_the_components() -> None:
    link, fiber = LabComponent("link", "a - b"), LabComponent("fiber", "a -> b")
    assert next_step((link,), {LINK_DOWN}).startswith("exchange its fibers one by one")
    assert next_step((link, fiber), {LINK_DOWN}).startswith("clean the connector")
    assert next_step((LabComponent("server", "a"),), {FAILED}).startswith("compare its log")
    assert next_step((fiber,), {FAILED, SWAPPED_FIBERS}).startswith("two of these fibers")
    assert next_step((), {SWAPPED_FIBERS}) == ""


def test_each_subject_is_one_finding_and_evidence_of_its_own_stays() -> None:
    two = each_at(NO_LIGHT, ["ocs.19", "ocs.17", "ocs.19"])
    error = FoundError("no light\n  try  this", [*two, Finding(FAILED, "seen by itself")])
    assert [one.subject for one in error.findings] == ["ocs.19", "ocs.17", ""]
    assert [one.evidence for one in error.findings] == ["no light", "no light", "seen by itself"]


def test_a_terminal_has_no_long_lists() -> None:
    ports = tuple(LabComponent("connector", f"ocs.{number}") for number in range(1, 10))
    few = Finding("no light", "dark", ("ocs.3", "ocs.4"), ports[2:4], next_step="look")
    assert few.lines() == [
        "no light at ocs.3, ocs.4",
        "  because   connector ocs.3 or connector ocs.4",
        "  next      look",
    ]
    assert Finding("no light", "dark", (), ports).lines() == [
        "no light",
        "  one of    9 components",
    ]


@pytest.mark.parametrize(
    ("subject", "circuit", "pair", "names"),
    [
        ("ocs 3>19", ("ocs", Circuit(3, 19)), ("ocs", "3", "19"), ["ocs", "3>19"]),
        ("3>19", ("", Circuit(3, 19)), ("", "3", "19"), ["3>19"]),
        ("ocs 3>19, dirty", ("ocs", Circuit(3, 19)), None, ["ocs", "3>19"]),
        ("a.p0 > b.p1", None, ("", "a.p0", "b.p1"), ["a.p0", "b.p1"]),
        ("a.p0 > b.p1 < c.p2", None, None, ["b.p1", "c.p2"]),
        ("a.p0 -> ocs.2", None, None, ["a.p0", "ocs.2"]),
        ("ocs.17", None, None, ["ocs.17"]),
        ("ocs 3>", None, None, ["ocs", "3>"]),
    ],
)
def test_names_of_subjects(subject: str, circuit: object, pair: object, names: object) -> None:
    assert circuit_in(subject) == circuit
    assert pair_in(subject) == pair
    assert names_in(subject) == names
