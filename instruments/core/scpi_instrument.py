"""Base class of drivers of SCPI instruments: checked commands, typed queries, declared settings."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar, overload

from lightrig.instruments.clock import Clock, Span
from lightrig.instruments.core.capabilities import Identity
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import (
    DeniedError,
    InstrumentError,
    NoReplyError,
    NotDoneError,
)
from lightrig.instruments.core.instrument import Instrument, line_speed
from lightrig.instruments.wire.scpi import IDENTITY, scpi_session

if TYPE_CHECKING:  # see `query_floats`
    import numpy as np
    import numpy.typing as npt

V = TypeVar("V", bound=float)  # float or bool

ErrorMeanings = Mapping[int, tuple[str, str]]
"""Meaning of an instrument's error codes at the bench and what to try, by code."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class ScpiInstrument(Instrument):
    """A driver of an instrument that speaks SCPI over scpi:// (TCP), serial:// or visa://.

    An instrument that objects to a query does not answer it and says why only in its error
    queue. So where a reply fails to come, the queue is read before the error is raised.

    Attributes:
        error_query: reads the oldest entry of the error queue.
        error_meanings: meaning of the codes in it.
        default_port: TCP port where the address names none.
        channels: the channels that there are; None where only the instrument knows.
    """

    error_query: ClassVar[str] = ":SYST:ERR?"
    error_meanings: ClassVar[ErrorMeanings] = {}
    default_port: ClassVar[int] = 5025
    channels: ClassVar[Sequence[int] | None] = None
    baud = line_speed(9600)

    def __init__(self, name: str, endpoint: Endpoint, clock: Clock, **options: Any) -> None:
        super().__init__(name, endpoint, clock, **options)
        self.session = scpi_session(
            name,
            endpoint,
            clock,
            port=self.default_port,
            baud=self.baud,
            meanings=self.error_meanings,
            error_query=self.error_query,
        )
        self.sessions = (self.session,)

    def identity(self) -> Identity:
        """Return manufacturer, model, serial number and firmware, as `*IDN?` reports them.

        IEEE 488.2, 10.14, has four fields of text. Some firmware has commas of its own, some
        instruments put all in quotes, and some converters begin with NUL bytes.
        """
        answer = self.query(IDENTITY)
        fields = [field.strip() for field in answer.strip('\0" ').split(",", 3)]
        if len(fields) != 4 or not all(fields[:3]):
            raise self.garbled(IDENTITY, answer, "identity")
        return Identity(*fields)

    # ------------------------------------------------------------------------ commands

    def write(self, command: str, timeout: int | None = None) -> Span:
        """Send `command` and check the error queue; return when its acceptance was known.

        Raises `DeniedError` where the instrument refuses; waits at most `timeout` ns.
        """
        return self.session.do(command, timeout)

    def ask(self, command: str) -> str:
        """See `ScpiSession.ask`."""
        return self.session.ask(command)

    def write_confirmed(self, node: str, value: str, *, selector: str = "") -> None:
        """Set what is no declared setting, and read it back.

        Numbers are compared as numbers, words in their short or long form.

        node: the command without its arguments, whose query reads the value. selector: first
        argument of both.

        Raises `DeniedError`, and `NotDoneError` where another value is read.
        """
        command = f"{node} {','.join(filter(None, (selector, value)))}"
        self.write(command)
        found = self.query(f"{node}? {selector}".rstrip()).strip("\"' ")
        if not _same_value(value, found):
            raise self.failed(NotDoneError, f"accepted {value}, but reports {found}", command)

    def write_unchecked(self, command: str) -> Span:
        """Send `command` and return at once; `raise_on_error` checks the error queue later."""
        return self.session.write(command)

    def query(self, command: str, timeout: int | None = None) -> str:
        """Return the reply to `command` as text, within `timeout` ns.

        Raises `DeniedError` where the error queue tells why none came.
        """
        try:
            return self.session.query(command, timeout).text
        except NoReplyError as silence:
            self.raise_on_error(command, silence)
            raise

    def query_number(self, command: str, timeout: int | None = None) -> float:
        """Return the reply as a number, in the instrument's own unit; see `query`."""
        text = self.query(command, timeout)
        if _NUMBER.fullmatch(text) is None:
            raise self.garbled(command, text, "number")
        return float(text)

    def query_bool(self, command: str) -> bool:
        """Return whether the reply is 1 (not 0), with or without a sign; see `query`."""
        text = self.query(command)
        if text.lstrip("+") not in {"0", "1"}:
            raise self.garbled(command, text, "0 or 1")
        return text.endswith("1")

    def query_block(self, command: str, timeout: int | None = None) -> bytes:
        """Return the bytes of a definite-length block (IEEE 488.2); see `query`."""
        try:
            return self.session.query_block(command, timeout)
        except NoReplyError as silence:
            self.raise_on_error(command, silence)
            raise

    def query_floats(
        self, command: str, count: int, timeout: int | None = None
    ) -> "npt.NDArray[np.float64]":
        """Return a block of `count` little-endian 4-byte floats, shape (count,); see `query`."""
        import numpy as np  # noqa: PLC0415 - `lightrig check` imports drivers, not numpy

        data = self.query_block(command, timeout)
        if len(data) != 4 * count:
            raise self.garbled(command, f"{len(data)} bytes", f"block of {count} 4-byte floats")
        values = np.frombuffer(data, dtype="<f4").astype(np.float64)
        if np.isnan(values).any():
            raise self.garbled(command, "values that are no numbers (NaN)", "block of floats")
        return values

    # --------------------------------------------------------------------- error queue

    def read_error_queue(self) -> list[tuple[int, str]]:
        """Return code and text of every entry of the error queue, oldest first, and empty it."""
        return self.session.errors()

    def read_errors(self) -> list[str]:
        """Return the entries of the error queue as text, oldest first, and empty it."""
        return [f"{code} {text}" for code, text in self.read_error_queue()]

    def raise_on_error(self, command: str, cause: Exception | None = None) -> None:
        """Empty the error queue; raise `DeniedError` for its oldest entry, if there is one."""
        for code, text in self.read_error_queue()[:1]:
            raise self.queued_error(command, code, text) from cause

    def queued_error(self, command: str, code: int, text: str) -> DeniedError:
        """Return the error of an entry of the error queue, with its meaning."""
        return self.denied(command, str(code), text, *self.error_meanings.get(code, ()))

    def failed(
        self, kind: type[InstrumentError], problem: str, command: str, *details: tuple[str, str]
    ) -> InstrumentError:
        """Return an error of this instrument; after a garbled reply the session resynchronizes."""
        return self.session.failed(kind, problem, command, *details)

    # ------------------------------------------------------------------------ channels

    def address_of(self, channel: int) -> int:
        """Return the number of `channel` in the instrument's commands.

        Raises `DeniedError` for a channel that does not exist.
        """
        if self.channels is not None and channel not in self.channels:
            first, last = self.channels[0], self.channels[-1]
            existing = f"there are {first} to {last}" if last > first else "there is only 1"
            raise self.refused(f"no channel {channel}; {existing}")
        return channel

    def settled(self, channel: int, command: str) -> None:
        """Wait until `command` has taken effect at `channel`; by default nothing is waited for."""


def _same_value(value: str, found: str) -> bool:
    """Whether a reply has the value that was written, as numbers or as words of SCPI."""
    if "," in value:
        pairs = zip(value.split(","), found.split(","), strict=False)
        same = value.count(",") == found.count(",")
        return same and all(_same_value(one.strip(), two.strip()) for one, two in pairs)
    if _NUMBER.fullmatch(value) and _NUMBER.fullmatch(found):
        return math.isclose(float(value), float(found), rel_tol=1e-6, abs_tol=1e-15)
    short = "".join(letter for letter in value if not letter.islower())
    return found.upper() in {value.upper(), short.upper()}


class Setting(Generic[V]):
    """A setting that a command sets and the query of the same name reads, once per channel.

    On an instrument it is a `BoundSetting`. `node` may name `{channel}` and attributes of the
    driver: ":SENS{channel}:POW:WAV", ":SOUR{driver.slot}:WAV".

    Args:
        kind: float or bool.
        node: the command without its argument.
        about: what is set, for messages and documentation.
        unit: unit of the value.
        argument: how a float is written: "{:.4f}NM".
        written: how a bool is written, off and on.
        selector: first argument of command and query, where the node takes one.
        scale: value in `unit` by what the query reads.
        tolerance: largest difference between two values that count as the same.
        timeout: how long the command may take, in ns.
        verified: whether every change is read back and compared.
        reason: why one that is not verified need not be.
        advice: what to try where the value read back is another.
        gates_light: whether light passes only while it is on: restored first where it is to
            be off, and last where it is to be on, so that nothing is lit meanwhile.
        light: 1 where a greater value is more light, -1 where it is less, else 0.
        read: reads the value instead of the query.
        check: raises `DeniedError` for a value that must not be sent.
    """

    def __init__(
        self,
        kind: type[V],
        node: str,
        about: str,
        *,
        unit: str = "",
        argument: str = "{:g}",
        written: tuple[str, str] = ("0", "1"),
        selector: str = "",
        scale: float = 1.0,
        tolerance: float = 0.0,
        timeout: int | None = None,
        verified: bool = False,
        reason: str = "",
        advice: str = "",
        gates_light: bool = False,
        light: Literal[-1, 0, 1] = 0,
        read: Callable[[Any, int], V] | None = None,
        check: Callable[[Any, V], None] | None = None,
    ) -> None:
        if verified and reason:
            raise TypeError(f"{about}: found a reason why it is not verified, and it is")
        self.kind = kind
        self.node = node
        self.about = about
        self.unit = unit
        self.argument = argument
        self.written = written
        self.selector = selector
        self.scale = scale
        self.tolerance = tolerance
        self.timeout = timeout
        self.verified = verified
        self.reason = reason
        self.advice = advice
        self.gates_light = gates_light
        self.light = light
        self.read = read
        self.check = check
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.removesuffix("_setting")

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: ScpiInstrument, owner: type) -> "BoundSetting[V]": ...
    def __get__(self, instance: ScpiInstrument | None, owner: type) -> "Self | BoundSetting[V]":
        return self if instance is None else BoundSetting(self, instance)


class BoundSetting(Generic[V]):
    """A setting of one instrument."""

    def __init__(self, setting: Setting[V], driver: ScpiInstrument) -> None:
        self.setting = setting
        self._driver = driver

    def get(self, channel: int = 1) -> V:
        """Return the value that is set at `channel`, in the setting's unit."""
        setting, driver = self.setting, self._driver
        node, selector = self._address(channel)
        if setting.read is not None:
            return setting.read(driver, channel)
        query = f"{node}? {selector}".rstrip()
        if setting.kind is bool:
            return setting.kind(driver.query_bool(query))
        return setting.kind(driver.query_number(query) * setting.scale)

    def set(self, value: V, channel: int = 1) -> None:
        """Set `channel` to `value` and check that the instrument accepted it.

        Raises `DeniedError`, and `NotDoneError` where a verified setting reads back differently.
        """
        setting, driver = self.setting, self._driver
        node, selector = self._address(channel)
        if setting.check is not None:
            setting.check(driver, value)
        if setting.kind is bool:
            argument = setting.written[bool(value)]
        else:
            argument = setting.argument.format(value)
        command = f"{node} {','.join(filter(None, (selector, argument)))}"
        if driver.on_setting is not None:
            driver.on_setting(self.key(channel), value)
        driver.write(command, setting.timeout)
        driver.settled(channel, command)
        if setting.verified and not self.same(found := self.get(channel), value):
            advice = [("try", setting.advice)] if setting.advice else []
            raise driver.failed(
                NotDoneError,
                f"accepted {self._shown(value)} as {setting.about} of channel {channel}, but "
                f"reports {self._shown(found)}",
                command,
                *advice,
            )

    def same(self, first: V, second: V) -> bool:
        """Whether two values differ by no more than the setting's tolerance."""
        return abs(first - second) <= self.setting.tolerance

    def key(self, channel: int) -> str:
        """Return the name of the setting; channels that share it have the same."""
        node = self.node(channel)
        channels = self._driver.channels or (channel,)
        return f"{self.setting.name} {next(each for each in channels if self.node(each) == node)}"

    def node(self, channel: int) -> str:
        """Return the command without its value; the same for channels that share the setting."""
        return " ".join(self._address(channel))

    def _address(self, channel: int) -> tuple[str, str]:
        names = {"channel": self._driver.address_of(channel), "driver": self._driver}
        return self.setting.node.format(**names), self.setting.selector.format(**names)

    def _shown(self, value: V) -> str:
        if self.setting.kind is bool:
            return "on" if value else "off"
        return f"{value:g} {self.setting.unit}".rstrip()


class RestorableScpiInstrument(ScpiInstrument):
    """A SCPI instrument whose declared settings can be saved and restored."""

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Read every declared setting of `channels`; calling the result restores them."""
        return partial(self.restore_settings, self.read_settings(channels))

    def read_settings(self, channels: Sequence[int]) -> Mapping[str, float]:
        """Return every declared setting of `channels` by name, such as `emission 1`."""
        found: dict[str, float] = {}
        for channel in channels:
            for setting in self.settings():
                if (key := setting.key(channel)) not in found:
                    found[key] = setting.get(channel)
        return found

    def restore_settings(self, settings: Mapping[str, float]) -> None:
        """Set what differs from `settings`; what gates light is off first and on last.

        Raises `DeniedError` for a setting that the driver does not declare.
        """
        gates: list[tuple[BoundSetting[Any], int, float]] = []
        ungated: list[tuple[BoundSetting[Any], int, float]] = []
        for name, value in settings.items():
            setting, channel = self._setting(name)
            (gates if setting.setting.gates_light else ungated).append((setting, channel, value))
        closed = [entry for entry in gates if not entry[2]]
        opened = [entry for entry in gates if entry[2]]
        for setting, channel, value in (*closed, *ungated, *opened):
            if not setting.same(setting.get(channel), value):
                setting.set(value, channel)
        self.restored()

    def same_setting(self, name: str, first: float, second: float) -> bool:
        """Whether two values of a setting differ by no more than its tolerance."""
        return self._setting(name)[0].same(first, second)

    def raises_light(
        self, present: Mapping[str, float], wanted: Mapping[str, float]
    ) -> frozenset[str]:
        """Return the settings that switch light on or raise it, from `present` to `wanted`.

        Where one that gates light is to be off, the others of its channel raise none.
        """
        found, dark = set(), set()
        for name, value in wanted.items():
            setting, channel = self._setting(name)
            if setting.setting.gates_light and not value:
                dark.add(channel)
            before = present.get(name)
            if before is not None and setting.same(before, value):
                continue
            sign = setting.setting.gates_light or setting.setting.light
            if sign and (before is None or sign * (value - before) > 0):
                found.add(name)
        return frozenset(name for name in found if self._setting(name)[1] not in dark)

    def light_level(self, settings: Mapping[str, float], channel: int) -> float | None:
        """Return the light that leaves `channel` with `settings`, as `HasLightLevel` has it."""
        levels: list[float] = []
        for each in self.settings():
            value = settings.get(each.key(channel))
            if value is not None and each.setting.gates_light and not value:
                return -math.inf
            if value is not None and each.setting.light:
                levels.append(each.setting.light * value)
        return sum(levels) if levels else None

    def _setting(self, name: str) -> tuple[BoundSetting[Any], int]:
        kind, _, channel = name.rpartition(" ")
        for setting in self.settings():
            if setting.setting.name == kind and channel.isdecimal():
                return setting, int(channel)
        raise self.refused(f"no setting {name!r}", "another version of Lightrig has saved it")

    def settings(self) -> list[BoundSetting[Any]]:
        """Return the settings that the driver declares, in the order of their declaration."""
        bases = reversed(type(self).__mro__)
        members = {name: member for base in bases for name, member in vars(base).items()}
        return [
            BoundSetting(member, self) for member in members.values() if isinstance(member, Setting)
        ]

    @property
    def setting_units(self) -> Mapping[str, str]:
        """The unit of each setting that has one."""
        return {each.setting.name: each.setting.unit for each in self.settings()}

    def restored(self) -> None:
        """Forget what the driver knew of the settings; called after they were restored."""
