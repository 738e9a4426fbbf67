"""A setting of NIC ports that a trial varies: saved on disk first, read back, put back."""

from collections.abc import Sequence

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.nic_settings import (
    check_as_set,
    check_restorable,
    ports_of,
    set_port,
    wanted_value,
)
from lightrig.harness.bench.server_settings import SavedServers
from lightrig.instruments.servers.host.linux import LinuxServer


class NicSetting:
    """`autoneg`, `speed` or `fec` of one NIC port, or of all; see `VariedSetting`.

    Args:
        bench: the open servers.
        name: such as `server0.nic0.p0.fec`, or `*.fec`: both ends of a link need one encoding.
        texts: on or off, a rate such as 100G, or an encoding of ethtool such as rs.

    Raises `SubjectError`, and `InstrumentError` where a port cannot be read.
    """

    def __init__(self, bench: Bench, name: str, texts: Sequence[str]) -> None:
        kind = name.rpartition(".")[2]
        self.name = name
        self.values = tuple(each.strip() for each in texts)
        self._bench = bench
        self._ports: list[tuple[LinuxServer, str]] = []
        self._found: list[str] = []
        self._wanted: list[list[str]] = []
        for port, netdev in ports_of(bench, name).items():
            server = bench.servers[port.owner]
            assert isinstance(server, LinuxServer)
            key = f"{'fec' if kind == 'fec' else 'link'} {netdev}"
            found = check_restorable(server, key)
            self._ports.append((server, key))
            self._found.append(found)
            self._wanted.append([wanted_value(server, key, kind, text, found) for text in texts])
        self.found = ", ".join(dict.fromkeys(self._found))
        self._saved: SavedServers | None = None

    def set(self, index: int) -> None:
        """Set all ports to `values[index]` and read back; raises `InstrumentError`."""
        self._make([values[index] for values in self._wanted])

    def put_back(self) -> None:
        """Set all ports to what was found; raises `InstrumentError`, and `NotRestoredError`."""
        if self._saved is None:
            return
        self._make(self._found)
        self._saved.restore()
        self._saved = None

    def _make(self, values: Sequence[str]) -> None:
        if self._saved is None:
            self._saved = self._begun()
        for (server, key), value in zip(self._ports, values, strict=True):
            self._saved.note(server.name, key, value)
            set_port(server, key, value)
        for (server, key), value in zip(self._ports, values, strict=True):
            check_as_set(server, key, value)

    def _begun(self) -> SavedServers:
        """Save on disk what the ports are set to, and set them to it: so it can be put back.

        Raises `InstrumentError` where a driver refuses what it reads, and what
        `save_initial_state` does; nothing is changed then.
        """
        wanted: dict[str, dict[str, str]] = {}
        for (server, key), found in zip(self._ports, self._found, strict=True):
            wanted.setdefault(server.name, {})[key] = found
        saved = SavedServers(self._bench, wanted)
        saved.save_initial_state()
        try:
            for (server, key), found in zip(self._ports, self._found, strict=True):
                set_port(server, key, found)
                check_as_set(server, key, found)
        except BaseException:
            saved.forget_unchanged()
            raise
        for name in wanted:
            saved.before_change(name)
        return saved
