"""`lightrig sheet`: certification sheets verified and compared."""

from pathlib import Path
from typing import Annotated

import typer

from lightrig.harness.certify.sheet import Sheet, SheetError, read_sheet
from lightrig.harness.certify.sheet_comparison import differences
from lightrig.harness.cli.common import BAD_INPUT, NO, AsJson, echo, give_up, print_json

sheet = typer.Typer(
    help="Certification sheets: verify a signature, compare two.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Path_ = Annotated[Path, typer.Argument(metavar="SHEET", help="A sheet's JSON.")]
After = Annotated[Path, typer.Argument(metavar="AFTER", help="A later sheet, or of another unit.")]
PublicKey = Annotated[
    Path, typer.Option(metavar="FILE", help="Public key of the signer, PEM or a line of OpenSSH.")
]


@sheet.command(epilog="Example: lightrig sheet verify sheets/ocs.json --key lab.pub")
def verify(path: Path_, key: PublicKey) -> None:
    """Check that `--key` has signed a sheet as it is. Exit 0 yes, 1 no, 2 no sheet or no key."""
    from lightrig.harness.certify import signing  # noqa: PLC0415 - loads cryptography

    try:
        public = signing.public_key(key)
    except SheetError as error:
        give_up(str(error), BAD_INPUT)
    try:
        found = read_sheet(path)
        signing.verify(found, public)
    except SheetError as error:
        give_up(f"{path}: NOT verified: {error}", NO)
    simulated = sum(each.simulated for each in found.clauses)
    echo(
        f"{path}: signed by {key}; {found.switch} of {found.testbed}, made {found.made}, "
        f"{len(found.clauses)} clauses, {simulated} of them on a simulated switch"
    )


@sheet.command(epilog="Example: lightrig sheet compare sheets/old.json sheets/new.json")
def compare(before: Path_, after: After, as_json: AsJson = False) -> None:
    """Show the clauses whose verdict or value differs beyond chance. Exit 0 for none, 1 for some.

    Signatures are not checked: `lightrig sheet verify` does that.
    """
    first, second = _read(before), _read(after)
    found = list(differences(first, second))
    if as_json:
        print_json([vars(each) for each in found])
    else:
        for path, one in ((before, first), (after, second)):
            echo(f"{path}: {one.identity}, profile {one.profile}, {one.made}")
        for each in found:
            echo(f"{each.number} {each.title}: {each.before} -> {each.after}")
        if not found:
            echo("no verdict differs, and no value by more than chance")
    if found:
        raise typer.Exit(NO)


def _read(path: Path) -> Sheet:
    try:
        return read_sheet(path)
    except SheetError as error:
        give_up(str(error), BAD_INPUT)
