"""Commands whose arguments and options are the fields of one dataclass."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

Request = TypeVar("Request")


def takes(request: type[Request]) -> Callable[[Callable[[Request], None]], Callable[..., None]]:
    """Give a command a parameter for each field of `request`, and call it with one of those.

    A field is declared as a parameter of a typer command, `Annotated[str, typer.Option(...)]`; its
    default is the option's.
    """
    hints = get_type_hints(request, include_extras=True)
    parameters = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(request)  # type: ignore[arg-type]
    ]

    def decorate(command: Callable[[Request], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            command(request(**given))

        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = hints  # typer reads both
        return run

    return decorate
