"""Folder of leases and saved states of this machine; importing it loads nothing else.

The folder is `$LIGHTRIG_STATE` where that is set, else `/var/lib/lightrig` where an administrator
has made it, else `/var/tmp/lightrig`, which is made on first use. It survives a restart of the
machine, as `/run` and `/tmp` may not.
"""

import os
from pathlib import Path

VARIABLE = "LIGHTRIG_STATE"
PREPARED = Path("/var/lib/lightrig")
FALLBACK = Path("/var/tmp/lightrig")  # noqa: S108 - shared on purpose; see docs/ownership.md


def stated_folder() -> Path | None:
    """Return the folder that the environment names; None where it names none."""
    stated = os.environ.get(VARIABLE)
    return Path(stated) if stated else None


def machine_folder() -> Path:
    """Return the folder of this machine, which may not exist."""
    return stated_folder() or (PREPARED if PREPARED.is_dir() else FALLBACK)


def former_folder(folder: Path) -> Path | None:
    """Return the folder that was used before an administrator made `folder`; None if none was."""
    return FALLBACK if folder == PREPARED and FALLBACK.is_dir() else None
