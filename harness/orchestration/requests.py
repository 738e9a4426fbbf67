"""Requests to an orchestrator: strict models, from JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    create_model,
)

from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.layout import Shape

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
"""Pattern of the name of a job."""

Name = Annotated[str, StringConstraints(pattern=NAME)]
Nodes = Annotated[tuple[str, ...], Field(min_length=1)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Change(_Request):
    """A request that changes what is wanted.

    dry_run: answer what it would change, and change nothing.
    """

    dry_run: bool = False


class Status(_Request):
    """Say what is wanted and seen."""

    do: Literal["status"]


class Submit(_Change):
    """Place a job; twice places it once, and without `reserve` it starts a reserved one.

    nodes: those that it may have, now and after a failure, as a scheduler has allocated them.
    keep_alive: seconds after which the job is withdrawn that no further `submit` of it has come
    in; a client that was killed leaves nothing behind.
    """

    do: Literal["submit"]
    job: Name
    shape: SerializeAsAny[Shape]
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    gang: bool = False
    reserve: bool = False
    nodes: Nodes | None = None
    keep_alive: Annotated[float, Field(ge=1, le=86400)] | None = None


class Withdraw(_Change):
    """End a job; jobs that wait may get its nodes."""

    do: Literal["withdraw"]
    job: Name


class Failed(_Change):
    """Take nodes for failed, whatever their probes say, and place their groups anew."""

    do: Literal["failed"]
    nodes: Nodes


class Repaired(_Change):
    """Use nodes again that a request called failed, or that were drained."""

    do: Literal["repaired"]
    nodes: Nodes


class Drain(_Change):
    """Give nodes no new group; those that they have stay."""

    do: Literal["drain"]
    nodes: Nodes


Request: TypeAlias = Status | Submit | Withdraw | Failed | Repaired | Drain


@cache
def submit_model(shape: type[Shape]) -> type[Submit]:
    """Return the model of a request that submits a job of a system."""
    return create_model("Submit", __base__=Submit, __doc__=Submit.__doc__, shape=(shape, ...))


@cache
def _adapter(shape: type[Shape], *, withdraws: bool = True) -> TypeAdapter[Any]:
    kinds: Any = Status | submit_model(shape) | Failed | Repaired | Drain
    if withdraws:
        kinds = kinds | Withdraw
    return TypeAdapter(Annotated[kinds, Field(discriminator="do")])


def request_schema(shape: type[Shape], nodes: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of the requests, whose `$defs` are those of an OpenAPI document.

    Without `withdraw`, for which HTTP has DELETE. nodes: of the fabric, which requests may name.
    """
    template = "#/components/schemas/{model}"
    schema: dict[str, Any] = _adapter(shape, withdraws=False).json_schema(ref_template=template)
    schema["$defs"]["Node"] = {"type": "string", "enum": list(nodes)}
    for part in schema["$defs"].values():
        stated = part.get("properties", {}).get("nodes", {})
        for each in (stated, *stated.get("anyOf", ())):
            if each.get("type") == "array":
                each["items"] = {"$ref": template.format(model="Node")}
    return schema


def parsed(request: Mapping[str, Any], shape: type[Shape]) -> Request:
    """Return the request that a JSON object states; raises `OrchestrationError`.

    A number without a fraction is an integer, as in JSON Schema: 2.0 is 2.
    """
    found: Request = _validated(_adapter(shape), request)
    return found


@cache
def _messages(models: tuple[type[BaseModel], ...]) -> TypeAdapter[Any]:
    kinds: Any = reduce(or_, models)
    return TypeAdapter(Annotated[kinds, Field(discriminator="do")])


def message_schema(models: tuple[type[BaseModel], ...]) -> dict[str, Any]:
    """Return the JSON Schema of messages, whose `$defs` are those of an OpenAPI document."""
    return _messages(models).json_schema(ref_template="#/components/schemas/{model}")


def read_message(message: object, models: tuple[type[BaseModel], ...]) -> BaseModel:
    """Return the message that a JSON value states; raises `OrchestrationError`."""
    found: BaseModel = _validated(_messages(models), message)
    return found


def _validated(adapter: TypeAdapter[Any], document: object) -> Any:
    text = json.dumps(json.loads(json.dumps(document), parse_float=_number))
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        problems = (
            f"{'.'.join(map(str, each['loc'])) or 'request'}: {each['msg']}"
            for each in error.errors(include_url=False, include_input=False)
        )
        raise OrchestrationError("; ".join(problems)) from error


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value
