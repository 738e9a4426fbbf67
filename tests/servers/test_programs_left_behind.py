"""Programs on a server that never end: none is left there, whatever became of who started them.

They are run through OpenSSH's own server, which ends a connection, and no program.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import preloaded
import pytest
from openssh_host import OpenSshHost
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import InstrumentError, NoReplyError
from lightrig.instruments.jobs.traffic.rdma_pair import RdmaEnd, RdmaPair
from lightrig.instruments.servers.host.linux import LinuxServer

SECOND = 1_000_000_000
LIMIT = 2 * SECOND
GONE = 5 * SECOND
"""Time for which a program may go on after the end of its limit, connection or user, in ns."""

CLOCK = SystemClock()

KILLED = """
import sys
from pathlib import Path
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.wire.ssh import SshLogin, SshShell
user, port, known_hosts = sys.argv[1:]
login, clock = SshLogin(user, None, Path(known_hosts)), SystemClock()
shell = SshShell("server0", "127.0.0.1", clock, port=int(port), login=login)
LinuxServer("server0", shell, clock, {}).commands.run(["ib_send_lat"], 60 * 10**9)
"""


class Host(OpenSshHost):
    """A host whose `ib_send_lat` never ends and reads nothing, as perftest that polls for ever.

    Args:
        stubborn: whether it does not end by SIGTERM either.
    """

    def __init__(self, folder: Path, *, stubborn: bool) -> None:
        self.home = folder / "home"
        programs = folder / "programs"
        for each in (self.home, programs):
            each.mkdir()
        self._pids = folder / "pids"
        self._pids.touch()
        program = programs / "ib_send_lat"
        ignored = "trap '' TERM\n" if stubborn else ""
        program.write_text(f"#!/bin/sh\n{ignored}echo $$ >> {self._pids}\nexec sleep 86400\n")
        program.chmod(0o755)
        super().__init__(self.home, programs)

    def started(self) -> list[int]:
        """Return the processes of the program, also of those that have ended."""
        return [int(pid) for pid in self._pids.read_text().split()]

    def running(self) -> list[int]:
        found = []
        for pid in self.started():
            with contextlib.suppress(OSError):
                if "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
                    found.append(pid)
        return found

    def await_programs(self, number: int) -> None:
        until(lambda: len(self.running()) == number, CLOCK)

    def assert_none_left(self, since: int) -> None:
        """Check that all are gone `GONE` ns after a moment of the clock."""
        while self.running() and CLOCK.now() < since + GONE:
            CLOCK.sleep(10_000_000)
        assert self.running() == []

    def close(self) -> None:
        super().close()
        for pid in self.running():
            os.kill(pid, signal.SIGKILL)


@pytest.fixture(params=["ends by SIGTERM", "stubborn"])
def host(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Host]:
    found = Host(tmp_path, stubborn=request.param == "stubborn")
    monkeypatch.setenv("HOME", str(found.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    yield found
    found.close()


@pytest.fixture
def servers(host: Host) -> Iterator[list[LinuxServer]]:
    shells = [host.shell() for _ in range(2)]
    found = [LinuxServer(f"server{n}", shell, CLOCK, {}) for n, shell in enumerate(shells)]
    for server in found:  # the login is no part of a program's limit, however busy this machine is
        server.commands.run(["true"])
    yield found
    for shell in shells:
        shell.close()


@pytest.fixture
def pair(servers: list[LinuxServer]) -> RdmaPair:
    return RdmaPair(*(RdmaEnd(each.commands, "rxe0", "127.0.0.1") for each in servers))


def test_none_is_left_after_the_limit(host: Host, pair: RdmaPair) -> None:
    with pytest.raises(NoReplyError, match="did not end a program within 2 s"):
        pair.latency(timeout=LIMIT)
    ended = CLOCK.now()
    assert len(host.started()) == 2
    host.assert_none_left(ended)


def test_none_is_left_after_the_connection_was_cut(host: Host, pair: RdmaPair) -> None:
    def measure() -> None:
        with contextlib.suppress(InstrumentError):
            pair.latency(timeout=30 * LIMIT)

    measuring = threading.Thread(target=measure)
    measuring.start()
    host.await_programs(2)
    host.cut()
    host.assert_none_left(CLOCK.now())
    measuring.join()


def test_none_is_left_where_the_end_of_the_connection_does_not_arrive(
    host: Host, servers: list[LinuxServer]
) -> None:
    def run() -> None:
        with contextlib.suppress(InstrumentError):
            servers[0].commands.run(["ib_send_lat"], LIMIT)

    running = threading.Thread(target=run)
    running.start()
    host.await_programs(1)
    host.stop_carrying()
    running.join()
    host.assert_none_left(CLOCK.now())


def test_none_is_left_after_its_user_was_killed(host: Host) -> None:
    arguments = [host.user, str(host.port), str(host.home / "known_hosts")]
    with preloaded.Process(["python", "-c", KILLED, *arguments]) as user:
        host.await_programs(1)
        user.kill()
    host.assert_none_left(CLOCK.now())
