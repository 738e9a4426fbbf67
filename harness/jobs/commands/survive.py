"""`lightrig survive FILE`: faults by light under a job of a collective library."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.cli import completion
from lightrig.harness.cli.common import (
    BAD_INPUT,
    NO,
    AsJson,
    File,
    echo,
    give_up,
    load_whole_testbed,
    named_plan,
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
from lightrig.harness.jobs.bench.jobs import CommandJobs, JobCollective, Jobs, JobSetting, Library
from lightrig.harness.jobs.measure.light_faults import (
    Fault,
    FaultError,
    FaultKind,
    draw_faults,
    parse_fault,
)
from lightrig.harness.jobs.measure.round_phase import RoundPhase
from lightrig.harness.jobs.measure.survival import Survival
from lightrig.harness.jobs.measure.survival_map import FaultRun, LongestFault, quiet_observation
from lightrig.harness.jobs.planning.rings import BrokenRingError, ring_order
from lightrig.harness.jobs.report.survival_page import survival_page
from lightrig.testbeds import Plan, QuantityError, Testbed
from lightrig.testbeds.quantities import format_duration, parse_duration


@dataclass(frozen=True, slots=True)
class SurviveOptions:
    """Arguments and options of the command."""

    file: File
    fault: Annotated[
        list[str],
        typer.Option(
            metavar="FAULT",
            help=(
                "cut:2s; cut:2s,one-way; cut:2s,return=1s; flap:1s,duty=0.3,number=4; swap:2s; "
                "dim:5s,loss=2%; restart:5s; plan:2s,to=NAME; cut:0.1s..30s looks for the longest "
                "that is survived. Several take turns."
            ),
        ),
    ]
    job: Annotated[JobCollective, typer.Option(help="What all ranks repeat.")] = "all_reduce"
    library: Annotated[
        Library, typer.Option(help="What the ranks communicate with; tcp is plain sockets.")
    ] = "tcp"
    plan: Annotated[
        str,
        typer.Option(
            metavar="PLAN",
            help="Plan with a ring of all servers; by default the first one.",
            autocompletion=completion.plans,
        ),
    ] = ""
    number: Annotated[int, typer.Option(min=1, max=10_000, help="Number of faults.")] = 1
    user_timeout: Annotated[
        str, typer.Option(metavar="TIME", help="TCP user timeout of --library tcp, such as 3s.")
    ] = ""
    timeout: Annotated[
        str,
        typer.Option(metavar="TIME", help="Of one operation of any library but tcp, such as 5s."),
    ] = ""
    retries: Annotated[
        int | None, typer.Option(min=1, max=15, help="net.ipv4.tcp_retries2 of the servers.")
    ] = None
    detector: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Silence after which openmpi or torchft takes a rank for dead."
        ),
    ] = ""
    environment: Annotated[
        Path, typer.Option(metavar="PATH", help="Virtual environment that has Open MPI.")
    ] = Path(".extras/openmpi")
    command: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="Job in place of --job and --library: prints rows of nccl-tests or rccl-tests.",
        ),
    ] = ""
    phase: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share of a round at which the light goes; else random."),
    ] = None
    reroute: Annotated[
        bool, typer.Option("--reroute", help="Lead packets over the links left; else they stay.")
    ] = False
    reform: Annotated[bool, typer.Option("--reform", help="After an error start the job anew.")] = (
        False
    )
    recovery: Annotated[
        str, typer.Option(metavar="TIME", help="What a job may take to go on: else it hangs.")
    ] = "60s"
    list_only: Annotated[
        bool, typer.Option("--list", help="Print the faults, one a line; make none.")
    ] = False
    page: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Write a page with map and timelines.")
    ] = None
    instruments: Instruments = "auto"
    seed: Seed = 0
    queue: Queue = ""
    as_json: AsJson = False

    def check(self) -> None:
        """End the command where options of a library are given with a command."""
        settings = {
            "--user-timeout": self.user_timeout,
            "--timeout": self.timeout,
            "--retries": self.retries,
            "--detector": self.detector,
            "--reroute": self.reroute,
            "--fault dim": "dim:" in str(self.fault),
        }
        if self.command and (given := [name for name, value in settings.items() if value]):
            give_up(f"{given[0]} is of the jobs of --library, not of a --command", BAD_INPUT)

    @property
    def setting(self) -> JobSetting:
        """How long the library and the kernel wait."""
        return JobSetting(
            _ns(self.user_timeout),
            _ns(self.timeout) or None,
            self.retries,
            _ns(self.detector) or None,
        )

    def jobs(self, bench: Bench) -> Jobs | CommandJobs:
        """Return the jobs of a bench."""
        if self.command:
            return CommandJobs(bench, self.command)
        return Jobs(bench, self.library, self.setting, self.environment)

    def run(self, bench: Bench, fabric: Fabric, jobs: Jobs | CommandJobs, plan: Plan) -> FaultRun:
        """Return the run that makes faults under a job."""
        return FaultRun(
            fabric=fabric,
            links=quiet_observation(bench),
            jobs=jobs,
            plan=plan,
            collective=self.job,
            reform=self.reform,
            timeout=_ns(self.recovery),
            phase=None if self.phase is None else RoundPhase(self.phase),
            reroute=self.reroute,
        )


@takes(SurviveOptions)
def survive(options: SurviveOptions) -> None:
    """Take a link's light away under a job whose every result is checked; show what becomes of it.

    The place and the moment of each fault are drawn by the seed. The job is started anew for
    each. Afterwards the switches are restored. Exit 0 where the job went on by itself each time,
    with right results, 1 where it did not, 2 for an invalid file, plan or fault, 3 if an
    instrument failed or the library is missing, 130 where a signal ended it.
    """
    options.check()
    testbed = load_whole_testbed(options.file)
    plan = named_plan(testbed, options.plan) if options.plan else _first_plan(testbed)
    kinds, bounds = _kinds(options.fault)
    faults = _drawn(testbed, plan, kinds, options.number, options.seed)
    if options.list_only:
        for each in faults:
            echo(each.line())
        return
    setting, search = options.setting, None if bounds is None else LongestFault(*bounds)
    with interruptible("the ranks have ended and the switches are restored"):
        about = f"lightrig survive {options.job}"
        mode, seed = options.instruments, options.seed
        opened = partial(bind, testbed, mode, seed, about)
        bench = in_turn(testbed, options.queue, opened, mode=mode)
        with restored(bench) as fabric, _closed(partial(options.jobs, bench)) as jobs:
            run = options.run(bench, fabric, jobs, plan)
            found = []
            for each in search.faults(faults) if search else faults:
                survival = lab(partial(run.under, each))
                found.append(survival)
                if search:
                    search.found(survival)
                if not options.as_json:
                    _show(survival)
    _summarize(found, search, sorted(bench.simulated), as_json=options.as_json)
    if options.page is not None:
        title = options.command or f"{options.job} over {options.library} ({setting})"
        options.page.write_text(survival_page(title, testbed.name, found, search), "utf-8")
    if not all(each.went_on for each in found):
        raise typer.Exit(NO)


def _summarize(
    found: Sequence[Survival], search: LongestFault | None, simulated: list[str], *, as_json: bool
) -> None:
    if as_json:
        longest = {"longest": str(search)} if search else {}
        print_json(
            {"faults": [_document(each) for each in found], **longest, "simulated": simulated}
        )
        return
    shares = Counter(each.outcome for each in found)
    echo(", ".join(f"{outcome}: {count}" for outcome, count in sorted(shares.items())))
    if search:
        echo(f"longest that half of the faults survive: {search}")
    if simulated:
        echo(f"simulated: {', '.join(simulated)}")


@contextmanager
def _closed(made: Callable[[], Jobs | CommandJobs]) -> Iterator[Jobs | CommandJobs]:
    jobs = lab(made)
    try:
        yield jobs
    finally:
        lab(jobs.close)


def _first_plan(testbed: Testbed) -> Plan:
    """Return the first plan with a ring of all servers, or end the command."""
    for plan in testbed.plans.values():
        try:
            ring_order(list(testbed.servers), testbed.links(plan))
        except BrokenRingError:
            continue
        return plan
    return give_up(f"{testbed.path}: no plan has a ring of all servers", BAD_INPUT)


def _kinds(texts: list[str]) -> tuple[list[FaultKind], tuple[int, int] | None]:
    """Return the faults, and the bounds of their durations where these are looked for."""
    try:
        match texts:
            case [text] if ".." in text:
                head, _, rest = text.partition("..")
                most = parse_fault(f"{head.partition(':')[0]}:{rest}")
                least = parse_fault(head)
                if not least.duration < most.duration:
                    give_up(f"--fault {text}: the first time is not the shorter one", BAD_INPUT)
                return [most], (least.duration, most.duration)
        return [parse_fault(text) for text in texts], None
    except FaultError as error:
        give_up(f"--fault {error}", BAD_INPUT)


def _drawn(
    testbed: Testbed, plan: Plan, kinds: list[FaultKind], number: int, seed: int
) -> list[Fault]:
    links = {each: testbed.links(each) for each in testbed.plans}
    try:
        return draw_faults(kinds, links[plan.name], number, seed, links)
    except FaultError as error:
        give_up(f"{testbed.path}: plan {plan.name}: {error}", BAD_INPUT)


def _ns(text: str) -> int:
    try:
        return parse_duration(text) if text else 0
    except QuantityError as error:
        give_up(str(error), BAD_INPUT)


def _document(found: Survival) -> dict[str, Any]:
    """Return a fault and what became of the job, times in ns from the command on."""
    began = found.began
    return {
        **json.loads(found.fault.line()),
        "outcome": found.outcome,
        "stall_ns": found.stall,
        "stalls_ns": found.stalls,
        "link_used": found.used,
        "dark_ns": list(found.dark),
        "exchanges": found.exchanges,
        "wrong": found.wrong,
        "error": found.error,
        "groups": [list(group) for group in found.groups],
        "phase": found.phase,
        "moments_ns": {
            name: [at.earliest - began, at.latest - began] for name, at in found.moments.items()
        },
    }


def _show(found: Survival) -> None:
    dark = f", {format_duration(sum(found.dark) / 2)} without carrier" if found.dark.latest else ""
    partner = f" and {found.fault.partner}" if found.fault.partner else ""
    echo(f"{found.fault.what} of {found.fault.link}{partner}: {found.outcome}")
    total = f" of {format_duration(found.stalls)} in all"
    if format_duration(found.stalls) == format_duration(found.stall) or not found.stalls:
        total = ""
    echo(f"  stall {format_duration(found.stall)}{total}{dark}; {found.wrong}", nl=False)
    echo(f" wrong results of {found.exchanges}; {found.error or 'no error'}")
    if found.used is None:
        echo("  not checked whether the job uses the link: its ports count no bytes")
    if found.phase is not None:
        echo(f"  light gone {found.phase:.2f} rounds after the last result")
    if found.outcome in ("re-formed", "parted"):
        groups = " | ".join(" ".join(group) for group in found.groups)
        echo(f"  went on as {groups}")
    if found.outcome not in ("error", "hang") and "rate back to 95 %" not in found.moments:
        echo("  the rate was not back to 95 % while it was watched")
    for name, at in found.moments.items():
        least, most = (f"{(end - found.began) / 1e9:.3f}" for end in at)
        bounds = most if least == most else f"{least} to {most}"
        echo(f"  {bounds:>16} s  {name}")
