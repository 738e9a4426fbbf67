"""Moves the links of virtual machines as `lightrig serve --on-carrier` says.

`python -m tests.virtual_lab.carrier NOTES SOCKET0 SOCKET1` reads lines "PORT up|down TIME" and
moves the link of the machine at that monitor (QMP's set_link). NOTES gets a line "PORT up|down
BEFORE AFTER" each: CLOCK_MONOTONIC in ns just before the command and just after its answer, which
is the truth of a port, independent of Lightrig.
"""

import json
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any


class Monitor:
    """A session with the monitor of a virtual machine (QEMU Machine Protocol)."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._file = self._socket.makefile("rw")
        self._file.readline()
        self.command("qmp_capabilities")

    def command(self, name: str, /, **arguments: Any) -> Any:
        """Give a command and return its answer; raises RuntimeError where it is refused."""
        json.dump({"execute": name, "arguments": arguments}, self._file)
        self._file.write("\n")
        self._file.flush()
        for line in self._file:
            answer = json.loads(line)
            if "error" in answer:
                raise RuntimeError(f"{name}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise RuntimeError(f"{name}: the virtual machine has ended")

    def close(self) -> None:
        """End the session; the machine goes on."""
        self._file.close()
        self._socket.close()


def main() -> int:
    """Follow the lines until they end."""
    notes, *sockets = sys.argv[1:]
    monitors = [Monitor(path) for path in sockets]
    with Path(notes).open("a", buffering=1) as file:
        for line in sys.stdin:
            port, state, _ = line.split()
            found = re.fullmatch(r"server(\d)\.nic0\.p(\d)", port)
            assert found is not None, port
            server, number = found.groups()
            before = time.monotonic_ns()
            monitors[int(server)].command("set_link", name=f"data{number}", up=state == "up")
            file.write(f"{port} {state} {before} {time.monotonic_ns()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
