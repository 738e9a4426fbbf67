"""A server whose connection was cut is reached again when that is asked for, and not before."""

import contextlib
from pathlib import Path

import pytest
from bench.served_lab import ServedLab, describe
from servers.ssh_cable import Cable

from lightrig.harness.bench import bind
from lightrig.instruments.core.capabilities import PortWatch, Reconnectable
from lightrig.instruments.core.errors import InstrumentError
from lightrig.testbeds import load


def test_a_cut_connection_is_opened_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.closing(ServedLab(tmp_path)) as lab:
        for name, value in lab.environment.items():
            monkeypatch.setenv(name, value)
        host, _, port = lab.places["server0"].rpartition(":")
        with contextlib.closing(Cable(int(port))) as cable:
            known = tmp_path / ".ssh" / "known_hosts"
            known.write_text(known.read_text().replace(f":{port} ", f":{cable.port} "))
            file = describe(tmp_path, {**lab.places, "server0": f"{host}:{cable.port}"})
            with contextlib.closing(bind(load(file), "hardware", 0)) as bench:
                server = bench.servers["server0"]
                assert isinstance(server, Reconnectable)
                before = server.identity()
                ports = [PortWatch("ens1f0")]
                server.watch(ports, period=1_000_000, datagram_period=None)
                cable.cut()
                for _ in range(2):  # it does not come back by itself
                    with pytest.raises(InstrumentError):
                        server.settle({}, timeout=0).result()
                server.reconnect()
                assert server.identity() == before
                server.watch(ports, period=1_000_000, datagram_period=None)  # anew
                assert server.settle({}, timeout=0).result().missing == ()
                server.reconnect()  # of one that stands, nothing is cut
                assert server.settle({}, timeout=0).result().missing == ()
