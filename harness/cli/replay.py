"""`lightrig replay`: a recorded wire trace as an instrument on loopback, in real time."""

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from lightrig.harness.cli.common import BAD_INPUT, AsJson, give_up, load_testbed
from lightrig.harness.cli.terminal import err, out
from lightrig.harness.record.bundle_archive import is_archive, unpack
from lightrig.harness.signals import ended_by_signal
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.transcript import Transcript, TranscriptError, read
from lightrig.instruments.simulated.faults.replay_device import ReplayDevice
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.listeners import Service, serve
from lightrig.instruments.temporary_folders import TemporaryFolder
from lightrig.testbeds import LightrigError
from lightrig.testbeds.escaping import escape_line
from lightrig.testbeds.findings import did_you_mean
from lightrig.testbeds.readdressing import addresses_of, readdressed

LOGIN = ("replay", "replay")
"""Login of a replayed SSH host; it was never a secret."""

VARIABLE = "LIGHTRIG_REPLAYED"
"""The variable that a written testbed file names for the login."""

Trace = Annotated[
    Path,
    typer.Argument(
        metavar="TRACE",
        help="A recorded trace (JSON lines), or an archive of `lightrig results bundle`.",
    ),
]
Test = Annotated[
    str | None, typer.Option(metavar="NAME", help="The test of an archive that has several.")
]
Port = Annotated[int, typer.Option(help="TCP port, of the first; any free one by default.")]
Write = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the archive's testbed file with these addresses."),
]


def replay(
    trace: Trace,
    test: Test = None,
    port: Port = 0,
    write: Write = None,
    as_json: AsJson = False,
) -> None:
    """Serve the replies of a recorded trace on loopback until Ctrl-C; print the address.

    Of an archive all instruments of one test are served. Queries that are not in the trace are
    reported on stderr, as are traces that can only be read: NETCONF and RESTCONF have no framing
    there.
    """
    with contextlib.ExitStack() as stack:
        folder = None
        try:
            if is_archive(trace):
                made = stack.enter_context(TemporaryFolder("replay"))
                folder = Path(made)
                unpack(trace, folder)
                recordings = _of_test(trace, folder, test)
            elif write is not None or test is not None:
                give_up(f"{trace}: --test and --write are for archives of a test", BAD_INPUT)
            else:
                recordings = [read(trace)]
        except LightrigError as error:
            give_up(str(error), BAD_INPUT)
        except OSError as error:
            give_up(f"{trace}: {error.strerror}", BAD_INPUT)
        clock = SystemClock()
        stack.callback(clock.close)
        server = DeviceServer(clock)
        stack.callback(server.close)
        try:
            services = dict(_served(recordings, server, clock, port))
            with ended_by_signal() as over:
                if write is not None and folder is not None:
                    _write(folder, write, services)
                _show(trace, recordings, services, write, as_json=as_json)
                over.wait()
        except LightrigError as error:
            give_up(str(error), BAD_INPUT)
        except OSError as error:
            give_up(f"port {port}: {error.strerror}; try another --port", BAD_INPUT)


def _of_test(archive: Path, folder: Path, test: str | None) -> list[Transcript]:
    """Return the recordings of one test of an archive, or end the command with what it has."""
    tests: dict[Path, list[Transcript]] = {}
    for path in sorted(folder.glob("traces/*/*.jsonl")):
        tests.setdefault(path.parent, []).append(read(path))
    if not tests:
        give_up(f"{archive} has no traces", BAD_INPUT)
    names = {place: found[0].about.get("test", place.name) for place, found in tests.items()}
    chosen = [
        place
        for place, name in names.items()
        if test is None or test in (name, place.name) or _function(test) == _function(name)
    ]
    exact = [place for place in chosen if test in (names[place], names[place].rpartition("::")[2])]
    chosen = exact or chosen
    if not chosen:
        guess = did_you_mean(test or "", sorted(names.values()))
        give_up(f"{archive} has no test {test!r}{guess}", BAD_INPUT)
    if len({names[place] for place in chosen}) > 1:
        listed = "\n  ".join(sorted({names[place] for place in chosen}))
        give_up(f"{archive} has several tests; name one by --test:\n  {listed}", BAD_INPUT)
    return tests[chosen[-1]]  # its last attempt


def _function(name: str) -> str:
    return name.rpartition("::")[2].partition("[")[0]


def _served(
    recordings: Sequence[Transcript], server: DeviceServer, clock: SystemClock, port: int
) -> Iterator[tuple[str, Service]]:
    """Serve what can be replayed; say what cannot. Raises `TranscriptError` for a single one."""
    for recording in recordings:
        try:
            peer = ReplayDevice(recording, clock, _tell_unknown)
        except TranscriptError as error:
            if len(recordings) == 1:
                raise
            err.print(escape_line(f"not replayed: {error}"), soft_wrap=True)
            continue
        yield (
            peer.name,
            serve(peer.name, peer, peer.scheme, server, LOGIN, port, resource=peer.resource),
        )
        port += bool(port)


def _write(folder: Path, target: Path, services: Mapping[str, Service]) -> None:
    """Write the testbed file of an archive with the addresses of what is served, and no others."""
    found = [
        testbed
        for path in sorted(folder.glob("testbeds/*/*.yaml"))
        if not path.stem.endswith((".baselines", ".exceptions", ".references"))
        for testbed in [load_testbed(path)]
        if services.keys() <= addresses_of(testbed).keys()
    ]
    if not found:
        give_up(f"no testbed file of the archive has {', '.join(services)}", BAD_INPUT)
    testbed = found[0]
    # What is not served here must not be looked for in the network of whoever opens the archive.
    nowhere = {
        name: f"{address.partition('://')[0]}://{name}.invalid"
        for name, address in addresses_of(testbed).items()
        if not address.startswith("netns://")
    }
    known_hosts = target.with_name(f"{target.stem}.known_hosts")
    certificates = target.with_name(f"{target.stem}.certificates")
    text = readdressed(
        testbed.path,
        {**nowhere, **{name: service.address for name, service in services.items()}},
        login=f"env:{VARIABLE}",
        known_hosts=known_hosts,
        target=target,
        certificates=certificates,
    )
    try:
        lines = (one.known_hosts for one in services.values() if one.known_hosts)
        known_hosts.write_text("".join(f"{line}\n" for line in lines))
        if shown := "".join(one.certificate for one in services.values()):
            certificates.write_text(shown)
        target.write_text(text)
    except OSError as error:
        give_up(f"{error.filename}: {error.strerror}", BAD_INPUT)


def _show(
    trace: Path,
    recordings: Sequence[Transcript],
    services: Mapping[str, Service],
    written: Path | None,
    *,
    as_json: bool,
) -> None:
    about = {one.about.get("instrument", "replay"): one.about for one in recordings}
    if as_json:
        rows = [_row(name, service, about[name]) for name, service in services.items()]
        sys.stdout.write(json.dumps(rows) + "\n")
        sys.stdout.flush()
        return
    for name, service in services.items():
        known = ", ".join(f"{key} {value}" for key, value in about[name].items())
        out.print(f"{trace}: {escape_line(known)}", soft_wrap=True)
        if service.known_hosts:
            out.print(f"login {':'.join(LOGIN)}, known_hosts:")
            out.print(service.known_hosts, soft_wrap=True)
        if service.certificate:
            out.print(f"login {':'.join(LOGIN)}, certificate:")
            out.print(service.certificate, soft_wrap=True)
        out.print(f"{service.address}, in real time; Ctrl-C ends it")
    if written is not None:
        out.print(f"export {VARIABLE}={':'.join(LOGIN)}", soft_wrap=True)
        out.print(f"testbed file: {shlex.quote(os.path.relpath(written))}", soft_wrap=True)


def _row(name: str, service: Service, about: Mapping[str, str]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "address": service.address, **about}
    if service.known_hosts:
        row |= {"login": ":".join(LOGIN), "known_hosts": service.known_hosts}
    if service.certificate:
        row |= {"login": ":".join(LOGIN), "certificate": service.certificate}
    return row


def _tell_unknown(question: bytes) -> None:
    err.print(f"not in the trace: {question!r}", soft_wrap=True)
