"""Move 64 circuits of a SONiC optical circuit switch: a command a circuit, and by one command.

The simulated switch takes the time that its description states for each command; before and after
differ in their number alone. Commands of the first kind are a delete and an add for each circuit,
as a program sends them that knows neither lists nor modes.
"""

import tempfile
from pathlib import Path

from lightrig.harness.bench import bind
from lightrig.instruments.switches.sonic_ocs import SonicOcs
from lightrig.testbeds import Circuit, load

N = 64
LAB = f"""
name: sonic
switches:
  ocs: {{model: sonic-ocs, address: "ssh://ocs.invalid", size: {N}x{N}}}
"""


def main() -> None:
    """Print commands and time, simulated, of both."""
    first = [Circuit(port, N + port) for port in range(1, N + 1)]
    second = [Circuit(port, N + port % N + 1) for port in range(1, N + 1)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sonic.yaml")
        file.write_text(LAB, encoding="utf-8")
        bench = bind(load(file), "simulated", 4)
        try:
            switch = bench.switches["ocs"]
            assert isinstance(switch, SonicOcs)
            switch.change([], first).done()
            began, sent = bench.clock.now(), 0
            for one in first:
                sent += _config(switch, "delete", one)
            for one in second:
                sent += _config(switch, "add", one)
            assert switch.circuits() == frozenset(second)
            print(f"a command a circuit   {sent:>4} commands  {_s(bench.clock.now() - began)}")
            operation = switch.change(second, first)
            took = operation.done().latest - operation.sent.earliest
            assert switch.circuits() == frozenset(first)
            (line,) = [each for each in switch.wire() if "config ocs" in each][-1:]
            sent = line.count("config ocs cross-connect")
            print(f"lists and ranges      {sent:>4} commands  {_s(took)}")
            print(f"the command           {line[line.index('config') :]}")
        finally:
            bench.close()


def _config(switch: SonicOcs, verb: str, circuit: Circuit) -> int:
    """Send one command for one circuit; return 1."""
    name = f"{circuit.ingress}A-{circuit.egress - N}B"
    shell = switch._connected()  # noqa: SLF001 -- the shell of a program that knows no driver
    result = shell.run(["config", "ocs", "cross-connect", verb, name])
    assert "succeeded" in result.stdout, result
    return 1


def _s(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:6.2f} s (simulated)"


if __name__ == "__main__":
    main()
