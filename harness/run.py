"""One run: its name, its folder, its journal, and what becomes of them at the end."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.bench import Bench
from harness.record import Context, Journal, Row, RunRecord, Scalar, read_journal, write_dataset
from instruments.clock import wall_time


class Run:
    """What one session measures, kept in `results/runs/<name>` from the first row on.

    Args:
        results: the folder of all runs.
        header: what the journal says of the run besides its name and night.
    """

    def __init__(self, results: Path, header: Mapping[str, Any]) -> None:
        now = wall_time()
        self.name = f"{now:%Y%m%d-%H%M%S}-{os.getpid():x}"
        self.folder = results / "runs" / self.name
        self._results = results
        self._journal = Journal(
            self.folder / "journal.jsonl", {"run": self.name, "night": f"{now:%F}", **header}
        )

    @property
    def report(self) -> Path:
        """Where the run's HTML report is written."""
        return self.folder / "report.html"

    def recorder(
        self, bench: Bench, test: str, conditions: Mapping[str, Scalar]
    ) -> Callable[[Sequence[Row]], None]:
        """A function that appends rows of `test`, with the identities of all that took part."""
        context = Context(
            bench.testbed.name,
            test,
            bench.participants(),
            bool(bench.simulated),
            {**conditions, "clock": "virtual" if bench.clock.virtual else "system"},
        )
        return lambda rows: self._journal.append_many(context, rows)

    def record(self) -> RunRecord:
        """The run as its journal tells it."""
        return read_journal(self._journal.path)

    def close(self, summary: Mapping[str, Any]) -> None:
        """End the journal and add its rows to the data set in `results/rows`."""
        self._journal.close(summary)
        write_dataset(self._journal.path, self._results / "rows")
