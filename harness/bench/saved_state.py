"""The circuits that switches held before a run changed them, on disk: they survive a kill."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from lightrig.testbeds import Circuit, LightrigError


class SavedStateError(LightrigError):
    """The saved state of a testbed cannot be read, or names a switch that the testbed lacks."""


def state_folder() -> Path:
    """Return the folder of leases and saved states: `$XDG_STATE_HOME/lightrig`."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "lightrig"


class SavedState:
    """Circuits of a testbed's switches before the first change, in one file.

    The file is written once, removed after everything was restored, and never overwritten: the
    state that a run finds after a kill is not the one that the laboratory left.
    """

    def __init__(self, testbed: str, folder: Path) -> None:
        self.path = folder / f"{testbed}.found.json"

    def save(self, circuits: Mapping[str, frozenset[Circuit]]) -> None:
        """Write `circuits`, safe against a crash of the machine; no change if the file exists."""
        if self.path.exists():
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({name: sorted(map(str, each)) for name, each in circuits.items()})
        # Write and rename, so that a reader sees all of it or nothing. The folder is flushed as
        # well: until then a crash may undo the rename, after which circuits are changed.
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
        """Return the saved circuits by switch, or None if nothing is left to restore."""
        try:
            saved = json.loads(self.path.read_text())
            return {
                name: frozenset(map(Circuit.parse, circuits)) for name, circuits in saved.items()
            }
        except FileNotFoundError:
            return None
        except (ValueError, AttributeError, TypeError) as error:
            raise SavedStateError(f"{self.path} is damaged: {error}") from error

    def clear(self) -> None:
        """Remove the file, after everything was restored."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
