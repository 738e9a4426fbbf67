"""Reports of iperf3: a server's zeros for what its client counted are no values."""

import pytest
from tool_samples import read, sample

from lightrig.instruments.jobs.tools.iperf3 import Iperf3Flow, parse
from lightrig.instruments.servers.tools.output import ToolOutputError, ToolReportedError

TCP = Iperf3Flow(5_000_000_000, 4_960_000_000, 17)


@pytest.mark.parametrize(
    ("name", "reporter", "protocol", "forward", "reverse"),
    [
        ("tcp_client", "client", "TCP", TCP, None),
        ("tcp_server", "server", "TCP", Iperf3Flow(None, 4_960_000_000), None),
        ("tcp_both", "client", "TCP", TCP, Iperf3Flow(1_600_000_000, 1_440_000_000, 2)),
        ("tcp_server_reverse", "server", "TCP", None, Iperf3Flow(3_600_000_000, None, 5)),
        ("udp_client", "client", "UDP", Iperf3Flow(1_600_000, 1_576_000, None, 200, 3, 0.25), None),
        ("udp_server", "server", "UDP", Iperf3Flow(None, 1_576_000, None, 200, 3, 0.25), None),
    ],
)
def test_each_end_reports_what_it_knows(
    name: str, reporter: str, protocol: str, forward: Iperf3Flow, reverse: Iperf3Flow
) -> None:
    report = read(f"synthetic/iperf3_{name}.json")
    assert (report.reporter, report.protocol) == (reporter, protocol)
    assert (report.forward, report.reverse) == (forward, reverse)


@pytest.mark.parametrize(
    ("printed", "changed", "expected"),
    [
        ('"bytes": 197000', '"bytes": 179000', "agree with bytes"),
        ('"packets": 200', '"packets": 2', "at most as many packets"),
        ('"connecting_to"', '"connected_to"', "of a client or"),
        ('"sum_received"', '"sum_received_bidir_reverse"', "`sum_sent` and `sum_received`"),
    ],
)
def test_a_contradiction_is_an_error(printed: str, changed: str, expected: str) -> None:
    text = sample("synthetic/iperf3_udp_client.json")
    assert printed in text
    if "bidir" in changed:
        text = text.replace('"sum_sent"', '"sum_gone"')
    with pytest.raises(ToolOutputError, match=expected):
        parse(text.replace(printed, changed))


def test_a_failed_test_is_reported() -> None:
    text = '{"start": {"version": "iperf 3.12"}, "end": {}, "error": "Connection refused"}'
    with pytest.raises(ToolReportedError, match="Connection refused"):
        parse(text)
