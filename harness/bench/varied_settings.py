"""Settings of the bench that a trial sets to one value after another, each read back."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.named_values import (
    SubjectError,
    owners,
    parsed_value,
    setting,
    shown_value,
)
from lightrig.harness.bench.nic_settings import NIC_SETTINGS
from lightrig.harness.bench.varied_nic_settings import NicSetting
from lightrig.harness.signals import uninterrupted
from lightrig.instruments.core.errors import InstrumentError


class SettingNotReadBackError(InstrumentError):
    """An instrument acknowledged a setting, and reads another value."""


class VariedSetting(Protocol):
    """A setting and the values that a trial compares.

    Attributes:
        name: such as `voa.1.attenuation`.
        values: as a person reads them; the first is what the others are compared with.
        found: what it was.
    """

    name: str
    values: tuple[str, ...]
    found: str

    def set(self, index: int) -> None:
        """Set it to `values[index]` and read it back; raises `InstrumentError`."""

    def put_back(self) -> None:
        """Set it to what was found; raises `InstrumentError`."""


class InstrumentSetting:
    """A setting of an instrument or the shutter of a switch's port; see `VariedSetting`.

    Args:
        bench: the open instruments.
        name: as `named_values.setting` takes it.
        texts: values, with units.

    Raises `SubjectError`, and `InstrumentError` where it cannot be read.
    """

    def __init__(self, bench: Bench, name: str, texts: Sequence[str]) -> None:
        found, self._found, unit = setting(bench, name)
        kind = found.key.rpartition(" ")[0] or found.key
        self._key, self._owner = found.key, found.instrument
        self._instrument = bench.settable[found.instrument]
        self._channels = bench.channels(found.instrument)
        self._values = [parsed_value(kind, text, self._found, unit) for text in texts]
        self.name = str(found)
        self.found = shown_value(kind, self._found, unit)
        self.values = tuple(shown_value(kind, value, unit) for value in self._values)

    def set(self, index: int) -> None:
        """Set it to `values[index]` and read it back; raises `InstrumentError`."""
        self._make(self._values[index])

    def put_back(self) -> None:
        """Set it to what was found; raises `InstrumentError`."""
        self._make(self._found)

    def _make(self, value: float | bool) -> None:
        self._instrument.restore_settings({self._key: value})
        present = self._instrument.read_settings(self._channels)[self._key]
        if not self._instrument.same_setting(self._key, present, value):
            raise SettingNotReadBackError(
                self._owner, f"was set to {self._key} {value}, and reads {present}"
            )


def varied_setting(bench: Bench, name: str, texts: Sequence[str]) -> VariedSetting:
    """Return the setting that a trial varies between two or more different values.

    Raises `SubjectError`, and `InstrumentError` where it cannot be read.
    """
    found = _setting(bench, name, texts)
    if len(found.values) < 2 or len(set(found.values)) < len(found.values):
        raise SubjectError(
            f"found {', '.join(found.values) or 'nothing'} for {found.name}, expected two values "
            "or more, each once"
        )
    return found


def fixed_setting(bench: Bench, name: str, text: str) -> VariedSetting:
    """Return a setting that has one value during a trial; raises what `varied_setting` does."""
    return _setting(bench, name, [text])


def _setting(bench: Bench, name: str, texts: Sequence[str]) -> VariedSetting:
    if name.rpartition(".")[2] in NIC_SETTINGS:
        return NicSetting(bench, name, texts)
    owners(bench.testbed, [name])  # raises for none of the testbed
    return InstrumentSetting(bench, name, texts)


@contextmanager
def set_meanwhile(settings: Sequence[VariedSetting]) -> Iterator[None]:
    """Set each to its first value, and put all back at the end; raises `InstrumentError`."""
    with ExitStack() as stack:
        for each in settings:
            stack.callback(put_back_uninterrupted, each)
            each.set(0)
        yield


def put_back_uninterrupted(setting: VariedSetting) -> None:
    """Put a setting back, whatever signals come; raises `InstrumentError`."""
    with uninterrupted():
        setting.put_back()
