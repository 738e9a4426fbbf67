"""Readers of what tools that run jobs print."""

from lightrig.instruments.jobs.tools import iperf3, nccl_tests, osu, perftest
from lightrig.instruments.servers.tools.recognition import Reader

READERS = (
    Reader("nccl-tests", r"#\s+size\s+count\s", ("average_bus_bandwidth",), nccl_tests.parse),
    Reader("OSU micro-benchmarks", r"# OSU ", (), osu.parse),
    Reader("perftest", r"^\s*#bytes\s", ("test_info", "results"), perftest.parse),
    Reader(iperf3.TOOL, r"(?!)", ("start", "version", "end"), iperf3.parse),
)
