"""A receiver's flags and a module's data paths, from the bytes of its memory.

Bytes: sonic-net/sonic-platform-common, `mem_maps/public/cmis.py` (page 11h: states from 128, output
status 132, latched flags 147 and 148), `sff8636.py` (bytes 3 and 5) and `sff8472.py` (A2h:110).
"""

import pytest

from lightrig.instruments.clock import Span
from lightrig.instruments.servers.tools.module_lights import MemoryReading, lights, places_of

CMIS, SFF_8636, SFF_8472 = (
    places_of(bytes.fromhex(text))[-1] for text in ("18 52 00", "11 08 00", "03 04 07")
)


def page_11h(states: str, output: int = 0, los: int = 0, lol: int = 0) -> bytes:
    page = bytearray(26)
    page[:4] = bytes.fromhex(states)
    page[132 - 128], page[147 - 128], page[148 - 128] = output, los, lol
    return bytes(page)


def shown(place, *data: bytes | None, problem: str = ""):
    readings = [
        MemoryReading("eth0", place, Span(10 * n, 10 * n + 3), each, "" if each else problem)
        for n, each in enumerate(data)
    ]
    return lights(readings)


@pytest.mark.parametrize(
    ("identity", "read"),
    [
        ("18 52 00", [(0x50, 0, 3, 1), (0x50, 0x11, 128, 26)]),
        ("19 40 00", [(0x50, 0, 3, 1), (0x50, 0x11, 128, 26)]),
        ("18 52 80", []),  # one page alone
        ("11 08 00", [(0x50, 0, 3, 3)]),
        ("0d 05 00", [(0x50, 0, 3, 3)]),
        ("03 04 07", [(0x51, 0, 110, 1)]),
        ("00 00 00", []),
        ("ff ff ff", []),
        ("", []),
    ],
)
def test_what_is_read_of_each_kind(identity, read):
    assert list(places_of(bytes.fromhex(identity))) == read


def test_a_cmis_page():
    found = shown(
        CMIS,
        page_11h("44 44 44 44", 0xFF),
        page_11h("44 44 44 44", 0x00, los=0x0F, lol=0xFF),
        page_11h("44 44 44 44", 0x7F, lol=0x01),
    )
    assert (found.latched, found.late) == (True, 200_000_000)
    assert [one.is_set for one in found.no_signal] == [False, True, False]
    assert [one.is_set for one in found.no_lock] == [False, True, True]
    assert [one.is_set for one in found.output] == [True, False, False]
    assert [one.at for one in found.no_lock] == [(0, 3), (10, 13), (20, 23)]
    assert {one.state for one in found.paths} == {"DPActivated"}


def test_lanes_that_are_not_in_use():
    found = shown(CMIS, page_11h("44 44 11 11", 0x0F), page_11h("45 44 11 11", 0x0E))
    assert [one.state for one in found.paths] == ["DPActivated", "DPActivated, DPTxTurnOn"]
    assert [one.is_set for one in found.output] == [True, False]
    assert [one.state for one in shown(CMIS, page_11h("11 11 11 11")).paths] == ["DPDeactivated"]
    assert shown(CMIS, page_11h("11 11 11 11")).output == []
    assert [one.state for one in shown(CMIS, page_11h("99 99 99 99")).paths] == ["state 9"]


def test_sff_8636_has_the_receiver_in_the_low_half():
    found = shown(SFF_8636, bytes.fromhex("f0 00 f0"), bytes.fromhex("01 00 08"))
    assert [one.is_set for one in found.no_signal] == [False, True]
    assert [one.is_set for one in found.no_lock] == [False, True]
    assert found.latched
    assert (found.output, found.paths) == ([], [])


def test_sff_8472_is_not_latched_and_has_no_loss_of_lock():
    found = shown(SFF_8472, b"\x02", b"\x04")
    assert (found.latched, found.late) == (False, 100_000_000)
    assert [one.is_set for one in found.no_signal] == [True, False]
    assert found.no_lock == []


def test_failed_and_short_readings_are_counted_and_tell_nothing():
    found = shown(CMIS, None, page_11h("44 44 44 44"), b"\x44", None, problem="Input/output error")
    assert len(found.no_signal) == 1
    assert found.failed == {
        "Input/output error": 2,
        "1 of 26 bytes came from eth0": 1,
    }
