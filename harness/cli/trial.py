"""`lightrig trial`: what a setting of the bench changes in a quantity."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lightrig.harness.bench.restoring import NOT_AS_FOUND, NotRestoredError
from lightrig.harness.cli import completion
from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    RESULTS,
    AsJson,
    File,
    give_up,
    load_testbed,
    print_json,
)
from lightrig.harness.cli.lab import Instruments, Queue, Seed, in_turn, interruptible, lab_or_limit
from lightrig.harness.cli.requests import takes
from lightrig.harness.cli.terminal import err, out
from lightrig.harness.measure.setting_trials import MOST_BLOCKS, TrialResult
from lightrig.harness.notebook.lab import Lab, open_lab
from lightrig.harness.quantities.registry import UnknownQuantityError
from lightrig.harness.statistics.samples import SampleError
from lightrig.testbeds import LightrigError, QuantityError


@dataclass(frozen=True)
class TrialRequest:
    """Arguments of `lightrig trial`."""

    file: File
    vary: Annotated[
        str,
        typer.Option(
            metavar="NAME=A,B...",
            help="A setting and its values, the first to compare with: *.fec=rs,off.",
            autocompletion=completion.settings,
        ),
    ]
    measure: Annotated[
        str,
        typer.Option(
            metavar="QUANTITY",
            help="optical_power, relock, its stage such as relock.phy, or a duration such as "
            "reconfiguration.carrier_up.",
        ),
    ]
    at: Annotated[str, typer.Option(metavar="SUBJECT", help="Where: a port or channel.")] = ""
    matters: Annotated[
        str,
        typer.Option(
            metavar="EFFECT", help="The smallest effect that matters: 2%, or 0.1dB for powers."
        ),
    ] = ""
    hold: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="NAME=VALUE", help="Another setting for the time of the trial."
        ),
    ] = None
    most_blocks: Annotated[
        int, typer.Option("--most-blocks", metavar="N", min=8, help="Blocks that are allowed.")
    ] = MOST_BLOCKS
    settle: Annotated[
        str, typer.Option(metavar="TIME", help="Between a change of the setting and a measurement.")
    ] = "0 s"
    instruments: Instruments = "hardware"
    seed: Seed = 0
    queue: Queue = ""
    results: Annotated[Path, typer.Option("--results", help="Folder of the results.")] = Path(
        RESULTS
    )
    as_json: AsJson = False


@takes(TrialRequest)
def trial(request: TrialRequest) -> None:
    """Vary a setting in random blocks, and tell what it changes in a quantity, with an interval.

    Settings are those of `lightrig set`, and autoneg, speed and fec of a NIC port or of all, *.fec.

    A pilot of some blocks says how many are needed for the smallest effect that matters. That plan
    is printed before the first block and is not changed; --seed is of the orders too. What is
    measured is a run by hand. All is put back, also after Ctrl-C; after a kill `lightrig restore`
    restores it. Exit 0 once the trial is whole, 2 for an invalid file, name, value or limit, or
    where more blocks are needed than allowed, 3 if an instrument refused or did not answer, 6 if
    something could not be put back.
    """
    testbed = load_testbed(request.file)
    name, values = _split("--vary", request.vary)
    hold = dict(_split("--with", text) for text in request.hold or ())

    def opened() -> Lab:
        return open_lab(
            request.file,
            request.instruments,
            seed=request.seed,
            idle=None,
            results=request.results,
            notify=lambda sentence: err.print(sentence, soft_wrap=True),
        )

    with interruptible("what was found is restored"):
        lab = in_turn(testbed, request.queue, opened, mode=request.instruments)
        try:
            found = lab_or_limit(
                lambda: _checked(
                    lambda: lab.trial(
                        name,
                        values.split(","),
                        request.measure,
                        at=request.at,
                        matters=request.matters,
                        hold=hold,
                        most_blocks=request.most_blocks,
                        settle=request.settle,
                        seed=request.seed,
                    )
                )
            )
        finally:
            _close(lab)
    if request.as_json:
        print_json(found.document())
    else:
        for sentence in found.sentences:
            out.print(sentence, soft_wrap=True)


def _checked(measure: Callable[[], TrialResult]) -> TrialResult:
    """Measure a trial; what is asked for and cannot be is bad input."""
    try:
        return measure()
    except (QuantityError, SampleError, UnknownQuantityError) as error:
        give_up(str(error), BAD_INPUT)


def _close(lab: Lab) -> None:
    try:
        lab.close()
    except NotRestoredError as error:
        give_up(str(error), NOT_AS_FOUND)
    except LightrigError as error:
        give_up(str(error), LAB_ERROR)


def _split(option: str, text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name or not value:
        give_up(f"{option}: found {text!r}, expected NAME=VALUE", BAD_INPUT)
    return name.strip(), value.strip()
