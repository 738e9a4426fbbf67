"""Simulated SONiC switches with defects, and operators who cut their power or install firmware."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lightrig.instruments.simulated.devices.simulated_sonic_ocs import SimulatedSonicOcs
from lightrig.instruments.simulated.devices.sonic_switch import SonicSwitch
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome


def _restored_in_part(patch: pytest.MonkeyPatch) -> None:
    restart = SimulatedSonicOcs._restart

    def restart_in_part(device: SimulatedSonicOcs) -> None:
        circuits, labels, blocked = device._saved
        device._saved = set(sorted(circuits)[::2]), labels, blocked
        restart(device)

    patch.setattr(SimulatedSonicOcs, "_restart", restart_in_part)


def _lost_in_a_warm_restart(patch: pytest.MonkeyPatch) -> None:
    carry_out = SimulatedSonicOcs._carry_out

    def carry_out_and_lose(device: SimulatedSonicOcs, tokens: list[str]) -> ProgramOutcome:
        if tokens == ["warm-reboot"]:
            device._remove(set(device._tuned_at))
        return carry_out(device, tokens)

    patch.setattr(SimulatedSonicOcs, "_carry_out", carry_out_and_lose)


def _settings_missed(patch: pytest.MonkeyPatch) -> None:
    restart = SimulatedSonicOcs._restart

    def restart_without_labels(device: SimulatedSonicOcs) -> None:
        restart(device)
        device._labels.clear()

    patch.setattr(SimulatedSonicOcs, "_restart", restart_without_labels)


def _silent_subscription(patch: pytest.MonkeyPatch) -> None:
    from lightrig.instruments.simulated.devices import sonic_gnmi

    follow = sonic_gnmi._Stream.follow

    def follow_alone(stream: Any, subscription: Any, owner: str) -> None:
        observers = stream._service.switch.observers
        of_this_call = [each for each in observers if each.__self__._send == stream._send]
        observers[:] = of_this_call
        follow(stream, subscription, owner)

    patch.setattr(sonic_gnmi._Stream, "follow", follow_alone)


def _late_notification(patch: pytest.MonkeyPatch) -> None:
    from lightrig.instruments.simulated.devices import sonic_gnmi

    changed = sonic_gnmi._Stream._changed

    def change_late(stream: Any) -> None:
        clock = stream._service.clock
        clock.schedule(clock.now() + 8_000_000_000, "late", lambda: changed(stream))

    patch.setattr(sonic_gnmi._Stream, "_changed", change_late)


def cut_power(patch: pytest.MonkeyPatch, *, mixture: bool = False) -> Callable[[str], None]:
    """Return an operator who has the power of a SONiC switch cut in its third change from then."""
    carry_out = SimulatedSonicOcs._carry_out
    left: list[int] = []

    def carry_out_or_lose(device: SimulatedSonicOcs, tokens: list[str]) -> ProgramOutcome:
        if left and tokens[:4] == ["config", "ocs", "cross-connect", "add"]:
            left[0] -= 1
            if not left[0]:
                left.clear()
                saved, labels, blocked = device._saved
                made = sorted(device._configured)
                carry_out(device, tokens)
                if mixture:
                    first = {c for c in saved if c.ingress < 4}
                    ports = {port for circuit in first for port in circuit}
                    other = {c for c in device._configured if ports.isdisjoint(c)}
                    device._saved = first | other, labels, blocked
                assert made
                outcome = carry_out(device, ["reboot"])
                device._saved = saved, labels, blocked
                return outcome
        return carry_out(device, tokens)

    patch.setattr(SimulatedSonicOcs, "_carry_out", carry_out_or_lose)
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
            devices[0]._remove(set(devices[0]._tuned_at))

    patch.setattr(SimulatedSonicOcs, "version", stated)
    return install


def state_factory_losses(patch: pytest.MonkeyPatch, *, less_db: float = 0.0) -> None:
    """Have SONiC switches state factory losses at 1550 nm, all by `less_db` less than they are."""
    stated = SonicSwitch._factory_losses

    def state(device: SonicSwitch) -> Iterator[tuple[str, ...]]:
        for name, _, celsius, loss, accuracy in stated(device):
            yield name, "193.41", celsius, f"{float(loss) - less_db:.2f}", accuracy

    patch.setattr(SonicSwitch, "_factory_losses", state)


SONIC: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "restored in part": _restored_in_part,
    "lost in a warm restart": _lost_in_a_warm_restart,
    "settings missed after a restart": _settings_missed,
    "silent subscription": _silent_subscription,
    "late notification": _late_notification,
    "mixture after a power loss": lambda patch: None,
    "upgrade loses circuits": lambda patch: None,
}
