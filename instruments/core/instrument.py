"""Base classes of drivers: declared options, sessions, traces and the errors that name them.

A driver declares what its model needs (schemes, options, framing, error codes) and implements what
differs from other models; opening, tracing, closing and error reports are here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar, overload

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import CANNOT, DeniedError, GarbledError, InstrumentError
from lightrig.instruments.core.registry import Spec
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.testbeds import LightrigError

if TYPE_CHECKING:  # `lightrig check` imports drivers, and needs none of their wires
    from lightrig.instruments.wire.trace import Trace

T = TypeVar("T")


def _strict(kind: type, expected: str) -> Callable[[Any], Any]:
    """Return a conversion to `kind` that accepts what a file writes as such alone."""
    accepted = (int, float) if kind is float else kind

    def convert(stated: Any) -> Any:
        if not isinstance(stated, accepted) or isinstance(stated, bool) != (kind is bool):
            raise ValueError(f"found {stated!r}, expected {expected}")
        return kind(stated)

    return convert


_STRICT: dict[Any, Callable[[Any], Any]] = {
    bool: _strict(bool, "true or false"),
    int: _strict(int, "a whole number"),
    float: _strict(float, "a number without unit"),
}


class Option(Generic[T]):
    """A value that a testbed file states about an instrument; read once, when a driver is opened.

    Args:
        convert: makes the value of what the file states; raises ValueError if it cannot.
        default: the value where the file states none.
        about: meaning and unit, for people.
        key: name under `options:` in the file; by default the name of the attribute.
        attribute: attribute of the spec to read instead of `options:`, such as `egress_count`.
    """

    def __init__(
        self,
        convert: Callable[[Any], T],
        default: T,
        about: str,
        *,
        key: str = "",
        attribute: str = "",
    ) -> None:
        self.convert: Callable[[Any], Any] = _STRICT.get(convert, convert)
        self.default = default
        self.about = about
        self.key = key
        self.attribute = attribute
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.key = self.key or name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: "Instrument", owner: type) -> T: ...
    def __get__(self, instance: "Instrument | None", owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = instance.stated_options.get(self.name, self.default)
        return value

    def read(self, spec: Spec) -> T:
        """Return the value that `spec` states; raises `LightrigError` for one that it cannot be."""
        stated = getattr(spec, self.attribute, None) if self.attribute else None
        if not self.attribute:
            stated = spec.options.get(self.key)
        if stated is None:
            return self.default
        try:
            value: T = self.convert(stated)
            return value
        except (TypeError, ValueError) as error:
            raise LightrigError(f"{spec.name}: options: {self.key}: {error}") from error


def one_of(*allowed: str | int) -> Callable[[Any], Any]:
    """Return a conversion for `Option` that accepts the listed values only."""

    def convert(stated: Any) -> Any:
        if stated not in allowed:
            raise ValueError(f"found {stated!r}, expected one of {', '.join(map(str, allowed))}")
        return stated

    return convert


def within(kind: type, least: float, most: float, unit: str = "") -> Callable[[Any], Any]:
    """Return a conversion for `Option` that accepts numbers of `kind` from `least` to `most`."""

    def convert(stated: Any) -> Any:
        value = _STRICT[kind](stated)
        if not least <= value <= most:
            raise ValueError(f"found {value}, expected {least} to {most}{unit and ' '}{unit}")
        return value

    return convert


def from_milliseconds(stated: Any) -> int:
    """Convert milliseconds in a testbed file to ns."""
    return round(float(_STRICT[float](stated)) * 1e6)


def from_seconds(stated: Any) -> int:
    """Convert seconds in a testbed file to ns."""
    return round(float(_STRICT[float](stated)) * 1e9)


def line_speed(default: int) -> Option[int]:
    """Return the option `baud` of an instrument whose serial line usually has `default` bit/s."""
    return Option(int, default, "speed of a serial line, in bit/s")


class Session(Protocol):
    """Interface of every session of `instruments.wire`."""

    @property
    def trace(self) -> "Trace":
        """Trace of the wire."""

    def close(self) -> None:
        """End the session."""


class Instrument:
    """A driver of one instrument.

    Args:
        name: the instrument's name in the testbed.
        endpoint: its address, with credentials.
        clock: the bench's clock.
        options: values of the declared options, by attribute name.

    Attributes:
        schemes: the wires that the driver supports, as addresses name them.
        shared_options: names under `options:` that only measurements or the simulated device read.
        options: all names that the testbed file may use under `options:`.
        wire_facts: what the driver relies on, confirmed by a source or not; `lightrig doctor`
            lists those that are not.
        sessions: the sessions with the instrument; they connect when first used.
        sizes: forms of a switch's size, such as "NxN, 1xN"; "" for any.
        unverified: commands of settings that are not read back, with `*` for what differs, and
            why they need not be.
        shares_address: whether others have its address too, as modules of a mainframe have.
        on_setting: called with the name of a setting and its value before it is set, if stated.
    """

    on_setting: Callable[[str, float], None] | None = None
    schemes: ClassVar[Collection[str]] = ()
    shared_options: ClassVar[Collection[str]] = ()
    options: ClassVar[Collection[str]] = ()
    wire_facts: ClassVar[Sequence[WireFact]] = ()
    sessions: Sequence[Session] = ()
    sizes: ClassVar[str] = ""
    unverified: ClassVar[Mapping[str, str]] = {}
    shares_address: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        declared = (option.key for option in cls.declared_options() if not option.attribute)
        cls.options = frozenset((*declared, *cls.shared_options))

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        declared = {option.name for option in self.declared_options()}
        if unknown := sorted(set(options) - declared):
            raise TypeError(f"{type(self).__name__} has no option {unknown[0]!r}")
        self.name = name
        self.endpoint = endpoint
        self.clock = clock
        self.stated_options = options

    @classmethod
    def open(cls, spec: Spec, endpoint: Endpoint, clock: Clock) -> Self:
        """Return the driver of the instrument that `spec` describes, without contacting it.

        Raises `LightrigError` for an option that the testbed file states wrongly.
        """
        options = {option.name: option.read(spec) for option in cls.declared_options()}
        return cls(spec.name, endpoint, clock, **options)

    @classmethod
    def declared_options(cls) -> list[Option[Any]]:
        """Return the options that the class and its bases declare, bases first."""
        members = {
            name: each for base in reversed(cls.__mro__) for name, each in vars(base).items()
        }
        return [member for member in members.values() if isinstance(member, Option)]

    def wire(self) -> list[str]:
        """Return the last lines that went over the wire, of all sessions, oldest first."""
        pieces = [piece for session in self.sessions for piece in session.trace.pieces()]
        return [str(piece) for piece in sorted(pieces, key=lambda piece: piece.at)[-40:]]

    def close(self) -> None:
        """End every session; the instrument keeps its state."""
        for session in self.sessions:
            session.close()

    # ------------------------------------------------------------------------- errors

    def failed(
        self, kind: type[InstrumentError], problem: str, command: str, *details: tuple[str, str]
    ) -> InstrumentError:
        """Return an error of this instrument, with the last lines of its wire."""
        return kind(self.name, problem, command=command, details=details, trace=self.wire()[-6:])

    def garbled(
        self, command: str, reply: object, expected: str, *details: tuple[str, str]
    ) -> InstrumentError:
        """Return the error of a reply to `command` that is not what the manual promises."""
        return self.failed(
            GarbledError,
            f"answered something that is no {expected}",
            command,
            ("answered", str(reply)[:200]),
            *details,
        )

    def denied(
        self, command: str, code: str, text: str, meaning: str = "", advice: str = ""
    ) -> DeniedError:
        """Return the error of a command that the instrument refused with `code` and `text`."""
        details = [pair for pair in (("meaning", meaning), ("try", advice)) if pair[1]]
        return DeniedError(
            self.name,
            code=code,
            text=text,
            command=command,
            details=details,
            trace=self.wire()[-6:],
        )

    def refused(
        self, text: str, meaning: str = "", advice: str = "", *, command: str = ""
    ) -> DeniedError:
        """Return the error of a request that the driver refuses before it sends anything."""
        return self.denied(command, CANNOT, text, meaning, advice)
