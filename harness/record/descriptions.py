"""A run keeps the descriptions of its testbeds, so that its report can be made again.

A description names where credentials are, never what they are; nothing else is copied.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.record.errors import RecordError
from harness.record.files import appearing
from harness.record.reading import RunRecord
from testbeds import Testbed, TestbedError, load
from testbeds.baselines import baselines_path
from testbeds.located import read


def keep_descriptions(files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Copy each testbed's file, the files of its plans and its baselines, below `folder`.

    Returns where each file lies in `folder` now, by the name of its testbed. Raises
    `RecordError` for what cannot be read or copied.
    """
    kept = {}
    for name, file in files.items():
        path = Path(os.path.abspath(file))
        try:
            parts = [path, *_referred_to(path)]
        except TestbedError as error:
            raise RecordError(f"{error}, and no run begins without it") from error
        base = Path(os.path.commonpath([part.parent for part in parts]))
        into = Path("testbeds", name)
        for part in parts:
            _copy(part, folder / into / part.relative_to(base))
        kept[name] = str(into / path.relative_to(base))
    return kept


def kept_descriptions(record: RunRecord) -> dict[str, Testbed]:
    """The testbeds of a run as they were described when it began, by name.

    One whose copy is missing, or is no description to this version, is left out.
    """
    found = {}
    for name, file in record.header.get("descriptions", {}).items():
        try:
            found[name] = load(record.path.parent / file)
        except (TestbedError, OSError):
            continue
    return found


def _referred_to(path: Path) -> Iterator[Path]:
    if (baselines := baselines_path(path)).exists():
        yield baselines
    described = read(path).data
    plans = described.get("plans") if isinstance(described, dict) else None
    for plan in plans.values() if isinstance(plans, dict) else ():
        if isinstance(plan, dict) and isinstance(plan.get("file"), str):
            yield Path(os.path.abspath(path.parent / plan["file"]))


def _copy(source: Path, target: Path) -> None:
    try:
        with appearing(target) as hidden:
            hidden.write_bytes(source.read_bytes())
    except OSError as error:
        raise RecordError(f"{source}: {error.strerror}, and no run begins without it") from error
