"""The kernel of a namespace loses the share of packets that it is told to, of the named ports."""

import json
import sys
from collections.abc import Callable

import pytest

from lightrig.instruments.jobs.programs import packet_loss
from lightrig.instruments.namespaces import namespaces as kernel

pytestmark = pytest.mark.usefixtures("possible")

SENT = 2000
# Over loopback a datagram has been received when sending it returns, or never is.
DATAGRAMS = f"""
import json, socket, subprocess, sys
def received():
    count = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.setblocking(False)
        for number in range({SENT}):
            one.sendto(b"x", one.getsockname())
            try:
                count += len(one.recv(9))
            except BlockingIOError:
                pass
    return count
for setting in sys.argv[2:]:
    command = [sys.executable, "-IS", sys.argv[1], *setting.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stdout, done.stderr, received()]))
"""


def test_the_share_is_lost_of_the_named_ports_until_it_is_none(
    namespaces: kernel.Namespaces, run: Callable[..., str]
) -> None:
    """The settings replace each other; bounds are 5 standard deviations of a binomial number.

    The last but one is refused for its second port, and so changes nothing for its first.
    """
    settings = ("30 fabric0 lo", "0", "30 fabric0", "2.5 lo", "0", f"30 lo {'x' * 70}", "0")
    printed = run(
        *(namespaces.pid("a"), sys.executable, "-IS", "-c", DATAGRAMS),
        *(packet_loss.__file__, *settings),
    )
    statuses, stamps, errors, received = zip(*map(json.loads, printed.splitlines()), strict=True)
    assert [bool(status) for status in statuses] == [False] * 5 + [True, False]
    assert errors[5].splitlines()[-1].startswith("OSError: [Errno")
    assert "nftables: " in errors[5]
    for began, ended in (map(int, line.split()) for line in stamps if line):
        assert ended - began > 0
    third, none, other, fortieth, *rest = received
    assert abs(third - 0.7 * SENT) < 5 * (SENT * 0.3 * 0.7) ** 0.5
    assert abs(fortieth - 0.975 * SENT) < 5 * (SENT * 0.025 * 0.975) ** 0.5
    assert fortieth < SENT
    assert [none, other, *rest] == [SENT] * 5
