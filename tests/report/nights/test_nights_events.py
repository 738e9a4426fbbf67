"""Differences of a lab from one night to the next."""

import pytest

from lightrig.harness.record import Context, Journal, Row, settle
from lightrig.harness.report.nights.series import read
from lightrig.harness.report.nights.series_changes import events
from lightrig.harness.report.nights.source import Source

YAML = """\
name: bench
switches: {ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4}}
servers:
  server[0-1]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {netdev: ens0, rate: 100G, transceiver: lr4}}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -10 dBm, max: 4 dBm}}
fibers:
  - server[0-1].nic0 <-> ocs
"""
SWITCH = "ocs: Polatis 6000, serial 7, firmware 6.7"


@pytest.fixture
def happened(tmp_path):
    """Make nights, each (identities, description or None), and return the events of the lab."""

    def happened(*nights, simulated=True):
        for number, (identities, text) in enumerate(nights):
            run = f"r{number}"
            folder = tmp_path / "runs" / run
            folder.mkdir(parents=True)
            header = {"run": run, "night": f"2026-03-{number + 10}"}
            if text is not None:
                (folder / "lab.yaml").write_text(text)
                header["descriptions"] = {"bench": "lab.yaml"}
            context = Context("bench", "test_it", tuple(identities), simulated)
            with Journal(folder / "journal.jsonl", header) as journal:
                journal.append(context, Row("a", "q", 1, 1, 1, "ns", 1))
            settle(folder)
        source = Source(tmp_path)
        history = read(source)
        with source.connected() as connection:
            stored = source.descriptions(connection)
            (found,) = events(
                connection,
                stored,
                lambda *run: history.place(source.nights.of(*run)),
                lambda run, testbed: {},
            ).values()
        return [(event.night, event.kind, event.text) for event in found]

    return happened


def test_nothing_new_is_no_event(happened):
    assert happened(([SWITCH], YAML), ([SWITCH], YAML), ([SWITCH], YAML)) == []


def test_a_new_firmware_names_only_what_differs(happened):
    new = "ocs: Polatis 6000, serial 7, firmware 6.8"
    found = happened(([SWITCH], None), ([SWITCH], None), ([new], None), ([new], None))
    assert found == [(2, "identity", "ocs: firmware 6.7 → 6.8")]


def test_equal_changes_of_many_instruments_are_one_event(happened):
    old = [f"server{n}: Linux 6.8, serial {n}, firmware a" for n in range(6)]
    new = [f"server{n}: Linux 6.9, serial {n}, firmware a" for n in range(6)]
    assert happened((old, None), (new, None)) == [
        (1, "identity", "server0, server1, server2 and 3 more: Linux 6.8 → 6.9")
    ]


def test_identities_with_fields(happened):
    old = {"name": "meter", "model": "PM100", "firmware": "1.0"}
    assert happened(([old], None), ([{**old, "firmware": "1.1"}], None)) == [
        (1, "identity", "meter: firmware 1.0 → 1.1")
    ]


def test_added_and_removed_instruments_are_events(happened):
    found = happened(([SWITCH], None), ([SWITCH, "meter: PM100"], None), (["meter: PM100"], None))
    assert found == [(1, "identity", "meter: joined"), (2, "identity", "ocs: left")]


def test_fibers_that_were_moved(happened):
    moved = YAML.replace("server[0-1].nic0 <-> ocs", "server[1,0].nic0 <-> ocs")
    ((night, kind, told),) = happened(([SWITCH], YAML), ([SWITCH], moved))
    assert (night, kind) == (1, "cabling")
    assert told.startswith("cabling: 4 fibers removed (server0.nic0 -> ocs.1, ")
    assert "4 fibers added (" in told


def test_a_description_that_changed_otherwise(happened):
    limited = YAML + "limits: {insertion_loss: {max: 3 dB}}\n"
    assert happened(([SWITCH], YAML), ([SWITCH], limited)) == [
        (1, "description", "the testbed's description has changed, not its cabling")
    ]


def test_an_unreadable_description_is_an_event(happened):
    assert happened(([SWITCH], YAML), ([SWITCH], "name: [")) == [
        (1, "description", "the testbed's description has changed")
    ]
