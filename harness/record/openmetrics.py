"""The newest run of each testbed as OpenMetrics text, for labs that draw their own dashboards.

Format: OpenMetrics 1.0 (openmetrics.io). The file is for the text file collector of an exporter, or
for a web server. Every sample has the label `simulated`: an alarm on a device asks for "false".
"""

from collections.abc import Iterator, Mapping

from lightrig.harness.record.results import Results
from lightrig.harness.record.run_folder import RunFacts
from lightrig.testbeds.escaping import escape_control

_OUTCOMES = ("passed", "failed", "error", "inconclusive", "skipped")
_SECONDS = {"ns": 1e-9}
_LABELS = ("testbed", "run", "quantity", "subject", "test")
_MEDIANS = """
SELECT testbed, run, quantity, subject, test, unit, simulated, median(value), count(*) FROM (
    SELECT *, coalesce(TRY_CAST(conditions->>'attempt' AS INTEGER), 1) AS attempt FROM rows
    WHERE (testbed, run) IN ({wanted})
    QUALIFY attempt = max(attempt) OVER (PARTITION BY testbed, run, test)
) WHERE isfinite(value) GROUP BY ALL ORDER BY ALL
"""


def openmetrics(results: Results) -> str:
    """Return the newest run of each testbed: outcomes, duration, and the median of each quantity.

    Durations are in seconds, other values in the unit that their label `unit` names. Raises
    `RecordError` for results that cannot be read.
    """
    newest: dict[str, RunFacts] = {}
    for facts in results.runs():
        if facts.by_hand:
            continue
        newest.update(dict.fromkeys(facts.testbeds, facts))
    lines = [
        "# TYPE lightrig_tests gauge",
        "# HELP lightrig_tests Tests of the newest run by outcome.",
    ]
    for testbed, facts in newest.items():
        for outcome in _OUTCOMES:
            labels = _labels(testbed=testbed, run=facts.run, outcome=outcome)
            lines.append(f"lightrig_tests{labels} {facts.count(outcome) or 0}")
    lines += [
        "# TYPE lightrig_run_duration_seconds gauge",
        "# UNIT lightrig_run_duration_seconds seconds",
        "# HELP lightrig_run_duration_seconds Duration of the newest run.",
    ]
    lines += [
        f"lightrig_run_duration_seconds{_labels(testbed=name, run=facts.run)} {facts.duration_s}"
        for name, facts in newest.items()
        if facts.duration_s is not None
    ]
    lines += [*_medians(results, newest), "# EOF"]
    return "\n".join(lines) + "\n"


def _medians(results: Results, newest: Mapping[str, RunFacts]) -> Iterator[str]:
    yield "# TYPE lightrig_median gauge"
    yield "# HELP lightrig_median Median of a quantity of a subject in the newest run."
    counts = ["# TYPE lightrig_samples gauge", "# HELP lightrig_samples Samples of that median."]
    if newest:
        wanted = ", ".join(f"({_sql(name)}, {_sql(facts.run)})" for name, facts in newest.items())
        found = results.query(_MEDIANS.format(wanted=wanted))
        for *texts, unit, simulated, median, n in found.itertuples(index=False):
            labels = dict(zip(_LABELS, map(str, texts), strict=True))
            labels |= {
                "unit": "s" if unit in _SECONDS else unit,
                "simulated": str(simulated).lower(),
            }
            yield f"lightrig_median{_labels(**labels)} {median * _SECONDS.get(unit, 1.0):.9g}"
            counts.append(f"lightrig_samples{_labels(**labels)} {n}")
    yield from counts


def _sql(text: str) -> str:
    """Return a text of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _labels(**labels: str) -> str:
    """Return labels as OpenMetrics writes them, with backslash, quote and line feed escaped."""
    escaped = {
        name: escape_control(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        for name, text in labels.items()
    }
    return "{" + ",".join(f'{name}="{text}"' for name, text in escaped.items()) + "}"
