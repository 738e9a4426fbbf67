"""Bytes that wait for an acknowledgement, as the kernel shows them."""

import socket

import pytest
from program_host import Here
from real_time import until

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.jobs.traffic.tcp_queues import queued, unacknowledged
from lightrig.instruments.servers.host.commands import ToolFailedError
from lightrig.instruments.servers.host.linux import LinuxServer

# In the form of proc_pid_net(5): two connections of 198.18.0.1, one of another, one that listens.
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 010012C6:A1B2 020012C6:1F90 01 00000A10:00000000 01:00000014 00000000     0        0 1 1 x
   1: 010012C6:A1B3 020012C6:1F90 05 00000001:00000007 01:00000014 00000000     0        0 1 1 x
   2: 020012C6:A1B3 010012C6:1F90 01 00000FFF:00000000 01:00000014 00000000     0        0 1 1 x
   3: 010012C6:1F90 00000000:0000 0A 00000005:00000000 00:00000000 00000000     0        0 1 1 x
"""


def test_bytes_of_all_connections_from_an_address_are_counted():
    assert queued(TABLE, ["198.18.0.1"]) == 0xA10 + 1
    assert queued(TABLE, ["198.18.0.2"]) == 0xFFF
    assert queued(TABLE, ["198.18.0.3"]) == 0
    assert queued(TABLE, ["198.18.0.1", "198.18.0.2"]) == 0xA10 + 1 + 0xFFF


def test_bytes_wait_until_the_receiver_has_room_for_them():
    clock = SystemClock()
    server = LinuxServer("here", Here(), clock, {})
    with socket.create_server(("127.0.0.3", 0)) as listening:
        client = socket.create_connection(listening.getsockname(), source_address=("127.0.0.2", 0))
        accepted, _ = listening.accept()
        with client, accepted:
            client.setblocking(False)
            sent = 0
            while True:
                try:
                    sent += client.send(bytes(1 << 16))
                except BlockingIOError:
                    break
            assert 0 < unacknowledged(server.commands, ["127.0.0.2"]) < sent
            while sent:
                sent -= len(accepted.recv(1 << 20))
            until(lambda: unacknowledged(server.commands, ["127.0.0.2"]) == 0, clock)


def test_a_server_that_shows_no_table_is_an_error(monkeypatch):
    server = LinuxServer("here", Here(), SystemClock(), {})
    monkeypatch.setattr(
        "lightrig.instruments.jobs.traffic.tcp_queues._COMMAND", ["cat", "/proc/net/no_such"]
    )
    with pytest.raises(ToolFailedError):
        unacknowledged(server.commands, ["127.0.0.2"])
