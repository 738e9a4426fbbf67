"""Kernel settings and devices of servers that jobs change: saved on disk first, then restored.

A job restores them itself as it ends. After a kill `lightrig restore` does, by what is on disk.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lightrig.harness.bench import nic_settings
from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.restoring import InitialStates, Obstacles
from lightrig.harness.bench.saved_state import SavedSettings
from lightrig.instruments.servers.host.commands import ToolFailedError
from lightrig.instruments.servers.host.linux import LinuxServer

_PATH = re.compile(r"/proc/sys/net/ipv4/[\w./@:-]+", re.ASCII)
_VALUE = re.compile(r"[\w .-]*", re.ASCII)
_DEVICE = re.compile(r"device (?:lightrig|lane)\d+", re.ASCII)
_ABSENT = "absent"
_TICKS_MS = 10
"""The kernel rounds times to its ticks, of 10 ms at most."""


class SavedServers(InitialStates[SavedSettings]):
    """Settings by their path below /proc/sys, devices, and NIC ports of external servers.

    Args:
        bench: the open servers; those that end with this process are not saved.
        wanted: by server and path, or key of `nic_settings`, what is about to be set; without, what
            a killed run has left.
        devices: that are about to be made on each.
    """

    _set_by_somebody = "somebody else has set it since: "

    def __init__(
        self,
        bench: Bench,
        wanted: Mapping[str, Mapping[str, str]] | None = None,
        devices: Sequence[str] = (),
    ) -> None:
        super().__init__(bench, bench.saved_states, bench.external)
        self._wanted = wanted or {}
        self._devices = devices

    def before_change(self, name: str) -> dict[str, str]:
        """Note on disk that a server is about to be changed; return what to restore, by path."""
        if (state := self.states.get(name)) is None:
            return {}
        if missing := self._wanted[name].keys() - state.found.keys():  # of what a kill has left
            (now,) = self._present([name])
            added = {path: now.found[path] for path in missing if path in now.found}
            state = replace(state, found={**state.found, **added})
        for path, value in self._wanted[name].items():
            state = state.setting(path, value)
        found = {f"device {each}": _ABSENT for each in self._devices}
        self.states.put(name, replace(state, found={**state.found, **found}))
        return {path: str(value) for path, value in state.found.items() if _PATH.fullmatch(path)}

    def present(self, name: str) -> Mapping[str, str]:
        """Return the settings of a server now, by path."""
        (now,) = self._present([name])
        return {path: str(value) for path, value in now.found.items()}

    def note(self, name: str, key: str, value: str) -> None:
        """Note on disk that a setting of a server is about to be set."""
        if (state := self.states.get(name)) is not None:
            self.states.put(name, state.setting(key, value), durable=False)

    def is_saved(self, name: str) -> bool:
        """Whether a server has a saved state: of another job of this run, or of a killed one."""
        return self._left(name) is not None

    def set(self, name: str, settings: Mapping[str, str]) -> None:
        """Set settings of a server by path; raises `ToolFailedError`."""
        self._run(name, [f"echo {value} >{path}" for path, value in settings.items()])

    def _names(self) -> list[str]:
        return sorted(
            name
            for name, server in self.bench.servers.items()
            if name in self.bench.external
            and isinstance(server, LinuxServer)
            and (name in self._wanted or self._left(name) is not None)
        )

    def _left(self, name: str) -> SavedSettings | None:
        """Return what a killed run has left of a server."""
        if (store := self.states.store_of(name)) is None:
            return None
        return store.load(SavedSettings(self._origin(name), {}), self._known)

    def _present(self, names: Sequence[str]) -> list[SavedSettings]:
        found = []
        for name in names:
            left = self._left(name)
            paths = {*self._wanted.get(name, ()), *(left.found if left is not None else ())}
            settings = sorted(path for path in paths if _PATH.fullmatch(path))
            # A port may be gone by now, and its settings with it.
            lines = [f"[ ! -e {path} ] || echo {path} $(cat {path})" for path in settings]
            done = self._run(name, lines) if lines else []
            read = dict(line.split(" ", 1) for line in done if " " in line)
            for key in sorted(filter(nic_settings.SETTING.fullmatch, paths)):
                read[key] = nic_settings.present(self._server(name), key)
            found.append(SavedSettings(self._origin(name), read))
        return found

    def _differing(self, state: SavedSettings, now: SavedSettings) -> list[str]:
        return [
            f"{path} is {value}, and was {known[-1]}"
            for path, value in now.found.items()
            if (known := [*filter(None, [state.found.get(path)]), *state.values.get(path, ())])
            and not any(_same(path, str(value), str(each)) for each in known)
        ]

    def _beyond(self, state: SavedSettings, now: SavedSettings) -> str:
        del now
        strange = [
            f"{name} {value}"
            for name, value in state.found.items()
            if not _is_ours(name, str(value))
        ]
        return f"its saved state has what no job sets: {', '.join(strange)}" if strange else ""

    def _steps(self, obstacles: Obstacles, *, force: bool) -> Sequence[Callable[[str], None]]:
        del obstacles, force
        return [self._restore]

    def _restore(self, name: str) -> None:
        """Remove the devices, which takes their addresses and routes along, and set the rest."""
        found = self.states[name].found
        # The kernel sets others with ip_forward.
        paths = sorted(filter(_PATH.fullmatch, found), key=lambda path: "ip_forward" not in path)
        devices = [each.removeprefix("device ") for each in found if _DEVICE.fullmatch(each)]
        server = self._server(name)
        for key in filter(nic_settings.SETTING.fullmatch, found):
            nic_settings.set_port(server, key, str(found[key]))
        if not paths and not devices:
            return
        self._run(
            name,
            [
                *(f"ip link del {each} 2>&- || ! ip link show {each} >&- 2>&-" for each in devices),
                *(f"[ ! -e {path} ] || echo {found[path]} >{path}" for path in paths),
            ],
        )

    def _run(self, name: str, lines: Sequence[str]) -> list[str]:
        """Run shell lines on a server, of which the first that fails ends them."""
        server = self._server(name)
        script = "\n".join(("PATH=$PATH:/usr/sbin:/sbin", *lines))
        result = server.commands.run(["sh", "-ec", script])
        if result.status != 0:
            raise ToolFailedError(name, result, script)
        return result.stdout.splitlines()

    def _server(self, name: str) -> LinuxServer:
        server = self.bench.servers[name]
        assert isinstance(server, LinuxServer)
        return server


def _is_ours(name: str, value: str) -> bool:
    """Whether a saved setting is one that jobs and trials set."""
    if nic_settings.SETTING.fullmatch(name):
        return nic_settings.is_valid(name, value)
    known = _PATH.fullmatch(name) or _DEVICE.fullmatch(name)
    return bool(known) and ".." not in name and bool(_VALUE.fullmatch(value))


def _same(path: str, value: str, known: str) -> bool:
    """Whether a setting has a value that it was given."""
    if nic_settings.SETTING.fullmatch(path) and not value:  # the link is down, and tells no speed
        return True
    if path.endswith("_ms") and value.isdecimal() and known.isdecimal():
        return abs(int(value) - int(known)) <= _TICKS_MS
    return value.split() == known.split()
