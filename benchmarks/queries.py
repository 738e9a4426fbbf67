"""Cost of a query through a session of Lightrig, beside a raw socket and three alternatives.

Every layer asks the same server, in turns of a few hundred questions, so that whatever else the
machine does meets all of them alike; where the system allows it, they come before that. The
server has one processor and whoever asks the other. The limit is 1.3 times the raw socket, with
the trace on. Then how long an instrument that has died goes unnoticed, and at what cost.

LIGHTRIG_PEERS names the Python of another environment for layers that this one lacks. Layers and
server are processes of this file, so nothing is imported before it is known to be wanted:

    queries.py serve CPU           prints its port, then answers until stdin ends
    queries.py ask LAYER PORT CPU  prints `ready` or why not, then for each line
                                   `time COMMAND COUNT` or `fault COMMAND` one JSON line
"""

import contextlib
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIMIT = 1.3
TURNS = 200
TIMEOUT = 2.0
"""Seconds that every layer waits for an answer."""
SHORT = "SENS1:POW:READ?"
LONG = "TRAC:DATA?"
FAULTS = ("CLOSE?", "HALF?", "RESET?", "SILENT?")
_LONG_ANSWER = b"1" * 99_999 + b"\n"
Ask = Callable[[str], object]
_numbers = itertools.count()


# ------------------------------------------------------------------------ the instrument


def serve() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)

    def accept() -> None:
        while True:
            line, _ = listener.accept()
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_answer, args=(line,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


def _answer(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := line.recv(4096):
            question = data.split(b"\n", 1)[0].rstrip()
            if data.startswith(b"RTRV"):
                tag = data.split(b":")[3].rstrip(b";")
                line.sendall(
                    b'\r\n\n   ocs 26-01-02 03:04:05\r\nM  %b COMPLD\r\n   "33:-3.25"\r\n;' % tag
                )
            elif question == LONG.encode():
                line.sendall(_LONG_ANSWER)
            elif question == b"CLOSE?":
                break
            elif question == b"HALF?":
                line.sendall(b"-3.2")
                break
            elif question == b"RESET?":
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                break
            elif question != b"SILENT?":
                line.sendall(b"-3.25000000E+000\n")
    line.close()


# ------------------------------------------------------------------------------ layers


def raw(port: int) -> Ask:
    line = socket.create_connection(("127.0.0.1", port), TIMEOUT)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answers = line.makefile("rb")

    def ask(command: str) -> bytes:
        line.sendall(command.encode() + b"\n")
        answer = answers.readline()
        if not answer.endswith(b"\n"):
            raise ConnectionError("the peer closed the connection")
        return answer

    return ask


def lightrig(port: int) -> Ask:
    from lightrig.instruments.clock import SystemClock
    from lightrig.instruments.core.endpoint import Endpoint
    from lightrig.instruments.wire.scpi import scpi_session

    session = scpi_session("meter", Endpoint("scpi", "127.0.0.1", port), SystemClock())
    return lambda command: session.query(command, int(TIMEOUT * 1e9)).text


def recorded(port: int) -> Ask:
    from lightrig.instruments.clock import SystemClock
    from lightrig.instruments.core.endpoint import Endpoint
    from lightrig.instruments.wire.scpi import scpi_session
    from lightrig.instruments.wire.trace import record

    clock = SystemClock()
    record(clock, Path(tempfile.mkdtemp(prefix="lightrig-recorded-")))
    session = scpi_session("meter", Endpoint("scpi", "127.0.0.1", port), clock)
    return lambda command: session.query(command, int(TIMEOUT * 1e9)).text


def tl1(port: int) -> Ask:
    from lightrig.instruments.clock import SystemClock
    from lightrig.instruments.wire.tl1 import Tl1Session

    session = Tl1Session("ocs", "127.0.0.1", port, SystemClock())
    return lambda _: session.command("RTRV-PORT-POWER", "33").lines


def pyvisa_py(port: int) -> Ask:
    import pyvisa

    return _visa(pyvisa.ResourceManager("@py"), port).query


def _visa(manager: Any, port: int) -> Any:
    instrument = manager.open_resource(f"TCPIP::127.0.0.1::{port}::SOCKET")
    instrument.read_termination = instrument.write_termination = "\n"
    instrument.timeout = TIMEOUT * 1000
    return instrument


def pymeasure(port: int) -> Ask:
    from pymeasure.adapters import VISAAdapter
    from pymeasure.instruments import Instrument

    adapter = VISAAdapter(
        f"TCPIP::127.0.0.1::{port}::SOCKET",
        visa_library="@py",
        read_termination="\n",
        write_termination="\n",
        timeout=TIMEOUT * 1000,
    )
    return Instrument(adapter, "meter", includeSCPI=False).ask


def qcodes(port: int) -> Ask:
    from qcodes.instrument import VisaInstrument

    address = f"TCPIP::127.0.0.1::{port}::SOCKET"
    name = f"meter{next(_numbers)}"
    meter = VisaInstrument(name, address, visalib="@py", terminator="\n", timeout=TIMEOUT)
    for parameter, command in (("power", SHORT), ("trace", LONG)):
        meter.add_parameter(parameter, get_cmd=command)
    parameters = {SHORT: meter.parameters["power"], LONG: meter.parameters["trace"]}
    return lambda command: parameters[command]() if command in parameters else meter.ask(command)


LAYERS = {
    "raw socket": raw,
    "lightrig": lightrig,
    "pyvisa-py": pyvisa_py,
    "pymeasure": pymeasure,
    "qcodes": qcodes,
    "lightrig, recorded": recorded,
    "lightrig TL1": tl1,
}


def ask(layer: str, port: int) -> None:
    try:
        question = LAYERS[layer](port)
    except ImportError as error:
        print(f"not installed: {error}", flush=True)
        return
    print("ready", flush=True)
    for line in sys.stdin:
        what, command, *count = line.split()
        if what == "time":
            result = _timed(question, command, int(count[0]))
        else:
            result = _failing(LAYERS[layer](port), command)
        print(json.dumps(result), flush=True)


def _timed(question: Ask, command: str, count: int) -> dict[str, Any]:
    question(command)
    cpu, start = time.process_time_ns(), time.perf_counter_ns()
    for _ in range(count):
        question(command)
    end = time.perf_counter_ns()
    return {
        "wall_us": (end - start) / count / 1e3,
        "cpu_us": (time.process_time_ns() - cpu) / count / 1e3,
    }


def _failing(question: Ask, command: str) -> dict[str, Any]:
    question(SHORT)
    _first(False)  # some layers keep a processor busy until their timeout
    cpu, start = time.process_time_ns(), time.perf_counter_ns()
    outcome = "an answer"
    try:
        question(command)
    except Exception as error:
        outcome = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return {
        "wall_ms": (time.perf_counter_ns() - start) / 1e6,
        "cpu_ms": (time.process_time_ns() - cpu) / 1e6,
        "outcome": outcome,
    }


def _first(wanted: bool) -> None:
    """Whether this process comes before whatever else the machine does, where that is allowed."""
    policy, priority = (os.SCHED_RR, 1) if wanted else (os.SCHED_OTHER, 0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, policy, os.sched_param(priority))


# ------------------------------------------------------------------------------ the benchmark


class Layer:
    """A process that asks through one layer of software."""

    def __init__(self, python: str, name: str, port: int, processor: int) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python, __file__, "ask", name, str(port), str(processor)],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.why_not = self._line() or "did not start"

    def tell(self, *words: object) -> dict[str, Any]:
        """Have it ask; returns what it found out."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith(("ready", "not installed", "{")):
                return line.strip()
        return ""


@contextmanager
def layers() -> Iterator[dict[str, Layer]]:
    """Those that can be had, ready to ask."""
    asking, answering = sorted(os.sched_getaffinity(0))[:2]
    server = subprocess.Popen(
        [sys.executable, __file__, "serve", str(answering)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    port = int(server.stdout.readline())
    found: dict[str, Layer] = {}
    for name in LAYERS:
        for python in filter(None, (sys.executable, os.environ.get("LIGHTRIG_PEERS"))):
            layer = Layer(python, name, port, asking)
            if layer.why_not == "ready":
                found[name] = layer
                break
            layer.close()
        else:
            print(f"  {name} left out: {layer.why_not}")
    yield found
    for layer in found.values():
        layer.close()
    server.communicate()


def cost(found: dict[str, Layer], command: str, count: int, most: float | None = None) -> None:
    """Print a table of what one question costs in each layer, in `TURNS` turns of `count`.

    most: of the raw socket's time that ours may take; None where no limit is stated.
    """
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in found}
    for _ in range(TURNS):
        for name, layer in found.items():
            turns[name].append(layer.tell("time", command, count))
    raw = [turn["wall_us"] for turn in turns["raw socket"]]
    print(f"  {'':<20}{'us':>8}{'least':>8}{'CPU us':>8}{'x raw':>8}{'of least':>9}")
    for name, each in turns.items():
        wall = [turn["wall_us"] for turn in each]
        cpu = min(turn["cpu_us"] for turn in each)
        ratio = statistics.median(ours / theirs for ours, theirs in zip(wall, raw, strict=True))
        print(
            f"  {name:<20}{statistics.median(wall):8.1f}{min(wall):8.1f}{cpu:8.1f}"
            f"{ratio:8.2f}{min(wall) / min(raw):9.2f}"
        )
        if most is not None and name == "lightrig":
            # Layers and the server are this file as a program, without the package around it.
            from benchmarks.figures import beside_limit

            processor = cpu / min(turn["cpu_us"] for turn in turns["raw socket"])
            ratios = sorted(a / b for a, b in zip(wall, raw, strict=True))
            low, high = ratios[len(ratios) // 20], ratios[-1 - len(ratios) // 20]
            beside_limit(
                "one query, of the raw socket's time", ratio, most,
                spread=f"median of {TURNS} turns, 90 % of them {low:.2f} to {high:.2f}",
                processor=processor,
            )  # fmt: skip


def faults(found: dict[str, Layer]) -> None:
    """Print how long each layer takes to notice that an instrument has died."""
    for fault in FAULTS:
        for name, layer in found.items():
            one = layer.tell("fault", fault)
            print(
                f"  {fault:<9}{name:<12}{one['wall_ms']:9.2f} ms {one['cpu_ms']:9.2f} ms CPU  "
                f"{one['outcome'][:55]}"
            )


def main() -> None:
    with layers() as found:
        text = {name: layer for name, layer in found.items() if "TL1" not in name}
        print(f"One query; the limit of lightrig is {LIMIT} times the raw socket")
        cost(found, SHORT, 50, LIMIT)
        print("An answer of 100,000 bytes")
        cost(text, LONG, 5)
        print("An instrument that dies; every layer waits 2 s")
        faults({name: layer for name, layer in text.items() if "recorded" not in name})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, {int(sys.argv[-1])})
        _first(True)
        serve() if sys.argv[1] == "serve" else ask(sys.argv[2], int(sys.argv[3]))
    else:
        main()
