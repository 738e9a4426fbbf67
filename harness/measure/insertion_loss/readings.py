"""Samples of light on both sides of a switch, once it is steady."""

import math
from collections import Counter

import numpy as np
import numpy.typing as npt

from lightrig.harness.measure.insertion_loss.chains import Chain
from lightrig.harness.measure.insertion_loss.settings import Setting
from lightrig.instruments.clock import Clock
from lightrig.instruments.core.errors import NotDoneError
from lightrig.testbeds import Circuit

Numbers = npt.NDArray[np.float64]

DARK_DBM = -40.0
"""Below this there is no light, only the observer's own floor."""

_ARRIVAL_NS = 500_000_000
_TIMEOUT_NS = 5_000_000_000
_DOUBTS = 2
_UNSTEADY = 5.0
_RESOLUTION_DB = 0.02


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
