"""Light in the fibers of a simulated world."""

from bisect import bisect_right
from collections.abc import Callable, Iterable

from lightrig.instruments.clock import Clock
from lightrig.testbeds import Fiber, Port

_HISTORY_NS = 2_000_000_000
_TRIMMED_FROM = 32
Stokes = tuple[float, float, float]
"""Normalized Stokes parameters s1, s2, s3 of polarized light."""

BENCH_NM = 1550.0
"""Wavelength of bench lasers that were not tuned; that of transceivers does not change."""


class LightTrace:
    """Power at one place over time, planned changes included."""

    def __init__(self) -> None:
        self._times = [0]
        self._levels = [0.0]

    def plan(self, at: int, milliwatt: float) -> None:
        """Set the power to `milliwatt` from `at` on, until a later change is planned."""
        self._times.append(at)
        self._levels.append(milliwatt)
        if len(self._times) > _TRIMMED_FROM:
            old = max(bisect_right(self._times, at - _HISTORY_NS) - 1, 0)
            del self._times[:old]
            del self._levels[:old]

    @property
    def settled(self) -> int:
        """Time of the last planned change."""
        return self._times[-1]

    @property
    def last(self) -> float:
        """Power after the last planned change."""
        return self._levels[-1]

    def forget_plans(self, now: int) -> None:
        """Discard the changes planned for after `now`."""
        keep = bisect_right(self._times, now)
        del self._times[keep:]
        del self._levels[keep:]

    def mean(self, start: int, end: int) -> float:
        """Return the mean power in mW from `start` to `end`.

        Before the first change the power was the first one.
        """
        # Most queries ask about a time after the last change: answer those without a search.
        if self._times[-1] <= start:
            return self._levels[-1]
        index = max(bisect_right(self._times, end) - 1, 0)
        if index == 0 or self._times[index] <= start:
            return self._levels[index]
        energy, until = 0.0, end
        while until > start:
            since = max(self._times[index], start) if index else start
            energy += self._levels[index] * (until - since)
            until = since
            index -= 1
        return energy / (end - start)


class LightField:
    """All fibers of a world, and the light that comes out of each.

    Light keeps its origin, the transmitter that it comes from, through any number of switches.
    """

    def __init__(self, fibers: Iterable[Fiber]) -> None:
        self._fibers = {f.source: (f.sink, 10 ** (-f.loss_db / 10)) for f in fibers}
        self._arrivals: dict[Port, LightTrace] = {}
        self._origins: dict[Port, Port | None] = {}
        self._listeners: dict[Port, Callable[[int], None]] = {}
        self._faded: dict[Port, tuple[float, float, Port | None]] = {}
        self._detuned: dict[Port, float] = {}
        self._polarized: dict[Port, Stokes] = {}

    def emit(self, source: Port, milliwatt: float, origin: Port | None, at: int) -> None:
        """Launch `milliwatt` of light of `origin` into the fiber at `source` at `at`, which is now.

        Without a fiber at `source` the light is lost.
        """
        if source not in self._fibers:
            return
        if source in self._faded:
            share = self._faded[source][0]
            self._faded[source] = (share, milliwatt, origin)
            milliwatt *= share
        sink, transmission = self._fibers[source]
        self.trace(sink).plan(at, milliwatt * transmission)
        self._origins[sink] = origin if milliwatt else None
        listener = self._listeners.get(sink)
        if listener is not None:
            listener(at)

    def fade(self, source: Port, share: float, at: int) -> None:
        """Let only `share` of the light emitted at `source` leave it, from `at`, which is now."""
        if source not in self._faded and source in self._fibers:
            sink, transmission = self._fibers[source]
            self._faded[source] = (1.0, self.level(sink) / transmission, self.origin(sink))
        _, milliwatt, origin = self._faded.get(source, (1.0, 0.0, None))
        self._faded[source] = (share, milliwatt, origin)
        if milliwatt:
            self.emit(source, milliwatt, origin, at)

    def replug(self, source: Port, sink: Port, loss_db: float, clock: Clock) -> Callable[[], None]:
        """Plug the fiber at `source` into `sink`; the fiber there is taken out meanwhile.

        Returns what undoes that. Raises KeyError where no fiber begins at `source`.
        """
        was, transmission = self._fibers[source]
        out = [displaced for displaced, (end, _) in self._fibers.items() if end == sink]
        for displaced in out:
            self._lead(
                displaced, Port(sink.owner, f"{sink.name}/out"), self._fibers[displaced][1], clock
            )
        self._lead(source, sink, 10 ** (-loss_db / 10), clock)

        def undo() -> None:
            self._lead(source, was, transmission, clock)
            for displaced in out:
                self._lead(displaced, sink, self._fibers[displaced][1], clock)

        return undo

    def swap(self, first: Port, second: Port, clock: Clock) -> Callable[[], None]:
        """Swap the far ends of the fibers at two ports; return the undoing.

        Raises KeyError where no fiber begins at one of them.
        """
        (near, near_loss), (far, far_loss) = self._fibers[first], self._fibers[second]
        # Out of its port first, since no two fibers end in one.
        self._lead(second, Port(far.owner, f"{far.name}/out"), far_loss, clock)
        self._lead(first, far, near_loss, clock)
        self._lead(second, near, far_loss, clock)

        def undo() -> None:
            self.swap(first, second, clock)

        return undo

    def _lead(self, source: Port, sink: Port, transmission: float, clock: Clock) -> None:
        """Let the fiber at `source` end at `sink`, with a transmission, from now on."""
        now = clock.now()
        end, before = self._fibers[source]
        milliwatt, origin = self.level(end) / before, self.origin(end)
        faded = self._faded.pop(source, None)
        self.emit(source, 0.0, None, now)
        self._fibers[source] = (sink, transmission)
        self.emit(source, milliwatt, origin, now)
        if faded is not None:
            self._faded[source] = faded

    def on_arrival(self, sink: Port, listener: Callable[[int], None]) -> None:
        """Call `listener` with the time whenever the light at `sink` has changed."""
        self._listeners[sink] = listener

    def arriving(self, sink: Port, start: int, end: int) -> float:
        """Return the mean power at `sink` in mW from `start` to `end`."""
        trace = self._arrivals.get(sink)
        return trace.mean(start, end) if trace is not None else 0.0

    def level(self, sink: Port) -> float:
        """Return the power at `sink` now, in mW."""
        trace = self._arrivals.get(sink)
        return trace.last if trace is not None else 0.0

    def origin(self, sink: Port) -> Port | None:
        """Return the transmitter whose light comes to `sink`; None where it is dark."""
        return self._origins.get(sink)

    def tune(self, source: Port, nm: float, at: int) -> None:
        """Let the light that `source` emits have a wavelength of `nm`, from `at`, which is now."""
        detuned = nm - BENCH_NM
        if detuned == self._detuned.get(source, 0.0):
            return
        self._detuned[source] = detuned
        if source in self._fibers:
            sink, transmission = self._fibers[source]
            if milliwatt := self.level(sink) / transmission:
                self.emit(source, milliwatt, source, at)

    def detuning(self, sink: Port) -> float:
        """Return the wavelength of the light at `sink`, in nm above `BENCH_NM`."""
        origin = self.origin(sink)
        return 0.0 if origin is None else self._detuned.get(origin, 0.0)

    def polarize(self, sink: Port, stokes: Stokes) -> None:
        """Let the light that comes to `sink` go on in this polarization; pass it on afterwards."""
        origin = self.origin(sink)
        if origin is not None:
            self._polarized[origin] = stokes

    def polarization(self, sink: Port) -> Stokes | None:
        """Return the polarization of the light at `sink`; None where nothing controls it."""
        origin = self.origin(sink)
        return None if origin is None else self._polarized.get(origin)

    def trace(self, sink: Port) -> LightTrace:
        """Return the power that arrives at `sink` over time, as planned until now."""
        if sink not in self._arrivals:
            self._arrivals[sink] = LightTrace()
        return self._arrivals[sink]


class Channels:
    """Light at one bench instrument, by its channel numbers."""

    def __init__(self, name: str, field: LightField) -> None:
        self._name = name
        self._field = field

    def arriving(self, channel: int, start: int, end: int) -> float:
        """Return the mean power at `channel` from `start` to `end`, in mW."""
        return self._field.arriving(self._port(channel), start, end)

    def level(self, channel: int) -> float:
        """Return the power at `channel` now, in mW."""
        return self._field.level(self._port(channel))

    def origin(self, channel: int) -> Port | None:
        """Return the transmitter whose light comes to `channel`; None where it is dark."""
        return self._field.origin(self._port(channel))

    def on_arrival(self, channel: int, listener: Callable[[int], None]) -> None:
        """Call `listener` with the time whenever the light at `channel` has changed."""
        self._field.on_arrival(self._port(channel), listener)

    def emit(self, channel: int, milliwatt: float, at: int) -> None:
        """Emit `milliwatt` of the instrument's light from `channel`, from `at`, which is now."""
        port = self._port(channel)
        self._field.emit(port, milliwatt, port, at)

    def tune(self, channel: int, nm: float, at: int) -> None:
        """Let the instrument's light from `channel` have a wavelength of `nm`, from now, `at`."""
        self._field.tune(self._port(channel), nm, at)

    def polarize(self, channel: int, stokes: Stokes) -> None:
        """Let the light at `channel` be passed on in this polarization from now on."""
        self._field.polarize(self._port(channel), stokes)

    def pass_on(self, channel: int, milliwatt: float, at: int) -> None:
        """Pass `milliwatt` of the light at `channel` on, from `at`, which is now."""
        port = self._port(channel)
        self._field.emit(port, milliwatt, self._field.origin(port), at)

    def _port(self, channel: int) -> Port:
        return Port(self._name, str(channel))
