"""Kernel messages of a bench: whose they are, how many, and which of many are shown."""

from typing import Any, cast

import pytest

from lightrig.harness.bench.kernel_messages import KernelMessages
from lightrig.instruments.clock import Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.capabilities import KernelLine, KernelReading
from lightrig.instruments.core.errors import CANNOT, DeniedError

MS = 1_000_000
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


class Server:
    """A server whose log a test writes, by line and time in ms."""

    def __init__(self, boot: str) -> None:
        self.boot, self.waiting, self.asked = boot, list[tuple[str, int]](), 0
        self.lost, self.denied = 0, False

    def kernel_messages(self) -> KernelReading:
        self.asked += 1
        if self.denied:
            text = "the log of its kernel is not readable by this account"
            raise DeniedError("server0", code=CANNOT, text=text, command="messages")
        lines = [KernelLine(text, 6, Span(at * MS, at * MS + 5)) for text, at in self.waiting]
        self.waiting.clear()
        lost, self.lost = self.lost, 0
        return KernelReading(tuple(lines), lost)


def messages(**servers: Server) -> KernelMessages:
    return KernelMessages(cast("Any", servers), VirtualClock())


def test_lines_of_a_test_are_those_of_its_time() -> None:
    server = Server("boot-0")
    kernel = messages(server0=server)
    server.waiting = [("e1000e 0000:02:00.0 eth1: NIC Link is Down", 40)]
    kernel.read()
    before = kernel.counts()
    server.waiting = [
        ("e1000e 0000:02:00.0 eth1: NIC Link is Up 1000 Mbps Full Duplex, Flow Control: None", 75),
        ("systemd[1]: Started Daily apt activities.", 80),
    ]
    kernel.read()
    window = kernel.since(50 * MS, before)
    assert [one.line.text.partition(": ")[2][:15] for one in window.lines] == ["NIC Link is Up "]
    assert dict(window.counts) == {("server0", "link"): 1}
    (sentence,) = window.sentences()
    assert sentence.startswith("+0.0250 to +0.0250 s server0: e1000e")


def test_namespaces_of_one_machine_are_asked_once_and_named_as_one() -> None:
    servers = {f"server{number}": Server("boot-0") for number in range(3)}
    kernel = messages(**servers, lone=Server("boot-1"))
    servers["server0"].waiting = [("br0: port 1(p0) entered disabled state", 7)]
    kernel.read()
    assert [servers[name].asked for name in servers] == [1, 0, 0]
    (sentence,) = kernel.since(0, {}).sentences()
    assert "the machine of server0 and 2 more: br0" in sentence
    assert set(kernel.logs) == {"the machine of server0 and 2 more", "lone"}


@pytest.mark.parametrize("at", [0, 4_000, 9_999])
def test_one_line_is_seen_among_ten_thousand_others(at: int) -> None:
    server = Server("boot-0")
    kernel = messages(server0=server)
    storm = [(f"br0: port {n}(p{n}) entered forwarding state", n) for n in range(10_000)]
    server.waiting = [*storm[:at], (XID, at), *storm[at:]]
    kernel.read()
    window = kernel.since(0, {})
    assert XID in [one.line.text for one in window.lines]
    assert dict(window.counts) == {("server0", "link"): 10_000, ("server0", "gpu"): 1}
    sentences = window.sentences()
    assert len(sentences) == 21
    assert sentences[-1] == "9,981 more lines like these"


def test_lost_lines_are_said() -> None:
    server = Server("boot-0")
    kernel = messages(server0=server)
    server.lost = 1_203
    kernel.read()
    window = kernel.since(0, {})
    assert window.sentences() == ["1,203 lines of the kernel were lost before they were read"]


def test_a_log_that_may_not_be_read_is_not_asked_again() -> None:
    server = Server("boot-0")
    server.denied = True
    kernel = messages(server0=server)
    kernel.read()
    kernel.read()
    assert server.asked == 1
    assert "not readable" in kernel.unreadable["server0"]
    assert kernel.since(0, {}).sentences() == []
