"""A rack with one simulated SONiC switch, bound or as a testbed file, and changed replies of it."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench, bind
from lightrig.instruments.simulated.devices.simulated_sonic_ocs import SimulatedSonicOcs
from lightrig.instruments.simulated.devices.sonic_switch import SonicSwitch
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome
from lightrig.testbeds import load

N = 24
"""Ports on each side."""


def rack(folder: Path, options: str = "", scheme: str = "gnmi") -> Path:
    path = folder / "rack.yaml"
    path.write_text(
        f'name: rack\nswitches: {{ocs: {{model: sonic-ocs, address: "{scheme}://ocs.invalid", '
        f"size: {N}x{N}, options: {{{options}}}}}}}\n"
    )
    return path


@contextlib.contextmanager
def bench(folder: Path, options: str = "") -> Iterator[Bench]:
    bound = bind(load(rack(folder, options)), "simulated", seed=4)
    try:
        yield bound
    finally:
        bound.close()


Table = dict[str, dict[str, str]]
Answer = Callable[[SimulatedSonicOcs, Sequence[str], ProgramOutcome], ProgramOutcome]


def let_programs_print(patch: pytest.MonkeyPatch, answer: Answer) -> None:
    """Pass the outcome of each program of simulated switches through `answer`."""
    run = SimulatedSonicOcs.run

    def changed(device: SimulatedSonicOcs, argv: Sequence[str]) -> ProgramOutcome:
        return answer(device, argv, run(device, argv))

    patch.setattr(SimulatedSonicOcs, "run", changed)


def let_states_be(patch: pytest.MonkeyPatch, change: Callable[[SonicSwitch, Table], Table]) -> None:
    """Pass the states of cross-connects in the databases of switches through `change`."""
    table = SonicSwitch.table

    def changed(device: SonicSwitch, database: str, name: str) -> Table:
        found = table(device, database, name)
        return change(device, found) if (database, name) == STATES else found

    patch.setattr(SonicSwitch, "table", changed)


STATES = ("STATE_DB", "OCS_CROSS_CONNECT")


def refuse_subscriptions(patch: pytest.MonkeyPatch) -> None:
    """Let switches refuse every gNMI subscription (`UNIMPLEMENTED`)."""
    from lightrig.instruments.simulated.devices import sonic_gnmi
    from lightrig.instruments.simulated.protocols.device_server import DeviceConnection
    from lightrig.instruments.simulated.protocols.grpc_server import trailers

    call = sonic_gnmi.SonicGnmi.call

    class RefusingCall:
        def __init__(self, connection: DeviceConnection, call: sonic_gnmi.GnmiCall) -> None:
            self.connection, self.call = connection, call

        def received(self, data: bytes) -> None:
            method, _, message = data.partition(b"\n")
            if not method.endswith(b"Subscribe"):
                self.call.received(data)
            elif message:
                refusal = trailers(sonic_gnmi.UNIMPLEMENTED, "no subscriptions")
                self.connection.send(refusal)

        def closed(self) -> None:
            self.call.closed()

    def refusing(
        service: sonic_gnmi.SonicGnmi, connection: DeviceConnection, index: int
    ) -> RefusingCall:
        return RefusingCall(connection, call(service, connection, index))

    patch.setattr(sonic_gnmi.SonicGnmi, "call", refusing)
