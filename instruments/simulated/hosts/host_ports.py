"""NIC ports of a simulated server: light, errors, test patterns.

Counters are computed when they are read, from the time that the link was up since the last
reading and from the bit error ratio of the bits that came meanwhile.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lightrig.instruments.clock import Clock
from lightrig.instruments.simulated.hosts.cmis_module import PAGES as CMIS_PAGES
from lightrig.instruments.simulated.hosts.cmis_module import RX_LOL, RX_LOS, CmisModule
from lightrig.instruments.simulated.hosts.firmware_timers import FirmwareTimers, Timers
from lightrig.instruments.simulated.hosts.module_models import ModuleModel, model_by
from lightrig.instruments.simulated.world.carriers import shares_of_lanes
from lightrig.instruments.simulated.world.links import LinkTimeline, NicLinks
from lightrig.instruments.simulated.world.randomness import Chance, Stream
from lightrig.testbeds import Dbm, Port, PowerRange, TransceiverSpec

SYMBOL_BITS = 10
"""Bits in a symbol of the Reed-Solomon codes of IEEE 802.3."""

_LOS_BELOW_DB = 3.0
_FEW = 30.0
_DEFAULT_LIGHT = TransceiverSpec(
    name="unnamed",
    wavelength_nm=1310.0,
    launch=PowerRange(Dbm(-4.3), Dbm(4.5)),
    receive=PowerRange(Dbm(-10.6), Dbm(4.5)),
)


@dataclass(frozen=True, slots=True)
class HostPort:
    """One NIC port of a server, as the testbed describes it.

    Attributes:
        transceiver: None for an empty cage.
        ip: its address with the prefix length, if the testbed states one.
        ber: its latent bit error ratio before FEC; None to draw one.
    """

    port: Port
    netdev: str
    rdma: str | None
    rate_bps: int
    transceiver: TransceiverSpec | None
    ber: float | None = None
    ip: str | None = None

    @property
    def lanes(self) -> int:
        """Lanes that its module prints: one up to 25 Gb/s, four up to 200 Gb/s, else eight.

        A module has as many as its wavelengths, at least.
        """
        least = 1 if self.rate_bps <= 25e9 else 4 if self.rate_bps <= 200e9 else 8
        stated = self.transceiver
        needed = max(stated.lanes or 1, stated.wavelengths or 1) if stated else 1
        return max(least, 1 if needed == 1 else 4 if needed <= 4 else 8)

    @property
    def lanes_in_use(self) -> int:
        """Lanes of the light, of those that its module prints: the others are dark."""
        return (self.transceiver.lanes if self.transceiver else None) or self.lanes

    @property
    def lanes_in_fiber(self) -> int:
        """Lanes whose light shares the fiber of this port; each other one has its own fiber."""
        stated = self.transceiver.wavelengths if self.transceiver else None
        return min(stated or 1, self.lanes_in_use)


_QSFP28, _SFF_LOS, _SFF_LOL = 0x11, 3, 5
"""Identifier of a QSFP28; its bytes of loss of signal and of lock, receiver in the low half."""

_SFP, _STATUS, _RX_LOS = 0x03, 110, 0x02
"""Identifier of an SFP; its byte of status on the second address, and the bit that is set without
signal."""

I2C, I2C_SECOND = 0x50, 0x51
"""Addresses on a module's bus; the second is that of an SFP's diagnostics."""


@dataclass(frozen=True, slots=True)
class PortLight:
    """The world's light at a port.

    Attributes:
        received: what comes to a port now, all wavelengths together, in mW; 0.0 for none.
        launched: what its transmitter sends into the fiber, likewise.
        origin: the port whose light comes.
    """

    received: Callable[[Port], float]
    launched: Callable[[Port], float]
    origin: Callable[[Port], Port | None]


@dataclass(slots=True)
class Prbs:
    """A test pattern under way: what is sent and looked for, and the errors by lane."""

    rx_pattern: str
    tx_pattern: str
    tuned: bool
    since: int
    errors: list[int]


@dataclass(frozen=True, slots=True)
class Registers:
    """A transceiver's measurements as its memory holds them.

    Attributes:
        temperature: in 1/256 °C.
        voltage: in 100 µV.
        bias: by lane, in 2 µA.
        tx_power: by lane, in 0.1 µW.
        rx_power: by lane, in 0.1 µW.
    """

    temperature: int
    voltage: int
    bias: tuple[int, ...]
    tx_power: tuple[int, ...]
    rx_power: tuple[int, ...]


class _Device(NamedTuple):
    """Drawn properties of a port's transceiver and NIC, and its further draws.

    Temperature is in °C, voltage in V, bias in mA; shares of the power are by lane.
    """

    draws: Stream
    ber: float
    temperature: float
    voltage: float
    bias: list[float]
    tx_share: list[float]
    rx_share: list[float]


class SimulatedPort:
    """The state of one port.

    Args:
        spec: what the testbed says of it.
        links: what its link does.
        light: the world's light.
        roster: all ports of the world by name, for who sends a pattern to whom.
    """

    def __init__(
        self,
        spec: HostPort,
        links: NicLinks,
        light: PortLight,
        clock: Clock,
        chance: Chance,
        roster: Mapping[Port, "SimulatedPort"],
    ) -> None:
        self.spec = spec
        self.prbs: Prbs | None = None
        self.fec_encodings: tuple[str, ...] = ("Auto", "RS")
        self.advertises_all = False
        self.bits = 0
        self.raw_errors = [0] * spec.lanes
        self.codewords = 0
        self.corrected_blocks = 0
        self.uncorrectable_blocks = 0
        self.symbol_error_counts = [0] * self.code[1]
        self.link_downs = 0
        self.carrier_changes = 0
        self.cleared = clock.now()
        self._links = links
        self._light = light
        self._clock = clock
        self._roster = roster
        self._chance = chance
        self._model = model_by(spec.lanes)
        self.diagnostics_draws = chance.stream(f"{spec.port}/nic/diagnostics")
        self._histogram_draws = chance.stream(f"{spec.port}/nic/histogram")
        self.serial = f"SIM-{spec.port.owner}-{spec.port.name}".upper()
        self._timeline: LinkTimeline = links.timeline(spec.port)
        self._timeline.listeners.append(self._link_changed)
        self._until = clock.now()
        self._up_since: int | None = None
        self._uncounted = 0

    # ------------------------------------------------------------------------- state

    @property
    def auto_negotiation(self) -> bool:
        """Whether it has auto-negotiation, from the next link-up on."""
        return self._timeline.negotiates

    @auto_negotiation.setter
    def auto_negotiation(self, on: bool) -> None:
        self._timeline.negotiates = on

    @functools.cached_property
    def _device(self) -> _Device:
        """Draw the device when it is first read: most ports of most worlds never are."""
        draws, lanes = self._chance.stream(f"{self.spec.port}/nic"), range(self.spec.lanes)
        normal, stated = draws.normal, self.spec.ber
        return _Device(
            draws,
            10 ** (-8 + 0.5 * normal()) if stated is None else stated,
            45 + 3 * normal(),
            3.3 + 0.01 * normal(),
            [40 + 2 * normal() for _ in lanes],
            [10 ** (0.02 * normal()) for _ in lanes],
            [10 ** (0.03 * normal()) for _ in lanes],
        )

    @functools.cached_property
    def module(self) -> CmisModule:
        """What changes in its transceiver, from when that is first asked for.

        Probe and ethtool read the same one, so that each clears the flags that the other would see.
        """
        self._timeline.receivers.append(self._receive)
        return self._new_module()

    def _new_module(self) -> CmisModule:
        lit, draws = self._timeline.heard is not None, self._chance.stream(f"{self.spec.port}/cmis")
        _, _, codes, advertises, rounds, times, _ = self._model
        return CmisModule(
            draws,
            self._clock.now(),
            lit=lit,
            times=times,
            codes=codes,
            advertises=advertises,
            rounds=rounds,
        )

    @property
    def model(self) -> ModuleModel:
        """The model of its transceiver; another one is plugged by setting it."""
        return self._model

    @model.setter
    def model(self, model: ModuleModel) -> None:
        self._model = model
        if "module" in self.__dict__:
            self.__dict__["module"] = self._new_module()

    @functools.cached_property
    def timers(self) -> FirmwareTimers:
        """The firmware's timers of its link-ups, from when they are first asked for."""
        assert self.module is not None  # its output is the NIC's signal
        return FirmwareTimers(self._timeline, self._chance.stream(f"{self.spec.port}/phy"))

    def _receive(self, at: int, lit: bool) -> None:
        change = self.module.light(at, lit=lit, before=self._links.firmware_up(self.spec.port, at))
        if "timers" in self.__dict__:
            self.timers.restarts = not self.auto_negotiation
            if lit:  # one that came from another sender without a gap is a signal at once
                self.timers.begin(change.output if change.at == at else at)
            else:
                self.timers.lose(at)

    def link_up_times(self) -> Timers:
        """Return what its firmware shows of its last link-up now."""
        return self.timers.read(self._clock.now())

    def path_states(self) -> list[int]:
        """Return the states of its data paths now; none of a module without them."""
        is_cmis = self.spec.transceiver is not None and self._model.memory == "CMIS"
        return self.module.states(self._clock.now()) if is_cmis else []

    def enabled(self, *, up: bool) -> None:
        """Take that its device was brought up or down."""
        now = self._clock.now()
        if up:
            self.timers.begin(now, disabled=True)
        else:
            self.timers.lose(now)

    def module_memory(
        self, page: int, offset: int, length: int, address: int = I2C
    ) -> bytes | None:
        """Read a page of its transceiver now, where that changes; None for any other part of it.

        Flags of CMIS and SFF-8636 that are read are cleared; those of SFF-8472 tell what is.
        """
        now = self._clock.now()
        if self.spec.transceiver is None:
            return None
        if self._model.memory == "CMIS":
            return self.module.read(page, offset, length, now) if page in CMIS_PAGES else None
        if page:
            return None
        memory = bytearray(256)
        lanes = (1 << self.spec.lanes_in_use) - 1 & 0x0F

        def is_read(place: int) -> bool:
            return offset <= place < offset + length

        if self._model.memory == "SFF-8636":
            memory[0] = _QSFP28
            for place, flag in ((_SFF_LOS, RX_LOS), (_SFF_LOL, RX_LOL)):
                if is_read(place) and self.module.take_flag(flag, now):
                    memory[place] = lanes
        elif address == I2C_SECOND:
            shown = now - self._model.times.late
            if is_read(_STATUS) and not self.module.has("signal", shown):
                memory[_STATUS] = _RX_LOS
        else:
            memory[0] = _SFP
        return bytes(memory[offset : offset + length])

    @property
    def ber(self) -> float:
        """Latent bit error ratio before FEC."""
        return self._device.ber

    def is_up(self, stage: str) -> bool:
        """Whether the link is up in `stage` now."""
        return self.prbs is None and self._timeline.is_up(stage, self._clock.now())

    @property
    def limits(self) -> TransceiverSpec:
        """Power limits of its transceiver."""
        return self.spec.transceiver or _DEFAULT_LIGHT

    @property
    def lane_rate(self) -> float:
        """Bits a second on one lane."""
        return self.spec.rate_bps / self.spec.lanes

    @property
    def code(self) -> tuple[int, int]:
        """Symbols in a code word of the FEC in use, and how many of them it can correct."""
        return (544, 15) if self.lane_rate > 26e9 else (528, 7)

    def registers(self) -> Registers:
        """Return the measurements of the transceiver now, each lane's part of its fiber."""
        port, device = self.spec.port, self._device
        normal = device.draws.normal
        sharing = self.spec.lanes_in_fiber
        launched = self._light.launched(port) / sharing
        received = self._light.received(port)
        seen = self._seen()

        def of_lanes(milliwatt: float, shares: list[float], noise_db: float) -> tuple[int, ...]:
            levels = [milliwatt * share * 10 ** (noise_db * normal() / 10) for share in shares]
            return tuple(min(round(level * 1e4), 0xFFFF) for level in used(levels))

        def used(values: list[float]) -> list[float]:
            dark = len(values) - self.spec.lanes_in_use
            return [*values[: self.spec.lanes_in_use], *([0.0] * dark)]

        return Registers(
            round((device.temperature + 0.1 * normal()) * 256),
            round(device.voltage * 1e4),
            tuple(round(bias * 500) if launched else 0 for bias in used(device.bias)),
            of_lanes(launched, device.tx_share, 0.01),
            of_lanes(received, [a * b for a, b in zip(device.rx_share, seen, strict=True)], 0.02),
        )

    def _seen(self) -> list[float]:
        """Return by lane the share of its fiber's power: each sees its own wavelength."""
        origin = self._light.origin(self.spec.port)
        sender = self._roster.get(origin) if origin is not None else None
        kind = sender.spec.transceiver if sender is not None else None
        shares = shares_of_lanes(self.spec.transceiver, kind)
        if len(shares) != self.spec.lanes_in_fiber:  # fewer lanes than the file's wavelengths
            shares = [1 / self.spec.lanes_in_fiber] * self.spec.lanes_in_fiber
        return [shares[lane % len(shares)] for lane in range(self.spec.lanes)]

    def signal_lost(self, registers: Registers) -> list[bool]:
        """Return by lane whether the receiver has lost its signal."""
        least = 10 ** ((self.limits.receive.min - _LOS_BELOW_DB) / 10)
        used = self.spec.lanes_in_use  # an unused lane's flag is masked, so it never shows
        powers = registers.rx_power
        return [power / 1e4 < least and lane < used for lane, power in enumerate(powers)]

    def locked(self) -> bool:
        """Whether the checker has found the pattern: the port whose light comes must send it."""
        origin = self._light.origin(self.spec.port)
        sender = self._roster.get(origin) if origin is not None else None
        return (
            self.prbs is not None
            and sender is not None
            and sender.prbs is not None
            and sender.prbs.tx_pattern == self.prbs.rx_pattern
        )

    def nanoseconds_since(self, moment: int) -> int:
        """Return the time since a moment, in ns."""
        return self._clock.now() - moment

    # ----------------------------------------------------------------------- counters

    def accrue(self) -> None:
        """Count the bits and errors since the last call."""
        before = self._until
        self._follow_link()
        up, self._uncounted = self._uncounted, 0
        if self.prbs is not None:
            if self.locked():
                bits = self.lane_rate * (self._until - before) / 1e9
                for lane in range(self.spec.lanes):
                    self.prbs.errors[lane] += poisson(self._device.draws, self.ber * bits)
            return
        bits = self.spec.rate_bps * up / 1e9
        self.bits += round(bits)
        errors = [
            poisson(self._device.draws, self.ber * bits / self.spec.lanes) for _ in self.raw_errors
        ]
        self.raw_errors = [sum(pair) for pair in zip(self.raw_errors, errors, strict=True)]
        symbols, correctable = self.code
        codewords = bits / (symbols * SYMBOL_BITS)
        touched, lost = word_errors(self.ber, symbols, correctable)
        # No more than all code words of the interval, so that the count of clean ones never falls.
        whole = round(codewords)
        drawn = poisson(self._device.draws, codewords * (touched - lost))
        corrected = min(drawn, sum(errors), whole)
        self.corrected_blocks += corrected
        drawn = poisson(self._device.draws, codewords * lost)
        self.uncorrectable_blocks += min(drawn, whole - corrected)
        self.codewords += whole
        self._spread(corrected, touched - lost)

    def _spread(self, corrected: int, share: float) -> None:
        """Count `corrected` code words by their number of symbol errors, from 1 on."""
        left = corrected
        for errors in range(self.code[1], 1, -1):
            mean = corrected * symbol_error_share(self.ber, self.code[0], errors) / (share or 1.0)
            drawn = min(poisson(self._histogram_draws, mean), left)
            self.symbol_error_counts[errors - 1] += drawn
            left -= drawn
        self.symbol_error_counts[0] += left

    @property
    def corrected_bits(self) -> int:
        """Bits that FEC corrected: all errors but those of uncorrectable words."""
        return max(sum(self.raw_errors) - self.symbol_errors, 0)

    @property
    def symbol_errors(self) -> int:
        """Symbol errors left after FEC: as many as make a word uncorrectable, in each."""
        return self.uncorrectable_blocks * (self.code[1] + 1)

    def clear(self) -> None:
        """Restart the counts of bits and errors."""
        self.accrue()
        self.cleared = self._clock.now()
        self.bits = self.codewords = self.corrected_blocks = self.uncorrectable_blocks = 0
        self.symbol_error_counts = [0] * self.code[1]
        self.raw_errors = [0] * self.spec.lanes
        if self.prbs is not None:
            self.prbs.errors = [0] * self.spec.lanes
            self.prbs.since = self.cleared

    def enter_test_mode(self, rx_pattern: str, tx_pattern: str) -> None:
        """Send a pattern instead of frames: the link goes down at both ends."""
        self._accrue_all()
        now = self._clock.now()
        self._links.hears(self.spec.port, None, now)
        self.prbs = Prbs(rx_pattern, tx_pattern, False, now, [0] * self.spec.lanes)

    def leave_test_mode(self) -> None:
        """Send frames again; the link comes up as after any loss of light."""
        self._accrue_all()
        self.prbs = None
        now = self._clock.now()
        self._links.hears(self.spec.port, self._light.origin(self.spec.port), now)

    def _accrue_all(self) -> None:
        """Finish the error counts of all ports before this transmitter changes its pattern."""
        for port in {self.spec.port: self, **self._roster}.values():
            port.accrue()

    def _link_changed(self) -> None:
        """Note changes before the timeline drops them; errors are drawn when counters are read."""
        if self.prbs is None:
            self._follow_link()
        else:
            self.accrue()

    def _follow_link(self) -> None:
        """Count link downs, carrier changes and up time since the last call."""
        before, now = self._until, self._clock.now()
        self._until = now
        for at, stage, up, _ in self._timeline.transitions:
            if not before < at <= now:
                continue
            if stage == "carrier":
                self.carrier_changes += 1
            elif stage == "firmware":
                self._count_up_time(at)
                self._up_since = at if up else None
                self.link_downs += not up
        self._count_up_time(now)

    def _count_up_time(self, until: int) -> None:
        if self._up_since is not None:
            self._uncounted += until - self._up_since
            self._up_since = until


def poisson(draws: Stream, mean: float) -> int:
    """Return a Poisson deviate: by inversion where `mean` is small, else from a normal one."""
    if mean <= 0:
        return 0
    if mean > _FEW:
        return max(round(mean + math.sqrt(mean) * draws.normal()), 0)
    left = (1 + math.erf(draws.normal() / math.sqrt(2))) / 2
    count, probability = 0, math.exp(-mean)
    while left > probability and count < 10 * _FEW:
        left -= probability
        count += 1
        probability *= mean / count
    return count


@functools.cache
def word_errors(ber: float, symbols: int, correctable: int) -> tuple[float, float]:
    """Return the probabilities of any symbol error in a word, and of more than `correctable`."""
    wrong = -math.expm1(SYMBOL_BITS * math.log1p(-ber)) if ber < 1 else 1.0
    none = math.exp(symbols * math.log1p(-wrong)) if wrong < 1 else 0.0
    most = min(symbols, correctable + 60)
    lost = sum(
        math.comb(symbols, errors) * wrong**errors * (1 - wrong) ** (symbols - errors)
        for errors in range(correctable + 1, most + 1)
    )
    return 1 - none, lost


@functools.cache
def symbol_error_share(ber: float, symbols: int, errors: int) -> float:
    """Return the probability of a word with exactly `errors` symbol errors."""
    wrong = -math.expm1(SYMBOL_BITS * math.log1p(-ber)) if ber < 1 else 1.0
    return math.comb(symbols, errors) * wrong**errors * (1 - wrong) ** (symbols - errors)
