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
TrustedKey = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="Public key that must have signed both sheets."),
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
def compare(before: Path_, after: After, key: TrustedKey = None, as_json: AsJson = False) -> None:
    """Show the clauses whose verdict or value differs beyond chance, and ports that differ.

    Exit 0 for none, 1 for some, 2 for a sheet that cannot be read or was changed after it was
    signed; with `--key` also for one that this key has not signed.
    """
    first, second = (_trusted(path, key) for path in (before, after))
    found = list(differences(first, second))
    if as_json:
        print_json([vars(each) for each in found])
    else:
        for path, one in ((before, first), (after, second)):
            echo(f"{path}: {one.identity}, profile {one.profile}, {one.ports}, {one.made}")
        for each in found:
            echo(f"{each.number} {each.title}: {each.before} -> {each.after}")
        if not found:
            echo("no verdict differs, and no value by more than chance")
    if found:
        raise typer.Exit(NO)


def _trusted(path: Path, key: Path | None) -> Sheet:
    """Return a sheet whose signature fits; say how far it can be trusted."""
    try:
        found = read_sheet(path)
        if found.signature is None and key is None:
            echo(f"{path}: not signed", err=True)
            return found
        from lightrig.harness.certify import signing  # noqa: PLC0415 - loads cryptography

        signing.verify(found, None if key is None else signing.public_key(key))
    except SheetError as error:
        text = str(error)
        give_up(text if text.startswith(str(path)) else f"{path}: NOT compared: {text}", BAD_INPUT)
    if key is None and found.signature is not None:
        whose = f"signed by {found.signature.key[:16]}..., a key that nobody vouches for here"
        echo(f"{path}: {whose} (--key FILE names the trusted one)", err=True)
    return found
