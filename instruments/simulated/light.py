"""Light between the parts of a simulated world: what leaves one comes to the next by its fiber."""

from bisect import bisect_right
from collections.abc import Callable, Iterable

from instruments.clock import Clock
from testbeds import Fiber, Port

_KEPT_NS = 2_000_000_000
_TRIMMED_FROM = 32


class LightTrace:
    """The power at one place over time, what is already planned included."""

    def __init__(self) -> None:
        self._times = [0]
        self._levels = [0.0]

    def plan(self, at: int, milliwatt: float) -> None:
        """From `at` on the power is `milliwatt`, until something later is planned."""
        self._times.append(at)
        self._levels.append(milliwatt)
        if len(self._times) > _TRIMMED_FROM:
            old = max(bisect_right(self._times, at - _KEPT_NS) - 1, 0)
            del self._times[:old]
            del self._levels[:old]

    @property
    def settled(self) -> int:
        """When the last change that is planned has happened."""
        return self._times[-1]

    @property
    def last(self) -> float:
        """The power after the last change that is planned."""
        return self._levels[-1]

    def forget_plans(self, now: int) -> None:
        """Drop what was planned for after `now`."""
        keep = bisect_right(self._times, now)
        del self._times[keep:]
        del self._levels[keep:]

    def mean(self, start: int, end: int) -> float:
        """Mean power in mW from `start` to `end`; before the first change it was as it was then."""
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

    def emit(self, source: Port, milliwatt: float, origin: Port | None, at: int) -> None:
        """From `at`, which is now, `milliwatt` of `origin`'s light enter the fiber at `source`.

        Where no fiber begins, the light is lost.
        """
        if source not in self._fibers:
            return
        if source in self._faded:
            share = self._faded[source][0]
            self._faded[source] = (share, milliwatt, origin)
            milliwatt *= share
        sink, transmission = self._fibers[source]
        self._trace(sink).plan(at, milliwatt * transmission)
        self._origins[sink] = origin if milliwatt else None
        listener = self._listeners.get(sink)
        if listener is not None:
            listener(at)

    def fade(self, source: Port, share: float, at: int) -> None:
        """From `at`, which is now, only `share` of what is emitted at `source` leaves it."""
        _, milliwatt, origin = self._faded.get(source, (1.0, 0.0, None))
        self._faded[source] = (share, milliwatt, origin)
        if milliwatt:
            self.emit(source, milliwatt, origin, at)

    def replug(self, source: Port, sink: Port, loss_db: float, clock: Clock) -> Callable[[], None]:
        """Put the fiber at `source` into `sink`, whose own one is taken out meanwhile.

        Returns what undoes that. Raises KeyError where no fiber begins at `source`.
        """
        was, transmission = self._fibers[source]
        out = [other for other, (end, _) in self._fibers.items() if end == sink]
        for other in out:
            self._lead(other, Port(sink.owner, f"{sink.name}/out"), self._fibers[other][1], clock)
        self._lead(source, sink, 10 ** (-loss_db / 10), clock)

        def undo() -> None:
            self._lead(source, was, transmission, clock)
            for other in out:
                self._lead(other, sink, self._fibers[other][1], clock)

        return undo

    def _lead(self, source: Port, sink: Port, transmission: float, clock: Clock) -> None:
        """From now on the fiber at `source` ends at `sink`, and loses what it says."""
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
        """Tell `listener` when the light at `sink` has changed, and at what time."""
        self._listeners[sink] = listener

    def arriving(self, sink: Port, start: int, end: int) -> float:
        """Mean power at `sink` in mW from `start` to `end`."""
        trace = self._arrivals.get(sink)
        return trace.mean(start, end) if trace is not None else 0.0

    def level(self, sink: Port) -> float:
        """The power at `sink` in mW, now."""
        trace = self._arrivals.get(sink)
        return trace.last if trace is not None else 0.0

    def origin(self, sink: Port) -> Port | None:
        """Whose light comes to `sink`; None where it is dark."""
        return self._origins.get(sink)

    def _trace(self, sink: Port) -> LightTrace:
        if sink not in self._arrivals:
            self._arrivals[sink] = LightTrace()
        return self._arrivals[sink]


class Channels:
    """The light at one bench instrument, by its channel numbers."""

    def __init__(self, name: str, field: LightField) -> None:
        self._name = name
        self._field = field

    def arriving(self, channel: int, start: int, end: int) -> float:
        """Mean power in mW that came to `channel` from `start` to `end`."""
        return self._field.arriving(self._port(channel), start, end)

    def level(self, channel: int) -> float:
        """The power in mW that comes to `channel` now."""
        return self._field.level(self._port(channel))

    def origin(self, channel: int) -> Port | None:
        """Whose light comes to `channel`; None where it is dark."""
        return self._field.origin(self._port(channel))

    def on_arrival(self, channel: int, listener: Callable[[int], None]) -> None:
        """Tell `listener` when the light at `channel` has changed, and at what time."""
        self._field.on_arrival(self._port(channel), listener)

    def emit(self, channel: int, milliwatt: float, at: int) -> None:
        """From `at`, which is now, `milliwatt` of the instrument's own light leave `channel`."""
        port = self._port(channel)
        self._field.emit(port, milliwatt, port, at)

    def pass_on(self, channel: int, milliwatt: float, at: int) -> None:
        """From `at`, which is now, `milliwatt` of what comes to `channel` leave it again."""
        port = self._port(channel)
        self._field.emit(port, milliwatt, self._field.origin(port), at)

    def _port(self, channel: int) -> Port:
        return Port(self._name, str(channel))
