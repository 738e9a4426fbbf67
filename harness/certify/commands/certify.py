"""`lightrig certify FILE SWITCH`: requirements of optical switches, tried on one of them."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.bench.leftovers import by_hand_notes
from lightrig.harness.certify.certification import Certification
from lightrig.harness.certify.configuration import Configuration
from lightrig.harness.certify.estimate import estimated_seconds
from lightrig.harness.certify.progress import Progress
from lightrig.harness.certify.requirements import requirements
from lightrig.harness.certify.sheet import ClauseResult, Sheet, SheetError
from lightrig.harness.certify.sheet import certify as run_clauses
from lightrig.harness.certify.subject import Trial
from lightrig.harness.cli.common import (
    BAD_INPUT,
    LAB_ERROR,
    NO,
    AsJson,
    File,
    echo,
    give_up,
    load_whole_testbed,
)
from lightrig.harness.cli.doctor import is_on_terminal
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
from lightrig.instruments.core.capabilities import OpticalSwitch
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.registry import open_instrument
from lightrig.testbeds import Testbed
from lightrig.testbeds.credentials import CredentialError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class Class(StrEnum):
    """A class of clauses that is not run by default."""

    INTERRUPTING = "interrupting"
    DESTRUCTIVE = "destructive"


QUICK_PORTS = 8
"""Number of cabled ports of each side that `--quick` uses."""


@dataclass(frozen=True, slots=True)
class CertifyOptions:
    """Arguments and options of the command."""

    file: File
    switch: Annotated[str, typer.Argument(metavar="SWITCH", help="An optical switch of the file.")]
    profile: Annotated[
        str, typer.Option(help="Profile of required clauses; by default the model's.")
    ] = ""
    allow: Annotated[
        list[Class] | None,
        typer.Option(help="Run clauses of this class as well; may be given twice."),
    ] = None
    quick: Annotated[
        bool, typer.Option("--quick", help=f"Use {QUICK_PORTS} ports a side, drawn.")
    ] = False
    resume: Annotated[bool, typer.Option("--resume", help="Go on where a killed run ended.")] = (
        False
    )
    operator: Annotated[
        bool, typer.Option("--operator", help="Ask you to do what no driver can.")
    ] = False
    hours: Annotated[
        float, typer.Option(metavar="H", min=0, help="Try the endurance for so many hours.")
    ] = 0.0
    wire: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="A further wire of the switch; repeat it."),
    ] = None
    key: Annotated[
        str,
        typer.Option(metavar="PLACE", help="Private key that signs: file:PATH or keyring:NAME."),
    ] = ""
    yes: Annotated[bool, typer.Option("--yes", help="Move circuits without a question.")] = False
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the sheet is written.")] = Path(
        "sheets"
    )
    instruments: Instruments = "auto"
    seed: Seed = 0
    queue: Queue = ""
    as_json: AsJson = False

    @property
    def progress(self) -> Path:
        """The file of a run that has not ended."""
        return self.out / f"{self.switch}.progress.json"

    def trial(self) -> Trial:
        """Return what may be tried, still without the further wires."""
        return Trial(
            self.seed,
            QUICK_PORTS if self.quick else None,
            frozenset[str]({"harmless", *(self.allow or ())}),
            _ask if self.operator else None,
            hours=self.hours,
        )

    def allowed(self) -> None:
        """Ask before circuits are moved; end the command where nobody can be asked."""
        if self.operator and not is_on_terminal():
            give_up("nothing was done: --operator needs a terminal", BAD_INPUT)
        if self.instruments != "simulated" and not self.yes:
            if not is_on_terminal():
                give_up("nothing was done: without a terminal, --yes allows the moves", BAD_INPUT)
            typer.confirm("Traffic over these ports stops meanwhile. Go on?", abort=True, err=True)

    def bench(self, testbed: Testbed) -> Bench:
        """Open the lab, or end the command."""
        mode, about = self.instruments, f"lightrig certify {self.switch}"
        # Only the clauses that use servers need them.
        opened = partial(bind, testbed, mode, self.seed, about, optional=testbed.servers)
        return in_turn(testbed, self.queue, opened, mode=mode)


@takes(CertifyOptions)
def certify(options: CertifyOptions) -> None:
    """Test an optical switch against its requirements, and write a sheet of verdicts.

    Only the testbed's ports are used, and only harmless clauses run unless others are allowed; all
    is restored. Exit 0 where each required clause has passed or is not applicable, 1 where one has
    not, 2 for bad input, 3 for trouble in the lab, 6 where the switch is not as found.
    """
    testbed = load_whole_testbed(options.file)
    profile = _profile(testbed, options.switch, options.profile)
    signing = _key(options.key)
    trial = options.trial()
    _announce(testbed, options.switch, profile, trial.permitted, trial.ports, options.hours)
    options.allowed()
    with interruptible("the switch is restored; --resume goes on"), ExitStack() as benches:
        bench = options.bench(testbed)
        for note in (*lab(lambda: by_hand_notes(testbed)), *bench.notes):
            echo(note, err=True)
        fabric = benches.enter_context(restored(bench))
        wires = lab(lambda: _open_wires(bench, options.switch, options.wire or []))
        for each in wires.values():
            benches.callback(each.close)
        trial = replace(trial, wires=wires)

        def renew() -> Fabric:
            benches.close()
            return benches.enter_context(restored(options.bench(testbed)))

        anew = renew if bench.in_process and not wires else None
        sheet = _signed(_sheet(options, fabric, profile, trial, anew), signing)
        try:
            written = sheet.write(options.out)
            options.progress.unlink(missing_ok=True)
        except OSError as error:
            give_up(f"{options.out}: {error.strerror}", LAB_ERROR)
        echo("written " + " and ".join(map(str, written)), err=options.as_json)
    if options.as_json:
        echo(sheet.text(), nl=False)
    if not sheet.meets_profile:
        raise typer.Exit(NO)


def _sheet(
    options: CertifyOptions,
    fabric: Fabric,
    profile: str,
    trial: Trial,
    renew: Callable[[], Fabric] | None,
) -> Sheet:
    """Try the clauses of a profile, those of a killed run excepted; each is on disk at once."""
    bench, switch, path = fabric.bench, options.switch, options.progress
    of = _of(bench, switch, profile, trial, options.file)
    progress = _begin(path, of, fabric, switch, resume=options.resume)

    def begin(number: str) -> None:
        progress.begun = number
        _write(progress, path)

    def before_down(server: str, netdev: str) -> None:
        if (device := f"{server} {netdev}") not in progress.down:
            progress.down.append(device)
            _write(progress, path)

    def keep(number: str, text: str) -> str:
        file = path.with_name(f"{switch}.{number}.traceback.txt")
        try:
            file.write_text(text, encoding="utf-8")
        except OSError:
            return ""
        return str(file)

    def end(result: ClauseResult) -> None:
        number = result.requirement.number
        if number not in {each.requirement.number for each in progress.results}:
            progress.begun = ""
            progress.results.append(result)
            _write(progress, path)
        name = f"{number} {result.requirement.title}"
        echo(f"{name:<45} {result.verdict}: {result.reason}", err=options.as_json)

    certification = Certification(
        fabric,
        switch,
        requirements().profiles[profile],
        replace(trial, before_down=before_down),
        renew=renew,
        known={each.requirement.number: each.outcome for each in progress.results},
        begin=begin,
        keep=keep,
    )
    return lab(
        lambda: run_clauses(
            certification,
            bench,
            profile,
            interrupted=tuple(progress.interrupted),
            progress=end,
        )
    )


def _ask(text: str) -> None:
    typer.prompt(f"{text} [Enter]", default="", show_default=False, err=True)


def _key(place: str) -> "Ed25519PrivateKey | None":
    """Return the key to sign with, before anything is done; None for none."""
    if not place:
        return None
    from lightrig.harness.certify.signing import private_key  # noqa: PLC0415 - only for signing

    try:
        return private_key(place)
    except CredentialError as error:
        give_up(f"--key {error}", BAD_INPUT)


def _signed(sheet: Sheet, key: "Ed25519PrivateKey | None") -> Sheet:
    if key is None:
        return sheet
    from lightrig.harness.certify.signing import sign  # noqa: PLC0415 - as above

    return sign(sheet, key)


def _open_wires(bench: Bench, switch: str, addresses: list[str]) -> Mapping[str, OpticalSwitch]:
    """Return a driver of the switch over each further wire, with the login of the first."""
    spec = bench.testbed.switches[switch]
    first: Endpoint | None = getattr(bench.switches[switch], "endpoint", None)
    found: dict[str, OpticalSwitch] = {}
    for address in addresses:
        endpoint = Endpoint.parse(address, first.login if first else None)
        opened = open_instrument(
            spec,
            replace(
                endpoint, known_hosts=bench.testbed.known_hosts, ssh_config=bench.testbed.ssh_config
            ),
            bench.clock,
        )
        found[address] = cast(OpticalSwitch, opened)
    return found


def _of(bench: Bench, switch: str, profile: str, trial: Trial, file: Path) -> Mapping[str, str]:
    """Return what a resumed run must have in common with the one that was killed."""
    return {
        "switch": f"{switch}: {bench.identities[switch]}",
        "testbed file": sha256(file.read_bytes()).hexdigest(),
        "profile": profile,
        "seed": str(trial.seed),
        "ports": str(trial.ports or "all"),
        "classes": ", ".join(sorted(trial.permitted)),
        "wires": ", ".join(trial.wires),
        "hours": f"{trial.hours:g}",
        "requirements": sha256(requirements().model_dump_json().encode()).hexdigest(),
    }


def _begin(
    path: Path, of: Mapping[str, str], fabric: Fabric, switch: str, *, resume: bool
) -> Progress:
    """Return what has been done so far; all that a killed run has changed is restored first."""
    driver = fabric.bench.switches[switch]
    if resume:
        try:
            left = Progress.resumed(path, of)
        except SheetError as error:
            give_up(str(error), BAD_INPUT)
        if left is not None:
            lab(fabric.save_initial_state)  # that of the killed run, where it has left one
            lab(fabric.restore)
            lab(lambda: left.give_back(fabric))
            return left
        echo(f"{path}: nothing to resume, begins anew", err=True)
    elif (before := Progress.left_by(path, of["switch"])) is not None:
        lab(lambda: before.give_back(fabric))
        echo(f"{path}: what a run that has not ended had changed is given back", err=True)
    ingress, egress = fabric.testbed.cabling.cabled_ports(switch)
    ports = sorted({*ingress, *egress})
    progress = Progress(of=of, found=lab(lambda: Configuration.found(driver, ports)))
    _write(progress, path)
    return progress


def _write(progress: Progress, path: Path) -> None:
    try:
        progress.write(path)
    except OSError as error:
        give_up(f"{path}: {error.strerror}", LAB_ERROR)


def _profile(testbed: Testbed, switch: str, profile: str) -> str:
    """Return the name of the profile to use, or end the command with the known names."""
    if switch not in testbed.optical_switches:
        known = ", ".join(testbed.optical_switches) or "none"
        give_up(f"{testbed.path} has no optical switch {switch!r}; it has {known}", BAD_INPUT)
    if not all(testbed.cabling.cabled_ports(switch)):
        give_up(f"{switch} has no cabled ports on one of its sides: nothing to test", BAD_INPUT)
    profiles = requirements().profiles
    name = profile or requirements().profile_of(testbed.switches[switch].model)
    if name not in profiles:
        give_up(f"no profile {name!r}; the profiles are {', '.join(profiles)}", BAD_INPUT)
    return name


def _announce(
    testbed: Testbed,
    switch: str,
    profile: str,
    permitted: frozenset[str],
    most: int | None,
    hours: float,
) -> None:
    """Print what will be tried, and how often each port is moved."""
    cabled = [len(side) for side in testbed.cabling.cabled_ports(switch)]
    used = [min(count, most or count) for count in cabled]
    sampled = "" if used == cabled else f", of {cabled[0]} and {cabled[1]}, drawn"
    echo(
        f"{switch}: profile {profile}, {used[0]} ingress and {used[1]} egress ports{sampled}",
        err=True,
    )
    moves, tried = 0, list[str]()
    for each in requirements().of(requirements().profiles[profile]):
        may_run = each.effect in permitted
        moves += each.moves if may_run else 0
        tried += [each.number] if may_run else []
        note = "" if may_run else ", not permitted"
        echo(f"  {each.number} {each.title} ({each.effect}{note})", err=True)
    lasting = f", and endurance for {hours:g} h" if hours else ""
    seconds = max(estimated_seconds(testbed, switch, tried, min(used)), 1)
    echo(
        f"Each port is moved at most {moves} times; about {seconds:.0f} s{lasting}. "
        "Then the circuits are restored.",
        err=True,
    )
