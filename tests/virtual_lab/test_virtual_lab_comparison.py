"""The comparison of rows with notes of links and captures, on notes and packets written by hand."""

import struct
from pathlib import Path

import pytest

from lightrig.harness.record.row import Row

from .captures import Capture, Datagram, packets
from .comparison import (
    Interval,
    PortTruth,
    compare,
    parse_moves,
    summary,
    truth_of_ports,
    without_row,
)
from .steps import VirtualLabError

MS = 1_000_000
SENT = 1_000 * MS
PORTS = "server0.nic0.p0", "server1.nic0.p0"
NOTES = f"""\
{PORTS[0]} down 900000000 901000000
{PORTS[0]} up 950000000 951000000
{PORTS[0]} down 1010000000 1011000000
{PORTS[1]} down 1012000000 1013000000
{PORTS[0]} up 1100000000 1101000000
{PORTS[1]} up 1400000000 1402000000
{PORTS[0]} down 1500000000 1501000000
"""
"""In ms after SENT: port 0 is dark from 10 … 11 to 100 … 101, port 1 from 12 … 13 to 400 … 402."""


def row(quantity: str, subject: str, lower: float, upper: float) -> Row:
    least, most = round(lower * MS), round(upper * MS)
    return Row(subject, quantity, least, least, most, "ns", SENT, {"event": 0})


COMMAND = row("reconfiguration.acknowledged", "ocs", 90, 95)


def held(found: Row, received: dict[str, list[Datagram]] | None = None) -> bool:
    verdicts = list(compare([COMMAND, found], parse_moves(NOTES), received or {}))
    assert len(verdicts) == 1
    return verdicts[0].held


def test_the_truth_is_the_first_darkness_after_the_command() -> None:
    assert truth_of_ports(parse_moves(NOTES), SENT) == {
        PORTS[0]: PortTruth(Interval(10 * MS, 11 * MS), Interval(100 * MS, 101 * MS)),
        PORTS[1]: PortTruth(Interval(12 * MS, 13 * MS), Interval(400 * MS, 402 * MS)),
    }


@pytest.mark.parametrize(
    ("quantity", "subject", "lower", "upper", "holds"),
    [
        ("carrier_up", PORTS[0], 90, 120, True),
        ("carrier_up", PORTS[0], 0, 99.9, False),  # before the link was moved
        ("carrier_up", PORTS[0], 301.1, 400, False),  # 200 ms after it and later
        ("carrier_down", PORTS[1], 12.5, 12.6, True),
        ("carrier_down", PORTS[1], 0, 11.9, False),
        ("reconfiguration.carrier_up", "testbed", 94.5, 163.0, False),  # port 1 is left out
        ("reconfiguration.carrier_up", "testbed", 350, 401, True),
    ],
)
def test_carriers(quantity: str, subject: str, lower: float, upper: float, holds: bool) -> None:
    assert held(row(quantity, subject, lower, upper)) == holds


def datagrams(*at_ms: float) -> list[Datagram]:
    return [Datagram(SENT + round(at * MS), 7, number) for number, at in enumerate(at_ms)]


@pytest.mark.parametrize(
    ("lower", "upper", "holds"),
    [(0, 1078, True), (387.5, 400, True), (0, 386.9, False), (620, 630, False)],
)
def test_an_outage_is_between_the_darkness_and_the_gap_on_the_tap(
    lower: float, upper: float, holds: bool
) -> None:
    """Dark for 387 ms at least (400 - 13), and 418 ms without datagrams (423 - 5), 200 allowed."""
    received = {PORTS[1]: datagrams(1, 5, 423, 424)}
    found = row("outage.packets", f"{PORTS[0]} > {PORTS[1]} < {PORTS[0]}", lower, upper)
    assert held(found, received) == holds


def taken(*seen: tuple[float, int, float | None]) -> list[Datagram]:
    """Return datagrams by time at the tap, sender, and time at which the NIC was given them."""
    return [
        Datagram(
            SENT + round(at * MS),
            token,
            number,
            None if given is None else SENT + round(given * MS),
        )
        for number, (at, token, given) in enumerate(seen)
    ]


@pytest.mark.parametrize(
    ("lower", "upper", "holds"),
    [(300, 430, True), (0, 422, False), (624, 9000, True), (626, 9000, False)],
)
def test_the_first_datagram_is_that_of_the_last_port(
    lower: float, upper: float, holds: bool
) -> None:
    """Of another sender than at the command, at 423 ms, and read by the machine at 425 ms."""
    received = {
        PORTS[0]: taken((-5, 7, -5), (5, 7, 6), (120, 8, 121)),
        PORTS[1]: taken((-5, 8, -4), (5, 8, 5), (300, 8, 302), (423, 7, 425), (430, 7, 430)),
    }
    assert held(row("reconfiguration.first_datagram", "testbed", lower, upper), received) == holds
    assert held(row("first_datagram", PORTS[1], lower, upper), received) == holds


@pytest.mark.parametrize(
    ("given", "lower", "upper", "holds"),
    [
        (7, 5.5, 8, True),
        (7, 0, 5.9, False),
        (7, 400, 430, False),  # an earlier one was received
        (None, 5.5, 8, False),  # the link was down by then: nothing was received
        (None, 400, 430, True),
    ],
)
def test_a_datagram_before_the_link_moves_counts_where_the_machine_got_it(
    given: float | None, lower: float, upper: float, holds: bool
) -> None:
    """The circuits have moved by then; the program that moves the links was late."""
    received = {
        PORTS[1]: taken((-3, 7, -3), (2, 7, 2), (6, 8, given), (120, 8, None), (423, 8, 424)),
    }
    assert held(row("first_datagram", PORTS[1], lower, upper), received) == holds


def test_without_the_new_sender_there_is_no_truth_of_the_first_datagram() -> None:
    received = {PORTS[1]: taken((-3, 7, -3), (423, 7, 424))}
    found = row("first_datagram", PORTS[1], 400, 430)
    assert list(compare([COMMAND, found], parse_moves(NOTES), received)) == []


def test_ports_that_are_left_out_are_found() -> None:
    rows = [COMMAND, row("carrier_up", PORTS[0], 90, 120)]
    whole = row("reconfiguration.carrier_up", "testbed", 90, 500)
    assert without_row(rows, parse_moves(NOTES)) == [], "the event says that it is incomplete"
    assert without_row([*rows, whole], parse_moves(NOTES)) == [(0, PORTS[1])]


def test_the_summary_counts_and_has_the_median_width() -> None:
    rows = [COMMAND, *[row("carrier_up", PORTS[0], 90, 90 + width) for width in (1, 15, 40)]]
    verdicts = list(compare(rows, parse_moves(NOTES), {}))
    assert summary(verdicts) == ["carrier_up: 2 of 3 hold, median width 15.0 ms", "1 events"]


def test_a_capture_is_read_up_to_a_torn_packet(tmp_path: Path) -> None:
    probe = struct.pack("!4sI16sQQQ", b"LRP1", 77, bytes(16), 41, 0, 0)
    data = bytes.fromhex("4d3cb2a1") + bytes(20)
    for second, index, kind in ((5, 8, 4), (6, 8, 0), (7, 9, 4), (8, 8, 4), (9, 8, 4)):
        packet = struct.pack("!HHIHBB8x", 0x0800, 0, index, 1, kind, 6) + probe
        data += struct.pack("<IIII", second, 250, len(packet), len(packet)) + packet
    file = tmp_path / "taps.pcap"
    file.write_bytes(data[:-1])
    capture = Capture(file, {PORTS[0]: 8, PORTS[1]: 7}, realtime_ahead_ns=50)
    datagrams = [Datagram(5_000_000_200, 77, 41), Datagram(8_000_000_200, 77, 41)]
    assert capture.received() == {PORTS[0]: datagrams, PORTS[1]: []}
    with pytest.raises(VirtualLabError):
        list(packets(b"no pcap"))


def test_what_qemu_gave_to_the_nic_is_told_from_what_came_to_the_tap(tmp_path: Path) -> None:
    """Of the numbers 41 to 44, 42 never; 44 waited 3 ms longer than 41, by QEMU's own clock."""

    def pcap(magic: str, prefix: bytes, times: dict[int, int]) -> bytes:
        data = bytes.fromhex(magic) + bytes(20)
        for number, ticks in times.items():
            packet = prefix + struct.pack("!4sI16sQQQ", b"LRP1", 77, bytes(16), number, 0, 0)
            data += struct.pack("<IIII", 900, ticks, len(packet), len(packet)) + packet
        return data

    cooked = struct.pack("!HHIHBB8x", 0x0800, 0, 8, 1, 4, 6)
    ms = {41: 1, 42: 2, 43: 3, 44: 4}
    file, dump = tmp_path / "taps.pcap", tmp_path / "taken.pcap"
    file.write_bytes(pcap("4d3cb2a1", cooked, {n: at * 1_000_000 for n, at in ms.items()}))
    earlier = pcap("d4c3b2a1", b"", {42: 77})
    dump.write_bytes(earlier + pcap("d4c3b2a1", b"", {41: 501_000, 43: 504_000, 44: 507_000})[24:])
    capture = Capture(file, {PORTS[0]: 8}, 0, {PORTS[0]: (dump, len(earlier))})
    at = {number: 900_000_000_000 + time * 1_000_000 for number, time in ms.items()}
    assert capture.received()[PORTS[0]] == [
        Datagram(at[41], 77, 41, at[41]),
        Datagram(at[42], 77, 42, None),
        Datagram(at[43], 77, 43, at[43] + 1_000_000),
        Datagram(at[44], 77, 44, at[44] + 3_000_000),
    ]


def test_replies_to_arp_are_read_from_what_tcpdump_wrote(tmp_path: Path) -> None:
    """A question of server 0's first port, and the answer of server 1's."""
    packets_seen = (
        "08060000000011c90001010652540077000000000001080006040001525400770000c0000201000000000000c0000203",
        "08060000000011c70001030652540077010000000001080006040002525400770100c0000203525400770000c0000201",
    )
    data = bytes.fromhex("4d3cb2a1") + bytes(20)
    for packet in map(bytes.fromhex, packets_seen):
        data += struct.pack("<IIII", 5, 250, len(packet), len(packet)) + packet
    file = tmp_path / "arp.pcap"
    file.write_bytes(data)
    assert Capture(file, {}, 0).arp_replies() == {("192.0.2.3", "52:54:00:77:01:00")}
