"""What must survive a killed process: the lease on a testbed and the state it was found in."""

import contextlib
import getpass
import json
import os
from collections.abc import Mapping
from pathlib import Path

import filelock

from instruments.clock import wall_time
from testbeds import Circuit, LightrigError


class LeaseHeldError(LightrigError):
    """Somebody else uses the testbed now."""


class FoundStateError(LightrigError):
    """The file that keeps a testbed's found state cannot be read."""


def state_folder() -> Path:
    """Where leases and found states are kept: `$XDG_STATE_HOME/lightrig`."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "lightrig"


class Lease:
    """The only right to change a testbed, held until released or the process ends.

    Raises `LeaseHeldError`, naming the holder, if somebody else has it.
    """

    def __init__(self, testbed: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = filelock.FileLock(folder / f"{testbed}.lock")
        note = folder / f"{testbed}.holder"
        try:
            self._lock.acquire(timeout=0)
        except filelock.Timeout as error:
            holder = note.read_text() if note.exists() else "an unknown process"
            raise LeaseHeldError(f"testbed {testbed} is in use by {holder}") from error
        note.write_text(
            f"{getpass.getuser()}, process {os.getpid()}, since {wall_time():%F %T} UTC"
        )

    def release(self) -> None:
        """Let others have the testbed."""
        self._lock.release()


class FoundState:
    """The circuits that the switches of a testbed held before the first change, on disk.

    It is written once, kept until everything was put back, and never overwritten: after a
    kill, what a new run finds is not what the lab's people left.
    """

    def __init__(self, testbed: str, folder: Path) -> None:
        self.path = folder / f"{testbed}.found.json"

    def keep(self, circuits: Mapping[str, frozenset[Circuit]]) -> None:
        """Write `circuits` down, safe against a crash of the machine, unless that was done."""
        if self.path.exists():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({name: sorted(map(str, held)) for name, held in circuits.items()})
        draft = self.path.with_suffix(f".{os.getpid()}.draft")
        with draft.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def read(self) -> dict[str, frozenset[Circuit]] | None:
        """What was kept, or None if everything is where it belongs."""
        try:
            kept = json.loads(self.path.read_text())
            return {
                name: frozenset(map(Circuit.parse, circuits)) for name, circuits in kept.items()
            }
        except FileNotFoundError:
            return None
        except (ValueError, AttributeError, TypeError) as error:
            raise FoundStateError(f"{self.path} is damaged: {error}") from error

    def forget(self) -> None:
        """Everything was put back."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
