"""pytest as a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import preloaded

ROOT = Path(__file__).parents[2]
QUIET = (
    *("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:anyio"),
    "--color=no",
)
NO_PAGE = ("-p", "no:html")


@dataclass(frozen=True)
class Ended:
    """Outcome of a run."""

    code: int
    output: str
    results: Path

    @property
    def rows(self) -> list[str]:
        """The row lines of its journal."""
        (journal,) = self.results.glob("runs/*/journal.jsonl")
        return [line for line in journal.read_text().splitlines() if line.startswith("[")]

    @property
    def page(self) -> Path:
        """Its report."""
        (page,) = self.results.glob("runs/*/report.html")
        return page


class Started:
    """A run that goes on."""

    def __init__(
        self, arguments: list[str], results: Path, environment: Mapping[str, str], *, fresh: bool
    ) -> None:
        self.results = results
        self.mark = uuid.uuid4().hex
        arguments = [*arguments, *QUIET, "--results", str(results)]
        marked = {**environment, "LIGHTRIG_MARK": self.mark}
        streams = (subprocess.PIPE, subprocess.STDOUT)
        self.process: preloaded.Process | subprocess.Popen[str]
        if fresh:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *arguments],
                cwd=ROOT,
                env=marked,
                stdout=streams[0],
                stderr=streams[1],
                text=True,
                start_new_session=True,
            )
        else:
            self.process = preloaded.Process(["pytest", *arguments], ROOT, marked, *streams)

    def signal(self, number: int) -> None:
        """As the terminal does: to the process and all that it has started."""
        os.killpg(self.process.pid, number)

    def end(self, timeout: float = 200) -> Ended:
        output, _ = self.process.communicate(timeout=timeout)
        assert self.process.returncode is not None
        return Ended(self.process.returncode, output, self.results)

    def left_behind(self) -> list[str]:
        """Processes that it has started and that still run."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_text().replace("\0", " "))
        return found


@contextlib.contextmanager
def started(
    arguments: Sequence[object],
    results: Path,
    environment: Mapping[str, str] | None = None,
    *,
    page: bool = False,
    fresh: bool = False,
) -> Iterator[Started]:
    """A run with these arguments, killed if it goes on for longer than anybody wants to know.

    page: whether it makes a report.
    fresh: whether it is a new Python: with a seed of hashes, and an environment, of its own.
    """
    clean = {k: v for k, v in (environment or os.environ).items() if not k.startswith("PYTEST")}
    if environment is None:
        clean["LIGHTRIG_STATE"] = str(results.parent / "state")
    options = () if page else NO_PAGE
    run = Started([*map(str, arguments), *options], results, clean, fresh=fresh)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.signal(signal.SIGKILL)
            run.process.wait()
        if run.process.stdout:
            run.process.stdout.close()
