"""`lightrig train FILE -- SCRIPT`: a training script on circuits, and what they cost it."""

import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.cli.common import (
    BAD_INPUT,
    NO,
    AsJson,
    File,
    echo,
    give_up,
    load_whole_testbed,
    print_json,
)
from lightrig.harness.cli.lab import (
    Instruments,
    Queue,
    Seed,
    in_turn,
    interruptible,
    lab,
    restored,
)
from lightrig.harness.cli.requests import takes
from lightrig.harness.jobs.predicted_steps import PredictedStep
from lightrig.harness.jobs.script_calls import calls_that_cannot_run
from lightrig.harness.jobs.training import (
    RESULTS,
    Printed,
    Trainer,
    TrainingReport,
    TrainingRequest,
    TrainingRequestError,
)
from lightrig.harness.system_registry import installed_systems
from lightrig.harness.workloads import chakra
from lightrig.harness.workloads.graph import Workload, WorkloadError
from lightrig.testbeds import Testbed


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Arguments and options of the command."""

    file: File
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- SCRIPT [ARGUMENT]...",
            help="The script and its arguments, as for torchrun.",
        ),
    ]
    parallel: Annotated[
        str,
        typer.Option(
            metavar="NAME=N,...",
            help="Degrees, such as pp=2,dp=2; by default two pipeline stages.",
        ),
    ] = ""
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N,...",
            help="Run it with these degrees as well, on the first servers, and compute how waits "
            "grow; may be repeated.",
        ),
    ] = None
    ranks: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Use the first servers, a rank on each NIC; by default all."
        ),
    ] = None
    mode: Annotated[
        Literal["default", "provisioning"],
        typer.Option(help="Request circuits when needed, or once the phase before is over."),
    ] = "provisioning"
    results: Annotated[
        str,
        typer.Option(
            metavar="REGEX",
            help="Numbers to compare; by default those after the word loss.",
            show_default=False,
        ),
    ] = RESULTS
    max_restarts: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Start the script again after a failure, as torchrun does."
        ),
    ] = 0
    spare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SERVER",
            help="A server that a restart may use in place of a lost one; may be repeated.",
            show_default=False,
        ),
    ] = None
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAULT",
            help="Made in a simulation: cut:5s,step=4; cut:5s,step=4,port=server1.nic0.p0; "
            "kill:server1,step=4. Several are made one after another.",
            show_default=False,
        ),
    ] = None
    write_traces: Annotated[
        Path | None,
        typer.Option(
            metavar="PREFIX",
            help="Write a usual step as Chakra's files, for `lightrig simulate PREFIX FABRIC`.",
        ),
    ] = None
    store_prediction: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Append the predicted step, as a line of JSON, before the run that checks it.",
        ),
    ] = None
    socket: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Unix socket of `lightrig orchestrate`, which places the job beside others and "
            "moves its circuits.",
        ),
    ] = None
    instruments: Instruments = "auto"
    seed: Seed = 0
    queue: Queue = ""
    as_json: AsJson = False

    def request(self) -> TrainingRequest:
        """Read the script and the degrees, or end the command."""
        also = [parallel_degrees(each, "--also") for each in self.also or ()]
        path, *arguments = self.command
        try:
            re.compile(self.results)
            source = Path(path).read_text("utf-8")
            compile(source, path, "exec")
        except re.error as error:
            give_up(f"--results {self.results}: {error}", BAD_INPUT)
        except OSError as error:
            give_up(f"{path}: {error.strerror}", BAD_INPUT)
        except (SyntaxError, ValueError) as error:
            give_up(f"{path}: {error}", BAD_INPUT)
        if refused := [f"{path}:{each}" for each in calls_that_cannot_run(source)]:
            give_up("\n".join(refused), BAD_INPUT)
        return TrainingRequest(
            source=source,
            name=Path(path).name,
            arguments=arguments,
            parallel=parallel_degrees(self.parallel),
            mode=self.mode,
            results=self.results,
            ranks=self.ranks,
            also=also,
            max_restarts=self.max_restarts,
            spares=self.spare or (),
            faults=self.fault or (),
            predicted=partial(_predicted, Path(path).name, self.store_prediction, self.as_json),
        )


@takes(TrainOptions)
def train(options: TrainOptions) -> None:
    """Run a training script on a testbed's circuits, and show what they cost it.

    The script needs no change. It runs twice: on a ring of all ranks, which shows its phases, and
    on circuits that follow them; then the switches are restored. Each rank's lines are printed as
    they come. Exit 0 where all ranks printed the same numbers both times, 1 where they did not, 2
    for an invalid file or script, 3 if an instrument or the script failed, 130 where a signal
    ended it.
    """
    testbed = load_whole_testbed(options.file)
    request = options.request()
    trainer = _trainer(testbed)

    def printed(part: str, rank: int, line: str) -> None:
        try:
            echo(f"[{part}, rank {rank}] {line}", err=options.as_json)
        except BrokenPipeError:  # such as of `head`, on a thread that the ranks wait for
            os.kill(os.getpid(), signal.SIGTERM)

    with interruptible("the ranks have ended and the switches are restored"):
        about = f"lightrig train {request.name}"
        if options.socket is not None:
            report = lab(partial(_served, testbed, trainer, request, options.socket, printed))
        else:
            mode, seed = options.instruments, options.seed
            opened = partial(bind, testbed, mode, seed, about)
            bench = in_turn(testbed, options.queue, opened, mode=mode)
            with restored(bench) as fabric:
                report = lab(partial(_report, trainer, fabric, request, printed))
    if options.write_traces is not None:
        _write_traces(report, options.write_traces)
    if options.store_prediction is not None and not hasattr(report, "predicted"):
        echo(f"--store-prediction {options.store_prediction}: this system predicts no steps",
             err=True)  # fmt: skip
    if options.as_json:
        print_json(report.document())
    else:
        for line in report.lines():
            echo(line)
    if not report.as_printed_before:
        raise typer.Exit(NO)


def _predicted(script: str, file: Path | None, as_json: bool, step: PredictedStep | str) -> None:
    """Print the predicted step before the run that checks it, and store it where a file is named.

    Raises `TrainingRequestError` where it cannot be stored, before that run begins.
    """
    if isinstance(step, str):
        echo(f"predicted nothing: {step}", err=as_json)
        return
    if file is not None:
        try:
            step.store(file, script)
        except OSError as error:
            raise TrainingRequestError(f"--store-prediction {file}: {error.strerror}") from error
    echo(f"predicted {step.step}, computed from the run on the ring of all ranks", err=as_json)


def _write_traces(report: TrainingReport, prefix: Path) -> None:
    """Write the step that a report has recorded, or say why there is none."""
    recorded: Workload | str = getattr(report, "recorded", "this system records no steps")
    if isinstance(recorded, str):
        echo(f"--write-traces {prefix}: {recorded}", err=True)
        return
    try:
        count = chakra.write(recorded, prefix)
    except WorkloadError as error:
        echo(f"--write-traces {prefix}: {error}", err=True)
    except OSError as error:
        echo(f"--write-traces {prefix}: {error.strerror}", err=True)
    else:
        echo(f"{prefix}: traces of {count} ranks", err=True)


def _served(
    testbed: Testbed, trainer: Trainer, request: TrainingRequest, socket: Path, printed: Printed
) -> TrainingReport:
    """Run the script on the circuits of a service; raises `LightrigError`."""
    system = installed_systems()[testbed.system or ""]
    served_fabric = lab(lambda: system.load("served_fabric"))
    if served_fabric is None:
        give_up(f"--socket: {system.title} has no service of circuits", BAD_INPUT)
    try:
        with served_fabric(testbed, request, socket, f"lightrig train {request.name}") as fabric:
            return _report(trainer, fabric, request, printed)
    except TrainingRequestError as error:
        give_up(str(error), BAD_INPUT)


def _report(
    trainer: Trainer, fabric: Fabric, request: TrainingRequest, printed: Printed
) -> TrainingReport:
    try:
        return trainer(fabric, request, printed)
    except TrainingRequestError as error:
        give_up(str(error), BAD_INPUT)


def parallel_degrees(parallel: str, option: str = "--parallel") -> Mapping[str, int]:
    """Read `pp=2,dp=2`, or end the command."""
    degrees = {}
    for each in filter(None, parallel.split(",")):
        name, _, degree = each.partition("=")
        if not (name.isalpha() and degree.isdecimal() and int(degree) > 0) or name in degrees:
            give_up(f"{option} {parallel}: {each!r} is not NAME=N; write pp=2,dp=2", BAD_INPUT)
        degrees[name] = int(degree)
    return degrees


def _trainer(testbed: Testbed) -> Trainer:
    """Return the trainer of a testbed's system, or end the command with those that have one."""
    systems = installed_systems()
    system = systems.get(testbed.system or "")
    if system is None or system.trainer is None:
        able = ", ".join(name for name, each in systems.items() if each.trainer is not None)
        stated = f"its system, {testbed.system}," if testbed.system else "it names no system and"
        give_up(
            f"{testbed.path}: {stated} runs no training scripts; of the installed systems these "
            f"do: {able} (`system:` in the file)",
            BAD_INPUT,
        )
    trainer: Trainer = lab(lambda: system.load("trainer"))
    return trainer
