"""What Lightrig reads of a server's kernel, beside another reader and the moves that caused it."""

import contextlib
import os
import re
import statistics
import time
from collections.abc import Iterator

from lightrig.harness.bench import Bench, bind_only
from lightrig.instruments.core.capabilities import HasKernelMessages, HasNic, KernelLine
from lightrig.instruments.servers.tools.roce_addresses import moves
from lightrig.testbeds import load

from .carrier import Monitor
from .comparison import Interval
from .lab import SERVERS, VirtualLab

_LINK_CHANGES = 100
_LINE_SECONDS = 20
"""Longest time until a line of the log is read."""

_NOTICED_NS = 3_000_000_000
"""Time in which the driver of an emulated NIC notices its link: its watchdog runs every 2 s."""

_SPARE = "spare: NIC Link is"
_ADDRESSES = {"198.51.100.1": "c633:6401", "203.0.113.1": "cb00:7101"}
"""Two of two networks, and how they end as IPv4-mapped GIDs."""


@contextlib.contextmanager
def opened(lab: VirtualLab, server: int) -> Iterator[Bench]:
    """Open one server as a run does."""
    os.environ.update(lab.environment)
    bench = bind_only(load(lab.testbed), {SERVERS[server]}, "a part of the virtual lab")
    try:
        yield bench
    finally:
        bench.close()


def kernel_log(lab: VirtualLab) -> list[str]:
    """A hundred changes of a link: each line as dmesg has it, between its interval's ends."""
    lines: list[KernelLine] = []
    moved: list[tuple[str, Interval]] = []
    with opened(lab, 0) as bench, contextlib.closing(Monitor(lab.monitor_path(0))) as monitor:
        server = bench.servers[SERVERS[0]]
        assert isinstance(server, HasKernelMessages)
        server.kernel_messages()
        for number in range(_LINK_CHANGES):
            up, before = bool(number % 2), time.monotonic_ns()
            monitor.command("set_link", name="spare", up=up)
            moved.append(("Up" if up else "Down", Interval(before, time.monotonic_ns())))
            deadline = time.monotonic() + _LINE_SECONDS
            while len(lines) < len(moved) and time.monotonic() < deadline:
                read = server.kernel_messages().lines
                lines += [line for line in read if _SPARE in line.text]
            assert len(lines) == len(moved), f"{moved[-1]} was not read: {lines[-3:]}"
    said = lab.run(0, "dmesg", "root").splitlines()
    shown = [line.partition("] ")[2] for line in said if _SPARE in line]
    assert [line.text for line in lines] == shown[-_LINK_CHANGES:]
    wrong = [
        f"{line}: moved {state} at {at}"
        for line, (state, at) in zip(lines, moved, strict=True)
        if f"{_SPARE} {state}" not in line.text
        or line.at.latest < at.earliest
        or line.at.earliest > at.latest + _NOTICED_NS
    ]
    assert not wrong, "\n".join(wrong)
    widths = [line.at.latest - line.at.earliest for line in lines]
    late = max(line.at.earliest - at.latest for line, (_, at) in zip(lines, moved, strict=True))
    return [
        f"{len(lines)} lines as dmesg has them, none before its move, and at most "
        f"{late / 1e6:.0f} ms behind it; median width {statistics.median(widths) / 1e6:.1f} ms"
    ]


def swapped_addresses(lab: VirtualLab) -> list[str]:
    """Two addresses that are removed and added in the other order: both moves are named."""
    with opened(lab, 1) as bench:
        server = bench.servers[SERVERS[1]]
        assert isinstance(server, HasNic)
        try:
            _change_addresses(lab, "add", *_ADDRESSES)
            before, shown_before = server.nic.roce_addresses("rxe0").value, _indices(lab)
            _change_addresses(lab, "del", *_ADDRESSES)
            _change_addresses(lab, "add", *reversed(_ADDRESSES))
            after, shown_after = server.nic.roce_addresses("rxe0").value, _indices(lab)
        finally:
            _change_addresses(lab, "del", *_ADDRESSES, check=False)
    found = {move.address.gid[-9:]: (move.before, move.after) for move in moves(before, after)}
    wanted = {gid: (shown_before[gid], shown_after[gid]) for gid in _ADDRESSES.values()}
    assert found == wanted
    assert all(old != new for old, new in found.values())
    return [f"{gid}: index {old}, then {new}" for gid, (old, new) in sorted(found.items())]


def _change_addresses(lab: VirtualLab, verb: str, *addresses: str, check: bool = True) -> None:
    command = "; ".join(f"ip addr {verb} {address}/24 dev fabric0" for address in addresses)
    lab.run(1, command if check else f"{command}; true", "root")


def _indices(lab: VirtualLab) -> dict[str, int]:
    """Return the index of each GID by its last 32 bits, as ibv_devinfo shows them."""
    said = lab.run(1, "ibv_devinfo -v -d rxe0", "root")
    found = re.findall(r"GID\[\s*(\d+)\]:\s*(\S+)", said)
    shown = {gid.rstrip(","): int(index) for index, gid in found}
    # An IPv4 address is shown as ::ffff:198.51.100.1.
    return {
        _ADDRESSES.get(gid.rpartition(":")[2], gid[-len("c633:6401") :]): index
        for gid, index in shown.items()
    }
