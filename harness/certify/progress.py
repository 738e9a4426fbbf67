"""A certification in progress on disk: what is left of it after a kill, for `--resume`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from lightrig.harness.bench import Fabric
from lightrig.harness.certify.configuration import Configuration
from lightrig.harness.certify.sheet import ClauseResult, SheetError
from lightrig.harness.record.places import appearing
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds.json_text import from_json


class Progress(BaseModel):
    """Clauses that have ended, and those that were begun.

    Attributes:
        of: what is certified, and how; a resumed process must be of the same.
        found: the configuration before the first clause.
        results: of the clauses that have ended.
        begun: the clause that was begun last and has not ended; empty for none.
        interrupted: clauses that were begun and whose process has ended.
        down: devices of servers, as "SERVER DEVICE", that were brought down meanwhile.
    """

    model_config = ConfigDict(extra="forbid")

    format: Literal["lightrig certification in progress 1"] = "lightrig certification in progress 1"
    of: Mapping[str, str]
    found: Configuration
    results: list[ClauseResult] = []
    begun: str = ""
    interrupted: list[str] = []
    down: list[str] = []

    @classmethod
    def resumed(cls, path: Path, of: Mapping[str, str]) -> "Progress | None":
        """Return what an earlier process has left at `path`; None for nothing.

        Raises `SheetError` where it is of something else, or cannot be read.
        """
        try:
            left = cls.model_validate(from_json(path.read_bytes()))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SheetError(f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise SheetError(f"{path} is no progress: {str(error).splitlines()[0]}") from error
        if differing := [key for key in of if left.of.get(key) != of[key]]:
            stated = ", ".join(f"{k} {left.of.get(k)!r}, now {of[k]!r}" for k in differing)
            raise SheetError(f"{path} is of another certification: {stated}")
        if left.begun:
            left.interrupted.append(left.begun)
            left.begun = ""
        return left

    @classmethod
    def left_by(cls, path: Path, switch: str) -> "Progress | None":
        """Return what a killed process has left of this switch; None for nothing, or of another."""
        try:
            return cls.resumed(path, {"switch": switch})
        except SheetError:
            return None

    def give_back(self, fabric: Fabric) -> None:
        """Give back what the process had found; raises the first `LightrigError`."""
        name = self.of["switch"].partition(":")[0]
        try:
            for server, _, netdev in (each.partition(" ") for each in self.down):
                host = fabric.bench.servers.get(server)
                if isinstance(host, LinuxServer):
                    host.nic.set_device(netdev, up=True)
        finally:
            self.found.give_back(fabric.bench.switches[name])

    def write(self, path: Path) -> None:
        """Write it whole or not at all; raises `OSError`."""
        with appearing(path) as draft:
            document = self.model_dump(mode="json", by_alias=True)
            draft.write_text(json.dumps(document) + "\n", encoding="utf-8")
