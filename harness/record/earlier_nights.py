"""Values of the same test in earlier nights, for a measurement that compares with them."""

from pathlib import Path

from lightrig.harness.record.attempts import ATTEMPT, last_attempts
from lightrig.harness.record.nights import start_of_open_run
from lightrig.harness.record.row import Context

MOST_NIGHTS = 10
"""Latest nights that are read."""


def values_before(
    folder: Path, night: str, context: Context, quantity: str
) -> list[dict[str, float]]:
    """Return the values of a quantity in the nights before a run by subject, the oldest first.

    They are of the same testbed, test and conditions, and simulated only if `context` is. What was
    measured under `--faults` is compared with no other night. folder, night: of the run. Raises
    `RecordError` for results that cannot be read.
    """
    results = folder.parents[1]
    if "faults" in context.conditions or not (results / "rows").is_dir():
        return []
    # pandas and DuckDB, which no run needs that has no nights before it.
    from lightrig.harness.record.results import Results  # noqa: PLC0415

    found = []
    stated = {name: value for name, value in context.conditions.items() if name != ATTEMPT}
    start = start_of_open_run(folder, night)
    before = Results(results).frames_before(start, MOST_NIGHTS, context.testbed, quantity)
    for runs in before:
        values: dict[str, float] = {}
        for frame in map(last_attempts, runs):
            alike = (frame["test"] == context.test) & (frame["simulated"] == context.simulated)
            if "faults" in frame:
                alike &= frame["faults"].isna()
            for name, value in stated.items():
                alike &= frame[name] == value if name in frame else False
            of = frame[alike.fillna(value=False)]
            values |= dict(zip(of["subject"], map(float, of["value"]), strict=True))
        if values:
            found.append(values)
    return found
