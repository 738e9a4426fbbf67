"""Samples of light on both sides of a switch, once it is steady."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lightrig.harness.measure.insertion_loss.chains import Chain
from lightrig.instruments.clock import Clock
from lightrig.instruments.core.errors import NotDoneError
from lightrig.testbeds import Circuit, LightrigError, SwitchSpec

Numbers = npt.NDArray[np.float64]

DARK_DBM = -40.0
"""Below this there is no light, only the observer's own floor."""

_ARRIVAL_NS = 500_000_000
_TIMEOUT_NS = 5_000_000_000
_DOUBTS = 2
_UNSTEADY = 5.0
_RESOLUTION_DB = 0.02

Setting: TypeAlias = tuple[Circuit, ...]
"""Circuits that are made at once; no two share a port."""


class Readings:
    """Reads all ports of a chain, setting by setting.

    Attributes:
        ports: in the order of a sample's columns, ingress ports first.
        noise_db: standard deviation of a reading, once it is known.
        times: when each setting was first read, in ns on the bench's clock.
    """

    def __init__(self, chain: Chain, clock: Clock) -> None:
        self.ports = (*chain.ingress, *chain.egress)
        self.noise_db: float | None = None
        self.times: list[int] = []
        self._chain = chain
        self._clock = clock
        self._window = 0
        self._doubted: Counter[int] = Counter()
        self._sample()  # from here on it is known how long a window is

    def read(self, setting: Setting, count: int) -> Numbers:
        """`count` samples of steady light in dBm, of shape (sample, port); NaN for no observer.

        No two share a window. Where the first was taken while the light still moved, it is left
        out and another is taken. Light that does not come is waited for, but not at ports that
        were dark before with others. Raises `NotDoneError` for light that does not become steady.
        """
        began = self._clock.now()
        samples = [self._sample()]
        self.times.append(self._clock.now())
        given_up = {c for c in setting if any(self._doubted[port] >= _DOUBTS for port in c)}
        while True:
            recent = np.array(samples[-count:])
            awaited = {c for c in setting if not self.lit(c, recent)} - given_up
            waited = self._clock.now() - began - count * self._window
            if awaited and waited > _ARRIVAL_NS:
                given_up |= awaited
                self._doubted.update(port for circuit in awaited for port in circuit)
            elif len(samples) >= count and not awaited and self._steady(setting, recent):
                return recent
            elif waited > _TIMEOUT_NS:
                raise NotDoneError(
                    self._chain.switch,
                    f"has made {', '.join(map(str, setting))}, but the light is not steady "
                    f"{_TIMEOUT_NS / 1e9:g} s later",
                    details=[("try", "is a transmitter being switched, is a connector loose?")],
                )
            samples.append(self._sample())

    def lit(self, circuit: Circuit, samples: Numbers) -> bool:
        """Whether every sample at both of its ports saw light, as far as anybody looked."""
        levels = samples[:, [self.ports.index(port) for port in circuit]]
        return not bool((levels <= DARK_DBM).any())

    def lost(self, circuit: Circuit, samples: Numbers) -> Numbers:
        """Entering less leaving, sample by sample, in dB, uncorrected."""
        ingress, egress = (samples[:, self.ports.index(port)] for port in circuit)
        launched = self._chain.launched.get(circuit.ingress)
        entering = ingress if launched is None else np.full(len(samples), launched)
        return np.asarray(entering - egress)

    def _sample(self) -> Numbers:
        self._clock.sleep(self._window)
        seen = [observer.read() for observer in self._chain.observers]
        self._window = max(each.window for each in seen)
        dbm = {port: level for each in seen for port, level in each.dbm.items()}
        return np.array([dbm.get(port, math.nan) for port in self.ports])

    def _steady(self, setting: Setting, samples: Numbers) -> bool:
        """Whether the first of some samples is like the others, wherever there is light."""
        ports = [p for circuit in setting if self.lit(circuit, samples) for p in circuit]
        seen = samples[:, [self.ports.index(port) for port in ports]]
        seen = seen[:, np.isfinite(seen[0])]
        if not seen.size:
            return True
        noise = self.noise_db
        if noise is None:
            noise = float(np.sqrt(np.mean(np.diff(seen[1:], axis=0) ** 2)))
        rest = seen[1:].mean(axis=0)
        return bool(np.abs(seen[0] - rest).max() <= _UNSTEADY * noise + _RESOLUTION_DB)


def cyclic_shifts(ingress: Sequence[int], egress: Sequence[int]) -> list[Setting]:
    """Every circuit from `ingress` to `egress` once, in as many settings as the larger side has.

    Setting k leads each port of the smaller side to the one k places on, round and round.
    """
    few, many = sorted((ingress, egress), key=len)
    pairs = [
        [(port, many[(place + shift) % len(many)]) for place, port in enumerate(few)]
        for shift in range(len(many))
    ]
    forward = few is ingress
    return [tuple(Circuit(*(p if forward else p[::-1])) for p in each) for each in pairs]


def telling_settings(ingress: Sequence[int], egress: Sequence[int]) -> list[Setting]:
    """Settings of which for each two egress ports one leads light to one of them alone.

    Each leads to the ports whose place has a bit set, with fewer ingress ports to some after the
    others. Without an ingress port there are none.
    """
    if not ingress:
        return []
    places = [
        [port for place, port in enumerate(egress) if place >> bit & 1]
        for bit in range((len(egress) - 1).bit_length())
    ]
    return [
        tuple(Circuit(*pair) for pair in zip(ingress, ports[first:], strict=False))
        for ports in places
        for first in range(0, len(ports), len(ingress))
    ]


class CheckStandardError(LightrigError):
    """Raised where the stated check standard is not among the circuits that can be measured."""


def checked_first(settings: Sequence[Setting], switch: SwitchSpec) -> list[Setting]:
    """Return the settings, that of the circuit which the switch's check standard states first.

    Raises `CheckStandardError` where none has it.
    """
    stated = switch.check_standard.circuit
    first = [each for each in settings if stated and Circuit.parse(stated) in each]
    if stated and settings and not first:
        raise CheckStandardError(
            f"{switch.name}: check standard {stated}: found no such circuit between ports that are "
            "observed, expected one of those whose loss is measured"
        )
    return [*first, *(each for each in settings if each not in first)]


def check_circuits(setting: Setting, switch: SwitchSpec) -> Setting:
    """Return the circuits of the check standard in its setting: that which is stated, or all."""
    stated = switch.check_standard.circuit
    return setting if stated is None else (Circuit.parse(stated),)


def one_by_one(circuits: Iterable[Circuit]) -> list[Setting]:
    """`circuits` packed greedily into settings, for a switch that cannot make every circuit."""
    settings: list[list[Circuit]] = []
    for circuit in sorted(circuits):
        free = (each for each in settings if not _touches(circuit, each))
        room = next(free, None)
        if room is None:
            settings.append([circuit])
        else:
            room.append(circuit)
    return [tuple(each) for each in settings]


def beside(setting: Setting, established: Collection[Circuit]) -> frozenset[Circuit]:
    """`setting` with the `established` circuits that share no port with it."""
    return frozenset(setting) | {
        circuit for circuit in established if not _touches(circuit, setting)
    }


def _touches(circuit: Circuit, circuits: Iterable[Circuit]) -> bool:
    return any(circuit.ingress == o.ingress or circuit.egress == o.egress for o in circuits)
