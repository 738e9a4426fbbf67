"""The command-line face: one module a command, brought together here.

Exit status: 0 yes, 1 no, 2 bad use or input, 3 lab trouble.
"""

import typer

from harness.cli.apply import apply
from harness.cli.check import check, schema
from harness.cli.claims import claims
from harness.cli.doctor import doctor
from harness.cli.generate import generate
from harness.cli.plan import plan
from harness.cli.reference import reference
from harness.cli.replay import replay
from harness.cli.report import report
from harness.cli.restore import restore
from harness.cli.results import results
from harness.cli.serve import serve

main = typer.Typer(
    help="Measure optical-circuit-switched ML fabrics. Suites run with pytest: "
    "pytest suites --testbed FILE",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

main.command(epilog="Example: lightrig check testbeds/opus.yaml")(check)
main.command(epilog="Example: lightrig doctor testbeds/mine.yaml")(doctor)
main.command(epilog="Example: lightrig serve testbeds/opus.yaml --write served.yaml")(serve)
main.command(epilog="Example: lightrig plan testbeds/opus.yaml north-south --from east-west")(plan)
main.command(epilog="Example: lightrig apply testbeds/mine.yaml crossed")(apply)
main.command(epilog="Example: lightrig restore testbeds/mine.yaml")(restore)
main.command(epilog="Example: lightrig reference testbeds/mine.yaml")(reference)
main.command(epilog="Example: lightrig report")(report)
main.add_typer(results, name="results")
main.command(epilog="Example: lightrig claims opus")(claims)
main.add_typer(generate, name="generate")
main.command(epilog="Example: lightrig replay traces/ocs.jsonl")(replay)
main.command(epilog="Example: lightrig schema > testbeds/schema.json")(schema)
