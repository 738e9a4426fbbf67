"""Common bases of the models of all files, and their JSON Schema."""

import re
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema


class Part(BaseModel):
    """Base of all parts of a file: unknown keys and silent conversions are errors."""

    # Validators of parts are built with those of the whole file, once: half the start-up time.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def key_of(field: str) -> str:
    """Return the key of a file that states `field`: without its unit, which the value has."""
    return re.sub("_(ns|dbm|db|nm|bps)$", "", field)


class Stated:
    """Base of frozen dataclasses that a file states, or the program makes without a file.

    Fields have their unit in their name and the program's numbers as defaults; a file leaves the
    unit out of the key and writes it in the value. Only values from a file are validated.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, alias_generator=key_of
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Accept the mapping that a file has: strict as its fields are, it must be an object."""
        schema: Any = handler.resolve_ref_schema(handler(source))
        schema["strict"] = False
        return cast("CoreSchema", schema)


class _FileSchema(GenerateJsonSchema):
    """JSON Schema whose defaults are written as in a file, with their units."""

    def default_schema(self, schema: Any) -> dict[str, Any]:
        result = super().default_schema(schema)
        default = schema.get("default")
        writes = schema["schema"].get("serialization")
        if isinstance(default, Stated):
            result["default"] = TypeAdapter(type(default)).dump_python(
                default, mode="json", by_alias=True, exclude_none=True
            )
        elif writes is not None and isinstance(default, int | float):
            result["default"] = writes["function"](default)
        return result


def schema_of(model: type[Part], title: str) -> dict[str, Any]:
    """Return the JSON Schema of a file that holds a `model`."""
    schema = _without_null(model.model_json_schema(schema_generator=_FileSchema))
    assert isinstance(schema, dict)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": title,
    }


def _without_null(schema: Any) -> Any:
    """Drop the null that stands for "left out" in Python; a file leaves the key out."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: _without_null(value)
        for key, value in schema.items()
        if not (key == "default" and value is None)
    }
    options = result.get("anyOf")
    if isinstance(options, list):
        options = [option for option in options if option != {"type": "null"}]
        if len(options) == 1:
            del result["anyOf"]
            return {**options[0], **result}
        result["anyOf"] = options
    return result
