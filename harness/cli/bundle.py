"""`lightrig results bundle`: tests of a run as one archive for the vendor."""

# Drawing takes a second to import: only this command pays it.
# ruff: noqa: PLC0415

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lightrig.harness.cli import completion
from lightrig.harness.cli.common import BAD_INPUT, LAB_ERROR, RESULTS, AsJson, give_up, print_json
from lightrig.harness.cli.terminal import err, out
from lightrig.testbeds import LightrigError
from lightrig.testbeds.escaping import escape_line


def bundle(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Its name, how it begins, or 'last'.",
            autocompletion=completion.runs,
        ),
    ],
    test: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A test, its end or a pattern; without, the tests that failed.",
        ),
    ] = None,
    anonymous: Annotated[
        bool,
        typer.Option(
            "--anonymous",
            help="Replace hosts, serial numbers, addresses and accounts, each always by the same "
            "other one of its length.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The archive; by default RUN.zip in this folder."),
    ] = None,
    place: Annotated[
        Path, typer.Option("--results", metavar="DIR", help="A folder of results.")
    ] = Path(RESULTS),
    as_json: AsJson = False,
) -> None:
    """Write tests of a run as one archive: page, rows, wire traffic, testbed file, identities.

    `lightrig replay` plays the traffic of such an archive. Passwords, tokens and SNMP communities
    are masked by where they stand and by their form; look through an archive before it leaves the
    lab. Exit 0, 2 for a run or test that is not known and for an archive above 1 GB, 3 for results
    that cannot be read or a file that cannot be written.
    """
    from lightrig.harness.record import QuestionError, Results
    from lightrig.harness.report.vendor_bundle import BundleError, write_bundle

    if not place.is_dir():
        give_up(f"{place}: no such folder of results", BAD_INPUT)
    try:
        name = Results(place).find(run).run
        target = output or Path(f"{name}{'-anonymous' * anonymous}.zip")
        with err.status(f"{target}: writing"):
            found = write_bundle(place, name, target, test, anonymous=anonymous)
    except (BundleError, QuestionError) as error:
        give_up(str(error), BAD_INPUT)
    except LightrigError as error:
        give_up(str(error), LAB_ERROR)
    except OSError as error:
        give_up(f"{error.filename}: {error.strerror}", LAB_ERROR)
    if as_json:
        print_json([{**asdict(found), "path": str(found.path)}])
        return
    tests = len(set(found.tests))
    out.print(
        f"{found.path}: {tests} test{'s' * (tests != 1)}, traffic of {found.traces} "
        f"recording{'s' * (found.traces != 1)}, {found.size / 1e6:.1f} MB",
        soft_wrap=True,
    )
    for recording, wire in found.unplayable.items():
        text = f"{recording}: recorded over {wire}, which `lightrig replay` cannot play"
        out.print(escape_line(text), soft_wrap=True)
    if not found.traces:
        out.print("no wire traffic: the run was older, or had --traces none", soft_wrap=True)
