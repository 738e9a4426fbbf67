"""Errors of the lowest floor, and the base of every error raised on purpose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lightrig.testbeds.escaping import escape_control


class LightrigError(Exception):
    """Base of every error that Lightrig raises on purpose.

    Its text may quote what an instrument or a file holds, and is shown without control characters.

    subjects: the components that it is about, by their names in the testbed's file.
    """

    subjects: tuple[str, ...] = ()

    def __init__(self, *arguments: object, subjects: Iterable[str] = ()) -> None:
        super().__init__(*arguments)
        self.subjects = tuple(subjects)

    def __str__(self) -> str:
        return escape_control(super().__str__())


class PackError(LightrigError, ImportError):
    """A pack has no usable manifest, or names a part that cannot be loaded."""


@dataclass(frozen=True, order=True, slots=True)
class Problem:
    """One mistake in a file; `line` and `column` count from 1."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class TestbedError(LightrigError):
    """A testbed file has problems; `problems` lists all of them in file order."""

    __test__ = False

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class SizesOnlyError(TestbedError):
    """A file describes a fabric of `system` by its sizes, of which no testbed is made."""

    def __init__(self, problem: Problem, system: str | None) -> None:
        super().__init__([problem])
        self.system = system
