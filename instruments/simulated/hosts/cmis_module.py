"""A simulated CMIS module as its host sees it: data paths, and what its receiver says of light.

States, controls, durations and flags: OIF-CMIS-05.2, 6.3.3 and 8.4 to 8.10, as the memory maps and
codes of sonic-net/sonic-platform-common have them. The host's controls move a data path; the loss
of light moves none. A state that passes by itself is finished before controls count again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from lightrig.instruments.simulated.world.randomness import Stream
from lightrig.testbeds import Delay

_MS = 1_000_000
_MINUTE = 60_000 * _MS

MAXIMA = tuple(_MS * ms for ms in (1, 5, 10, 50, 100, 500, 1000, 5000, 10_000)) + tuple(
    _MINUTE * minutes for minutes in (1, 5, 10, 50, 100)
)
"""Upper ends of the advertised durations by code, in ns."""

DEACTIVATED, INIT, DEINIT, ACTIVATED, TURN_ON, TURN_OFF, INITIALIZED = range(1, 8)
"""States of a data path, by their codes in 11h:128 to 131."""

_AFTER = {DEINIT: DEACTIVATED, INIT: INITIALIZED, TURN_ON: ACTIVATED, TURN_OFF: INITIALIZED}
"""What follows a state that passes by itself."""

CODES: Mapping[int, int] = MappingProxyType({INIT: 7, DEINIT: 4, TURN_ON: 5, TURN_OFF: 3})
"""Codes of the advertised longest durations of the states that pass: 5 s, 100, 500 and 50 ms."""

_SHARE, _SHARE_SD = 0.6, 0.15
_LEAST, _MOST = 0.1, 0.95

LANES, PAGES = 8, (0x01, 0x10, 0x11)
"""How many lanes it has, and the pages of which their upper halves are here."""

_ALL = (1 << LANES) - 1
_SUCCESS, _REJECTED = 1, 3
_APPLICATIONS = 2
_DEINIT, _TX_OFF, _RX_OFF, _APPLY, _STAGED = 128, 130, 138, 143, 145

_OUTPUT_RX, _OUTPUT_TX = 132, 133
RX_LOS, RX_LOL = 147, 148
Condition: TypeAlias = Literal["signal", "lock", "output"]
_FLAGS: Mapping[int, Condition] = MappingProxyType({RX_LOS: "signal", RX_LOL: "lock"})


class Light(NamedTuple):
    """What the receiver does once its light has come or gone, in ns of the bench's clock.

    Attributes:
        at: when the light changed.
        lit: whether it came.
        signal: when the receiver's signal is no longer, or is, lost.
        lock: the same of its lock.
        output: when its output is, or is no longer, valid.
    """

    at: int
    lit: bool
    signal: int
    lock: int
    output: int


class ModuleTimes(NamedTuple):
    """Latent times of a receiver, which no module states; those of PAM4 are the defaults.

    Lock: 1.54e10 UI are typical of a PAM4 receiver from 39 Gb/s on behind 12 dB or more, and
    4e10 UI behind less: AMD DS959 1.8, "GTM Transceiver PLL/Lock Time Adaptation" (acquisition and
    adaptation). At 53.125 GBd that is 290 and 753 ms. The other means, and all scatter, are
    assumed: no figures are published.

    late: by how many ns its flags show a change after it happened.
    """

    loss: Delay = Delay(100_000, 20_000)
    signal: Delay = Delay(8_000_000, 1_500_000)
    lock: Delay = Delay(290_000_000, 50_000_000)
    output: Delay = Delay(700_000_000, 120_000_000)
    late: int = 4_000_000


@dataclass(slots=True)
class _Lane:
    """A data path of one lane: its state, when that passes, and the application in use."""

    state: int = ACTIVATED
    passes: int | None = None
    application: int = 1
    status: int = _SUCCESS
    is_pending: bool = False
    must_restart: bool = False


_TIMES = ModuleTimes()


class CmisModule:
    """A module of eight lanes, all lit by one fiber; a host has left its data paths activated.

    Args:
        draws: its chance.
        began: since when it has been watched, in ns of the bench's clock.
        lit: whether its receiver has light then, and has had it for long.
        times: of its receiver.
        codes: of the longest durations of its states, by state.
        advertises: whether its memory states them.
        rounds: how often its firmware initializes the data paths anew whenever light is back: once,
            or several times in a loop; its output is valid behind the last.

    Attributes:
        history: what the receiver did at the last changes of its light.
    """

    def __init__(
        self,
        draws: Stream,
        began: int,
        *,
        lit: bool,
        times: ModuleTimes = _TIMES,
        codes: Mapping[int, int] = CODES,
        advertises: bool = True,
        rounds: int = 0,
    ) -> None:
        self._draws, self._times, self._codes = draws, times, codes
        self._advertises, self._rounds = advertises, rounds
        self._passage: list[tuple[int, int]] = []
        self.history = [Light(began, lit, began, began, began)]
        self._missing: dict[Condition, list[tuple[int, int]]] = {}  # since the last change of light
        self._lanes = [_Lane() for _ in range(LANES)]
        self._cleared = dict.fromkeys(_FLAGS, began)
        self._controls = bytearray(256)
        self._controls[_STAGED : _STAGED + LANES] = bytes([1 << 4] * LANES)

    # -------------------------------------------------------------------------- light

    def light(self, at: int, *, lit: bool, before: int) -> Light:
        """Take that light comes or goes at `at`; return what follows.

        before: the NIC is up then, so that the output is valid earlier.
        """
        last, times = self.history[-1], self._times
        if lit == last.lit:
            return last
        if lit:
            steps = [
                self._draws.duration(each) for each in (times.signal, times.lock, times.output)
            ]
            anew = self._states_anew()
            if anew:
                steps[2] = sum(took for _, took in anew)
            shrink = min(0.9 * (before - at) / sum(steps), 1.0)
            signal, lock, output = (
                at + round(shrink * sum(steps[:number])) for number in (1, 2, 3)
            )
            self._advance(at)
            self._passage, moment = [], float(lock)
            for state, took in anew:
                self._passage.append((round(moment), state))
                moment += shrink * took
            if anew:
                self._passage.append((output, ACTIVATED))
        else:
            signal = lock = output = at + self._draws.duration(times.loss)
        self.history.append(change := Light(at, lit, signal, lock, output))
        del self.history[:-32]
        self._missing.clear()
        return change

    def _states_anew(self) -> list[tuple[int, int]]:
        """Return the states that firmware lets pass once light is back, each with its duration."""
        if not self._rounds:
            return []
        states = [TURN_OFF, *[DEINIT, INIT] * self._rounds, TURN_ON]
        return [(state, self._duration(state)) for state in states]

    def missing(self, what: Condition) -> list[tuple[int, int]]:
        """Return when signal, lock or valid output was missing; the last perhaps without an end."""
        # Flags are read every few milliseconds, and light changes every few seconds.
        if what not in self._missing:
            self._missing[what] = list(self._intervals(what))
        return self._missing[what]

    def _intervals(self, what: Condition) -> Iterator[tuple[int, int]]:
        since: int | None = None
        for number, change in enumerate(self.history):
            moment: int = getattr(change, what)
            if number + 1 < len(self.history) and moment > self.history[number + 1].at:
                continue  # the light changed again before this was so
            if not change.lit and since is None:
                since = moment
            elif change.lit and since is not None:
                yield since, moment
                since = None
        if since is not None:
            yield since, 1 << 62

    def has(self, what: Condition, at: int) -> bool:
        """Whether it has signal, lock or valid output at `at`, in truth."""
        return not any(begin <= at < end for begin, end in self.missing(what))

    def take_flag(self, flag: int, at: int) -> bool:
        """Read a latched flag and clear it: set if its condition held since the last reading."""
        since, late = self._cleared[flag], self._times.late
        self._cleared[flag] = at
        for begin, end in reversed(self.missing(_FLAGS[flag])):  # in the order of their ends
            if end + late <= since:
                return False
            if begin + late <= at:
                return True
        return False

    # --------------------------------------------------------------------- data paths

    def _duration(self, state: int) -> int:
        share = _SHARE + _SHARE_SD * self._draws.normal()
        return round(MAXIMA[self._codes[state]] * min(max(share, _LEAST), _MOST))

    def _advance(self, at: int) -> None:
        """Let states pass until `at`, one after another."""
        while self._passage and self._passage[0][0] <= at:
            _, state = self._passage.pop(0)
            for lane in self._lanes:
                lane.state, lane.passes = state, None
        for number, lane in enumerate(self._lanes):
            moment = at if lane.passes is None else lane.passes
            while moment <= at:
                if lane.passes is not None:
                    lane.state, lane.passes = _AFTER[lane.state], None
                if lane.state == DEACTIVATED:
                    lane.must_restart = False
                following = self._following(number, lane)
                if following is None:
                    break
                if following == INIT:
                    lane.is_pending = False
                lane.state = following
                lane.passes = moment = moment + self._duration(following)

    def _following(self, number: int, lane: _Lane) -> int | None:
        """Return the state into which the host's controls move a lane; None to stay."""
        off = bool(self._controls[_DEINIT] >> number & 1) or lane.must_restart
        dark = off or bool(self._controls[_TX_OFF] >> number & 1)
        match lane.state:
            case 1:
                return None if off else INIT
            case 7:
                return DEINIT if off else None if dark else TURN_ON
            case 4:
                return TURN_OFF if dark else None
        return None

    def states(self, at: int) -> list[int]:
        """Return the state of each lane's data path at `at`, no earlier than the last time."""
        self._advance(at)
        return [lane.state for lane in self._lanes]

    def begin_anew(self, at: int) -> None:
        """Let firmware initialize all data paths anew, as a host's command to apply does."""
        self._advance(at)
        for lane in self._lanes:
            lane.must_restart = True
        self._advance(at)

    def write(self, offset: int, data: bytes, at: int) -> None:
        """Write to page 10h, at `at`."""
        self._advance(at)
        for place, value in enumerate(data, offset):
            if place == _APPLY:
                self._apply(value)
            else:
                self._controls[place] = value
        self._advance(at)

    def _apply(self, lanes: int) -> None:
        for number, lane in enumerate(self._lanes):
            if not lanes >> number & 1:
                continue
            application = self._controls[_STAGED + number] >> 4
            if application > _APPLICATIONS:
                lane.status = _REJECTED
                continue
            lane.application, lane.status, lane.is_pending = application, _SUCCESS, True
            lane.must_restart = lane.state != DEACTIVATED

    # ------------------------------------------------------------------------- memory

    def read(self, page: int, offset: int, length: int, at: int) -> bytes:
        """Read a part of the upper half of a page of `PAGES`; flags that are read are cleared."""
        self._advance(at)
        memory = bytearray(256)
        if page == 0x01:
            memory[158] = 0x06  # the receiver's loss of signal and of lock have flags
        if page == 0x01 and self._advertises:
            memory[144] = self._codes[DEINIT] << 4 | self._codes[INIT]
            memory[168] = self._codes[TURN_OFF] << 4 | self._codes[TURN_ON]
        elif page == 0x10:
            memory[:] = self._controls
        elif page == 0x11:
            states = [lane.state for lane in self._lanes]
            memory[128:132] = _nibbles(states)
            valid = self.has("output", at)
            steady = self._mask(lane.state in (ACTIVATED, INITIALIZED) for lane in self._lanes)
            memory[_OUTPUT_RX] = steady & ~self._controls[_RX_OFF] & _ALL if valid else 0
            active = self._mask(state == ACTIVATED for state in states)
            memory[_OUTPUT_TX] = active & ~self._controls[_TX_OFF] & _ALL
            for flag in _FLAGS:
                if offset <= flag < offset + length and self.take_flag(flag, at):
                    memory[flag] = _ALL
            memory[202:206] = _nibbles([lane.status for lane in self._lanes])
            memory[206:214] = bytes(lane.application << 4 for lane in self._lanes)
            memory[235] = self._mask(lane.is_pending for lane in self._lanes)
        return bytes(memory[offset : offset + length])

    @staticmethod
    def _mask(bits: Iterator[bool]) -> int:
        return sum(bit << number for number, bit in enumerate(bits))


def _nibbles(values: list[int]) -> bytes:
    """Return a nibble a lane, the first lane's low."""
    pairs = zip(values[::2], values[1::2], strict=True)
    return bytes(high << 4 | low for low, high in pairs)
