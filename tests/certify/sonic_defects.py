"""Simulated SONiC switches with defects, and operators who cut their power or install firmware.

Defects are commands that nobody has given, and subscribers that are told late or not at all.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import pytest

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.devices.simulated_sonic_ocs import SimulatedSonicOcs
from lightrig.instruments.simulated.devices.sonic_switch import SonicSwitch
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome

Run = Callable[[SimulatedSonicOcs, Sequence[str]], ProgramOutcome]
RUN: Run = SimulatedSonicOcs.run
"""A program of a switch without a defect."""

_ADD = ["config", "ocs", "cross-connect", "add"]
_DELETE = ["config", "ocs", "cross-connect", "delete"]


def _made(device: SimulatedSonicOcs) -> list[str]:
    """Return the configured cross-connects by their ids, in the order of their ports."""
    ids = device.table("CONFIG_DB", "OCS_CROSS_CONNECT")
    return sorted(ids, key=lambda each: int(each.partition("A")[0]))


def _set(device: SimulatedSonicOcs, wanted: Collection[str]) -> None:
    """Bring a switch to cross-connects."""
    made = _made(device)
    for command, ids in (
        (_DELETE, [each for each in made if each not in wanted]),
        (_ADD, [each for each in wanted if each not in made]),
    ):
        if ids:
            assert RUN(device, [*command, ",".join(ids)]).status == 0


def _bare(tokens: Sequence[str]) -> list[str]:
    return [token for token in tokens if token not in {"sudo", "-n"}]


def _after(
    patch: pytest.MonkeyPatch, program: str, act: Callable[[SimulatedSonicOcs], None]
) -> None:
    """Let `act` be done at once after a program."""

    def run(device: SimulatedSonicOcs, tokens: Sequence[str]) -> ProgramOutcome:
        outcome = RUN(device, tokens)
        if _bare(tokens) == [program]:
            act(device)
        return outcome

    patch.setattr(SimulatedSonicOcs, "run", run)


def _restored_in_part(patch: pytest.MonkeyPatch) -> None:
    _after(patch, "reboot", lambda device: _set(device, _made(device)[::2]))


def _lost_in_a_warm_restart(patch: pytest.MonkeyPatch) -> None:
    _after(patch, "warm-reboot", lambda device: _set(device, []))


def _settings_missed(patch: pytest.MonkeyPatch) -> None:
    def unlabel(device: SimulatedSonicOcs) -> None:
        for port, row in device.table("CONFIG_DB", "OCS_PORT").items():
            if row["label"]:
                RUN(device, ["config", "ocs", "port", "label", port, ""])

    _after(patch, "reboot", unlabel)


class _Latest(list[Callable[[], None]]):
    """Observers of which those that come later push out those of before."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock, self._at = clock, -1

    def append(self, observe: Callable[[], None]) -> None:
        """Keep what comes at one moment: the paths of one call."""
        if self._clock.now() != self._at:
            self.clear()
        self._at = self._clock.now()
        super().append(observe)


class _Late(list[Callable[[], None]]):
    """Observers that are called so many ns late."""

    def __init__(self, clock: Clock, late: int) -> None:
        super().__init__()
        self._clock, self._by = clock, late

    def __iter__(self) -> Iterator[Callable[[], None]]:
        """Yield what calls each later."""
        for observe in super().__iter__():
            yield lambda observe=observe: self._clock.schedule(
                self._clock.now() + self._by, "late", observe
            )


def observed_by(
    patch: pytest.MonkeyPatch, observers: Callable[[Clock], list[Callable[[], None]]]
) -> None:
    """Let the subscribers of switches be kept in another kind of list."""
    from lightrig.instruments.simulated.devices.sonic_gnmi import GnmiCall, SonicGnmi

    call = SonicGnmi.call

    def begin(service: SonicGnmi, connection: DeviceConnection, index: int) -> GnmiCall:
        if type(service.switch.observers) is list:
            service.switch.observers = observers(service.clock)
        return call(service, connection, index)

    patch.setattr(SonicGnmi, "call", begin)


def notify_late(patch: pytest.MonkeyPatch, late: int) -> None:
    """Let notifications come so many ns late."""
    observed_by(patch, lambda clock: _Late(clock, late))


def cut_power(patch: pytest.MonkeyPatch, *, mixture: bool = False) -> Callable[[str], None]:
    """Return an operator who has the power of a SONiC switch cut in its third change from then."""
    left: list[int] = []

    def run_or_lose(device: SimulatedSonicOcs, tokens: Sequence[str]) -> ProgramOutcome:
        if not left or _bare(tokens)[:4] != _ADD:
            return RUN(device, tokens)
        left[0] -= 1
        if left[0]:
            return RUN(device, tokens)
        left.clear()
        assert _made(device)
        RUN(device, tokens)
        changed = _made(device)
        outcome = RUN(device, ["reboot"])
        if mixture:
            first = [each for each in _made(device) if int(each.partition("A")[0]) < 4]
            ports = {port for each in first for port in each.split("-")}
            _set(device, first + [each for each in changed if ports.isdisjoint(each.split("-"))])
        return outcome

    patch.setattr(SimulatedSonicOcs, "run", run_or_lose)
    return lambda text: left.append(3) if "cut the power" in text else None


def install_firmware(patch: pytest.MonkeyPatch, *, loses: bool = False) -> Callable[[str], None]:
    """Return an operator who installs another firmware on a SONiC switch, and the first again."""
    version, devices = SimulatedSonicOcs.version, list[SimulatedSonicOcs]()
    further: list[str] = []

    def stated(device: SimulatedSonicOcs) -> str:
        devices[:] = [device]
        return further[-1] if further else version(device)

    def install(text: str) -> None:
        if "Install" not in text:
            return
        if "another" in text:
            further.append("SONiC.OCS-202611.2")
        else:
            further.clear()
        if loses:
            _set(devices[0], [])

    patch.setattr(SimulatedSonicOcs, "version", stated)
    return install


def state_factory_losses(patch: pytest.MonkeyPatch, *, less_db: float = 0.0) -> None:
    """Have SONiC switches state factory losses at 1550 nm, all by `less_db` less than they are."""
    stated = SonicSwitch.factory_losses

    def state(device: SonicSwitch) -> Iterator[tuple[str, ...]]:
        for name, _, celsius, loss, accuracy in stated(device):
            yield name, "193.41", celsius, f"{float(loss) - less_db:.2f}", accuracy

    patch.setattr(SonicSwitch, "factory_losses", state)


SONIC: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "restored in part": _restored_in_part,
    "lost in a warm restart": _lost_in_a_warm_restart,
    "settings missed after a restart": _settings_missed,
    "silent subscription": lambda patch: observed_by(patch, _Latest),
    "late notification": lambda patch: notify_late(patch, 8_000_000_000),
    "mixture after a power loss": lambda patch: None,
    "upgrade loses circuits": lambda patch: None,
}
