"""`lightrig replay`: a recorded wire trace as an instrument on loopback, in real time."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from lightrig.harness.cli.common import BAD_INPUT, AsJson, give_up
from lightrig.harness.cli.terminal import err, out
from lightrig.harness.signals import ended_by_signal
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.transcript import Transcript, TranscriptError, read
from lightrig.instruments.simulated.faults.replay_device import ReplayDevice
from lightrig.instruments.simulated.protocols.device_server import DeviceServer
from lightrig.instruments.simulated.protocols.listeners import serve
from lightrig.testbeds import LightrigError

LOGIN = ("replay", "replay")
"""Login of a replayed SSH host; it was never a secret."""

Trace = Annotated[Path, typer.Argument(metavar="TRACE", help="A recorded trace (JSON lines).")]
Port = Annotated[int, typer.Option(help="TCP port; any free one by default.")]


def replay(trace: Trace, port: Port = 0, as_json: AsJson = False) -> None:
    """Serve the replies of a recorded trace on loopback until Ctrl-C; print the address.

    Queries that are not in the trace are reported on stderr.
    """
    recording = _read(trace)
    clock = SystemClock()
    server = DeviceServer(clock)
    try:
        peer = ReplayDevice(recording, clock, _tell_unknown)
        service = serve(peer.name, peer, peer.scheme, server, LOGIN, port, resource=peer.resource)
        with ended_by_signal() as over:
            if as_json:
                row = {"name": peer.name, "address": service.address, **recording.about}
                if service.known_hosts:
                    row |= {"login": ":".join(LOGIN), "known_hosts": service.known_hosts}
                if service.certificate:
                    row |= {"login": ":".join(LOGIN), "certificate": service.certificate}
                sys.stdout.write(json.dumps([row]) + "\n")
                sys.stdout.flush()
            else:
                known = ", ".join(f"{key} {value}" for key, value in recording.about.items())
                out.print(f"{trace}: {known}", soft_wrap=True)
                if service.known_hosts:
                    out.print(f"login {':'.join(LOGIN)}, known_hosts:")
                    out.print(service.known_hosts, soft_wrap=True)
                if service.certificate:
                    out.print(f"login {':'.join(LOGIN)}, certificate:")
                    out.print(service.certificate, soft_wrap=True)
                out.print(f"{service.address}, in real time; Ctrl-C ends it")
            over.wait()
    except LightrigError as error:
        give_up(str(error), BAD_INPUT)
    except OSError as error:
        give_up(f"port {port}: {error.strerror}; try another --port", BAD_INPUT)
    finally:
        server.close()
        clock.close()


def _read(trace: Path) -> Transcript:
    try:
        return read(trace)
    except TranscriptError as error:
        give_up(str(error), BAD_INPUT)
    except OSError as error:
        give_up(f"{trace}: {error.strerror}", BAD_INPUT)


def _tell_unknown(question: bytes) -> None:
    err.print(f"not in the trace: {question!r}", soft_wrap=True)
